//! External authorization (GEP-1494): an authorization server decides about each request.

use super::BackendId;

/// The authorization server of a rule, and the data that it gets. A request without its consent is
/// refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExternalAuth {
    /// The server.
    pub server: BackendId,
    /// Lower-case names of the request headers that it gets; the meaning of an empty list depends
    /// on the protocol.
    pub headers: Vec<String>,
    /// The most bytes of the request's body that it gets: a larger body is answered 413. 0 if it
    /// gets none.
    pub body: u32,
    /// The protocol.
    pub protocol: AuthProtocol,
}

impl ExternalAuth {
    /// The host of the requests that the server gets.
    pub fn authority(&self) -> String {
        let service = &self.server.port.service;
        format!("{}.{}", service.name, service.namespace)
    }
}

/// The protocol of an authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuthProtocol {
    /// gRPC, Envoy's `envoy.service.auth.v3.Authorization`. An empty list of headers sends all of
    /// them.
    Grpc,
    /// HTTP: a request with method, host and path of the client's; status 200 permits. An empty
    /// list of headers sends `Authorization` alone.
    Http {
        /// A prefix that is put in front of the path.
        path: String,
        /// Lower-case names of the response headers that the backend gets; all of them if the list
        /// is empty.
        answers: Vec<String>,
    },
}
