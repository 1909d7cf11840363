//! `envoys`: who is connected, and who is let in no more.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Output, State};

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
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Output::Table, global = true)]
    pub output: Output,
    /// The running program's admin socket [default: admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET", global = true)]
    pub admin: Option<PathBuf>,
    /// Private directory of the running program
    #[arg(long, value_name = "DIR", env = "GATEWRIGHT_STATE_DIR", global = true)]
    pub state_dir: Option<PathBuf>,
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

impl Envoys {
    /// Where the running program is.
    pub fn state(&self) -> State {
        State { state_dir: self.state_dir.clone() }
    }
}
