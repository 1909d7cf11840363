//! The work list of one change: the items that each stage has to redo, and the results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cluster_targets::ClusterTargets;
use super::isolated_envoys::DesiredEnvoys;
use super::service_intent::ServiceIntent;
use crate::delta::{Delta, Resource, ResourceKey};
use crate::key::{ListenerId, ParentKey, RouteKey};
use gatewright_objects::external_name::ExternalName;
use gatewright_objects::inputs::ObjectKey;
use gatewright_objects::model::{
    BackendId, ClusterId, FrontendId, Hostname, ObjectName, ServicePort,
};
use gatewright_objects::ownership::{Ownable, OwnerRecord};
use gatewright_objects::status::ObjectStatus;
use gatewright_objects::wanted::WantedCertificate;

/// A set of items to redo, in order. Stages add items; items are read only by removing them.
#[derive(Clone, Debug)]
pub(crate) struct Marks<T>(BTreeSet<T>);

impl<T> Default for Marks<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: Ord> Marks<T> {
    /// Adds an item.
    pub(crate) fn insert(&mut self, item: T) {
        self.0.insert(item);
    }

    /// Removes and returns the first item.
    pub(crate) fn pop_first(&mut self) -> Option<T> {
        self.0.pop_first()
    }

    /// Removes and returns all items.
    pub(crate) fn take(&mut self) -> BTreeSet<T> {
        std::mem::take(&mut self.0)
    }

    /// True if there are no items.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Ord> Extend<T> for Marks<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        self.0.extend(items);
    }
}

/// The work list. Any stage marks the items that it affects;
/// [`Engine::apply`](crate::Engine::apply) removes them, and so do the stages of owners and of
/// secret names, in which one item leads to another.
#[derive(Default)]
pub(crate) struct Dirty {
    pub(crate) parents: Marks<ParentKey>,
    /// Hostnames, ports and sockets whose owner may change.
    pub(crate) owned: Marks<Ownable>,
    pub(crate) attachments: Marks<RouteKey>,
    pub(crate) routes: Marks<RouteKey>,
    /// Policies, the Services that they are about, and routes that may lead there.
    pub(crate) policies: Marks<ObjectKey>,
    pub(crate) policed: Marks<ObjectName>,
    pub(crate) uses: Marks<ObjectKey>,
    /// Routes for whose hostnames listeners may have other filters.
    pub(crate) charged: Marks<RouteKey>,
    /// Gateways whose client certificate may have changed.
    pub(crate) clients: Marks<ObjectName>,
    /// Gateways, and the shared fleet, whose frontends may be bound elsewhere.
    pub(crate) bindings: Marks<ObjectName>,
    /// Routes that a listener may begin or cease to count.
    pub(crate) counted: Marks<(ListenerId, RouteKey)>,
    /// Hostnames that only solvers' routes may contribute to a listener.
    pub(crate) solved: Marks<(ListenerId, Hostname)>,
    pub(crate) units: Marks<(FrontendId, Hostname)>,
    /// Tables of wildcard and catch-all listeners with TLS.
    pub(crate) tables: Marks<(FrontendId, Hostname)>,
    /// Frontends whose wildcards on plain HTTP changed.
    pub(crate) wide_hosts: Marks<FrontendId>,
    pub(crate) frontends: Marks<FrontendId>,
    /// Frontends whose challenges another of their namespace may have to answer.
    pub(crate) represented: Marks<FrontendId>,
    pub(crate) backends: Marks<BackendId>,
    /// Services whose name may begin or cease to be wanted.
    pub(crate) names: Marks<ObjectName>,
    /// AccessPolicies whose secrets of logins may have changed.
    pub(crate) logins: Marks<ObjectName>,
    pub(crate) endpoints: Marks<ServicePort>,
    pub(crate) assignments: Marks<ClusterId>,
    pub(crate) statuses: Marks<ObjectKey>,
    pub(crate) services: Marks<ObjectName>,
    pub(crate) wanting: Marks<ParentKey>,
    claims: BTreeMap<FrontendId, BTreeSet<Hostname>>,
    /// Hostnames whose secret name may get another owner, each with the namespace that owned it
    /// before.
    secret_names: BTreeMap<Hostname, Option<Arc<str>>>,
    /// New targets of clusters.
    cluster_targets: BTreeMap<ClusterId, Option<ClusterTargets>>,
    /// The time, in milliseconds since the epoch.
    now: u64,
    delta: Delta,
}

