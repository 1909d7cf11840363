//! GatewayClass, Gateway and EnvoyProxy: the class, and GatewayParameters of each Gateway.

use serde_json::{Map, Value, json};

use super::clients::{is_gateway, of_gateway};
use super::site::{CONTROLLER, Site};
use super::targets::{Target, name_in};
use super::{DEFAULTS, ENVOY_GROUP};
use crate::convert::Verdict;
use crate::convert::document::Name;
use crate::convert::output::OURS;

const SETTING: &str = "spec.gatewayClassName";
/// What a Service can be.
const TYPES: [&str; 3] = ["LoadBalancer", "NodePort", "ClusterIP"];
/// The most networks of a list.
const NETWORKS: usize = 64;

/// Says what becomes of a class: ours is of the chart.
pub(super) fn class(site: &mut Site<'_>, document: usize) {
    let spec = site.spec(document);
    let setting = "spec.controllerName";
    if spec["controllerName"] != CONTROLLER {
        site.report
            .say(document, setting, Verdict::NoEffect, "another controller");
        return;
    }
    let text = format!("GatewayClass {}, of the chart", site.gateway_class);
    site.report
        .say(document, setting, Verdict::CarriedOver, text);
    if !spec["parametersRef"].is_null() {
        let text = "GatewayParameters of each Gateway, in the shared fleet name them in parametersRef of the class";
        site.report
            .say(document, "spec.parametersRef", Verdict::Differs, text);
    }
}

/// Says what becomes of an EnvoyProxy, of which Gateways take their parameters.
pub(super) fn proxy(site: &mut Site<'_>, document: usize) {
    let spec = site.spec(document);
    site.report.fields(document, "EnvoyProxy", spec);
}

/// Converts a Gateway of Envoy Gateway's classes.
pub(super) fn gateway(site: &mut Site<'_>, document: usize) {
    if !is_gateway(site, document) {
        let class = site.spec(document)["gatewayClassName"].as_str();
        let text = format!(
            "class {0} is another controller's; --class {0} takes it",
            class.unwrap_or_default()
        );
        site.report.say(document, SETTING, Verdict::NoEffect, text);
        return;
    }
    let Some(mut value) = site.passed.remove(&document) else {
        return;
    };
    let name = site.name(document);
    let text = format!("GatewayClass {}", site.gateway_class);
    site.report
        .say(document, SETTING, Verdict::CarriedOver, text);
    let is_first = (0..document).all(|index| !is_gateway(site, index));
    if is_first {
        let setting = "defaults of Envoy Gateway";
        site.report
            .say(document, setting, Verdict::Differs, DEFAULTS);
    }
    let spec = &mut value["spec"];
    spec["gatewayClassName"] = json!(site.gateway_class);
    let mut parameters = Map::new();
    if let Some(proxy) = proxy_of(site, document, spec) {
        of_proxy(site, &name, site.spec(proxy), spec, &mut parameters);
    }
    of_gateway(site, &name, spec, &mut parameters);
    if parameters.is_empty() {
        let infrastructure = spec["infrastructure"].as_object();
        if infrastructure.is_some_and(|fields| fields.is_empty())
            && let Some(fields) = spec.as_object_mut()
        {
            fields.remove("infrastructure");
        }
    } else {
        let kind = "GatewayParameters";
        let ours = site.output.name(kind, &name.0, &name.1);
        site.output
            .add(OURS, kind, (&name.0, &ours), &Value::Object(parameters));
        spec["infrastructure"]["parametersRef"] =
            json!({"group": "gatewright.io", "kind": kind, "name": ours});
    }
    site.passed.insert(document, value);
}

/// The EnvoyProxy of a Gateway, otherwise of its class. The reference is removed.
fn proxy_of(site: &mut Site<'_>, document: usize, spec: &mut Value) -> Option<usize> {
    let (namespace, _) = site.name(document);
    let infrastructure = spec
        .get_mut("infrastructure")
        .and_then(Value::as_object_mut);
    let own = infrastructure.and_then(|fields| {
        let is_proxy = fields.get("parametersRef")?["kind"] == "EnvoyProxy";
        is_proxy.then(|| fields.remove("parametersRef")).flatten()
    });
    let class = site.spec(document)["gatewayClassName"].as_str()?;
    let of_class = site
        .documents
        .iter()
        .map(|document| &document.value)
        .find(|value| value["kind"] == "GatewayClass" && value["metadata"]["name"] == class)
        .map(|value| value["spec"]["parametersRef"].clone())
        .filter(|reference| !reference.is_null());
    let proxy = name_in(&own.or(of_class)?, &namespace);
    let found = site.find(ENVOY_GROUP, "EnvoyProxy", &proxy);
    if found.is_none() {
        let text = format!("add EnvoyProxy {}/{} to the input", proxy.0, proxy.1);
        let setting = "spec.infrastructure.parametersRef";
        site.report
            .say(document, setting, Verdict::NotCarriedOver, text);
    }
    found
}

/// What an EnvoyProxy says of a Gateway.
fn of_proxy(
    site: &mut Site<'_>,
    gateway: &Name,
    source: &Value,
    spec: &mut Value,
    parameters: &mut Map<String, Value>,
) {
    if source["telemetry"]["accessLog"]["disable"] == true {
        parameters.insert("accessLog".to_owned(), json!({"mode": "Off"}));
    }
    let service = &source["provider"]["kubernetes"]["envoyService"];
    let mut ours = json!({});
    for field in ["type", "externalTrafficPolicy", "loadBalancerClass"] {
        let is_known = field != "type" || TYPES.iter().any(|of| service[field] == *of);
        if !service[field].is_null() && is_known {
            ours[field] = service[field].clone();
        }
    }
    for field in ["annotations", "labels"] {
        for (name, value) in service[field].as_object().into_iter().flatten() {
            if spec["infrastructure"][field][name].is_null() {
                spec["infrastructure"][field][name] = value.clone();
            }
            parameters.insert("fleet".to_owned(), json!("Dedicated"));
        }
    }
    if ours != json!({}) {
        parameters.insert("fleet".to_owned(), json!("Dedicated"));
        parameters.insert("service".to_owned(), ours);
    }
    let ranges = service["loadBalancerSourceRanges"].as_array();
    if let Some(ranges) = ranges.filter(|ranges| !ranges.is_empty()) {
        let target = Target {
            kind: "Gateway".to_owned(),
            name: gateway.clone(),
            section: None,
        };
        let targets = [target.reference()];
        if ranges.len() > NETWORKS {
            site.output.close((&gateway.0, &gateway.1), &targets);
            return;
        }
        let allow = json!({"clientAddress": {"allow": ranges}});
        site.output
            .policy("AccessPolicy", (&gateway.0, &gateway.1), &targets, &allow);
    }
}
