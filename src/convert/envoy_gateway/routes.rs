//! Routes: references to Backends and to filters of Envoy Gateway.

use serde_json::{Value, json};

use super::filters::{Replacement, replacement};
use super::site::Site;
use super::targets::Target;
use super::{ENVOY_GROUP, items};

/// Converts the references of a route.
pub(super) fn route(site: &mut Site<'_>, document: usize) {
    let name = site.name(document);
    let Some(mut route) = site.passed.remove(&document) else {
        return;
    };
    let kind = route["kind"].as_str().unwrap_or_default().to_owned();
    let rules = route["spec"]["rules"].as_array();
    let names = unique(rules.into_iter().flatten());
    let mut rewrites: Vec<(Value, Vec<Value>)> = Vec::new();
    for (index, rule) in items(&mut route, "/spec/rules").enumerate() {
        backends(site, rule, &name.0);
        let Some(rewrite) = filters(site, rule, &kind, &name.0) else {
            continue;
        };
        if rule["name"].is_null() {
            rule["name"] = json!(names[index]);
        }
        let target = Target {
            kind: kind.clone(),
            name: name.clone(),
            section: rule["name"].as_str().map(str::to_owned),
        };
        let target = target.reference();
        match rewrites.iter_mut().find(|(other, _)| *other == rewrite) {
            Some((_, targets)) => targets.push(target),
            None => rewrites.push((rewrite, vec![target])),
        }
    }
    for (rewrite, targets) in rewrites {
        let spec = json!({"rewrite": rewrite});
        site.output
            .policy("TrafficPolicy", (&name.0, &name.1), &targets, &spec);
    }
    site.passed.insert(document, route);
}

/// A name for each rule that no rule has.
fn unique<'a>(rules: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let rules: Vec<&Value> = rules.collect();
    (1..=rules.len())
        .map(|number| {
            let mut wanted = format!("rule-{number}");
            while rules.iter().any(|rule| rule["name"] == *wanted) {
                wanted.push('x');
            }
            wanted
        })
        .collect()
}

/// Has the references of a rule name Services in place of Backends.
fn backends(site: &Site<'_>, rule: &mut Value, namespace: &str) {
    for reference in items(rule, "/backendRefs") {
        backend(site, reference, namespace);
        for filter in items(reference, "/filters").filter(|of| is_mirror(of)) {
            backend(site, &mut filter["requestMirror"]["backendRef"], namespace);
        }
    }
    for filter in items(rule, "/filters").filter(|of| is_mirror(of)) {
        backend(site, &mut filter["requestMirror"]["backendRef"], namespace);
    }
}

fn is_mirror(filter: &Value) -> bool {
    filter["type"] == "RequestMirror"
}

/// A reference to a Backend that has no Service stays: its rule is answered 500.
fn backend(site: &Site<'_>, reference: &mut Value, namespace: &str) {
    if reference["group"] != ENVOY_GROUP || reference["kind"] != "Backend" {
        return;
    }
    let Ok((service, port)) = site.service(reference, namespace) else {
        return;
    };
    if let Some(fields) = reference.as_object_mut() {
        fields.remove("group");
        fields.remove("kind");
        fields.insert("name".to_owned(), json!(service.1));
        fields.insert("port".to_owned(), json!(port));
    }
}

/// Replaces the filters of Envoy Gateway. Returns the rewrite of the rule. A filter that has no
/// counterpart stays: its rule is answered 500.
fn filters(site: &Site<'_>, rule: &mut Value, kind: &str, namespace: &str) -> Option<Value> {
    let filters = rule.get_mut("filters")?.as_array_mut()?;
    let mut rewrite = None;
    filters.retain_mut(|filter| {
        let reference = &filter["extensionRef"];
        if reference["group"] != ENVOY_GROUP || reference["kind"] != "HTTPRouteFilter" {
            return true;
        }
        let name = reference["name"].as_str().unwrap_or_default().to_owned();
        let found = site.find(
            ENVOY_GROUP,
            "HTTPRouteFilter",
            &(namespace.to_owned(), name.clone()),
        );
        match found.map(|document| replacement(site.spec(document))) {
            Some(Ok(Replacement::Response)) => {
                filter["extensionRef"] =
                    json!({"group": "gatewright.io", "kind": "DirectResponse", "name": name});
                true
            }
            Some(Ok(Replacement::Rewrite(of))) if kind == "HTTPRoute" && rewrite.is_none() => {
                rewrite = Some(of).filter(|of| *of != json!({}));
                false
            }
            _ => true,
        }
    });
    if filters.is_empty()
        && let Some(fields) = rule.as_object_mut()
    {
        fields.remove("filters");
    }
    rewrite
}

/// The Services of a rule.
pub(super) fn services(site: &Site<'_>, (route, rule): (usize, usize)) -> Vec<(String, String)> {
    let (namespace, _) = site.name(route);
    site.spec(route)["rules"][rule]["backendRefs"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|reference| Some(site.service(reference, &namespace).ok()?.0))
        .collect()
}
