//! The namespaces that a controller watches.

use clap::Args;

use gatewright_core::namespaces::Namespaces;

/// The namespaces that a controller watches.
#[derive(Clone, Debug, Args)]
pub struct Watched {
    /// Namespaces to watch, beside --namespace; may be repeated. Objects of other namespaces are
    /// ignored, and Roles in the listed ones are sufficient (docs/permissions.md) [default: all]
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', value_parser = Namespaces::check)]
    pub namespaces: Vec<String>,
}

impl Watched {
    /// These and the controller's own.
    pub fn with(&self, own: &str) -> Namespaces {
        Namespaces::listed(&self.namespaces, own)
    }
}
