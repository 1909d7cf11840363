//! Settings for the hostnames that namespaces may have.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::{Args, ValueEnum};

use gatewright_core::model::Hostname;

/// The hostnames that namespaces may have under TenantGateways.
#[derive(Clone, Debug, Args)]
pub struct Names {
    /// Treatment of namespaces without the label namespace.cozystack.io/host under a TenantGateway
    /// of another namespace that does not list them in attachedNamespaces
    #[arg(long, value_enum, default_value_t = Unlabelled::Deny)]
    pub unlabelled_namespaces: Unlabelled,
    /// Hostname that is reserved under TenantGateways for one namespace
    /// (dashboard.example.org=cozy-dashboard), or from everybody (*.platform.example.org); may be
    /// repeated
    #[arg(long = "reserved-hostname", value_name = "HOSTNAME[=NAMESPACE]", value_delimiter = ',', value_parser = reserved)]
    pub reserved_hostnames: Vec<(Hostname, Option<String>)>,
}

impl Names {
    /// The reserved hostnames, each with the namespace that may have it.
    pub fn reserved(&self) -> BTreeMap<Hostname, Option<Arc<str>>> {
        let all = self.reserved_hostnames.iter();
        all.map(|(hostname, namespace)| (hostname.clone(), namespace.as_deref().map(Arc::from)))
            .collect()
    }
}

/// The treatment of namespaces without the label of their hostnames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unlabelled {
    /// They publish no hostnames
    Deny,
    /// They publish hostnames at and below the apex of the TenantGateway
    Allow,
}

fn reserved(text: &str) -> Result<(Hostname, Option<String>), String> {
    let (hostname, namespace) = match text.split_once('=') {
        Some((hostname, namespace)) => (hostname, Some(namespace.to_owned())),
        None => (text, None),
    };
    let hostname = Hostname::parse(hostname).map_err(|error| error.to_string())?;
    match (hostname.is_any(), namespace.as_deref()) {
        (true, _) | (_, Some("")) => Err(format!(
            "{text:?}: expected a hostname, or hostname=namespace"
        )),
        _ => Ok((hostname, namespace)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_hostnames_are_read() {
        let read = |text: &str| reserved(text).map(|(hostname, only)| (hostname.to_string(), only));
        assert_eq!(read("a.org"), Ok(("a.org".to_owned(), None)));
        assert_eq!(
            read("*.a.org=cozy-a"),
            Ok(("*.a.org".to_owned(), Some("cozy-a".to_owned())))
        );
        for wrong in ["", "=a", "a.org=", "A.org", "192.0.2.1"] {
            assert!(reserved(wrong).is_err(), "{wrong}");
        }
    }
}
