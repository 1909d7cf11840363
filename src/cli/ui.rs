//! `ui`.

use std::path::PathBuf;

use clap::Args;

use super::{Cluster, Output, RunningProgram, State};

/// `ui`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Serves a page on 127.0.0.1 and prints its URL, which works once. The page has the rights of whoever runs this, and changes
nothing; in a cluster it asks the controller about your namespace.

Examples:
  gatewright ui --open                  the running program of this machine, in the browser
  gatewright ui --context prod -n team-a   what you may read of a cluster

Exit status: 0 it was interrupted; 1 the port is in use, or the cluster cannot be read; 3 no running program answers.")]
pub struct Ui {
    /// Open the page in the browser
    #[arg(long)]
    pub open: bool,
    /// Port on 127.0.0.1; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,
    /// Your namespace in the cluster: what you may not read in all namespaces is read there
    /// [default: that of the context]
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Path of the running program's admin socket [default: admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET")]
    pub admin: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub state: State,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub cluster: Cluster,
}

impl Ui {
    /// The program that is queried where no cluster is asked for.
    pub fn program(&self) -> RunningProgram {
        RunningProgram {
            output: Output::Json,
            admin: self.admin.clone(),
            state_dir: self.state.state_dir.clone(),
            bundle: None,
        }
    }
}
