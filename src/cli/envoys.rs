//! `envoys`: the connected Envoys, and the revocation of one.

use clap::{Args, Subcommand};

use super::{Asking, RunningProgram};

/// `envoys`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Prints the Envoys that are connected to the running program; in a cluster, to this replica, with --context or --kubeconfig to the
lease holder (of your namespace, those of its own Gateways with fleet Isolated). Fleet, pod and node are those of the
client certificate. Without a certificate of a pod, the name is the one that the Envoy reports, as the version always is. CURRENT
says whether everything is acknowledged. -o json also has the UID of the pod and the fingerprint (SHA-256) of the certificate.

The certificates of a revoked pod are refused, and it gets no new one: delete the pod to replace it. A revoked certificate opens
no connection. A revocation closes connections and holds at all replicas and after restarts; the Envoys continue to serve their
configuration. It is stored in the Secret gatewright-xds-ca: run the command at the lease holder. Envoys of a fleet share one
certificate with envoys.credentials Secret: --with-others revokes it, and the controller creates another one, which the kubelet
mounts within about two minutes.

Examples:
  gatewright envoys                                  print the connected Envoys
  gatewright envoys revoke gatewright-envoy-x7k2p    revoke a pod
  gatewright envoys revoke --with-others edge-7      revoke the fleet's certificate, which this Envoy uses
  gatewright envoys revoke $(openssl x509 -in stolen.crt -noout -fingerprint -sha256 | cut -d= -f2)")]
pub struct Envoys {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: Option<EnvoysVerb>,
    /// Your namespace in the cluster: the answer is about it [default: that of the context]
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub asking: Asking,
}

/// The subcommands of `envoys`.
#[derive(Clone, Debug, Subcommand)]
pub enum EnvoysVerb {
    /// Print the connected Envoys
    List,
    /// Revoke an Envoy: its connection is closed, and its certificates are refused from now on, at
    /// every replica
    Revoke {
        /// Name or UID of a pod, name of a connected Envoy, or SHA-256 fingerprint of a certificate
        name: String,
        /// Revoke a certificate even if other Envoys use it too; all of them are disconnected
        #[arg(long)]
        with_others: bool,
    },
}
