//! Why a certificate could not be had, and when to try again.
//!
//! The class decides what happens next; the text is for people: it is stable from one attempt to the next, names
//! cause and fix, and carries no secret.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::names::DnsName;

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure.
    pub class: Class,
    /// What to tell the user.
    pub message: String,
    /// Not before this moment; said by the other side, or by ourselves.
    pub retry_at: Option<Timestamp>,
    /// The names at fault, where only some of several are.
    pub culprits: Vec<String>,
    /// What all attempts that need it have to wait for, where it is not the names' fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<Box<Dependency>>,
}

/// What an attempt depends on and shares with others: each has a circuit breaker of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dependency {
    /// The CA: its servers do not answer, or fail.
    Ca,
    /// The account at the CA.
    Account,
    /// A DNS provider, by its name.
    Provider(String),
    /// A DNS provider as far as one zone goes: its name, and the zone's.
    ProviderOf(String, String),
    /// The name servers of a zone, by the name of the zone.
    Zone(String),
}

fn zone(name: &DnsName) -> &str {
    let base = name.base();
    let parent = base.split_once('.').map_or(base, |(_, parent)| parent);
    if base == name.registered_domain() { base } else { parent }
}

impl Dependency {
    /// The name servers that a name depends on, by the zone that it most likely lies in: the parent of a host name, and a
    /// registered domain itself.
    pub fn zone_of(name: &DnsName) -> Self {
        Self::Zone(zone(name).to_owned())
    }

    /// Does a name depend on it? Names of an issuer with a DNS provider are all proven by it.
    pub fn is_of(&self, name: &DnsName) -> bool {
        match self {
            Self::Ca | Self::Account | Self::Provider(_) => true,
            Self::Zone(of) | Self::ProviderOf(_, of) => zone(name) == of,
        }
    }
}

/// Kinds of failures, by what helps against them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Network, time-out, 5xx: the same order is taken up again, soon.
    Transient,
    /// The CA's limit, or our own budget: wait; nobody's fault.
    RateLimited,
    /// The CA paused the name; only its web page resumes it.
    Paused,
    /// The name does not lead here, or its DNS is wrong: the owner of the name must act.
    HostFault,
    /// The CA refuses the name: CAA, its policy, a profile it does not have.
    Policy,
    /// The account is unknown, deactivated, or must agree to new terms.
    Account,
    /// The configuration makes no sense; nothing is tried until it changes.
    Config,
    /// The two sides misunderstand each other.
    Bug,
}

impl Class {
    /// The metric label.
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

    /// May the next issuer of an ordered list be asked at once? Not for what would fail there as well, and not
    /// for what passes soon.
    pub fn next_issuer_may_help(self) -> bool {
        matches!(self, Self::RateLimited | Self::Paused | Self::Policy | Self::Account | Self::Bug)
    }
}

impl Failure {
    /// A failure of a class.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_at: None, culprits: Vec::new(), dependency: None }
    }

    /// Not before this moment.
    pub fn not_before(mut self, at: Timestamp) -> Self {
        self.retry_at = Some(at);
        self
    }

    /// All that depends on this has to wait.
    pub fn with_dependency(mut self, dependency: Dependency) -> Self {
        self.dependency = Some(Box::new(dependency));
        self
    }

    /// Only these names are at fault.
    pub fn by(mut self, culprits: Vec<String>) -> Self {
        self.culprits = culprits;
        self
    }
}

/// What is remembered about failed attempts for one (issuer, certificate), persisted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// Failures in a row.
    pub failures: u32,
    /// The last of them.
    pub last: Failure,
    /// When it was.
    pub at: Timestamp,
    /// Nothing is tried before.
    pub not_before: Timestamp,
    /// What the attempts were about: names, solver, issuer. When it changes, all is forgotten and tried at once.
    pub about: String,
    /// How many names the order had, where several wanted certificates shared it and none of them is known to be at fault: they go on
    /// sharing. 0: the attempts were this wanted certificate's own.
    #[serde(default)]
    pub shared: usize,
}

