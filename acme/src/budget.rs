//! The budget of an account: which of the CA's rate limits are spent, and when the next order may
//! be placed.
//!
//! Each limit is a token bucket stored as one point in time (the "theoretical arrival time" of
//! GCRA), so that the whole ledger is small enough to be persisted after each order. The limits are
//! the CA's published ones; a 429 answer overrules them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::names::{DnsName, Names};

mod limits;
mod scope;

pub use limits::{Limits, Rate, Requests};
pub use scope::{Endpoint, Scope};

/// Bounds for range queries: scopes are ordered by kind, and these are the first of sets of names
/// and of failures.
const NO_SET: Scope = Scope::Set(String::new());
const NO_FAILURES: Scope = Scope::Failures(String::new());

/// The limits that an order is exempt from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exempt {
    /// Exempt from nothing: a first certificate, or one for other names.
    Nothing,
    /// A renewal of the same names without ARI: counts against the limit of the exact set only.
    Renewal,
    /// A renewal within its ARI window: exempt from all limits.
    Ari,
}

/// The part of a bucket that an order must leave to more urgent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// An ordinary order leaves a tenth for emergencies and a tenth for operators.
    Ordinary,
    /// An order that an operator asked for leaves the tenth for emergencies.
    Forced,
    /// An order for a certificate that is about to expire or is revoked: leaves nothing.
    Emergency,
}

impl Reserve {
    fn kept(self, rate: Rate) -> u32 {
        match self {
            Self::Ordinary => 2 * (rate.burst / 10),
            Self::Forced => rate.burst / 10,
            Self::Emergency => 0,
        }
    }
}

/// The limit that an order, account or request must wait for, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The limit.
    pub scope: Scope,
    /// Time of the next slot.
    pub until: Timestamp,
    /// True if the CA said so itself (429 with `Retry-After`), false if our own count says so.
    pub by_ca: bool,
    /// Tokens that are left but reserved for more urgent orders.
    pub reserved: u32,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let who = if self.by_ca {
            "the CA limits"
        } else {
            "the budget is spent for"
        };
        write!(f, "{who} {}", self.scope)?;
        if self.reserved > 0 {
            write!(
                f,
                ", but for {} that are reserved for certificates about to end and for `certs renew`",
                self.reserved
            )?;
        }
        write!(f, "; next slot {}", self.until)
    }
}

/// The ledger of one account at one CA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The limits.
    pub limits: Limits,
    /// By scope, the time at which its bucket is full again.
    full_at: BTreeMap<Scope, Timestamp>,
    /// By scope, the time until which the CA refuses, from its 429 answers.
    #[serde(rename = "told")]
    refused_until: BTreeMap<Scope, Timestamp>,
}

