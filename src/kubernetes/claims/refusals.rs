//! The next write into a ConfigMap of the record after the API server refused one. Pure.
//!
//! A refusal does not say which entry caused it. The batch is halved until one entry is left: that
//! one waits, and the others are written. So a namespace whose entries cannot be written holds up
//! no entry of others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gatewright_core::ownership::Ownable;

/// The pause before a refused entry is tried again.
const PAUSE: Duration = Duration::from_secs(60);
/// The refusals without a success between them after which all waiting entries count as refused:
/// the cause is a quota, or a policy for the whole ConfigMap. Twice the halvings of the largest
/// batch, and some.
const STRIKES: u32 = 24;
/// The most entries of one write, some 100 KiB of the longest names.
const LARGEST: usize = 256;

/// An entry that is to be written, with the namespace that it is for.
pub(super) type Waiting = (String, Ownable);

/// The refusals of a ConfigMap since its last successful write.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The most entries of the next write, if it is limited.
    most: Option<usize>,
    strikes: u32,
    entries: BTreeMap<Ownable, Refused>,
}

#[derive(Debug)]
struct Refused {
    namespace: String,
    text: String,
    again: Instant,
}

impl Refusals {
    /// Returns the entries of the next write. Namespaces with a refused entry come after all
    /// others.
    pub(super) fn choose(
        &self,
        waiting: impl Iterator<Item = Waiting>,
        now: Instant,
    ) -> Vec<Waiting> {
        let suspects: BTreeSet<&str> = self
            .entries
            .values()
            .map(|refused| refused.namespace.as_str())
            .collect();
        let due = waiting.filter(|(_, entry)| {
            self.entries
                .get(entry)
                .is_none_or(|refused| refused.again <= now)
        });
        let (of_suspects, of_others): (Vec<_>, Vec<_>) =
            due.partition(|(namespace, _)| suspects.contains(namespace.as_str()));
        let mut chosen = if of_others.is_empty() {
            of_suspects
        } else {
            of_others
        };
        // One namespace after the other, so that a limited write has few of them.
        chosen.sort();
        chosen.truncate(self.most.unwrap_or(LARGEST));
        chosen
    }

    /// Returns why an entry was refused, if it was.
    pub(super) fn why(&self, entry: &Ownable) -> Option<&str> {
        self.entries.get(entry).map(|refused| refused.text.as_str())
    }

