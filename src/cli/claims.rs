//! `claims`: the record of ownership.

use clap::{Args, Subcommand};

use super::{Asking, RunningProgram, host};

/// `claims`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Prints the record of ownership: each entry with its owner, the namespace that claimed it first:
  - hostnames on the addresses of the shared fleet, protocols of its ports, and in standalone ports of addresses;
  - hostnames that several namespaces claim at a Gateway that admits them to its listeners;
  - secrets, the names of certificates in Envoys, that several namespaces claim;
  - with tenancy.hostnameClaims FirstCome, hostnames of the tenants of TenantGateways.
RELEASED is the time at which the namespace gave the hostname up: for tenancy.hostnameHoldHours after it, nobody else may have it.
In a cluster the record is in ConfigMaps gatewright-owners-*. With --context or --kubeconfig the answer is what your namespace owns, and
what its objects claim and others have. `release` is run at the lease holder.

Examples:
  gatewright claims                              print the owners
  gatewright claims --context prod -n team-a     what a namespace of a cluster owns, and what it does not get
  gatewright claims release shop.example.org     remove all entries of it; the claimant with the oldest object gets it")]
pub struct Claims {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: Option<ClaimsVerb>,
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

/// The subcommands of `claims`.
#[derive(Clone, Debug, Subcommand)]
pub enum ClaimsVerb {
    /// Print the owners
    List,
    /// Remove a record of ownership; the owner is then decided again among the present claimants
    Release {
        /// Hostname, also with a port or in a URL; `*` for the catch-all, a port, or an address and a
        /// port
        #[arg(value_parser = host::host_or_other)]
        what: String,
    },
}
