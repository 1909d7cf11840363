//! Circuit breakers: a dependency that keeps failing is not asked until a pause is over, and then
//! probed by one order.
//!
//! Each issuer has one breaker for its CA, one for its account, one for each DNS provider, one for
//! each pair of provider and zone, and one for the name servers of each zone. Orders of hosts that
//! depend on it wait together, and one of them is the probe (half open), instead of each retrying
//! on its own; hosts that do not depend on it are unaffected.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::failure::{Class, Dependency, Failure};
use crate::issuer::CertificateId;
use crate::plan::{Order, Step, Wanted};

/// Failures in a row that trip a breaker.
const TRIPS_AT: u32 = 5;
/// Failures in a row that trip the breaker of an account: a CA that refuses an account refuses all
/// its orders, so that fewer failures are proof.
const ACCOUNT_TRIPS_AT: u32 = 3;
/// Least number of different certificates (of zones, for a DNS provider) that must fail: a fault of
/// one alone is handled by that one's own back-off.
const MIN_DISTINCT: usize = 2;
const MIN_PAUSE: SignedDuration = SignedDuration::from_secs(30);
const MAX_PAUSE: SignedDuration = SignedDuration::from_mins(10);
/// The longest pause of an account, which only people can repair.
const MAX_ACCOUNT_PAUSE: SignedDuration = SignedDuration::from_hours(1);
/// Time that the other orders wait for the result of a probe.
const PROBE_WAIT: SignedDuration = SignedDuration::from_secs(10);

/// The breakers, by issuer and dependency. In memory only: all are closed after a start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breakers(BTreeMap<String, BTreeMap<Dependency, Breaker>>);

#[derive(Clone, Debug)]
struct Breaker {
    failures: u32,
    /// Certificates, or zones, for which the dependency failed.
    subjects: BTreeSet<String>,
    open_until: Timestamp,
    /// The message of the last failure, which may name hosts of its tenant.
    last: String,
    tenant: String,
}

impl Breaker {
    fn fail(
        &mut self,
        dependency: &Dependency,
        (subject, tenant): (&str, &str),
        message: &str,
        now: Timestamp,
    ) {
        self.failures = self.failures.saturating_add(1);
        if self.subjects.len() < MIN_DISTINCT {
            self.subjects.insert(subject.to_owned());
        }
        message.clone_into(&mut self.last);
        tenant.clone_into(&mut self.tenant);
        // Attempts that began before the breaker opened do not prolong the pause.
        if self.is_tripped(dependency) && now >= self.open_until {
            let longest = if *dependency == Dependency::Account {
                MAX_ACCOUNT_PAUSE
            } else {
                MAX_PAUSE
            };
            let doublings = self.failures.saturating_sub(TRIPS_AT).min(7);
            self.open_until = now + (MIN_PAUSE * 2i32.pow(doublings)).min(longest);
        }
    }

    fn is_tripped(&self, of: &Dependency) -> bool {
        let least = if *of == Dependency::Account {
            ACCOUNT_TRIPS_AT
        } else {
            TRIPS_AT
        };
        self.failures >= least && self.subjects.len() >= MIN_DISTINCT
    }
}

impl Breakers {
    /// Records how an attempt for some wanted certificates ended. Any answer of the CA closes the
    /// breaker of the CA.
    pub(crate) fn record(
        &mut self,
        id: &CertificateId,
        serves: &[Wanted],
        failure: Option<&Failure>,
        now: Timestamp,
    ) {
        let Some((issuer, tenant)) = serves
            .first()
            .map(|want| (want.issuer.as_str(), want.tenant.as_str()))
        else {
            return;
        };
        let Some(failure) = failure else {
            // A success proves that all its dependencies work.
            if let Some(breakers) = self.0.get_mut(issuer) {
                breakers
                    .retain(|dependency, _| !serves.iter().any(|want| depends(want, dependency)));
            }
            return;
        };
        let Some(dependency) = failure.dependency.as_deref() else {
            // The CA answered, or was not asked (our budget, a wrong setting): there is no evidence
            // against the CA.
            if matches!(
                failure.class,
                Class::HostFault | Class::Policy | Class::Paused | Class::Bug
            ) && let Some(breakers) = self.0.get_mut(issuer)
            {
                breakers.remove(&Dependency::Ca);
            }
            return;
        };
        let breakers = self.0.entry(issuer.to_owned()).or_default();
        if *dependency == Dependency::Account {
            // A refusal is an answer: the CA is reachable.
            breakers.remove(&Dependency::Ca);
        }
        let mut fails = |dependency: Dependency, subject: &str| {
            let breaker = breakers
                .entry(dependency.clone())
                .or_insert_with(|| Breaker {
                    failures: 0,
                    subjects: BTreeSet::new(),
                    open_until: Timestamp::MIN,
                    last: String::new(),
                    tenant: String::new(),
                });
            breaker.fail(&dependency, (subject, tenant), &failure.message, now);
        };
        match dependency {
            // A provider that fails for one zone may work for the others.
            Dependency::Provider(provider) => {
                let names = serves.iter().flat_map(|want| want.names.iter());
                let blamed = names.filter(|name| {
                    failure
                        .culprits
                        .iter()
                        .any(|culprit| culprit == name.as_str())
                });
                for name in blamed {
                    let Dependency::Zone(zone) = Dependency::zone_of(name) else {
                        continue;
                    };
                    fails(dependency.clone(), &zone);
                    fails(Dependency::ProviderOf(provider.clone(), zone), id.as_str());
                }
            }
            dependency => fails(dependency.clone(), id.as_str()),
        }
    }

