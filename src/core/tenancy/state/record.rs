//! The record of the first claimants of hostnames, if the order of arrival counts.
//!
//! A single program records its own decisions. Several replicas see changes in different orders:
//! for them a name has no owner until the lease holder has recorded one, and all of them follow the
//! record.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dirty::Dirty;
use super::hosts::Priority;
use crate::delta::Record;
use crate::rule::claim::Rank;
use crate::settings::{ClaimPrecedence, Settings};
use gatewright_objects::cost;
use gatewright_objects::domain_order::ByDomain;
use gatewright_objects::model::{Hostname, HostnameError, ObjectName};
use gatewright_objects::record_quota::{RecordClaim, RecordQuota};
use gatewright_objects::reservations::Reservations;

/// The namespace that has a hostname by its claim.
pub(crate) struct Winner {
    pub(crate) namespace: Arc<str>,
    /// True if it claims it where records count.
    pub(crate) is_recorded: bool,
    /// True if the recorded owner still claims it.
    pub(crate) holder_asks: bool,
}

/// Records, and proposed changes of them.
pub(crate) struct Records {
    claims: ClaimPrecedence,
    /// True if records count at Gateways of other data planes.
    elsewhere: bool,
    records: BTreeMap<Hostname, Record>,
    /// The records of released names that stay reserved.
    reserved: Reservations<Hostname>,
    /// The time, in seconds since the epoch.
    clock: u64,
    /// The namespace that owns a hostname on shared addresses.
    owned: BTreeMap<Hostname, Arc<str>>,
    /// Proposals, if another process keeps the record.
    proposed: BTreeMap<Hostname, Option<Record>>,
    /// The hostnames that each namespace claims where records count: it may have as many as fit
    /// its quota.
    quota: RecordQuota<Hostname>,
    /// The number of calls, for the order of records.
    now: u64,
}

