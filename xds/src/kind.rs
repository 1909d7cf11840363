//! The resource types of xDS that this server serves.

use std::fmt;

/// A resource type. A closed set, so that arrays are indexed by it and metric labels stay bounded.
///
/// Type URLs: <https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#resource-types>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// CDS.
    Cluster,
    /// EDS.
    Endpoints,
    /// RDS.
    Route,
    /// SRDS.
    Scope,
    /// VHDS.
    VirtualHost,
    /// LDS.
    Listener,
    /// SDS.
    Secret,
    /// RTDS.
    Runtime,
    /// ECDS.
    Extension,
}

/// The order in which kinds are sent: "make before break"
/// (<https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#eventual-consistency-considerations>).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Clusters and endpoints: first.
    Backends,
    /// Routes, scopes and virtual hosts: once the backends are acknowledged.
    Routes,
    /// Listeners: once the routes are acknowledged.
    Listeners,
    /// Secrets, runtime and extensions: at any time. Their removals are sent once the listeners are
    /// acknowledged.
    Free,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 9] = [
        Kind::Cluster,
        Kind::Endpoints,
        Kind::Route,
        Kind::Scope,
        Kind::VirtualHost,
        Kind::Listener,
        Kind::Secret,
        Kind::Runtime,
        Kind::Extension,
    ];

    /// The number of kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the type URL of this kind.
    pub const fn type_url(self) -> &'static str {
        match self {
            Kind::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Kind::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Kind::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Kind::Scope => "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
            Kind::VirtualHost => "type.googleapis.com/envoy.config.route.v3.VirtualHost",
            Kind::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Kind::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Kind::Runtime => "type.googleapis.com/envoy.service.runtime.v3.Runtime",
            Kind::Extension => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        }
    }

    /// Returns the kind of a type URL.
    pub fn of_type_url(url: &str) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == url)
    }

    /// Returns a short name for metric labels and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Kind::Cluster => "cds",
            Kind::Endpoints => "eds",
            Kind::Route => "rds",
            Kind::Scope => "srds",
            Kind::VirtualHost => "vhds",
            Kind::Listener => "lds",
            Kind::Secret => "sds",
            Kind::Runtime => "rtds",
            Kind::Extension => "ecds",
        }
    }

    pub(crate) const fn rank(self) -> Rank {
        match self {
            Kind::Cluster | Kind::Endpoints => Rank::Backends,
            Kind::Route | Kind::Scope | Kind::VirtualHost => Rank::Routes,
            Kind::Listener => Rank::Listeners,
            Kind::Secret | Kind::Runtime | Kind::Extension => Rank::Free,
        }
    }

    /// Returns true if a client may subscribe to all resources of the kind; else a wildcard is
    /// answered with none.
    ///
    /// Secrets are sent by name only, so that a client has no key that it did not request. Virtual
    /// hosts too: "the configuration sent to an individual Envoy instance \[shall\] only contain
    /// the subscribed virtual hosts"
    /// (<https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_conn_man/vhds>), and
    /// Envoy begins each stream without a name, or with `*` beside the names it has.
    pub const fn allows_wildcard(self) -> bool {
        !matches!(self, Kind::Secret | Kind::VirtualHost)
    }

    /// Returns true if a state-of-the-world response must contain every subscribed resource,
    /// because the client drops missing ones. The protocol page says so for listeners and clusters;
    /// Envoy does the same with scopes.
    pub const fn full_state(self) -> bool {
        matches!(self, Kind::Cluster | Kind::Listener | Kind::Scope)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::envoy;
    use prost::Name;

    #[test]
    fn type_urls_are_those_of_the_messages() {
        let generated = [
            (
                Kind::Cluster,
                envoy::config::cluster::v3::Cluster::type_url(),
            ),
            (
                Kind::Endpoints,
                envoy::config::endpoint::v3::ClusterLoadAssignment::type_url(),
            ),
            (
                Kind::Route,
                envoy::config::route::v3::RouteConfiguration::type_url(),
            ),
            (
                Kind::Scope,
                envoy::config::route::v3::ScopedRouteConfiguration::type_url(),
            ),
            (
                Kind::VirtualHost,
                envoy::config::route::v3::VirtualHost::type_url(),
            ),
            (
                Kind::Listener,
                envoy::config::listener::v3::Listener::type_url(),
            ),
            (
                Kind::Secret,
                envoy::extensions::transport_sockets::tls::v3::Secret::type_url(),
            ),
            (
                Kind::Runtime,
                envoy::service::runtime::v3::Runtime::type_url(),
            ),
            (
                Kind::Extension,
                envoy::config::core::v3::TypedExtensionConfig::type_url(),
            ),
        ];
        assert_eq!(generated.len(), Kind::COUNT);
        for (kind, url) in generated {
            assert_eq!(
                kind.type_url(),
                format!(
                    "type.googleapis.com/{}",
                    url.trim_start_matches("type.googleapis.com")
                        .trim_start_matches('/')
                )
            );
            assert_eq!(Kind::of_type_url(kind.type_url()), Some(kind));
        }
    }
}
