//! Counts of requests by the namespace that has the host.
//!
//! Envoy itself counts by listener and by cluster. Statistics of a virtual host or of a route
//! (`stat_prefix`, virtual clusters) have the host in their names, so that their number grows with
//! the hosts, and those of a cluster miss what no backend answered. A logger of each connection
//! manager therefore adds every request to statistics whose only tags are the namespace and the
//! class of the status. The namespace is metadata of the virtual host: no request has a say in it.
//! Routes that ask for it have a tag of their own, from their metadata: one route, however many
//! hosts it has.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::accesslog::v3 as pb;
use envoy_types::pb::envoy::config::accesslog::v3::access_log;
use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::envoy::config::route::v3::VirtualHost;
use envoy_types::pb::envoy::extensions::access_loggers::stats::v3::{
    Config,
    config::{Counter, Histogram, Stat, Tag, histogram::Unit},
};
use envoy_types::pb::envoy::r#type::v3::Scope;
use envoy_types::pb::google::protobuf::{Struct, UInt64Value, Value, value::Kind};

use super::access_log::status_from;
use super::proto::{any, uint};
use super::rbac;
use gatewright_core::model::{self, HostOwner};

/// The counts that Envoys keep beside their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficMetrics {
    /// None.
    #[default]
    Off,
    /// Requests, bytes and times by namespace.
    Namespaces,
}

/// The first part of the names of these statistics, and the name of the metadata.
pub(super) const PREFIX: &str = "gatewright";

/// The tag of the namespace. Prometheus has a label `namespace` of its own.
const TENANT: &str = "tenant";

/// The namespaces that one Envoy counts for. Requests for further ones are not counted.
const NAMESPACES: u32 = 4096;

/// The routes that one Envoy counts by themselves: 16 of each namespace, which is the default of
/// `limits.namespace.countedRoutes`.
const ROUTES: u32 = 16 * NAMESPACES;

/// The counters of such a route: requests by class of the status.
const CLASSES: u32 = 10;

/// The counters of a namespace: requests by class of the status, of which a backend can send nine,
/// and without a status; bytes in both directions; requests that a policy reports.
const COUNTERS: u32 = 13;

/// The namespace of the request's virtual host; no value if no host is served by that name.
const NAMESPACE_OF: &str = "%METADATA(VIRTUAL_HOST:gatewright:namespace)%";

/// The tag of a route that is counted by itself.
const ROUTE: &str = "route";

/// That route; no value for requests of other routes, whose series are those of their namespace.
const ROUTE_OF: &str = "%METADATA(ROUTE:gatewright:route)%";

/// The first digit of the status; 0 if the client went before it was known: then Envoy has no such
/// attribute.
const CLASS_OF: &str = "%CEL(has(response.code) ? response.code / 100 : 0)%";

/// The loggers of a connection manager.
pub(super) fn loggers(metrics: TrafficMetrics) -> Vec<pb::AccessLog> {
    match metrics {
        TrafficMetrics::Off => Vec::new(),
        TrafficMetrics::Namespaces => vec![counts(), times(), reports()],
    }
}

fn counts() -> pb::AccessLog {
    let mut requests = stat("requests");
    requests.tags.push(tag("class", CLASS_OF));
    requests.tags.push(tag(ROUTE, ROUTE_OF));
    let requests = Counter {
        stat: Some(requests),
        value_fixed: Some(UInt64Value { value: 1 }),
        ..Default::default()
    };
    fn bytes(name: &str, value: &str) -> Counter {
        Counter {
            stat: Some(stat(name)),
            value_format: value.to_owned(),
            ..Default::default()
        }
    }
    let counters = vec![
        requests,
        bytes("request_bytes", "%BYTES_RECEIVED%"),
        bytes("response_bytes", "%BYTES_SENT%"),
    ];
    logger(Config {
        counters,
        ..Default::default()
    })
}

/// The times of requests, without those of upgraded connections, which last for hours.
fn times() -> pb::AccessLog {
    let mut times = stat("request_milliseconds");
    times.tags.push(tag(ROUTE, ROUTE_OF));
    let time = Histogram {
        stat: Some(times),
        unit: Unit::Milliseconds.into(),
        value_format: "%DURATION%".to_owned(),
    };
    let times = logger(Config {
        histograms: vec![time],
        ..Default::default()
    });
    pb::AccessLog {
        filter: Some(status_from(200)),
        ..times
    }
}

