//! Gateways with their parameters and policies, of the keys of the ConfigMap.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::access::networks;
use super::listeners::{Listeners, PORTS};
use super::source::Source;
use super::streams::{Stream, with_header};
use crate::convert::document::Name;
use crate::convert::objects::Keys;
use crate::convert::output::{OURS, Output};
use crate::convert::report::Report;
use crate::convert::secrets::config_map;
use crate::convert::{Options, Verdict};

/// The most ports of an entry of clients.
const CLIENT_PORTS: usize = 16;
/// The least bytes of a body that can be compressed.
const LEAST_BYTES: u64 = 64;
/// The types that nginx compresses without a key.
const TYPES: &str = "application/atom+xml application/javascript application/x-javascript application/json application/rss+xml \
                     application/vnd.ms-fontobject application/x-font-ttf application/x-web-app-manifest+json \
                     application/xhtml+xml application/xml font/opentype image/svg+xml image/x-icon text/css \
                     text/javascript text/plain text/x-component";

/// Where the Gateway is: as the options say, otherwise beside the Ingresses if they are in one
/// namespace, and beside the controller if not.
pub(super) fn name(source: &Source, options: &Options) -> Name {
    if let Some(name) = &options.gateway {
        return name.clone();
    }
    let namespaces: BTreeSet<&String> = source
        .ingresses
        .iter()
        .map(|ingress| &ingress.namespace)
        .collect();
    let mut only = namespaces.iter();
    let namespace = match (only.next(), only.next(), &source.configmap) {
        (Some(namespace), None, _) => (*namespace).clone(),
        (_, _, Some((_, (namespace, _)))) => namespace.clone(),
        (Some(first), ..) => (*first).clone(),
        (None, ..) => "default".to_owned(),
    };
    (namespace, "nginx".to_owned())
}

/// `tls.options` of the listeners.
pub(super) fn tls_options(keys: &Keys) -> Value {
    let protocols = keys.get("ssl-protocols").map(|value| value.trim());
    if protocols == Some("TLSv1.3") {
        return json!({"gatewright.io/tls-min-version": "1.3"});
    }
    Value::Null
}

/// Writes the Gateways, and what belongs to each.
pub(super) fn write(
    source: &Source,
    options: &Options,
    streams: &[Stream],
    listeners: &mut Listeners,
    output: &mut Output,
    report: &mut Report,
) {
    let gateways: Vec<(Name, Option<Name>)> = listeners
        .gateways()
        .filter(|(gateway, _)| listeners.has_any(gateway))
        .map(|(gateway, ca)| (gateway.clone(), ca.cloned()))
        .collect();
    for (gateway, ca) in gateways {
        let (namespace, name) = (gateway.0.as_str(), gateway.1.as_str());
        let mut spec = json!({"gatewayClassName": options.gateway_class});
        let clients = clients(&source.keys, streams);
        if !clients.is_empty() {
            let parameters = json!({"clients": clients});
            output.add(OURS, "GatewayParameters", (namespace, name), &parameters);
            spec["infrastructure"] = json!({"parametersRef": {
                "group": "gatewright.io", "kind": "GatewayParameters", "name": name,
            }});
        }
        if let Some(secret) = ca {
            client_ca(source, &gateway, &secret, &mut spec, output, report);
        }
        listeners.write(&gateway, spec, output);
        let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name});
        let targets = std::slice::from_ref(&target);
        if let Some(compression) = compression(&source.keys) {
            let spec = json!({"compression": compression});
            output.policy("TrafficPolicy", (namespace, name), targets, &spec);
        }
        let denied = source
            .keys
            .get("block-cidrs")
            .map(|list| networks(list))
            .unwrap_or_default();
        for denied in denied.chunks(64) {
            let spec = json!({"clientAddress": {"deny": denied}});
            output.policy("AccessPolicy", (namespace, name), targets, &spec);
        }
    }
}

/// Whose word is taken for the address of a client.
fn clients(keys: &Keys, streams: &[Stream]) -> Vec<Value> {
    let mut of_http = json!({"ports": PORTS});
    if is_on(keys, "use-proxy-protocol") {
        of_http["proxyProtocol"] = proxy_protocol(keys);
    }
    if is_on(keys, "use-forwarded-headers") {
        of_http["forwardedFor"] = json!({"hops": 1});
    }
    let is_said = of_http.as_object().is_some_and(|fields| fields.len() > 1);
    let mut clients: Vec<Value> = is_said.then_some(of_http).into_iter().collect();
    let ports = with_header(streams);
    clients.extend(
        ports
            .chunks(CLIENT_PORTS)
            .map(|ports| json!({"ports": ports, "proxyProtocol": proxy_protocol(keys)})),
    );
    clients
}

fn is_on(keys: &Keys, name: &str) -> bool {
    keys.get(name).is_some_and(|value| value.trim() == "true")
}

/// The PROXY protocol of load balancers, whoever they are if nobody says.
fn proxy_protocol(keys: &Keys) -> Value {
    let from = keys.get("proxy-real-ip-cidr").map(|list| networks(list));
    let from = from.filter(|from| !from.is_empty());
    let from = from.unwrap_or_else(|| vec!["0.0.0.0/0".to_owned()]);
    let mut protocol = json!({"mode": "Required", "from": from});
    if from.iter().any(|network| network.ends_with("/0")) {
        protocol["anyone"] = json!(true);
    }
    protocol
}

fn compression(keys: &Keys) -> Option<Value> {
    let mut algorithms = Vec::new();
    let mut key = "gzip";
    if is_on(keys, "enable-brotli") {
        algorithms.push("Brotli");
        key = "brotli";
    }
    if is_on(keys, "use-gzip") {
        algorithms.push("Gzip");
        key = "gzip";
    }
    if algorithms.is_empty() {
        return None;
    }
    let types = keys
        .get(&format!("{key}-types"))
        .map_or(TYPES, String::as_str);
    let types: Vec<&str> = types.split_whitespace().filter(|of| *of != "*").collect();
    let least = keys
        .get(&format!("{key}-min-length"))
        .and_then(|bytes| bytes.parse().ok());
    let least = least.unwrap_or(if key == "gzip" { 256 } else { 20 });
    let mut compression = json!({"algorithms": algorithms, "minBytes": least.max(LEAST_BYTES)});
    if !types.is_empty() {
        compression["types"] = json!(types);
    }
    Some(compression)
}

/// Asks clients for certificates of the CA in a Secret.
fn client_ca(
    source: &Source,
    gateway: &Name,
    secret: &Name,
    spec: &mut Value,
    output: &mut Output,
    report: &mut Report,
) {
    let name = format!("{}-ca", secret.1);
    let pem = source
        .objects
        .secret(secret)
        .and_then(|data| Some(String::from_utf8_lossy(data.get("ca.crt")?).into_owned()));
    match pem {
        Some(pem) => {
            config_map(&gateway.0, &name, &pem, output);
        }
        None => {
            for ingress in &source.ingresses {
                let text = format!(
                    "ConfigMap {}/{name} with ca.crt, which is not written: add Secret {}/{} to the input. Without it no client is admitted",
                    gateway.0, secret.0, secret.1
                );
                if ingress
                    .annotation("auth-tls-secret")
                    .is_some_and(|of| super::source::name_in(&ingress.namespace, of) == *secret)
                {
                    report.tell(ingress, "auth-tls-secret", Verdict::NotCarriedOver, text);
                }
            }
        }
    }
    let validation =
        json!({"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": name}]});
    spec["tls"] = json!({"frontend": {"default": {"validation": validation}}});
}
