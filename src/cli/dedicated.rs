//! The Envoys that serve Gateways of fleet Dedicated.

use clap::{Args, ValueEnum};
use gatewright_control::fleet_views::FleetViews;
use gatewright_core::model::{EnvoyFleet, ObjectName};
use gatewright_core::translate::DedicatedEnvoys;
use xds::View;

/// The Envoys of fleet Dedicated.
#[derive(Clone, Debug, Args)]
pub struct Dedicated {
    /// Name of the Service of the Envoys of fleet Dedicated, in the controller's namespace. They
    /// authenticate as that fleet, with --envoy-credentials secret by Secret
    /// gatewright-envoy-dedicated [default: the Envoys of --envoys serve both fleets and can read
    /// the certificates of both]
    #[arg(long, value_name = "NAME")]
    pub dedicated_envoys: Option<String>,
    /// Configuration that the Envoys of each fleet can read
    #[arg(long, value_enum, default_value_t = Seen::Apart, requires = "dedicated_envoys")]
    pub fleet_views: Seen,
}

/// The configuration that the Envoys of each fleet can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Seen {
    /// Only that of their fleet
    Apart,
    /// Everything, for both fleets; the Envoys of --envoys serve fleet Dedicated until one of its
    /// Envoys is ready. For a migration to separate Envoys without interruption
    Joined,
}

impl Dedicated {
    /// The Envoys that serve Gateways of the dedicated fleet, in the controller's namespace.
    pub fn envoys(&self, namespace: &str) -> DedicatedEnvoys {
        let service = self
            .dedicated_envoys
            .as_deref()
            .map(|name| ObjectName::new(namespace, name));
        match (service, self.fleet_views) {
            (None, _) => DedicatedEnvoys::OfSharedFleet,
            (Some(service), Seen::Joined) => DedicatedEnvoys::Joining(service),
            (Some(service), Seen::Apart) => DedicatedEnvoys::Apart(service),
        }
    }

    /// The views that Envoys can read.
    pub fn views(&self) -> FleetViews {
        match (&self.dedicated_envoys, self.fleet_views) {
            (Some(_), Seen::Apart) => FleetViews::apart(),
            _ => View::new(EnvoyFleet::Shared.to_string()).into(),
        }
    }

    /// The fleets that have Envoys of their own, and an identity each.
    pub fn fleets(&self) -> Vec<EnvoyFleet> {
        let all = EnvoyFleet::OF_MANY.into_iter();
        all.filter(|fleet| *fleet == EnvoyFleet::Shared || self.dedicated_envoys.is_some())
            .collect()
    }
}
