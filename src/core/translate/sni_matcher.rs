//! The gate of a TLS frontend: which SNI goes to which chain, in as few entries as say the same.

use std::collections::{BTreeMap, HashMap};

use crate::model::{Chain, ChainName, Hostname};

/// From how many siblings with one chain on their parent's wildcard stands for all of them.
///
/// Every entry costs about 21 bytes in each Listener update, so that thousands of hosts must not have one each. Under a
/// wildcard entry a name that is not ours gets as far as asking for a certificate, and is refused there.
const SIBLINGS: usize = 16;

/// Entries by hostname, of which only those that make a difference are shown.
#[derive(Default)]
pub(super) struct SniMatcher {
    /// What was set.
    entries: BTreeMap<Hostname, ChainName>,
    /// The chains that entries name, and how many do.
    chains: BTreeMap<ChainName, (Chain, usize)>,
    /// For each parent wildcard, how many exact names right under it go to each chain.
    siblings: HashMap<Hostname, BTreeMap<ChainName, usize>>,
    /// Wildcards that stand for their siblings.
    suffixes: BTreeMap<Hostname, ChainName>,
    /// What is shown.
    shown: BTreeMap<Hostname, ChainName>,
}

impl SniMatcher {
    /// Sets or removes the entry of a hostname. Whether what is shown has changed.
    pub(super) fn set(&mut self, hostname: &Hostname, entry: Option<(ChainName, Chain)>) -> bool {
        let mut changed = false;
        let before = self.entries.get(hostname).cloned();
        if let Some((name, chain)) = &entry {
            let slot = self.chains.entry(name.clone()).or_insert_with(|| (chain.clone(), 0));
            slot.1 += 1;
            if slot.0 != *chain {
                slot.0 = chain.clone();
                changed = true;
            }
        }
        let name = entry.map(|(name, _)| name);
        if let Some(old) = &before {
            self.release(old);
        }
        if before == name {
            return changed;
        }
        match &name {
            Some(name) => self.entries.insert(hostname.clone(), name.clone()),
            None => self.entries.remove(hostname),
        };
        let broad = !hostname.is_exact();
        let flipped = hostname.is_exact() && self.count_sibling(hostname, before.as_ref(), name.as_ref());
        if broad || flipped {
            changed |= self.show_all();
        } else {
            changed |= self.show(hostname);
        }
        changed
    }

    /// The entries that make a difference.
    pub(super) fn shown(&self) -> &BTreeMap<Hostname, ChainName> {
        &self.shown
    }

    /// Every entry, also where a wider one says the same.
    pub(super) fn all(&self) -> &BTreeMap<Hostname, ChainName> {
        &self.entries
    }

    /// The chains that are in use.
    pub(super) fn chains(&self) -> impl Iterator<Item = (&ChainName, &Chain)> {
        self.chains.iter().map(|(name, (chain, _))| (name, chain))
    }

    /// A chain that is in use.
    pub(super) fn chain(&self, name: &ChainName) -> Option<&Chain> {
        self.chains.get(name).map(|(chain, _)| chain)
    }

