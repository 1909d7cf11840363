//! Who had a hostname first, where that counts.
//!
//! One program alone records what it decides. Several replicas see changes in different orders: for them a name is nobody's
//! until the one who writes has recorded whose it is, and all of them go by the record.

use std::sync::Arc;

use super::claim::Rank;
use super::claims::ClaimId;
use super::delta::{Precedence, Record};
use super::engine::{Dirty, Standing, Tenancy};
use super::held::Name;
use crate::model::{Hostname, HostnameError, ObjectName};

impl Tenancy {
    /// What is to be recorded, or not any more, so that names have owners: for whoever keeps the record.
    pub fn proposals(&self) -> impl Iterator<Item = (&Hostname, Option<&Record>)> {
        self.proposed.iter().map(|(hostname, record)| (hostname, record.as_ref()))
    }

    /// What is to be recorded of a name; nothing where the record is right.
    pub fn proposal(&self, hostname: &Hostname) -> Option<Option<&Record>> {
        self.proposed.get(hostname).map(Option::as_ref)
    }

    /// Whether a name is about to have an owner.
    pub(super) fn is_undecided(&self, hostname: &Hostname) -> bool {
        !self.proposed.is_empty() && self.proposed.get(hostname).is_some_and(Option::is_some)
    }

    /// Takes in what is recorded.
    pub(super) fn take_record(&mut self, hostname: Hostname, record: Option<Record>, dirty: &mut Dirty) {
        let before = match record {
            Some(record) => {
                self.now = self.now.max(record.since + 1);
                self.records.insert(hostname.clone(), record)
            }
            None => self.records.remove(&hostname),
        };
        if self.settings.claims == Precedence::Recorded && before.as_ref() != self.records.get(&hostname) {
            dirty.names.insert(Name(hostname));
        }
    }

    /// Takes in which namespace owns a hostname on the addresses that Gateways share.
    pub(super) fn take_owner(&mut self, hostname: Hostname, owner: Option<Arc<str>>, dirty: &mut Dirty) {
        let before = match &owner {
            Some(owner) => self.owned.insert(hostname.clone(), owner.clone()),
            None => self.owned.remove(&hostname),
        };
        if before != owner {
            dirty.names.insert(Name(hostname));
        }
    }

    /// Whether a TenantGateway's namespace owns a hostname, or the most specific wildcard over it that somebody owns.
    pub(super) fn owns(&self, tenant: &ObjectName, hostname: &Hostname) -> bool {
        let mut names = std::iter::once(hostname.clone()).chain(hostname.covering());
        names.find_map(|name| self.owned.get(&name)).is_some_and(|owner| *owner == tenant.namespace)
    }

    /// Where a claimant stands. What nobody had before is claimed now.
    pub(super) fn stand(&self, name: &Name, rank: &Rank) -> Standing {
        let since = match self.settings.claims {
            Precedence::Smallest => 0,
            Precedence::FirstCome | Precedence::Recorded => match self.records.get(&name.0) {
                Some(record) if record.namespace == *rank.namespace() => record.since,
                _ => self.now,
            },
        };
        Standing { since, rank: rank.clone() }
    }

    /// Keeps the record of who had it first, or proposes one. Returns who has it by now.
    pub(super) fn record(&mut self, name: &Name, winner: Option<Arc<str>>, dirty: &mut Dirty) -> Option<Arc<str>> {
        let held = self.records.get(&name.0).map(|record| record.namespace.clone());
        match self.settings.claims {
            Precedence::Smallest => winner,
            Precedence::FirstCome => {
                if held != winner {
                    let record = winner.clone().map(|namespace| Record { namespace, since: self.now });
                    match &record {
                        Some(record) => drop(self.records.insert(name.0.clone(), record.clone())),
                        None => drop(self.records.remove(&name.0)),
                    }
                    dirty.delta.records.insert(name.0.clone(), record);
                }
                winner
            }
            Precedence::Recorded => {
                let kept = held.as_ref().is_some_and(|namespace| self.is_frozen(namespace, &name.0));
                let wanted = (held != winner && !kept).then(|| winner.clone());
                self.propose(name, wanted, dirty);
                if held == winner { winner } else { None }
            }
        }
    }

    fn propose(&mut self, name: &Name, wanted: Option<Option<Arc<str>>>, dirty: &mut Dirty) {
        let there = self.proposed.get(&name.0).map(|record| record.as_ref().map(|record| &record.namespace));
        if there == wanted.as_ref().map(Option::as_ref) {
            return;
        }
        match wanted {
            Some(winner) => {
                let record = winner.map(|namespace| Record { namespace, since: self.now });
                dirty.delta.records.insert(name.0.clone(), record.clone());
                self.proposed.insert(name.0.clone(), record);
            }
            None => drop(self.proposed.remove(&name.0)),
        }
    }

    /// Whether a namespace still claims a name, of a TenantGateway that cannot be carried out: it keeps it until that is
    /// mended.
    fn is_frozen(&self, namespace: &Arc<str>, hostname: &Hostname) -> bool {
        let asks = |id: ClaimId| {
            let claimant = self.claims.claiming(id);
            claimant.is_some_and(|claimant| claimant.hostnames.iter().flatten().any(|name| name == hostname))
        };
        self.claims.within(namespace).any(|id| self.is_as_found(&self.claims[id].tenant) && asks(id))
    }

