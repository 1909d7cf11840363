//! The keeper at work: plans again whenever something changes, and carries out what the plan says.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until};

use super::job::{Going, Job};
use super::pass::{Outlook, Pass};
use super::wishlist::Wishlist;
use super::{Keeper, LONGEST_SLEEP};
use crate::issuer::CertificateId;
use crate::plan::{Order, Step, plan};

/// While certificates come in, the plan and the report are made anew this often.
const PROGRESS: Duration = Duration::from_secs(1);
/// A plan is about everything: planning takes at most this part of our time, however often something changes.
const PART: u32 = 20;

impl Keeper {
    /// Gets what is wanted, whenever something is wanted anew, is due, or was asked for, until `stop` is true. A slow
    /// order holds up no other: at most `at_once` go on at a time, and each plan leaves those alone.
    pub async fn run(
        self: &Arc<Self>,
        wishlist: &Wishlist,
        report: watch::Sender<Arc<Pass>>,
        stop: watch::Receiver<bool>,
    ) {
        let mut going = Going::default();
        self.keep(wishlist, report, stop, &mut going).await;
        going.end().await;
    }

    async fn keep(
        self: &Arc<Self>,
        wishlist: &Wishlist,
        report: watch::Sender<Arc<Pass>>,
        mut stop: watch::Receiver<bool>,
        going: &mut Going,
    ) {
        let mut upkeep = FuturesUnordered::new();
        let mut busy: BTreeMap<CertificateId, Vec<CertificateId>> = BTreeMap::new();
        let mut queue: VecDeque<Job> = VecDeque::new();
        let mut pass = Pass::default();
        let mut next_plan = Instant::now();
        let mut soonest = Instant::now();
        let mut nudges = self.nudge.subscribe();
        let mut wishes = wishlist.changes();
        while !*stop.borrow() {
            let start = Instant::now();
            if start >= next_plan {
                let now = Timestamp::now();
                wishes.mark_unchanged();
                let wanted = self.with_holds(wishlist.read().values(), now);
                busy.retain(|id, serves| {
                    let is_wanted = serves.iter().any(|id| wanted.binary_search_by(|wish| wish.id.cmp(id)).is_ok());
                    if !is_wanted {
                        going.give_up(id);
                    }
                    is_wanted
                });
                let held = self.held();
                let steps = plan(&wanted, &held, &self.budgets(), now);
                let is_busy = |order: &&Order<'_>| {
                    busy.contains_key(&order.id)
                        || order.serves.iter().any(|w| busy.values().any(|served| served.contains(&w.id)))
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
                soonest = Instant::now() + start.elapsed() * (PART - 1);
            }
            while let Some(job) = going.admit(&mut queue, self.at_once) {
                busy.insert(job.id.clone(), job.serves.iter().map(|w| w.id.clone()).collect());
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
                changed = wishes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    next_plan = soonest;
                }
                // `self` holds the sender.
                _ = nudges.changed() => next_plan = soonest,
                () = sleep_until(next_plan) => {}
                _ = stop.changed() => return,
            }
        }
    }
}

/// Whose line is another one, both lists being sorted by name. When something is done next changes with every plan, and
/// is left aside.
fn differences(before: &[Outlook], after: &[Outlook]) -> Vec<CertificateId> {
    let says = |line: &Outlook| (line.next.clone(), line.last_error.clone());
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
    use crate::keeper::Next;
    use crate::names::Names;

    fn line(name: &str, last_error: Option<&str>) -> Outlook {
        let names = Names::parse([name]).expect("a name");
        let id = CertificateId::of("t", &names);
        let last_error = last_error.map(str::to_owned);
        let (tenant, issuer) = ("t".to_owned(), "i".to_owned());
        Outlook { id, tenant, names, issuer, expires: None, next: Next::Renew, at: Timestamp::UNIX_EPOCH, last_error }
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
