//! Which service accounts the pods of Envoys run as, and of which fleet a pod is by that. Pure.

use std::borrow::Cow;

use gatewright_control::envoy_access::EnvoyAccess;
use gatewright_core::model::EnvoyFleet;
use gatewright_core::translate::isolated_name;

/// The Secret that the Envoys of a fleet mount: certificate, key, and the certificates of those whom they trust. Those of a
/// Gateway's own have certificates of their pods and no others.
pub const fn secret_of(fleet: &EnvoyFleet) -> Option<&'static str> {
    match fleet {
        EnvoyFleet::Shared => Some(SHARED),
        EnvoyFleet::Dedicated => Some("gatewright-envoy-dedicated"),
        EnvoyFleet::Isolated(_) => None,
    }
}

/// That of the shared fleet.
pub(super) const SHARED: &str = "gatewright-envoy";

/// The service account of the Envoys of a fleet.
pub(super) fn account_of(fleet: &EnvoyFleet) -> Cow<'static, str> {
    match (fleet, secret_of(fleet)) {
        (EnvoyFleet::Isolated(gateway), _) => isolated_name(gateway).into(),
        (_, secret) => secret.unwrap_or_default().into(),
    }
}

/// The accounts whose pods are Envoys of ours.
#[derive(Clone, Debug)]
pub struct EnvoyAccounts {
    /// The fleets that serve many Gateways and have Envoys.
    pub fleets: Vec<EnvoyFleet>,
    /// Those of Gateways' own, which come and go.
    pub access: EnvoyAccess,
}

impl EnvoyAccounts {
    /// The fleet of the pods of an account.
    pub(super) fn fleet(&self, account: &str) -> Option<EnvoyFleet> {
        let of_many = self.fleets.iter().find(|fleet| account_of(fleet) == account).cloned();
        of_many.or_else(|| self.access.fleet_of_account(account))
    }

    /// The accounts of fleets that serve many Gateways, for people.
    pub(super) fn expected(&self, namespace: &str) -> String {
        let of_many =
            self.fleets.iter().map(|fleet| format!("system:serviceaccount:{namespace}:{}", account_of(fleet)));
        of_many.collect::<Vec<_>>().join(" or ")
    }
}