    /// Marks names whose record may have to change although nobody bids, or bade, for them.
    pub(super) fn touch_records(&self, hostnames: &[Result<Hostname, HostnameError>], dirty: &mut Dirty) {
        if self.settings.claims == Precedence::Recorded {
            let recorded = hostnames.iter().flatten().filter(|hostname| self.records.contains_key(*hostname));
            dirty.names.extend(recorded.map(|hostname| Name(hostname.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::confluence::{gone, http, key, name, namespace, tenant};
    use super::super::*;
    use super::*;
    use serde_json::json;

    /// Two namespaces at one Gateway, in a cluster.
    fn engine() -> Tenancy {
        let mut engine = Tenancy::new(Settings { claims: Precedence::Recorded, ..Settings::default() });
        let spaces = [("tenant-a", "a.org"), ("tenant-b", "a.org"), ("tenant-c", "a.org")];
        engine.apply(spaces.iter().map(|(name, host)| namespace(name, "tenant-a", host)).collect());
        engine.apply(vec![tenant("tenant-a", json!({"apex": "a.org"}))]);
        engine
    }

    fn host() -> Hostname {
        Hostname::parse("x.a.org").expect("a hostname")
    }

    /// Records what is proposed, as whoever keeps the record does.
    fn keep(engine: &mut Tenancy) -> usize {
        let proposed: Vec<_> = engine.proposals().map(|(name, record)| (name.clone(), record.cloned())).collect();
        let count = proposed.len();
        engine.apply(proposed.into_iter().map(|(name, record)| Change::Recorded(name, record)).collect());
        count
    }

    fn owner(engine: &Tenancy) -> Option<String> {
        engine.owner(&name(), &host()).map(|key| key.name.namespace.to_string())
    }

    #[test]
    fn a_name_is_nobodys_until_it_is_recorded_and_then_the_first_keeps_it() {
        let mut engine = engine();
        engine.apply(vec![http("tenant-c", "web", &["x.a.org"])]);
        assert_eq!(owner(&engine), None);
        assert_eq!(engine.verdict(&key("tenant-c", "web"), &name()), None, "nothing is told before it is decided");
        assert_eq!((keep(&mut engine), owner(&engine).as_deref()), (1, Some("tenant-c")));
        engine.apply(vec![http("tenant-b", "web", &["x.a.org"])]);
        assert_eq!(
            (keep(&mut engine), owner(&engine).as_deref()),
            (0, Some("tenant-c")),
            "a smaller name comes too late"
        );
        let late = engine.verdict(&key("tenant-b", "web"), &name()).expect("it is told");
        assert!(!late.is_accepted());
        engine.apply(vec![gone(http("tenant-c", "web", &[]))]);
        assert_eq!(owner(&engine), None, "the next one's turn has to be recorded");
        assert_eq!((keep(&mut engine), owner(&engine).as_deref()), (1, Some("tenant-b")));
        engine.apply(vec![gone(http("tenant-b", "web", &[]))]);
        assert_eq!((keep(&mut engine), keep(&mut engine)), (1, 0));
        assert!(engine.records.is_empty());
    }

    #[test]
    fn another_replica_goes_by_the_record_whatever_it_sees_first() {
        let mut engine = engine();
        let record = Record { namespace: "tenant-c".into(), since: 7 };
        let routes = || [http("tenant-b", "web", &["x.a.org"]), http("tenant-c", "web", &["x.a.org"])];
        engine.apply(routes().into_iter().chain([Change::Recorded(host(), Some(record.clone()))]).collect());
        assert_eq!((keep(&mut engine), owner(&engine).as_deref()), (0, Some("tenant-c")));
        // The record comes last.
        let mut other = self::engine();
        other.apply(routes().to_vec());
        other.apply(vec![Change::Recorded(host(), Some(record))]);
        assert_eq!((keep(&mut other), owner(&other).as_deref()), (0, Some("tenant-c")));
    }

    #[test]
    fn a_broken_edit_frees_no_name_after_a_restart() {
        let record = Record { namespace: "tenant-c".into(), since: 7 };
        let broken = tenant("tenant-a", json!({"apex": ""}));
        let mut engine = engine();
        engine.apply(vec![gone(broken.clone())]);
        engine.apply(vec![
            broken,
            http("tenant-c", "web", &["x.a.org"]),
            http("tenant-b", "web", &["x.a.org"]),
            Change::Recorded(host(), Some(record)),
        ]);
        assert_eq!(keep(&mut engine), 0);
        engine.apply(vec![tenant("tenant-a", json!({"apex": "a.org"}))]);
        assert_eq!((keep(&mut engine), owner(&engine).as_deref()), (0, Some("tenant-c")));
        // Whoever stops claiming it meanwhile loses it.
        engine.apply(vec![tenant("tenant-a", json!({"apex": ""}))]);
        engine.apply(vec![gone(http("tenant-c", "web", &[]))]);
        engine.apply(vec![tenant("tenant-a", json!({"apex": "a.org"}))]);
        keep(&mut engine);
        assert_eq!(owner(&engine).as_deref(), Some("tenant-b"));
    }

    #[test]
    fn a_wildcard_that_came_later_leaves_names_to_those_who_had_them() {
        let mut engine = engine();
        engine.apply(vec![http("tenant-c", "web", &["x.a.org"])]);
        keep(&mut engine);
        engine.apply(vec![tenant(
            "tenant-a",
            json!({"apex": "a.org", "certMode": "existingSecret",
            "wildcardSecretRef": {"name": "w"}}),
        )]);
        engine.apply(vec![http("tenant-a", "wide", &["*.a.org"])]);
        while keep(&mut engine) > 0 {}
        assert_eq!(owner(&engine).as_deref(), Some("tenant-c"));
        engine.apply(vec![gone(http("tenant-c", "web", &[])), http("tenant-b", "web", &["x.a.org"])]);
        while keep(&mut engine) > 0 {}
        assert_eq!(owner(&engine), None, "who has the wildcard was before");
    }
}
