//! Maxima of statuses: the API server refuses the whole status when one of its lists or texts is
//! longer (`maxItems` and `maxLength` of the definitions). A test compares them with the
//! definitions of the Gateway API and with ours (`e2e/inside/tests/apiserver/status_maxima.rs`).

/// Addresses of a Gateway.
pub const ADDRESSES: usize = 16;
/// Ancestors of a policy, of all controllers together.
pub const ANCESTORS: usize = 16;
/// Ancestors of an XBackend, of all controllers together.
pub const BACKEND_ANCESTORS: usize = 32;
/// Conditions of an object, listener, parent or ancestor, of all controllers together.
pub const CONDITIONS: usize = 8;
/// Features of a GatewayClass.
pub const FEATURES: usize = 64;
/// Kinds of routes of a listener.
pub const KINDS: usize = 8;
/// Listeners of a Gateway or ListenerSet.
pub const LISTENERS: usize = 64;
/// Characters of the message of a condition.
pub const MESSAGE: usize = 32_768;
/// Parents of a route, of all controllers together.
pub const PARENTS: usize = 32;
