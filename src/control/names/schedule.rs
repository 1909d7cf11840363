//! The schedule of look-ups: which name is looked up when, and which addresses it has meanwhile.
//! Pure: time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acme::dns::{LookupError, NameAddresses};
use gatewright_core::external_name::{ADDRESSES, ExternalName, NameResolution};
use gatewright_core::model::ObjectName;

/// The shortest and the longest time between two look-ups of a name that succeed: its TTL.
const TTL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3600));
/// The time after which a look-up that failed is repeated: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// The time for which the last addresses are used while resolvers fail.
const STALE: Duration = Duration::from_secs(600);
/// The time for which they are used once resolvers say that there are none.
const DENIED: Duration = Duration::from_secs(30);
/// The largest number of look-ups at a time, of all namespaces and of each: a namespace whose name
/// servers do not answer keeps no others waiting.
const AT_ONCE: (usize, usize) = (64, 2);

/// The wanted names, by their Services.
#[derive(Default)]
pub(super) struct Schedule {
    names: BTreeMap<ObjectName, Entry>,
    due: BTreeSet<(Instant, ObjectName)>,
    /// The number of look-ups in progress, by namespace.
    running: BTreeMap<Arc<str>, usize>,
}

/// A wanted name.
struct Entry {
    name: ExternalName,
    /// The time of the next look-up; `None` while one is in progress.
    due: Option<Instant>,
    /// The addresses of the last look-up that succeeded.
    last: Arc<[IpAddr]>,
    /// The number of look-ups that failed since, and the time of the first one.
    failed: Option<(u32, Instant)>,
    looked_up: u64,
    /// The last announced resolution.
    told: Option<NameResolution>,
}

/// A look-up to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) service: ObjectName,
    pub(super) name: ExternalName,
}

impl Schedule {
    /// Sets or removes the wanted name of a Service. A new one is due at once.
    pub(super) fn want(&mut self, service: ObjectName, name: Option<ExternalName>, now: Instant) {
        let is_same = self.names.get(&service).map(|entry| &entry.name) == name.as_ref();
        if is_same {
            return;
        }
        if let Some(old) = self.names.remove(&service)
            && let Some(due) = old.due
        {
            self.due.remove(&(due, service.clone()));
        }
        if let Some(name) = name {
            self.due.insert((now, service.clone()));
            let entry = Entry {
                name,
                due: Some(now),
                last: Arc::default(),
                failed: None,
                looked_up: 0,
                told: None,
            };
            self.names.insert(service, entry);
        }
    }

    /// The time of the next look-up that may be made.
    pub(super) fn next(&self) -> Option<Instant> {
        self.first().map(|(at, _)| *at)
    }

    /// The next look-up that may be made.
    fn first(&self) -> Option<&(Instant, ObjectName)> {
        if self.in_progress() >= AT_ONCE.0 {
            return None;
        }
        self.due.iter().find(|(_, service)| self.may_run(service))
    }

    /// Removes and returns the look-ups that are due and may be made now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Question> {
        let mut questions = Vec::new();
        while let Some(first) = self.first().filter(|(at, _)| *at <= now).cloned() {
            self.due.remove(&first);
            let (_, service) = first;
            *self.running.entry(service.namespace.clone()).or_default() += 1;
            let entry = self.names.get_mut(&service).expect("due ones are wanted");
            entry.due = None;
            let name = entry.name.clone();
            questions.push(Question { service, name });
        }
        questions
    }

    /// Takes in the outcome of a look-up. Returns the resolution of the name, if it is another than
    /// before.
    pub(super) fn take(
        &mut self,
        question: &Question,
        outcome: Result<NameAddresses, LookupError>,
        now: Instant,
    ) -> Option<NameResolution> {
        let Question { service, name } = question;
        self.end(&service.namespace);
        let entry = self.names.get_mut(service)?;
        if entry.name != *name {
            return None;
        }
        if let Some(due) = entry.due.take() {
            self.due.remove(&(due, service.clone()));
        }
        entry.looked_up += 1;
        let (resolution, after) = entry.resolve(outcome, now);
        let due = now + after + jitter(service, entry.looked_up, after);
        entry.due = Some(due);
        self.due.insert((due, service.clone()));
        if entry.told.as_ref() == Some(&resolution) {
            return None;
        }
        entry.told = Some(resolution.clone());
        Some(resolution)
    }

    fn in_progress(&self) -> usize {
        self.running.values().sum()
    }

    fn may_run(&self, service: &ObjectName) -> bool {
        self.running
            .get(&service.namespace)
            .is_none_or(|running| *running < AT_ONCE.1)
    }

    fn end(&mut self, namespace: &Arc<str>) {
        if let Some(running) = self.running.get_mut(namespace) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(namespace);
            }
        }
    }
}

