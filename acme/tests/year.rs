//! A simulated year over 5,000 hosts: validities change, the CA is down now and then, renewal
//! windows appear and move. Asserts that no certificate expires, that the CA never refuses for its
//! rate limits, and that renewals are spread.
//!
//! Without optimization it is a year over 1,000 hosts; `cargo test --release -p acme --test year`
//! simulates all of them.
//!
//! The CA of this test counts Let's Encrypt's limits by itself, event by event, so that it does not
//! share a mistake with the budget under test.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use acme::budget::{Budget, Exempt, Limits};
use acme::plan::{Budgets, Held, Step, Wanted, plan};
use acme::renewal::Window;
use acme::{CertificateId, Names};
use jiff::{SignedDuration, Timestamp};

const HOSTS: usize = if cfg!(debug_assertions) { 1000 } else { 5000 };
const TENANTS: usize = 200;
const STEP_HOURS: i64 = 6;
/// Hosts at the start; more are added each day until all are there.
const AT_FIRST: usize = HOSTS / 5 * 4;
const DAYS: i64 = 365;

fn hours(n: i64) -> SignedDuration {
    SignedDuration::from_hours(n)
}

fn start() -> Timestamp {
    "2026-11-21T00:00:00Z".parse().expect("a time")
}

/// A token bucket like Boulder's, in fractions of a token.
#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Timestamp,
}

#[derive(Default)]
struct Ca {
    buckets: HashMap<String, Bucket>,
    refused: Vec<String>,
    replaced: HashMap<String, usize>,
    serial: u64,
}

impl Ca {
    fn take(&mut self, key: String, burst: f64, per: SignedDuration, now: Timestamp) {
        let bucket = self.buckets.entry(key.clone()).or_insert(Bucket {
            tokens: burst,
            at: now,
        });
        let refill = now.duration_since(bucket.at).as_secs_f64() * burst / per.as_secs_f64();
        bucket.tokens = (bucket.tokens + refill).min(burst);
        bucket.at = now;
        if bucket.tokens < 1.0 - 1e-6 {
            self.refused.push(format!("{now} {key}"));
        } else {
            bucket.tokens -= 1.0;
        }
    }

    /// Issues a certificate, or records a refusal. The CA decides exemptions by its own knowledge.
    fn issue(
        &mut self,
        names: &Names,
        replaces: Option<&Held>,
        life: SignedDuration,
        now: Timestamp,
    ) -> Held {
        let in_window = replaces.is_some_and(|h| {
            h.window.as_ref().is_some_and(|w| w.is_open(now))
                && h.names.share_with(names)
                && !self
                    .replaced
                    .contains_key(h.ari_id.as_deref().unwrap_or_default())
        });
        let same_set = replaces.is_some_and(|h| h.names == *names);
        if !in_window {
            self.take(
                format!("set {names} {}", names.count()),
                5.0,
                hours(7 * 24),
                now,
            );
            if !same_set {
                self.take("orders".to_owned(), 300.0, hours(3), now);
                let domains: BTreeSet<_> = names.iter().map(|n| n.registered_domain()).collect();
                for domain in domains {
                    self.take(format!("domain {domain}"), 50.0, hours(7 * 24), now);
                }
            }
        }
        if let Some(id) = replaces.and_then(|h| h.ari_id.clone()) {
            *self.replaced.entry(id).or_default() += 1;
        }
        self.serial += 1;
        Held {
            id: CertificateId::parse("overwritten").expect("a name"),
            tenant: String::new(),
            issuer: "le".to_owned(),
            names: names.clone(),
            not_before: now,
            not_after: now + life,
            ari_id: Some(format!("aki.{}", self.serial)),
            window: None,
            refused: false,
        }
    }

    /// Boulder's window: a hundredth of the validity before and after two thirds of it, or half of
    /// it for short validities.
    fn window(held: &Held, now: Timestamp) -> Window {
        let life = held.not_after.duration_since(held.not_before);
        let ideal = held.not_after
            - if life < hours(240) {
                life / 2
            } else {
                life / 3
            };
        let answer = (ideal - life / 100, ideal + life / 100);
        Window::answered(
            held.window.as_ref(),
            held.ari_id.as_deref().expect("set"),
            answer,
            None,
            (held.not_before, held.not_after),
            Some(hours(6)),
            now,
        )
        .expect("a sensible window")
    }
}

fn wants() -> Vec<Wanted> {
    (0..HOSTS)
        .map(|i| {
            // Half of the hosts have a domain of their own; of the other half, 25 share a domain.
            let host = if i % 2 == 0 {
                format!("www.shop{i}.com")
            } else {
                format!("h{i}.platform{}.net", i / 50)
            };
            let names = Names::parse([host]).expect("a name");
            let tenant = format!("tenant{}", i / 50 % TENANTS);
            Wanted {
                id: CertificateId::of(&tenant, &names),
                tenant,
                issuer: "le".to_owned(),
                names,
                validity: None,
                may_share: true,
                renew_now: false,
                hold: None,
            }
        })
        .collect()
}

