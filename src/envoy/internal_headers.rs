//! Headers by which Envoy selects the routes of a connection: overwritten before anything reads
//! them, and removed before a request leaves.

/// The header with frontend and host, which selects the scope. Like [`LISTENER_HEADER`] it is
/// overwritten before anything reads it, so no client can forge it, and removed before a request
/// leaves.
pub(super) const SCOPE_HEADER: &str = "x-gw-scope";

/// The header with the hostname of the connection's listener, which for an exact one is the SNI.
pub(super) const LISTENER_HEADER: &str = "x-gw-sni";

/// The header that is `own` if the request is for the host that the connection was opened for, else
/// `other`. It is used where not all hosts of other listeners are known.
pub(super) const HOST_HEADER: &str = "x-gw-host";

/// The header that says which filters the route of a request has, where it was chosen behind
/// listener filters.
pub(super) const ROUTE_HEADER: &str = "x-gw-route";
