//! Failures of attempts, and the back-off before the next attempt.
//!
//! The class decides what happens next; the message is for people: it is stable from one attempt to
//! the next, names cause and fix, and contains no secret.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::names::DnsName;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The class of the failure.
    pub class: Class,
    /// The message for the user.
    pub message: String,
    /// Earliest time of the next attempt; set by the CA, the provider, or our budget.
    pub retry_at: Option<Timestamp>,
    /// The names at fault, where only some names of the order are.
    pub culprits: Vec<String>,
    /// The dependency that failed, whose breaker counts it; None where the names are at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<Box<Dependency>>,
}

/// A dependency of attempts, shared by many: each has a circuit breaker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dependency {
    /// The CA: its servers do not answer, or answer with errors.
    Ca,
    /// The account at the CA.
    Account,
    /// A DNS provider, by its name.
    Provider(String),
    /// A DNS provider in one zone: the provider's name, and the zone's.
    ProviderOf(String, String),
    /// The name servers of a zone, by the name of the zone.
    Zone(String),
    /// Our own storage of accounts and orders.
    Storage,
}

fn zone(name: &DnsName) -> &str {
    let base = name.base();
    let parent = base.split_once('.').map_or(base, |(_, parent)| parent);
    if base == name.registered_domain() {
        base
    } else {
        parent
    }
}

impl Dependency {
    /// Returns the name servers that a name depends on, by its most likely zone: the parent of a
    /// host name, or the registered domain itself.
    pub fn zone_of(name: &DnsName) -> Self {
        Self::Zone(zone(name).to_owned())
    }

    /// Returns true if a name depends on it. All names of an issuer with a DNS provider are proven
    /// by that provider.
    pub fn is_of(&self, name: &DnsName) -> bool {
        match self {
            Self::Ca | Self::Account | Self::Provider(_) | Self::Storage => true,
            Self::Zone(of) | Self::ProviderOf(_, of) => zone(name) == of,
        }
    }
}

/// Classes of failures, by their remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Network, time-out, 5xx: the same order is resumed soon.
    Transient,
    /// The CA's limit, or our own budget: wait; no name is at fault.
    RateLimited,
    /// The CA paused the name, which can be resumed only on the CA's web page.
    Paused,
    /// The name does not resolve to us, or its DNS is wrong: the owner of the name must act.
    HostFault,
    /// The CA refuses the name: CAA, its policy, a profile that it does not have.
    Policy,
    /// The account is unknown, deactivated, or must agree to new terms.
    Account,
    /// The configuration is invalid: an operator must change it.
    Config,
    /// An error in the protocol: a bug of ours or of the CA.
    Bug,
}

impl Class {
    /// Returns the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::RateLimited => "rate-limited",
            Self::Paused => "paused",
            Self::HostFault => "host-fault",
            Self::Policy => "policy",
            Self::Account => "account",
            Self::Config => "config",
            Self::Bug => "bug",
        }
    }

    /// Returns true if the next issuer of an ordered list is to be tried at once: not for a failure
    /// that it would have as well, and not for a transient one.
    pub fn next_issuer_may_help(self) -> bool {
        matches!(
            self,
            Self::RateLimited | Self::Paused | Self::Policy | Self::Account | Self::Bug
        )
    }
}

impl Failure {
    /// Makes a failure of a class.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            retry_at: None,
            culprits: Vec::new(),
            dependency: None,
        }
    }

    /// Sets the earliest time of the next attempt.
    pub fn not_before(mut self, at: Timestamp) -> Self {
        self.retry_at = Some(at);
        self
    }

    /// Sets the dependency that failed.
    pub fn with_dependency(mut self, dependency: Dependency) -> Self {
        self.dependency = Some(Box::new(dependency));
        self
    }

    /// Sets the names at fault.
    pub fn by(mut self, culprits: Vec<String>) -> Self {
        self.culprits = culprits;
        self
    }
}

