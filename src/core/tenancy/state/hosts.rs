//! The state of all hostnames of all TenantGateways: bids, owners, places.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use slab::Slab;
use smallvec::SmallVec;

use super::dirty::Dirty;
use super::groups::{Groups, Map};
use crate::rule::claim::{ClaimId, Rank};
use crate::rule::host::{Host, HostId};
use crate::rule::names;
use gatewright_objects::model::{Hostname, ObjectName};

/// The priority of a claimant: the first in time, if the order of arrival counts, then by rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Priority {
    pub(crate) since: u64,
    pub(crate) rank: Rank,
}

/// The state of a hostname.
pub(crate) struct HostState {
    /// The hostname and its TenantGateway.
    host: Host,
    /// The bids for it, ordered by rank.
    bids: SmallVec<[Bid; 1]>,
    /// Its owner.
    owner: Option<Priority>,
    /// True if a bid of another namespace than the owner's contests it.
    contested: bool,
    /// The only namespace that may attach: while it is contested, and always with another data
    /// plane; `None` there if it has no owner.
    sole_namespace: Option<Arc<str>>,
    /// For an owned wildcard: the hostnames below it that other namespaces claim.
    intruders: BTreeSet<Hostname>,
    /// True if a ListenerSet that is not ours has it.
    with_set: bool,
    /// The shard of its listener.
    shard: Option<usize>,
    /// The names of its objects, once they were computed.
    names: Option<names::OfHost>,
}

/// A bid for a hostname.
#[derive(Clone, Debug)]
pub(crate) struct Bid {
    pub(crate) rank: Rank,
    pub(crate) claim: ClaimId,
    /// True if it needs a TLS listener.
    pub(crate) secure: bool,
}

impl HostState {
    fn of(host: Host) -> Self {
        Self {
            host,
            bids: SmallVec::new(),
            owner: None,
            contested: false,
            sole_namespace: None,
            intruders: BTreeSet::new(),
            with_set: false,
            shard: None,
            names: None,
        }
    }

    /// The hostname and its TenantGateway.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// The bids for it, ordered by rank.
    pub(crate) fn bids(&self) -> &[Bid] {
        &self.bids
    }

    /// Its owner.
    pub(crate) fn owner(&self) -> Option<&Priority> {
        self.owner.as_ref()
    }

    /// Sets its owner. Returns whether that changed.
    pub(crate) fn own(&mut self, owner: Option<Priority>) -> bool {
        let changed = self.owner != owner;
        self.owner = owner;
        changed
    }

    /// The only namespace that may attach.
    pub(crate) fn sole_namespace(&self) -> Option<&Arc<str>> {
        self.sole_namespace.as_ref()
    }

    /// Sets whether it is contested, and the only namespace that may attach. Returns whether that
    /// changed.
    pub(crate) fn contest(&mut self, contested: bool, sole_namespace: Option<Arc<str>>) -> bool {
        let changed = (self.contested, &self.sole_namespace) != (contested, &sole_namespace);
        (self.contested, self.sole_namespace) = (contested, sole_namespace);
        changed
    }

    /// True if other namespaces claim hostnames below it.
    pub(crate) fn has_intruders(&self) -> bool {
        !self.intruders.is_empty()
    }

    /// Sets whether another namespace claims a hostname below it. Returns whether it begins or
    /// ceases to have such hostnames.
    pub(crate) fn set_intruder(&mut self, hostname: &Hostname, there: bool) -> bool {
        let had_some = self.has_intruders();
        if there {
            self.intruders.insert(hostname.clone())
        } else {
            self.intruders.remove(hostname)
        };
        self.has_intruders() != had_some
    }

    /// Sets whether a ListenerSet that is not ours has it. Returns whether that changed.
    pub(crate) fn set_with_set(&mut self, with_set: bool) -> bool {
        std::mem::replace(&mut self.with_set, with_set) != with_set
    }

    /// The shard of its listener.
    pub(crate) fn shard(&self) -> Option<usize> {
        self.shard
    }

    /// Places its listener in a shard.
    pub(crate) fn set_shard(&mut self, shard: usize) {
        self.shard = Some(shard);
    }

    /// Removes its listener from its shard, and returns the shard.
    pub(crate) fn clear_shard(&mut self) -> Option<usize> {
        self.shard.take()
    }

    /// The names of its objects, if they were computed.
    pub(crate) fn names(&self) -> Option<&names::OfHost> {
        self.names.as_ref()
    }

