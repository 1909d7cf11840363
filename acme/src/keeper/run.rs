//! The keeper's main loop: plans again whenever something changes, and carries the plan out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until};

use super::job::{Job, RunningJobs};
use super::pass::{Outlook, Pass};
use super::{Keeper, MAX_SLEEP};
use crate::issuer::CertificateId;
use crate::plan::{Order, Progress, Step, Wanted};

/// While jobs end, plan and report are renewed this often.
const REPLAN_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which an unclaimed order is kept: a removed host may be back in a moment.
const UNCLAIMED_GRACE: Duration = Duration::from_secs(2);
/// Inverse of the greatest share of the time that planning may take: a plan covers everything,
/// however often something changes.
const PLANNING_TIME_DIVISOR: u32 = 20;

impl Keeper {
    /// Abandons an order that is no longer wanted: its authorizations, its key and its DNS records.
    async fn abandon_order(&self, issuer: String, id: CertificateId) {
        let Some(issuer) = self.issuer(&issuer) else {
            return;
        };
        if let Err(failure) = issuer.abandon(&id).await {
            tracing::warn!(%id, issuer = issuer.name(), %failure, "cannot give up an unwanted order now");
        }
    }

    /// Obtains the [wanted](Self::want) certificates whenever something is wanted anew, is due, or
    /// was asked for, until `stop` is true. A slow order delays no other: at most `max_concurrent`
    /// jobs run at a time, and each plan leaves those alone.
    pub async fn run(
        self: &Arc<Self>,
        report: watch::Sender<Arc<Pass>>,
        stop: watch::Receiver<bool>,
    ) {
        let mut running = RunningJobs::default();
        self.run_loop(report, stop, &mut running).await;
        running.end().await;
    }

    async fn run_loop(
        self: &Arc<Self>,
        report: watch::Sender<Arc<Pass>>,
        mut stop: watch::Receiver<bool>,
        running: &mut RunningJobs,
    ) {
        let mut upkeep = FuturesUnordered::new();
        let mut abandonments = FuturesUnordered::new();
        let mut busy: BTreeMap<CertificateId, BusyJob> = BTreeMap::new();
        let mut unclaimed_orders = UnclaimedOrders::default();
        let mut queue: VecDeque<Job> = VecDeque::new();
        let mut pass = Pass::default();
        let mut next_plan = Instant::now();
        let mut earliest_plan = Instant::now();
        let mut replans = self.replan.subscribe();
        while !*stop.borrow() {
            let start = Instant::now();
            if start >= next_plan {
                let now = Timestamp::now();
                replans.mark_unchanged();
                let wanted = self.read(|table| table.with_holds(table.wanted(), now));
                busy.retain(|id, job| {
                    let serves = job
                        .serves
                        .iter()
                        .any(|id| wanted.binary_search_by(|want| want.id.cmp(id)).is_ok());
                    if !serves {
                        running.cancel(id);
                        unclaimed_orders.claim(&job.issuer, id);
                    }
                    serves
                });
                let held = self.held();
                let budgets = self.budgets();
                let progress = self.progress();
                let steps = self.make_plan(&wanted, &held, &progress, &budgets, now);
                let (expired, look_again) =
                    unclaimed_orders.take_expired(&progress, &wanted, &busy, start);
                for (issuer, id) in expired {
                    abandonments.push(self.abandon_order(issuer, id));
                }
                let is_busy = |order: &&Order<'_>| {
                    busy.contains_key(&order.id)
                        || order
                            .serves
                            .iter()
                            .any(|w| busy.values().any(|job| job.serves.contains(&w.id)))
                };
                let orders = || {
                    steps.iter().filter_map(|s| {
                        if let Step::Issue(order) = s {
                            Some(&**order)
                        } else {
                            None
                        }
                    })
                };
                queue = orders()
                    .filter(|order| !is_busy(order))
                    .map(Job::of)
                    .collect();
                if upkeep.is_empty() {
                    let known: BTreeSet<_> = wanted
                        .iter()
                        .map(|w| &w.id)
                        .chain(orders().map(|o| &o.id))
                        .cloned()
                        .collect();
                    upkeep.push(async move {
                        self.tidy(known, now).await;
                        self.poll_windows(now).await
                    });
                }
                pass.retired = steps
                    .iter()
                    .filter_map(|s| {
                        if let Step::Retire(h) = s {
                            Some(h.id.clone())
                        } else {
                            None
                        }
                    })
                    .collect();
                pass.outlook = self.outlook(&steps, now);
                pass.next = self.next(&pass.outlook, now);
                let next = pass.next.unwrap_or(now + MAX_SLEEP);
                let reported = Arc::new(std::mem::take(&mut pass));
                let before = report.send_replace(reported.clone());
                self.notify(differences(&before.outlook, &reported.outlook));
                let sleep = next
                    .duration_since(now)
                    .clamp(SignedDuration::from_secs(1), MAX_SLEEP);
                next_plan = Instant::now() + Duration::try_from(sleep).unwrap_or(REPLAN_INTERVAL);
                next_plan = next_plan.min(look_again.unwrap_or(next_plan));
                earliest_plan = Instant::now() + start.elapsed() * (PLANNING_TIME_DIVISOR - 1);
            }
            while let Some(job) = running.admit(&mut queue, self.max_concurrent) {
                let serves = job.serves.iter().map(|w| w.id.clone()).collect();
                busy.insert(
                    job.id.clone(),
                    BusyJob {
                        issuer: job.serves[0].issuer.clone(),
                        serves,
                    },
                );
                running.start(self, job, Timestamp::now());
            }
            tokio::select! {
                Some((id, result)) = running.next() => {
                    busy.remove(&id);
                    match result {
                        Ok(true) => pass.issued.push(id),
                        Ok(false) => {}
                        Err(failure) => pass.failed.push((id, failure)),
                    }
                    let soon = if queue.is_empty() && busy.is_empty() { Duration::ZERO } else { REPLAN_INTERVAL };
                    next_plan = next_plan.min((Instant::now() + soon).max(earliest_plan));
                }
                Some(window_changed) = upkeep.next(), if !upkeep.is_empty() => {
                    if window_changed {
                        next_plan = earliest_plan;
                    }
                }
                Some(()) = abandonments.next(), if !abandonments.is_empty() => {}
                // `self` holds the sender, so that this never fails.
                _ = replans.changed() => next_plan = earliest_plan,
                () = sleep_until(next_plan) => {}
                _ = stop.changed() => return,
            }
        }
    }
}

