//! Limits of the objects of one tenant. Pure.
//!
//! Values in an object are multiplied on the way to Envoy: a match by the hostnames of its route,
//! the headers of a filter by the matches of its rule. The limits are on the products. A message
//! about a limit has its path in the configuration and its value.

use std::collections::BTreeMap;

use garde::Validate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inputs::Selector;
use crate::settings::RequestBody;

/// The limits of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Quotas of each namespace
    #[garde(dive)]
    pub namespace: NamespaceLimits,
    /// Other quotas of some namespaces. Where several select a namespace, the last one that has a
    /// quota decides
    #[garde(dive, length(max = 64))]
    pub overrides: Vec<LimitOverride>,
    /// Limits of one object
    #[garde(dive)]
    pub object: ObjectLimits,
    /// Maximum number of UDP ports of an Envoy, of all namespaces; each has an equal part of
    /// connections.udpSessions
    #[garde(range(min = 1, max = 4096))]
    pub udp_ports: u32,
    /// Maximum number of hosts with HTTP/3 at a port, of all namespaces: each is a filter chain,
    /// and a change of one is a change of all
    #[garde(range(min = 1, max = 256))]
    pub http3_hosts: u32,
    /// Maximum number of hosts with session tickets at a port, of all namespaces: each is a filter
    /// chain, and a change of one is a change of all
    #[garde(range(min = 1, max = 256))]
    pub session_ticket_hosts: u32,
}

/// Declares the quotas of a namespace, each with its default, and the same ones where each may be
/// missing.
macro_rules! quotas {
    ($($(#[$doc:meta])* $name:ident: $default:literal,)*) => {
        /// The quotas of a namespace.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        #[garde(allow_unvalidated)]
        pub struct NamespaceLimits {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// Quotas that replace those of every namespace.
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate,
        )]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        #[garde(allow_unvalidated)]
        pub struct NamespaceOverride {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<u64>,)*
        }

        impl Default for NamespaceLimits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl NamespaceLimits {
            /// No quotas: for measurements.
            const NONE: Self = Self { $($name: u64::MAX,)* };

            fn overridden(self, by: &NamespaceOverride) -> Self {
                Self { $($name: by.$name.unwrap_or(self.$name),)* }
            }
        }
    };
}

quotas! {
    /// Maximum memory that the objects of a namespace may take in an Envoy, in MiB, by the cost
    /// model
    envoy_mib: 256,
    /// Maximum memory that the objects of a namespace may take in this program, in MiB, by the cost
    /// model
    program_mib: 128,
    /// Maximum number of clusters of the routes of a namespace: Service ports, once for each
    /// Gateway with a client certificate, and hostnames that are passed through
    clusters: 4000,
    /// Maximum number of filter chains of a namespace in the Listeners that it shares with others:
    /// wildcard hostnames with TLS, and hostnames of TLSRoutes with several backends
    filter_chains: 64,
    /// Maximum size of the hostnames of a namespace in the record of ownership, and of those among
    /// tenants of TenantGateways, in KiB as the API server has them
    record_kib: 4096,
    /// Maximum number of routes of a namespace
    routes: 2000,
    /// Maximum number of regular expressions of all routes of a namespace, each counted once for
    /// every hostname of its route at every listener: RE2 has a cache for each under traffic
    regexes: 1024,
    /// Maximum processor time of an Envoy's worker, in microseconds, that a request to a hostname
    /// may take to be compared with the matches of a namespace's routes, by the cost model
    matching_micros: 10_000,
    /// Maximum number of ports of the Gateways and ListenerSets of a namespace, each counted once
    /// for every object that has it
    ports: 512,
    /// Maximum number of UDP ports of the Gateways and ListenerSets of a namespace
    udp_ports: 8,
    /// Maximum number of hosts with HTTP/3 of a namespace
    http3_hosts: 8,
    /// Maximum number of hosts with session tickets of a namespace
    session_ticket_hosts: 8,
    /// Maximum number of Gateways of fleet Isolated of a namespace
    isolated_gateways: 4,
    /// Maximum number of default Gateways of a namespace
    default_gateways: 4,
    /// Maximum number of endpoints of all Services of a namespace
    endpoints: 10_000,
    /// Maximum number of BackendTLSPolicies with XBackends, of XBackendTrafficPolicies, of
    /// XTelemetryPolicies, of TrafficPolicies, and of AccessPolicies, of a namespace
    policies: 256,
    /// Maximum number of targets of the TrafficPolicies of a namespace that have active health
    /// checks, which each Envoy makes of every endpoint. By default there are none, since the first
    /// checks of a changed Service hold up the changes of others
    health_checks: 0,
    /// Maximum number of HTTPRoutes and GRPCRoutes of a namespace that Envoys count by themselves:
    /// some 24 series for each, in each Envoy
    counted_routes: 16,
    /// Maximum number of Services of type ExternalName and XBackends of a namespace whose names are
    /// resolved, where backends.externalNames.enabled is set: those to which routes lead
    external_names: 16,
}

