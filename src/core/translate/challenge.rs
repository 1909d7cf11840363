//! Answers to HTTP-01 challenges (RFC 8555, 8.3) at the plain-HTTP frontend of every Gateway with
//! the host.
//!
//! An answer is the port on which the challenges of a host arrive and the thumbprint of the ACME
//! account that orders its certificate. A Gateway without a listener on that port gets a frontend
//! there that answers challenges and nothing else.
//!
//! A namespace requests an answer, and challenges are answered only where a listener of that
//! namespace has the host: the Gateway of another namespace proves nothing for it.
//!
//! TLS-ALPN-01 (RFC 8737) has one responder for all names: every frontend that terminates TLS
//! forwards connections that offer `acme-tls/1` alone to it, so that no challenge changes Envoy's
//! configuration. Passed-through TLS goes to the backend.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::challenge_answer::{Asked, ChallengeAnswer};
use super::dirty::Dirty;
use super::frontend_state::FrontendState;
use super::frontends::Frontends;
use super::secret_names::SecretNames;
use crate::model::{
    AppProtocol, BackendId, Chain, ChainName, FrontendId, Handler, HeaderEdits, Hostname,
    ObjectName, Rewrite, ServicePort, TLS_CHALLENGES, Target, WeightedTarget,
};

/// The answers to challenges, and where they are placed.
#[derive(Default)]
pub(super) struct ChallengeAnswers {
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
}

/// An answer at a Gateway.
#[derive(Clone, PartialEq, Eq)]
struct Placed {
    answer: ChallengeAnswer,
    /// True if the Gateway's own Envoys answer.
    isolated: bool,
}

impl ChallengeAnswers {
    /// Where an exact hostname is served; with a thumbprint only where HTTP-01 challenges for it
    /// are answered by the account with that thumbprint.
    pub(super) fn addresses_of(
        &self,
        host: &Hostname,
        thumbprint: Option<&str>,
        names: &SecretNames,
        frontends: &Frontends,
    ) -> ServedAt {
        let mut served = ServedAt::default();
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
        served
    }

    /// Sets the TLS-ALPN-01 responder.
    pub(super) fn set_tls(
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
    pub(super) fn tls_chain(
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

/// The stage that places answers at the frontends of the hosts.
pub(super) struct Answering<'a> {
    pub(super) names: &'a SecretNames,
    pub(super) challenges: &'a mut ChallengeAnswers,
    pub(super) frontends: &'a mut Frontends,
}

impl Answering<'_> {
    /// Sets the answer to the challenges of a host for a namespace.
    pub(super) fn set(&mut self, asked: Asked, answer: Option<ChallengeAnswer>, dirty: &mut Dirty) {
        let host = asked.hostname.clone();
        let before = match &answer {
            Some(answer) => self.challenges.answers.insert(asked, answer.clone()),
            None => self.challenges.answers.remove(&asked),
        };
        if before == answer {
            return;
        }
        let mut gateways: Vec<ObjectName> = self
            .names
            .frontends(&host)
            .map(|id| id.gateway.clone())
            .collect();
        gateways.dedup();
        for gateway in gateways {
            self.place(&host, &gateway, dirty);
        }
    }

    /// Places or removes the answer for a host at a Gateway, by the namespace that has the host
    /// there.
    pub(super) fn place(&mut self, host: &Hostname, gateway: &ObjectName, dirty: &mut Dirty) {
        let place = (host.clone(), gateway.clone());
        if self.challenges.answers.is_empty() && self.challenges.placed.is_empty() {
            return;
        }
        let placed = self
            .namespace_with(host, gateway)
            .and_then(|(namespace, isolated)| {
                let answer = self
                    .challenges
                    .answers
                    .get(&Asked {
                        hostname: host.clone(),
                        namespace,
                    })?
                    .clone();
                Some(Placed { answer, isolated })
            });
        let before = match &placed {
            Some(placed) => self.challenges.placed.insert(place, placed.clone()),
            None => self.challenges.placed.remove(&place),
        };
        if before == placed {
            return;
        }
        let frontend = |placed: &Placed| FrontendId {
            isolated: placed.isolated,
            ..FrontendId::tcp(gateway.clone(), placed.answer.port)
        };
        let (before, now) = (before.as_ref().map(frontend), placed.as_ref().map(frontend));
        if let Some(before) = before.filter(|before| now.as_ref() != Some(before)) {
            self.answer_at(&before, host, None, dirty);
        }
        if let (Some(now), Some(placed)) = (now, placed) {
            self.answer_at(&now, host, Some(placed.answer.thumbprint), dirty);
        }
    }

    /// The namespace whose listener terminates TLS for a host at a Gateway, or at the shared fleet,
    /// and whether on Envoys of its own. Of several, on different ports, the one on port 443
    /// counts, else the one on the lowest port.
    fn namespace_with(&self, host: &Hostname, gateway: &ObjectName) -> Option<(Arc<str>, bool)> {
        let ids = self
            .names
            .frontends(host)
            .filter(|id| id.gateway == *gateway);
        let id = ids.min_by_key(|id| (id.port != 443, id.port))?;
        let (listener, _) = self.frontends.get(id)?.winner(host)?;
        Some((listener.parent.name().namespace.clone(), id.isolated))
    }

    fn answer_at(
        &mut self,
        id: &FrontendId,
        host: &Hostname,
        thumbprint: Option<Arc<str>>,
        dirty: &mut Dirty,
    ) {
        if thumbprint.is_none() && self.frontends.get(id).is_none() {
            return;
        }
        let frontend = self.frontends.get_or_insert(id);
        let was_idle = frontend.is_idle();
        let had_some = frontend.has_challenges();
        if !frontend.answer_challenges(host, thumbprint) {
            return;
        }
        let is_idle = frontend.is_idle();
        let has_some = frontend.has_challenges();
        dirty.units.insert((id.clone(), host.clone()));
        // If all listeners lost their claims, the first challenge opens the port.
        if had_some != has_some {
            dirty.frontends.insert(id.clone());
        }
        if was_idle != is_idle {
            dirty.bindings.insert(id.gateway.clone());
        }
    }
}
