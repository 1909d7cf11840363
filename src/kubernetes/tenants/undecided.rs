//! Unwanted derived objects that are kept, since the desired state of their TenantGateway is not
//! known now. Pure.

use std::collections::{BTreeMap, BTreeSet};

use gatewright_core::tenancy::Derived;

/// The kept objects, by the UID of their controlling owner.
#[derive(Default)]
pub(super) struct Undecided(BTreeMap<Box<str>, BTreeSet<Derived>>);

impl Undecided {
    /// Adds an object.
    pub(super) fn note(&mut self, owner: &str, derived: &Derived) {
        self.0
            .entry(owner.into())
            .or_default()
            .insert(derived.clone());
    }

    /// Removes a deleted object.
    pub(super) fn forget(&mut self, owner: &str, derived: &Derived) {
        if let Some(of) = self.0.get_mut(owner) {
            of.remove(derived);
            if of.is_empty() {
                self.0.remove(owner);
            }
        }
    }

    /// Removes and returns the objects of owners whose desired state is known again, to be compared
    /// once more.
    pub(super) fn mended(&mut self, decides: impl Fn(&Derived, &str) -> bool) -> Vec<Derived> {
        let mended = self.0.extract_if(.., |owner, of| {
            of.first().is_some_and(|derived| decides(derived, owner))
        });
        let mended: Vec<_> = mended.collect();
        mended.into_iter().flat_map(|(_, of)| of).collect()
    }
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::ObjectName;
    use gatewright_core::tenancy::DerivedKind;

    use super::*;

    #[test]
    fn undecided_objects_are_reconsidered_once_their_owner_is_repaired() {
        fn of(name: &str) -> Derived {
            Derived {
                kind: DerivedKind::Certificate,
                name: ObjectName::new("a", name),
            }
        }
        let mut undecided = Undecided::default();
        for (owner, name) in [
            ("one", "x"),
            ("one", "y"),
            ("two", "z"),
            ("one", "gone"),
            ("three", "gone"),
        ] {
            undecided.note(owner, &of(name));
        }
        undecided.forget("one", &of("gone"));
        undecided.forget("three", &of("gone"));
        assert_eq!(undecided.mended(|_, _| false), []);
        assert_eq!(
            undecided.mended(|_, owner| owner == "one"),
            [of("x"), of("y")]
        );
        assert_eq!(undecided.mended(|_, owner| owner == "one"), []);
        assert_eq!(undecided.mended(|_, _| true), [of("z")]);
        assert!(undecided.0.is_empty());
    }
}