/// What failures are counted by: each cause has a back-off of its own, so that an outage says
/// nothing about the next failure of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The CA does not answer, or answers with errors.
    Ca,
    /// A DNS provider.
    Provider,
    /// The name servers of a zone.
    Dns,
    /// Our own storage, for example a full disk.
    Storage,
    /// Anything else that is over by itself.
    Outage,
    /// A limit of the CA, or our own budget.
    Limit,
    /// The CA paused the name.
    Pause,
    /// The name itself.
    Name,
    /// The CA's policy.
    Policy,
    /// The account.
    Account,
    /// The configuration.
    Settings,
    /// An error in the protocol, or a certificate that nobody can use.
    Protocol,
}

impl Cause {
    /// Returns the cause of a failure.
    pub fn of(failure: &Failure) -> Self {
        match (failure.class, failure.dependency.as_deref()) {
            (Class::Transient, Some(Dependency::Ca)) => Self::Ca,
            (Class::Transient, Some(Dependency::Provider(_) | Dependency::ProviderOf(..))) => {
                Self::Provider
            }
            (Class::Transient, Some(Dependency::Zone(_))) => Self::Dns,
            (Class::Transient, Some(Dependency::Storage)) => Self::Storage,
            (Class::Transient, Some(Dependency::Account) | None) => Self::Outage,
            (Class::RateLimited, _) => Self::Limit,
            (Class::Paused, _) => Self::Pause,
            (Class::HostFault, _) => Self::Name,
            (Class::Policy, _) => Self::Policy,
            (Class::Account, _) => Self::Account,
            (Class::Config, _) => Self::Settings,
            (Class::Bug, _) => Self::Protocol,
        }
    }

    /// Returns true if it ends without anybody's help. Such failures count in a row only; the
    /// others count until a certificate is there, so that an outage between two of them does not
    /// begin their back-off again.
    fn is_over_by_itself(self) -> bool {
        match self {
            Self::Ca | Self::Provider | Self::Dns | Self::Storage | Self::Outage | Self::Limit => {
                true
            }
            Self::Pause
            | Self::Name
            | Self::Policy
            | Self::Account
            | Self::Settings
            | Self::Protocol => false,
        }
    }
}

/// The record of failed attempts for one certificate at one issuer; persisted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// Failures by cause. A limit of the CA does not count.
    pub(crate) counts: BTreeMap<Cause, u32>,
    /// The last of them.
    pub last: Failure,
    /// Time of the last failure.
    pub at: Timestamp,
    /// Earliest time of the next attempt.
    pub not_before: Timestamp,
    /// Fingerprint of the wanted certificate: names, solver, issuer. When it changes, the record is
    /// void, and the next attempt is made at once.
    pub about: String,
    /// Number of names of a failed order that several wanted certificates shared, without a known
    /// culprit: they go on sharing. 0 if the order was for this wanted certificate alone.
    #[serde(default)]
    pub shared: usize,
    /// Serial number of the certificate that Envoys refused, where that is a failure since the last
    /// success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// True if another certificate was issued since. The record counts on if Envoys refuse that one
    /// as well.
    #[serde(default)]
    pub is_over: bool,
}

impl Attempts {
    /// Returns the record after one more failure. `jitter` in 0..1 spreads the retries of many
    /// certificates.
    pub fn after(
        previous: Option<&Self>,
        failure: Failure,
        about: &str,
        now: Timestamp,
        jitter: f64,
    ) -> Self {
        let previous = previous.filter(|p| p.about == about);
        let cause = Cause::of(&failure);
        let mut counts = previous.map(|p| p.counts.clone()).unwrap_or_default();
        counts.retain(|other, _| *other == cause || !other.is_over_by_itself());
        if cause != Cause::Limit {
            *counts.entry(cause).or_default() += 1;
        }
        let failures = counts.get(&cause).copied().unwrap_or_default();
        let wait = back_off(failure.class, failures, jitter);
        let not_before = failure.retry_at.unwrap_or(now).max(now + wait);
        let refused = previous.and_then(|p| p.refused.clone());
        Self {
            counts,
            last: failure,
            at: now,
            not_before,
            about: about.to_owned(),
            shared: 0,
            refused,
            is_over: false,
        }
    }

