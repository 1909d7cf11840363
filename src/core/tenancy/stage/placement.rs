//! Placement of the listener of a hostname: in the Gateway, or in one of its ListenerSets. Placed
//! listeners are never moved.

use std::sync::Arc;

use crate::rule::host::{Host, HostId};
use crate::state::dirty::Dirty;
use crate::state::hosts::Hosts;
use crate::state::places::{Places, WaitingFor};
use crate::state::tenants::Tenants;
use gatewright_objects::inputs::Listener;
use gatewright_objects::model::ObjectName;

/// Hosts and their places, which change together: a host has its shard, and the shard has its
/// listener.
pub(crate) struct Placement<'a> {
    pub(crate) tenants: &'a Tenants,
    pub(crate) hosts: &'a mut Hosts,
    pub(crate) places: &'a mut Places,
}

impl Placement<'_> {
    /// Places a host in a shard.
    pub(crate) fn put(
        &mut self,
        id: HostId,
        name: Arc<str>,
        listener: Option<Arc<Listener>>,
        shard: usize,
    ) {
        let held = &mut self.hosts[id];
        held.set_shard(shard);
        self.places.put(
            (id, held.host().clone()),
            name,
            listener,
            shard,
            self.tenants,
        );
    }

    /// Removes a host from its shard, and marks the hosts that wait for the room or the name.
    pub(crate) fn take(&mut self, id: HostId, dirty: &mut Dirty) {
        let held = &mut self.hosts[id];
        let Some(place) = held.clear_shard() else {
            return;
        };
        let host = held.host().clone();
        let name = held.computed_names().listener;
        let tenant = &host.tenant;
        let shard = (tenant.clone(), place);
        if self.places.take(&host, name.clone(), &shard, self.tenants) {
            dirty.shards.insert((tenant.clone(), 0));
        }
        self.touch_below(&host, dirty);
        dirty.shards.insert(shard);
        for what in [WaitingFor::Name(name), WaitingFor::Room] {
            if let Some(next) = self.places.next_waiting(tenant, what) {
                dirty
                    .hosts
                    .extend(self.hosts.find(&next.tenant, &next.hostname));
            }
        }
    }

    /// Replaces the listener of a host, if it changed.
    pub(crate) fn renew(&mut self, id: HostId, listener: Arc<Listener>, dirty: &mut Dirty) {
        let held = &self.hosts[id];
        let Some(place) = held.shard() else { return };
        let shard = (held.host().tenant.clone(), place);
        if self.places.renew(&shard, &held.host().hostname, listener) {
            dirty.shards.insert(shard);
        }
    }

    /// Marks hosts below a wildcard without listeners of their own: the wildcard's listener serves
    /// them.
    pub(crate) fn touch_below(&self, host: &Host, dirty: &mut Dirty) {
        if host.hostname.is_wildcard() {
            let bids = self.hosts.below(host).flat_map(|id| self.hosts[id].bids());
            dirty.verdicts.extend(bids.map(|bid| bid.claim));
        }
    }

    /// Removes the last hosts from a Gateway that has less room after a change of the
    /// specification: they move elsewhere.
    pub(crate) fn make_room(&mut self, tenant: &ObjectName, dirty: &mut Dirty) {
        let gateway = (tenant.clone(), 0);
        for _ in Places::capacity(self.tenants, &gateway)..self.places.count(&gateway) {
            let last = self.places.in_shard(&gateway).next_back();
            let Some(host) = last.and_then(|(hostname, _)| self.hosts.find(tenant, hostname))
            else {
                break;
            };
            self.take(host, dirty);
            self.hosts.touch(host, dirty);
        }
        self.places.refresh_room(&gateway, self.tenants);
    }
}
