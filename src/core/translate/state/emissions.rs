//! Emitted resources, each by its fingerprint, and the backends that they refer to.

use std::collections::{BTreeSet, HashMap};

use super::backends::Backends;
use super::cluster_targets::ClusterTargets;
use super::dirty::Dirty;
use super::fingerprint::fingerprint;
use super::login_secrets::LoginSecrets;
use crate::delta::{Resource, ResourceKey};
use gatewright_objects::model::{
    Action, BackendId, Cluster, ClusterId, FrontendId, FrontendKind, Handler, ListenerFilters,
    ObjectName, Target, VirtualHost, WeightedTarget,
};

/// All emitted resources.
#[derive(Default)]
pub(crate) struct Emissions {
    emitted: HashMap<ResourceKey, Emitted>,
    /// The sum of all fingerprints.
    digest: u64,
    /// The backends that the resources refer to.
    backends: Backends,
    /// The AccessPolicies whose secrets they refer to.
    logins: LoginSecrets,
}

/// The record of an emitted resource.
struct Emitted {
    fingerprint: u64,
    uses: Box<[BackendId]>,
    logins: Box<[ObjectName]>,
}

impl Emissions {
    /// The keys of all emitted resources.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ResourceKey> {
        self.emitted.keys()
    }

    /// The digest of all emitted resources.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// The backends that the resources refer to.
    pub(crate) fn backends(&self) -> &Backends {
        &self.backends
    }

    /// The AccessPolicies whose secrets the resources refer to.
    pub(crate) fn logins(&self) -> &LoginSecrets {
        &self.logins
    }

    /// Emits or removes a resource, if it changed. Marks the backends of which it becomes the first
    /// user or was the last, and the target of its own cluster.
    pub(crate) fn emit(&mut self, key: ResourceKey, resource: Option<Resource>, dirty: &mut Dirty) {
        let hash = resource.as_ref().map(fingerprint);
        let old = self.emitted.get(&key).map(|emitted| emitted.fingerprint);
        if old == hash {
            return;
        }
        self.add_to_digest(&key, old, hash);
        let used = resource.as_ref().map(backends).unwrap_or_default();
        let logins = resource.as_ref().map(logins).unwrap_or_default();
        let before = match hash {
            Some(fingerprint) => {
                let emitted = Emitted {
                    fingerprint,
                    uses: used.iter().cloned().collect(),
                    logins: logins.iter().cloned().collect(),
                };
                self.emitted.insert(key.clone(), emitted)
            }
            None => self.emitted.remove(&key),
        };
        let (before, logins_before): (BTreeSet<BackendId>, BTreeSet<ObjectName>) = before
            .map(|emitted| {
                let Emitted { uses, logins, .. } = emitted;
                (uses.into_iter().collect(), logins.into_iter().collect())
            })
            .unwrap_or_default();
        // Only resources of a frontend refer to backends.
        if let Some(fleet) = key.frontend().map(FrontendId::fleet) {
            for id in used.difference(&before) {
                self.backends.acquire(id, fleet.clone(), dirty);
            }
            for id in before.difference(&used) {
                self.backends.release(id, &fleet, dirty);
            }
            for policy in logins.difference(&logins_before) {
                self.logins.acquire(policy, fleet.clone(), dirty);
            }
            for policy in logins_before.difference(&logins) {
                self.logins.release(policy, &fleet, dirty);
            }
        }
        match &key {
            ResourceKey::Backend(id) => {
                let port = resource
                    .is_some()
                    .then(|| ClusterTargets::One(id.port.clone()));
                dirty.set_cluster_targets(ClusterId::Backend(id.clone()), port);
            }
            ResourceKey::SniCluster(frontend, hostname) => {
                let port = match &resource {
                    Some(Resource::Cluster(Cluster::Sni { port, .. })) => {
                        port.clone().map(ClusterTargets::One)
                    }
                    _ => None,
                };
                dirty.set_cluster_targets(ClusterId::Sni(frontend.clone(), hostname.clone()), port);
            }
            // Its unit sets the target; here it is removed.
            ResourceKey::UdpCluster(frontend) if resource.is_none() => {
                dirty.set_cluster_targets(ClusterId::Udp(frontend.clone()), None);
            }
            _ => {}
        }
        dirty.hand_out(key, resource);
    }

    /// Updates the digest: the sum of all fingerprints, in any order. Endpoints and secrets are not
    /// in it: they come and go without a change of configuration.
    fn add_to_digest(&mut self, key: &ResourceKey, old: Option<u64>, new: Option<u64>) {
        if matches!(key, ResourceKey::Endpoints(_) | ResourceKey::Secret(_)) {
            return;
        }
        self.digest = self
            .digest
            .wrapping_sub(of(old, &key))
            .wrapping_add(of(new, &key));
    }
}

