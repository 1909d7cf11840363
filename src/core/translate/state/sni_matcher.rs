//! The SNI matcher of a TLS frontend: the chain for each SNI, in as few entries as possible.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::rule::chain_class::{ChainClass, Purpose};
use gatewright_objects::domain_order::{ByDomain, Domains};
use gatewright_objects::model::{ChainName, Hostname};

/// The number of siblings with one chain from which on their parent's wildcard replaces them
/// (collapse).
///
/// Every entry costs about 21 bytes in each Listener update, so thousands of hosts must not have
/// one each. With a wildcard entry a handshake for a name that is not ours requests a certificate,
/// and is refused then.
const MIN_SIBLINGS: usize = 16;

/// The number of names with one chain, below parents with few names each, from which on an entry
/// for all names replaces them: hosts with domains of their own.
const MIN_LONE: usize = if cfg!(test) { 4 } else { 64 }; // small where random tests are to cross it

/// Entries by hostname, of which only those that differ from wider ones are sent to Envoy.
#[derive(Default)]
pub(crate) struct SniMatcher {
    /// The entries as set.
    entries: BTreeMap<Hostname, ChainName>,
    /// Their hostnames.
    domains: Domains,
    /// The chains of entries, with the number of entries of each.
    chains: BTreeMap<ChainName, (ChainClass, usize)>,
    /// The exact names directly below each parent wildcard.
    siblings: BTreeMap<ByDomain, Siblings>,
    /// The number of names with each chain below [`Parent::Lone`] parents.
    lone: BTreeMap<ChainName, usize>,
    /// The chain of all names that no entry covers (collapse).
    rest: Option<ChainName>,
    /// The entries that are sent.
    sent: BTreeMap<Hostname, ChainName>,
}

/// The exact names directly below a parent wildcard.
#[derive(Default)]
struct Siblings {
    /// The number of names with each chain.
    chains: BTreeMap<ChainName, usize>,
    /// What the wildcard is.
    parent: Parent,
}

/// A parent wildcard in the matcher.
#[derive(Clone, Debug, Default, PartialEq)]
enum Parent {
    /// An entry of a listener covers it: a collapse would give names without an owner another
    /// chain than that entry does.
    #[default]
    Covered,
    /// It replaces its names with this chain (collapse).
    Collapsed(ChainName),
    /// It has too few names for that.
    Lone,
}

impl SniMatcher {
    /// Sets or removes the entry of a hostname. Returns whether the sent entries changed.
    pub(crate) fn set(&mut self, hostname: &Hostname, entry: Option<ChainClass>) -> bool {
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
        self.domains.set(hostname, name.is_some());
        let parent = hostname.parent().filter(|_| hostname.is_exact());
        let flipped: Vec<Hostname> = match parent {
            Some(parent) => {
                self.count_sibling(&parent, before.as_ref(), name.as_ref());
                let is_another = self.place(&parent);
                is_another.then_some(parent).into_iter().collect()
            }
            // It begins or ceases to cover parents.
            None if !hostname.is_exact() => {
                for parent in self.parents_below(hostname) {
                    self.place(&parent);
                }
                vec![hostname.clone()]
            }
            None => Vec::new(),
        };
        let roots = if self.place_rest() {
            vec![Hostname::any()]
        } else {
            flipped
        };
        for wide in roots {
            changed |= self.send_below(&wide);
        }
        self.send(hostname) | changed
    }

    /// The entries that are sent.
    pub(crate) fn sent(&self) -> &BTreeMap<Hostname, ChainName> {
        &self.sent
    }

    /// All entries, including those that equal a wider one.
    pub(crate) fn all(&self) -> &BTreeMap<Hostname, ChainName> {
        &self.entries
    }

    /// The chains that are in use.
    pub(crate) fn chains(&self) -> impl Iterator<Item = (&ChainName, &ChainClass)> {
        self.chains.iter().map(|(name, (class, _))| (name, class))
    }

