//! By what Envoys of a cluster are let in.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gatewright_control::envoy_identity::instance_of;
use xds::{Certificates, Views};

/// What Envoys prove who they are by.
#[derive(Clone, Debug, Args)]
pub struct EnvoyCredentials {
    /// By which certificates Envoys are let in
    #[arg(long, value_enum, default_value_t = Credentials::Secret)]
    pub envoy_credentials: Credentials,
    /// Where pods of Envoys get certificates of their own, unless --envoy-credentials is secret
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:18001")]
    pub envoy_identity: SocketAddr,
    /// How long the certificate of a pod lasts; it is renewed when a third of that is left
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(15..=86_400))]
    pub envoy_identity_seconds: u64,
    /// How many xDS streams the Envoy of a pod with a certificate of its own may have open at this replica: it has one
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub xds_streams_per_pod: u32,
}

/// Certificates that Envoys are let in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Credentials {
    /// That of their fleet, from its Secret, which this program makes
    Secret,
    /// That of their pod, which the pod gets for its token and nobody else has; no Secret is made
    Pod,
    /// Either: on the way from one to the other, and for Envoys that are no pods
    Both,
}

impl Credentials {
    /// Whether the Secrets of fleets are made, and their certificates taken.
    pub fn of_fleets(self) -> bool {
        self != Credentials::Pod
    }

    /// Whether pods get certificates.
    pub fn of_pods(self) -> bool {
        self != Credentials::Secret
    }

    /// The certificates by which Envoys are let in, each to its view.
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
