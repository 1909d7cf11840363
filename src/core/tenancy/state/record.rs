//! The record of the first claimants of hostnames, if the order of arrival counts.
//!
//! A single program records its own decisions. Several replicas see changes in different orders:
//! for them a name has no owner until the lease holder has recorded one, and all of them follow the
//! record.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dirty::Dirty;
use super::hosts::Priority;
use crate::rule::claim::Rank;
use crate::settings::Settings;
use gatewright_objects::domain_order::ByDomain;
use gatewright_objects::model::{Hostname, HostnameError, ObjectName};
use gatewright_objects::ownership::{Ledger, Ownable, OwnerRecord, Recording};

/// The namespace that has a hostname by its claim.
pub(crate) struct Winner {
    pub(crate) namespace: Arc<str>,
    /// True if it claims it where records count.
    pub(crate) is_recorded: bool,
    /// True if the recorded owner still claims it.
    pub(crate) holder_asks: bool,
}

/// The ledger of hostnames among tenants, with the owners of hostnames on shared addresses, which
/// the translation decides.
pub(crate) struct Records {
    /// The writer of the record; `None` if records do not count.
    recording: Option<Recording>,
    /// True if records count at Gateways of other data planes.
    elsewhere: bool,
    ledger: Ledger,
    /// The time, in seconds since the epoch.
    clock: u64,
    /// The start of records of this call: the time in milliseconds, or more than in any earlier
    /// call.
    now: u64,
}

impl Records {
    /// An empty record.
    pub(crate) fn new(settings: &Settings) -> Self {
        let recording = settings.recording.unwrap_or(Recording::ThisProcess);
        let bytes = settings.limits.namespace.record_bytes();
        Self {
            recording: settings.recording,
            elsewhere: settings.recorded_elsewhere,
            ledger: Ledger::new(recording, settings.hold, bytes),
            clock: 0,
            now: 0,
        }
    }

    /// Begins another call: later claims count as later.
    pub(crate) fn begin(&mut self) {
        self.now = self.now.saturating_add(1);
    }

    /// The record, and its proposals.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The recorded owner of a hostname among tenants.
    pub(crate) fn holder(&self, name: &ByDomain) -> Option<&OwnerRecord> {
        self.ledger.owner(&Ownable::Tenant(name.0.clone()))
    }

    /// True if a name has a proposed owner.
    pub(crate) fn is_undecided(&self, hostname: &Hostname) -> bool {
        let proposed = self.ledger.proposal(&Ownable::Tenant(hostname.clone()));
        let proposed = proposed.flatten();
        proposed.is_some_and(|record| record.released.is_none())
    }

    /// True if a name is reserved for its former owner.
    pub(crate) fn is_given_up(&self, hostname: &Hostname) -> bool {
        let record = self.ledger.decided(&Ownable::Tenant(hostname.clone()));
        record.is_some_and(|record| record.released.is_some())
    }

    /// Sets the time.
    pub(crate) fn set_time(&mut self, now: u64, dirty: &mut Dirty) {
        self.clock = now;
        self.now = self.now.max(now.saturating_mul(1000));
        dirty.touch_items(self.ledger.expired(now));
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
        self.ledger.allow(namespace, limits.record_bytes());
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
        let what = Ownable::Tenant(hostname.clone());
        // Of what is not recorded yet, the name decides.
        self.ledger.count(&what, namespace, there.then_some(0));
        self.touch_turned(dirty);
    }

    fn touch_turned(&mut self, dirty: &mut Dirty) {
        dirty.touch_items(&self.ledger.take_turned());
    }

    /// True if a namespace may have a name by its quota.
    pub(crate) fn is_within_quota(&self, name: &ByDomain, namespace: &Arc<str>) -> bool {
        let what = Ownable::Tenant(name.0.clone());
        self.ledger.is_within_quota(&what, namespace)
    }