impl Budget {
    /// Makes a budget of which nothing is spent.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            full_at: BTreeMap::new(),
            refused_until: BTreeMap::new(),
        }
    }

    /// Returns Ok if an order for these names may be placed now, else the limit to wait for.
    pub fn admits(
        &self,
        names: &Names,
        exempt: Exempt,
        reserve: Reserve,
        now: Timestamp,
    ) -> Result<(), Wait> {
        self.wait(names, exempt, Some(reserve), now)
    }

    /// Like [`Self::admits`], for an order that is counted already: only a 429 of the CA holds it
    /// up.
    pub fn admits_counted(
        &self,
        names: &Names,
        exempt: Exempt,
        now: Timestamp,
    ) -> Result<(), Wait> {
        self.wait(names, exempt, None, now)
    }

    /// Returns the longest wait. `reserve` is `None` for an order that is counted already.
    fn wait(
        &self,
        names: &Names,
        exempt: Exempt,
        reserve: Option<Reserve>,
        now: Timestamp,
    ) -> Result<(), Wait> {
        let mut longest: Option<Wait> = None;
        let mut hold = |scope: &Scope, rate: Option<Rate>, kept: u32| {
            let refused = self.refused_until.get(scope).copied().filter(|t| *t > now);
            let ours = rate
                .filter(|_| reserve.is_some())
                .and_then(|r| self.slot(scope, r, kept, now));
            for (until, by_ca) in [(refused, true), (ours, false)] {
                if let Some(until) = until
                    && longest.as_ref().is_none_or(|w| w.until < until)
                {
                    let left = if by_ca || kept == 0 {
                        0
                    } else {
                        self.left(scope, now).unwrap_or_default()
                    };
                    longest = Some(Wait {
                        scope: scope.clone(),
                        until,
                        by_ca,
                        reserved: left.min(kept),
                    });
                }
            }
        };
        fn kept(rate: Option<Rate>, reserve: &Option<Reserve>) -> u32 {
            rate.zip(*reserve)
                .map_or(0, |(rate, reserve)| reserve.kept(rate))
        }
        hold(&Scope::Requests(Endpoint::NewOrder), None, 0);
        if exempt == Exempt::Nothing {
            hold(
                &Scope::Orders,
                self.limits.orders,
                kept(self.limits.orders, &reserve),
            );
            if self.limits.domain.is_some() || !self.refused_until.is_empty() {
                for domain in domains(names) {
                    hold(
                        &Scope::Domain(domain.to_owned()),
                        self.limits.domain,
                        kept(self.limits.domain, &reserve),
                    );
                }
            }
        }
        // The scope of a set of names is expensive to make: it is looked up only where something of
        // its kind is counted.
        if exempt != Exempt::Ari && self.counts(&NO_SET, &NO_FAILURES) {
            hold(&Scope::set(names), self.limits.set, 0);
        }
        if self.counts(&NO_FAILURES, &Scope::Accounts) {
            for name in names.iter() {
                hold(
                    &Scope::Failures(name.base().to_owned()),
                    self.limits.failures,
                    0,
                );
                hold(
                    &Scope::InARow(name.base().to_owned()),
                    self.limits.in_a_row,
                    0,
                );
            }
        }
        longest.map_or(Ok(()), Err)
    }

    /// Counts an order that was placed.
    pub fn spend(&mut self, names: &Names, exempt: Exempt, now: Timestamp) {
        if exempt == Exempt::Nothing {
            self.take(Scope::Orders, self.limits.orders, now);
            if self.limits.domain.is_some() {
                for domain in domains(names) {
                    self.take(Scope::Domain(domain.to_owned()), self.limits.domain, now);
                }
            }
        }
        if exempt != Exempt::Ari && self.limits.set.is_some() {
            self.take(Scope::set(names), self.limits.set, now);
        }
    }

    /// Takes back the count of an order that the CA refused: the CA does not count it either.
    pub fn refund(&mut self, names: &Names, exempt: Exempt) {
        if exempt == Exempt::Nothing {
            back(Scope::Orders, self.limits.orders, &mut self.full_at);
        }
        self.refund_certificates(names, exempt);
    }

    /// Takes back the count of the certificates of an order that ended without one: a CA counts
    /// the certificates of a domain, and of a set of names, when it issues them.
    pub fn refund_certificates(&mut self, names: &Names, exempt: Exempt) {
        if exempt == Exempt::Nothing {
            for domain in domains(names) {
                back(
                    Scope::Domain(domain.to_owned()),
                    self.limits.domain,
                    &mut self.full_at,
                );
            }
        }
        if exempt != Exempt::Ari {
            back(Scope::set(names), self.limits.set, &mut self.full_at);
        }
    }

    /// Counts a failed authorization.
    pub fn spend_failure(&mut self, name: &DnsName, now: Timestamp) {
        self.take(
            Scope::Failures(name.base().to_owned()),
            self.limits.failures,
            now,
        );
        self.take(
            Scope::InARow(name.base().to_owned()),
            self.limits.in_a_row,
            now,
        );
    }

    /// Records that authorizations for all of these names succeeded. Returns true if the record of
    /// an earlier failure was removed.
    pub fn proven(&mut self, names: &Names) -> bool {
        if !self.counts(&NO_FAILURES, &Scope::Accounts) {
            return false;
        }
        let before = self.full_at.len();
        for name in names.iter() {
            self.full_at.remove(&Scope::InARow(name.base().to_owned()));
        }
        self.full_at.len() < before
    }

    /// Counts a new account; returns the wait if none may be made now.
    pub(crate) fn spend_account(&mut self, now: Timestamp) -> Result<(), Wait> {
        self.check(&Scope::Accounts, self.limits.accounts, now)?;
        self.take(Scope::Accounts, self.limits.accounts, now);
        Ok(())
    }

    /// Counts the next request and returns when it may be sent; returns the wait if the CA refuses
    /// requests until then.
    pub(crate) fn spend_request(
        &mut self,
        endpoint: Endpoint,
        now: Timestamp,
    ) -> Result<Timestamp, Wait> {
        let scope = Scope::Requests(endpoint);
        let rate = self.limits.requests.of(endpoint);
        self.check(&scope, None, now)?;
        let at = rate
            .and_then(|r| self.slot(&scope, r, 0, now))
            .unwrap_or(now);
        self.take(scope, rate, now);
        Ok(at)
    }

    /// Merges the ledger of our address into this one: the entries that an order may have to wait
    /// for.
    pub(crate) fn with_address(mut self, address: &Self) -> Self {
        let accounts = address.full_at.get_key_value(&Scope::Accounts);
        self.full_at
            .extend(accounts.map(|(scope, at)| (scope.clone(), *at)));
        self.refused_until.extend(
            address
                .refused_until
                .iter()
                .map(|(scope, at)| (scope.clone(), *at)),
        );
        self
    }

    fn check(&self, scope: &Scope, rate: Option<Rate>, now: Timestamp) -> Result<(), Wait> {
        let refused = self.refused_until.get(scope).copied().filter(|t| *t > now);
        let ours = rate.and_then(|r| self.slot(scope, r, 0, now));
        match refused.max(ours) {
            Some(until) => Err(Wait {
                scope: scope.clone(),
                until,
                by_ca: refused == Some(until),
                reserved: 0,
            }),
            None => Ok(()),
        }
    }

    /// Returns true if anything is counted or refused by the CA in a range of scopes.
    fn counts(&self, from: &Scope, to: &Scope) -> bool {
        [&self.full_at, &self.refused_until]
            .iter()
            .any(|map| map.range(from..to).next().is_some())
    }

    /// Records that the CA refuses until `until`, as it says in an answer. Overrules our own count.
    pub fn refuse_until(&mut self, scope: Scope, until: Timestamp) {
        let known = self.refused_until.entry(scope).or_insert(until);
        *known = (*known).max(until);
    }

    /// Removes entries that are in the past; called before the budget is persisted.
    pub fn prune(&mut self, now: Timestamp) {
        self.full_at.retain(|_, t| *t > now);
        self.refused_until.retain(|_, t| *t > now);
    }

    /// Returns true if nothing is counted any more, so that the budget equals a new one.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.full_at
            .values()
            .chain(self.refused_until.values())
            .all(|t| *t <= now)
    }

    /// Returns the tokens that are left of a limit; `None` where there is no limit.
    pub fn left(&self, scope: &Scope, now: Timestamp) -> Option<u32> {
        if self.refused_until.get(scope).is_some_and(|t| *t > now) {
            return Some(0);
        }
        let rate = self.rate(scope)?;
        let Some(full_at) = self.full_at.get(scope).filter(|t| **t > now) else {
            return Some(rate.burst);
        };
        let missing = full_at.duration_since(now).as_secs_f64() / rate.interval().as_secs_f64();
        Some(rate.burst.saturating_sub(missing.ceil() as u32))
    }

    /// Returns the number of ordinary orders that a limit still allows.
    pub(crate) fn ordinary(&self, scope: &Scope, now: Timestamp) -> usize {
        match (self.left(scope, now), self.rate(scope)) {
            (None, _) | (_, None) => usize::MAX,
            (Some(left), Some(rate)) => left.saturating_sub(Reserve::Ordinary.kept(rate)) as usize,
        }
    }

    /// Returns all limits of which something is spent, or that the CA stated.
    pub fn report(&self, now: Timestamp) -> Vec<LimitReport> {
        let scopes: std::collections::BTreeSet<_> = self
            .full_at
            .iter()
            .chain(&self.refused_until)
            .filter(|(_, t)| **t > now)
            .map(|(s, _)| s.clone())
            .collect();
        scopes
            .into_iter()
            .map(|scope| {
                let rate = self.rate(&scope);
                let refused = self.refused_until.get(&scope).copied().filter(|t| *t > now);
                let kept = rate
                    .filter(|_| scope.has_reserve())
                    .map_or(0, |rate| Reserve::Ordinary.kept(rate));
                let next = refused.or_else(|| rate.and_then(|r| self.slot(&scope, r, kept, now)));
                let left = self.left(&scope, now);
                LimitReport {
                    left,
                    reserved: left.unwrap_or_default().min(kept),
                    burst: rate.map(|r| r.burst),
                    next,
                    scope,
                }
            })
            .collect()
    }

    fn rate(&self, scope: &Scope) -> Option<Rate> {
        match scope {
            Scope::Orders => self.limits.orders,
            Scope::Domain(_) => self.limits.domain,
            Scope::Set(_) => self.limits.set,
            Scope::Failures(_) => self.limits.failures,
            Scope::InARow(_) => self.limits.in_a_row,
            Scope::Accounts => self.limits.accounts,
            Scope::Requests(endpoint) => self.limits.requests.of(*endpoint),
        }
    }

    /// Returns the time at which a bucket holds one token more than `kept`; None if it does now.
    fn slot(&self, scope: &Scope, rate: Rate, kept: u32, now: Timestamp) -> Option<Timestamp> {
        let full_at = *self.full_at.get(scope)?;
        // Full minus (burst - kept - 1) tokens is the earliest time at which that token is
        // available.
        let spare =
            i32::try_from(rate.burst.saturating_sub(kept.saturating_add(1))).unwrap_or(i32::MAX);
        let at = full_at - rate.interval() * spare;
        (at > now).then_some(at)
    }

    fn take(&mut self, scope: Scope, rate: Option<Rate>, now: Timestamp) {
        let Some(rate) = rate else { return };
        let full_at = self.full_at.entry(scope).or_insert(now);
        *full_at = (*full_at).max(now) + rate.interval();
    }
}

