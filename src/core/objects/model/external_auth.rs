//! External authorization (GEP-1494): an authorization server decides about each request.

use std::time::Duration;

use super::BackendId;

/// The time in which an authorization server must answer, where nobody says it.
pub const AUTH_TIMEOUT: Duration = Duration::from_secs(5);

/// The header that a server by HTTP always gets.
const AUTHORIZATION: &str = "authorization";

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
    /// The time in which it must answer.
    pub timeout: Duration,
    /// The protocol.
    pub protocol: AuthProtocol,
}

impl ExternalAuth {
    /// The headers that the backend gets from the server alone: what a client writes in them is
    /// removed, unless the server gets it.
    pub fn replaced(&self) -> impl Iterator<Item = &String> {
        let answers = match &self.protocol {
            AuthProtocol::Grpc => [].as_slice(),
            AuthProtocol::Http { answers, .. } => answers,
        };
        answers
            .iter()
            .filter(|name| *name != AUTHORIZATION && !self.headers.contains(name))
    }

    /// True if the server gets the URL of the request in headers, since it is asked for another
    /// path.
    pub fn is_told_url(&self) -> bool {
        matches!(
            self.protocol,
            AuthProtocol::Http {
                path: CheckPath::Exact(_),
                ..
            }
        )
    }

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
        /// The path of the request to the server.
        path: CheckPath,
        /// Lower-case names of the response headers that the backend gets; all of them if the list
        /// is empty.
        answers: Vec<String>,
        /// Lower-case names of the headers of its consent that the client gets.
        to_clients: Vec<String>,
    },
}

/// The path of a request to an authorization server by HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckPath {
    /// The client's path and query behind a prefix.
    Prefix(String),
    /// This one, whatever the client asks for.
    Exact(String),
}

impl CheckPath {
    /// The path of the check of a request for a path.
    pub fn of(&self, path: &str) -> String {
        match self {
            Self::Prefix(prefix) => format!("{prefix}{path}"),
            Self::Exact(exact) => exact.clone(),
        }
    }

    /// What a person wrote.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Prefix(text) | Self::Exact(text) => text,
        }
    }
}
