//! Headers by which Envoy finds the routes of a connection: overwritten before anything reads them, and removed before a request
//! leaves.

/// The header that carries frontend and host to the choice of the scope. Like [`LISTENER_HEADER`] it is overwritten
/// before anything reads it, so no client can forge it, and removed before a request leaves.
pub(super) const SCOPE_HEADER: &str = "x-gw-scope";

/// The header that says whose connection it is: the hostname of the listener, which for exact ones is the SNI.
pub(super) const LISTENER_HEADER: &str = "x-gw-sni";

/// The header that says whether the request is for the host that the connection was opened for, where not every other
/// host is known.
pub(super) const HOST_HEADER: &str = "x-gw-host";

/// The header that says which filters the route of a request has, where it was chosen behind listener filters.
pub(super) const ROUTE_HEADER: &str = "x-gw-route";