    /// Why a namespace may not have a name that it claims, if that is its quota.
    pub(crate) fn beyond_quota(&self, name: &Hostname, namespace: &Arc<str>) -> Option<String> {
        let what = Ownable::Tenant(name.clone());
        self.ledger.beyond_quota(&what, namespace)
    }

    /// Applies a change of the record.
    pub(crate) fn take(&mut self, what: Ownable, owner: Option<OwnerRecord>, dirty: &mut Dirty) {
        let is_ours = matches!(what, Ownable::Tenant(_));
        if owner.is_none() && is_ours && self.recording == Some(Recording::ThisProcess) {
            // A record that is removed by request must be removed from the written record too.
            dirty.record(what.clone(), None);
        }
        let before = self.ledger.take(&what, owner);
        self.now = self.ledger.next_start(self.now);
        self.touch_turned(dirty);
        if before.as_ref() != self.ledger.owner(&what) {
            dirty.touch_items([&what]);
        }
    }

    /// True if a TenantGateway's namespace owns a hostname on shared addresses, or the most
    /// specific owned wildcard over it.
    pub(crate) fn owns(&self, tenant: &ObjectName, hostname: &Hostname) -> bool {
        let mut names = std::iter::once(hostname.clone()).chain(hostname.covering());
        names
            .find_map(|name| self.ledger.owner(&Ownable::Hostname(name)))
            .is_some_and(|owner| owner.namespace == tenant.namespace)
    }

    /// True if records count at a TenantGateway, whose Gateway is ours (`own`) or of another data
    /// plane.
    pub(crate) fn count_at(&self, own: bool) -> bool {
        self.recording.is_some() && (own || self.elsewhere)
    }

    /// The priority of a claimant: the recorded owner first, where records count (`counts`); then
    /// by rank. A name without an earlier owner counts as claimed now.
    pub(crate) fn priority_of(&self, name: &ByDomain, rank: &Rank, counts: bool) -> Priority {
        let record = self
            .holder(name)
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
    ) -> Option<OwnerRecord> {
        self.recording?;
        let what = Ownable::Tenant(name.0.clone());
        let reserved = self.ledger.reservation(&what, self.clock)?;
        (!asks(&reserved.namespace)).then_some(reserved)
    }

    /// Records the first claimant, or proposes it; `reserved` is the record of a name without a
    /// winner. `is_frozen` returns whether a namespace keeps it regardless of the winner. Returns
    /// the present owner.
    pub(crate) fn keep(
        &mut self,
        name: &ByDomain,
        winner: Option<Winner>,
        reserved: Option<OwnerRecord>,
        is_frozen: impl FnOnce(&Arc<str>) -> bool,
        dirty: &mut Dirty,
    ) -> Option<Arc<str>> {
        let Some(recording) = self.recording else {
            return winner.map(|winner| winner.namespace);
        };
        let held = self.holder(name).cloned();
        let holder = held.as_ref().map(|held| held.namespace.clone());
        let is_kept =
            recording == Recording::OtherProcess && holder.as_ref().is_some_and(is_frozen);
        let record = match &winner {
            _ if is_kept => held,
            Some(winner) if winner.is_recorded => Some(OwnerRecord::new(winner.namespace.clone())),
            // The record of a namespace that claims it too counts again once its Gateway is ours.
            Some(winner) => held.filter(|_| winner.holder_asks),
            None => reserved,
        };
        let what = Ownable::Tenant(name.0.clone());
        if let Some(change) = self.ledger.record(&what, record, self.now) {
            self.touch_turned(dirty);
            dirty.record(what, change);
        }
        let is_recorded = winner.as_ref().is_none_or(|winner| winner.is_recorded);
        let winner = winner.map(|winner| winner.namespace);
        match recording {
            // Nobody has it before that is recorded.
            Recording::OtherProcess if is_recorded && holder != winner => None,
            Recording::OtherProcess | Recording::ThisProcess => winner,
        }
    }

