//! From what the pipeline decided to what the desk is told: the wishes that changed, and no others.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::tenant::{TenantIssuers, of_tenant};
use super::wish::Wish;
use crate::model::ObjectName;
use crate::pipeline::Pipeline;
use crate::translate::Index;

/// Follows the wishes of a pipeline.
pub struct Wishing {
    tenants: TenantIssuers,
    /// Secrets with credentials, and the wishes whose issuers use them; and the other way round.
    users: Index<ObjectName, ObjectName>,
    credentials: Index<ObjectName, ObjectName>,
}

impl Wishing {
    /// Follows from nothing.
    pub fn new(tenants: TenantIssuers) -> Self {
        Self { tenants, users: Index::default(), credentials: Index::default() }
    }

    /// What is wished for now by `wished`, the Secrets that something was decided about, and by those whose credentials
    /// are in `changed`.
    pub fn changes(
        &mut self,
        pipeline: &Pipeline,
        wished: BTreeSet<ObjectName>,
        changed: impl IntoIterator<Item = ObjectName>,
    ) -> Vec<(ObjectName, Option<Wish>)> {
        let mut all = wished;
        for secret in changed {
            all.extend(self.users.of(&secret).cloned());
        }
        all.into_iter()
            .map(|secret| {
                let wish = self.wish(pipeline, &secret);
                (secret, wish)
            })
            .collect()
    }

    /// The Secrets whose credentials are used.
    pub fn credentials(&self) -> impl Iterator<Item = &ObjectName> {
        self.users.keys()
    }

    fn wish(&mut self, pipeline: &Pipeline, secret: &ObjectName) -> Option<Wish> {
        for credential in self.credentials.of(secret).cloned().collect::<Vec<_>>() {
            self.users.remove(&credential, secret);
            self.credentials.remove(secret, &credential);
        }
        let engine = pipeline.engine();
        if let Some(wish) = engine.wish(secret) {
            return Some(Wish::from(wish));
        }
        let wish = pipeline.tenancy().wishes().get(secret)?;
        let used = RefCell::new(BTreeSet::new());
        let credential = |name: &ObjectName, key: &str| {
            used.borrow_mut().insert(name.clone());
            engine.store().secret(name)?.credential(key)
        };
        let made = of_tenant(wish, &self.tenants, &credential);
        for credential in used.into_inner() {
            self.users.insert(credential.clone(), secret.clone());
            self.credentials.insert(secret.clone(), credential);
        }
        Some(made)
    }
}
