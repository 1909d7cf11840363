//! Why a certificate could not be had, and when to try again.
//!
//! The class decides what happens next; the text is for people: it is stable from one attempt to the next, names
//! cause and fix, and carries no secret.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

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
        Self { class, message: message.into(), retry_at: None, culprits: Vec::new() }
    }

    /// Not before this moment.
    pub fn not_before(mut self, at: Timestamp) -> Self {
        self.retry_at = Some(at);
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
        Self { failures, last: failure, at: now, not_before, about: about.to_owned() }
    }
}

/// How long to wait after the n-th failure in a row.
///
/// A host's fault is tried after 1, 10 and 100 minutes and then daily, as Let's Encrypt's integration guide asks;
/// what is transient after 1, 2, 5, 10, 30 and 60 seconds with full jitter, then every five minutes.
pub fn back_off(class: Class, failures: u32, roll: f64) -> SignedDuration {
    let roll = roll.clamp(0.0, 1.0);
    let seconds = match class {
        Class::Transient => {
            let step = [1.0, 2.0, 5.0, 10.0, 30.0, 60.0].get(failures.saturating_sub(1) as usize).unwrap_or(&300.0);
            step * (0.5 + 0.5 * roll)
        }
        Class::RateLimited => 60.0 * (1.0 + roll),
        Class::HostFault => {
            let minutes = [1.0, 10.0, 100.0].get(failures.saturating_sub(1) as usize).unwrap_or(&1440.0);
            minutes * 60.0 * (1.0 + 0.1 * roll)
        }
        Class::Account => 3600.0 * (1.0 + 0.1 * roll),
        Class::Paused | Class::Policy | Class::Config | Class::Bug => 86_400.0 * (1.0 + 0.1 * roll),
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
    fn a_hosts_fault_is_tried_after_1_10_100_minutes_and_then_daily() {
        let mut memory: Option<Attempts> = None;
        let mut waits = Vec::new();
        for _ in 0..5 {
            let m = Attempts::after(memory.as_ref(), Failure::new(Class::HostFault, "no"), "a", at(0), 0.0);
            waits.push(m.not_before.as_second() / 60);
            memory = Some(m);
        }
        assert_eq!(waits, [1, 10, 100, 1440, 1440]);
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
