//! The servers that Envoys ask before a request passes: how they are reached, and those of logins
//! and keys of AccessPolicies.

use std::net::SocketAddr;

use super::{Explainer, Explanation, Link, Reached, Spoken};
use gatewright_objects::last_failure::{keys_of, logins_of};
use gatewright_objects::model::{BackendId, BackendTransport, Route};
use gatewright_objects::request_outcome::UNAUTHENTICATED;
use gatewright_objects::settings::Access;

/// A server that Envoys can ask.
pub(super) struct ReachedServer {
    /// Its endpoints.
    pub(super) addresses: Vec<SocketAddr>,
    /// True if it is asked over TLS.
    pub(super) tls: bool,
}

impl Explainer<'_> {
    /// A server; or why nothing is sent to it.
    pub(super) fn reach(&self, server: &BackendId) -> Result<ReachedServer, String> {
        let port = &server.port;
        let tls = match self.routing.policies.transport(server) {
            BackendTransport::Plain => false,
            BackendTransport::Tls(_) => true,
            BackendTransport::Refused => {
                return Err(format!(
                    "the BackendTLSPolicy of Service {port} cannot be carried out"
                ));
            }
        };
        let permitted = self.allowed.permitted(port);
        match permitted.unreached(port) {
            Some(why) => Err(why),
            None => Ok(ReachedServer {
                addresses: permitted.addresses,
                tls,
            }),
        }
    }

    /// Adds the servers that Envoys ask for a policy of a route, up to the first that is not
    /// reached.
    pub(super) fn explain_servers(
        &self,
        route: &Route,
        access: &Access,
        explanation: &mut Explanation,
    ) {
        let provider = access.oidc.iter().map(|login| {
            let failure = "who has no session cannot log in";
            let told = logins_of(&route.name);
            ("oidc.provider.backendRef", &login.server, failure, told)
        });
        let keys = access.jwt.iter().filter_map(|auth| {
            let failure = "tokens are answered 401 once Envoys have no keys";
            let told = keys_of(&route.name);
            let server = auth.keys.server()?;
            Some(("jwt.jwks.remote.backendRef", server, failure, told))
        });
        let policy = &access.policy;
        for (field, server, failure, told) in provider.chain(keys) {
            match self.reach(server) {
                Ok(ReachedServer { addresses, .. }) => {
                    let (port, count) = (&server.port, addresses.len());
                    let text = format!(
                        "AccessPolicy {policy}: {field}: Service {port} has endpoints ({count})"
                    );
                    explanation.links.push(Link {
                        reached: Some(Reached {
                            clusters: vec![told],
                            endpoints: addresses,
                            spoken: Spoken::default(),
                        }),
                        ..Link::new("server", true, text)
                    });
                }
                Err(why) => {
                    let text = format!("AccessPolicy {policy}: {field}: {why}: {failure}");
                    return explanation.fail_by("server", text, Some(UNAUTHENTICATED[0]));
                }
            }
        }
    }
}
