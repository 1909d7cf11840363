//! Hostnames of TenantGateways, and their order.

use std::cmp::Ordering;

use crate::model::{Hostname, ObjectName};

/// A hostname, ordered from its end: a wildcard sorts before the names that it covers, and these
/// are adjacent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(pub(super) Hostname);

/// A hostname of a TenantGateway, in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) tenant: ObjectName,
    pub(super) hostname: Hostname,
}

/// Identifies a [`Host`] with state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostId(pub(super) usize);

impl Host {
    pub(super) fn new(tenant: &ObjectName, hostname: &Hostname) -> Self {
        Self {
            tenant: tenant.clone(),
            hostname: hostname.clone(),
        }
    }

    /// A value that sorts before every hostname of a TenantGateway.
    pub(super) fn first(tenant: &ObjectName) -> Self {
        Self {
            tenant: tenant.clone(),
            hostname: Hostname::any(),
        }
    }

    pub(super) fn name(&self) -> Name {
        Name(self.hostname.clone())
    }
}

/// Compares hostnames from the end, eight bytes at a time, since hostnames of one apex have a long
/// common suffix.
pub(super) fn from_the_end(a: &Hostname, b: &Hostname) -> Ordering {
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

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        from_the_end(&self.0, &other.0)
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Host {
    fn cmp(&self, other: &Self) -> Ordering {
        self.tenant
            .cmp(&other.tenant)
            .then_with(|| from_the_end(&self.hostname, &other.hostname))
    }
}

impl PartialOrd for Host {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A shard of a TenantGateway's listeners: the Gateway (0), or a numbered ListenerSet.
pub(super) type Shard = (ObjectName, usize);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_comparison_from_the_end_is_one_of_the_texts_in_reverse(a in "[a-b.]{0,20}", b in "[a-b.]{0,20}") {
            let reversed = |text: &str| text.bytes().rev().collect::<Vec<_>>();
            prop_assert_eq!(backwards(a.as_bytes(), b.as_bytes()), reversed(&a).cmp(&reversed(&b)));
        }

        #[test]
        fn hostnames_below_a_wildcard_directly_follow_it_in_the_order(
            mut names in proptest::collection::vec("(\\*\\.)?([a-c-]{0,2}[ab0]\\.){0,3}(x|ax|x-x)", 2..30),
        ) {
            names.sort_by(|a, b| backwards(a.as_bytes(), b.as_bytes()));
            let names: Vec<Hostname> = names.iter().filter_map(|name| Hostname::parse(name).ok()).collect();
            for (at, wildcard) in names.iter().enumerate().filter(|(_, name)| name.is_wildcard()) {
                prop_assert!(names[..at].iter().all(|name| name == wildcard || !wildcard.covers(name)));
                let run = names[at..].iter().take_while(|name| wildcard.covers(name)).count();
                prop_assert!(names[at + run..].iter().all(|name| !wildcard.covers(name)));
            }
        }
    }
}
