//! The Services that answer for references and URLs.

use serde_json::{Value, json};

use super::ENVOY_GROUP;
use super::duration::within;
use super::site::Site;
use super::targets::name_in;
use crate::convert::document::Name;
use crate::convert::output::{GATEWAY_API, Grant};

/// The most characters of a Service's name.
const NAME: usize = 63;

impl Site<'_> {
    /// The Service of a reference of a backend: namespace, name and port.
    pub(super) fn service(
        &self,
        reference: &Value,
        namespace: &str,
    ) -> Result<(Name, u64), String> {
        let name = name_in(reference, namespace);
        let group = reference["group"].as_str().unwrap_or_default();
        match (group, reference["kind"].as_str().unwrap_or("Service")) {
            ("", "Service") => {
                let port = reference["port"].as_u64().ok_or("it names no port")?;
                Ok((name, port))
            }
            (ENVOY_GROUP, "Backend") => match self.backends.get(&name) {
                Some(Ok((service, port))) => Ok(((name.0, service.clone()), *port)),
                Some(Err(why)) => Err(why.clone()),
                None => Err(format!("Backend {}/{} is not in the input", name.0, name.1)),
            },
            (_, kind) => Err(format!("a backend of kind {kind} has no Service")),
        }
    }

    /// The reference of a policy to the Service that answers for a URL: the one that the source
    /// names, otherwise one of type ExternalName.
    pub(super) fn service_for(
        &mut self,
        source: &Value,
        url: &str,
        namespace: &str,
    ) -> Result<Value, String> {
        let references = source["backendRefs"].as_array().map(Vec::as_slice);
        let reference = match references {
            Some([reference]) => Some(reference),
            Some([_, ..]) => return Err("several backendRefs, one is possible".to_owned()),
            _ => Some(&source["backendRef"]).filter(|of| !of.is_null()),
        };
        let (service, port) = match reference {
            Some(reference) => self.service(reference, namespace)?,
            None => {
                let (host, port) = host(url).ok_or("the URL has no host")?;
                let service = self.external(namespace, &host, port);
                ((namespace.to_owned(), service), port)
            }
        };
        let mut backend = json!({"name": service.1, "port": port});
        if service.0 != namespace {
            backend["namespace"] = json!(service.0);
            self.output.grant(Grant {
                from: ("gatewright.io", "AccessPolicy", namespace.to_owned()),
                to: ("Service", service),
            });
        }
        Ok(backend)
    }

    /// The Service of a host outside of the cluster, with TLS.
    fn external(&mut self, namespace: &str, host: &str, port: u64) -> String {
        let key = (namespace.to_owned(), host.to_owned(), port);
        if let Some(service) = self.hosts.get(&key) {
            return service.clone();
        }
        let wanted: String = host.replace('.', "-").chars().take(NAME).collect();
        let wanted = wanted.trim_matches('-');
        let service = self.output.name("Service", namespace, wanted);
        self.external_name((namespace, &service), host, port, None);
        let validation = json!({"hostname": host, "wellKnownCACertificates": "System"});
        self.backend_tls(namespace, &service, &validation);
        self.hosts.insert(key, service.clone());
        service
    }

    /// Writes a Service of type ExternalName.
    pub(super) fn external_name(
        &mut self,
        name: (&str, &str),
        host: &str,
        port: u64,
        protocol: Option<&str>,
    ) {
        let mut port = json!({"port": port});
        if let Some(protocol) = protocol {
            port["appProtocol"] = json!(protocol);
        }
        let spec = json!({"type": "ExternalName", "externalName": host, "ports": [port]});
        self.output.add("v1", "Service", name, &spec);
    }

    /// Writes the BackendTLSPolicy of a Service.
    pub(super) fn backend_tls(&mut self, namespace: &str, service: &str, validation: &Value) {
        let kind = "BackendTLSPolicy";
        let name = self.output.name(kind, namespace, service);
        let spec = json!({
            "targetRefs": [{"group": "", "kind": "Service", "name": service}],
            "validation": validation,
        });
        self.output
            .add(GATEWAY_API, kind, (namespace, &name), &spec);
    }
}

/// What a BackendTrafficPolicy says of Services: the field here and there, and its value.
pub(super) fn settings(spec: &Value) -> Vec<(&'static str, &'static str, Value)> {
    [
        (
            "loadBalancer",
            "loadBalancer",
            balance(&spec["loadBalancer"]),
        ),
        ("timeout", "timeout", timeout(&spec["timeout"])),
        (
            "circuitBreaker",
            "circuitBreaker",
            breaker(&spec["circuitBreaker"]),
        ),
        ("healthCheck", "healthCheck", health(&spec["healthCheck"])),
        (
            "proxyProtocol",
            "proxyProtocol",
            Some(&spec["proxyProtocol"])
                .filter(|of| !of["version"].is_null())
                .map(|of| json!({"version": of["version"]})),
        ),
    ]
    .into_iter()
    .filter_map(|(field, source, value)| Some((field, source, value?)))
    .collect()
}