impl Records {
    /// An empty record.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            claims: settings.claims,
            elsewhere: settings.recorded_elsewhere,
            records: BTreeMap::new(),
            reserved: Reservations::new(settings.hold),
            clock: 0,
            owned: BTreeMap::new(),
            proposed: BTreeMap::new(),
            quota: RecordQuota::new(settings.limits.namespace.record_bytes()),
            now: 0,
        }
    }

    /// Begins another call: later claims count as later.
    pub(crate) fn begin(&mut self) {
        self.now += 1;
    }

    /// Records to write or to remove, for the keeper of the record.
    pub(crate) fn proposals(&self) -> impl Iterator<Item = (&Hostname, Option<&Record>)> {
        self.proposed
            .iter()
            .map(|(hostname, record)| (hostname, record.as_ref()))
    }

    /// The proposed change of a hostname's record; `None` if the record is right.
    pub(crate) fn proposal(&self, hostname: &Hostname) -> Option<Option<&Record>> {
        self.proposed.get(hostname).map(Option::as_ref)
    }

    /// All records.
    pub(crate) fn all(&self) -> &BTreeMap<Hostname, Record> {
        &self.records
    }

    /// The end of the next reservation, in seconds since the epoch: then there may be work without
    /// any other change than the time.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        self.reserved.next_expiry()
    }

    /// True if a name has a proposed owner.
    pub(crate) fn is_undecided(&self, hostname: &Hostname) -> bool {
        let proposed = self.proposed.get(hostname).and_then(Option::as_ref);
        proposed.is_some_and(|record| record.released.is_none())
    }

    /// True if a name is reserved for its former owner.
    pub(crate) fn is_given_up(&self, hostname: &Hostname) -> bool {
        let record = self
            .proposed
            .get(hostname)
            .map_or_else(|| self.records.get(hostname), Option::as_ref);
        record.is_some_and(|record| record.released.is_some())
    }

    /// Sets the time.
    pub(crate) fn set_time(&mut self, now: u64, dirty: &mut Dirty) {
        self.clock = now;
        dirty
            .names
            .extend(self.reserved.expired(now).cloned().map(ByDomain));
    }

    /// Sets how many bytes a namespace with these labels may have.
    pub(crate) fn allow(
        &mut self,
        namespace: &Arc<str>,
        labels: &BTreeMap<String, String>,
        settings: &Settings,
        dirty: &mut Dirty,
    ) {
        let limits = settings.limits.of_namespace(namespace, labels);
        self.quota.allow(namespace, limits.record_bytes());
        self.touch_turned(dirty);
    }

    /// Counts a hostname for a namespace that claims it where records count, or claims it no more.
    pub(crate) fn count(
        &mut self,
        hostname: &Hostname,
        namespace: &Arc<str>,
        there: bool,
        dirty: &mut Dirty,
    ) {
        self.set_claim(hostname, namespace, there);
        self.touch_turned(dirty);
    }

    fn set_claim(&mut self, hostname: &Hostname, namespace: &Arc<str>, there: bool) {
        let own = self.records.get(hostname);
        let own = own.filter(|record| record.namespace == *namespace);
        let claim = there.then(|| RecordClaim {
            bytes: cost::of_claim(hostname, namespace),
            since: own.map(|record| record.since),
            created: 0,
        });
        self.quota.set(hostname, namespace, claim);
    }

    fn touch_turned(&mut self, dirty: &mut Dirty) {
        let turned = self.quota.take_turned();
        dirty.names.extend(turned.into_iter().map(ByDomain));
    }

    /// True if a namespace may have a name by its quota.
    pub(crate) fn is_within_quota(&self, name: &ByDomain, namespace: &Arc<str>) -> bool {
        self.quota.has(&name.0, namespace)
    }

    /// Why a namespace may not have a name that it claims, if that is its quota.
    pub(crate) fn beyond_quota(&self, name: &Hostname, namespace: &Arc<str>) -> Option<String> {
        (!self.quota.has(name, namespace)).then(|| self.quota.exceeded(namespace))
    }

    /// What each namespace takes of its quota, in bytes.
    pub(crate) fn quota_uses(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        let namespaces = self.quota.namespaces();
        namespaces.map(|namespace| (namespace, self.quota.used(namespace)))
    }

    fn set(&mut self, hostname: &Hostname, record: Option<Record>) -> Option<Record> {
        if let Some(Record {
            namespace,
            released: Some(released),
            ..
        }) = &record
        {
            self.reserved.add(hostname, namespace, *released);
        }
        let after = record.as_ref().and_then(|record| record.released);
        let before = match record {
            Some(record) => self.records.insert(hostname.clone(), record),
            None => self.records.remove(hostname),
        };
        if let Some(Record {
            namespace,
            released: Some(released),
            ..
        }) = &before
            && after != Some(*released)
        {
            self.reserved.remove(hostname, namespace, *released);
        }
        let now = self.records.get(hostname).cloned();
        for Record { namespace, .. } in before.iter().chain(&now) {
            if self.quota.is_claimed(hostname, namespace) {
                self.set_claim(hostname, namespace, true);
            }
        }
        before
    }

    /// Applies a change of the record.
    pub(crate) fn take(&mut self, hostname: Hostname, record: Option<Record>, dirty: &mut Dirty) {
        let before = match record {
            Some(record) => {
                self.now = self.now.max(record.since + 1);
                self.set(&hostname, Some(record))
            }
            None => self.set(&hostname, None),
        };
        self.touch_turned(dirty);
        if self.claims != ClaimPrecedence::Smallest
            && before.as_ref() != self.records.get(&hostname)
        {
            dirty.names.insert(ByDomain(hostname));
        }
    }

    /// Sets the namespace that owns a hostname on shared addresses.
    pub(crate) fn set_owner(
        &mut self,
        hostname: Hostname,
        owner: Option<Arc<str>>,
        dirty: &mut Dirty,
    ) {
        let before = match &owner {
            Some(owner) => self.owned.insert(hostname.clone(), owner.clone()),
            None => self.owned.remove(&hostname),
        };
        if before != owner {
            dirty.names.insert(ByDomain(hostname));
        }
    }

    /// True if a TenantGateway's namespace owns a hostname, or the most specific owned wildcard
    /// over it.
    pub(crate) fn owns(&self, tenant: &ObjectName, hostname: &Hostname) -> bool {
        let mut names = std::iter::once(hostname.clone()).chain(hostname.covering());
        names
            .find_map(|name| self.owned.get(&name))
            .is_some_and(|owner| *owner == tenant.namespace)
    }

    /// True if records count at a TenantGateway, whose Gateway is ours (`own`) or of another data
    /// plane.
    pub(crate) fn count_at(&self, own: bool) -> bool {
        self.claims != ClaimPrecedence::Smallest && (own || self.elsewhere)
    }

    /// The priority of a claimant: the recorded owner first, where records count (`counts`); then
    /// by rank. A name without an earlier owner counts as claimed now.
    pub(crate) fn priority_of(&self, name: &ByDomain, rank: &Rank, counts: bool) -> Priority {
        let record = self
            .records
            .get(&name.0)
            .filter(|record| counts && record.namespace == *rank.namespace());
        Priority {
            since: record.map_or(self.now, |record| record.since),
            rank: rank.clone(),
        }
    }

    /// The reservation of a name that its namespace claims no more, as long as it lasts. `asks`
    /// returns whether a namespace claims it.
    pub(crate) fn reservation(
        &self,
        name: &ByDomain,
        asks: impl Fn(&Arc<str>) -> bool,
    ) -> Option<Record> {
        let held = self
            .records
            .get(&name.0)
            .filter(|_| self.claims != ClaimPrecedence::Smallest)?;
        let released = self
            .reserved
            .since(&held.namespace, held.released, self.clock)?;
        (!asks(&held.namespace)).then(|| Record {
            released: Some(released),
            ..held.clone()
        })
    }

    /// Records the first claimant, or proposes it; `reserved` is the record of a name without a
    /// winner. `is_frozen` returns whether a namespace keeps it regardless of the winner. Returns
    /// the present owner.
    pub(crate) fn keep(
        &mut self,
        name: &ByDomain,
        winner: Option<Winner>,
        reserved: Option<Record>,
        is_frozen: impl FnOnce(&Arc<str>) -> bool,
        dirty: &mut Dirty,
    ) -> Option<Arc<str>> {
        let held = self.records.get(&name.0);
        let holder = held.map(|record| record.namespace.clone());
        let is_recorded = winner.as_ref().is_none_or(|winner| winner.is_recorded);
        let record = match &winner {
            Some(Winner {
                namespace,
                is_recorded: true,
                ..
            }) => {
                let since = held
                    .filter(|held| held.namespace == *namespace)
                    .map_or(self.now, |held| held.since);
                Some(Record {
                    namespace: namespace.clone(),
                    since,
                    released: None,
                })
            }
            // The record of a namespace that claims it too counts again once its Gateway is ours.
            Some(Winner {
                is_recorded: false,
                holder_asks,
                ..
            }) => held.filter(|_| *holder_asks).cloned(),
            None => reserved,
        };
        let winner = winner.map(|winner| winner.namespace);
        let is_new = held != record.as_ref();
        match self.claims {
            ClaimPrecedence::Smallest => winner,
            ClaimPrecedence::FirstCome => {
                if is_new {
                    self.set(&name.0, record.clone());
                    self.touch_turned(dirty);
                    dirty.record(name.0.clone(), record);
                }
                winner
            }
            ClaimPrecedence::Recorded => {
                let kept = holder.as_ref().is_some_and(is_frozen);
                let wanted = (is_new && !kept).then_some(record);
                self.propose(name, wanted, dirty);
                if holder == winner || !is_recorded {
                    winner
                } else {
                    None
                }
            }
        }
    }

    fn propose(&mut self, name: &ByDomain, wanted: Option<Option<Record>>, dirty: &mut Dirty) {
        match (self.proposed.get(&name.0), wanted) {
            (Some(there), Some(record)) if same(there, &record) => {}
            (_, Some(record)) => {
                dirty.record(name.0.clone(), record.clone());
                self.proposed.insert(name.0.clone(), record);
            }
            (_, None) => {
                self.proposed.remove(&name.0);
            }
        }
    }

    /// Marks names whose record may have to change although they have and had no bids.
    pub(crate) fn touch(&self, hostnames: &[Result<Hostname, HostnameError>], dirty: &mut Dirty) {
        if self.claims == ClaimPrecedence::Recorded {
            let recorded = hostnames
                .iter()
                .flatten()
                .filter(|hostname| self.records.contains_key(*hostname));
            dirty
                .names
                .extend(recorded.map(|hostname| ByDomain(hostname.clone())));
        }
    }
}