fn of(value: Option<u64>, key: &&ResourceKey) -> u64 {
    value.map_or(0, |value| fingerprint(&(*key, value)))
}

/// The backends that a resource refers to.
pub(crate) fn backends(resource: &Resource) -> BTreeSet<BackendId> {
    let mut all = BTreeSet::new();
    if let Resource::Frontend(frontend) = resource {
        let logs = frontend.access_log.iter();
        all.extend(logs.flat_map(|log| log.collectors()).cloned());
        let traces = frontend.tracing.iter();
        all.extend(traces.map(|tracing| tracing.collector.clone()));
        match &frontend.kind {
            FrontendKind::Tls { chains, .. } => {
                for chain in chains.values() {
                    if let Handler::Tcp(targets) = &chain.handler {
                        shares(targets, &mut all);
                    }
                }
            }
            FrontendKind::Tcp { shares: targets } => shares(targets, &mut all),
            FrontendKind::Http | FrontendKind::Udp | FrontendKind::Http3 { .. } => {}
        }
    }
    let hosts = virtual_hosts(resource);
    let rules = || {
        hosts
            .iter()
            .flat_map(|host| &host.routes)
            .map(|route| &route.rule)
    };
    for rule in rules() {
        if let Action::Forward(targets) = &rule.action {
            shares(targets, &mut all);
        }
    }
    all.extend(
        rules()
            .flat_map(|rule| &rule.mirrors)
            .map(|mirror| mirror.backend.clone()),
    );
    all.extend(rules().filter_map(|rule| Some(rule.auth.as_deref()?.server.clone())));
    let policies = rules().flat_map(|rule| &rule.access);
    all.extend(policies.flat_map(|access| access.servers()).cloned());
    let servers = hosts
        .iter()
        .filter_map(|host| host.filters.as_deref())
        .flat_map(ListenerFilters::servers);
    all.extend(servers.map(|auth| auth.server.clone()));
    all
}

/// The virtual hosts of a resource.
fn virtual_hosts(resource: &Resource) -> &[VirtualHost] {
    match resource {
        Resource::Scope(scope) => std::slice::from_ref(&scope.virtual_host),
        Resource::Table(table) => &table.virtual_hosts,
        Resource::Frontend(_)
        | Resource::WideHosts(_)
        | Resource::Cluster(_)
        | Resource::Endpoints(_)
        | Resource::Secret(_)
        | Resource::Generic(_)
        | Resource::Tickets(_)
        | Resource::Roots(_) => &[],
    }
}

/// The AccessPolicies whose secrets of logins a resource refers to.
fn logins(resource: &Resource) -> BTreeSet<ObjectName> {
    let policies = virtual_hosts(resource)
        .iter()
        .flat_map(|host| &host.routes)
        .flat_map(|route| &route.rule.access);
    let with_login = policies.filter(|access| access.oidc.is_some());
    with_login.map(|access| access.policy.clone()).collect()
}

fn shares(shares: &[WeightedTarget], all: &mut BTreeSet<BackendId>) {
    all.extend(shares.iter().filter_map(|share| match &share.target {
        Target::Backend(id) => Some(id.clone()),
        Target::Invalid => None,
    }));
}