fn balance(source: &Value) -> Option<Value> {
    let kind = source["type"].as_str()?;
    if ["LeastRequest", "RoundRobin", "Random"].contains(&kind) {
        return Some(json!({"type": kind}));
    }
    let hash = &source["consistentHash"];
    let key = match hash["type"].as_str()? {
        "SourceIP" => json!({"type": "SourceIP"}),
        "Header" => json!({"type": "Header", "header": {"name": hash["header"]["name"]}}),
        "Headers" => json!({"type": "Header", "header": {"name": hash["headers"][0]["name"]}}),
        "Cookie" => {
            let mut cookie = json!({"name": hash["cookie"]["name"]});
            if let Some(ttl) = hash["cookie"]["ttl"].as_str() {
                cookie["ttl"] = json!(within(ttl, 0, 8760 * 3_600_000));
            }
            json!({"type": "Cookie", "cookie": cookie})
        }
        _ => return None,
    };
    Some(json!({"type": "ConsistentHash", "consistentHash": key}))
}

fn timeout(source: &Value) -> Option<Value> {
    let mut timeout = json!({});
    if let Some(connect) = source["tcp"]["connectTimeout"].as_str() {
        timeout["tcp"] = json!({"connectTimeout": within(connect, 10, 60_000)});
    }
    if let Some(idle) = source["http"]["connectionIdleTimeout"].as_str() {
        timeout["http"] = json!({"connectionIdleTimeout": within(idle, 100, 3_600_000)});
    }
    (timeout != json!({})).then_some(timeout)
}

fn breaker(source: &Value) -> Option<Value> {
    let mut breaker = json!({});
    for field in [
        "maxConnections",
        "maxPendingRequests",
        "maxParallelRequests",
        "maxParallelRetries",
    ] {
        if let Some(number) = source[field].as_u64() {
            breaker[field] = json!(number.clamp(1, 1_000_000));
        }
    }
    (breaker != json!({})).then_some(breaker)
}

fn health(source: &Value) -> Option<Value> {
    let mut health = json!({});
    let active = &source["active"];
    if let Some(kind) = active["type"].as_str() {
        let mut check = json!({"type": kind});
        if let Some(timeout) = active["timeout"].as_str() {
            check["timeout"] = json!(within(timeout, 100, 2000));
        }
        if let Some(interval) = active["interval"].as_str() {
            check["interval"] = json!(within(interval, 2000, 600_000));
        }
        for field in ["unhealthyThreshold", "healthyThreshold"] {
            if let Some(number) = active[field].as_u64() {
                check[field] = json!(number.clamp(1, 100));
            }
        }
        if kind == "HTTP" {
            let mut http = json!({"path": active["http"]["path"]});
            if !active["http"]["hostname"].is_null() {
                http["hostname"] = active["http"]["hostname"].clone();
            }
            if let Some(statuses) = active["http"]["expectedStatuses"].as_array() {
                http["expectedStatuses"] = json!(statuses.iter().take(16).collect::<Vec<_>>());
            }
            check["http"] = http;
        }
        if let (Some(service), "GRPC") = (active["grpc"]["service"].as_str(), kind) {
            check["grpc"] = json!({"service": service});
        }
        health["active"] = check;
    }
    let passive = passive(&source["passive"]);
    if passive != json!({}) {
        health["passive"] = passive;
    }
    if let Some(percent) = source["panicThreshold"].as_u64() {
        health["panicThreshold"] = json!(percent.min(100));
    }
    (health != json!({})).then_some(health)
}

fn passive(source: &Value) -> Value {
    let mut passive = json!({});
    for field in ["consecutive5XxErrors", "consecutiveGatewayErrors"] {
        if let Some(number) = source[field].as_u64() {
            passive[field] = json!(number.min(1000));
        }
    }
    for field in ["interval", "baseEjectionTime"] {
        if let Some(duration) = source[field].as_str() {
            passive[field] = json!(within(duration, 1000, 3_600_000));
        }
    }
    if let Some(percent) = source["maxEjectionPercent"].as_u64() {
        passive["maxEjectionPercent"] = json!(percent.min(100));
    }
    passive
}

/// Host and port of a URL of https.
fn host(url: &str) -> Option<(String, u64)> {
    let rest = url.strip_prefix("https://")?;
    let authority = rest.split(['/', '?']).next()?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, 443),
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}
