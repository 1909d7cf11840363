//! Backend: a Service, with the EndpointSlices of its addresses or with the name of its host, and
//! a BackendTLSPolicy.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::site::Site;
use super::targets::name_in;
use super::{ENVOY_GROUP, group, items};
use crate::convert::Verdict;
use crate::convert::document::{Name, name_of};
use crate::convert::secrets::config_map;

/// Where a Backend is.
enum Place<'a> {
    Host(&'a str),
    Addresses(Vec<(IpAddr, &'a Value)>),
}

impl Site<'_> {
    /// Gives each Backend the name of its Service.
    pub(super) fn name_backends(&mut self) {
        for document in self.documents {
            let value = &document.value;
            if value["kind"] != "Backend" || group(value) != ENVOY_GROUP {
                continue;
            }
            let name = name_of(value);
            let service = place(&value["spec"]).map(|(_, port)| {
                let service = self.output.name("Service", &name.0, &name.1);
                (service, port)
            });
            self.backends.insert(name, service);
        }
    }
}

/// Writes the Service of a Backend.
pub(super) fn backend(site: &mut Site<'_>, document: usize) {
    let (name, spec) = (site.name(document), site.spec(document));
    match (place(spec), site.backends.get(&name).cloned()) {
        (Ok((place, port)), Some(Ok((service, _)))) => {
            let protocol = protocol(spec);
            match &place {
                Place::Host(host) => {
                    site.external_name((&name.0, &service), host, port, protocol);
                }
                Place::Addresses(addresses) => {
                    slices(site, (&name.0, &service), port, protocol, addresses);
                }
            }
            if !spec["tls"].is_null() {
                let host = match place {
                    Place::Host(host) => Some(host),
                    Place::Addresses(_) => None,
                };
                tls(site, document, &name, &service, host);
            }
        }
        (Err(why), _) | (_, Some(Err(why))) => {
            let text = format!("its rules are answered 500: {why}");
            site.report
                .say(document, "endpoints", Verdict::NotCarriedOver, text);
        }
        (Ok(_), None) => {}
    }
    site.report.fields(document, "Backend", spec);
}

/// Where a Backend is, and the port.
fn place(spec: &Value) -> Result<(Place<'_>, u64), String> {
    let endpoints = spec["endpoints"].as_array().map(Vec::as_slice);
    match endpoints.unwrap_or_default() {
        [] => Err("it has no endpoints".to_owned()),
        [only] if !only["fqdn"].is_null() => {
            let host = only["fqdn"]["hostname"]
                .as_str()
                .ok_or("it has no hostname")?;
            let port = only["fqdn"]["port"].as_u64().ok_or("it has no port")?;
            Ok((Place::Host(host), port))
        }
        endpoints => {
            let port = endpoints[0]["ip"]["port"].as_u64();
            let addresses: Option<Vec<_>> = endpoints
                .iter()
                .map(|endpoint| {
                    let address = endpoint["ip"]["address"].as_str()?.parse().ok()?;
                    (endpoint["ip"]["port"].as_u64() == port).then_some((address, endpoint))
                })
                .collect();
            match (addresses, port) {
                (Some(addresses), Some(port)) => Ok((Place::Addresses(addresses), port)),
                _ => Err("a Service has one host, or addresses with one port".to_owned()),
            }
        }
    }
}

/// What the port of a Service speaks.
fn protocol(spec: &Value) -> Option<&'static str> {
    let protocols = spec["appProtocols"].as_array()?;
    protocols.iter().find_map(|protocol| {
        Some(match protocol.as_str()? {
            "gateway.envoyproxy.io/h2c" => "kubernetes.io/h2c",
            "gateway.envoyproxy.io/ws" => "kubernetes.io/ws",
            "gateway.envoyproxy.io/wss" => "kubernetes.io/wss",
            _ => return None,
        })
    })
}

