//! Answers to HTTP-01 challenges (RFC 8555, 8.3) at the plain-HTTP frontend of every Gateway with
//! the host.
//!
//! An answer is the port on which the challenges of a host arrive and the thumbprint of the ACME
//! account that orders its certificate. A Gateway without a listener on that port gets a frontend
//! there that answers challenges and nothing else. Where another Gateway of its namespace has the
//! port of the address, that one answers.
//!
//! A namespace requests an answer, and challenges are answered only where a listener of that
//! namespace has the host: the Gateway of another namespace proves nothing for it.
//!
//! TLS-ALPN-01 (RFC 8737) has one responder for all names: every frontend that terminates TLS
//! forwards connections that offer `acme-tls/1` alone to it, so that no challenge changes Envoy's
//! configuration. Passed-through TLS goes to the backend.

use std::sync::Arc;

use crate::state::challenge_answer::{Asked, ChallengeAnswer};
use crate::state::challenge_answers::{ChallengeAnswers, Placed};
use crate::state::dirty::Dirty;
use crate::state::frontend_state::Account;
use crate::state::frontends::Frontends;
use crate::state::secret_names::SecretNames;
use gatewright_objects::model::{FrontendId, Hostname, ObjectName};

/// The stage that places answers at the frontends of the hosts.
pub(crate) struct Answering<'a> {
    names: &'a SecretNames,
    challenges: &'a mut ChallengeAnswers,
    frontends: &'a mut Frontends,
}

impl<'a> Answering<'a> {
    /// The stage of these states.
    pub(crate) fn new(
        names: &'a SecretNames,
        challenges: &'a mut ChallengeAnswers,
        frontends: &'a mut Frontends,
    ) -> Self {
        Self {
            names,
            challenges,
            frontends,
        }
    }

    /// Sets the answer to the challenges of a host for a namespace.
    pub(crate) fn set(&mut self, asked: Asked, answer: Option<ChallengeAnswer>, dirty: &mut Dirty) {
        let host = asked.hostname.clone();
        if !self.challenges.set(asked, answer) {
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
    pub(crate) fn place(&mut self, host: &Hostname, gateway: &ObjectName, dirty: &mut Dirty) {
        let place = (host.clone(), gateway.clone());
        if self.challenges.is_empty() {
            return;
        }
        let placed = self
            .namespace_with(host, gateway)
            .and_then(|(namespace, isolated)| {
                let is_of_gateway = namespace == gateway.namespace;
                let asked = Asked {
                    hostname: host.clone(),
                    namespace,
                };
                let answer = self.challenges.get(&asked)?.clone();
                Some(Placed {
                    answer,
                    isolated,
                    is_of_gateway,
                })
            });
        let before = self.challenges.place(place, placed.clone());
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
            let account = Account {
                thumbprint: placed.answer.thumbprint,
                is_of_gateway: placed.is_of_gateway,
            };
            self.answer_at(&now, host, Some(account), dirty);
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
        account: Option<Account>,
        dirty: &mut Dirty,
    ) {
        if account.is_none() && self.frontends.get(id).is_none() {
            return;
        }
        let frontend = self.frontends.get_or_insert(id);
        let was_idle = frontend.is_idle();
        let had_some = frontend.has_challenges();
        if !self.frontends.answer_challenges(id, host, account, dirty) {
            return;
        }
        let frontend = self.frontends.get_or_insert(id);
        let is_idle = frontend.is_idle();
        let has_some = frontend.has_challenges();
        // If all listeners lost their claims, the first challenge opens the port.
        if had_some != has_some {
            dirty.frontends.insert(id.clone());
        }
        if was_idle != is_idle {
            dirty.bindings.insert(id.gateway.clone());
        }
    }
}