/// The quotas of the namespaces that a selector selects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct LimitOverride {
    /// The namespaces, by their labels; kubernetes.io/metadata.name is the name
    pub namespaces: NamespaceSelector,
    /// Their quotas; those that are missing stay
    #[garde(dive)]
    pub limits: NamespaceOverride,
}

/// A label selector of namespaces, all parts of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NamespaceSelector {
    /// Labels that must be equal
    pub match_labels: BTreeMap<String, String>,
    /// Requirements on labels
    pub match_expressions: Vec<LabelRequirement>,
}

/// A requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelRequirement {
    /// Name of the label
    pub key: String,
    /// Relation of the label to the values
    pub operator: LabelOperator,
    /// Values, for In and NotIn
    #[serde(default)]
    pub values: Vec<String>,
}

/// The relation of a label to values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelOperator {
    /// It has one of the values
    In,
    /// It has none of the values
    NotIn,
    /// It is there
    Exists,
    /// It is not there
    DoesNotExist,
}

impl NamespaceSelector {
    /// The same selector as objects have it.
    fn selector(&self) -> Selector {
        let expressions = self.match_expressions.iter().map(|requirement| {
            (
                requirement.key.clone(),
                format!("{:?}", requirement.operator),
                requirement.values.clone(),
            )
        });
        Selector {
            labels: self.match_labels.clone(),
            expressions: expressions.collect(),
        }
    }
}

/// The limits of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct ObjectLimits {
    /// Maximum number of endpoints of a Service: addresses times ports
    pub service_endpoints: u64,
    /// Maximum size of a compiled regular expression, in instructions of RE2; Envoy accepts up to
    /// 10000
    #[garde(range(min = 1, max = 5000))]
    pub regex_instructions: u32,
    /// Maximum size of the CA certificates to which a BackendTLSPolicy, or a port of a Gateway for
    /// client certificates, refers, in KiB
    pub ca_kib: usize,
    /// Maximum number of retries of a request; a rule that asks for more gets this many
    pub retries: u32,
    /// Maximum number of filters of type RequestMirror of a rule, or of one of its backendRefs
    pub mirrors: usize,
    /// Maximum value of externalAuth.forwardBody.maxSize, in KiB: Envoy buffers that much of a
    /// request's body for the authorization server
    #[garde(range(max = 4096))]
    pub external_auth_body_kib: u64,
    /// Maximum size of a body that Envoy collects for requestBody of a TrafficPolicy, in KiB. Envoy
    /// gives up requests of HTTP/2 when its memory is full, and keeps those of HTTP/1.1
    #[garde(range(min = 1, max = 1024))]
    pub buffered_body_kib: u32,
    /// Maximum length of the value of a header that a filter sets or adds, in bytes
    pub header_value_bytes: usize,
    /// Maximum value of rateLimit[].by.maxClients of a TrafficPolicy: Envoy has a token bucket for
    /// each of so many clients
    pub rate_limit_clients: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            namespace: NamespaceLimits::default(),
            overrides: Vec::new(),
            object: ObjectLimits::default(),
            udp_ports: 16,
            http3_hosts: 32,
            session_ticket_hosts: 32,
        }
    }
}

