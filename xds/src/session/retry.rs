//! Retry: a resource that a client refuses for a reason outside of it, as an address in use, is
//! offered again.

use super::*;

impl Session {
    /// Returns the time of the next retry.
    pub(crate) fn retry_due(&self) -> Option<Instant> {
        self.retries.first().map(|(due, ..)| *due)
    }

    /// Puts a resource into quarantine until its retry. It is not divided, because no part of it is
    /// to blame.
    pub(super) fn refused_for_now(
        &mut self,
        kind: Kind,
        r: &Arc<Resource>,
        text: &Arc<str>,
        tables: &Tables,
        now: Instant,
    ) {
        let first = self.limits.first_retry;
        let longest = self.limits.longest_retry;
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        if sub.divisions.remove(r.name()).is_some() {
            self.effects
                .push(Effect::undivided(kind, r.shared_name().clone()));
        }
        let last = sub
            .quarantine
            .get(r.name())
            .filter(|q| &*q.version == r.version())
            .and_then(|q| q.retry);
        match last {
            Some(_) => {
                let name = r.shared_name().clone();
                let version = r.version().into();
                self.effects.push(Effect::Rejected {
                    kind,
                    name,
                    version,
                    text: text.clone(),
                });
            }
            None => self.hold_back(kind, r, text.clone(), tables),
        }
        let pause = last.map_or(first, |last| (last.pause * 2).min(longest));
        let due = now + pause;
        let sub = self.subscriptions[kind as usize]
            .as_deref_mut()
            .expect("the caller found it");
        let refused = sub.quarantine.get_mut(r.name()).expect("it was put there");
        refused.retry = Some(Retry { due, pause });
        self.retries.insert((due, kind, r.shared_name().clone()));
    }

    /// Offers the refused resources whose retry is due, unless they have changed.
    pub(super) fn retry(&mut self, tables: &Tables, now: Instant) {
        while self.retries.first().is_some_and(|(due, ..)| *due <= now)
            && let Some((due, kind, name)) = self.retries.pop_first()
        {
            let Some(sub) = self.subscriptions[kind as usize].as_deref_mut() else {
                continue;
            };
            let refused = sub
                .quarantine
                .get(&name)
                .filter(|q| q.retry.is_some_and(|retry| retry.due == due));
            let current = tables.table(kind).current(&name);
            let same = |current: &&Arc<Resource>| {
                refused.is_some_and(|q| *q.version == *current.version())
            };
            if let Some(current) = current.filter(same) {
                sub.probes.push_back(vec![Item::Upsert(current.clone())]);
            }
        }
    }
}
