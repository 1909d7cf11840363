//! Gateway API objects with policies of Envoy Gateway.
//!
//! In: Gateway API objects, Envoy Gateway's kinds, and the Services, Secrets, ConfigMaps and
//! Namespaces that these name. Out: the Gateway API objects, changed where a policy becomes a
//! field of theirs, our policies in the places of the source's, and what becomes of each field
//! ([`FIELDS`]). Objects of other kinds, and of our own, stay what they are: the first are not
//! repeated, the others are.

mod authorization;
mod backends;
mod clients;
mod duration;
mod extensions;
mod fields;
mod filters;
mod gateways;
mod jwt;
mod limits;
mod oidc;
mod part;
mod report;
mod routes;
mod security;
mod services;
mod site;
mod targets;
mod traffic;

use serde_json::Value;

pub use fields::FIELDS;

use self::site::Site;
use super::document::name_of;
use super::{Conversion, Converted, Document, Options, Verdict};

/// The group of the Gateway API.
const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
/// The group of Envoy Gateway's kinds.
const ENVOY_GROUP: &str = "gateway.envoyproxy.io";

/// What Envoy Gateway does without a setting, and we do not.
const DEFAULTS: &str = "where no setting says otherwise, Gateways share the Envoys and addresses of the class (GatewayParameters, fleet: \
                        Dedicated, has a Service for each); %2F and %5C in paths are kept (Envoy Gateway redirects: escapedSlashes of \
                        GatewayParameters); a connection to a backend has 5 s (10 s); access logs have errors (all requests: accessLog of \
                        GatewayParameters); a Service has a circuit breaker of 4096 connections and requests (1024)";

/// Converts the objects of a source.
pub(super) fn convert(documents: &[Document], options: &Options) -> Conversion {
    let mut site = Site::read(documents, options);
    let mut ranges = Vec::new();
    for index in 0..documents.len() {
        let before = site.output.len();
        document(&mut site, index);
        ranges.push(before..site.output.len());
    }
    let mut made = site.output.finish(0);
    let rest = made.split_off(ranges.last().map_or(0, |range| range.end));
    let mut made = made.into_iter();
    let mut objects = Vec::new();
    for (index, range) in ranges.into_iter().enumerate() {
        let first = objects.len();
        objects.extend(site.passed.remove(&index).map(|value| Converted {
            comments: Vec::new(),
            value,
        }));
        objects.extend(made.by_ref().take(range.len()));
        if let Some(object) = objects.get_mut(first) {
            object.comments.clone_from(&documents[index].comments);
        }
    }
    objects.extend(rest);
    Conversion {
        objects,
        notes: site.report.notes(documents),
    }
}

/// Converts a document.
fn document(site: &mut Site<'_>, index: usize) {
    let value = &site.documents[index].value;
    let kind = value["kind"].as_str().unwrap_or_default();
    match (group(value), kind) {
        (GATEWAY_GROUP, "GatewayClass") => gateways::class(site, index),
        (GATEWAY_GROUP, "Gateway") => gateways::gateway(site, index),
        (GATEWAY_GROUP, "HTTPRoute" | "GRPCRoute" | "TLSRoute" | "TCPRoute" | "UDPRoute") => {
            routes::route(site, index);
        }
        (GATEWAY_GROUP, "BackendTLSPolicy") => backends::tls_policy(site, index),
        (GATEWAY_GROUP, "ReferenceGrant") => backends::grant(site, index),
        (ENVOY_GROUP, "SecurityPolicy") => security::policy(site, index),
        (ENVOY_GROUP, "BackendTrafficPolicy") => traffic::policy(site, index),
        (ENVOY_GROUP, "ClientTrafficPolicy") => clients::policy(site, index),
        (ENVOY_GROUP, "EnvoyExtensionPolicy" | "EnvoyPatchPolicy") => {
            extensions::policy(site, index);
        }
        (ENVOY_GROUP, "HTTPRouteFilter") => filters::filter(site, index),
        (ENVOY_GROUP, "Backend") => backends::backend(site, index),
        (ENVOY_GROUP, "EnvoyProxy") => gateways::proxy(site, index),
        (ENVOY_GROUP, _) => {
            let text = "Envoy Gateway has no such kind of object";
            site.report
                .say(index, "kind", Verdict::NotCarriedOver, text);
        }
        _ => {}
    }
}

/// The items of a list to change, if it is there: to index would insert it.
fn items<'a>(value: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = value.pointer_mut(pointer);
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

/// The group of an object.
fn group(value: &Value) -> &str {
    let version = value["apiVersion"].as_str().unwrap_or_default();
    version.split_once('/').map_or("", |(group, _)| group)
}