    /// Whether nothing was set.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn release(&mut self, name: &ChainName) {
        if let Some(slot) = self.chains.get_mut(name) {
            slot.1 -= 1;
            if slot.1 == 0 {
                self.chains.remove(name);
            }
        }
    }

    /// Keeps count of a name's siblings. Whether their parent's wildcard has to be looked at anew.
    fn count_sibling(&mut self, hostname: &Hostname, old: Option<&ChainName>, new: Option<&ChainName>) -> bool {
        let Some(parent) = hostname.parent() else { return false };
        let counts = self.siblings.entry(parent.clone()).or_default();
        if let Some(new) = new {
            *counts.entry(new.clone()).or_insert(0) += 1;
        }
        if let Some(old) = old
            && let Some(count) = counts.get_mut(old)
        {
            *count -= 1;
            if *count == 0 {
                counts.remove(old);
            }
        }
        if counts.is_empty() {
            self.siblings.remove(&parent);
        }
        self.suffix(&parent) != self.suffixes.get(&parent).cloned()
    }

    /// The chain for which a parent's wildcard may stand: never where a listener's own entry covers it, since names
    /// that no one owns would change hands.
    fn suffix(&self, parent: &Hostname) -> Option<ChainName> {
        let covered = self.entries.contains_key(parent)
            || parent.covering().any(|wider| self.entries.contains_key(&wider))
            || self.entries.contains_key(&Hostname::any());
        if covered {
            return None;
        }
        let (name, count) = self.siblings.get(parent)?.iter().max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(a.0)))?;
        (*count >= SIBLINGS).then(|| name.clone())
    }

    /// What covers a hostname from above.
    fn above(&self, hostname: &Hostname) -> Option<&ChainName> {
        let wider = hostname.covering().find_map(|w| self.entries.get(&w).or_else(|| self.suffixes.get(&w)));
        wider.or_else(|| self.entries.get(&Hostname::any()).filter(|_| !hostname.is_any()))
    }

    fn show(&mut self, hostname: &Hostname) -> bool {
        let entry = self.entries.get(hostname).filter(|chain| self.above(hostname) != Some(chain)).cloned();
        match entry {
            Some(chain) => self.shown.insert(hostname.clone(), chain.clone()) != Some(chain),
            None => self.shown.remove(hostname).is_some(),
        }
    }

    /// Works everything out anew: for changes that are rare.
    fn show_all(&mut self) -> bool {
        let parents: Vec<Hostname> = self.siblings.keys().cloned().collect();
        self.suffixes = parents.into_iter().filter_map(|p| Some((p.clone(), self.suffix(&p)?))).collect();
        let mut shown: BTreeMap<_, _> = self
            .entries
            .iter()
            .filter(|(hostname, chain)| self.above(hostname) != Some(chain))
            .map(|(hostname, chain)| (hostname.clone(), chain.clone()))
            .collect();
        for (suffix, chain) in &self.suffixes {
            shown.insert(suffix.clone(), chain.clone());
        }
        let changed = shown != self.shown;
        self.shown = shown;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Handler;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn chain(name: &str) -> (ChainName, Chain) {
        (Arc::from(name), Chain { tls: None, handler: Handler::TcpBySni })
    }

    fn set(gate: &mut SniMatcher, hostname: &str, name: Option<&str>) -> bool {
        gate.set(&Hostname::parse(hostname).expect("a hostname"), name.map(chain))
    }

    /// The chain that the shown entries give a name.
    fn looked_up(gate: &SniMatcher, hostname: &Hostname) -> Option<ChainName> {
        let shown = gate.shown();
        let wider = || hostname.covering().find_map(|w| shown.get(&w));
        shown.get(hostname).or_else(wider).or_else(|| shown.get(&Hostname::any())).cloned()
    }

    #[test]
    fn many_siblings_become_one_entry_and_one_more_changes_nothing() {
        let mut gate = SniMatcher::default();
        for i in 0..SIBLINGS {
            set(&mut gate, &format!("h{i}.example.org"), Some("https"));
        }
        assert_eq!(gate.shown().len(), 1);
        assert!(!set(&mut gate, "another.example.org", Some("https")));
        assert!(set(&mut gate, "odd.example.org", Some("passthrough")));
        assert_eq!(gate.shown().len(), 2);
    }

    #[test]
    fn a_suffix_never_takes_names_from_a_wider_listener() {
        let mut gate = SniMatcher::default();
        set(&mut gate, "*.org", Some("wild"));
        for i in 0..SIBLINGS {
            set(&mut gate, &format!("h{i}.example.org"), Some("https"));
        }
        let unknown = Hostname::parse("unknown.example.org").expect("a hostname");
        assert_eq!(looked_up(&gate, &unknown).as_deref(), Some("wild"));
    }

    proptest! {
        #[test]
        fn shown_entries_say_what_was_set_whatever_the_order(
            steps in proptest::collection::vec(("[a-t]\\.(x|y|x\\.y)\\.org|\\*\\.(x|y)\\.org|", proptest::option::of("p|q")), 1..120)
        ) {
            let mut gate = SniMatcher::default();
            let mut last: BTreeMap<Hostname, Option<String>> = BTreeMap::new();
            for (hostname, name) in &steps {
                set(&mut gate, hostname, name.as_deref());
                last.insert(Hostname::parse(hostname).expect("a hostname"), name.clone());
            }
            for (hostname, name) in &last {
                if let Some(name) = name {
                    let found = looked_up(&gate, hostname);
                    prop_assert_eq!(found.as_deref(), Some(name.as_str()));
                }
            }
            let mut fresh = SniMatcher::default();
            for (hostname, name) in &last {
                fresh.set(hostname, name.as_deref().map(chain));
            }
            prop_assert_eq!(fresh.shown(), gate.shown());
            prop_assert_eq!(fresh.chains().count(), gate.chains().count());
        }
    }
}
