//! `claims`: the record of ownership.

use clap::{Args, Subcommand};

use super::RunningProgram;

/// `claims`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
What is shown: hostnames on the addresses of the shared fleet, what its ports speak, and ports of addresses in standalone;
hostnames among the namespaces that a Gateway admits to its listeners; and secrets, the names of certificates at Envoys, that
several namespaces want; each with the namespace that had it first. With --hostname-claims first-come also hostnames among the
tenants of TenantGateways. RELEASED is when the namespace gave it up: until
--hostname-hold has passed, nobody else may have it. In a cluster the records stand in ConfigMaps gatewright-owners-* and
gatewright-claims-*, and the
replica with the Lease is asked.

Examples:
  gatewright claims                              who owns what
  gatewright claims release shop.example.org     wherever it is recorded; whoever claims it gets it, the oldest object first")]
pub struct Claims {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "described at its type")]
    pub verb: Option<ClaimsVerb>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
}

/// What can be done about the record.
#[derive(Clone, Debug, Subcommand)]
pub enum ClaimsVerb {
    /// Show who owns what
    List,
    /// Take something out of the record: it is decided anew who has it
    Release {
        /// A hostname, `*` for the catch-all, a port, or an address and a port
        what: String,
    },
}