/// A running job: its issuer, and the wanted certificates that it serves.
struct BusyJob {
    issuer: String,
    serves: Vec<CertificateId>,
}

/// Orders that are no longer claimed by a wanted certificate, by issuer.
#[derive(Default)]
struct UnclaimedOrders {
    /// Orders that were claimed since the start; at the start not all wanted certificates may be
    /// known.
    claimed: BTreeSet<(String, CertificateId)>,
    /// Time since which an order is unclaimed.
    since: BTreeMap<(String, CertificateId), Instant>,
}

impl UnclaimedOrders {
    /// Records that an order was claimed.
    fn claim(&mut self, issuer: &str, id: &CertificateId) {
        self.claimed.insert((issuer.to_owned(), id.clone()));
    }

    /// Returns the orders to abandon, and the time to check the others again. A name that is
    /// removed and comes back at once, as when it is renamed or moved to another file, keeps its
    /// order.
    fn take_expired(
        &mut self,
        progress: &Progress,
        wanted: &[Wanted],
        busy: &BTreeMap<CertificateId, BusyJob>,
        now: Instant,
    ) -> (Vec<(String, CertificateId)>, Option<Instant>) {
        if progress.underway.values().all(BTreeMap::is_empty) {
            self.since.clear();
            return (Vec::new(), None);
        }
        let unclaimed = progress.unclaimed(wanted).into_iter();
        let mut unclaimed: BTreeSet<_> = unclaimed
            .map(|(issuer, order)| key(issuer, &order.id))
            .collect();
        let all = progress
            .underway
            .iter()
            .flat_map(|(issuer, orders)| orders.keys().map(|id| key(issuer, id)));
        self.claimed
            .extend(all.filter(|order| !unclaimed.contains(order)));
        // An order whose job still serves a wanted certificate is not abandoned.
        for (id, job) in busy {
            unclaimed.remove(&key(&job.issuer, id));
        }
        self.since.retain(|order, _| unclaimed.contains(order));
        for order in unclaimed
            .into_iter()
            .filter(|order| self.claimed.contains(order))
        {
            self.since.entry(order).or_insert(now);
        }
        let expired: Vec<_> = self
            .since
            .extract_if(.., |_, at| now >= *at + UNCLAIMED_GRACE)
            .map(|(order, _)| order)
            .collect();
        self.claimed.retain(|order| !expired.contains(order));
        (
            expired,
            self.since.values().min().map(|at| *at + UNCLAIMED_GRACE),
        )
    }
}