/// The requests that AccessPolicies would refuse which only report.
fn reports() -> pb::AccessLog {
    let requests = Counter {
        stat: Some(stat("reported_requests")),
        value_fixed: Some(UInt64Value { value: 1 }),
        ..Default::default()
    };
    let requests = logger(Config {
        counters: vec![requests],
        ..Default::default()
    });
    pb::AccessLog {
        filter: Some(rbac::reported()),
        ..requests
    }
}

/// A logger whose statistics are those of all connection managers of the Envoy.
fn logger(config: Config) -> pb::AccessLog {
    let scope = Scope {
        prefix: PREFIX.to_owned(),
        sharing_name: PREFIX.to_owned(),
        max_counters: uint(NAMESPACES * COUNTERS + ROUTES * CLASSES),
        max_histograms: uint(NAMESPACES + ROUTES),
        ..Default::default()
    };
    let config = Config {
        stats_scope: Some(scope),
        ..config
    };
    pb::AccessLog {
        name: "envoy.access_loggers.stats".to_owned(),
        filter: None,
        config_type: Some(access_log::ConfigType::TypedConfig(any(&config))),
    }
}

fn stat(name: &str) -> Stat {
    Stat {
        name: name.to_owned(),
        tags: vec![tag(TENANT, NAMESPACE_OF)],
    }
}

fn tag(name: &str, value: &str) -> Tag {
    Tag {
        name: name.to_owned(),
        value_format: value.to_owned(),
        rules: None,
    }
}

/// The virtual host with the namespace that its requests are counted for.
pub(super) fn attributed(
    made: VirtualHost,
    host: &model::VirtualHost,
    metrics: TrafficMetrics,
) -> VirtualHost {
    match (metrics, host.owner.as_deref()) {
        (TrafficMetrics::Namespaces, Some(HostOwner { namespace, .. })) => VirtualHost {
            metadata: Some(of_namespace(namespace)),
            ..made
        },
        (TrafficMetrics::Off, _) | (TrafficMetrics::Namespaces, None) => made,
    }
}

/// The metadata of a route that is counted by itself: its kind, namespace and name, which are all
/// of the name of its rule but the last part.
pub(super) fn of_route(rule: &str) -> Metadata {
    let route = rule.rsplit_once('/').map_or(rule, |(route, _)| route);
    metadata("route", route)
}

fn of_namespace(namespace: &str) -> Metadata {
    metadata("namespace", namespace)
}

fn metadata(field: &str, text: &str) -> Metadata {
    let value = Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    let fields = HashMap::from([(field.to_owned(), value)]);
    Metadata {
        filter_metadata: HashMap::from([(PREFIX.to_owned(), Struct { fields })]),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testdata::host;
    use gatewright_core::model::ObjectName;

    fn owned() -> model::VirtualHost {
        let owner = HostOwner {
            namespace: "blue".into(),
            gateway: ObjectName::new("infra", "edge"),
            listener: "https".into(),
        };
        model::VirtualHost {
            owner: Some(Arc::new(owner)),
            ..model::VirtualHost::new(host("a.org"), Vec::new())
        }
    }

    #[test]
    fn nothing_is_counted_unless_that_is_asked() {
        assert_eq!(loggers(TrafficMetrics::Off), []);
        let made = attributed(VirtualHost::default(), &owned(), TrafficMetrics::Off);
        assert_eq!(made, VirtualHost::default());
    }

    #[test]
    fn a_host_is_counted_for_the_namespace_that_has_it() {
        let made = attributed(VirtualHost::default(), &owned(), TrafficMetrics::Namespaces);
        assert_eq!(made.metadata, Some(of_namespace("blue")));
        assert!(
            NAMESPACE_OF.contains(&format!(":{PREFIX}:namespace)")),
            "the format reads that metadata"
        );
    }

    #[test]
    fn upgraded_connections_are_counted_and_have_no_time() {
        let made = loggers(TrafficMetrics::Namespaces);
        assert_eq!(made.len(), 3, "counts, times and reports");
        assert!(made[0].filter.is_none(), "every request is counted");
        assert!(made[1].filter.is_some(), "from status 200 on");
        assert!(made[2].filter.is_some(), "those that a policy reports");
    }
}