    /// Returns the number of failures by the cause of the last one.
    pub fn failures(&self) -> u32 {
        self.counted(Cause::of(&self.last))
    }

    /// Returns the number of failures by a cause.
    pub fn counted(&self, cause: Cause) -> u32 {
        self.counts.get(&cause).copied().unwrap_or_default()
    }

    /// Returns the number of failures by all causes.
    pub fn total(&self) -> u32 {
        self.counts.values().sum()
    }

    /// Marks the failure as the refusal of a certificate by Envoys.
    pub fn of_refused(self, serial: &str) -> Self {
        Self {
            refused: Some(serial.to_owned()),
            ..self
        }
    }

    /// Returns whether the failure is the refusal of the certificate with this serial number.
    pub fn is_about(&self, serial: &str) -> bool {
        self.refused.as_deref() == Some(serial)
    }

    /// Returns the record after a failure of an order with so many names of several wanted
    /// certificates, without a known culprit. Where the next order has half of the names, the
    /// failure does not count for this one: it may be that of another name, and each name waits by
    /// its own failures once the culprit is alone.
    pub fn after_shared(
        previous: Option<&Self>,
        failure: Failure,
        names: usize,
        about: &str,
        now: Timestamp,
        jitter: f64,
    ) -> Self {
        let made = Self {
            shared: names,
            ..Self::after(previous, failure, about, now, jitter)
        };
        if made.share_at_most().is_none() {
            return made;
        }
        let cause = Cause::of(&made.last);
        let mut counts = made.counts;
        let own = previous
            .filter(|previous| previous.about == about)
            .map_or(0, |previous| previous.counted(cause));
        counts.insert(cause, own);
        let wait = back_off(made.last.class, 1, jitter);
        Self {
            counts,
            not_before: made.last.retry_at.unwrap_or(now).max(now + wait),
            ..made
        }
    }

    /// Returns the most names of the next shared order; `None` for no bound. An order that was
    /// refused without a culprit is halved until the culprit is alone; one that failed transiently
    /// is repeated unchanged. What says nothing about the name keeps it from no shared order.
    pub fn share_at_most(&self) -> Option<usize> {
        if matches!(
            Cause::of(&self.last),
            Cause::Ca | Cause::Storage | Cause::Limit | Cause::Account
        ) {
            return None;
        }
        let refused = matches!(
            self.last.class,
            Class::HostFault | Class::Policy | Class::Paused | Class::Bug
        );
        match self.shared {
            0 => Some(1),
            names => refused.then_some((names / 2).max(1)),
        }
    }
}

/// Returns the back-off after the n-th failure in a row.
///
/// Failures that the owner of a name or the CA's policy must remove are retried after 1, 10 and 100
/// minutes and then daily, as Let's Encrypt's integration guide asks; transient ones after 1, 2, 5,
/// 10, 30 and 60 seconds with jitter of half the time, then every five minutes; those that an
/// operator must remove (configuration, credentials, the account) after 1, 5 and 15 minutes and
/// then hourly: that costs the CA little and notices the repair soon.
pub fn back_off(class: Class, failures: u32, jitter: f64) -> SignedDuration {
    let jitter = jitter.clamp(0.0, 1.0);
    let seconds = match class {
        Class::Transient => {
            step(&[1.0, 2.0, 5.0, 10.0, 30.0, 60.0], 300.0, &failures) * (0.5 + 0.5 * jitter)
        }
        Class::RateLimited => 60.0 * (1.0 + jitter),
        Class::HostFault | Class::Policy | Class::Bug => {
            step(&[1.0, 10.0, 100.0], 1440.0, &failures) * 60.0 * (1.0 + 0.1 * jitter)
        }
        Class::Config | Class::Account => {
            step(&[1.0, 5.0, 15.0], 60.0, &failures) * 60.0 * (1.0 + 0.1 * jitter)
        }
        Class::Paused => 86_400.0 * (1.0 + 0.1 * jitter),
    };
    SignedDuration::from_secs_f64(seconds)
}

