//! A circuit breaker for each issuer: a CA that does not answer is left alone, and then asked once.
//!
//! Hosts wait for the CA together, and one of them probes it (half open), instead of each knocking on its own.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::failure::{Class, Failure};
use crate::issuer::CertificateId;
use crate::plan::Wanted;

/// So many exchanges in a row must fail for the network, or the CA itself.
const TRIPS_AT: u32 = 5;
const SHORTEST: SignedDuration = SignedDuration::from_secs(30);
const LONGEST: SignedDuration = SignedDuration::from_mins(10);
/// How long the others wait while one of them probes.
const PROBE: SignedDuration = SignedDuration::from_secs(10);

/// Breakers by issuer. In memory only: a program that starts asks again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breakers(BTreeMap<String, Breaker>);

#[derive(Clone, Debug)]
struct Breaker {
    failures: u32,
    open_until: Timestamp,
    last: String,
}

impl Breakers {
    /// Notes how an attempt ended. Whatever a CA answers, it answers.
    pub(crate) fn note(&mut self, issuer: &str, failure: Option<&Failure>, now: Timestamp) {
        let Some(failure) = failure.filter(|f| f.class == Class::Transient) else {
            // Our own budget, or a wrong setting, says nothing about the CA.
            if failure.is_none_or(|f| !matches!(f.class, Class::Config | Class::RateLimited)) {
                self.0.remove(issuer);
            }
            return;
        };
        let fresh = || Breaker { failures: 0, open_until: Timestamp::MIN, last: String::new() };
        let breaker = self.0.entry(issuer.to_owned()).or_insert_with(fresh);
        breaker.failures = breaker.failures.saturating_add(1);
        breaker.last.clone_from(&failure.message);
        // Those that were under way when it opened do not make it longer.
        if breaker.failures >= TRIPS_AT && now >= breaker.open_until {
            let doublings = (breaker.failures - TRIPS_AT).min(5);
            breaker.open_until = now + (SHORTEST * 2i32.pow(doublings)).min(LONGEST);
        }
    }

    /// Holds wishes back from issuers that do not answer; of each issuer's one goes through when it is time to probe.
    pub(crate) fn hold(&self, wanted: &mut [Wanted], has: impl Fn(&CertificateId) -> bool, now: Timestamp) {
        let mut probing: BTreeMap<&str, bool> = BTreeMap::new();
        for wish in wanted.iter_mut() {
            let Some((issuer, breaker)) = self.0.get_key_value(&wish.issuer) else { continue };
            if breaker.failures < TRIPS_AT {
                continue;
            }
            let until = if now < breaker.open_until {
                breaker.open_until
            } else if wish.hold.is_none() && !has(&wish.id) && !probing.contains_key(issuer.as_str()) {
                probing.insert(issuer, true);
                continue;
            } else {
                now + PROBE
            };
            let text = format!("{issuer} does not answer, {} attempts in a row: {}", breaker.failures, breaker.last);
            wish.hold = wish.hold.take().max(Some((until, text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{DnsName, Names};

    fn wish(n: usize) -> Wanted {
        let names = Names::one(DnsName::parse(&format!("h{n}.example.com")).expect("a name"));
        Wanted {
            id: CertificateId::of("t", &names),
            tenant: "t".to_owned(),
            issuer: "ca".to_owned(),
            names,
            validity: None,
            may_share: false,
            renew_now: false,
            hold: None,
        }
    }

    fn held_back(breakers: &Breakers, now: Timestamp) -> usize {
        let mut wanted: Vec<Wanted> = (0..10).map(wish).collect();
        breakers.hold(&mut wanted, |_| false, now);
        wanted.iter().filter(|w| w.hold.is_some()).count()
    }

    #[test]
    fn a_silent_ca_is_left_alone_then_probed_by_one_and_taken_back_at_the_first_answer() {
        let mut breakers = Breakers::default();
        let now = Timestamp::from_second(2_000_000_000).expect("a time");
        let silent = Failure::new(Class::Transient, "no connection");
        for _ in 1..TRIPS_AT {
            breakers.note("ca", Some(&silent), now);
        }
        assert_eq!(held_back(&breakers, now), 0, "not yet");
        breakers.note("ca", Some(&silent), now);
        assert_eq!(held_back(&breakers, now), 10);
        let later = now + SHORTEST;
        assert_eq!(held_back(&breakers, later), 9, "one probes");
        breakers.note("ca", Some(&silent), later);
        assert_eq!(held_back(&breakers, later + SHORTEST), 10, "the next pause is longer");
        let fault = Failure::new(Class::HostFault, "wrong answer");
        breakers.note("ca", Some(&fault), later);
        assert_eq!(held_back(&breakers, later), 0, "a CA that refuses a host answers");
    }

    #[test]
    fn other_issuers_go_on() {
        let mut breakers = Breakers::default();
        let now = Timestamp::from_second(2_000_000_000).expect("a time");
        for _ in 0..9 {
            breakers.note("other", Some(&Failure::new(Class::Transient, "no connection")), now);
        }
        assert_eq!(held_back(&breakers, now), 0);
    }
}