    /// Adds or removes a bid.
    pub(crate) fn bid(&mut self, bid: Bid, there: bool) {
        match (
            self.bids.binary_search_by(|held| held.rank.cmp(&bid.rank)),
            there,
        ) {
            (Err(at), true) => self.bids.insert(at, bid),
            (Ok(at), false) => {
                self.bids.remove(at);
            }
            (Ok(_), true) | (Err(_), false) => {}
        }
    }

    /// Sets whether a bid needs a TLS listener. Returns whether that changed.
    pub(crate) fn secure(&mut self, claim: ClaimId, secure: bool) -> bool {
        let bid = self.bids.iter_mut().find(|bid| bid.claim == claim);
        bid.is_some_and(|bid| std::mem::replace(&mut bid.secure, secure) != secure)
    }

    /// True if a bid of a namespace needs a TLS listener.
    pub(crate) fn is_secure(&self, namespace: &str) -> bool {
        self.bids
            .iter()
            .any(|bid| bid.secure && **bid.rank.namespace() == *namespace)
    }

    /// The ranks of its claimants, in order.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = &Rank> {
        self.bids.iter().map(|bid| &bid.rank)
    }

    /// The names of its objects.
    pub(crate) fn computed_names(&mut self) -> names::OfHost {
        let Self { host, names, .. } = self;
        names
            .get_or_insert_with(|| names::OfHost::new(&host.tenant.name, host.hostname.as_str()))
            .clone()
    }

    /// True if it has no state to keep.
    fn is_idle(&self) -> bool {
        self.bids.is_empty() && self.owner.is_none() && self.shard.is_none() && !self.with_set
    }
}

/// All hosts. All hosts of one hostname take a single look-up; other indexes refer to them by
/// number.
#[derive(Default)]
pub(crate) struct Hosts {
    all: Slab<HostState>,
    by_name: Map<Hostname, SmallVec<[HostId; 2]>>,
    by_tenant: Groups<ObjectName, HostId>,
    /// The hosts of TenantGateways with wildcards, in an order in which the names below a name are
    /// adjacent.
    order: BTreeMap<Host, HostId>,
    /// The wildcards of each TenantGateway.
    wild: Groups<ObjectName, HostId>,
}

impl Index<HostId> for Hosts {
    type Output = HostState;

    fn index(&self, id: HostId) -> &HostState {
        &self.all[id.0]
    }
}

impl IndexMut<HostId> for Hosts {
    fn index_mut(&mut self, id: HostId) -> &mut HostState {
        &mut self.all[id.0]
    }
}

impl Hosts {
    pub(crate) fn find(&self, tenant: &ObjectName, hostname: &Hostname) -> Option<HostId> {
        self.named(hostname)
            .find(|id| self[*id].host.tenant == *tenant)
    }

    /// The state of a host.
    pub(crate) fn get(&self, tenant: &ObjectName, hostname: &Hostname) -> Option<&HostState> {
        self.find(tenant, hostname).map(|id| &self[id])
    }

