//! External authorization (GEP-1494): who is asked whether a request may pass.

use super::BackendId;

/// The server that is asked for each request, and what it is told. Without its consent nothing passes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExternalAuth {
    /// The server.
    pub server: BackendId,
    /// Lower-case names of the request headers that it gets; what an empty list means is the protocol's.
    pub headers: Vec<String>,
    /// Bytes of the request's body that it gets at most: a larger one is answered 413. 0 where it gets none.
    pub body: u32,
    /// How it is asked.
    pub protocol: AuthProtocol,
}

/// How an authorization server is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuthProtocol {
    /// By Envoy's `envoy.service.auth.v3.Authorization`. Without a list of headers it gets all of them.
    Grpc,
    /// By a request with the method, host and path of the client's; 200 is a yes. Without a list of headers it gets
    /// `Authorization` alone.
    Http {
        /// What is put in front of the path.
        path: String,
        /// Lower-case names of the headers of its answer that the backend gets; all of them where the list is empty.
        answers: Vec<String>,
    },
}
