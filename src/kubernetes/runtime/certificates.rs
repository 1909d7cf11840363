//! The cluster's side of certificates: what is wanted goes out once it is known what its Secret holds, and who answers
//! challenges comes in.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::KubernetesRuntime;
use crate::issuance;
use crate::lease::Term;
use crate::secrets::refs::BodyAction;
use gatewright_control::certificates::ChallengeAccounts;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::translate::Change;

/// The Secrets that changes are about.
pub(super) fn secrets_of(changes: &[Change]) -> BTreeSet<ObjectName> {
    let keys = changes.iter().filter_map(Change::key).filter(|key| key.kind == Kind::Secret);
    keys.map(|key| key.name).collect()
}

impl KubernetesRuntime {
    /// Says what is wanted for the Secrets of `wanted`, where that may be different, and what is in `changed` Secrets now.
    pub(super) fn certify(&mut self, wanted: BTreeSet<ObjectName>, changed: BTreeSet<ObjectName>, term: Term) {
        let mut changes = Vec::new();
        for name in wanted {
            let pipeline = self.live.pipeline();
            let engine = pipeline.engine();
            let is_wanted = engine.want(&name).is_some() || pipeline.tenancy().wants().contains_key(&name);
            // What is to be withdrawn has to be looked at as well.
            let is_wanted = is_wanted || !engine.lost_hostnames(&name).is_empty();
            for step in self.secrets.want(&name, is_wanted) {
                match step {
                    BodyAction::Fetch(name) => self.fetch(ObjectKey::new(Kind::Secret, name)),
                    BodyAction::Forget(name) => changes.push(self.forget_body(name)),
                }
            }
            self.wanted.insert(name);
        }
        // What is there already needs no order.
        let awaited = self.bodies.awaited();
        let known: BTreeSet<ObjectName> = self.wanted.extract_if(.., |name| !awaited.contains(name)).collect();
        if !known.is_empty() || !changed.is_empty() {
            changes.extend(self.issuance.change(self.live.pipeline(), known, changed));
            changes.extend(self.take_credentials());
        }
        if !changes.is_empty() {
            self.apply(changes, term);
        }
    }

    /// Fetches credentials that are used and not held; those that nobody uses any more are forgotten.
    fn take_credentials(&mut self) -> Vec<Change> {
        let used = self.issuance.credentials();
        let before = std::mem::replace(&mut self.credentials, used);
        for name in self.credentials.difference(&before).cloned().collect::<Vec<_>>() {
            self.fetch(ObjectKey::new(Kind::Secret, name));
        }
        let unused = before.difference(&self.credentials).filter(|name| !self.secrets.wanted(name)).cloned();
        unused.collect::<Vec<_>>().into_iter().map(|name| self.forget_body(name)).collect()
    }

    /// Looks at credentials again: they are not watched, for Secrets of other types than certificates are none of our
    /// business.
    pub(super) fn look_at_credentials(&mut self) {
        for name in self.credentials.clone() {
            self.fetch(ObjectKey::new(Kind::Secret, name));
        }
    }

    /// Takes in who answers challenges.
    pub fn take_answers(&mut self, answers: ChallengeAccounts, term: Term) {
        let changes = self.issuance.take_answers(answers);
        if !changes.is_empty() {
            self.apply(changes, term);
        }
    }

    /// Takes in what those who issue tell.
    pub(super) fn take_issued(&mut self, told: issuance::Told, term: Term) {
        let changes = self.issuance.take_in(told);
        if !changes.is_empty() {
            self.apply(changes, term);
        }
    }

    /// Where a host is served: by our Envoys, or where its Gateway says that somebody else does.
    pub fn addresses_of(&self, host: &Hostname, thumbprint: Option<&str>) -> BTreeSet<IpAddr> {
        let pipeline = self.live.pipeline();
        let mut all = pipeline.engine().addresses_of(host, thumbprint);
        for tenant in pipeline.tenancy().solved(host) {
            let gateway = self.seen.get(&ObjectKey::new(Kind::Gateway, tenant.clone()));
            let status = gateway.map(|seen| seen.status()).unwrap_or_default();
            let told = status["addresses"].as_array().into_iter().flatten();
            all.extend(told.filter_map(|address| address["value"].as_str()?.parse::<IpAddr>().ok()));
        }
        all
    }
}