impl Attempts {
    /// The memory after one more failure. `roll` in 0..1 spreads the retries of many.
    pub fn after(previous: Option<&Self>, failure: Failure, about: &str, now: Timestamp, roll: f64) -> Self {
        // A limit is nobody's fault and does not count against the name.
        let counts = !matches!(failure.class, Class::RateLimited);
        let failures = match previous {
            Some(p) if p.about == about => p.failures + u32::from(counts),
            _ => u32::from(counts),
        };
        let wait = back_off(failure.class, failures, roll);
        let not_before = failure.retry_at.unwrap_or(now).max(now + wait);
        Self { failures, last: failure, at: now, not_before, about: about.to_owned(), shared: 0 }
    }

    /// The same, of an order with so many names that several wanted certificates share.
    pub fn of_shared(self, names: usize) -> Self {
        Self { shared: names, ..self }
    }

    /// The most names that may be in the next order, if it is shared; `None`: as many as before. An order that was refused
    /// without a culprit is halved until the culprit stands alone; one that met an outage is repeated as it is.
    pub fn share_at_most(&self) -> Option<usize> {
        let refused = matches!(self.last.class, Class::HostFault | Class::Policy | Class::Paused | Class::Bug);
        match self.shared {
            0 => Some(1),
            names => refused.then_some((names / 2).max(1)),
        }
    }
}

/// How long to wait after the n-th failure in a row.
///
/// What the owner of a name or the CA's policy must change is tried after 1, 10 and 100 minutes and then daily, as Let's
/// Encrypt's integration guide asks; what is transient after 1, 2, 5, 10, 30 and 60 seconds with full jitter, then every
/// five minutes; what an operator mends (configuration, credentials, the account) after 1, 5 and 15 minutes and then hourly:
/// it costs the CA little, and is to be seen soon once it is mended.
pub fn back_off(class: Class, failures: u32, roll: f64) -> SignedDuration {
    let roll = roll.clamp(0.0, 1.0);
    let step = |steps: &[f64], then: f64| *steps.get(failures.saturating_sub(1) as usize).unwrap_or(&then);
    let seconds = match class {
        Class::Transient => step(&[1.0, 2.0, 5.0, 10.0, 30.0, 60.0], 300.0) * (0.5 + 0.5 * roll),
        Class::RateLimited => 60.0 * (1.0 + roll),
        Class::HostFault | Class::Policy | Class::Bug => step(&[1.0, 10.0, 100.0], 1440.0) * 60.0 * (1.0 + 0.1 * roll),
        Class::Config | Class::Account => step(&[1.0, 5.0, 15.0], 60.0) * 60.0 * (1.0 + 0.1 * roll),
        Class::Paused => 86_400.0 * (1.0 + 0.1 * roll),
    };
    SignedDuration::from_secs_f64(seconds)
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
                let wait = |roll| back_off(class, n as u32 + 1, roll).as_secs();
                assert_eq!((wait(0.0), wait(1.0)), (seconds, seconds * most / 100), "{class:?} {n}");
            }
        }
        let transient: Vec<i64> = (1..=8).map(|n| back_off(Class::Transient, n, 1.0).as_secs()).collect();
        assert_eq!(transient, [1, 2, 5, 10, 30, 60, 300, 300]);
    }

    #[test]
    fn a_shared_order_stays_whole_in_an_outage_and_is_halved_where_the_ca_refuses_it() {
        let shared = |class, names| {
            Attempts::after(None, Failure::new(class, "no"), "a", at(0), 0.0).of_shared(names).share_at_most()
        };
        assert_eq!((shared(Class::Transient, 25), shared(Class::RateLimited, 25)), (None, None));
        assert_eq!(
            (shared(Class::Bug, 25), shared(Class::Policy, 3), shared(Class::Bug, 2)),
            (Some(12), Some(1), Some(1))
        );
        assert_eq!(shared(Class::Transient, 0), Some(1), "its own fault");
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
            assert_eq!(Dependency::zone_of(&name), Dependency::Zone(zone.to_owned()), "{name}");
        }
    }

    #[test]
    fn a_changed_configuration_forgets() {
        let first = Attempts::after(None, Failure::new(Class::HostFault, "no"), "a", at(0), 0.0);
        let second = Attempts::after(Some(&first), Failure::new(Class::HostFault, "no"), "b", at(0), 0.0);
        assert_eq!(second.failures, 1);
    }

    #[test]
    fn a_limit_never_counts_against_the_name_and_is_kept() {
        let failure = Failure::new(Class::RateLimited, "429").not_before(at(7200));
        let m = Attempts::after(None, failure, "a", at(0), 0.0);
        assert_eq!((m.failures, m.not_before), (0, at(7200)));
    }
}
