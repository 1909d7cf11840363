//! Handing out resources, and keeping count of what they refer to.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::delta::{Resource, ResourceKey};
use super::engine::{Dirty, Engine};
use crate::model::{Action, BackendId, Cluster, ClusterId, FrontendKind, Handler, Target, WeightedTarget};

/// What is kept of a resource that was handed out.
pub(super) struct Emitted {
    fingerprint: u64,
    uses: Box<[BackendId]>,
}

impl Engine {
    /// Hands out a resource, or takes it back, where that changes anything; keeps count of the backends it uses.
    pub(super) fn emit(&mut self, key: ResourceKey, resource: Option<Resource>, dirty: &mut Dirty) {
        let hash = resource.as_ref().map(fingerprint);
        let old = self.emitted.get(&key).map(|emitted| emitted.fingerprint);
        if old == hash {
            return;
        }
        self.add_to_digest(&key, old, hash);
        let used = resource.as_ref().map(backends).unwrap_or_default();
        let before = match hash {
            Some(fingerprint) => {
                let uses = used.iter().cloned().collect();
                self.emitted.insert(key.clone(), Emitted { fingerprint, uses })
            }
            None => self.emitted.remove(&key),
        };
        let before: BTreeSet<BackendId> = before.map(|emitted| emitted.uses).into_iter().flatten().collect();
        for id in used.difference(&before) {
            let count = self.backends.entry(id.clone()).or_insert(0);
            *count += 1;
            if *count == 1 {
                self.emit(
                    ResourceKey::Backend(id.clone()),
                    Some(Resource::Cluster(Cluster::Backend(id.clone()))),
                    dirty,
                );
            }
        }
        for id in before.difference(&used) {
            let count = self.backends.get_mut(id).expect("counted when it was used");
            *count -= 1;
            if *count == 0 {
                self.backends.remove(id);
                self.emit(ResourceKey::Backend(id.clone()), None, dirty);
            }
        }
        match &key {
            ResourceKey::Backend(id) => {
                let port = resource.is_some().then(|| id.port.clone());
                self.lead(ClusterId::Backend(id.clone()), port, dirty);
            }
            ResourceKey::SniCluster(frontend, hostname) => {
                let port = match &resource {
                    Some(Resource::Cluster(Cluster::Sni { port, .. })) => port.clone(),
                    _ => None,
                };
                self.lead(ClusterId::Sni(frontend.clone(), hostname.clone()), port, dirty);
            }
            _ => {}
        }
        dirty.delta.resources.insert(key, resource);
    }

    /// Keeps the digest of what was handed out: the sum of all fingerprints, in whatever order they came. Endpoints and
    /// secrets come and go without anybody's configuration being another one.
    fn add_to_digest(&mut self, key: &ResourceKey, old: Option<u64>, new: Option<u64>) {
        if matches!(key, ResourceKey::Endpoints(_) | ResourceKey::Secret(_)) {
            return;
        }
        let of = |value: Option<u64>| value.map_or(0, |value| fingerprint(&(key, value)));
        self.digest = self.digest.wrapping_sub(of(old)).wrapping_add(of(new));
    }
}

/// What is kept of a value to see whether the next one differs.
pub(super) fn fingerprint(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The backends that a resource refers to.
fn backends(resource: &Resource) -> BTreeSet<BackendId> {
    let mut all = BTreeSet::new();
    let mut shares = |shares: &[WeightedTarget]| {
        all.extend(shares.iter().filter_map(|share| match &share.target {
            Target::Backend(id) => Some(id.clone()),
            Target::Invalid => None,
        }));
    };
    let hosts = match resource {
        Resource::Scope(scope) => std::slice::from_ref(&scope.virtual_host),
        Resource::Table(table) => &table.virtual_hosts,
        Resource::Frontend(frontend) => {
            if let FrontendKind::Tls { chains, .. } = &frontend.kind {
                for chain in chains.values() {
                    if let Handler::Tcp(targets) = &chain.handler {
                        shares(targets);
                    }
                }
            }
            &[]
        }
        Resource::Cluster(_) | Resource::Endpoints(_) | Resource::Secret(_) => &[],
    };
    let rules = || hosts.iter().flat_map(|host| &host.routes).map(|route| &route.rule);
    for rule in rules() {
        if let Action::Forward(targets) = &rule.action {
            shares(targets);
        }
    }
    all.extend(rules().flat_map(|rule| &rule.mirrors).map(|mirror| mirror.backend.clone()));
    all
}