impl Entry {
    /// The addresses after a look-up, and the time until the next one.
    fn resolve(
        &mut self,
        outcome: Result<NameAddresses, LookupError>,
        now: Instant,
    ) -> (NameResolution, Duration) {
        let (problem, lasts) = match outcome {
            Ok(found) if !found.addresses.is_empty() => {
                self.last = sorted(found.addresses);
                self.failed = None;
                let resolution = self.resolution(None);
                return (resolution, found.ttl.clamp(TTL.0, TTL.1));
            }
            Ok(NameAddresses {
                is_missing: true, ..
            }) => (
                "the resolver answers NXDOMAIN: the name does not exist".to_owned(),
                DENIED,
            ),
            Ok(_) => ("the name has no A or AAAA records".to_owned(), DENIED),
            Err(error) => (error.to_string(), STALE),
        };
        let (failures, since) = self.failed.unwrap_or((0, now));
        self.failed = Some((failures.saturating_add(1), since));
        let left = (since + lasts).saturating_duration_since(now);
        if left.is_zero() {
            self.last = Arc::default();
        }
        let mut after = RETRY.0.saturating_mul(1 << failures.min(10)).min(RETRY.1);
        if self.last.is_empty() {
            return (self.resolution(Some(problem)), after);
        }
        after = after.min(left);
        let seconds = lasts.as_secs();
        let problem = format!(
            "{problem}; its last addresses are used for {seconds} s from the first such answer"
        );
        (self.resolution(Some(problem)), after)
    }

    fn resolution(&self, problem: Option<String>) -> NameResolution {
        NameResolution {
            name: self.name.clone(),
            addresses: self.last.clone(),
            problem: problem.map(Arc::from),
        }
    }
}

/// Addresses in order, each once, as many as are used.
fn sorted(addresses: Vec<IpAddr>) -> Arc<[IpAddr]> {
    let addresses: BTreeSet<IpAddr> = addresses
        .into_iter()
        .map(|address| address.to_canonical())
        .collect();
    addresses.into_iter().take(ADDRESSES).collect()
}