/// Validity of certificates: 90 days at first, then 64, 45, and 6 for the last months.
fn life(day: i64) -> SignedDuration {
    match day {
        ..100 => hours(90 * 24),
        100..200 => hours(64 * 24),
        200..300 => hours(45 * 24),
        _ => hours(160),
    }
}

/// The CA is down for two days, three times; and for half a day while certificates are valid for
/// six days.
fn is_away(day: i64, hour: i64) -> bool {
    [60, 61, 150, 151, 250, 251].contains(&day) || (day == 320 && hour < 12)
}

#[test]
fn a_year_over_all_hosts_with_renewal_windows() {
    year(true);
}

#[test]
fn a_year_over_all_hosts_without_renewal_windows() {
    year(false);
}

fn year(ari: bool) {
    let wanted = wants();
    let tenant_of: HashMap<_, _> = wanted
        .iter()
        .map(|w| (w.names.first().clone(), w.tenant.clone()))
        .collect();
    let mut held: BTreeMap<CertificateId, Held> = BTreeMap::new();
    let mut budgets = Budgets::from([("le".to_owned(), Budget::new(Limits::LETS_ENCRYPT))]);
    let mut ca = Ca::default();
    let mut all_served_at = None;
    let mut renewals: BTreeMap<i64, usize> = BTreeMap::new();
    let mut orders = 0;
    for step in 0..(DAYS * 24 / STEP_HOURS) {
        let now = start() + hours(step * STEP_HOURS);
        let day = step * STEP_HOURS / 24;
        let hour = step * STEP_HOURS % 24;
        // While validities are long, two passes a day suffice.
        if day < 300 && hour % 12 != 0 {
            continue;
        }
        fn there(day: i64) -> usize {
            (AT_FIRST + HOSTS / 500 * usize::try_from(day).unwrap_or(0)).min(HOSTS)
        }
        let wanted = &wanted[..there(day)];
        let away = is_away(day, hour);
        if ari && !away {
            for h in held.values_mut() {
                if h.window.as_ref().is_none_or(|w| w.poll_at <= now) {
                    h.window = Some(Ca::window(h, now));
                }
            }
        }
        let certificates: Vec<Held> = held.values().cloned().collect();
        let mut renewed = 0;
        if !away {
            for step in plan(wanted, &certificates, &budgets, now) {
                let order = match step {
                    Step::Issue(order) => order,
                    // Another certificate covers its names.
                    Step::Retire(h) => {
                        held.remove(&h.id);
                        continue;
                    }
                    Step::Wait { .. } | Step::Keep { .. } => continue,
                };
                let tenants: BTreeSet<_> = order.names.iter().map(|n| &tenant_of[n]).collect();
                assert_eq!(tenants.len(), 1, "names of two tenants in one certificate");
                let mut new = ca.issue(&order.names, order.replaces, life(day), now);
                budgets
                    .get_mut("le")
                    .expect("there")
                    .spend(&order.names, order.exempt, now);
                (new.id, new.tenant) = (order.id.clone(), order.serves[0].tenant.clone());
                renewed += usize::from(order.exempt != Exempt::Nothing);
                orders += 1;
                held.insert(order.id.clone(), new);
            }
        }
        *renewals.entry(day).or_default() += renewed;
        assert!(
            ca.refused.is_empty(),
            "the CA refused: {:?}",
            &ca.refused[..ca.refused.len().min(5)]
        );
        let served: HashSet<_> = held
            .values()
            .filter(|h| h.not_after > now)
            .flat_map(|h| h.names.iter())
            .collect();
        // A new host has three days: the CA may be down for two.
        let due = if day == 0 { 0 } else { there(day - 3) };
        let missing: Vec<_> = wanted[..due]
            .iter()
            .filter(|w| !served.contains(w.names.first()))
            .take(3)
            .collect();
        assert!(missing.is_empty(), "day {day}: not served: {missing:?}");
        if all_served_at.is_none() && served.len() >= AT_FIRST {
            all_served_at = Some(now);
        }
    }
    let first = all_served_at
        .expect("all hosts got a certificate")
        .duration_since(start())
        .as_hours();
    assert!(first <= 24, "the first certificates took {first} hours");
    assert!(
        orders > 5 * held.len(),
        "{orders} orders for {} certificates",
        held.len()
    );
    // Certificates of 45 days and more, renewed at about 30 days: the share of a day is a
    // thirtieth. The day after an outage of the CA has the work of three days.
    let busiest = renewals
        .range(100..300)
        .map(|(_, n)| *n)
        .max()
        .expect("there are renewals");
    assert!(
        busiest * 4 < held.len(),
        "{busiest} renewals of {} within a day",
        held.len()
    );
}
