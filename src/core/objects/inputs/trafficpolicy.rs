//! TrafficPolicy (`gatewright.io/v1alpha1`): how the endpoints of a Service are chosen, checked and
//! limited. Fields have the names of Envoy Gateway's BackendTrafficPolicy. `settings/` has the
//! settings of one on Gateways, ListenerSets and routes.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;

use serde::Deserialize;

use super::backend_health::{self, WrittenHealthCheck};
use super::policy_target::{Targets, is_for_requests};
use super::text::{self, Refused};
use super::trafficpolicy_value::{number, time};
use super::{Kind, Meta, ParseError, Policy, PolicyRules};
use crate::gateway_api::backendtlspolicies::BackendTlsPolicyTargetRefs;
use crate::model::{BackendLimits, BackendSettings, HashKey, LoadBalancing, ProxyHeader};
use crate::settings::{PolicyField, TrafficRules, settings, specification};

/// The custom resource definition.
pub const TRAFFIC_POLICY_CRD: &str =
    include_str!("../../../../deploy/crds/gatewright.io_trafficpolicies.yaml");

/// The largest limit of a circuit breaker.
const LIMIT: u32 = 1_000_000;

settings! { specification, of traffic
    /// `spec` of a TrafficPolicy.
    struct TrafficPolicySpec, read as TrafficRules {
        target_refs: Vec<BackendTlsPolicyTargetRefs>,
        load_balancer: Option<WrittenLoadBalancer>,
        timeout: Option<WrittenTimeout>,
        circuit_breaker: Option<WrittenCircuitBreaker>,
        health_check: Option<WrittenHealthCheck>,
        proxy_protocol: Option<WrittenProxyProtocol>,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenLoadBalancer {
    r#type: BalancerType,
    consistent_hash: Option<WrittenHash>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum BalancerType {
    LeastRequest,
    RoundRobin,
    Random,
    ConsistentHash,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenHash {
    r#type: HashType,
    header: Option<WrittenHeader>,
    cookie: Option<WrittenCookie>,
}

#[derive(Clone, Copy, Deserialize)]
enum HashType {
    SourceIP,
    Header,
    Cookie,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHeader {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCookie {
    name: String,
    ttl: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTimeout {
    tcp: Option<WrittenTcpTimeout>,
    http: Option<WrittenHttpTimeout>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenTcpTimeout {
    connect_timeout: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenHttpTimeout {
    connection_idle_timeout: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenCircuitBreaker {
    max_connections: Option<i64>,
    max_pending_requests: Option<i64>,
    max_parallel_requests: Option<i64>,
    max_parallel_retries: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProxyProtocol {
    version: WrittenVersion,
}

#[derive(Clone, Copy, Deserialize)]
enum WrittenVersion {
    V1,
    V2,
}

impl TrafficPolicySpec {
    /// The policy. A value that cannot be carried out is kept with its reason.
    pub(super) fn policy(meta: Meta, mut written: Self) -> Result<Policy, ParseError> {
        let targets = std::mem::take(&mut written.target_refs);
        let kinds = targets.iter().map(|target| (&*target.group, &*target.kind));
        let rules = if is_for_requests(kinds.clone()) {
            PolicyRules::Traffic(written.of_routes(&meta.name.namespace, &targets))
        } else if kinds
            .clone()
            .any(|(group, kind)| Targets::Requests.has(group, kind))
        {
            let text = "targetRefs: a policy is about Services, or about Gateways, ListenerSets and routes";
            PolicyRules::Backend(Err(text.to_owned()))
        } else {
            PolicyRules::Backend(written.of_services().map(Arc::new))
        };
        Policy::new(meta, targets, rules)
    }

    fn of_routes(
        self,
        namespace: &Arc<str>,
        targets: &[BackendTlsPolicyTargetRefs],
    ) -> Result<TrafficRules, String> {
        let of_services = [
            ("loadBalancer", self.load_balancer.is_some()),
            ("timeout", self.timeout.is_some()),
            ("circuitBreaker", self.circuit_breaker.is_some()),
            ("healthCheck", self.health_check.is_some()),
            ("proxyProtocol", self.proxy_protocol.is_some()),
        ];
        if let Some((field, _)) = of_services.into_iter().find(|(_, is_there)| *is_there) {
            return Err(format!(
                "{field}: it belongs to Services, and targetRefs has a {}",
                targets[0].kind
            ));
        }
        let on_calls = targets
            .iter()
            .any(|one| one.kind == Kind::GRPCRoute.as_str());
        let useless = self
            .fields()
            .find_map(|field| Some((field, field.uses().not_on_calls?)));
        if let Some((field, why)) = useless.filter(|_| on_calls) {
            return Err(format!("{field}: {why}, and targetRefs has a GRPCRoute"));
        }
        if self.fields().next().is_none() {
            let fields = PolicyField::OF_TRAFFIC.iter().map(|field| field.as_str());
            return Err(format!(
                "spec: one of {} is needed",
                listed(fields.collect())
            ));
        }
        self.settings(namespace)
    }

    fn of_services(self) -> Result<BackendSettings, String> {
        if let Some(field) = self.fields().next() {
            return Err(format!(
                "{field}: it belongs to Gateways, ListenerSets and routes, and targetRefs has a Service"
            ));
        }
        let (tcp, http) = self
            .timeout
            .map_or((None, None), |timeout| (timeout.tcp, timeout.http));
        let connect_timeout = tcp
            .and_then(|tcp| tcp.connect_timeout)
            .map(|text| time("timeout.tcp.connectTimeout", &text, "10ms", "1m"));
        let idle_timeout = http
            .and_then(|http| http.connection_idle_timeout)
            .map(|text| time("timeout.http.connectionIdleTimeout", &text, "100ms", "1h"));
        let (active, passive, panic_percent) = match self.health_check {
            Some(written) => backend_health::read(written)?,
            None => (None, None, None),
        };
        Ok(BackendSettings {
            load_balancing: self
                .load_balancer
                .map(balancing)
                .transpose()?
                .unwrap_or_default(),
            prefers_zone: false,
            connect_timeout: connect_timeout.transpose()?,
            idle_timeout: idle_timeout.transpose()?,
            limits: self
                .circuit_breaker
                .map(limits)
                .transpose()?
                .unwrap_or_default(),
            active,
            passive,
            panic_percent,
            proxy_protocol: self.proxy_protocol.map(|header| match header.version {
                WrittenVersion::V1 => ProxyHeader::V1,
                WrittenVersion::V2 => ProxyHeader::V2,
            }),
        })
    }
}

/// Names as a list, with "and" before the last.
fn listed(names: Vec<&str>) -> String {
    match names.as_slice() {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

fn balancing(written: WrittenLoadBalancer) -> Result<LoadBalancing, String> {
    let WrittenLoadBalancer {
        r#type,
        consistent_hash,
    } = written;
    match (r#type, consistent_hash) {
        (BalancerType::LeastRequest, None) => Ok(LoadBalancing::LeastRequest),
        (BalancerType::RoundRobin, None) => Ok(LoadBalancing::RoundRobin),
        (BalancerType::Random, None) => Ok(LoadBalancing::Random),
        (BalancerType::ConsistentHash, Some(hash)) => {
            hash_key(hash).map(LoadBalancing::ConsistentHash)
        }
        (BalancerType::ConsistentHash, None) => {
            Err("loadBalancer.consistentHash: type ConsistentHash needs it".to_owned())
        }
        (_, Some(_)) => {
            Err("loadBalancer.consistentHash: it belongs to type ConsistentHash".to_owned())
        }
    }
}

fn hash_key(written: WrittenHash) -> Result<HashKey, String> {
    let WrittenHash {
        r#type,
        header,
        cookie,
    } = written;
    let field = "loadBalancer.consistentHash";
    match (r#type, header, cookie) {
        (HashType::SourceIP, None, None) => Ok(HashKey::SourceIp),
        (HashType::Header, Some(header), None) => {
            text::header_name(&format!("{field}.header.name"), &header.name).map_err(words)?;
            Ok(HashKey::Header(header.name.to_ascii_lowercase()))
        }
        (HashType::Cookie, None, Some(WrittenCookie { name, ttl })) => {
            text::cookie_name(&format!("{field}.cookie.name"), &name).map_err(words)?;
            let ttl = ttl.map(|ttl| time(&format!("{field}.cookie.ttl"), &ttl, "0s", "8760h"));
            Ok(HashKey::Cookie {
                name,
                ttl: ttl.transpose()?,
            })
        }
        (HashType::SourceIP, ..) => Err(format!("{field}: type SourceIP has no header or cookie")),
        (HashType::Header, ..) => Err(format!("{field}: type Header needs header, and no cookie")),
        (HashType::Cookie, ..) => Err(format!("{field}: type Cookie needs cookie, and no header")),
    }
}

fn words(Refused(text): Refused) -> String {
    text
}

fn limits(written: WrittenCircuitBreaker) -> Result<BackendLimits, String> {
    let WrittenCircuitBreaker {
        max_connections,
        max_pending_requests,
        max_parallel_requests,
        max_parallel_retries,
    } = written;
    fn limit(field: &str, least: u32, value: Option<i64>) -> Result<Option<u32>, String> {
        value
            .map(|value| number(&format!("circuitBreaker.{field}"), value, least..=LIMIT))
            .transpose()
    }
    Ok(BackendLimits {
        connections: limit("maxConnections", 1, max_connections)?,
        pending: limit("maxPendingRequests", 1, max_pending_requests)?,
        requests: limit("maxParallelRequests", 1, max_parallel_requests)?,
        retries: limit("maxParallelRetries", 0, max_parallel_retries)?,
    })
}

#[cfg(test)]
mod of_routes;
#[cfg(test)]
mod tests;
