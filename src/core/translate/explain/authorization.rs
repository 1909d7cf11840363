//! The authorization servers that a request needs the consent of.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::servers::ReachedServer;
use super::{Explainer, Explanation, Link, Question};
use gatewright_objects::model::{AppProtocol, AuthProtocol, ExternalAuth};
use gatewright_objects::request_outcome::AUTHORIZATION_FAILED;

/// An authorization server that a request needs the consent of. Whether it answers is not known to
/// the engine: whoever shows the explanation asks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationServer {
    /// Its Service port.
    pub service: String,
    /// The host of the requests that it gets.
    pub authority: String,
    /// Its endpoints.
    pub endpoints: Vec<SocketAddr>,
    /// How it is asked.
    pub protocol: CheckProtocol,
    /// True if it is asked over TLS.
    pub tls: bool,
    /// The time in which it must answer.
    pub timeout: Duration,
}

/// How an authorization server is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckProtocol {
    /// By gRPC.
    Grpc,
    /// By an HTTP request.
    Http {
        /// The path that it is asked for.
        path: String,
        /// True if its Service says that it speaks HTTP/2.
        http2: bool,
    },
}

impl Explainer<'_> {
    /// Adds an authorization server, by the words of the `filter` that names it.
    pub(super) fn explain_authorization(
        &self,
        filter: &str,
        auth: &ExternalAuth,
        question: &Question,
        explanation: &mut Explanation,
    ) {
        let port = &auth.server.port;
        let ReachedServer { addresses, tls } = match self.reach(&auth.server) {
            Ok(reached) => reached,
            Err(why) => {
                let text = format!("{filter}: {why}: every request is answered 403");
                return explanation.fail_by("authorization", text, Some(AUTHORIZATION_FAILED));
            }
        };
        let (protocol, words) = match &auth.protocol {
            AuthProtocol::Grpc => (CheckProtocol::Grpc, "gRPC"),
            AuthProtocol::Http { path, .. } => {
                let http2 = auth.server.protocol == AppProtocol::H2c;
                (
                    CheckProtocol::Http {
                        path: path.of(&question.path),
                        http2,
                    },
                    "HTTP",
                )
            }
        };
        let server = AuthorizationServer {
            service: port.to_string(),
            authority: auth.authority(),
            endpoints: addresses,
            protocol,
            tls,
            timeout: auth.timeout,
        };
        let text = format!("{filter}: Service {port} is asked by {words}");
        explanation.links.push(Link {
            server: Some(server),
            ..Link::new("authorization", true, text)
        });
    }
}
