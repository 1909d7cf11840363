//! `gatewright status`.

use clap::Args;
use gatewright_core::statuses::Selection;

use super::{Cluster, RunningProgram, host};

/// `status`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  gatewright status                            what is wrong by cause, and counts of all objects
  gatewright status httproute/shop -n team-a   every condition of a route
  gatewright status https://shop.example.org/  every condition of what serves a hostname
  gatewright status --not-ok -o json           the whole statuses of objects that are not OK
  gatewright status --context prod -n team-a   the statuses that the API server has, with your own rights
Exit status: 0 every condition of the objects is as desired; 1 one is not, a file is stale, or no object is selected; \
3 no running program answers.")]
pub struct Status {
    /// Kind of objects, or kind and name of one: print every condition of them. Or a hostname, also
    /// with a port or in a URL: print every condition of the Gateways, ListenerSets and routes that
    /// name it, also by a wildcard
    #[arg(value_name = "KIND[/NAME]|HOST|URL", value_parser = host::selection)]
    pub what: Option<Selection>,
    /// Namespace of the objects
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Print only conditions that are not as desired, each of them
    #[arg(long)]
    pub not_ok: bool,
    /// Go on until interrupted: on a terminal print again in place after every change, else a line
    /// for each condition that changes
    #[arg(long)]
    pub watch: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub program: RunningProgram,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub cluster: Cluster,
}

impl Status {
    /// The objects that are asked for.
    pub fn selection(&self) -> Selection {
        let mut selection = self.what.clone().unwrap_or_default();
        if self.namespace.is_some() {
            selection.namespace.clone_from(&self.namespace);
        }
        selection.not_ok = self.not_ok;
        selection
    }
}
