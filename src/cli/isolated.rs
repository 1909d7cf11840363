//! Whether Gateways may have Envoys of their own.

use clap::Args;

/// The Envoys of fleet Isolated.
#[derive(Clone, Debug, Args)]
pub struct Isolated {
    /// The PodTemplate in the same namespace of which the Envoys of Gateways of fleet Isolated are made; it takes
    /// --envoy-credentials pod or both [default: no Gateway has Envoys of its own]
    #[arg(long, value_name = "NAME")]
    pub isolated_envoys: Option<String>,
}
