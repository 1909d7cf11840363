//! `gatewright backup` and `gatewright restore`.

use std::path::PathBuf;

use clap::Args;

use super::Cluster;

/// `backup`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Writes what an installation of a cluster needs to go on in another one: the record of owners, ACME accounts, internal CAs, issued
certificates, budgets of CAs, keys of Envoys, and the configuration, as a List in the order in which it is restored (mode 0600).
Private keys are in it: encrypt what you store. What authors write (Gateways, routes, Services) is not among it (docs/backup.md).

Examples:
  gatewright backup --context prod -o backup.json
  gatewright backup --context prod -o - | age -r RECIPIENT > backup.age
  age -d -i KEY backup.age | gatewright restore --context new -")]
pub struct Backup {
    /// File of the backup, which must not exist yet, or `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub cluster: Cluster,
}

/// `restore`
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Creates the objects of a backup in a cluster, before the controller of the installation and what authors write. Nothing is
restored while a controller runs, or if an object of the same name is there with another content (docs/backup.md).")]
pub struct Restore {
    /// File of the backup, or `-` for standard input
    pub file: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs, reason = "described at its type")]
    pub cluster: Cluster,
}