/// Writes a Service without a selector, and a slice for each family of its addresses.
fn slices(
    site: &mut Site<'_>,
    (namespace, service): (&str, &str),
    port: u64,
    protocol: Option<&str>,
    addresses: &[(IpAddr, &Value)],
) {
    let mut of_service = json!({"port": port});
    if let Some(protocol) = protocol {
        of_service["appProtocol"] = json!(protocol);
    }
    let spec = json!({"ports": [of_service]});
    site.output
        .add("v1", "Service", (namespace, service), &spec);
    for (family, is_four) in [("IPv4", true), ("IPv6", false)] {
        let endpoints: Vec<Value> = addresses
            .iter()
            .filter(|(address, _)| address.is_ipv4() == is_four)
            .map(|(address, source)| {
                let mut endpoint = json!({"addresses": [address.to_string()]});
                if let Some(zone) = source["zone"].as_str() {
                    endpoint["zone"] = json!(zone);
                }
                endpoint
            })
            .collect();
        if endpoints.is_empty() {
            continue;
        }
        let kind = "EndpointSlice";
        let wanted = format!("{service}-{}", family.to_lowercase());
        let name = site.output.name(kind, namespace, &wanted);
        let fields = json!({
            "metadata": {
                "namespace": namespace, "name": name,
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": family,
            "ports": [{"port": port, "protocol": "TCP", "name": ""}],
            "endpoints": endpoints,
        });
        site.output
            .add_with("discovery.k8s.io/v1", kind, (namespace, &name), &fields);
    }
}

/// Writes the BackendTLSPolicy of a Backend.
fn tls(site: &mut Site<'_>, document: usize, name: &Name, service: &str, host: Option<&str>) {
    let tls = &site.spec(document)["tls"];
    let Some(host) = tls["sni"].as_str().or(host) else {
        let text = "a BackendTLSPolicy needs a hostname, so backends get plain text: add sni";
        site.report
            .say(document, "tls.sni", Verdict::NotCarriedOver, text);
        return;
    };
    let mut validation = json!({"hostname": host});
    let ca = &tls["caCertificateRefs"][0];
    match ca["name"].as_str() {
        Some(ca_name) => {
            let ca_name = certificates(site, document, ca, (&name.0, ca_name));
            validation["caCertificateRefs"] =
                json!([{"group": "", "kind": "ConfigMap", "name": ca_name}]);
        }
        None => validation["wellKnownCACertificates"] = json!("System"),
    }
    site.backend_tls(&name.0, service, &validation);
}

/// The ConfigMap with certificates of a CA, written of a Secret.
fn certificates(
    site: &mut Site<'_>,
    document: usize,
    reference: &Value,
    (namespace, name): (&str, &str),
) -> String {
    if reference["kind"] != "Secret" {
        return name.to_owned();
    }
    let ours = format!("{name}-ca");
    if !site.ca(namespace, &(namespace.to_owned(), name.to_owned())) {
        let text = format!(
            "ConfigMap {namespace}/{ours} with ca.crt, which is not written: add Secret {namespace}/{name} to the input"
        );
        site.report.say(
            document,
            "tls.caCertificateRefs",
            Verdict::NotCarriedOver,
            text,
        );
    }
    ours
}

impl Site<'_> {
    /// Writes the ConfigMap `NAME-ca` of a Secret with `ca.crt`. Returns false if the Secret is not
    /// of the source, or has no such key.
    pub(super) fn ca(&mut self, namespace: &str, secret: &Name) -> bool {
        let pem = self
            .objects
            .secret(secret)
            .and_then(|data| Some(String::from_utf8_lossy(data.get("ca.crt")?).into_owned()));
        let Some(pem) = pem else {
            return false;
        };
        let name = format!("{}-ca", secret.1);
        config_map(namespace, &name, &pem, &mut self.output);
        true
    }
}

/// Has a BackendTLSPolicy name the Services of Backends.
pub(super) fn tls_policy(site: &mut Site<'_>, document: usize) {
    let (namespace, _) = site.name(document);
    let Some(value) = site.passed.get_mut(&document) else {
        return;
    };
    for target in items(value, "/spec/targetRefs") {
        if target["group"] != ENVOY_GROUP || target["kind"] != "Backend" {
            continue;
        }
        if let Some(Ok((service, _))) = site.backends.get(&name_in(target, &namespace)) {
            *target = json!({"group": "", "kind": "Service", "name": service});
        }
    }
}

/// Has a ReferenceGrant permit what the new objects refer to.
pub(super) fn grant(site: &mut Site<'_>, document: usize) {
    let (namespace, _) = site.name(document);
    let Some(value) = site.passed.get_mut(&document) else {
        return;
    };
    for from in items(value, "/spec/from") {
        if from["group"] == ENVOY_GROUP && from["kind"] == "SecurityPolicy" {
            from["group"] = json!("gatewright.io");
            from["kind"] = json!("AccessPolicy");
        }
    }
    for to in items(value, "/spec/to") {
        if to["group"] != ENVOY_GROUP || to["kind"] != "Backend" {
            continue;
        }
        to["group"] = json!("");
        to["kind"] = json!("Service");
        if let Some(Ok((service, _))) = site.backends.get(&name_in(to, &namespace))
            && !to["name"].is_null()
        {
            to["name"] = json!(service);
        }
    }
}
