//! The keeper's main loop: plans again whenever something changes, and carries the plan out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until};

use super::job::{Going, Job};
use super::pass::{Outlook, Pass};
use super::wanted_certificates::WantedCertificates;
use super::{Keeper, LONGEST_SLEEP};
use crate::issuer::CertificateId;
use crate::plan::{Order, Progress, Step, Wanted};

/// While jobs end, plan and report are renewed this often.
const PROGRESS: Duration = Duration::from_secs(1);
/// Time for which an unclaimed order is kept: a removed host may be back in a moment.
const GRACE: Duration = Duration::from_secs(2);
/// Inverse of the greatest share of the time that planning may take: a plan covers everything, however often something
/// changes.
const PART: u32 = 20;

impl Keeper {
    /// Gives up an order that is no longer wanted: its authorizations, its key and its DNS records.
    async fn give_up(&self, issuer: String, id: CertificateId) {
        let Some(issuer) = self.issuer(&issuer) else { return };
        if let Err(failure) = issuer.abandon(&id).await {
            tracing::warn!(%id, issuer = issuer.name(), %failure, "cannot give up an unwanted order now");
        }
    }

    /// Obtains wanted certificates whenever something is wanted anew, is due, or was asked for, until `stop` is true. A
    /// slow order delays no other: at most `at_once` jobs run at a time, and each plan leaves those alone.
    pub async fn run(
        self: &Arc<Self>,
        wanted_certificates: &WantedCertificates,
        report: watch::Sender<Arc<Pass>>,
        stop: watch::Receiver<bool>,
    ) {
        let mut going = Going::default();
        self.keep(wanted_certificates, report, stop, &mut going).await;
        going.end().await;
    }

    async fn keep(
        self: &Arc<Self>,
        wanted_certificates: &WantedCertificates,
        report: watch::Sender<Arc<Pass>>,
        mut stop: watch::Receiver<bool>,
        going: &mut Going,
    ) {
        let mut upkeep = FuturesUnordered::new();
        let mut giving_up = FuturesUnordered::new();
        let mut busy: BTreeMap<CertificateId, Flight> = BTreeMap::new();
        let mut doubts = Doubts::default();
        let mut queue: VecDeque<Job> = VecDeque::new();
        let mut pass = Pass::default();
        let mut next_plan = Instant::now();
        let mut soonest = Instant::now();
        let mut nudges = self.nudge.subscribe();
        let mut wants = wanted_certificates.changes();
        while !*stop.borrow() {
            let start = Instant::now();
            if start >= next_plan {
                let now = Timestamp::now();
                wants.mark_unchanged();
                let wanted = self.with_holds(wanted_certificates.read().values(), now);
                busy.retain(|id, flight| {
                    let is_wanted = |id| wanted.binary_search_by(|want| want.id.cmp(id)).is_ok();
                    let serves = flight.serves.iter().any(is_wanted);
                    if !serves {
                        going.give_up(id);
                        doubts.claim(&flight.issuer, id);
                    }
                    serves
                });
                let held = self.held();
                let (budgets, progress) = (self.budgets(), self.progress());
                let steps = self.decide(&wanted, &held, &progress, &budgets, now);
                let (gone, look_again) = doubts.gone(&progress, &wanted, &busy, start);
                for (issuer, id) in gone {
                    giving_up.push(self.give_up(issuer, id));
                }
                let is_busy = |order: &&Order<'_>| {
                    busy.contains_key(&order.id)
                        || order.serves.iter().any(|w| busy.values().any(|flight| flight.serves.contains(&w.id)))
                };
                let orders =
                    || steps.iter().filter_map(|s| if let Step::Issue(order) = s { Some(&**order) } else { None });
                queue = orders().filter(|order| !is_busy(order)).map(Job::of).collect();
                if upkeep.is_empty() {
                    let known: BTreeSet<_> =
                        wanted.iter().map(|w| &w.id).chain(orders().map(|o| &o.id)).cloned().collect();
                    upkeep.push(async move {
                        self.tidy(known, now).await;
                        self.poll_windows(now).await
                    });
                }
                pass.retired = steps
                    .iter()
                    .filter_map(|s| if let Step::Retire(h) = s { Some(h.id.clone()) } else { None })
                    .collect();
                pass.outlook = self.outlook(&steps, now);
                pass.next = self.next(&pass.outlook, now);
                let next = pass.next.unwrap_or(now + LONGEST_SLEEP);
                let told = Arc::new(std::mem::take(&mut pass));
                let before = report.send_replace(told.clone());
                self.tell(differences(&before.outlook, &told.outlook));
                let sleep = next.duration_since(now).clamp(SignedDuration::from_secs(1), LONGEST_SLEEP);
                next_plan = Instant::now() + Duration::try_from(sleep).unwrap_or(PROGRESS);
                next_plan = next_plan.min(look_again.unwrap_or(next_plan));
                soonest = Instant::now() + start.elapsed() * (PART - 1);
            }
            while let Some(job) = going.admit(&mut queue, self.at_once) {
                let serves = job.serves.iter().map(|w| w.id.clone()).collect();
                busy.insert(job.id.clone(), Flight { issuer: job.serves[0].issuer.clone(), serves });
                going.begin(self, job, Timestamp::now());
            }
            tokio::select! {
                Some((id, result)) = going.next() => {
                    busy.remove(&id);
                    match result {
                        Ok(true) => pass.issued.push(id),
                        Ok(false) => {}
                        Err(failure) => pass.failed.push((id, failure)),
                    }
                    let soon = if queue.is_empty() && busy.is_empty() { Duration::ZERO } else { PROGRESS };
                    next_plan = next_plan.min((Instant::now() + soon).max(soonest));
                }
                Some(moved) = upkeep.next(), if !upkeep.is_empty() => {
                    if moved {
                        next_plan = soonest;
                    }
                }
                Some(()) = giving_up.next(), if !giving_up.is_empty() => {}
                changed = wants.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    next_plan = soonest;
                }
                // `self` holds the sender, so that this never fails.
                _ = nudges.changed() => next_plan = soonest,
                () = sleep_until(next_plan) => {}
                _ = stop.changed() => return,
            }
        }
    }
}

