//! The manifests that a command reads.

use clap::Args;

use crate::manifest::{Safety, Trust};

/// How the manifests of a command are read.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct WrittenManifests {
    /// Accept manifests that the group or others may write, and symbolic links out of the directory
    #[arg(long)]
    pub allow_unsafe_manifests: bool,
}

impl WrittenManifests {
    /// The checks of files.
    pub fn safety(self) -> Safety {
        Safety::unless(self.allow_unsafe_manifests)
    }

    /// As files are read that are about to be applied in a namespace of a cluster.
    pub fn of_cluster(self, namespace: &str) -> Trust {
        Trust::of_cluster(self.safety(), namespace)
    }
}