    /// True if the table of a wildcard or catch-all listener is in use.
    pub(crate) fn has_table(&self, listener: &Hostname) -> bool {
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
    pub(crate) fn is_empty(&self) -> bool {
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

    /// Updates the counts of the names below a parent.
    fn count_sibling(
        &mut self,
        parent: &Hostname,
        old: Option<&ChainName>,
        new: Option<&ChainName>,
    ) {
        let siblings = self.siblings.entry(ByDomain(parent.clone())).or_default();
        let is_lone = siblings.parent == Parent::Lone;
        for (chain, is_more) in [(new, true), (old, false)] {
            let Some(chain) = chain else { continue };
            count(&mut siblings.chains, chain, 1, is_more);
            if is_lone {
                count(&mut self.lone, chain, 1, is_more);
            }
        }
    }

    /// Decides what a parent wildcard is. Returns whether it is another.
    fn place(&mut self, parent: &Hostname) -> bool {
        let new = self.parent(parent);
        let key = ByDomain(parent.clone());
        let Some(siblings) = self.siblings.get_mut(&key) else {
            return false;
        };
        let old = std::mem::replace(&mut siblings.parent, new.clone());
        if old != new {
            let lone = [(&old, false), (&new, true)].into_iter();
            for (_, is_more) in lone.filter(|(parent, _)| **parent == Parent::Lone) {
                for (chain, names) in &siblings.chains {
                    count(&mut self.lone, chain, *names, is_more);
                }
            }
        }
        if siblings.chains.is_empty() {
            self.siblings.remove(&key);
        }
        old != new
    }

    fn parent(&self, parent: &Hostname) -> Parent {
        let covered = self.entries.contains_key(parent)
            || parent
                .covering()
                .any(|wider| self.entries.contains_key(&wider))
            || self.entries.contains_key(&Hostname::any());
        if covered {
            return Parent::Covered;
        }
        let siblings = self.siblings.get(&ByDomain(parent.clone()));
        match siblings.and_then(|siblings| most(siblings.chains.iter())) {
            Some((name, count)) if count >= MIN_SIBLINGS => Parent::Collapsed(name.clone()),
            _ => Parent::Lone,
        }
    }

    /// Decides which chain all names have that no entry covers: only one that refuses names without
    /// an owner. Returns whether it is another.
    fn place_rest(&mut self) -> bool {
        let by_sni = self.lone.iter().filter(|(chain, _)| {
            let class = self.chains.get(*chain).map(|(class, _)| class);
            class.is_some_and(ChainClass::refuses_unknown_names)
        });
        let new = most(by_sni)
            .filter(|(_, count)| *count >= MIN_LONE)
            .map(|(name, _)| name.clone());
        let is_another = self.rest != new;
        self.rest = new;
        is_another
    }

    /// The parents at a wildcard, or the empty hostname, and below it.
    fn parents_below(&self, wide: &Hostname) -> Vec<Hostname> {
        let from = self.siblings.range(ByDomain::from(wide));
        from.map(|(parent, _)| &parent.0)
            .take_while(|parent| wide.covers(parent))
            .cloned()
            .collect()
    }

    /// The chain of a wildcard by its collapse.
    fn collapsed(&self, wide: &Hostname) -> Option<&ChainName> {
        if wide.is_any() {
            return self.rest.as_ref();
        }
        match &self.siblings.get(&ByDomain(wide.clone()))?.parent {
            Parent::Collapsed(chain) => Some(chain),
            Parent::Covered | Parent::Lone => None,
        }
    }

    /// The chain of the closest wildcard over a hostname.
    fn above(&self, hostname: &Hostname) -> Option<&ChainName> {
        let any = (!hostname.is_any()).then(Hostname::any);
        hostname
            .covering()
            .chain(any)
            .find_map(|wide| self.entries.get(&wide).or_else(|| self.collapsed(&wide)))
    }

    /// Sends an entry, if it differs from the wider ones. Returns whether that changed.
    fn send(&mut self, hostname: &Hostname) -> bool {
        let entry = self
            .entries
            .get(hostname)
            .or_else(|| self.collapsed(hostname))
            .filter(|chain| self.above(hostname) != Some(chain))
            .cloned();
        match entry {
            Some(chain) => self.sent.insert(hostname.clone(), chain.clone()) != Some(chain),
            None => self.sent.remove(hostname).is_some(),
        }
    }

    /// Sends a wildcard, or what all names have, and everything below.
    fn send_below(&mut self, wide: &Hostname) -> bool {
        let mut names = self.parents_below(wide);
        names.extend(self.domains.below(wide).cloned());
        names.push(wide.clone());
        names
            .iter()
            .fold(false, |changed, name| self.send(name) | changed)
    }
}

/// The chain with the most names; of several the first by name.
fn most<'a>(
    chains: impl Iterator<Item = (&'a ChainName, &'a usize)>,
) -> Option<(&'a ChainName, usize)> {
    chains
        .max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(a.0)))
        .map(|(name, count)| (name, *count))
}

