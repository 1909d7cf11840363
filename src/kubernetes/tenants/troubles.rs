//! The problems of writes, indexed by TenantGateway, so that the cost of a status does not depend
//! on the problems of other TenantGateways. Pure.

use std::collections::BTreeMap;

use super::report::Trouble;
use super::task::Task;
use gatewright_core::model::ObjectName;
use gatewright_core::multimap::MultiMap;

/// All problems of writes.
#[derive(Default)]
pub(super) struct TenantTroubles {
    all: BTreeMap<Task, (Option<ObjectName>, Trouble)>,
    by_tenant: MultiMap<ObjectName, Task>,
}

impl TenantTroubles {
    /// Notes the problem of a write for a TenantGateway. Returns whether it is new.
    pub(super) fn note(
        &mut self,
        task: &Task,
        tenant: Option<ObjectName>,
        trouble: Trouble,
    ) -> bool {
        let new = (tenant, trouble);
        if self.all.get(task) == Some(&new) {
            return false;
        }
        self.forget(task);
        if let (Some(tenant), _) = &new {
            self.by_tenant.insert(tenant.clone(), task.clone());
        }
        self.all.insert(task.clone(), new);
        true
    }

    /// Removes the problem of a write.
    pub(super) fn forget(&mut self, task: &Task) {
        if let Some((Some(tenant), _)) = self.all.remove(task) {
            self.by_tenant.remove(&tenant, task);
        }
    }

    /// Returns whether a write has a problem.
    pub(super) fn is_in(&self, task: &Task) -> bool {
        self.all.contains_key(task)
    }

    /// Returns the problems of a TenantGateway.
    pub(super) fn of(&self, tenant: &ObjectName) -> impl Iterator<Item = &Trouble> {
        self.by_tenant.of(tenant).map(|task| &self.all[task].1)
    }

    /// Returns the number of problems.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_its_owners_until_it_goes_or_changes_hands() {
        let [a, b] = ["a", "b"].map(|space| ObjectName::new(space, "cozystack"));
        fn label(namespace: &str) -> Task {
            Task::Label(namespace.into())
        }
        fn trouble(text: &str) -> Trouble {
            Trouble {
                reason: "ReconcileError",
                text: text.into(),
                of_one_host: false,
            }
        }
        let mut troubles = TenantTroubles::default();
        assert!(troubles.note(&label("x"), Some(a.clone()), trouble("1")));
        assert!(
            !troubles.note(&label("x"), Some(a.clone()), trouble("1")),
            "it is known"
        );
        assert!(troubles.note(&label("x"), Some(a.clone()), trouble("2")));
        assert!(troubles.note(&label("y"), Some(a.clone()), trouble("3")));
        assert!(troubles.note(&label("z"), None, trouble("4")));
        fn of(troubles: &TenantTroubles, tenant: &ObjectName) -> Vec<String> {
            troubles
                .of(tenant)
                .map(|t| t.text.clone())
                .collect::<Vec<_>>()
        }
        assert_eq!(of(&troubles, &a), ["2", "3"], "both troubles are told");
        assert_eq!(
            of(&troubles, &b),
            Vec::<String>::new(),
            "the other one has none"
        );
        assert!(
            troubles.note(&label("x"), Some(b.clone()), trouble("2")),
            "of somebody else from now on"
        );
        assert_eq!(of(&troubles, &a), ["3"], "one trouble is left");
        assert_eq!(
            of(&troubles, &b),
            ["2"],
            "the other one is told to its new owner"
        );
        for namespace in ["x", "y", "z"] {
            assert!(troubles.is_in(&label(namespace)));
            troubles.forget(&label(namespace));
        }
        assert_eq!(troubles.len(), 0, "no trouble is left");
        assert_eq!(
            of(&troubles, &a),
            Vec::<String>::new(),
            "the first owner has none"
        );
        assert_eq!(
            of(&troubles, &b),
            Vec::<String>::new(),
            "the second owner has none"
        );
    }
}