    /// Removes all breakers of an issuer whose settings changed.
    pub(crate) fn forget(&mut self, issuer: &str) {
        self.0.remove(issuer);
    }

    /// Holds back orders whose dependencies have an open breaker. When a pause is over, one order
    /// per breaker goes through as the probe: the one with the fewest failures of its own. Orders
    /// that an operator asked for (`asked`) go through at once.
    pub(crate) fn hold<'a>(
        &self,
        steps: Vec<Step<'a>>,
        failures: impl Fn(&CertificateId) -> u32,
        asked: impl Fn(&CertificateId) -> bool,
        now: Timestamp,
    ) -> Vec<Step<'a>> {
        if self.0.values().all(BTreeMap::is_empty) {
            return steps;
        }
        let own = |order: &Order<'_>| {
            order
                .serves
                .iter()
                .map(|want| failures(&want.id))
                .max()
                .unwrap_or_default()
        };
        let mut probes: BTreeMap<(String, Dependency), (u32, CertificateId)> = BTreeMap::new();
        for step in &steps {
            let Step::Issue(order) = step else { continue };
            for (issuer, dependency, breaker) in self.tripped(order) {
                let found = (own(order), order.id.clone());
                if now >= breaker.open_until {
                    let key = (issuer.to_owned(), dependency.clone());
                    let probe = probes.entry(key).or_insert_with(|| found.clone());
                    if found.0 < probe.0 {
                        *probe = found;
                    }
                }
            }
        }
        let mut held = Vec::with_capacity(steps.len());
        let mut waits = Vec::new();
        for step in steps {
            let Step::Issue(order) = step else {
                held.push(step);
                continue;
            };
            let hold = self
                .tripped(&order)
                .filter_map(|(issuer, dependency, breaker)| {
                    let probe = probes.get(&(issuer.to_owned(), dependency.clone()));
                    let is_probe = probe.is_some_and(|(_, probe)| *probe == order.id);
                    let until = if now < breaker.open_until {
                        breaker.open_until
                    } else {
                        now + PROBE_WAIT
                    };
                    (!is_probe).then_some((until, (issuer, dependency, breaker)))
                });
            match hold.max_by_key(|(until, _)| *until) {
                Some((until, tripped)) if !order.serves.iter().any(|want| asked(&want.id)) => {
                    let served = order.replaces.filter(|held| held.not_after > now);
                    waits.extend(order.serves.iter().map(|wanted| Step::Wait {
                        wanted,
                        until,
                        because: sentence(tripped, &wanted.tenant),
                        served,
                    }));
                }
                _ => held.push(Step::Issue(order)),
            }
        }
        held.extend(waits);
        held
    }

    /// Returns the tripped breakers that an order depends on.
    fn tripped<'b>(
        &'b self,
        order: &'b Order<'_>,
    ) -> impl Iterator<Item = (&'b str, &'b Dependency, &'b Breaker)> + 'b {
        let of_issuer = order
            .serves
            .first()
            .and_then(|want| self.0.get_key_value(&want.issuer));
        of_issuer.into_iter().flat_map(move |(issuer, breakers)| {
            breakers
                .iter()
                .filter(move |(dependency, breaker)| {
                    breaker.is_tripped(dependency)
                        && order.serves.iter().any(|want| depends(want, dependency))
                })
                .map(move |(dependency, breaker)| (issuer.as_str(), dependency, breaker))
        })
    }
}

fn depends(want: &Wanted, dependency: &Dependency) -> bool {
    want.names.iter().any(|name| dependency.is_of(name))
}

