//! The order of hostnames from their ends, in which all names below a domain are adjacent.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use crate::model::Hostname;

/// A hostname, ordered from its end: a wildcard sorts before the names that it covers, and these
/// are adjacent. The empty hostname, which covers every name, is the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByDomain(pub Hostname);

impl ByDomain {
    /// The range of what a wildcard, or the empty hostname, covers and of what follows it.
    pub fn from(wide: &Hostname) -> (Bound<Self>, Bound<Self>) {
        (Bound::Included(Self(wide.clone())), Bound::Unbounded)
    }
}

impl Ord for ByDomain {
    fn cmp(&self, other: &Self) -> Ordering {
        from_the_end(&self.0, &other.0)
    }
}

impl PartialOrd for ByDomain {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Hostnames by domain.
#[derive(Default)]
pub struct Domains(BTreeSet<ByDomain>);

impl Domains {
    /// Adds or removes a hostname. Returns whether that is a change.
    pub fn set(&mut self, hostname: &Hostname, there: bool) -> bool {
        let name = ByDomain(hostname.clone());
        if there {
            self.0.insert(name)
        } else {
            self.0.remove(&name)
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hostnames that a wildcard, or the empty hostname, covers, without itself.
    pub fn below(&self, wide: &Hostname) -> impl Iterator<Item = &Hostname> {
        let from = self.0.range(ByDomain::from(wide)).map(|name| &name.0);
        from.skip_while(move |name| *name == wide)
            .take_while(move |name| wide.covers(name))
    }
}

/// Compares hostnames from the end, eight bytes at a time, since hostnames of one apex have a long
/// common suffix.
pub fn from_the_end(a: &Hostname, b: &Hostname) -> Ordering {
    backwards(a.as_str().as_bytes(), b.as_str().as_bytes())
}

fn backwards(mut a: &[u8], mut b: &[u8]) -> Ordering {
    while let (Some((a_rest, a_last)), Some((b_rest, b_last))) =
        (a.split_last_chunk::<8>(), b.split_last_chunk::<8>())
    {
        match u64::from_le_bytes(*a_last).cmp(&u64::from_le_bytes(*b_last)) {
            Ordering::Equal => (a, b) = (a_rest, b_rest),
            other => return other,
        }
    }
    a.iter().rev().cmp(b.iter().rev())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_comparison_from_the_end_is_one_of_the_texts_in_reverse(a in "[a-b.]{0,20}", b in "[a-b.]{0,20}") {
            fn reversed(text: &str) -> Vec<u8> {
                text.bytes().rev().collect()
            }
            prop_assert_eq!(backwards(a.as_bytes(), b.as_bytes()), reversed(&a).cmp(&reversed(&b)));
        }

        #[test]
        fn names_below_a_wildcard_are_those_that_it_covers(
            names in proptest::collection::vec("((\\*\\.)?([a-c-]{0,2}[ab0]\\.){0,3}(x|ax|x-x))?", 2..30),
        ) {
            let names: BTreeSet<Hostname> = names.iter().map(|name| match name.as_str() {
                "" => Hostname::any(),
                name => Hostname::parse(name).unwrap_or_else(|_| Hostname::any()),
            }).collect();
            let mut domains = Domains::default();
            for name in &names {
                domains.set(name, true);
            }
            for wide in names.iter().filter(|name| !name.is_exact()) {
                let covered = names.iter().filter(|name| *name != wide && wide.covers(name));
                let below: BTreeSet<&Hostname> = domains.below(wide).collect();
                prop_assert_eq!(below, covered.collect());
            }
        }
    }
}