    /// Marks names whose record may have to change although they have and had no bids.
    pub(crate) fn touch(&self, hostnames: &[Result<Hostname, HostnameError>], dirty: &mut Dirty) {
        if self.recording == Some(Recording::OtherProcess) {
            let names = hostnames.iter().flatten().cloned().map(ByDomain);
            dirty
                .names
                .extend(names.filter(|name| self.holder(name).is_some()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confluence::{gone, http, key, name, namespace, tenant};
    use crate::*;
    use gatewright_objects::cost;
    use gatewright_objects::limits::Limits;
    use gatewright_objects::model::Reason;
    use serde_json::json;

    /// Settings by which records count at the default class, of another data plane.
    fn recorded(recording: Recording, hold: u64) -> Settings {
        Settings {
            recording: Some(recording),
            hold,
            recorded_elsewhere: true,
            ..Settings::default()
        }
    }

    /// Two namespaces at one Gateway, in a cluster.
    fn engine() -> Tenancy {
        engine_with(recorded(Recording::OtherProcess, 0))
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

    fn item(hostname: Hostname) -> Ownable {
        Ownable::Tenant(hostname)
    }

    /// Records the proposals, as the keeper of the record does.
    fn keep(engine: &mut Tenancy) -> usize {
        let proposed: Vec<_> = engine
            .ledger()
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
        assert!(engine.ledger().records().is_empty());
    }

    #[test]
    fn a_namespace_has_as_many_names_as_its_quota_of_the_record() {
        // Hostnames of equal length, as many as fit into a KiB.
        let each = cost::of_tenant(&host(), "tenant-c");
        let most = usize::try_from(1024 / each).expect("a few");
        let names: Vec<String> = ('a'..='w').map(|name| format!("{name}.a.org")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).take(most).collect();
        let mut limits = Limits::NONE;
        limits.namespace.record_kib = 1;
        let mut engine = self::engine_with(Settings {
            limits,
            ..recorded(Recording::OtherProcess, 0)
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
        assert_eq!(engine.ledger().used_by(&"tenant-c".into()), used);
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
        let record = OwnerRecord {
            since: 7,
            ..OwnerRecord::new("tenant-c".into())
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
                .chain([Change::Fact(Fact::Recorded(
                    item(host()),
                    Some(record.clone()),
                ))])
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
        other.apply(vec![Change::Fact(Fact::Recorded(
            item(host()),
            Some(record),
        ))]);
        assert_eq!(keep(&mut other), 0, "nothing is recorded anew");
        assert_eq!(
            owner(&other).as_deref(),
            Some("tenant-c"),
            "the recorded owner is the owner here as well"
        );
    }

    #[test]
    fn a_broken_edit_frees_no_name_after_a_restart() {
        let record = OwnerRecord {
            since: 7,
            ..OwnerRecord::new("tenant-c".into())
        };
        let broken = tenant("tenant-a", json!({"apex": ""}));
        let mut engine = engine();
        engine.apply(vec![gone(broken.clone())]);
        engine.apply(vec![
            broken,
            http("tenant-c", "web", &["x.a.org"]),
            http("tenant-b", "web", &["x.a.org"]),
            Change::Fact(Fact::Recorded(item(host()), Some(record))),
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
        for recording in [Recording::ThisProcess, Recording::OtherProcess] {
            let mut engine = Tenancy::new(Settings {
                recording: Some(recording),
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
            fn settled(engine: &mut Tenancy, changes: Vec<Change>, recording: Recording) -> String {
                engine.apply(changes);
                while recording == Recording::OtherProcess && keep(engine) > 0 {}
                owner(engine).unwrap_or_default()
            }
            fn claim(namespace: &str) -> Change {
                http(namespace, "web", &["x.a.org"])
            }
            assert_eq!(
                settled(&mut engine, vec![claim("tenant-c")], recording),
                "tenant-c",
                "{recording:?}"
            );
            assert_eq!(
                settled(&mut engine, vec![claim("tenant-b")], recording),
                "tenant-b",
                "{recording:?}: the smaller name"
            );
            assert!(
                engine.ledger().records().is_empty(),
                "{recording:?}: nothing is recorded for another data plane"
            );
            assert_eq!(
                settled(&mut engine, vec![class(true)], recording),
                "tenant-b",
                "{recording:?}: they appear together at ours"
            );
            assert_eq!(
                settled(&mut engine, vec![claim("cozy-x")], recording),
                "tenant-b",
                "{recording:?}: it has the name by record"
            );
            assert_eq!(
                settled(&mut engine, vec![claim("tenant-a")], recording),
                "tenant-b",
                "{recording:?}: it has the name by record"
            );
            assert_eq!(
                settled(&mut engine, vec![class(false)], recording),
                "cozy-x",
                "{recording:?}: the page's order"
            );
            assert_eq!(
                settled(&mut engine, vec![class(true)], recording),
                "tenant-b",
                "{recording:?}: its record was kept"
            );
            settled(&mut engine, vec![class(false)], recording);
            assert_eq!(
                settled(&mut engine, vec![gone(claim("tenant-b"))], recording),
                "cozy-x",
                "{recording:?}"
            );
            assert!(
                engine.ledger().records().is_empty(),
                "{recording:?}: a namespace that claims nothing has no record"
            );
        }
    }

    #[test]
    fn of_claims_that_appear_together_the_page_s_order_decides_once() {
        let mut engine = Tenancy::new(Settings {
            recording: Some(Recording::ThisProcess),
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
    fn with_hold(recording: Recording) -> Tenancy {
        let mut engine = Tenancy::new(recorded(recording, 100));
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
        for recording in [Recording::ThisProcess, Recording::OtherProcess] {
            let mut engine = with_hold(recording);
            engine.apply(vec![at(1000), claim_granted("tenant-c")]);
            keep(&mut engine);
            assert_eq!(
                owner_of(&engine, &granted()).as_deref(),
                Some("tenant-c"),
                "{recording:?}"
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
                "{recording:?}: somebody else's"
            );
            assert_eq!(
                engine.ledger().records()[&item(granted())].released,
                Some(1010)
            );
            assert!(
                verdict(&engine, "tenant-a").contains("tenancy.hostnameHoldHours"),
                "{}",
                verdict(&engine, "tenant-a")
            );
            assert_eq!(engine.ledger().next_expiry(), Some(1110));
            engine.apply(vec![at(1020), claim_granted("tenant-d")]);
            while keep(&mut engine) > 0 {}
            assert_eq!(
                owner_of(&engine, &granted()).as_deref(),
                Some("tenant-d"),
                "{recording:?}: of the same owner"
            );
            assert_eq!(engine.ledger().next_expiry(), None);
            engine.apply(vec![at(1030), gone(claim_granted("tenant-d"))]);
            while keep(&mut engine) > 0 {}
            engine.apply(vec![at(1129)]);
            while keep(&mut engine) > 0 {}
            assert_eq!(owner_of(&engine, &granted()), None, "{recording:?}");
            engine.apply(vec![at(1130)]);
            while keep(&mut engine) > 0 {}
            assert_eq!(
                owner_of(&engine, &granted()).as_deref(),
                Some("tenant-a"),
                "{recording:?}: it was long enough"
            );
        }
    }

    #[test]
    fn a_returning_namespace_gets_its_reserved_hostname_and_an_operator_may_release_it() {
        let mut engine = with_hold(Recording::ThisProcess);
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
        assert_eq!(engine.ledger().next_expiry(), None, "nothing is reserved");
        engine.apply(vec![at(1030), gone(claim_granted("tenant-c"))]);
        assert_eq!(owner_of(&engine, &granted()), None, "nobody owns the name");
        assert_eq!(
            engine.ledger().next_expiry(),
            Some(1130),
            "it is reserved for the hold time"
        );
        engine.apply(vec![Change::Fact(Fact::Recorded(item(granted()), None))]);
        assert_eq!(
            owner_of(&engine, &granted()).as_deref(),
            Some("tenant-a"),
            "the next one owns the released name"
        );
        assert_eq!(engine.ledger().next_expiry(), None, "nothing is reserved");
    }
}
