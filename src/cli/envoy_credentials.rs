//! The client certificates of the Envoys of a cluster.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gatewright_control::envoy_identity::instance_of;
use xds::{Certificates, Views};

/// The authentication of Envoys.
#[derive(Clone, Debug, Args)]
pub struct EnvoyCredentials {
    /// Client certificates by which Envoys authenticate to the xDS server
    #[arg(long, value_enum, default_value_t = Credentials::Secret)]
    pub envoy_credentials: Credentials,
    /// Listening address of the service that issues certificates for pods of Envoys; unused with
    /// --envoy-credentials secret
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:18001")]
    pub envoy_identity: SocketAddr,
    /// Lifetime of a pod's certificate, in seconds; it is renewed when a third of it is left
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(15..=86_400))]
    pub envoy_identity_seconds: u64,
    /// Maximum number of xDS streams of a pod with its own certificate at this replica; an Envoy
    /// has one
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub xds_streams_per_pod: u32,
}

/// The kinds of client certificates that are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Credentials {
    /// The certificate of their fleet, from a Secret that the controller creates
    Secret,
    /// A certificate for each pod, issued for the pod's service account token; no Secret is created
    Pod,
    /// Either: for a migration from one to the other, and for Envoys outside of pods
    Both,
}

impl Credentials {
    /// True if the Secrets of fleets are created, and their certificates accepted.
    pub fn of_fleets(self) -> bool {
        self != Credentials::Pod
    }

    /// True if pods get certificates.
    pub fn of_pods(self) -> bool {
        self != Credentials::Secret
    }

    /// The accepted certificates, each with its view.
    pub fn certificates(self, views: Views) -> Certificates {
        match self {
            Credentials::Secret => Certificates::new(views),
            Credentials::Pod => Certificates::of_instances(views, instance_of),
            Credentials::Both => Certificates::new(views).or_instances(instance_of),
        }
    }
}

impl EnvoyCredentials {
    /// How long the certificate of a pod lasts.
    pub fn life(&self) -> Duration {
        Duration::from_secs(self.envoy_identity_seconds)
    }
}
