//! The work list of one change: what has to be redone, stage by stage, and what has come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::delta::{Delta, Resource, ResourceKey};
use super::isolated_envoys::EnvoysIntent;
use super::key::{ListenerId, ParentKey, RouteKey};
use super::lead::Lead;
use super::ownership::{Ownable, Ownership};
use super::service_intent::ServiceIntent;
use super::status::ObjectStatus;
use crate::inputs::ObjectKey;
use crate::model::{BackendId, ClusterId, FrontendId, Hostname, ObjectName, ServicePort};
use crate::wanted::WantedCertificate;

/// Things of one sort that have to be redone, in their order. A stage adds to them; nothing is looked at but by taking it out.
#[derive(Clone, Debug)]
pub(super) struct Marks<T>(BTreeSet<T>);

impl<T> Default for Marks<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: Ord> Marks<T> {
    /// Marks one.
    pub(super) fn insert(&mut self, item: T) {
        self.0.insert(item);
    }

    /// Takes out the first.
    pub(super) fn pop_first(&mut self) -> Option<T> {
        self.0.pop_first()
    }

    /// Takes out all.
    pub(super) fn take(&mut self) -> BTreeSet<T> {
        std::mem::take(&mut self.0)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Ord> Extend<T> for Marks<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        self.0.extend(items);
    }
}

/// The work list. Any stage marks what it touches; [`Engine::apply`](super::Engine::apply) takes out of it, and so do the stages
/// of owners and of secret names, of which one item leads to another.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) parents: Marks<ParentKey>,
    /// Hostnames, ports and sockets that may have another owner.
    pub(super) owned: Marks<Ownable>,
    pub(super) attachments: Marks<RouteKey>,
    pub(super) routes: Marks<RouteKey>,
    /// BackendTLSPolicies, the Services that they are about, and routes that may lead there.
    pub(super) policies: Marks<ObjectName>,
    pub(super) policed: Marks<ObjectName>,
    pub(super) uses: Marks<ObjectKey>,
    /// Routes for whose hostnames listeners may have other filters.
    pub(super) charged: Marks<RouteKey>,
    /// Gateways that may show another certificate to backends.
    pub(super) clients: Marks<ObjectName>,
    /// Gateways, and what Gateways share, whose frontends may be bound elsewhere.
    pub(super) bindings: Marks<ObjectName>,
    /// Routes that listeners may count, or no longer.
    pub(super) counted: Marks<(ListenerId, RouteKey)>,
    /// Hostnames that only solvers may give a listener, or no longer.
    pub(super) solved: Marks<(ListenerId, Hostname)>,
    pub(super) units: Marks<(FrontendId, Hostname)>,
    pub(super) tables: Marks<(FrontendId, Option<Hostname>)>,
    pub(super) frontends: Marks<FrontendId>,
    pub(super) backends: Marks<BackendId>,
    pub(super) endpoints: Marks<ServicePort>,
    pub(super) assignments: Marks<ClusterId>,
    pub(super) statuses: Marks<ObjectKey>,
    pub(super) services: Marks<ObjectName>,
    pub(super) wanting: Marks<ParentKey>,
    claims: BTreeMap<FrontendId, BTreeSet<Hostname>>,
    /// Hostnames whose certificates somebody else may keep the name of, each with the namespace that kept it before.
    secret_names: BTreeMap<Hostname, Option<Arc<str>>>,
    /// The targets of clusters from now on.
    leads: BTreeMap<ClusterId, Option<Lead>>,
    /// The time, in milliseconds since the epoch.
    now: u64,
    delta: Delta,
}

impl Dirty {
    /// A list with nothing to do, at a time in milliseconds since the epoch.
    pub(super) fn at(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    /// The time, in milliseconds since the epoch.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Marks hostnames of a frontend whose outcome may be another.
    pub(super) fn contend(&mut self, id: &FrontendId, hostnames: impl IntoIterator<Item = Hostname>) {
        self.claims.entry(id.clone()).or_default().extend(hostnames);
    }

    /// Takes out the hostnames of the first frontend with any.
    pub(super) fn pop_claims(&mut self) -> Option<(FrontendId, BTreeSet<Hostname>)> {
        self.claims.pop_first()
    }

    /// Marks a hostname whose certificate somebody else may keep the name of; the first that says who kept it before counts.
    pub(super) fn keep_secret_name(&mut self, hostname: &Hostname, kept: Option<Arc<str>>) {
        self.secret_names.entry(hostname.clone()).or_insert(kept);
    }

    /// Takes out the first of them.
    pub(super) fn pop_secret_name(&mut self) -> Option<(Hostname, Option<Arc<str>>)> {
        self.secret_names.pop_first()
    }

    /// Whether a unit, or the name of a secret, is still to be seen to.
    pub(super) fn has_units(&self) -> bool {
        !self.units.is_empty() || !self.secret_names.is_empty()
    }

    /// Sets where a cluster leads from now on.
    pub(super) fn lead(&mut self, cluster: ClusterId, lead: Option<Lead>) {
        self.leads.insert(cluster, lead);
    }

    /// Takes out the first cluster that leads elsewhere.
    pub(super) fn pop_lead(&mut self) -> Option<(ClusterId, Option<Lead>)> {
        self.leads.pop_first()
    }

    /// Hands out a resource, or takes it back.
    pub(super) fn hand_out(&mut self, key: ResourceKey, resource: Option<Resource>) {
        self.delta.resources.insert(key, resource);
    }

    /// Says that Envoys of other fleets than before use resources.
    pub(super) fn show(&mut self, keys: impl IntoIterator<Item = ResourceKey>) {
        self.delta.shown.extend(keys);
    }

    /// Hands out a status, or takes it back.
    pub(super) fn tell(&mut self, key: ObjectKey, status: Option<ObjectStatus>) {
        self.delta.statuses.insert(key, status);
    }

    /// Says that a Gateway has a part in what changes on frontends that many share.
    pub(super) fn note_gateway(&mut self, gateway: ObjectName) {
        self.delta.gateways.insert(gateway);
    }

    /// Says which Envoys a Gateway is to have for itself.
    pub(super) fn want_envoys(&mut self, gateway: ObjectName, intent: Option<EnvoysIntent>) {
        self.delta.envoys.insert(gateway, intent);
    }

    /// Says which Service a Gateway is to have.
    pub(super) fn want_service(&mut self, gateway: ObjectName, intent: Option<ServiceIntent>) {
        self.delta.services.insert(gateway, intent);
    }

    /// Says which certificate a Secret is to have.
    pub(super) fn want_certificate(&mut self, secret: ObjectName, wanted: Option<WantedCertificate>) {
        self.delta.wants.insert(secret, wanted);
    }

    /// Says that listeners with these Secrets were refused, or came to be.
    pub(super) fn note_secrets(&mut self, secrets: impl IntoIterator<Item = ObjectName>) {
        self.delta.standing.extend(secrets);
    }

    /// Says what is to be recorded.
    pub(super) fn record(&mut self, what: Ownable, owner: Option<Ownership>) {
        self.delta.records.insert(what, owner);
    }

    /// All that has come of it.
    pub(super) fn done(self) -> Delta {
        self.delta
    }
}
