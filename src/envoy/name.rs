//! The names of our resources on the wire.

use std::fmt;

use gatewright_core::model::{
    ClientRoots, Endpoints, Frontend, FrontendId, GenericSecret, Scope, Secret, SecretName, Table,
    TableId, TicketSecret, WideHosts,
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

/// SRDS: `<frontend>|<hostname>`.
impl ResourceName for Scope {
    fn resource_name(&self) -> String {
        keyed(&self.frontend, &self.virtual_host.hostname)
    }
}

/// SRDS: the frontend.
impl ResourceName for WideHosts {
    fn resource_name(&self) -> String {
        self.frontend.to_string()
    }
}

/// RDS: `<frontend>|<listener hostname>`.
impl ResourceName for TableId {
    fn resource_name(&self) -> String {
        keyed(&self.frontend, &self.listener)
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

/// SDS: `sds/oidc-...`.
impl ResourceName for GenericSecret {
    fn resource_name(&self) -> String {
        self.name.to_string()
    }
}

/// SDS: `sds/tickets@...`.
impl ResourceName for TicketSecret {
    fn resource_name(&self) -> String {
        self.name.to_string()
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
pub(super) fn keyed(frontend: &FrontendId, rest: &dyn fmt::Display) -> String {
    format!("{frontend}|{rest}")
}

/// The name of a frontend in names of statistics, whose parts are divided by dots: a Gateway's name
/// may have dots, and has no underscore. Envoy writes the colon so as well.
pub(super) fn stat_prefix(frontend: &FrontendId) -> String {
    frontend.to_string().replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{frontend, host};
    use gatewright_core::model::ObjectName;

    #[test]
    fn tables_of_one_frontend_have_different_names() {
        fn id(listener: &str) -> TableId {
            TableId {
                frontend: frontend(443),
                listener: host(listener),
            }
        }
        assert_eq!(
            id("*.example.org").resource_name(),
            "infra/edge:443|*.example.org"
        );
        assert_eq!(id("").resource_name(), "infra/edge:443|*");
    }

    #[test]
    fn a_name_in_statistics_is_one_part() {
        let id = FrontendId::tcp(ObjectName::new("infra", "edge.v1"), 80);
        assert_eq!(stat_prefix(&id), "infra/edge_v1:80");
    }

    #[test]
    fn the_key_of_a_scope_has_no_colon() {
        assert_eq!(frontend(80).scope_key(&"a.org"), "infra/edge/80|a.org");
    }
}