impl ObjectLimits {
    /// The most bytes of a request that an Envoy may collect.
    pub fn buffered_bytes(&self) -> u32 {
        let allowed = self.buffered_body_kib.saturating_mul(1024);
        allowed.min(RequestBody::MOST_BUFFERED)
    }
}

impl Default for ObjectLimits {
    fn default() -> Self {
        Self {
            service_endpoints: 2000,
            regex_instructions: 2000,
            ca_kib: 128,
            retries: 10,
            mirrors: 2,
            external_auth_body_kib: 64,
            buffered_body_kib: 64,
            header_value_bytes: 4096,
            rate_limit_clients: 10_000,
        }
    }
}

impl Limits {
    /// No limits: for measurements.
    pub const NONE: Self = Self {
        namespace: NamespaceLimits::NONE,
        overrides: Vec::new(),
        object: ObjectLimits {
            service_endpoints: u64::MAX,
            regex_instructions: u32::MAX,
            ca_kib: usize::MAX,
            retries: u32::MAX,
            mirrors: usize::MAX,
            external_auth_body_kib: u64::MAX,
            buffered_body_kib: u32::MAX,
            header_value_bytes: usize::MAX,
            rate_limit_clients: u32::MAX,
        },
        udp_ports: u32::MAX,
        http3_hosts: u32::MAX,
        session_ticket_hosts: u32::MAX,
    };

    /// The quotas of a namespace with these labels.
    pub fn of_namespace(&self, name: &str, labels: &BTreeMap<String, String>) -> NamespaceLimits {
        self.overrides
            .iter()
            .filter(|one| one.namespaces.selector().matches(name, labels))
            .fold(self.namespace, |limits, one| limits.overridden(&one.limits))
    }
}

impl NamespaceLimits {
    /// The quota of each record, in bytes.
    pub fn record_bytes(&self) -> u64 {
        self.record_kib.saturating_mul(1 << 10)
    }
}

/// CA certificates that are larger than one object may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kib} KiB of certificates, limits.object.caKib is {limit}")]
pub struct OverCaLimit {
    /// The size in PEM, in KiB.
    pub kib: usize,
    /// The limit.
    pub limit: usize,
}

impl ObjectLimits {
    /// Checks the bytes of the CA certificates to which one object refers.
    ///
    /// # Errors
    /// When there are more than the limit allows.
    pub fn check_ca_certificates(&self, bytes: usize) -> Result<(), OverCaLimit> {
        let kib = bytes.div_ceil(1024);
        let limit = self.ca_kib;
        if kib > limit {
            return Err(OverCaLimit { kib, limit });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limits(written: serde_json::Value) -> Limits {
        serde_json::from_value(written).expect("limits")
    }

    #[test]
    fn what_is_not_written_has_its_default() {
        let written = limits(json!({"namespace": {"routes": 7}}));
        assert_eq!(written.namespace.routes, 7);
        assert_eq!(written.namespace.clusters, 4000);
        assert_eq!(written.object, ObjectLimits::default());
    }

    #[test]
    fn values_have_ranges() {
        let wrong = limits(json!({"object": {"regexInstructions": 5001}}));
        let error = wrong.validate().expect_err("too many").to_string();
        assert!(error.contains("object.regex_instructions"), "{error}");
    }

    #[test]
    fn the_last_override_that_selects_a_namespace_decides() {
        let limits = limits(json!({"overrides": [
            {"namespaces": {"matchLabels": {"tier": "gold"}}, "limits": {"routes": 9000, "ports": 9}},
            {"namespaces": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop"]}]},
             "limits": {"routes": 1}},
        ]}));
        let gold = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
        assert_eq!(limits.of_namespace("web", &gold).routes, 9000);
        assert_eq!(limits.of_namespace("web", &gold).clusters, 4000);
        assert_eq!(limits.of_namespace("shop", &gold).routes, 1);
        assert_eq!(limits.of_namespace("shop", &gold).ports, 9);
        let none = BTreeMap::new();
        assert_eq!(limits.of_namespace("web", &none), limits.namespace);
    }
}
