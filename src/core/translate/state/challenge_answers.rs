//! Answers to HTTP-01 challenges (RFC 8555, 8.3) by host and namespace, and the Gateways at which
//! they are placed; the responder of TLS-ALPN-01 (RFC 8737).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::challenge_answer::{Asked, ChallengeAnswer};
use super::dirty::Dirty;
use super::frontend_state::FrontendState;
use super::frontends::Frontends;
use super::register::Register;
use super::secret_names::SecretNames;
use gatewright_objects::model::{
    AppProtocol, BackendId, Chain, ChainName, FrontendId, Handler, HeaderEdits, Hostname,
    ObjectName, Rewrite, ServicePort, TLS_CHALLENGES, Target, WeightedTarget,
};

/// The answers to challenges, and where they are placed.
#[derive(Default)]
pub(crate) struct ChallengeAnswers {
    answers: BTreeMap<Asked, ChallengeAnswer>,
    /// The answer for a host at a Gateway, or at the shared fleet.
    placed: BTreeMap<(Hostname, ObjectName), Placed>,
    /// The Service of the TLS-ALPN-01 responder.
    tls: Option<ServicePort>,
}

/// Where Envoys serve a hostname.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedAt {
    /// The addresses where anybody may ask.
    pub addresses: BTreeSet<IpAddr>,
    /// True if it is also served where only load balancers may ask, by the PROXY protocol.
    pub behind_load_balancer: bool,
    /// Why nobody answers challenges for the host.
    pub obstacle: Option<Obstacle>,
}

/// How a CA connects to Envoys to validate a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validation {
    /// By HTTP-01, answered by the account with this thumbprint.
    Http(Arc<str>),
    /// By TLS-ALPN-01, at this port.
    Tls(u16),
}

/// Why no Envoy answers the challenges of a host at the port where the CA asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Another Gateway has the port of the address in place of that of the host.
    Held {
        /// Its name; `None` if it is of another namespace, whose names are its own matter.
        gateway: Option<ObjectName>,
        /// The port.
        port: u16,
    },
    /// Listeners of a Gateway of the namespace have the port of HTTP-01 for TLS or TCP.
    NotPlain {
        /// The Gateway, which may be the host's own.
        gateway: ObjectName,
        /// The port.
        port: u16,
    },
    /// No Gateway terminates TLS of the host at the port of TLS-ALPN-01.
    NotTerminated {
        /// The port.
        port: u16,
    },
}

impl Obstacle {
    /// What keeps the challenges of a host from being answered, and what to do.
    pub fn message(&self, host: &str) -> String {
        match self {
            Self::Held {
                gateway: Some(gateway),
                port,
            } => format!(
                "Gateway {gateway} has port {port} of this address, and answers challenges for hosts of its own listeners \
                 and of its namespace only: add the host {host} there, as a listener with the same issuer of that Gateway \
                 or of a ListenerSet of it, or prove it by DNS-01; no order is placed"
            ),
            Self::Held {
                gateway: None,
                port,
            } => format!(
                "a Gateway of another namespace has port {port} of this address, and answers no challenges for {host}: \
                 give this Gateway an address of its own, or prove the host by DNS-01; no order is placed"
            ),
            Self::NotPlain { gateway, port } => format!(
                "listeners of Gateway {gateway} have port {port} for another protocol than HTTP, and challenges for \
                 {host} arrive there (httpPort of the issuer): move them to another port, or prove the host by DNS-01; \
                 no order is placed"
            ),
            Self::NotTerminated { port } => format!(
                "no listener terminates TLS of {host} on port {port} of this address, where the CA connects \
                 (tlsAlpnPort of the issuer): give the host a listener there with mode Terminate, or prove it by \
                 HTTP-01 or DNS-01; no order is placed"
            ),
        }
    }
}

/// An answer at a Gateway.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) answer: ChallengeAnswer,
    /// True if the Gateway's own Envoys answer.
    pub(crate) isolated: bool,
    /// True if the namespace of the Gateway asked.
    pub(crate) is_of_gateway: bool,
}

