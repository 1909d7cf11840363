//! The stage that decides the owner of a hostname.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::rule::host::HostId;
use crate::state::claims::Claims;
use crate::state::dirty::Dirty;
use crate::state::hosts::{Hosts, Priority};
use crate::state::namespaces::Namespaces;
use crate::state::record::{Records, Winner};
use crate::state::tenants::Tenants;
use gatewright_objects::domain_order::ByDomain;

/// The states that the stage reads and writes.
pub(crate) struct Settling<'a> {
    pub(crate) tenants: &'a Tenants,
    pub(crate) namespaces: &'a Namespaces,
    pub(crate) claims: &'a Claims,
    pub(crate) hosts: &'a mut Hosts,
    pub(crate) records: &'a mut Records,
}

impl Settling<'_> {
    /// Decides the owner of a hostname: one namespace, for all TenantGateways where it claims it.
    ///
    /// Of several claimants the first one wins, by record or by rank, unless the owner of a
    /// wildcard over the name precedes it in the same TenantGateway: the owner of `*.b.example.org`
    /// has `x.b.example.org` as well. Of several TenantGateways whose Gateways share addresses, the
    /// recorded owner keeps it. A name that a namespace released recently stays reserved, unless
    /// both namespaces belong to one owner.
    pub(crate) fn settle(self, name: &ByDomain, dirty: &mut Dirty) {
        let hosts: SmallVec<[HostId; 2]> = self.hosts.named(&name.0).collect();
        let mut bids: SmallVec<[(Priority, HostId); 2]> = SmallVec::new();
        for id in &hosts {
            let held = &self.hosts[*id];
            let over: SmallVec<[&Priority; 4]> = self.hosts.covering(held.host()).collect();
            let counts = self
                .records
                .count_at(self.tenants.is_own(&held.host().tenant));
            let holds = |priority: &Priority| {
                over.iter().all(|over| {
                    let is_first = if counts {
                        priority < over
                    } else {
                        priority.rank < over.rank
                    };
                    is_first || over.rank.namespace() == priority.rank.namespace()
                })
            };
            let priorities = held
                .ranks()
                .map(|rank| self.records.priority_of(name, rank, counts))
                .filter(holds)
                .filter(|priority| {
                    self.records
                        .is_within_quota(name, priority.rank.namespace())
                });
            bids.extend(priorities.map(|priority| (priority, *id)));
        }
        // The TenantGateway of a bid does not decide which is first, unless Gateways share
        // addresses and one of them owns the name already.
        let elsewhere = |id: HostId| !self.records.owns(&self.hosts[id].host().tenant, &name.0);
        bids.sort_by(|a, b| (elsewhere(a.1), &a.0).cmp(&(elsewhere(b.1), &b.0)));
        let asks = |namespace: &Arc<str>| {
            hosts
                .iter()
                .any(|id| self.hosts[*id].ranks().any(|r| r.namespace() == namespace))
        };
        let reserved = self.records.reservation(name, asks);
        let mut namespaces = bids.iter().map(|(priority, _)| priority.rank.namespace());
        let winner = match &reserved {
            Some(reserved) => namespaces.find(|namespace| {
                self.namespaces
                    .are_of_one_owner(namespace, &reserved.namespace)
            }),
            None => namespaces.next(),
        };
        let winner = winner.map(|namespace| Winner {
            namespace: namespace.clone(),
            is_recorded: bids.iter().any(|(priority, id)| {
                let is_own = self.tenants.is_own(&self.hosts[*id].host().tenant);
                priority.rank.namespace() == namespace && self.records.count_at(is_own)
            }),
            holder_asks: self
                .records
                .holder(name)
                .is_some_and(|held| asks(&held.namespace)),
        });
        // A namespace that claims it at a TenantGateway which cannot be carried out keeps it until
        // that is repaired.
        let claims = self.claims;
        let tenants = self.tenants;
        let winner = self.records.keep(
            name,
            winner,
            reserved,
            |namespace| claims.asks(namespace, &name.0, |tenant| tenants.is_unmanaged(tenant)),
            dirty,
        );
        for id in hosts {
            let first = bids.iter().find(|(priority, through)| {
                *through == id && Some(priority.rank.namespace()) == winner.as_ref()
            });
            let counts = self
                .records
                .count_at(self.tenants.is_own(&self.hosts[id].host().tenant));
            // Its record may be new.
            let owner = first.map(|(Priority { rank, .. }, _)| {
                match self.records.priority_of(name, rank, counts) {
                    recorded if counts => recorded,
                    unrecorded => Priority {
                        since: 0,
                        ..unrecorded
                    },
                }
            });
            let changed = self.hosts[id].own(owner);
            if changed && name.0.is_wildcard() {
                // Names below it may begin or cease to have the wildcard's owner.
                self.hosts.touch_below(id, dirty);
            }
            dirty.hosts.insert(id);
        }
    }
}