fn count(of: &mut BTreeMap<ChainName, usize>, chain: &ChainName, names: usize, is_more: bool) {
    let count = of.entry(chain.clone()).or_insert(0);
    if is_more {
        *count += names;
    } else {
        *count -= names;
    }
    if *count == 0 {
        of.remove(chain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_objects::model::{
        CertificateSource, HeaderEdits, IdentityRemoval, Rewrite, Target, Termination, TlsParams,
        WeightedTarget,
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
            purpose: Purpose::Scopes(IdentityRemoval::Early),
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
            external_name: None,
            session: None,
            hash: None,
        }
    }

    fn set(matcher: &mut SniMatcher, hostname: &str, name: Option<&str>) -> bool {
        matcher.set(&crate::confluence::hostname(hostname), name.map(chain))
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
    fn hosts_with_domains_of_their_own_become_one_entry_and_one_more_changes_nothing() {
        let mut matcher = SniMatcher::default();
        for i in 0..MIN_LONE {
            set(&mut matcher, &format!("www.shop{i}.example"), Some("https"));
        }
        assert_eq!(matcher.sent().len(), 1, "{:?}", matcher.sent());
        assert!(!set(&mut matcher, "www.another.example", Some("https")));
        assert!(set(&mut matcher, "www.odd.example", Some("odd")));
        assert!(set(&mut matcher, "*.wild.example", Some("wild")));
        assert_eq!(matcher.sent().len(), 3, "{:?}", matcher.sent());
        // A listener without a hostname takes all names that others have not.
        assert!(set(&mut matcher, "", Some("every")));
        assert_eq!(matcher.sent().len(), MIN_LONE + 4);
        assert!(set(&mut matcher, "", None));
        assert!(!set(&mut matcher, "www.another.example", None));
        assert!(set(&mut matcher, "www.shop0.example", None));
        assert_eq!(matcher.sent().len(), MIN_LONE + 1, "{:?}", matcher.sent());
    }

    #[test]
    fn a_chain_that_would_answer_names_without_an_owner_is_not_that_of_all() {
        let mut matcher = SniMatcher::default();
        for i in 0..2 * MIN_LONE {
            matcher.set(
                &crate::confluence::hostname(&format!("www.shop{i}.example")),
                Some(ChainClass::closed()),
            );
        }
        assert_eq!(matcher.sent().len(), 2 * MIN_LONE);
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
            steps in proptest::collection::vec(("[a-t]\\.(x|y|x\\.y)\\.org|[a-f]\\.[a-d]\\.net|\\*\\.(x|y|a)\\.(org|net)|", proptest::option::of("p|q")), 1..120)
        ) {
            let mut matcher = SniMatcher::default();
            let mut last: BTreeMap<Hostname, Option<String>> = BTreeMap::new();
            for (hostname, name) in &steps {
                set(&mut matcher, hostname, name.as_deref());
                last.insert(crate::confluence::hostname(hostname), name.clone());
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
