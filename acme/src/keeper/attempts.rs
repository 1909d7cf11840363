//! Records of failed attempts: which wanted certificates they delay, and until when.

use jiff::Timestamp;

use super::Keeper;
use super::job::Job;
use super::table::{Forced, Table};
use crate::failure::{Attempts, Cause, Class, Failure};
use crate::plan::Wanted;
use crate::renewal::uniform;

impl Table {
    /// Returns wanted certificates with the back-off of failed attempts. One that changed since has
    /// none.
    pub(super) fn with_holds<'a>(
        &self,
        wanted: impl IntoIterator<Item = &'a Wanted>,
        now: Timestamp,
    ) -> Vec<Wanted> {
        let with_hold = |w: &Wanted| {
            let attempts = self.failed(&w.id).filter(|a| a.about == about(w));
            let forced = self.forced(&w.id);
            let hold = attempts
                .filter(|a| a.not_before > now && forced != Some(Forced::Now))
                .map(|a| (a.not_before, a.last.message.clone()));
            Wanted {
                hold: hold.max(w.hold.clone().filter(|h| h.0 > now)),
                // A wanted certificate whose order failed for its own fault gets an order of its
                // own, so that it cannot fail others.
                may_share: w.may_share && attempts.is_none_or(|a| a.share_at_most() != Some(1)),
                renew_now: w.renew_now || forced.is_some(),
                ..w.clone()
            }
        };
        wanted.into_iter().map(with_hold).collect()
    }
}

impl Keeper {
    /// Records a failure. Where names are known to be at fault, it is recorded for their wanted
    /// certificates, and the others that shared the order go on at once without them; else it is
    /// recorded for all, which go on sharing.
    pub(super) async fn record_failure(&self, order: &Job, failure: &Failure, now: Timestamp) {
        let is_shared = order.serves.len() > 1;
        let culprits: Vec<&Wanted> = order
            .serves
            .iter()
            .filter(|w| at_fault(w, &failure.culprits))
            .collect();
        let is_the_orders = culprits.is_empty()
            || (is_shared
                && failure.class == Class::Transient
                && self.is_first(&culprits, Cause::of(failure)));
        for want in if is_the_orders {
            order.serves.iter().collect()
        } else {
            culprits
        } {
            let previous = self.known(want);
            let count = previous.as_ref().map_or(0, Attempts::total).to_string();
            // Wanted certificates that share an order wait equally long.
            let spread = uniform(
                &format!(
                    "{}{count}",
                    if is_the_orders { &order.id } else { &want.id }
                ),
                2,
            );
            let failure = failure.clone();
            let about = about(want);
            let attempts = if is_the_orders && is_shared {
                let names = order.names.count();
                Attempts::after_shared(previous.as_ref(), failure, names, &about, now, spread)
            } else {
                Attempts::after(previous.as_ref(), failure, &about, now, spread)
            };
            self.write_attempts(&want.id, &attempts).await;
            self.write(|table| {
                table.change(&want.id, |row| {
                    row.failed = Some(Box::new(attempts));
                    row.forced = row.forced.map(|_| Forced::AfterBackoff);
                })
            });
        }
    }

    fn known(&self, w: &Wanted) -> Option<Attempts> {
        self.last_failure(&w.id).filter(|a| a.about == about(w))
    }

    /// A transient failure of one name may be over in a second: a new order for the others would
    /// cost more.
    fn is_first(&self, culprits: &[&Wanted], cause: Cause) -> bool {
        culprits
            .iter()
            .all(|w| self.known(w).is_none_or(|known| known.counted(cause) == 0))
    }
}

fn at_fault(w: &Wanted, culprits: &[String]) -> bool {
    w.names
        .iter()
        .any(|n| culprits.iter().any(|c| c == n.as_str()))
}

/// Returns the fingerprint of a wanted certificate, for [`Attempts::about`].
pub(super) fn about(want: &Wanted) -> String {
    format!("{} {}", want.issuer, want.names.to_strings().join(","))
}

/// Ends the back-off of failures of the configuration or the account when the issuer's settings
/// change.
pub(super) fn end_config_backoff(attempts: &mut Attempts) {
    if matches!(attempts.last.class, Class::Config | Class::Account) {
        attempts.not_before = attempts.at;
    }
}