fn step(steps: &[f64], then: f64, failures: &u32) -> f64 {
    *steps
        .get(failures.saturating_sub(1) as usize)
        .unwrap_or(&then)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("in range")
    }

    #[test]
    fn each_class_has_the_waits_of_the_documentation() {
        let daily = [60, 600, 6000, 86_400, 86_400, 86_400, 86_400, 86_400];
        let hourly = [60, 300, 900, 3600, 3600, 3600, 3600, 3600];
        for (class, least, most) in [
            (Class::HostFault, daily, 110),
            (Class::Policy, daily, 110),
            (Class::Bug, daily, 110),
            (Class::Config, hourly, 110),
            (Class::Account, hourly, 110),
            (Class::Paused, [86_400; 8], 110),
            (Class::RateLimited, [60; 8], 200),
        ] {
            for (n, seconds) in least.into_iter().enumerate() {
                fn wait(jitter: f64, class: &Class, n: &usize) -> i64 {
                    back_off(*class, *n as u32 + 1, jitter).as_secs()
                }
                assert_eq!(wait(0.0, &class, &n), seconds, "{class:?} {n}");
                assert_eq!(wait(1.0, &class, &n), seconds * most / 100, "{class:?} {n}");
            }
        }
        let transient: Vec<i64> = (1..=8)
            .map(|n| back_off(Class::Transient, n, 1.0).as_secs())
            .collect();
        assert_eq!(transient, [1, 2, 5, 10, 30, 60, 300, 300]);
    }

    #[test]
    fn a_shared_order_stays_whole_in_an_outage_and_is_halved_where_the_ca_refuses_it() {
        fn shared(class: Class, names: usize) -> Option<usize> {
            let failure = Failure::new(class, "no");
            Attempts::after_shared(None, failure, names, "a", at(0), 0.0).share_at_most()
        }
        assert_eq!(
            shared(Class::Transient, 25),
            None,
            "an outage does not halve it"
        );
        assert_eq!(
            shared(Class::RateLimited, 25),
            None,
            "a rate limit does not halve it"
        );
        assert_eq!(
            shared(Class::Bug, 25),
            Some(12),
            "a bug is looked for in the half"
        );
        assert_eq!(shared(Class::Policy, 3), Some(1), "half of three is one");
        assert_eq!(shared(Class::Bug, 2), Some(1), "half of two is one");
        assert_eq!(shared(Class::Transient, 0), Some(1), "its own fault");
        let away = Failure::new(Class::Transient, "no").with_dependency(Dependency::Ca);
        let alone = Attempts::after(None, away, "a", at(0), 0.0);
        assert_eq!(alone.share_at_most(), None, "the CA was away");
    }

    #[test]
    fn names_that_shared_an_order_with_the_culprit_wait_by_their_own_failures() {
        let refused = || Failure::new(Class::Policy, "no");
        let mut last: Option<Attempts> = None;
        for names in [25, 12, 6, 3] {
            let shared = Attempts::after_shared(last.as_ref(), refused(), names, "a", at(0), 0.0);
            assert_eq!(shared.not_before, at(60), "an order with {names} names");
            last = Some(shared);
        }
        for wait in [60, 600, 6000] {
            let alone = Attempts::after(last.as_ref(), refused(), "a", at(0), 0.0);
            assert_eq!(alone.not_before, at(wait), "its own failure");
            last = Some(alone);
        }
        let again = Attempts::after_shared(last.as_ref(), refused(), 2, "a", at(0), 0.0);
        assert_eq!(again.failures(), 3, "those of before count on");
        let mut last: Option<Attempts> = None;
        for wait in [1, 2, 5] {
            let away = Failure::new(Class::Transient, "no");
            let shared = Attempts::after_shared(last.as_ref(), away, 25, "a", at(0), 1.0);
            assert_eq!(
                shared.not_before,
                at(wait),
                "the order is repeated as it is"
            );
            last = Some(shared);
        }
    }

    #[test]
    fn a_name_depends_on_the_servers_of_the_zone_around_it() {
        for (name, zone) in [
            ("a.example.org", "example.org"),
            ("a.b.example.org", "b.example.org"),
            ("example.org", "example.org"),
            ("*.example.org", "example.org"),
            ("*.b.example.org", "example.org"),
        ] {
            let name = DnsName::parse(name).expect("a name");
            assert_eq!(
                Dependency::zone_of(&name),
                Dependency::Zone(zone.to_owned()),
                "{name}"
            );
        }
    }

    #[test]
    fn a_changed_configuration_forgets() {
        let first = Attempts::after(None, Failure::new(Class::HostFault, "no"), "a", at(0), 0.0);
        let second = Attempts::after(
            Some(&first),
            Failure::new(Class::HostFault, "no"),
            "b",
            at(0),
            0.0,
        );
        assert_eq!(second.failures(), 1);
    }

    /// Returns the waits in seconds after failures in turn, without jitter.
    fn waits(failures: &[Failure]) -> Vec<i64> {
        let mut last: Option<Attempts> = None;
        let mut waits = Vec::new();
        for failure in failures {
            let attempts = Attempts::after(last.as_ref(), failure.clone(), "a", at(0), 0.0);
            waits.push(attempts.not_before.duration_since(at(0)).as_secs());
            last = Some(attempts);
        }
        waits
    }

    #[test]
    fn each_cause_has_a_back_off_of_its_own() {
        fn of(class: Class) -> Failure {
            Failure::new(class, "no")
        }
        fn by(dependency: Dependency) -> Failure {
            of(Class::Transient).with_dependency(dependency)
        }
        let zone = || by(Dependency::Zone("example.org".to_owned()));
        let provider = || by(Dependency::Provider("cloudflare".to_owned()));
        let causes = [
            by(Dependency::Ca),
            provider(),
            zone(),
            by(Dependency::Storage),
            of(Class::Transient),
            of(Class::HostFault),
            of(Class::Policy),
            of(Class::Account),
            of(Class::Config),
            of(Class::Bug),
        ];
        for before in &causes {
            for failure in causes.iter().filter(|other| *other != before) {
                let mut failures = vec![before.clone(); 6];
                failures.push(failure.clone());
                let first = waits(std::slice::from_ref(failure));
                assert_eq!(
                    waits(&failures).last(),
                    first.first(),
                    "{failure:?} after six times {before:?}"
                );
            }
        }
    }

    #[test]
    fn an_outage_does_not_begin_the_back_off_of_a_name_again() {
        let name = Failure::new(Class::HostFault, "no");
        let outage = Failure::new(Class::Transient, "no").with_dependency(Dependency::Ca);
        let limit = Failure::new(Class::RateLimited, "no");
        assert_eq!(
            waits(&[
                name.clone(),
                outage.clone(),
                name.clone(),
                limit,
                name.clone(),
                outage,
                name
            ]),
            [60, 0, 600, 60, 6000, 0, 86_400]
        );
    }

    #[test]
    fn a_limit_never_counts_against_the_name_and_is_kept() {
        let failure = Failure::new(Class::RateLimited, "429").not_before(at(7200));
        let m = Attempts::after(None, failure, "a", at(0), 0.0);
        assert_eq!(m.total(), 0, "a limit is no failure of the name");
        assert_eq!(m.not_before, at(7200), "the time of the limit is kept");
    }
}