fn same(one: &Option<Record>, other: &Option<Record>) -> bool {
    fn seen(record: &Record) -> (Arc<str>, bool) {
        (record.namespace.clone(), record.released.is_some())
    }
    one.as_ref().map(seen) == other.as_ref().map(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confluence::{gone, http, key, name, namespace, tenant};
    use crate::*;
    use gatewright_objects::limits::Limits;
    use gatewright_objects::model::Reason;
    use serde_json::json;

    /// Settings by which records count at the default class, of another data plane.
    fn recorded(claims: ClaimPrecedence, hold: u64) -> Settings {
        Settings {
            claims,
            hold,
            recorded_elsewhere: true,
            ..Settings::default()
        }
    }

    /// Two namespaces at one Gateway, in a cluster.
    fn engine() -> Tenancy {
        engine_with(recorded(ClaimPrecedence::Recorded, 0))
    }

    fn engine_with(settings: Settings) -> Tenancy {
        let mut engine = Tenancy::new(settings);
        let spaces = [
            ("tenant-a", "a.org"),
            ("tenant-b", "a.org"),
            ("tenant-c", "a.org"),
        ];
        engine.apply(
            spaces
                .iter()
                .map(|(name, host)| namespace(name, "tenant-a", host))
                .collect(),
        );
        engine.apply(vec![tenant("tenant-a", json!({"apex": "a.org"}))]);
        engine
    }

    fn host() -> Hostname {
        Hostname::parse("x.a.org").expect("a hostname")
    }

    /// Records the proposals, as the keeper of the record does.
    fn keep(engine: &mut Tenancy) -> usize {
        let proposed: Vec<_> = engine
            .proposals()
            .map(|(name, record)| (name.clone(), record.cloned()))
            .collect();
        let count = proposed.len();
        engine.apply(
            proposed
                .into_iter()
                .map(|(name, record)| Change::Fact(Fact::Recorded(name, record)))
                .collect(),
        );
        count
    }

    fn owner(engine: &Tenancy) -> Option<String> {
        owner_of(engine, &host())
    }

    fn owner_of(engine: &Tenancy, hostname: &Hostname) -> Option<String> {
        engine
            .owner(&name(), hostname)
            .map(|key| key.name.namespace.to_string())
    }

    /// A hostname that several namespaces are granted.
    fn granted() -> Hostname {
        Hostname::parse("w.c.a.org").expect("a hostname")
    }

    fn claim_granted(namespace: &str) -> Change {
        http(namespace, "web", &["w.c.a.org"])
    }

    #[test]
    fn a_name_is_nobodys_until_it_is_recorded_and_then_the_first_keeps_it() {
        let mut engine = engine();
        engine.apply(vec![http("tenant-c", "web", &["x.a.org"])]);
        assert_eq!(owner(&engine), None);
        assert_eq!(
            engine.verdict(&key("tenant-c", "web"), &name()),
            None,
            "nothing is told before it is decided"
        );
        assert_eq!(keep(&mut engine), 1, "the claim is recorded");
        assert_eq!(
            owner(&engine).as_deref(),
            Some("tenant-c"),
            "the claimant owns the name"
        );
        engine.apply(vec![http("tenant-b", "web", &["x.a.org"])]);
        assert_eq!(keep(&mut engine), 0, "a smaller name comes too late");
        assert_eq!(
            owner(&engine).as_deref(),
            Some("tenant-c"),
            "a smaller name comes too late"
        );
        let late = engine
            .verdict(&key("tenant-b", "web"), &name())
            .expect("it is told");
        assert!(!late.is_accepted());
        engine.apply(vec![gone(http("tenant-c", "web", &[]))]);
        assert_eq!(
            owner(&engine),
            None,
            "the next one's turn has to be recorded"
        );
        assert_eq!(keep(&mut engine), 1, "the new owner is recorded");
        assert_eq!(
            owner(&engine).as_deref(),
            Some("tenant-b"),
            "the heir owns the name"
        );
        engine.apply(vec![gone(http("tenant-b", "web", &[]))]);
        assert_eq!(keep(&mut engine), 1, "the change is recorded");
        assert_eq!(keep(&mut engine), 0, "it is recorded once");
        assert!(engine.records().is_empty());
    }

    #[test]
    fn a_namespace_has_as_many_names_as_its_quota_of_the_record() {
        // Hostnames of equal length, as many as fit into a KiB.
        let each = cost::of_claim(&host(), "tenant-c");
        let most = usize::try_from(1024 / each).expect("a few");
        let names: Vec<String> = ('a'..='w').map(|name| format!("{name}.a.org")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).take(most).collect();
        let mut limits = Limits::NONE;
        limits.namespace.record_kib = 1;
        let mut engine = self::engine_with(Settings {
            limits,
            ..recorded(ClaimPrecedence::Recorded, 0)
        });
        let (some, rest) = names.split_at(most / 2);
        engine.apply(vec![
            http("tenant-c", "web", some),
            http("tenant-c", "rest", rest),
        ]);
        assert_eq!(keep(&mut engine), most, "as many as fit");
        engine.apply(vec![http("tenant-c", "more", &["x.a.org"])]);
        assert_eq!(keep(&mut engine), 0, "nothing more is proposed");
        let told = |engine: &Tenancy| {
            let verdict = engine.verdict(&key("tenant-c", "more"), &name());
            let verdict = verdict.expect("it is told");
            (verdict.reason, verdict.message.clone())
        };
        let (reason, text) = told(&engine);
        assert_eq!(reason, Reason::LimitReached);
        assert!(text.contains("limits.namespace.recordKib"), "{text}");
        let used = each * most as u64;
        assert_eq!(engine.record_uses().values().copied().max(), Some(used));
        engine.apply(vec![http("tenant-b", "web", &["x.a.org"])]);
        assert_eq!(
            keep(&mut engine),
            1,
            "another namespace has a quota of its own"
        );
        assert_eq!(told(&engine).0, Reason::HostnameConflict, "it has an owner");
        engine.apply(vec![gone(http("tenant-b", "web", &[]))]);
        engine.apply(vec![http("tenant-c", "web", &some[1..])]);
        keep(&mut engine);
        assert_eq!(owner(&engine).as_deref(), Some("tenant-c"), "there is room");
    }

    #[test]
    fn another_replica_goes_by_the_record_whatever_it_sees_first() {
        let mut engine = engine();
        let record = Record {
            namespace: "tenant-c".into(),
            since: 7,
            released: None,
        };
        fn routes() -> [Change; 2] {
            [
                http("tenant-b", "web", &["x.a.org"]),
                http("tenant-c", "web", &["x.a.org"]),
            ]
        }
        engine.apply(
            routes()
                .into_iter()
                .chain([Change::Fact(Fact::Recorded(host(), Some(record.clone())))])
                .collect(),
        );
        assert_eq!(keep(&mut engine), 0, "nothing is recorded anew");
        assert_eq!(
            owner(&engine).as_deref(),
            Some("tenant-c"),
            "the recorded owner is the owner"
        );
        // The record comes last.
        let mut other = self::engine();
        other.apply(routes().to_vec());
        other.apply(vec![Change::Fact(Fact::Recorded(host(), Some(record)))]);
        assert_eq!(keep(&mut other), 0, "nothing is recorded anew");
        assert_eq!(
            owner(&other).as_deref(),
            Some("tenant-c"),
            "the recorded owner is the owner here as well"
        );
    }

    #[test]
    fn a_broken_edit_frees_no_name_after_a_restart() {
        let record = Record {
            namespace: "tenant-c".into(),
            since: 7,
            released: None,
        };
        let broken = tenant("tenant-a", json!({"apex": ""}));
        let mut engine = engine();
        engine.apply(vec![gone(broken.clone())]);
        engine.apply(vec![
            broken,
            http("tenant-c", "web", &["x.a.org"]),
            http("tenant-b", "web", &["x.a.org"]),
            Change::Fact(Fact::Recorded(host(), Some(record))),
        ]);
        assert_eq!(keep(&mut engine), 0);
        engine.apply(vec![tenant("tenant-a", json!({"apex": "a.org"}))]);
        assert_eq!(keep(&mut engine), 0, "nothing is recorded anew");
        assert_eq!(
            owner(&engine).as_deref(),
            Some("tenant-c"),
            "the recorded owner is the owner"
        );
        // A namespace that ceases to claim it meanwhile loses it.
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
        engine.apply(vec![
            gone(http("tenant-c", "web", &[])),
            http("tenant-b", "web", &["x.a.org"]),
        ]);
        while keep(&mut engine) > 0 {}
        assert_eq!(owner(&engine), None, "who has the wildcard was before");
    }

    /// Beside another data plane the page's order holds, at a Gateway of ours the record; both have
    /// one owner for each name.
    #[test]
    fn records_count_at_gateways_of_ours_alone() {
        for claims in [ClaimPrecedence::FirstCome, ClaimPrecedence::Recorded] {
            let mut engine = Tenancy::new(Settings {
                claims,
                ..Settings::default()
            });
            let spaces = ["tenant-a", "tenant-b", "tenant-c", "cozy-x"];
            engine.apply(
                spaces
                    .iter()
                    .map(|name| namespace(name, "tenant-a", "a.org"))
                    .collect(),
            );
            fn class(ours: bool) -> Change {
                Change::Class("cilium".into(), ours)
            }
            engine.apply(vec![tenant("tenant-a", json!({"apex": "a.org"}))]);
            fn settled(
                engine: &mut Tenancy,
                changes: Vec<Change>,
                claims: &ClaimPrecedence,
            ) -> String {
                engine.apply(changes);
                while *claims == ClaimPrecedence::Recorded && keep(engine) > 0 {}
                owner(engine).unwrap_or_default()
            }
            fn claim(namespace: &str) -> Change {
                http(namespace, "web", &["x.a.org"])
            }
            assert_eq!(
                settled(&mut engine, vec![claim("tenant-c")], &claims),
                "tenant-c",
                "{claims:?}"
            );
            assert_eq!(
                settled(&mut engine, vec![claim("tenant-b")], &claims),
                "tenant-b",
                "{claims:?}: the smaller name"
            );
            assert!(
                engine.records().is_empty(),
                "{claims:?}: nothing is recorded for another data plane"
            );
            assert_eq!(
                settled(&mut engine, vec![class(true)], &claims),
                "tenant-b",
                "{claims:?}: they appear together at ours"
            );
            assert_eq!(
                settled(&mut engine, vec![claim("cozy-x")], &claims),
                "tenant-b",
                "{claims:?}: it has the name by record"
            );
            assert_eq!(
                settled(&mut engine, vec![claim("tenant-a")], &claims),
                "tenant-b",
                "{claims:?}: it has the name by record"
            );
            assert_eq!(
                settled(&mut engine, vec![class(false)], &claims),
                "cozy-x",
                "{claims:?}: the page's order"
            );
            assert_eq!(
                settled(&mut engine, vec![class(true)], &claims),
                "tenant-b",
                "{claims:?}: its record was kept"
            );
            settled(&mut engine, vec![class(false)], &claims);
            assert_eq!(
                settled(&mut engine, vec![gone(claim("tenant-b"))], &claims),
                "cozy-x",
                "{claims:?}"
            );
            assert!(
                engine.records().is_empty(),
                "{claims:?}: a namespace that claims nothing has no record"
            );
        }
    }

    #[test]
    fn of_claims_that_appear_together_the_page_s_order_decides_once() {
        let mut engine = Tenancy::new(Settings {
            claims: ClaimPrecedence::FirstCome,
            ..Settings::default()
        });
        let spaces = ["tenant-a", "tenant-b", "cozy-x"];
        engine.apply(
            spaces
                .iter()
                .map(|name| namespace(name, "tenant-a", "a.org"))
                .collect(),
        );
        engine.apply(vec![
            Change::Class("cilium".into(), true),
            tenant("tenant-a", json!({"apex": "a.org"})),
        ]);
        engine.apply(vec![
            http("tenant-a", "web", &["x.a.org"]),
            http("cozy-x", "web", &["x.a.org"]),
        ]);
        assert_eq!(owner(&engine).as_deref(), Some("cozy-x"));
        engine.apply(vec![
            gone(http("cozy-x", "web", &[])),
            http("tenant-b", "web", &["x.a.org"]),
        ]);
        assert_eq!(owner(&engine).as_deref(), Some("tenant-a"));
        engine.apply(vec![http("cozy-x", "web", &["x.a.org"])]);
        assert_eq!(owner(&engine).as_deref(), Some("tenant-a"));
    }

    /// Two namespaces of one owner, and two of others, with names that stay reserved for a while.
    fn with_hold(claims: ClaimPrecedence) -> Tenancy {
        let mut engine = Tenancy::new(recorded(claims, 100));
        let spaces = [
            ("tenant-a", "a.org"),
            ("tenant-b", "x.a.org"),
            ("tenant-c", "c.a.org"),
            ("tenant-d", "C.a.org"),
        ];
        engine.apply(
            spaces
                .iter()
                .map(|(name, host)| namespace(name, "tenant-a", host))
                .collect(),
        );
        engine.apply(vec![tenant("tenant-a", json!({"apex": "a.org"}))]);
        engine
    }

    fn at(seconds: u64) -> Change {
        Change::Fact(Fact::Time(seconds))
    }

    fn verdict(engine: &Tenancy, namespace: &str) -> String {
        engine
            .verdict(&key(namespace, "web"), &name())
            .map(|told| told.message.clone())
            .unwrap_or_default()
    }

    #[test]
    fn a_released_hostname_stays_reserved_for_its_owner() {
        for claims in [ClaimPrecedence::FirstCome, ClaimPrecedence::Recorded] {
            let mut engine = with_hold(claims);
            engine.apply(vec![at(1000), claim_granted("tenant-c")]);
            keep(&mut engine);
            assert_eq!(
                owner_of(&engine, &granted()).as_deref(),
                Some("tenant-c"),
                "{claims:?}"
            );
            engine.apply(vec![
                at(1010),
                gone(claim_granted("tenant-c")),
                claim_granted("tenant-a"),
            ]);
            while keep(&mut engine) > 0 {}
            assert_eq!(
                owner_of(&engine, &granted()),
                None,
                "{claims:?}: somebody else's"
            );
            assert_eq!(engine.records()[&granted()].released, Some(1010));
            assert!(
                verdict(&engine, "tenant-a").contains("tenancy.hostnameHoldHours"),
                "{}",
                verdict(&engine, "tenant-a")
            );
            assert_eq!(engine.next_expiry(), Some(1110));
            engine.apply(vec![at(1020), claim_granted("tenant-d")]);
            while keep(&mut engine) > 0 {}
            assert_eq!(
                owner_of(&engine, &granted()).as_deref(),
                Some("tenant-d"),
                "{claims:?}: of the same owner"
            );
            assert_eq!(engine.next_expiry(), None);
            engine.apply(vec![at(1030), gone(claim_granted("tenant-d"))]);
            while keep(&mut engine) > 0 {}
            engine.apply(vec![at(1129)]);
            while keep(&mut engine) > 0 {}
            assert_eq!(owner_of(&engine, &granted()), None, "{claims:?}");
            engine.apply(vec![at(1130)]);
            while keep(&mut engine) > 0 {}
            assert_eq!(
                owner_of(&engine, &granted()).as_deref(),
                Some("tenant-a"),
                "{claims:?}: it was long enough"
            );
        }
    }

    #[test]
    fn a_returning_namespace_gets_its_reserved_hostname_and_an_operator_may_release_it() {
        let mut engine = with_hold(ClaimPrecedence::FirstCome);
        engine.apply(vec![at(1000), claim_granted("tenant-c")]);
        engine.apply(vec![
            at(1010),
            gone(claim_granted("tenant-c")),
            claim_granted("tenant-a"),
        ]);
        assert_eq!(owner_of(&engine, &granted()), None);
        engine.apply(vec![at(1020), claim_granted("tenant-c")]);
        assert_eq!(
            owner_of(&engine, &granted()).as_deref(),
            Some("tenant-c"),
            "the owner has its name"
        );
        assert_eq!(engine.next_expiry(), None, "nothing is reserved");
        engine.apply(vec![at(1030), gone(claim_granted("tenant-c"))]);
        assert_eq!(owner_of(&engine, &granted()), None, "nobody owns the name");
        assert_eq!(
            engine.next_expiry(),
            Some(1130),
            "it is reserved for the hold time"
        );
        engine.apply(vec![Change::Fact(Fact::Recorded(granted(), None))]);
        assert_eq!(
            owner_of(&engine, &granted()).as_deref(),
            Some("tenant-a"),
            "the next one owns the released name"
        );
        assert_eq!(engine.next_expiry(), None, "nothing is reserved");
    }
}
