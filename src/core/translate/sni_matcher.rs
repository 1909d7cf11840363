//! The SNI matcher of a TLS frontend: the chain for each SNI, in as few entries as possible.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::chain_class::{ChainClass, Purpose};
use crate::model::{ChainName, Hostname};

/// The number of siblings with one chain from which on their parent's wildcard replaces them
/// (collapse).
///
/// Every entry costs about 21 bytes in each Listener update, so thousands of hosts must not have
/// one each. With a wildcard entry a handshake for a name that is not ours requests a certificate,
/// and is refused then.
const MIN_SIBLINGS: usize = 16;

/// Entries by hostname, of which only those that differ from wider ones are sent to Envoy.
#[derive(Default)]
pub(super) struct SniMatcher {
    /// The entries as set.
    entries: BTreeMap<Hostname, ChainName>,
    /// The chains of entries, with the number of entries of each.
    chains: BTreeMap<ChainName, (ChainClass, usize)>,
    /// For each parent wildcard, the number of exact names directly below it that have each chain.
    siblings: HashMap<Hostname, BTreeMap<ChainName, usize>>,
    /// Collapses: wildcards that replace their siblings.
    suffixes: BTreeMap<Hostname, ChainName>,
    /// The entries that are sent.
    sent: BTreeMap<Hostname, ChainName>,
}

impl SniMatcher {
    /// Sets or removes the entry of a hostname. Returns whether the sent entries changed.
    pub(super) fn set(&mut self, hostname: &Hostname, entry: Option<ChainClass>) -> bool {
        let before = self.entries.get(hostname).cloned();
        let mut changed = false;
        let name = entry.map(|class| {
            let (name, replaced) = self.hold(class, before.as_ref());
            changed = replaced;
            name
        });
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
        let flipped =
            hostname.is_exact() && self.count_sibling(hostname, before.as_ref(), name.as_ref());
        if broad || flipped {
            changed |= self.recompute_sent();
        } else {
            changed |= self.update_sent(hostname);
        }
        changed
    }

    /// The entries that are sent.
    pub(super) fn sent(&self) -> &BTreeMap<Hostname, ChainName> {
        &self.sent
    }

    /// All entries, including those that equal a wider one.
    pub(super) fn all(&self) -> &BTreeMap<Hostname, ChainName> {
        &self.entries
    }

    /// The chains that are in use.
    pub(super) fn chains(&self) -> impl Iterator<Item = (&ChainName, &ChainClass)> {
        self.chains.iter().map(|(name, (class, _))| (name, class))
    }

    /// True if the table of a wildcard or catch-all listener is in use.
    pub(super) fn has_table(&self, listener: &Hostname) -> bool {
        let start = ChainClass::table_prefix(listener);
        let from = (Bound::Included(start.as_str()), Bound::Unbounded);
        let named = self
            .chains
            .range::<str, _>(from)
            .take_while(|(name, _)| name.starts_with(&start));
        let mut classes = named.map(|(_, (class, _))| class);
        classes.any(|class| {
            class.purpose == Purpose::Table && class.listener.as_ref() == Some(listener)
        })
    }

