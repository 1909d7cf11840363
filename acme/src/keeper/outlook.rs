//! The keeper's plan, and the outlook for people that is made of it.

use jiff::Timestamp;

use super::pass::{Next, Outlook};
use super::table::Forced;
use super::{ARI_BATCH, Keeper, MAX_SLEEP};
use crate::issuer::CertificateId;
use crate::plan::{Budgets, Held, Progress, Reason, Step, Wanted, plan_with};

impl Keeper {
    /// Collects the results of earlier attempts for the plan.
    pub(super) fn progress(&self) -> Progress {
        let issuers = self.issuers();
        let underway = issuers.iter().map(|issuer| {
            let orders = issuer
                .underway()
                .into_iter()
                .map(|order| (order.id.clone(), order))
                .collect();
            (issuer.name().to_owned(), orders)
        });
        let underway = underway.collect();
        let mut progress = Progress {
            underway,
            ..Progress::default()
        };
        self.read(|table| {
            for (id, row) in table.rows() {
                if let Some(failed) = &row.failed {
                    progress.failed.insert(id.clone());
                    let at_most = failed.share_at_most();
                    let at_most = at_most.map(|names| (id.clone(), names));
                    progress.share_at_most.extend(at_most);
                }
                let obtained = row.obtained.map(|obtained| (id.clone(), obtained));
                progress.obtained.extend(obtained);
            }
        });
        progress
    }

    /// Makes the plan, without the orders that circuit breakers hold back.
    pub(super) fn make_plan<'a>(
        &self,
        wanted: &'a [Wanted],
        held: &'a [Held],
        progress: &Progress,
        budgets: &Budgets,
        now: Timestamp,
    ) -> Vec<Step<'a>> {
        let steps = plan_with(wanted, held, progress, budgets, now);
        self.read(|table| {
            table.breakers.hold(
                steps,
                |id| table.failures(id),
                |id| table.forced(id) == Some(Forced::Now),
                now,
            )
        })
    }

    /// Returns the time of the next step or request for a renewal window.
    pub(super) fn next(&self, outlook: &[Outlook], now: Timestamp) -> Option<Timestamp> {
        let polls = self.read(|table| table.polls(now).map(|(at, _)| at).min());
        // This plan has begun the requests that are due.
        let polls = polls.map(|at| at.max(now + ARI_BATCH));
        let steps = outlook.iter().map(|o| o.at).min();
        [polls, steps]
            .into_iter()
            .flatten()
            .min()
            .map(|t| t.clamp(now, now + MAX_SLEEP))
    }

    pub(super) fn outlook(&self, steps: &[Step<'_>], now: Timestamp) -> Vec<Outlook> {
        let mut lines = Vec::with_capacity(steps.len());
        for step in steps {
            match step {
                Step::Issue(order) => {
                    let reason = order.reason;
                    let expires = order
                        .replaces
                        .filter(|h| h.not_after > now)
                        .map(|h| h.not_after);
                    let notice = order
                        .replaces
                        .filter(|_| reason == Reason::Revoked)
                        .and_then(|h| self.notice(&h.id));
                    lines.extend(order.serves.iter().map(|w| Outlook {
                        notice: notice.clone(),
                        ..self.line(w, expires, Next::Issue(reason), now)
                    }));
                }
                Step::Wait {
                    wanted,
                    until,
                    because,
                    served,
                } => {
                    let next = self.wait(wanted, *until, because);
                    lines.push(self.line(wanted, served.map(|h| h.not_after), next, *until));
                }
                Step::Keep {
                    wanted,
                    held,
                    until,
                } => {
                    let notice = self.notice(&held.id);
                    lines.push(Outlook {
                        notice,
                        ..self.line(wanted, Some(held.not_after), Next::Renew, *until)
                    });
                }
                Step::Retire(_) => {}
            }
        }
        lines.sort_by(|a, b| a.id.cmp(&b.id));
        lines
    }

    /// Returns a notice about a certificate's renewal window, if there is one.
    pub(super) fn notice(&self, id: &CertificateId) -> Option<String> {
        self.read(|table| table.row(id)?.window.as_ref()?.notice())
    }

    fn line(&self, w: &Wanted, expires: Option<Timestamp>, next: Next, at: Timestamp) -> Outlook {
        let failed = self.last_failure(&w.id);
        Outlook {
            id: w.id.clone(),
            tenant: w.tenant.clone(),
            names: w.names.clone(),
            issuer: w.issuer.clone(),
            expires,
            next,
            at,
            refused: failed.as_ref().and_then(|failed| failed.refused.clone()),
            last_error: failed.map(|failed| failed.last.message),
            notice: None,
        }
    }

    fn wait(&self, w: &Wanted, until: Timestamp, because: &str) -> Next {
        match self.last_failure(&w.id) {
            // The message after the next attempt need not be the same error.
            Some(own) if own.not_before == until => Next::Retry(own.last.class),
            Some(own) => {
                let twice = format!(": {}", own.last.message);
                Next::Wait(because.strip_suffix(&twice).unwrap_or(because).to_owned())
            }
            None => Next::Wait(because.to_owned()),
        }
    }
}
