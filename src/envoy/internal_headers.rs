//! Headers by which filters of Envoy tell each other something, such as the routes of a connection:
//! overwritten before anything reads them, and removed before a request leaves.

/// The header whose value up to the first colon is the key of the scope: frontend and host. It is
/// overwritten before anything reads it, so no client can forge it, and removed before a request
/// leaves.
///
/// What follows the key says which listener the connection belongs to (see [`super::misdirected`]).
/// A host of a client may have a colon, but never after ours.
pub(super) const SCOPE_HEADER: &str = "x-gw-scope";

/// The header that is `own` if the request is for the host that the connection was opened for, else
/// `other`. It is used where not all hosts of other listeners are known.
pub(super) const HOST_HEADER: &str = "x-gw-host";

/// The header that says which filters the route of a request has, where it was chosen behind
/// listener filters.
pub(super) const ROUTE_HEADER: &str = "x-gw-route";

/// The header with the credentials that filters of tokens read (see [`super::credentials`]).
pub(super) const TOKEN_HEADER: &str = "x-gw-token";

/// A header that no request has when its token is verified.
pub(super) const NO_TOKEN_HEADER: &str = "x-gw-no-token";
