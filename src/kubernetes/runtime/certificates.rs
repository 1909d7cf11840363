//! Connects issuance with the runtime: a wanted certificate is passed on once the content of its
//! Secret is known, and the ACME accounts that answer challenges come in.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::KubernetesRuntime;
use crate::issuance::{self, Issuance};
use crate::lease::Term;
use gatewright_control::certificates::ChallengeAccounts;
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::translate::{Change, ServedAt, Validation};

/// Issuance of certificates, and the Secrets that it needs.
pub(super) struct Certificates {
    pub(super) issuance: Issuance,
    /// The Secrets whose wanted certificate may have changed, and whose bodies are being fetched.
    fetching: BTreeSet<ObjectName>,
    /// The Secrets with credentials of issuers in use.
    credentials: BTreeSet<ObjectName>,
}

impl Certificates {
    /// Creates the state in which no certificate is wanted.
    pub(super) fn new(issuance: Issuance) -> Self {
        Self {
            issuance,
            fetching: BTreeSet::new(),
            credentials: BTreeSet::new(),
        }
    }

    /// Returns whether a Secret has credentials that are in use.
    pub(super) fn uses(&self, secret: &ObjectName) -> bool {
        self.credentials.contains(secret)
    }

    /// Stops issuance and waits for its end.
    pub(super) async fn stop(self) {
        self.issuance.stop().await;
    }
}

/// Returns the Secrets that the changes are about.
pub(super) fn secrets_of(changes: &[Change]) -> BTreeSet<ObjectName> {
    let keys = changes
        .iter()
        .filter_map(Change::key)
        .filter(|key| key.kind == Kind::Secret);
    keys.map(|key| key.name).collect()
}

impl KubernetesRuntime {
    /// Passes on what is wanted for the Secrets in `wanted`, where it may have changed, and the
    /// content of the Secrets in `changed`.
    pub(super) fn certify(
        &mut self,
        wanted: BTreeSet<ObjectName>,
        changed: BTreeSet<ObjectName>,
        term: Term,
    ) {
        let mut changes = Vec::new();
        for name in wanted {
            let pipeline = self.live.pipeline();
            let engine = pipeline.engine();
            let is_wanted =
                engine.want(&name).is_some() || pipeline.tenancy().wants().contains_key(&name);
            // The Secret of a certificate to be withdrawn has to be read as well.
            let is_wanted = is_wanted || !engine.lost_hostnames(&name).is_empty();
            let requests = self.references.want(&name, is_wanted);
            for key in self.request_bodies(requests) {
                changes.push(self.drop_secret(key.name));
            }
            self.certificates.fetching.insert(name);
        }
        // The content of a Secret is known before a certificate is ordered, since it may already be
        // there.
        let Self {
            references,
            certificates,
            ..
        } = self;
        let known: BTreeSet<ObjectName> = certificates
            .fetching
            .extract_if(.., |name| {
                !references.awaits(&ObjectKey::new(Kind::Secret, name.clone()))
            })
            .collect();
        if !known.is_empty() || !changed.is_empty() {
            changes.extend(
                self.certificates
                    .issuance
                    .change(self.live.pipeline(), known, changed),
            );
            changes.extend(self.take_credentials());
        }
        if !changes.is_empty() {
            self.apply(changes, term);
        }
    }

    /// Fetches credentials that came into use, and drops those that are no longer used.
    fn take_credentials(&mut self) -> Vec<Change> {
        let used = self.certificates.issuance.credentials();
        let before = std::mem::replace(&mut self.certificates.credentials, used.clone());
        for name in used.difference(&before) {
            self.fetch(ObjectKey::new(Kind::Secret, name.clone()));
        }
        let unused: Vec<ObjectName> = before.difference(&used).cloned().collect();
        let unused: Vec<ObjectName> = unused
            .into_iter()
            .filter(|name| !of_objects(name, &self.references))
            .collect();
        unused
            .into_iter()
            .map(|name| self.drop_secret(name))
            .collect()
    }

    /// Fetches all credentials again: they are not watched, since we do not list Secrets of other
    /// types than certificates.
    pub(super) fn refetch_credentials(&mut self) {
        for name in self.certificates.credentials.clone() {
            self.fetch(ObjectKey::new(Kind::Secret, name));
        }
    }

    /// Takes in the ACME accounts that answer challenges.
    pub fn take_answers(&mut self, answers: ChallengeAccounts, term: Term) {
        let changes = self.certificates.issuance.take_answers(answers);
        if !changes.is_empty() {
            self.apply(changes, term);
        }
    }

    /// Takes in an event of the certificate manager's work.
    pub(super) fn take_issued(&mut self, event: issuance::IssuanceEvent, term: Term) {
        let is_start = matches!(event, issuance::IssuanceEvent::Started(_));
        let changes = self.certificates.issuance.take_in(event);
        if is_start {
            self.certificates
                .issuance
                .refuse(self.live.rejected_certificates());
        }
        if !changes.is_empty() {
            self.apply(changes, term);
        }
    }

    /// Returns the addresses that serve a host: of our Envoys, or of its Gateway's status where
    /// another controller serves it.
    pub fn addresses_of(&self, host: &Hostname, validation: Option<&Validation>) -> ServedAt {
        let pipeline = self.live.pipeline();
        let mut all = pipeline.engine().addresses_of(host, validation);
        for tenant in pipeline.tenancy().solved(host) {
            let gateway = self
                .objects
                .get(&ObjectKey::new(Kind::Gateway, tenant.clone()));
            let status = gateway.map(|seen| seen.status()).unwrap_or_default();
            let addresses = status["addresses"].as_array().into_iter().flatten();
            all.addresses.extend(
                addresses.filter_map(|address| address["value"].as_str()?.parse::<IpAddr>().ok()),
            );
        }
        all
    }
}

fn of_objects(name: &ObjectName, references: &crate::secrets::references::References) -> bool {
    references.wants(&ObjectKey::new(Kind::Secret, name.clone()))
}
