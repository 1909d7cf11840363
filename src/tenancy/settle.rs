//! Who owns a hostname.

use std::sync::Arc;

use super::engine::{Dirty, Standing, Tenancy};
use super::held::{Host, Name};
use crate::model::ObjectName;

impl Tenancy {
    /// Decides who owns a hostname: one namespace, through every TenantGateway where it claims it.
    ///
    /// Of several claimants the first wins, unless the owner of a wildcard over the name stands before it, in the same
    /// TenantGateway: who has `*.b.example.org` there has `x.b.example.org` as well.
    pub(super) fn settle(&mut self, name: &Name, dirty: &mut Dirty) {
        self.counters.hosts += 1;
        let tenants: Vec<ObjectName> = self.tenants_of.of(name).cloned().collect();
        let mut bids: Vec<(Standing, ObjectName)> = Vec::new();
        for tenant in &tenants {
            let host = Host::new(tenant, &name.0);
            let over: Vec<&Standing> = self.covering(&host).collect();
            let held = self.hosts.get(&host).into_iter().flat_map(|held| &held.bids);
            let holds = |standing: &Standing| {
                over.iter().all(|over| over.rank.namespace() == standing.rank.namespace() || standing < over)
            };
            let standings = held.map(|rank| self.stand(name, rank)).filter(holds);
            bids.extend(standings.map(|standing| (standing, tenant.clone())));
        }
        bids.sort();
        let winner: Option<Arc<str>> = bids.first().map(|(standing, _)| standing.rank.namespace().clone());
        let winner = self.record(name, winner, dirty);
        for tenant in tenants {
            let host = Host::new(&tenant, &name.0);
            let first = bids
                .iter()
                .find(|(standing, through)| *through == tenant && Some(standing.rank.namespace()) == winner.as_ref());
            let owner = first.map(|(standing, _)| standing.clone());
            let Some(held) = self.hosts.get_mut(&host) else { continue };
            let changed = held.owner != owner;
            held.owner = owner;
            if held.bids.is_empty() {
                self.tenants_of.remove(name, &tenant);
            }
            if changed && name.0.is_wildcard() {
                // Whatever lies below it may have to yield, or be free again.
                self.touch_below(&host, dirty);
            }
            dirty.hosts.insert(host);
        }
    }

    /// Marks what is claimed below a wildcard.
    pub(super) fn touch_below(&self, wildcard: &Host, dirty: &mut Dirty) {
        for (host, _) in self.below(wildcard) {
            dirty.touch(host.clone());
        }
    }
}