/// A running job: its issuer, and the wanted certificates that it serves.
struct Flight {
    issuer: String,
    serves: Vec<CertificateId>,
}

/// Orders that are no longer claimed by a wanted certificate, by issuer.
#[derive(Default)]
struct Doubts {
    /// Orders that were claimed since the start; at the start not all wanted certificates may be known.
    claimed: BTreeSet<(String, CertificateId)>,
    /// Time since which an order is unclaimed.
    since: BTreeMap<(String, CertificateId), Instant>,
}

impl Doubts {
    /// Records that an order was claimed.
    fn claim(&mut self, issuer: &str, id: &CertificateId) {
        self.claimed.insert((issuer.to_owned(), id.clone()));
    }

    /// Returns the orders to give up, and the time to check the others again. A name that is removed and comes back at
    /// once, as when it is renamed or moved to another file, keeps its order.
    fn gone(
        &mut self,
        progress: &Progress,
        wanted: &[Wanted],
        busy: &BTreeMap<CertificateId, Flight>,
        now: Instant,
    ) -> (Vec<(String, CertificateId)>, Option<Instant>) {
        if progress.underway.values().all(BTreeMap::is_empty) {
            self.since.clear();
            return (Vec::new(), None);
        }
        let key = |issuer: &str, id: &CertificateId| (issuer.to_owned(), id.clone());
        let unclaimed = progress.unclaimed(wanted).into_iter();
        let mut doubtful: BTreeSet<_> = unclaimed.map(|(issuer, order)| key(issuer, &order.id)).collect();
        let all = progress.underway.iter().flat_map(|(issuer, orders)| orders.keys().map(|id| key(issuer, id)));
        self.claimed.extend(all.filter(|order| !doubtful.contains(order)));
        // An order whose job still serves a wanted certificate is not given up.
        for (id, flight) in busy {
            doubtful.remove(&key(&flight.issuer, id));
        }
        self.since.retain(|order, _| doubtful.contains(order));
        for order in doubtful.into_iter().filter(|order| self.claimed.contains(order)) {
            self.since.entry(order).or_insert(now);
        }
        let gone: Vec<_> = self.since.extract_if(.., |_, at| now >= *at + GRACE).map(|(order, _)| order).collect();
        self.claimed.retain(|order| !gone.contains(order));
        (gone, self.since.values().min().map(|at| *at + GRACE))
    }
}