impl ChallengeAnswers {
    /// True if there is no answer.
    pub(crate) fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.placed.is_empty()
    }

    /// The answer to the challenges of a host for a namespace.
    pub(crate) fn get(&self, asked: &Asked) -> Option<&ChallengeAnswer> {
        self.answers.get(asked)
    }

    /// Sets the answer to the challenges of a host for a namespace. Returns whether it changed.
    pub(crate) fn set(&mut self, asked: Asked, answer: Option<ChallengeAnswer>) -> bool {
        let before = match &answer {
            Some(answer) => self.answers.insert(asked, answer.clone()),
            None => self.answers.remove(&asked),
        };
        before != answer
    }

    /// Sets the answer for a host at a Gateway, or at the shared fleet. Returns the one before.
    pub(crate) fn place(
        &mut self,
        place: (Hostname, ObjectName),
        placed: Option<Placed>,
    ) -> Option<Placed> {
        match placed {
            Some(placed) => self.placed.insert(place, placed),
            None => self.placed.remove(&place),
        }
    }

    /// Where an exact hostname is served; with a way to validate it only where challenges for it
    /// are answered so.
    pub(crate) fn addresses_of(
        &self,
        host: &Hostname,
        validation: Option<&Validation>,
        names: &SecretNames,
        state: (&Frontends, &Register),
    ) -> ServedAt {
        let mut served = ServedAt::default();
        let mut obstacle = None;
        for id in names.frontends(host) {
            // The frontend that is asked.
            let asked = match validation {
                None => Ok(id.clone()),
                Some(Validation::Http(thumbprint)) => {
                    match self.asked_by_http(host, id, thumbprint, state) {
                        Some(asked) => asked,
                        None => continue,
                    }
                }
                Some(Validation::Tls(port)) => asked_by_tls(host, id, *port, state),
            };
            let asked = match asked {
                Ok(asked) => asked,
                Err(why) => {
                    obstacle = Some(why);
                    continue;
                }
            };
            let (frontends, _) = state;
            let of_proxies = frontends
                .get(&asked)
                .is_some_and(|frontend| frontend.clients().proxy_protocol.is_some());
            let addresses = frontends.get(id).map(FrontendState::addresses);
            if of_proxies {
                served.behind_load_balancer = true;
            } else {
                served.addresses.extend(addresses.into_iter().flatten());
            }
        }
        if served.addresses.is_empty() && !served.behind_load_balancer {
            served.obstacle = obstacle;
        }
        served
    }

    /// The frontend where HTTP-01 challenges arrive for a host of another frontend; `None` if the
    /// account with this thumbprint does not answer there.
    fn asked_by_http(
        &self,
        host: &Hostname,
        id: &FrontendId,
        thumbprint: &str,
        (frontends, register): (&Frontends, &Register),
    ) -> Option<Result<FrontendId, Obstacle>> {
        let placed = self.placed.get(&(host.clone(), id.gateway.clone()))?;
        if *placed.answer.thumbprint != *thumbprint {
            return None;
        }
        let asked = FrontendId {
            isolated: placed.isolated,
            ..FrontendId::tcp(id.gateway.clone(), placed.answer.port)
        };
        let port = asked.port;
        let is_plain = |id: &FrontendId| frontends.get(id).is_none_or(FrontendState::is_plain);
        if !is_plain(&asked) {
            let gateway = id.gateway.clone();
            return Some(Err(Obstacle::NotPlain { gateway, port }));
        }
        let rival = frontends
            .rival(&asked, register)
            .filter(|rival| !self.answers_for(host, rival, thumbprint));
        let Some(rival) = rival else {
            return Some(Ok(asked));
        };
        let account = frontends.account(rival, host).filter(|_| is_plain(rival));
        if account.is_some_and(|account| **account == *thumbprint) {
            return Some(Ok(rival.clone()));
        }
        let is_own = rival.gateway.namespace == id.gateway.namespace;
        let gateway = is_own.then(|| rival.gateway.clone());
        Some(Err(match gateway {
            Some(gateway) if !is_plain(rival) => Obstacle::NotPlain { gateway, port },
            gateway => Obstacle::Held { gateway, port },
        }))
    }

    /// True if challenges of a host are answered at a frontend by the account with this thumbprint.
    fn answers_for(&self, host: &Hostname, at: &FrontendId, thumbprint: &str) -> bool {
        self.placed
            .get(&(host.clone(), at.gateway.clone()))
            .is_some_and(|placed| *placed.answer.thumbprint == *thumbprint)
    }

    /// Sets the TLS-ALPN-01 responder.
    pub(crate) fn set_tls(
        &mut self,
        service: Option<ServicePort>,
        frontends: &Frontends,
        dirty: &mut Dirty,
    ) {
        if self.tls != service {
            self.tls = service;
            frontends.touch_all(dirty);
        }
    }

    /// The chain to the TLS-ALPN-01 responder, if one of `chains` terminates TLS.
    pub(crate) fn tls_chain(
        &self,
        chains: &BTreeMap<ChainName, Chain>,
    ) -> Option<(ChainName, Chain)> {
        let port = self
            .tls
            .clone()
            .filter(|_| chains.values().any(|chain| chain.tls.is_some()))?;
        let target = Target::Backend(BackendId::new(port, AppProtocol::Tcp));
        let handler = Handler::Tcp(vec![WeightedTarget {
            target,
            weight: 1,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            rewrite: Rewrite::default(),
            external_name: None,
            session: None,
            hash: None,
        }]);
        Some((TLS_CHALLENGES.into(), Chain { tls: None, handler }))
    }
}

/// The frontend where TLS-ALPN-01 challenges arrive for a host of another frontend.
fn asked_by_tls(
    host: &Hostname,
    id: &FrontendId,
    port: u16,
    (frontends, register): (&Frontends, &Register),
) -> Result<FrontendId, Obstacle> {
    let own = FrontendId {
        isolated: id.isolated,
        ..FrontendId::tcp(id.gateway.clone(), port)
    };
    let reached = match frontends.get(&own) {
        Some(_) => Some(frontends.rival(&own, register).unwrap_or(&own)),
        None => frontends.get(id).and_then(|frontend| {
            let mut addresses = frontend.addresses().iter();
            addresses.find_map(|ip| frontends.reached(*ip, port, register))
        }),
    };
    reached
        .filter(|reached| {
            let owner = frontends.get(reached).and_then(|at| at.owner(host));
            owner.is_some_and(|(.., protocol)| protocol.terminates())
        })
        .cloned()
        .ok_or(Obstacle::NotTerminated { port })
}