/// Up to a sixteenth of a time more, and at most ten seconds: names that were looked up together do
/// not stay together.
fn jitter(service: &ObjectName, round: u64, time: Duration) -> Duration {
    let mut hasher = DefaultHasher::new();
    (service, round).hash(&mut hasher);
    let part = u32::try_from(hasher.finish() % 1000).unwrap_or_default();
    (time / 16).min(Duration::from_secs(10)) * part / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(namespace: &str, name: &str) -> ObjectName {
        ObjectName::new(namespace, name)
    }

    fn name(text: &str) -> ExternalName {
        ExternalName::parse(text).expect("a name")
    }

    fn found(addresses: &[&str], ttl: u64) -> Result<NameAddresses, LookupError> {
        Ok(NameAddresses {
            addresses: addresses
                .iter()
                .map(|text| text.parse().expect("an address"))
                .collect(),
            ttl: Duration::from_secs(ttl),
            is_missing: false,
        })
    }

    fn missing() -> Result<NameAddresses, LookupError> {
        Ok(NameAddresses {
            is_missing: true,
            ..found(&[], 0).expect("an answer")
        })
    }

    /// A schedule with one name, and the time.
    struct One {
        schedule: Schedule,
        now: Instant,
    }

    impl One {
        fn new() -> Self {
            let mut one = Self {
                schedule: Schedule::default(),
                now: Instant::now(),
            };
            let (service, name) = (service("shop", "api"), name("api.example.org"));
            one.schedule.want(service, Some(name), one.now);
            one
        }

        /// Makes the next look-up. Returns the time that passed until then, and the news.
        fn ask(
            &mut self,
            outcome: Result<NameAddresses, LookupError>,
        ) -> (Duration, Option<NameResolution>) {
            let at = self.schedule.next().expect("a look-up is due");
            let passed = at.saturating_duration_since(self.now);
            self.now = at;
            let questions = self.schedule.take_due(at);
            assert_eq!(questions.len(), 1, "one name is due");
            assert_eq!(self.schedule.next(), None, "it is asked once at a time");
            (passed, self.schedule.take(&questions[0], outcome, at))
        }
    }

    fn addresses(of: Option<NameResolution>) -> Vec<String> {
        let resolution = of.expect("news");
        resolution
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_name_is_looked_up_again_after_its_ttl_within_bounds() {
        let mut one = One::new();
        assert_eq!(one.ask(found(&["192.0.2.1"], 60)).0, Duration::ZERO);
        for (ttl, least) in [(0, 60), (7200, 5), (10, 3600)] {
            let (passed, news) = one.ask(found(&["192.0.2.1"], ttl));
            assert_eq!(news, None, "nothing changed");
            assert!(passed >= Duration::from_secs(least), "{passed:?}");
            let most = Duration::from_secs(least) + Duration::from_secs(least) / 16;
            assert!(passed <= most, "{passed:?}");
        }
    }

    #[test]
    fn addresses_are_sorted_and_each_is_there_once() {
        let mut one = One::new();
        let (_, news) = one.ask(found(&["192.0.2.9", "::ffff:192.0.2.1", "192.0.2.9"], 60));
        assert_eq!(addresses(news), ["192.0.2.1", "192.0.2.9"]);
        let (_, news) = one.ask(found(&["192.0.2.1", "192.0.2.9"], 60));
        assert_eq!(news, None, "another order is no change");
        let many: Vec<String> = (0..200).map(|n| format!("192.0.2.{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let (_, news) = one.ask(found(&many, 60));
        assert_eq!(addresses(news).len(), ADDRESSES);
    }

    #[test]
    fn the_last_addresses_outlast_failures_for_a_bounded_time() {
        for (outcome, lasts) in [
            (Err(LookupError::Silent), STALE),
            (missing(), DENIED),
            (found(&[], 0), DENIED),
        ] {
            let mut one = One::new();
            one.ask(found(&["192.0.2.1"], 5)).1.expect("news");
            let (_, news) = one.ask(outcome.clone());
            let since = one.now;
            let news = news.expect("its problem is told");
            assert!(news.problem.is_some(), "it says why");
            assert_eq!(news.addresses.len(), 1, "the last address is used");
            let gone = loop {
                if let Some(news) = one.ask(outcome.clone()).1 {
                    break news;
                }
            };
            assert_eq!(gone.addresses.len(), 0, "none is used any more");
            let passed = one.now - since;
            assert!(passed >= lasts, "{passed:?}");
            assert!(passed <= lasts + Duration::from_secs(5), "{passed:?}");
            let (_, news) = one.ask(found(&["192.0.2.2"], 5));
            assert_eq!(addresses(news), ["192.0.2.2"], "it comes back");
        }
    }

    #[test]
    fn failures_are_repeated_less_and_less_often() {
        let mut one = One::new();
        for least in [0, 5, 10, 20, 40, 60, 60] {
            let (passed, _) = one.ask(Err(LookupError::Silent));
            let least = Duration::from_secs(least);
            assert!(passed >= least, "{passed:?} is less than {least:?}");
            assert!(
                passed <= least + least / 16,
                "{passed:?} is more than {least:?}"
            );
        }
    }

    #[test]
    fn a_namespace_takes_no_more_than_its_part() {
        let mut schedule = Schedule::default();
        let now = Instant::now();
        for number in 0..50 {
            let slow = service("slow", &format!("s{number:02}"));
            schedule.want(slow, Some(name("slow.example.org")), now);
        }
        schedule.want(service("shop", "api"), Some(name("api.example.org")), now);
        let first = schedule.take_due(now);
        let of_slow = first.iter().filter(|q| &*q.service.namespace == "slow");
        assert_eq!(of_slow.count(), AT_ONCE.1);
        assert_eq!(first.len(), AT_ONCE.1 + 1, "the other namespace is served");
        assert_eq!(schedule.next(), None, "the rest waits for an end");
        let ended = first.iter().find(|q| &*q.service.namespace == "slow");
        schedule.take(ended.expect("one"), Err(LookupError::Silent), now);
        assert_eq!(schedule.take_due(now).len(), 1, "the next one of it");
    }

    #[test]
    fn a_late_answer_is_that_of_no_other_name() {
        let mut schedule = Schedule::default();
        let now = Instant::now();
        let api = service("shop", "api");
        schedule.want(api.clone(), Some(name("old.example.org")), now);
        let old = schedule.take_due(now);
        schedule.want(api.clone(), Some(name("new.example.org")), now);
        let new = schedule.take_due(now);
        assert_eq!(new[0].name, name("new.example.org"));
        let late = schedule.take(&old[0], found(&["192.0.2.1"], 60), now);
        assert_eq!(late, None);
        let news = schedule.take(&new[0], found(&["192.0.2.2"], 60), now);
        assert_eq!(addresses(news), ["192.0.2.2"]);
        schedule.want(api, None, now);
        assert_eq!(schedule.next(), None, "nothing is wanted any more");
    }
}