impl Dirty {
    /// An empty work list, at a time in milliseconds since the epoch.
    pub(crate) fn at(now: u64) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }

    /// The time, in milliseconds since the epoch.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Marks hostnames of a frontend whose outcome may change.
    pub(crate) fn contend(
        &mut self,
        id: &FrontendId,
        hostnames: impl IntoIterator<Item = Hostname>,
    ) {
        self.claims.entry(id.clone()).or_default().extend(hostnames);
    }

    /// Removes and returns the hostnames of the first frontend that has any.
    pub(crate) fn pop_claims(&mut self) -> Option<(FrontendId, BTreeSet<Hostname>)> {
        self.claims.pop_first()
    }

    /// Marks a hostname whose secret name may get another owner; of several former owners the first
    /// one counts.
    pub(crate) fn keep_secret_name(&mut self, hostname: &Hostname, kept: Option<Arc<str>>) {
        self.secret_names.entry(hostname.clone()).or_insert(kept);
    }

    /// Removes and returns the first of these hostnames.
    pub(crate) fn pop_secret_name(&mut self) -> Option<(Hostname, Option<Arc<str>>)> {
        self.secret_names.pop_first()
    }

    /// True if a unit, or the name of a secret, remains to be done.
    pub(crate) fn has_units(&self) -> bool {
        !self.units.is_empty() || !self.secret_names.is_empty()
    }

    /// Sets the new target of a cluster.
    pub(crate) fn set_cluster_targets(
        &mut self,
        cluster: ClusterId,
        targets: Option<ClusterTargets>,
    ) {
        self.cluster_targets.insert(cluster, targets);
    }

    /// Removes and returns the first cluster with a new target.
    pub(crate) fn pop_cluster_targets(&mut self) -> Option<(ClusterId, Option<ClusterTargets>)> {
        self.cluster_targets.pop_first()
    }

    /// Adds a resource to the result, or its removal.
    pub(crate) fn hand_out(&mut self, key: ResourceKey, resource: Option<Resource>) {
        self.delta.resources.insert(key, resource);
    }

    /// Adds resources whose set of fleets changed to the result.
    pub(crate) fn show(&mut self, keys: impl IntoIterator<Item = ResourceKey>) {
        self.delta.fleet_changes.extend(keys);
    }

    /// Adds a status to the result, or its removal.
    pub(crate) fn tell(&mut self, key: ObjectKey, status: Option<ObjectStatus>) {
        self.delta.statuses.insert(key, status);
    }

    /// Adds a Gateway that is affected by changes on shared frontends to the result.
    pub(crate) fn note_gateway(&mut self, gateway: ObjectName) {
        self.delta.gateways.insert(gateway);
    }

    /// Adds the intent for a Gateway's own Envoys to the result.
    pub(crate) fn want_envoys(&mut self, gateway: ObjectName, intent: Option<DesiredEnvoys>) {
        self.delta.envoys.insert(gateway, intent);
    }

    /// Adds the intent for a Gateway's Service to the result.
    pub(crate) fn want_service(&mut self, gateway: ObjectName, intent: Option<ServiceIntent>) {
        self.delta.services.insert(gateway, intent);
    }

    /// Adds the wanted certificate of a Secret to the result, or its removal.
    pub(crate) fn want_certificate(
        &mut self,
        secret: ObjectName,
        wanted: Option<WantedCertificate>,
    ) {
        self.delta.wants.insert(secret, wanted);
    }

    /// Adds the wanted name of a Service to the result, or its removal.
    pub(crate) fn want_name(&mut self, service: ObjectName, wanted: Option<ExternalName>) {
        self.delta.names.insert(service, wanted);
    }

    /// Adds Secrets whose listeners were refused, or are new, to the result.
    pub(crate) fn note_secrets(&mut self, secrets: impl IntoIterator<Item = ObjectName>) {
        self.delta.refusal_changes.extend(secrets);
    }

    /// Adds a record to the result, or its removal.
    pub(crate) fn record(&mut self, what: Ownable, owner: Option<OwnerRecord>) {
        self.delta.records.insert(what, owner);
    }

    /// Returns the result.
    pub(crate) fn done(self) -> Delta {
        self.delta
    }
}