    /// The hosts of a hostname, one for each TenantGateway.
    pub(crate) fn named(&self, hostname: &Hostname) -> impl Iterator<Item = HostId> + use<'_> {
        self.by_name.get(hostname).into_iter().flatten().copied()
    }

    /// The state of a host, created if it does not exist.
    pub(crate) fn hold(&mut self, tenant: &ObjectName, hostname: &Hostname) -> HostId {
        let ids = self.by_name.entry(hostname.clone()).or_default();
        let all = &mut self.all;
        if let Some(id) = ids.iter().find(|id| all[id.0].host.tenant == *tenant) {
            return *id;
        }
        let host = Host::new(tenant, hostname);
        let id = HostId(all.insert(HostState::of(host.clone())));
        ids.push(id);
        if hostname.is_wildcard() {
            if !self.wild.has(tenant) {
                let there = self
                    .by_tenant
                    .of(tenant)
                    .map(|id| (all[id.0].host.clone(), *id));
                self.order.extend(there);
            }
            self.wild.insert(tenant.clone(), id);
        }
        self.by_tenant.insert(tenant.clone(), id);
        if self.wild.has(tenant) {
            self.order.insert(host, id);
        }
        id
    }

    /// Removes a host without state.
    pub(crate) fn release(&mut self, id: HostId) {
        if !self[id].is_idle() {
            return;
        }
        let Host { tenant, hostname } = self.all.remove(id.0).host;
        if let Some(ids) = self.by_name.get_mut(&hostname) {
            ids.retain(|held| *held != id);
            if ids.is_empty() {
                self.by_name.remove(&hostname);
            }
        }
        self.by_tenant.remove(tenant.clone(), &id);
        let ordered = self.wild.has(&tenant);
        self.wild.remove(tenant.clone(), &id);
        if ordered && !self.wild.has(&tenant) {
            for id in self.by_tenant.of(&tenant) {
                self.order.remove(&self.all[id.0].host);
            }
        }
        self.order.remove(&Host { tenant, hostname });
    }

    /// The hosts of a TenantGateway, in no order.
    pub(crate) fn of<'a>(
        &'a self,
        tenant: &'a ObjectName,
    ) -> impl Iterator<Item = HostId> + use<'a> {
        self.by_tenant.of(tenant).copied()
    }

    /// True if there is any wildcard.
    pub(crate) fn any_wild(&self) -> bool {
        !self.wild.is_empty()
    }

    /// The hosts below a wildcard of the same TenantGateway, without the wildcard itself.
    pub(crate) fn below<'a>(
        &'a self,
        wildcard: &'a Host,
    ) -> impl Iterator<Item = HostId> + use<'a> {
        let all = self
            .order
            .range(wildcard.clone()..)
            .skip_while(move |(host, _)| *host == wildcard);
        all.take_while(move |(host, _)| {
            host.tenant == wildcard.tenant && wildcard.hostname.covers(&host.hostname)
        })
        .map(|(_, id)| *id)
    }

    /// The wildcards over a host that have state in the same TenantGateway, the most specific
    /// first.
    pub(crate) fn over<'a>(
        &'a self,
        tenant: &ObjectName,
        hostname: &Hostname,
    ) -> impl Iterator<Item = HostId> + use<'a> {
        // Mostly there are none, and then no wildcard is built to be looked up.
        let wildcards = self.wild.has(tenant).then(|| hostname.covering());
        let found = wildcards
            .into_iter()
            .flatten()
            .filter_map(|wildcard| self.find(tenant, &wildcard));
        found.collect::<SmallVec<[HostId; 4]>>().into_iter()
    }

    /// The owners of the wildcards over a host, the most specific first.
    pub(crate) fn covering<'a>(
        &'a self,
        host: &Host,
    ) -> impl Iterator<Item = &'a Priority> + use<'a> {
        self.over(&host.tenant, &host.hostname)
            .filter_map(|id| self[id].owner.as_ref())
    }

    /// The owner of a hostname of a TenantGateway.
    pub(crate) fn owner(&self, tenant: &ObjectName, hostname: &Hostname) -> Option<&Priority> {
        self.get(tenant, hostname)?.owner.as_ref()
    }

    /// True if a hostname has an owner in any TenantGateway.
    pub(crate) fn is_owned(&self, hostname: &Hostname) -> bool {
        self.named(hostname).any(|id| self[id].owner.is_some())
    }

    /// The ranks of all bids for a hostname, with their TenantGateways.
    pub(crate) fn bids<'a>(
        &'a self,
        hostname: &Hostname,
    ) -> impl Iterator<Item = (&'a Rank, &'a ObjectName)> + use<'a> {
        let held = self.named(hostname).map(|id| &self[id]);
        held.flat_map(|held| held.ranks().map(|rank| (rank, &held.host.tenant)))
    }

    /// The namespace that owns a host in another TenantGateway, or a wildcard over it.
    pub(crate) fn owner_elsewhere(&self, host: &Host) -> Option<Arc<str>> {
        let mut others = self
            .named(&host.hostname)
            .filter_map(|id| self[id].owner.as_ref());
        let sole_namespace = others.next().or_else(|| self.covering(host).next());
        sole_namespace.map(|priority| priority.rank.namespace().clone())
    }

    /// The shard whose listener serves an owned host: its own, that of the closest wildcard, or the
    /// Gateway's.
    pub(crate) fn shard_of(&self, tenant: &ObjectName, hostname: &Hostname) -> usize {
        let own = self.get(tenant, hostname).and_then(|held| held.shard);
        own.or_else(|| self.over(tenant, hostname).find_map(|id| self[id].shard))
            .unwrap_or(0)
    }

    /// Marks a host: its owner, and its listener.
    pub(crate) fn touch(&self, id: HostId, dirty: &mut Dirty) {
        dirty.names.insert(self[id].host.name());
        dirty.hosts.insert(id);
    }

    /// Marks the hosts below a wildcard.
    pub(crate) fn touch_below(&self, wildcard: HostId, dirty: &mut Dirty) {
        for id in self.below(&self[wildcard].host) {
            self.touch(id, dirty);
        }
    }

    /// All hosts, in no order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &HostState> {
        self.all.iter().map(|(_, held)| held)
    }
}