fn back(scope: Scope, rate: Option<Rate>, full_at: &mut BTreeMap<Scope, Timestamp>) {
    if let (Some(rate), Some(at)) = (rate, full_at.get_mut(&scope)) {
        *at -= rate.interval();
    }
}

/// One limit, as `gatewright certs` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitReport {
    /// The limit.
    pub scope: Scope,
    /// Tokens that are left; None where the limit is not known.
    pub left: Option<u32>,
    /// Of these, tokens reserved for emergencies and for operators.
    pub reserved: u32,
    /// Size of the bucket; None where the limit is not known.
    pub burst: Option<u32>,
    /// Time at which a token that is not reserved is available; None if there is one now.
    pub next: Option<Timestamp>,
}

fn domains(names: &Names) -> std::collections::BTreeSet<&str> {
    names.iter().map(DnsName::registered_domain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + seconds).expect("in range")
    }

    fn host(i: usize) -> Names {
        Names::parse([format!("h{i}.example{i}.com")]).expect("a name")
    }

    #[test]
    fn three_hundred_orders_and_then_one_each_36_seconds() {
        let mut budget = Budget::new(Limits::LETS_ENCRYPT);
        let mut placed = 0;
        while budget
            .admits(&host(placed), Exempt::Nothing, Reserve::Emergency, at(0))
            .is_ok()
        {
            budget.spend(&host(placed), Exempt::Nothing, at(0));
            placed += 1;
        }
        assert_eq!(placed, 300);
        let wait = budget
            .admits(&host(300), Exempt::Nothing, Reserve::Emergency, at(0))
            .expect_err("spent");
        assert_eq!(wait.scope, Scope::Orders, "the limit of orders is used up");
        assert_eq!(wait.until, at(36), "until an order is refilled");
        assert!(
            budget
                .admits(&host(300), Exempt::Nothing, Reserve::Emergency, at(36))
                .is_ok()
        );
        assert_eq!(budget.left(&Scope::Orders, at(36)), Some(1));
        assert_eq!(budget.left(&Scope::Orders, at(3 * 3600)), Some(300));
    }

    #[test]
    fn ordinary_work_leaves_a_reserve_for_operators_and_emergencies() {
        let mut budget = Budget::new(Limits::LETS_ENCRYPT);
        let mut counts = Vec::new();
        let mut placed = 0;
        for reserve in [Reserve::Ordinary, Reserve::Forced, Reserve::Emergency] {
            while budget
                .admits(&host(placed), Exempt::Nothing, reserve, at(0))
                .is_ok()
            {
                budget.spend(&host(placed), Exempt::Nothing, at(0));
                placed += 1;
            }
            counts.push(placed);
        }
        assert_eq!(counts, [240, 270, 300]);
    }

    #[test]
    fn a_renewal_counts_less_and_an_ari_renewal_not_at_all() {
        let mut budget = Budget::new(Limits::LETS_ENCRYPT);
        for _ in 0..5 {
            budget.spend(&host(1), Exempt::Renewal, at(0));
        }
        assert_eq!(budget.left(&Scope::Orders, at(0)), Some(300));
        let wait = budget
            .admits(&host(1), Exempt::Renewal, Reserve::Ordinary, at(0))
            .expect_err("five a week");
        assert!(matches!(wait.scope, Scope::Set(_)));
        assert!(
            budget
                .admits(&host(1), Exempt::Ari, Reserve::Ordinary, at(0))
                .is_ok()
        );
    }

    #[test]
    fn a_limit_stated_by_the_ca_overrules_our_count_and_is_persisted() {
        let mut budget = Budget::new(Limits::UNKNOWN);
        budget.refuse_until(Scope::Domain("example1.com".to_owned()), at(500));
        let budget: Budget =
            serde_json::from_str(&serde_json::to_string(&budget).expect("writes")).expect("reads");
        let wait = budget
            .admits(&host(1), Exempt::Nothing, Reserve::Emergency, at(0))
            .expect_err("told");
        assert!(wait.by_ca && wait.until == at(500));
        assert!(wait.to_string().contains("example1.com"));
        assert!(
            budget
                .admits(&host(2), Exempt::Nothing, Reserve::Ordinary, at(0))
                .is_ok()
        );
        assert!(
            budget
                .admits(&host(1), Exempt::Nothing, Reserve::Ordinary, at(500))
                .is_ok()
        );
    }

    #[test]
    fn an_order_that_was_refused_is_not_counted() {
        for exempt in [Exempt::Nothing, Exempt::Renewal, Exempt::Ari] {
            let mut budget = Budget::new(Limits::LETS_ENCRYPT);
            budget.spend(&host(1), Exempt::Nothing, at(0));
            let before = budget.clone();
            budget.spend(&host(1), exempt, at(0));
            budget.refund(&host(1), exempt);
            assert_eq!(budget, before, "{exempt:?}");
        }
    }

    #[test]
    fn hosts_of_one_registered_domain_share_its_limit() {
        let mut budget = Budget::new(Limits::LETS_ENCRYPT);
        for i in 0..50 {
            let names = Names::parse([format!("h{i}.example.co.uk")]).expect("a name");
            budget.spend(&names, Exempt::Nothing, at(0));
        }
        let next = Names::parse(["other.example.co.uk"]).expect("a name");
        let wait = budget
            .admits(&next, Exempt::Nothing, Reserve::Emergency, at(0))
            .expect_err("spent");
        assert_eq!(wait.scope, Scope::Domain("example.co.uk".to_owned()));
        assert_eq!(wait.until, at(12096));
    }

    #[test]
    fn a_name_that_failed_eleven_hundred_times_in_a_row_waits_until_a_success() {
        let mut budget = Budget::new(Limits {
            failures: None,
            ..Limits::LETS_ENCRYPT
        });
        let names = host(1);
        for _ in 0..1151 {
            budget.spend_failure(names.first(), at(0));
        }
        assert!(
            budget
                .admits(&names, Exempt::Ari, Reserve::Emergency, at(0))
                .is_ok()
        );
        budget.spend_failure(names.first(), at(0));
        let wait = budget
            .admits(&names, Exempt::Ari, Reserve::Emergency, at(0))
            .expect_err("paused");
        assert_eq!(
            wait.scope.clone(),
            Scope::InARow("h1.example1.com".to_owned()),
            "the failures of the name count"
        );
        assert_eq!(wait.until, at(24 * 3600), "it waits a day");
        assert!(
            wait.to_string()
                .contains("in a row, after which the CA pauses it"),
            "{wait}"
        );
        assert!(
            budget
                .admits(&host(2), Exempt::Nothing, Reserve::Ordinary, at(0))
                .is_ok(),
            "another name"
        );
        let mut budget: Budget =
            serde_json::from_str(&serde_json::to_string(&budget).expect("writes")).expect("reads");
        assert!(
            budget
                .admits(&names, Exempt::Ari, Reserve::Emergency, at(0))
                .is_err()
        );
        assert!(budget.proven(&names) && !budget.proven(&names));
        assert!(
            budget
                .admits(&names, Exempt::Ari, Reserve::Emergency, at(0))
                .is_ok()
        );
    }

    #[test]
    fn ten_accounts_from_one_address_and_then_one_each_eighteen_minutes() {
        let mut budget = Budget::new(Limits::LETS_ENCRYPT);
        let made = std::iter::from_fn(|| budget.spend_account(at(0)).ok())
            .take(100)
            .count();
        assert_eq!(made, 10);
        let wait = budget.spend_account(at(0)).expect_err("spent");
        assert_eq!(
            wait.scope,
            Scope::Accounts,
            "the limit of accounts is used up"
        );
        assert_eq!(wait.until, at(18 * 60), "until an account is refilled");
        let shown = Budget::new(Limits::LETS_ENCRYPT)
            .with_address(&budget)
            .report(at(0));
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert_eq!(
            shown[0].scope,
            Scope::Accounts,
            "the limit is that of accounts"
        );
        assert_eq!(shown[0].left, Some(0), "nothing of it is left");
        assert_eq!(shown[0].burst, Some(10), "its burst is shown");
    }

    #[test]
    fn requests_beyond_the_burst_are_spaced_and_retry_after_is_obeyed() {
        let mut budget = Budget::new(Limits::LETS_ENCRYPT);
        let sent: Vec<i64> = (0..14)
            .map(|_| {
                budget
                    .spend_request(Endpoint::NewNonce, at(0))
                    .expect("nothing was told")
            })
            .map(|t| t.duration_since(at(0)).as_millis() as i64)
            .collect();
        assert_eq!(sent[..10], [0; 10]);
        assert_eq!(sent[10..], [50, 100, 150, 200]);
        budget.refuse_until(Scope::Requests(Endpoint::NewOrder), at(60));
        assert_eq!(
            budget
                .spend_request(Endpoint::NewOrder, at(0))
                .expect_err("told")
                .until,
            at(60)
        );
        let wait = budget
            .admits(&host(1), Exempt::Ari, Reserve::Emergency, at(0))
            .expect_err("told");
        assert_eq!(
            wait.to_string(),
            format!(
                "the CA limits requests to new-order from this address; next slot {}",
                at(60)
            )
        );
        assert!(budget.spend_request(Endpoint::NewOrder, at(60)).is_ok());
    }
}
