//! `envoys`: who is connected, and who is let in no more.

use clap::{Args, Subcommand};

use super::RunningProgram;

/// `envoys`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
What is shown: Envoys that are connected to the program that is asked, in a cluster to one replica; their fleet as their
certificate says it, and where it is of a pod, its name and node. Else the name is what they say, as the version is. CURRENT is
whether everything is acknowledged. -o json also has the UID of the pod and the fingerprint (SHA-256) of the certificate.

A pod that is revoked gets no certificate any more, and none of its is taken. Delete it to have another in its place. A
certificate that is revoked opens no connection. Both hold from then on, at all replicas and after restarts; connections are
closed, and Envoys serve on with what they have. The record stands in the Secret gatewright-xds-ca, and the replica with the
Lease is asked. Envoys that show the certificate of their fleet (--envoy-credentials secret) share it: --with-others revokes it,
and the controller makes another one, which the kubelet brings within about two minutes.

Examples:
  gatewright envoys                                  who is connected
  gatewright envoys revoke gatewright-envoy-x7k2p    a pod
  gatewright envoys revoke --with-others edge-7      an Envoy with the certificate of its fleet
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
    /// Refuse an Envoy from now on, and close its connection
    Revoke {
        /// The name or UID of a pod, the name of a connected Envoy, or the SHA-256 fingerprint of a certificate
        name: String,
        /// Although other Envoys show the same certificate
        #[arg(long)]
        with_others: bool,
    },
}
