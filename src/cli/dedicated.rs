//! Whose Envoys serve Gateways of fleet Dedicated.

use clap::{Args, ValueEnum};
use gatewright_control::fleet_views::FleetViews;
use gatewright_core::model::{EnvoyFleet, ObjectName};
use gatewright_core::translate::DedicatedEnvoys;
use xds::View;

/// The Envoys of fleet Dedicated.
#[derive(Clone, Debug, Args)]
pub struct Dedicated {
    /// The Service in the same namespace that has the Envoys of fleet Dedicated behind it, which show the certificate of Secret
    /// gatewright-envoy-dedicated [default: Envoys of --envoys serve both fleets, and see the certificates of both]
    #[arg(long, value_name = "NAME")]
    pub dedicated_envoys: Option<String>,
    /// What Envoys of the fleets see
    #[arg(long, value_enum, default_value_t = Seen::Apart, requires = "dedicated_envoys")]
    pub fleet_views: Seen,
}

/// What Envoys of the fleets see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Seen {
    /// Each fleet what is its own
    Apart,
    /// Both fleets everything, and Envoys of --envoys serve fleet Dedicated for as long as it has none that is ready: a step on
    /// the way to Envoys of its own without an interruption
    Joined,
}

impl Dedicated {
    /// Whose Envoys serve Gateways of the dedicated fleet, in the controller's namespace.
    pub fn envoys(&self, namespace: &str) -> DedicatedEnvoys {
        let service = self.dedicated_envoys.as_deref().map(|name| ObjectName::new(namespace, name));
        match (service, self.fleet_views) {
            (None, _) => DedicatedEnvoys::OfSharedFleet,
            (Some(service), Seen::Joined) => DedicatedEnvoys::Joining(service),
            (Some(service), Seen::Apart) => DedicatedEnvoys::Apart(service),
        }
    }

    /// The views that Envoys see.
    pub fn views(&self) -> FleetViews {
        match (&self.dedicated_envoys, self.fleet_views) {
            (Some(_), Seen::Apart) => FleetViews::apart(),
            _ => View::new(EnvoyFleet::Shared.to_string()).into(),
        }
    }

    /// The fleets that have Envoys of their own, and an identity each.
    pub fn fleets(&self) -> Vec<EnvoyFleet> {
        let all = EnvoyFleet::OF_MANY.into_iter();
        all.filter(|fleet| *fleet == EnvoyFleet::Shared || self.dedicated_envoys.is_some()).collect()
    }
}
