//! Maps between fleets and the service accounts of their Envoy pods. Pure.

use std::borrow::Cow;

use gatewright_control::envoy_access::EnvoyAccess;
use gatewright_core::model::EnvoyFleet;
use gatewright_core::translate::isolated_name;
use xds::Views;

/// Returns the name of the Secret that the Envoys of a fleet mount: certificate, key, and the CA
/// certificates that they trust. `None` for a Gateway's own Envoys, which have only certificates of
/// their pods.
pub const fn secret_of(fleet: &EnvoyFleet) -> Option<&'static str> {
    match fleet {
        EnvoyFleet::Shared => Some(SHARED),
        EnvoyFleet::Dedicated => Some("gatewright-envoy-dedicated"),
        EnvoyFleet::Isolated(_) => None,
    }
}

/// The Secret of the shared fleet.
pub(super) const SHARED: &str = "gatewright-envoy";

/// Returns the service account of the Envoys of a fleet.
pub(super) fn account_of(fleet: &EnvoyFleet) -> Cow<'static, str> {
    match (fleet, secret_of(fleet)) {
        (EnvoyFleet::Isolated(gateway), _) => isolated_name(gateway).into(),
        (_, secret) => secret.unwrap_or_default().into(),
    }
}

/// The service accounts whose pods are Envoys of ours.
#[derive(Clone, Debug)]
pub struct EnvoyAccounts {
    /// The fleets that serve many Gateways and have Envoys.
    pub fleets: Vec<EnvoyFleet>,
    /// The access of Gateways' own Envoys, which changes at run time.
    pub access: EnvoyAccess,
}

impl EnvoyAccounts {
    /// Returns those of the fleets that serve many Gateways: outside of a controller, no others are
    /// known.
    pub fn of_many() -> Self {
        Self {
            fleets: EnvoyFleet::OF_MANY.to_vec(),
            access: EnvoyAccess::new(Views::new()),
        }
    }

    /// Returns the fleet of the pods of a service account.
    pub(super) fn fleet(&self, account: &str) -> Option<EnvoyFleet> {
        let of_many = self
            .fleets
            .iter()
            .find(|fleet| account_of(fleet) == account)
            .cloned();
        of_many.or_else(|| self.access.fleet_of_account(account))
    }

    /// Returns the accounts of fleets that serve many Gateways, for messages.
    pub(super) fn expected(&self, namespace: &str) -> String {
        let of_many = self
            .fleets
            .iter()
            .map(|fleet| format!("system:serviceaccount:{namespace}:{}", account_of(fleet)));
        of_many.collect::<Vec<_>>().join(" or ")
    }
}