/// Returns the certificates whose outlook differs; both lists are sorted by name. The time of the next step changes
/// with every plan and is not compared.
fn differences(before: &[Outlook], after: &[Outlook]) -> Vec<CertificateId> {
    let says = |line: &Outlook| (line.next.clone(), line.last_error.clone(), line.notice.clone());
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    let mut all = Vec::new();
    loop {
        match (old.peek(), new.peek()) {
            (Some(a), Some(b)) if a.id == b.id => {
                if says(a) != says(b) {
                    all.push(b.id.clone());
                }
                old.next();
                new.next();
            }
            (Some(a), Some(b)) if a.id < b.id => all.extend(old.next().map(|a| a.id.clone())),
            (Some(a), None) => {
                all.push(a.id.clone());
                old.next();
            }
            (_, Some(b)) => {
                all.push(b.id.clone());
                new.next();
            }
            (None, None) => return all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issuer::Underway;
    use crate::keeper::Next;
    use crate::names::Names;

    fn line(name: &str, last_error: Option<&str>) -> Outlook {
        let names = Names::parse([name]).expect("a name");
        let id = CertificateId::of("t", &names);
        let last_error = last_error.map(str::to_owned);
        let (tenant, issuer) = ("t".to_owned(), "i".to_owned());
        Outlook {
            id,
            tenant,
            names,
            issuer,
            expires: None,
            next: Next::Renew,
            at: Timestamp::UNIX_EPOCH,
            last_error,
            notice: None,
        }
    }

    #[test]
    fn an_order_is_given_up_once_nobody_wants_it_and_somebody_did() {
        let want = |host: &str, issuer: &str| {
            let names = Names::parse([host]).expect("a name");
            let (id, tenant, issuer) = (CertificateId::of("t", &names), "t".to_owned(), issuer.to_owned());
            let (validity, may_share, renew_now, hold) = (None, true, false, None);
            Wanted { id, tenant, issuer, names, validity, may_share, renew_now, hold }
        };
        let (a, b) = (want("a.example", "ca"), want("b.example", "ca"));
        let order = |w: &Wanted| Underway { id: w.id.clone(), names: w.names.clone(), placed: true };
        let orders = [&a, &b].map(|w| (w.id.clone(), order(w)));
        let underway = BTreeMap::from([("ca".to_owned(), BTreeMap::from(orders))]);
        let progress = Progress { underway, ..Progress::default() };
        let (mut doubts, start, none) = (Doubts::default(), Instant::now(), BTreeMap::new());
        let mut gone = |wanted: &[Wanted], seconds| {
            let (gone, again) = doubts.gone(&progress, wanted, &none, start + Duration::from_secs(seconds));
            (gone.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), again.is_some())
        };
        // At the start `b` is not known yet.
        assert_eq!(gone(std::slice::from_ref(&a), 0), (vec![], false));
        assert_eq!(gone(std::slice::from_ref(&a), 60), (vec![], false));
        assert_eq!(gone(&[a.clone(), b.clone()], 61), (vec![], false));
        assert_eq!(gone(std::slice::from_ref(&b), 62), (vec![], true));
        assert_eq!(gone(&[a.clone(), b.clone()], 63), (vec![], false), "it was back in time");
        // A host that moved to another issuer does not claim the order of the first.
        let other = want("a.example", "other");
        assert_eq!(gone(&[other.clone(), b.clone()], 70), (vec![], true));
        assert_eq!(gone(&[other, b], 73), (vec![a.id.clone()], false));
    }

    #[test]
    fn only_lines_that_say_something_else_are_told() {
        let sorted = |mut lines: Vec<Outlook>| {
            lines.sort_by(|a, b| a.id.cmp(&b.id));
            lines
        };
        let before = sorted(vec![line("a.example", None), line("b.example", None), line("c.example", None)]);
        let mut later = line("c.example", None);
        later.at = Timestamp::now();
        let after = sorted(vec![line("b.example", Some("no")), later, line("d.example", None)]);
        let told: Vec<String> = differences(&before, &after).iter().map(|id| id.as_str()[..9].to_owned()).collect();
        assert_eq!(told, ["a.example", "b.example", "d.example"]);
        assert!(differences(&after, &after).is_empty());
    }
}
