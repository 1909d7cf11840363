//! The quota of a namespace in a record of ownership: the hostnames that it claims count with the
//! bytes of their entries. Those that it owns come first, in the order in which they were recorded,
//! then the others, the oldest first. A hostname beyond the quota is not proposed, and one that is
//! recorded is released.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cost::Dimension;
use crate::quota::{Member, Quota};

/// The rank of a claim: since when it is recorded, then when the claiming object was created.
type Rank = (u64, i64);

/// The start of a claim that is not recorded: behind all that are.
const UNRECORDED: u64 = u64::MAX;

/// A claim of a namespace on an item.
pub(super) struct RecordClaim {
    /// The bytes of the entry.
    pub(super) bytes: u64,
    /// When it was recorded, if it is.
    pub(super) since: Option<u64>,
    /// When the claiming object was created.
    pub(super) created: i64,
}

/// The claims of all namespaces.
pub(super) struct RecordQuota<K> {
    claims: Quota<Arc<str>, (Arc<str>, K), Rank>,
    /// The items whose verdict has changed, or the message about them.
    turned: BTreeSet<K>,
}

impl<K: Ord + Clone> RecordQuota<K> {
    /// Quotas without claims; every namespace may have so many bytes.
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            claims: Quota::new(bytes),
            turned: BTreeSet::new(),
        }
    }

    /// Sets how many bytes a namespace may have.
    pub(super) fn allow(&mut self, namespace: &Arc<str>, bytes: u64) {
        if self.claims.most(namespace) == bytes {
            return;
        }
        let turned = self.claims.allow(namespace, bytes);
        let all = turned.iter().chain(self.claims.beyond(namespace));
        self.turned.extend(all.map(|(_, what)| what.clone()));
    }

    /// Sets or removes the claim of a namespace on an item.
    pub(super) fn set(&mut self, what: &K, namespace: &Arc<str>, claim: Option<RecordClaim>) {
        let key = (namespace.clone(), what.clone());
        let member = claim.map(|claim| Member {
            group: namespace.clone(),
            created: (claim.since.unwrap_or(UNRECORDED), claim.created),
            weight: claim.bytes,
        });
        let turned = self.claims.set(&key, member);
        self.turned.extend(turned.into_iter().map(|(_, what)| what));
    }

    /// Sets since when a claim of a namespace is recorded, if there is one.
    pub(super) fn set_since(&mut self, what: &K, namespace: &Arc<str>, since: Option<u64>) {
        let key = (namespace.clone(), what.clone());
        let Some(member) = self.claims.member(&key).cloned() else {
            return;
        };
        let (_, created) = member.created;
        let claim = RecordClaim {
            bytes: member.weight,
            since,
            created,
        };
        self.set(what, namespace, Some(claim));
    }

    /// True if a namespace does not claim an item, or claims it within its quota.
    pub(super) fn has(&self, what: &K, namespace: &Arc<str>) -> bool {
        self.claims.has(&(namespace.clone(), what.clone()))
    }

    /// The bytes of what a namespace claims within its quota.
    pub(super) fn used(&self, namespace: &Arc<str>) -> u64 {
        self.claims.used(namespace)
    }

    /// The message about an item of a namespace that is beyond its quota.
    pub(super) fn exceeded(&self, namespace: &Arc<str>) -> String {
        let (quota, most) = (Dimension::Record, self.claims.most(namespace));
        format!(
            "the hostnames of namespace {namespace} up to this one, those that it has first, exceed {}, {}: {}",
            quota.option(),
            quota.amount(most),
            quota.advice()
        )
    }

    /// The items whose verdict has changed, or the message about them, since the last call.
    pub(super) fn take_turned(&mut self) -> BTreeSet<K> {
        std::mem::take(&mut self.turned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(since: Option<u64>, created: i64) -> Option<RecordClaim> {
        Some(RecordClaim {
            bytes: 10,
            since,
            created,
        })
    }

    #[test]
    fn what_a_namespace_has_stays_whatever_it_claims_later() {
        let (mut quota, a) = (RecordQuota::new(20), Arc::from("a"));
        quota.set(&"old", &a, claim(Some(7), 3));
        quota.set(&"new", &a, claim(None, 9));
        assert!(quota.has(&"old", &a) && quota.has(&"new", &a));
        assert!(
            quota.take_turned().is_empty(),
            "nothing has changed for others"
        );
        quota.set(&"older", &a, claim(None, 1));
        assert_eq!(
            quota.take_turned(),
            ["new"].into(),
            "of those that are not recorded the older object is first"
        );
        assert!(quota.has(&"old", &a), "what is recorded stays");
        quota.set(&"older", &a, None);
        assert_eq!(quota.take_turned(), ["new"].into(), "there is room again");
        assert_eq!(quota.used(&a), 20);
    }

    #[test]
    fn another_limit_turns_what_was_recorded_last() {
        let (mut quota, a) = (RecordQuota::new(20), Arc::from("a"));
        quota.set(&"first", &a, claim(Some(7), 3));
        quota.set(&"second", &a, claim(Some(8), 1));
        quota.allow(&a, 10);
        assert_eq!(quota.take_turned(), ["second"].into());
        assert!(quota.has(&"first", &a) && !quota.has(&"second", &a));
        let text = quota.exceeded(&a);
        assert!(text.contains("limits.namespace.recordKib"), "{text}");
        quota.allow(&a, 11);
        assert_eq!(
            quota.take_turned(),
            ["second"].into(),
            "its message names the limit"
        );
    }
}