    /// True if there are no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry of a class, for a hostname whose chain was named `before`. Returns the chain's
    /// name, and whether the class replaced another one under that name: a hostname may change a
    /// chain that no other hostname has.
    fn hold(&mut self, class: ChainClass, before: Option<&ChainName>) -> (ChainName, bool) {
        let name = class.to_string();
        let known = self
            .chains
            .get_key_value(name.as_str())
            .map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| ChainName::from(name));
        let (held, count) = self
            .chains
            .entry(name.clone())
            .or_insert_with(|| (class.clone(), 0));
        let is_another = *held != class;
        if is_another {
            assert!(
                *count == 1 && before == Some(&name),
                "two classes of filter chains have the name {name}"
            );
            *held = class;
        }
        *count += 1;
        (name, is_another)
    }

    fn release(&mut self, name: &ChainName) {
        if let Some(slot) = self.chains.get_mut(name) {
            slot.1 -= 1;
            if slot.1 == 0 {
                self.chains.remove(name);
            }
        }
    }

    /// Updates the counts of a name's siblings. Returns whether their parent's wildcard must be
    /// evaluated again.
    fn count_sibling(
        &mut self,
        hostname: &Hostname,
        old: Option<&ChainName>,
        new: Option<&ChainName>,
    ) -> bool {
        let Some(parent) = hostname.parent() else {
            return false;
        };
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

    /// The chain that a parent's wildcard may have as a collapse: none if a listener's own entry
    /// covers the parent, since names without an owner would change their chain.
    fn suffix(&self, parent: &Hostname) -> Option<ChainName> {
        let covered = self.entries.contains_key(parent)
            || parent
                .covering()
                .any(|wider| self.entries.contains_key(&wider))
            || self.entries.contains_key(&Hostname::any());
        if covered {
            return None;
        }
        let (name, count) = self
            .siblings
            .get(parent)?
            .iter()
            .max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(a.0)))?;
        (*count >= MIN_SIBLINGS).then(|| name.clone())
    }

    /// The chain of the closest wildcard over a hostname.
    fn above(&self, hostname: &Hostname) -> Option<&ChainName> {
        let wider = hostname
            .covering()
            .find_map(|w| self.entries.get(&w).or_else(|| self.suffixes.get(&w)));
        wider.or_else(|| {
            self.entries
                .get(&Hostname::any())
                .filter(|_| !hostname.is_any())
        })
    }

    fn update_sent(&mut self, hostname: &Hostname) -> bool {
        let entry = self
            .entries
            .get(hostname)
            .filter(|chain| self.above(hostname) != Some(chain))
            .cloned();
        match entry {
            Some(chain) => self.sent.insert(hostname.clone(), chain.clone()) != Some(chain),
            None => self.sent.remove(hostname).is_some(),
        }
    }

    /// Computes everything again; this is for rare changes.
    fn recompute_sent(&mut self) -> bool {
        let parents: Vec<Hostname> = self.siblings.keys().cloned().collect();
        self.suffixes = parents
            .into_iter()
            .filter_map(|p| Some((p.clone(), self.suffix(&p)?)))
            .collect();
        let mut sent: BTreeMap<_, _> = self
            .entries
            .iter()
            .filter(|(hostname, chain)| self.above(hostname) != Some(chain))
            .map(|(hostname, chain)| (hostname.clone(), chain.clone()))
            .collect();
        for (suffix, chain) in &self.suffixes {
            sent.insert(suffix.clone(), chain.clone());
        }
        let changed = sent != self.sent;
        self.sent = sent;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        CertificateSource, HeaderEdits, Rewrite, Target, Termination, TlsParams, WeightedTarget,
    };
    use proptest::prelude::*;

    /// A class whose chain has this name, or a name that contains it.
    fn chain(name: &str) -> ChainClass {
        let tls = Termination {
            certificate: CertificateSource::BySni,
            alpn: vec![name.to_owned()],
            params: TlsParams::default(),
            clients: None,
        };
        ChainClass {
            purpose: Purpose::Scopes,
            listener: None,
            tls: Some(tls),
        }
    }

    fn refused() -> WeightedTarget {
        WeightedTarget {
            target: Target::Invalid,
            weight: 1,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            rewrite: Rewrite::default(),
            session: None,
            hash: None,
        }
    }

    fn set(matcher: &mut SniMatcher, hostname: &str, name: Option<&str>) -> bool {
        matcher.set(&Hostname::of(hostname), name.map(chain))
    }

    /// The chain that the sent entries give a name.
    fn looked_up(matcher: &SniMatcher, hostname: &Hostname) -> Option<ChainName> {
        let sent = matcher.sent();
        sent.get(hostname)
            .or_else(|| hostname.covering().find_map(|w| sent.get(&w)))
            .or_else(|| sent.get(&Hostname::any()))
            .cloned()
    }

    #[test]
    fn many_siblings_become_one_entry_and_one_more_changes_nothing() {
        let mut matcher = SniMatcher::default();
        for i in 0..MIN_SIBLINGS {
            set(&mut matcher, &format!("h{i}.example.org"), Some("https"));
        }
        assert_eq!(matcher.sent().len(), 1);
        assert!(!set(&mut matcher, "another.example.org", Some("https")));
        assert!(set(&mut matcher, "odd.example.org", Some("passthrough")));
        assert_eq!(matcher.sent().len(), 2);
    }

    #[test]
    fn a_hostname_changes_the_backends_of_its_own_chain() {
        let mut matcher = SniMatcher::default();
        let x = Hostname::parse("x.a.org").expect("a hostname");
        fn tcp(shares: Vec<WeightedTarget>, x: &Hostname) -> ChainClass {
            ChainClass {
                purpose: Purpose::Tcp(x.clone(), shares),
                listener: None,
                tls: None,
            }
        }
        assert!(matcher.set(&x, Some(tcp(Vec::new(), &x))));
        let shares = vec![refused()];
        assert!(matcher.set(&x, Some(tcp(shares.clone(), &x))));
        assert!(!matcher.set(&x, Some(tcp(shares.clone(), &x))));
        assert_eq!(
            matcher
                .chains()
                .map(|(_, class)| class.clone())
                .collect::<Vec<_>>(),
            [tcp(shares, &x)]
        );
    }

    #[test]
    #[should_panic(expected = "two classes")]
    fn hosts_never_share_a_chain_that_is_not_the_same_for_both() {
        let mut matcher = SniMatcher::default();
        let of = Hostname::parse("x.a.org").expect("a hostname");
        let other = Hostname::parse("y.a.org").expect("a hostname");
        fn tcp(shares: Vec<WeightedTarget>, of: &Hostname) -> ChainClass {
            ChainClass {
                purpose: Purpose::Tcp(of.clone(), shares),
                listener: None,
                tls: None,
            }
        }
        matcher.set(&of, Some(tcp(Vec::new(), &of)));
        matcher.set(&other, Some(tcp(vec![refused()], &of)));
    }

    #[test]
    fn a_suffix_never_takes_names_from_a_wider_listener() {
        let mut matcher = SniMatcher::default();
        set(&mut matcher, "*.org", Some("wild"));
        for i in 0..MIN_SIBLINGS {
            set(&mut matcher, &format!("h{i}.example.org"), Some("https"));
        }
        let unknown = Hostname::parse("unknown.example.org").expect("a hostname");
        assert_eq!(
            looked_up(&matcher, &unknown).as_deref(),
            Some(chain("wild").to_string().as_str())
        );
    }

    proptest! {
        #[test]
        fn shown_entries_say_what_was_set_whatever_the_order(
            steps in proptest::collection::vec(("[a-t]\\.(x|y|x\\.y)\\.org|\\*\\.(x|y)\\.org|", proptest::option::of("p|q")), 1..120)
        ) {
            let mut matcher = SniMatcher::default();
            let mut last: BTreeMap<Hostname, Option<String>> = BTreeMap::new();
            for (hostname, name) in &steps {
                set(&mut matcher, hostname, name.as_deref());
                last.insert(Hostname::of(hostname), name.clone());
            }
            for (hostname, name) in &last {
                if let Some(name) = name {
                    let found = looked_up(&matcher, hostname);
                    let expected = chain(name).to_string();
                    prop_assert_eq!(found.as_deref(), Some(expected.as_str()));
                }
            }
            let mut fresh = SniMatcher::default();
            for (hostname, name) in &last {
                fresh.set(hostname, name.as_deref().map(chain));
            }
            prop_assert_eq!(fresh.sent(), matcher.sent());
            prop_assert_eq!(fresh.chains().count(), matcher.chains().count());
        }
    }
}
