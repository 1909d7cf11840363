//! The handshakes that failed with clients, by host and reason, as the Envoys of one view report
//! them. Pure: time is an argument.
//!
//! Clients choose the names, below wildcards of listeners: names of one domain make room for each
//! other.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::by_owner::{ByOwner, Dated};
use gatewright_core::model::Hostname;
use gatewright_core::request_outcome::RequestOutcome;
use gatewright_envoy::FailedHandshake;

/// The most hosts with a reason of a domain, and of a view: about 256 KiB.
const OF_DOMAIN: usize = 64;
const OF_VIEW: usize = 1_024;
/// How long they are counted after the last one.
const KEPT: Duration = Duration::from_secs(900);

/// The handshakes that failed at the Envoys of a view.
#[derive(Debug, Default)]
pub(crate) struct FailedHandshakes(ByOwner<(Hostname, &'static str), Tally, OF_DOMAIN, OF_VIEW>);

#[derive(Debug)]
struct Tally {
    outcome: &'static RequestOutcome,
    count: u64,
    at: SystemTime,
}

impl Dated for Tally {
    fn at(&self) -> SystemTime {
        self.at
    }
}

/// Handshakes of a host that failed for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostHandshakes {
    /// The name that clients asked for.
    pub host: String,
    /// The reason, as in the reference.
    pub reason: String,
    /// How many failed since the first that is remembered.
    pub count: u64,
    /// The time since the last one.
    pub seconds_ago: u64,
    /// The reason in words.
    pub message: String,
}

/// As in `12 handshakes failed, the last 10 s ago: CertificateRefused: the client did not …`.
impl fmt::Display for HostHandshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host: _,
            reason,
            count,
            seconds_ago,
            message,
        } = self;
        let handshakes = match count {
            1 => "1 handshake failed".to_owned(),
            count => format!("{count} handshakes failed, the last"),
        };
        write!(f, "{handshakes} {seconds_ago} s ago: {reason}: {message}")
    }
}

impl FailedHandshakes {
    /// Counts a handshake.
    pub(crate) fn fail(&mut self, failed: FailedHandshake, now: SystemTime) {
        let FailedHandshake { host, outcome } = failed;
        let domain = host.to_string();
        let domain = domain.split_once('.').map_or("", |(_, domain)| domain);
        let key = (host, outcome.reason);
        if let Some(tally) = self.0.get_mut(domain, &key) {
            tally.count = tally.count.saturating_add(1);
            tally.at = now;
            return;
        }
        let tally = Tally {
            outcome,
            count: 1,
            at: now,
        };
        self.0.insert(domain, key, tally);
    }

    /// The handshakes of hosts that a function chooses.
    pub(crate) fn of(
        &self,
        is_asked: impl Fn(&Hostname) -> bool,
        now: SystemTime,
    ) -> Vec<HostHandshakes> {
        let asked = self.0.iter().filter(|((host, _), _)| is_asked(host));
        asked
            .filter(|(_, tally)| tally.age(now) <= KEPT)
            .map(|((host, reason), tally)| HostHandshakes {
                host: host.to_string(),
                reason: (*reason).to_owned(),
                count: tally.count,
                seconds_ago: tally.age(now).as_secs(),
                message: tally.outcome.words.to_owned(),
            })
            .collect()
    }

    /// Forgets what is over.
    pub(crate) fn forget(&mut self, now: SystemTime) {
        self.0.retain(|tally| tally.age(now) <= KEPT);
    }

    /// True if nothing is counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::handshake_failure::of_client;

    const START: SystemTime = SystemTime::UNIX_EPOCH;

    fn failed(host: &str, transport: &str) -> FailedHandshake {
        FailedHandshake {
            host: Hostname::parse(host).expect("a hostname"),
            outcome: of_client(transport),
        }
    }

    #[test]
    fn handshakes_are_counted_by_host_and_reason() {
        let mut all = FailedHandshakes::default();
        for second in 0..3 {
            let now = START + Duration::from_secs(second);
            all.fail(failed("a.example.org", "ALERT_UNKNOWN_CA"), now);
        }
        all.fail(failed("a.example.org", "NO_SHARED_CIPHER"), START);
        all.fail(failed("b.example.org", "ALERT_UNKNOWN_CA"), START);
        let now = START + Duration::from_secs(12);
        let of_a = all.of(|host| host.as_str() == "a.example.org", now);
        let text = "3 handshakes failed, the last 10 s ago: CertificateRefused: \
                    the client did not accept the certificate";
        assert_eq!(of_a[0].to_string(), text);
        assert_eq!(of_a.len(), 2, "reasons");
        let later = START + KEPT + Duration::from_secs(3);
        assert_eq!(all.of(|_| true, later), [], "they are over");
        all.forget(later);
        assert!(all.is_empty());
    }

    #[test]
    fn names_below_a_wildcard_do_not_displace_other_domains() {
        let mut all = FailedHandshakes::default();
        all.fail(failed("shop.example.org", "ALERT_UNKNOWN_CA"), START);
        for name in 0..10_000_u64 {
            let now = START + Duration::from_secs(1 + name / 100);
            all.fail(failed(&format!("n{name}.example.com"), ""), now);
        }
        let now = START + Duration::from_secs(101);
        assert_eq!(
            all.of(|host| host.as_str() == "shop.example.org", now)
                .len(),
            1
        );
        assert_eq!(all.of(|_| true, now).len(), 1 + OF_DOMAIN);
    }
}
