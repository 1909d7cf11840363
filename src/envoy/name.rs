//! The names of our resources on the wire.

use std::fmt;

use gatewright_core::model::{
    ClientRoots, Endpoints, Frontend, Scope, Secret, SecretName, Table, TableId,
};

/// The resource name of a value.
///
/// Names are unique within a type: a hostname has neither a slash, a colon nor a `|`, and neither
/// has a namespace or a name of Kubernetes.
pub trait ResourceName {
    /// The name under which Envoy requests the resource and the server sends it.
    fn resource_name(&self) -> String;
}

/// LDS: the frontend, `namespace/gateway:port`.
impl ResourceName for Frontend {
    fn resource_name(&self) -> String {
        self.id.to_string()
    }
}

/// SRDS: `<frontend>|<hostname>`, the same text as the scope's key.
impl ResourceName for Scope {
    fn resource_name(&self) -> String {
        keyed(&self.frontend, &self.virtual_host.hostname)
    }
}

/// RDS: `<frontend>` for plain HTTP, `<frontend>|<listener hostname>` otherwise.
impl ResourceName for TableId {
    fn resource_name(&self) -> String {
        match &self.listener {
            None => self.frontend.to_string(),
            Some(hostname) => keyed(&self.frontend, hostname),
        }
    }
}

impl ResourceName for Table {
    fn resource_name(&self) -> String {
        self.id.resource_name()
    }
}

/// SDS: the lower-case SNI, or `sds/...`.
impl ResourceName for Secret {
    fn resource_name(&self) -> String {
        self.name.to_string()
    }
}

/// SDS: `sds/roots@...`.
impl ResourceName for ClientRoots {
    fn resource_name(&self) -> String {
        SecretName::Roots(self.name.clone()).to_string()
    }
}

/// EDS: the cluster.
impl ResourceName for Endpoints {
    fn resource_name(&self) -> String {
        self.cluster.to_string()
    }
}

/// CDS: see [`gatewright_core::model::Cluster::name`].
impl ResourceName for gatewright_core::model::Cluster {
    fn resource_name(&self) -> String {
        self.name()
    }
}

/// `<frontend>|<rest>`: the key, unique among frontends, of what a connection finds by its SNI.
pub(super) fn keyed(
    frontend: &gatewright_core::model::FrontendId,
    rest: &dyn fmt::Display,
) -> String {
    format!("{frontend}|{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{frontend, host};

    #[test]
    fn tables_of_one_frontend_have_different_names() {
        fn id(listener: Option<&str>) -> TableId {
            TableId {
                frontend: frontend(443),
                listener: listener.map(host),
            }
        }
        assert_eq!(id(None).resource_name(), "infra/edge:443");
        assert_eq!(
            id(Some("*.example.org")).resource_name(),
            "infra/edge:443|*.example.org"
        );
        assert_eq!(id(Some("")).resource_name(), "infra/edge:443|*");
    }
}
