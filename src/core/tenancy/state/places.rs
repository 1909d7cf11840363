//! The listeners of each shard, and the hosts that wait for a place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::groups::Map;
use super::tenants::Tenants;
use crate::rule::host::{Host, HostId, Shard};
use gatewright_objects::inputs::Listener;
use gatewright_objects::model::{Hostname, ObjectName};
use gatewright_objects::multimap::MultiMap;

/// The most listeners of one Gateway or ListenerSet (Gateway API: `spec.listeners`, at most 64
/// items).
const LISTENERS: usize = 64;

/// The reason why a host has no place, and for which it waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WaitingFor {
    /// Room in a shard.
    Room,
    /// The name of a listener that another hostname has.
    Name(Arc<str>),
}

/// The listeners of hostnames, and their shards.
#[derive(Default)]
pub(crate) struct Places {
    /// Hosts by the names of their listeners.
    listeners: Map<(ObjectName, Arc<str>), HostId>,
    /// Listeners by shard, without empty shards; a listener is `None` until its host is first
    /// evaluated.
    shards: BTreeMap<Shard, BTreeMap<Hostname, Option<Arc<Listener>>>>,
    /// Shards with room, so that finding one does not take longer with more shards.
    room: BTreeSet<Shard>,
    /// Hosts that have no place.
    waiting: MultiMap<(ObjectName, WaitingFor), Host>,
    /// The number of a TenantGateway's hosts that ListenerSets which are not ours have.
    with_sets: BTreeMap<ObjectName, usize>,
}

impl Places {
    /// The host with the name of a listener of a TenantGateway.
    pub(crate) fn holder(&self, tenant: &ObjectName, listener: Arc<str>) -> Option<HostId> {
        self.listeners.get(&(tenant.clone(), listener)).copied()
    }

    /// The shards of a TenantGateway with any listeners, by number.
    pub(crate) fn shards_of(&self, tenant: &ObjectName) -> impl Iterator<Item = &Shard> {
        self.shards
            .range((tenant.clone(), 0)..)
            .map(|(shard, _)| shard)
            .take_while(move |shard| shard.0 == *tenant)
    }

    /// The last shard of a TenantGateway with any listeners.
    pub(crate) fn last_of(&self, tenant: &ObjectName) -> Option<usize> {
        let last = self
            .shards
            .range(..=(tenant.clone(), usize::MAX))
            .next_back();
        last.filter(|(shard, _)| shard.0 == *tenant)
            .map(|(shard, _)| shard.1)
    }

    /// The listeners in a shard, by hostname.
    pub(crate) fn in_shard(
        &self,
        shard: &Shard,
    ) -> impl DoubleEndedIterator<Item = (&Hostname, Option<&Arc<Listener>>)> {
        self.shards
            .get(shard)
            .into_iter()
            .flatten()
            .map(|(hostname, listener)| (hostname, listener.as_ref()))
    }

    /// The number of hosts in a shard.
    pub(crate) fn count(&self, shard: &Shard) -> usize {
        self.shards.get(shard).map_or(0, BTreeMap::len)
    }

    /// The first shard of a TenantGateway with room.
    pub(crate) fn free(&self, tenant: &ObjectName) -> Option<usize> {
        self.room
            .range((tenant.clone(), 0)..)
            .next()
            .filter(|shard| shard.0 == *tenant)
            .map(|shard| shard.1)
    }

    /// Places the listener of a host in a shard.
    pub(crate) fn put(
        &mut self,
        (id, host): (HostId, Host),
        name: Arc<str>,
        listener: Option<Arc<Listener>>,
        shard: usize,
        tenants: &Tenants,
    ) {
        let Host { tenant, hostname } = host;
        self.listeners.insert((tenant.clone(), name), id);
        let key = (tenant, shard);
        self.shards
            .entry(key.clone())
            .or_default()
            .insert(hostname, listener);
        self.refresh_room(&key, tenants);
    }

    /// Removes the listener of a host from a shard. Returns whether the shard is empty now.
    pub(crate) fn take(
        &mut self,
        host: &Host,
        name: Arc<str>,
        shard: &Shard,
        tenants: &Tenants,
    ) -> bool {
        self.listeners.remove(&(host.tenant.clone(), name));
        let mut emptied = false;
        if let Some(held) = self.shards.get_mut(shard) {
            held.remove(&host.hostname);
            emptied = held.is_empty();
            if emptied {
                self.shards.remove(shard);
            }
        }
        self.refresh_room(shard, tenants);
        emptied
    }

    /// Replaces the listener of a hostname in a shard. Returns whether it changed.
    pub(crate) fn renew(
        &mut self,
        shard: &Shard,
        hostname: &Hostname,
        listener: Arc<Listener>,
    ) -> bool {
        let Some(slot) = self
            .shards
            .get_mut(shard)
            .and_then(|shard| shard.get_mut(hostname))
        else {
            return false;
        };
        let differs = slot.as_ref() != Some(&listener);
        if differs {
            *slot = Some(listener);
        }
        differs
    }

    /// The number of listeners of hostnames that a shard can hold.
    pub(crate) fn capacity(tenants: &Tenants, (tenant, number): &Shard) -> usize {
        let fixed = tenants
            .resolved(tenant)
            .map_or(LISTENERS, |resolved| resolved.template.fixed());
        if *number == 0 {
            LISTENERS.saturating_sub(fixed)
        } else {
            LISTENERS
        }
    }

    /// Updates whether a shard has room, after a change of its listeners or of its TenantGateway.
    pub(crate) fn refresh_room(&mut self, shard: &Shard, tenants: &Tenants) {
        let held = self.count(shard);
        if held < Self::capacity(tenants, shard) && (held > 0 || shard.1 == 0) {
            self.room.insert(shard.clone());
        } else {
            self.room.remove(shard);
        }
    }

    /// True if any host waits for a place.
    pub(crate) fn any_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// True if a host waits for something.
    pub(crate) fn waits(&self, host: &Host, what: WaitingFor) -> bool {
        self.waiting.contains(&(host.tenant.clone(), what), host)
    }

    /// The hosts of a TenantGateway that wait for room.
    pub(crate) fn waiting_for_room(&self, tenant: &ObjectName) -> impl Iterator<Item = &Host> {
        self.waiting.of(&(tenant.clone(), WaitingFor::Room))
    }

    /// Adds a host to those that wait for something.
    pub(crate) fn wait(&mut self, host: Host, what: WaitingFor) {
        self.waiting.insert((host.tenant.clone(), what), host);
    }

    /// Removes a host from those that wait for something.
    pub(crate) fn stop_waiting(&mut self, host: &Host, what: WaitingFor) {
        self.waiting.remove(&(host.tenant.clone(), what), host);
    }

    /// Removes and returns the first host of a TenantGateway that waits for something.
    pub(crate) fn next_waiting(&mut self, tenant: &ObjectName, what: WaitingFor) -> Option<Host> {
        let key = (tenant.clone(), what);
        let next = self.waiting.first(&key)?.clone();
        self.waiting.remove(&key, &next);
        Some(next)
    }

    /// Counts a host that a ListenerSet which is not ours begins or ceases to have.
    pub(crate) fn count_set(&mut self, tenant: &ObjectName, with_set: bool) {
        let count = self.with_sets.entry(tenant.clone()).or_default();
        *count = if with_set { *count + 1 } else { *count - 1 };
    }

    /// True if ListenerSets that are not ours have hosts of a TenantGateway.
    pub(crate) fn has_sets(&self, tenant: &ObjectName) -> bool {
        self.with_sets.get(tenant).is_some_and(|count| *count > 0)
    }
}