/// Says why an order of a tenant waits. The last failure is told only to the tenant that it was
/// of.
fn sentence((issuer, dependency, breaker): (&str, &Dependency, &Breaker), tenant: &str) -> String {
    let what = match dependency {
        Dependency::Ca => format!("{issuer} does not answer"),
        Dependency::Account => format!("{issuer} refuses its account"),
        Dependency::Provider(name) => format!("the DNS provider {name} fails"),
        Dependency::ProviderOf(name, zone) => format!("the DNS provider {name} fails for {zone}"),
        Dependency::Storage => "nothing can be stored".to_owned(),
        Dependency::Zone(zone) => format!("the name servers of {zone} do not answer"),
    };
    let failures = breaker.failures;
    if breaker.tenant == tenant {
        format!("{what}, {failures} attempts in a row: {}", breaker.last)
    } else {
        format!("{what}, {failures} attempts in a row")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{DnsName, Names};
    use crate::plan::{Budgets, Held, plan};

    fn want(host: &str) -> Wanted {
        let names = Names::one(DnsName::parse(host).expect("a name"));
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

    fn hosts() -> Vec<Wanted> {
        (0..10)
            .map(|n| {
                want(&format!(
                    "h{n}.{}.example",
                    if n < 5 { "bad" } else { "good" }
                ))
            })
            .collect()
    }

    fn start() -> Timestamp {
        Timestamp::from_second(2_000_000_000).expect("a time")
    }

    /// Fails `n` times in a row, each time for the next host.
    fn fail(breakers: &mut Breakers, failure: &Failure, n: usize, now: Timestamp) {
        fail_for(breakers, &hosts(), failure, n, now);
    }

    fn fail_for(
        breakers: &mut Breakers,
        hosts: &[Wanted],
        failure: &Failure,
        n: usize,
        now: Timestamp,
    ) {
        for want in hosts.iter().cycle().take(n) {
            let failure = failure.clone().by(want.names.to_strings());
            breakers.record(&want.id, std::slice::from_ref(want), Some(&failure), now);
        }
    }

    /// Returns the hosts whose orders go through.
    fn go(breakers: &Breakers, now: Timestamp) -> Vec<String> {
        let wanted = hosts();
        let budgets = Budgets::new();
        let steps = breakers.hold(
            plan(&wanted, &[], &budgets, now),
            |id| u32::from(id.as_str().contains(".bad.")),
            |_| false,
            now,
        );
        assert_eq!(steps.len(), wanted.len());
        steps
            .iter()
            .filter_map(|step| match step {
                Step::Issue(order) => Some(order.names.first().to_string()),
                _ => None,
            })
            .collect()
    }

    fn silent(dependency: Dependency) -> Failure {
        Failure::new(Class::Transient, "no connection").with_dependency(dependency)
    }

    #[test]
    fn the_breaker_of_a_silent_ca_opens_is_probed_once_and_closes_at_the_first_answer() {
        let mut breakers = Breakers::default();
        let now = start();
        let ca = silent(Dependency::Ca);
        fail(&mut breakers, &ca, TRIPS_AT as usize - 1, now);
        assert_eq!(go(&breakers, now).len(), 10, "not yet");
        fail(&mut breakers, &ca, 1, now);
        assert_eq!(go(&breakers, now).len(), 0);
        let later = now + MIN_PAUSE;
        assert_eq!(
            go(&breakers, later),
            ["h5.good.example"],
            "one probes, that did not fail before"
        );
        fail(&mut breakers, &ca, 1, later);
        assert_eq!(
            go(&breakers, later + MIN_PAUSE).len(),
            0,
            "the next pause is longer"
        );
        fail(
            &mut breakers,
            &Failure::new(Class::HostFault, "wrong answer"),
            1,
            later,
        );
        assert_eq!(
            go(&breakers, later).len(),
            10,
            "a CA that refuses a host answers"
        );
    }

    #[test]
    fn failing_name_servers_of_a_zone_hold_up_its_hosts_alone() {
        let mut breakers = Breakers::default();
        fail(
            &mut breakers,
            &silent(Dependency::Zone("bad.example".to_owned())),
            5,
            start(),
        );
        assert_eq!(
            go(&breakers, start()),
            (5..10)
                .map(|n| format!("h{n}.good.example"))
                .collect::<Vec<_>>()
        );
        // One success proves that the name servers answer.
        let one = want("h1.bad.example");
        breakers.record(&one.id, std::slice::from_ref(&one), None, start());
        assert_eq!(go(&breakers, start()).len(), 10);
    }

    #[test]
    fn a_provider_that_fails_for_one_zone_is_asked_for_the_others() {
        let mut breakers = Breakers::default();
        let provider = silent(Dependency::Provider("rfc2136".to_owned()));
        fail_for(&mut breakers, &hosts()[..5], &provider, 20, start());
        assert_eq!(
            go(&breakers, start()),
            (5..10)
                .map(|n| format!("h{n}.good.example"))
                .collect::<Vec<_>>()
        );
        // The provider fails for another zone, too.
        fail_for(&mut breakers, &hosts()[5..6], &provider, 1, start());
        assert_eq!(go(&breakers, start()).len(), 0);
    }

    #[test]
    fn failures_of_one_host_do_not_trip_a_breaker() {
        for dependency in [Dependency::Ca, Dependency::Provider("rfc2136".to_owned())] {
            let mut breakers = Breakers::default();
            let one = want("h1.bad.example");
            fail_for(
                &mut breakers,
                std::slice::from_ref(&one),
                &silent(dependency),
                20,
                start(),
            );
            assert_eq!(go(&breakers, start()).len(), 10);
        }
        let mut breakers = Breakers::default();
        fail(
            &mut breakers,
            &Failure::new(Class::Transient, "not decided yet"),
            20,
            start(),
        );
        assert_eq!(
            go(&breakers, start()).len(),
            10,
            "whoever needs long answers"
        );
    }

    #[test]
    fn a_refused_account_is_not_asked_for_by_every_host() {
        let mut breakers = Breakers::default();
        let refused =
            Failure::new(Class::Account, "deactivated").with_dependency(Dependency::Account);
        fail(&mut breakers, &refused, 3, start());
        assert_eq!(go(&breakers, start()).len(), 0);
        breakers.forget("ca");
        assert_eq!(go(&breakers, start()).len(), 10);
    }

    #[test]
    fn the_failure_of_a_tenant_is_not_told_to_others() {
        let mut breakers = Breakers::default();
        fail(&mut breakers, &silent(Dependency::Ca), 5, start());
        let other = Wanted {
            tenant: "other".to_owned(),
            ..want("h9.good.example")
        };
        let wanted = [want("h1.bad.example"), other];
        let steps = breakers.hold(
            plan(&wanted, &[], &Budgets::new(), start()),
            |_| 0,
            |_| false,
            start(),
        );
        let mut reasons: Vec<(&str, &str)> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Wait {
                    wanted, because, ..
                } => Some((wanted.tenant.as_str(), because.as_str())),
                _ => None,
            })
            .collect();
        reasons.sort_unstable();
        let expected = [
            ("other", "ca does not answer, 5 attempts in a row"),
            (
                "t",
                "ca does not answer, 5 attempts in a row: no connection",
            ),
        ];
        assert_eq!(reasons, expected);
    }

    #[test]
    fn a_renewal_can_be_the_probe() {
        let mut breakers = Breakers::default();
        fail(&mut breakers, &silent(Dependency::Ca), 5, start());
        let wanted = hosts();
        let day = SignedDuration::from_hours(24);
        let held: Vec<Held> = wanted
            .iter()
            .map(|w| Held {
                id: w.id.clone(),
                tenant: w.tenant.clone(),
                issuer: w.issuer.clone(),
                names: w.names.clone(),
                not_before: start() - day * 80,
                not_after: start() + day * 10,
                ari_id: None,
                window: None,
                refused: false,
            })
            .collect();
        let now = start() + MIN_PAUSE;
        let steps = breakers.hold(
            plan(&wanted, &held, &Budgets::new(), now),
            |_| 0,
            |_| false,
            now,
        );
        assert_eq!(
            steps
                .iter()
                .filter(|step| matches!(step, Step::Issue(_)))
                .count(),
            1
        );
        // An order that an operator asks for goes through.
        let steps = breakers.hold(
            plan(&wanted, &held, &Budgets::new(), now),
            |_| 0,
            |id| *id == wanted[7].id,
            now,
        );
        assert_eq!(
            steps
                .iter()
                .filter(|step| matches!(step, Step::Issue(_)))
                .count(),
            2
        );
    }

    #[test]
    fn a_breaker_does_not_affect_other_issuers() {
        let mut breakers = Breakers::default();
        let other: Vec<Wanted> = hosts()
            .into_iter()
            .map(|w| Wanted {
                issuer: "other".to_owned(),
                ..w
            })
            .collect();
        for want in &other {
            breakers.record(
                &want.id,
                std::slice::from_ref(want),
                Some(&silent(Dependency::Ca)),
                start(),
            );
        }
        assert_eq!(go(&breakers, start()).len(), 10);
    }
}
