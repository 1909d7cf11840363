//! Who owns a hostname.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::claim::Rank;
use super::delta::{Precedence, Record};
use super::engine::{Dirty, Host, Name, Standing, Tenancy};
use crate::model::ObjectName;

impl Tenancy {
    /// Decides who owns a hostname: one namespace, through every TenantGateway where it claims it.
    ///
    /// Of several claimants the first wins, unless the owner of a wildcard over the name stands before it, in the same
    /// TenantGateway: who has `*.b.example.org` there has `x.b.example.org` as well.
    pub(super) fn settle(&mut self, name: &Name, dirty: &mut Dirty) {
        self.counters.hosts += 1;
        let mut bids: Vec<(Standing, ObjectName)> =
            self.pool.of(name).map(|(rank, tenant)| (self.stand(name, rank), tenant.clone())).collect();
        bids.sort();
        let holds = |(standing, tenant): &&(Standing, ObjectName)| {
            self.covering(tenant, &name.hostname)
                .all(|over| over.rank.namespace() == standing.rank.namespace() || *standing < *over)
        };
        let winner: Option<Arc<str>> = bids.iter().find(holds).map(|(standing, _)| standing.rank.namespace().clone());
        let mut owners: BTreeMap<ObjectName, Standing> = BTreeMap::new();
        for (standing, tenant) in bids.iter().filter(holds) {
            if Some(standing.rank.namespace()) == winner.as_ref() {
                owners.entry(tenant.clone()).or_insert_with(|| standing.clone());
            }
        }
        self.record(name, winner.as_ref(), dirty);
        for (_, tenant) in &bids {
            dirty.hosts.insert(Host::new(tenant, &name.hostname));
        }
        let before = self.owners.get(name).cloned().unwrap_or_default();
        if before == owners {
            return;
        }
        if name.hostname.is_wildcard() {
            // Whatever lies below it may have to yield, or be free again.
            for tenant in before.keys().chain(owners.keys()) {
                if before.get(tenant) != owners.get(tenant) {
                    self.touch_below(&Host::new(tenant, &name.hostname), dirty);
                }
            }
        }
        for tenant in before.keys() {
            dirty.hosts.insert(Host::new(tenant, &name.hostname));
        }
        if owners.is_empty() {
            self.owners.remove(name);
        } else {
            self.owners.insert(name.clone(), owners);
        }
    }

    /// Where a claimant stands. What nobody had before is claimed now.
    fn stand(&self, name: &Name, rank: &Rank) -> Standing {
        let since = match self.settings.claims {
            Precedence::Smallest => 0,
            Precedence::FirstCome => match self.records.get(&name.hostname) {
                Some(record) if record.namespace == *rank.namespace() => record.since,
                _ => self.now,
            },
        };
        Standing { since, rank: rank.clone() }
    }

    /// Keeps the record of who had it first.
    fn record(&mut self, name: &Name, winner: Option<&Arc<str>>, dirty: &mut Dirty) {
        if self.settings.claims == Precedence::Smallest {
            return;
        }
        let held = self.records.get(&name.hostname);
        if held.map(|record| &record.namespace) == winner {
            return;
        }
        let record = winner.map(|namespace| Record { namespace: namespace.clone(), since: self.now });
        match &record {
            Some(record) => drop(self.records.insert(name.hostname.clone(), record.clone())),
            None => drop(self.records.remove(&name.hostname)),
        }
        dirty.delta.records.insert(name.hostname.clone(), record);
    }

    /// Marks what is claimed below a wildcard.
    pub(super) fn touch_below(&self, wildcard: &Host, dirty: &mut Dirty) {
        let below = wildcard.reversed[..wildcard.reversed.len() - 2].to_owned();
        let all = self.bids.from(wildcard.clone()).map(|(other, _)| other);
        let all = all.take_while(|other| other.tenant == wildcard.tenant && other.reversed.starts_with(&below));
        for host in all.filter(|other| *other != wildcard) {
            dirty.touch(host.clone());
        }
    }
}
