//! Whom the control plane lets in beside the fleets that are there as long as it runs: the Envoys of Gateways' own, for as long as
//! their Gateway has a view.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use gatewright_core::model::{EnvoyFleet, ObjectName};
use gatewright_core::translate::isolated_name;
use xds::{View, Views};

use crate::envoy_identity::identity_of;

/// Service accounts and certificates of Envoys that the xDS server admits. A clone is cheap and shares its state.
#[derive(Clone, Debug, Default)]
pub struct EnvoyAccess {
    views: Views,
    /// By the name of the service account of their pods.
    accounts: Arc<RwLock<BTreeMap<String, ObjectName>>>,
}

impl EnvoyAccess {
    /// Nobody yet beside whom `views` lets in.
    pub fn new(views: Views) -> Self {
        Self { views, accounts: Arc::default() }
    }

    /// The fleet of the pods of a service account, where it is that of a Gateway that has Envoys of its own now.
    pub fn fleet_of_account(&self, account: &str) -> Option<EnvoyFleet> {
        let accounts = self.accounts.read().expect("no holder of this lock panics");
        accounts.get(account).cloned().map(EnvoyFleet::Isolated)
    }

    /// Lets the Envoys of a Gateway's own see their view, and no other.
    pub(crate) fn admit(&self, gateway: &ObjectName, view: View) {
        self.views.allow(identity_of(&EnvoyFleet::Isolated(gateway.clone())), view);
        let mut accounts = self.accounts.write().expect("no holder of this lock panics");
        accounts.insert(isolated_name(gateway), gateway.clone());
    }

    /// Lets them see nothing any more: they get no certificate, and their streams end.
    pub(crate) fn dismiss(&self, gateway: &ObjectName) {
        self.accounts.write().expect("no holder of this lock panics").remove(&isolated_name(gateway));
        self.views.revoke(&identity_of(&EnvoyFleet::Isolated(gateway.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_of_a_fleet_for_as_long_as_its_gateway_has_a_view() {
        let (access, edge) = (EnvoyAccess::default(), ObjectName::new("a", "edge"));
        let account = isolated_name(&edge);
        assert_eq!(access.fleet_of_account(&account), None);
        access.clone().admit(&edge, View::new("v"));
        assert_eq!(access.fleet_of_account(&account), Some(EnvoyFleet::Isolated(edge.clone())));
        assert_eq!(access.fleet_of_account(&isolated_name(&ObjectName::new("b", "edge"))), None);
        access.dismiss(&edge);
        assert_eq!(access.fleet_of_account(&account), None);
    }
}
