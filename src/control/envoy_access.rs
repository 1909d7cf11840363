//! Admission of Gateways' own Envoys to the xDS server, for as long as their Gateway has a view.
//! Other fleets are admitted for the life of the process.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use gatewright_core::model::{EnvoyFleet, ObjectName};
use gatewright_core::translate::isolated_name;
use xds::{View, Views};

use crate::envoy_identity::identity_of;

/// The service accounts and identities of own Envoys that the xDS server admits. A clone is cheap
/// and shares its state.
#[derive(Clone, Debug, Default)]
pub struct EnvoyAccess {
    views: Views,
    isolated: Arc<RwLock<Isolated>>,
}

#[derive(Debug, Default)]
struct Isolated {
    /// The admitted Gateways with their views, by the name of the service account of their pods.
    admitted: BTreeMap<String, (ObjectName, View)>,
    /// The Gateways and views that temporarily replace the admitted ones; `None` where nothing
    /// replaces them.
    standing_in: Option<BTreeMap<String, (ObjectName, View)>>,
}

impl EnvoyAccess {
    /// Creates the state in which only the clients of `views` are admitted.
    pub fn new(views: Views) -> Self {
        Self {
            views,
            isolated: Arc::default(),
        }
    }

    /// Returns the fleet of the pods of a service account, if it is that of a Gateway with Envoys
    /// of its own.
    pub fn fleet_of_account(&self, account: &str) -> Option<EnvoyFleet> {
        let isolated = self.isolated.read().expect("no holder of this lock panics");
        let (gateway, _) = isolated
            .standing_in
            .as_ref()
            .unwrap_or(&isolated.admitted)
            .get(account)?;
        Some(EnvoyFleet::Isolated(gateway.clone()))
    }

    /// Returns the Gateways that have Envoys of their own now, with their views.
    pub fn isolated(&self) -> Vec<(ObjectName, View)> {
        let isolated = self.isolated.read().expect("no holder of this lock panics");
        isolated.admitted.values().cloned().collect()
    }

    /// Replaces the views of Gateways' own Envoys by these, whatever is admitted meanwhile, until
    /// [`Self::end_stand_in`].
    pub fn stand_in(&self, views: impl IntoIterator<Item = (ObjectName, View)>) {
        let mut isolated = self
            .isolated
            .write()
            .expect("no holder of this lock panics");
        let standing_in = views
            .into_iter()
            .map(|(gateway, view)| (isolated_name(&gateway), (gateway, view)))
            .collect();
        self.show(&isolated.admitted, &standing_in);
        isolated.standing_in = Some(standing_in);
    }

    /// Ends the replacement: own Envoys get the views that they were admitted to, and those of
    /// deleted Gateways none.
    pub fn end_stand_in(&self) {
        let mut isolated = self
            .isolated
            .write()
            .expect("no holder of this lock panics");
        if let Some(before) = isolated.standing_in.take() {
            self.show(&before, &isolated.admitted);
        }
    }

    fn show(
        &self,
        before: &BTreeMap<String, (ObjectName, View)>,
        now: &BTreeMap<String, (ObjectName, View)>,
    ) {
        for (gateway, view) in now.values() {
            self.views.allow(
                identity_of(&EnvoyFleet::Isolated(gateway.clone())),
                view.clone(),
            );
        }
        for (_, (gateway, _)) in before
            .iter()
            .filter(|(account, _)| !now.contains_key(*account))
        {
            self.views
                .revoke(&identity_of(&EnvoyFleet::Isolated(gateway.clone())));
        }
    }

    /// Admits the Envoys of a Gateway's own to their view.
    pub(crate) fn admit(&self, gateway: &ObjectName, view: View) {
        let mut isolated = self
            .isolated
            .write()
            .expect("no holder of this lock panics");
        if isolated.standing_in.is_none() {
            self.views.allow(
                identity_of(&EnvoyFleet::Isolated(gateway.clone())),
                view.clone(),
            );
        }
        isolated
            .admitted
            .insert(isolated_name(gateway), (gateway.clone(), view));
    }

    /// Ends the admission of the Envoys of a Gateway's own: they get no certificate, and their
    /// streams end.
    pub(crate) fn dismiss(&self, gateway: &ObjectName) {
        let mut isolated = self
            .isolated
            .write()
            .expect("no holder of this lock panics");
        isolated.admitted.remove(&isolated_name(gateway));
        if isolated.standing_in.is_none() {
            self.views
                .revoke(&identity_of(&EnvoyFleet::Isolated(gateway.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_of_a_fleet_for_as_long_as_its_gateway_has_a_view() {
        let access = EnvoyAccess::default();
        let edge = ObjectName::new("a", "edge");
        let account = isolated_name(&edge);
        assert_eq!(access.fleet_of_account(&account), None);
        access.clone().admit(&edge, View::new("v"));
        assert_eq!(
            access.fleet_of_account(&account),
            Some(EnvoyFleet::Isolated(edge.clone()))
        );
        assert_eq!(
            access.fleet_of_account(&isolated_name(&ObjectName::new("b", "edge"))),
            None
        );
        access.dismiss(&edge);
        assert_eq!(access.fleet_of_account(&account), None);
    }

    #[test]
    fn a_stand_in_envoy_is_seen_until_it_ends_whatever_others_do() {
        let access = EnvoyAccess::default();
        let [a, b, c] = ["a", "b", "c"].map(|namespace| ObjectName::new(namespace, "edge"));
        let seen = || {
            [&a, &b, &c].map(|gateway| {
                let view = access
                    .views
                    .of(&identity_of(&EnvoyFleet::Isolated(gateway.clone())));
                view.map(|view| view.name().to_owned()).unwrap_or_default()
            })
        };
        access.admit(&a, View::new("a"));
        access.stand_in([
            (b.clone(), View::new("old b")),
            (c.clone(), View::new("old c")),
        ]);
        assert_eq!(seen(), ["", "old b", "old c"]);
        access.admit(&b, View::new("b"));
        access.dismiss(&a);
        assert_eq!(
            seen(),
            ["", "old b", "old c"],
            "half of what is to be seen is not seen"
        );
        fn fleet(gateway: &ObjectName, access: &EnvoyAccess) -> Option<EnvoyFleet> {
            access.fleet_of_account(&isolated_name(gateway))
        }
        assert!(fleet(&a, &access).is_none() && fleet(&c, &access).is_some());
        access.admit(&a, View::new("a"));
        access.end_stand_in();
        assert_eq!(seen(), ["a", "b", ""], "c is gone");
        assert!(fleet(&a, &access).is_some() && fleet(&c, &access).is_none());
        let mut isolated = access.isolated();
        isolated.sort();
        assert_eq!(
            isolated,
            [(a.clone(), View::new("a")), (b.clone(), View::new("b"))]
        );
    }
}