fn key(issuer: &str, id: &CertificateId) -> (String, CertificateId) {
    (issuer.to_owned(), id.clone())
}

/// Returns the certificates whose outlook differs; both lists are sorted by name. The time of the
/// next step changes with every plan and is not compared.
fn differences(before: &[Outlook], after: &[Outlook]) -> Vec<CertificateId> {
    let mut old = before.iter().peekable();
    let mut new = after.iter().peekable();
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

fn says(line: &Outlook) -> (super::Next, Option<String>, Option<String>, Option<String>) {
    (
        line.next.clone(),
        line.last_error.clone(),
        line.refused.clone(),
        line.notice.clone(),
    )
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
        let tenant = "t".to_owned();
        let issuer = "i".to_owned();
        Outlook {
            id,
            tenant,
            names,
            issuer,
            expires: None,
            next: Next::Renew,
            at: Timestamp::UNIX_EPOCH,
            last_error,
            refused: None,
            notice: None,
        }
    }

    #[test]
    fn an_order_is_abandoned_once_it_is_no_longer_claimed() {
        fn want(host: &str, issuer: &str) -> Wanted {
            let names = Names::parse([host]).expect("a name");
            let (id, tenant, issuer) = (
                CertificateId::of("t", &names),
                "t".to_owned(),
                issuer.to_owned(),
            );
            let validity = None;
            let may_share = true;
            let renew_now = false;
            let hold = None;
            Wanted {
                id,
                tenant,
                issuer,
                names,
                validity,
                may_share,
                renew_now,
                hold,
            }
        }
        let a = want("a.example", "ca");
        let b = want("b.example", "ca");
        fn order(w: &Wanted) -> Underway {
            Underway {
                id: w.id.clone(),
                names: w.names.clone(),
                placed: true,
            }
        }
        let orders = [&a, &b].map(|w| (w.id.clone(), order(w)));
        let underway = BTreeMap::from([("ca".to_owned(), BTreeMap::from(orders))]);
        let progress = Progress {
            underway,
            ..Progress::default()
        };
        let mut unclaimed_orders = UnclaimedOrders::default();
        let start = Instant::now();
        let none = BTreeMap::new();
        let mut expired = |wanted: &[Wanted], seconds| {
            let (expired, again) = unclaimed_orders.take_expired(
                &progress,
                wanted,
                &none,
                start + Duration::from_secs(seconds),
            );
            (
                expired.into_iter().map(|(_, id)| id).collect::<Vec<_>>(),
                again.is_some(),
            )
        };
        // At the start `b` is not known yet.
        assert_eq!(expired(std::slice::from_ref(&a), 0), (vec![], false));
        assert_eq!(expired(std::slice::from_ref(&a), 60), (vec![], false));
        assert_eq!(expired(&[a.clone(), b.clone()], 61), (vec![], false));
        assert_eq!(expired(std::slice::from_ref(&b), 62), (vec![], true));
        assert_eq!(
            expired(&[a.clone(), b.clone()], 63),
            (vec![], false),
            "it was back in time"
        );
        // A host that moved to another issuer does not claim the order of the first.
        let other = want("a.example", "other");
        assert_eq!(expired(&[other.clone(), b.clone()], 70), (vec![], true));
        assert_eq!(expired(&[other, b], 73), (vec![a.id.clone()], false));
    }

    #[test]
    fn only_changed_outlooks_are_reported() {
        fn sorted(mut lines: Vec<Outlook>) -> Vec<Outlook> {
            lines.sort_by(|a, b| a.id.cmp(&b.id));
            lines
        }
        let before = sorted(vec![
            line("a.example", None),
            line("b.example", None),
            line("c.example", None),
        ]);
        let mut later = line("c.example", None);
        later.at = Timestamp::now();
        let after = sorted(vec![
            line("b.example", Some("no")),
            later,
            line("d.example", None),
        ]);
        let reported: Vec<String> = differences(&before, &after)
            .iter()
            .map(|id| id.as_str()[..9].to_owned())
            .collect();
        assert_eq!(reported, ["a.example", "b.example", "d.example"]);
        assert!(differences(&after, &after).is_empty());
    }
}
