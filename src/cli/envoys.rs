//! `envoys`: who is connected, and who is let in no more.

use clap::{Args, Subcommand};

use super::RunningProgram;

/// `envoys`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
What is shown: Envoys that are connected to the program that is asked, in a cluster to one replica; their fleet as their
certificate says it, their name and version as they say it. CURRENT is whether everything is acknowledged. -o json also has the
fingerprint (SHA-256) of the certificate.

A certificate that is revoked opens no connection from then on, at no replica and after no restart, and connections of it are
closed; Envoys serve on with what they have. The record stands in the Secret gatewright-xds-ca, and the replica with the Lease is
asked. Envoys of the chart share one certificate: --with-others revokes it, and the controller makes another one, which the
kubelet brings within about two minutes.

Examples:
  gatewright envoys                                  who is connected
  gatewright envoys revoke edge-7                    an Envoy with a certificate of its own
  gatewright envoys revoke --with-others gatewright-envoy-x7k2p
  gatewright envoys revoke $(openssl x509 -in stolen.crt -noout -fingerprint -sha256 | cut -d= -f2)")]
pub struct Envoys {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: Option<EnvoysVerb>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
}

/// What can be done about Envoys.
#[derive(Clone, Debug, Subcommand)]
pub enum EnvoysVerb {
    /// Show who is connected
    List,
    /// Refuse the certificate of an Envoy from now on, and close its connection
    Revoke {
        /// The name of a connected Envoy, or the SHA-256 fingerprint of a certificate
        name: String,
        /// Although other Envoys show the same certificate
        #[arg(long)]
        with_others: bool,
    },
}
