//! The running program that a command queries.

use std::path::PathBuf;

use clap::Args;

use super::{Output, State};

/// The admin socket of the running program, and the output format. For every subcommand of a
/// command.
#[derive(Clone, Debug, Args)]
pub struct RunningProgram {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table, global = true)]
    pub output: Output,
    /// Path of the running program's admin socket [default: admin.sock in the private directory]
    #[arg(long, value_name = "SOCKET", global = true)]
    pub admin: Option<PathBuf>,
    /// Private directory of the running program
    /// [default: $XDG_STATE_HOME/gatewright/standalone, else ~/.local/state/gatewright/standalone]
    #[arg(long, value_name = "DIR", env = "GATEWRIGHT_STATE_DIR", global = true)]
    pub state_dir: Option<PathBuf>,
    /// Support bundle that answers in place of a running program or a cluster
    #[arg(long, value_name = "FILE", global = true, conflicts_with_all = ["admin", "state_dir"])]
    pub bundle: Option<PathBuf>,
}

impl RunningProgram {
    /// The private directory.
    pub fn state(&self) -> State {
        State {
            state_dir: self.state_dir.clone(),
        }
    }
}
