//! The last good state of a controller.

use std::path::PathBuf;

use clap::Args;

/// The last good state, for the next start.
#[derive(Clone, Debug, Args)]
pub struct Keeping {
    /// File for the last good configuration of Envoys, encrypted, for a start without an API
    /// server; place it on a volume that outlives the container [default: not stored]
    #[arg(long, value_name = "FILE", requires = "last_good_key")]
    pub last_good: Option<PathBuf>,
    /// File with the encryption key of --last-good, at least 32 bytes, from the Secret
    /// gatewright-last-good, which the lease holder creates
    #[arg(long, value_name = "FILE", requires = "last_good")]
    pub last_good_key: Option<PathBuf>,
}
