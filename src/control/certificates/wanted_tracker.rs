//! Converts the decisions of the pipeline to changes of certificate requests.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::request::CertificateRequest;
use super::tenant::{self, TenantIssuers};
use gatewright_core::model::ObjectName;
use gatewright_core::multimap::MultiMap;
use gatewright_core::pipeline::Pipeline;

/// Tracks the certificates that a pipeline wants.
pub struct WantedTracker {
    tenants: TenantIssuers,
    /// The index from a Secret with credentials to the wanted certificates whose issuers use it;
    /// `credentials` is the reverse.
    users: MultiMap<ObjectName, ObjectName>,
    credentials: MultiMap<ObjectName, ObjectName>,
}

impl WantedTracker {
    /// Creates a tracker that has seen nothing.
    pub fn new(tenants: TenantIssuers) -> Self {
        Self {
            tenants,
            users: MultiMap::default(),
            credentials: MultiMap::default(),
        }
    }

    /// Returns the requests of the Secrets in `wanted`, which were decided about, and of those
    /// whose credentials are in `changed`.
    pub fn changes(
        &mut self,
        pipeline: &Pipeline,
        wanted: BTreeSet<ObjectName>,
        changed: impl IntoIterator<Item = ObjectName>,
    ) -> Vec<(ObjectName, Option<CertificateRequest>)> {
        let mut all = wanted;
        for secret in changed {
            all.extend(self.users.of(&secret).cloned());
        }
        all.into_iter()
            .map(|secret| {
                let want = self.want(pipeline, &secret);
                (secret, want)
            })
            .collect()
    }

    /// Returns the Secrets whose credentials are in use.
    pub fn credentials(&self) -> impl Iterator<Item = &ObjectName> {
        self.users.keys()
    }

    fn want(&mut self, pipeline: &Pipeline, secret: &ObjectName) -> Option<CertificateRequest> {
        for credential in self.credentials.of(secret).cloned().collect::<Vec<_>>() {
            self.users.remove(&credential, secret);
            self.credentials.remove(secret, &credential);
        }
        let engine = pipeline.engine();
        // No certificate is ordered for a listener that lost its hostname or port, where that is
        // decided here.
        let want = engine.want(secret).or_else(|| {
            pipeline
                .tenancy()
                .wants()
                .get(secret)
                .filter(|_| !engine.is_refused(secret))
        })?;
        let used = RefCell::new(BTreeSet::new());
        let credential = |name: &ObjectName, key: &str| {
            used.borrow_mut().insert(name.clone());
            engine.store().secret(name)?.credential(key)
        };
        let made = tenant::request(want, &self.tenants, &credential);
        for credential in used.into_inner() {
            self.users.insert(credential.clone(), secret.clone());
            self.credentials.insert(secret.clone(), credential);
        }
        Some(made)
    }
}