    /// Returns the time at which the next refused entry is tried again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.entries.values().map(|refused| refused.again).min()
    }

    /// Forgets the entries that are not to be written any more.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&Ownable) -> bool) {
        self.entries.retain(|entry, _| is_wanted(entry));
    }

    /// Returns the number of refused entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes in that a batch was written.
    pub(super) fn written(&mut self, batch: &[Waiting]) {
        self.strikes = 0;
        self.most = self
            .most
            .map(|most| most * 2)
            .filter(|most| *most < LARGEST);
        for (_, entry) in batch {
            self.entries.remove(entry);
        }
    }

    /// Takes in that a batch was refused; `waiting` are all entries that are to be written into the
    /// ConfigMap.
    pub(super) fn refused(
        &mut self,
        batch: &[Waiting],
        waiting: &[Waiting],
        text: &str,
        now: Instant,
    ) {
        self.strikes = self.strikes.saturating_add(1);
        let refused = match batch {
            _ if self.strikes > STRIKES => waiting,
            [] | [_] => batch,
            _ => &[],
        };
        self.most = refused.is_empty().then_some(batch.len() / 2);
        for (namespace, entry) in refused {
            let refused = Refused {
                namespace: namespace.clone(),
                text: text.to_owned(),
                again: now + PAUSE,
            };
            self.entries.insert(entry.clone(), refused);
        }
    }
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::Hostname;

    use super::*;

    fn entries(namespace: &str, count: usize) -> Vec<Waiting> {
        fn name(n: usize, namespace: &str) -> Hostname {
            Hostname::parse(&format!("h{n:03}.{namespace}.example")).expect("a hostname")
        }
        (0..count)
            .map(|n| (namespace.to_owned(), Ownable::Hostname(name(n, namespace))))
            .collect()
    }

    /// Writes until nothing is due, against a server that refuses every batch with one of `bad`.
    /// Returns the number of writes.
    fn settle(
        refusals: &mut Refusals,
        waiting: &mut Vec<Waiting>,
        bad: &[Waiting],
        now: Instant,
    ) -> usize {
        for writes in 0..1000 {
            let batch = refusals.choose(waiting.iter().cloned(), now);
            if batch.is_empty() {
                return writes;
            }
            if batch.iter().any(|entry| bad.contains(entry)) {
                refusals.refused(&batch, waiting, "too long", now);
            } else {
                refusals.written(&batch);
                waiting.retain(|entry| !batch.contains(entry));
            }
        }
        panic!("it does not end")
    }

    #[test]
    fn a_refused_entry_holds_up_no_other() {
        let all = entries("a", 300);
        let now = Instant::now();
        let bad = [all[7].clone(), all[8].clone(), all[250].clone()];
        let mut refusals = Refusals::default();
        let mut waiting = all.clone();
        let writes = settle(&mut refusals, &mut waiting, &bad, now);
        assert_eq!(waiting, bad, "all others are written");
        assert!(writes < 80, "{writes} writes");
        assert_eq!(refusals.len(), 3, "the bad ones wait");
        assert_eq!(refusals.why(&bad[0].1), Some("too long"));
        assert_eq!(refusals.why(&all[0].1), None, "it was written");
        assert_eq!(refusals.next(), Some(now + PAUSE));
        let writes = settle(&mut refusals, &mut waiting, &[], now + PAUSE);
        assert_eq!(waiting, [], "the cause is gone");
        assert!(writes <= 3, "{writes} writes");
        assert_eq!(refusals.len(), 0, "nothing is refused any more");
    }

    #[test]
    fn a_namespace_whose_entries_are_all_refused_holds_up_no_other() {
        let now = Instant::now();
        let bad = entries("alice-before-bob", 200);
        let good = entries("bob", 5);
        let mut refusals = Refusals::default();
        let mut waiting = [bad.clone(), good].concat();
        settle(&mut refusals, &mut waiting, &bad, now);
        assert_eq!(waiting, bad, "what can be written is");
        let later = entries("carol", 1);
        waiting.extend(later);
        assert_eq!(
            settle(&mut refusals, &mut waiting, &bad, now),
            1,
            "a new entry of another waits for nothing"
        );
        assert_eq!(waiting, bad, "it is written");
    }

    #[test]
    fn a_config_map_that_is_refused_whole_costs_few_writes() {
        let all = entries("a", 200);
        let now = Instant::now();
        let mut refusals = Refusals::default();
        let mut waiting = all.clone();
        let writes = settle(&mut refusals, &mut waiting, &all, now);
        assert_eq!(
            writes,
            STRIKES as usize + 1,
            "writes until it counts as refused"
        );
        assert_eq!(refusals.len(), 200, "all wait");
        assert_eq!(
            settle(&mut refusals, &mut waiting, &all, now + PAUSE),
            1,
            "one write a minute"
        );
        settle(&mut refusals, &mut waiting, &[], now + 2 * PAUSE);
        assert_eq!(waiting, [], "the cause is gone");
    }

    #[test]
    fn an_entry_that_is_not_wanted_any_more_is_forgotten() {
        let all = entries("a", 2);
        let now = Instant::now();
        let mut refusals = Refusals::default();
        refusals.refused(&all[..1], &all, "too long", now);
        assert_eq!(
            refusals.choose(all.iter().cloned(), now),
            all[1..],
            "the first one waits"
        );
        refusals.retain(|entry| *entry == all[1].1);
        assert_eq!(refusals.next(), None, "nothing is tried again");
    }
}
