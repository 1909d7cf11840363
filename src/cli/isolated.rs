//! The settings of fleet Isolated.

use clap::Args;

/// The Envoys of fleet Isolated.
#[derive(Clone, Debug, Args)]
pub struct Isolated {
    /// Name of the PodTemplate of the Envoys of fleet Isolated, in the controller's namespace;
    /// requires --envoy-credentials pod or both [default: none, Gateways of fleet Isolated are
    /// refused]
    #[arg(long, value_name = "NAME")]
    pub isolated_envoys: Option<String>,
}
