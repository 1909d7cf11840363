//! The claims of each item that has an owner: a hostname, a port. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rule::ownership::Claimant;
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::ownership::Ownable;

/// The claims of items. The cost of a change does not depend on the number of claims of the item:
/// all listeners of a port claim it.
#[derive(Default)]
pub(crate) struct ItemClaims {
    claims: MultiMap<Ownable, Claimant>,
    /// The number of claims by item, namespace and creation time, of items with several claims.
    several: BTreeMap<(Ownable, Arc<str>, i64), usize>,
}

impl ItemClaims {
    /// Adds or removes a claim.
    pub(crate) fn set(&mut self, what: &Ownable, claimant: &Claimant, there: bool) {
        if self.claims.contains(what, claimant) == there {
            return;
        }
        let before = self.claims.count(what);
        self.claims.set(what, claimant, there);
        let counted = match before.min(self.claims.count(what)) {
            0 => Vec::new(),
            // The other claim is counted while it is not the only one.
            1 if there => self.claims.of(what).cloned().collect(),
            1 => self.claims.of(what).chain([claimant]).cloned().collect(),
            _ => vec![claimant.clone()],
        };
        for claimant in counted {
            self.count(what, &claimant, there);
        }
    }

    fn count(&mut self, what: &Ownable, claimant: &Claimant, there: bool) {
        let key = (what.clone(), claimant.namespace.clone(), claimant.created);
        let count = self.several.entry(key.clone()).or_default();
        if there {
            *count += 1;
        } else {
            *count -= 1;
            if *count == 0 {
                self.several.remove(&key);
            }
        }
    }

    /// The creation time of the first object of a namespace that claims an item, if any does.
    pub(crate) fn first_of(&self, what: &Ownable, namespace: &Arc<str>) -> Option<i64> {
        let only = self.claims.of(what).next()?;
        if self.claims.count(what) == 1 {
            return (only.namespace == *namespace).then_some(only.created);
        }
        let all = self
            .several
            .range((what.clone(), namespace.clone(), i64::MIN)..);
        let ((item, of, created), _) = all.into_iter().next()?;
        (item == what && of == namespace).then_some(*created)
    }

    /// The claims of an item, by precedence.
    pub(crate) fn of<'a>(&'a self, what: &Ownable) -> impl Iterator<Item = &'a Claimant> + use<'a> {
        self.claims.of(what)
    }

    /// The claimed items.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Ownable> {
        self.claims.keys()
    }

    /// The claimed items from one on.
    pub(crate) fn items_from(&self, first: Ownable) -> impl Iterator<Item = &Ownable> {
        self.claims.from(first).map(|(what, _)| what)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::rule::ownership::By;
    use gatewright_objects::model::{Family, FrontendId, Hostname, ObjectName};

    fn claimant(namespace: u8, created: i64, port: u16) -> Claimant {
        let namespace: Arc<str> = format!("n{namespace}").into();
        Claimant {
            created,
            through: namespace.clone(),
            by: By::Frontend(FrontendId::tcp(ObjectName::new(&*namespace, "g"), port)),
            namespace,
            protocol: Family::Tls,
        }
    }

    proptest! {
        #[test]
        fn the_first_claim_of_a_namespace_is_that_of_a_search_through_all(
            steps in proptest::collection::vec((0u8..2, 0u8..3, 0i64..3, 0u16..2, any::<bool>()), 0..80)
        ) {
            let mut claims = ItemClaims::default();
            let mut model: BTreeSet<(Ownable, Claimant)> = BTreeSet::new();
            for (item, namespace, created, port, there) in steps {
                let name = Hostname::parse(&format!("h{item}.org")).expect("a hostname");
                let what = Ownable::Hostname(name);
                let by = claimant(namespace, created, port);
                claims.set(&what, &by, there);
                if there {
                    model.insert((what.clone(), by.clone()));
                } else {
                    model.remove(&(what.clone(), by.clone()));
                }
                let own = model.iter().filter(|(other, of)| *other == what && of.namespace == by.namespace);
                prop_assert_eq!(claims.first_of(&what, &by.namespace), own.map(|(_, of)| of.created).min());
                prop_assert_eq!(claims.of(&what).count(), model.iter().filter(|(other, _)| *other == what).count());
                if model.is_empty() {
                    prop_assert!(claims.several.is_empty());
                }
            }
        }
    }
}
