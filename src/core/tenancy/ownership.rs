//! Who owns a hostname.

use std::sync::Arc;

use smallvec::SmallVec;

use super::engine::{Dirty, Priority, Tenancy};
use super::hosts::{HostId, Name};

impl Tenancy {
    /// Decides who owns a hostname: one namespace, through every TenantGateway where it claims it.
    ///
    /// Of several claimants the first wins, unless the owner of a wildcard over the name stands before it, in the same
    /// TenantGateway: who has `*.b.example.org` there has `x.b.example.org` as well. Of several TenantGateways whose Gateways
    /// share addresses, the one that has it keeps it. What its namespace gave up a short while ago nobody else has, unless both
    /// belong to one owner.
    pub(super) fn settle(&mut self, name: &Name, dirty: &mut Dirty) {
        self.counters.hosts += 1;
        let hosts: SmallVec<[HostId; 2]> = self.hosts.named(&name.0).collect();
        let mut bids: SmallVec<[(Priority, HostId); 2]> = SmallVec::new();
        for id in &hosts {
            let held = &self.hosts[*id];
            let over: SmallVec<[&Priority; 4]> = self.hosts.covering(&held.host).collect();
            let holds = |standing: &Priority| {
                over.iter().all(|over| over.rank.namespace() == standing.rank.namespace() || standing < over)
            };
            let standings = held.ranks().map(|rank| self.stand(name, rank)).filter(holds);
            bids.extend(standings.map(|standing| (standing, *id)));
        }
        // Through which TenantGateway makes no difference to who is first, unless one of them has the name already where
        // several share addresses.
        let elsewhere = |id: HostId| !self.owns(&self.hosts[id].host.tenant, &name.0);
        bids.sort_by(|a, b| (elsewhere(a.1), &a.0).cmp(&(elsewhere(b.1), &b.0)));
        let asks =
            |namespace: &Arc<str>| hosts.iter().any(|id| self.hosts[*id].ranks().any(|r| r.namespace() == namespace));
        let reserved = self.reservation(name, asks);
        let mut namespaces = bids.iter().map(|(standing, _)| standing.rank.namespace());
        let winner = match &reserved {
            Some(reserved) => namespaces.find(|namespace| self.are_of_one_owner(namespace, &reserved.namespace)),
            None => namespaces.next(),
        };
        let winner = winner.cloned();
        let winner = self.record(name, winner, reserved, dirty);
        for id in hosts {
            let first = bids
                .iter()
                .find(|(standing, through)| *through == id && Some(standing.rank.namespace()) == winner.as_ref());
            let owner = first.map(|(standing, _)| standing.clone());
            let held = &mut self.hosts[id];
            let changed = held.owner != owner;
            held.owner = owner;
            if changed && name.0.is_wildcard() {
                // Whatever lies below it may have to yield, or be free again.
                self.touch_below(id, dirty);
            }
            dirty.hosts.insert(id);
        }
    }

    /// Marks what is claimed below a wildcard.
    pub(super) fn touch_below(&self, wildcard: HostId, dirty: &mut Dirty) {
        for id in self.hosts.below(&self.hosts[wildcard].host) {
            self.touch(id, dirty);
        }
    }
}
