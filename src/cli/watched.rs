//! Which namespaces a controller looks at.

use clap::Args;

use gatewright_core::namespaces::Namespaces;

/// The namespaces that a controller looks at.
#[derive(Clone, Debug, Args)]
pub struct Watched {
    /// The namespaces that are looked at, beside --namespace; may be repeated. Objects of others do not exist for this program,
    /// and Roles in these are enough for it (docs/security.md) [default: all]
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', value_parser = Namespaces::check)]
    pub namespaces: Vec<String>,
}

impl Watched {
    /// These, and our own.
    pub fn with(&self, own: &str) -> Namespaces {
        Namespaces::listed(&self.namespaces, own)
    }
}
