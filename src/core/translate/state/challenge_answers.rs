//! Answers to HTTP-01 challenges (RFC 8555, 8.3) by host and namespace, and the Gateways at which
//! they are placed; the responder of TLS-ALPN-01 (RFC 8737).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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
    /// The Gateway that has the port of challenges in place of that of the host, where nobody
    /// answers for the host therefore.
    pub held_by: Option<PortHolder>,
}

/// A Gateway that has a port of an address in place of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortHolder {
    /// Its name; `None` if it is of another namespace, whose names are its own matter.
    pub gateway: Option<ObjectName>,
    /// The port.
    pub port: u16,
}

/// An answer at a Gateway.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) answer: ChallengeAnswer,
    /// True if the Gateway's own Envoys answer.
    pub(crate) isolated: bool,
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

    /// Where an exact hostname is served; with a thumbprint only where HTTP-01 challenges for it
    /// are answered by the account with that thumbprint.
    pub(crate) fn addresses_of(
        &self,
        host: &Hostname,
        thumbprint: Option<&str>,
        names: &SecretNames,
        (frontends, register): (&Frontends, &Register),
    ) -> ServedAt {
        let mut served = ServedAt::default();
        let mut held_by = None;
        for id in names.frontends(host) {
            // The frontend that is asked: with a thumbprint that of challenges.
            let asked = match thumbprint {
                None => id.clone(),
                Some(thumbprint) => {
                    let placed = self.placed.get(&(host.clone(), id.gateway.clone()));
                    let Some(Placed { answer, isolated }) =
                        placed.filter(|placed| *placed.answer.thumbprint == *thumbprint)
                    else {
                        continue;
                    };
                    FrontendId {
                        isolated: *isolated,
                        ..FrontendId::tcp(id.gateway.clone(), answer.port)
                    }
                }
            };
            if thumbprint.is_some()
                && let Some(rival) = frontends.rival(&asked, register)
                && !self.answers_for(host, rival, thumbprint)
            {
                let is_own = rival.gateway.namespace == id.gateway.namespace;
                held_by = Some(PortHolder {
                    gateway: is_own.then(|| rival.gateway.clone()),
                    port: asked.port,
                });
                continue;
            }
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
            served.held_by = held_by;
        }
        served
    }

    /// True if challenges of a host are answered at a frontend by the account with this thumbprint.
    fn answers_for(&self, host: &Hostname, at: &FrontendId, thumbprint: Option<&str>) -> bool {
        self.placed
            .get(&(host.clone(), at.gateway.clone()))
            .is_some_and(|placed| Some(&*placed.answer.thumbprint) == thumbprint)
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
            session: None,
            hash: None,
        }]);
        Some((TLS_CHALLENGES.into(), Chain { tls: None, handler }))
    }
}
