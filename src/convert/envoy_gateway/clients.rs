//! ClientTrafficPolicy: what it says of a Gateway and its listeners.

use gatewright_core::translate::TLS_VALUES;
use serde_json::{Map, Value, json};

use super::site::Site;
use super::targets::{Target, name_in};
use super::{GATEWAY_GROUP, items};
use crate::convert::Verdict;
use crate::convert::document::Name;

/// The most entries of X-Forwarded-For that may be believed.
const HOPS: u64 = 8;
/// The protocols of ALPN that a listener may have.
const ALPN: &[&str] = &["h2", "http/1.1"];

/// Says what becomes of a policy, and writes what is not of Gateways.
pub(super) fn policy(site: &mut Site<'_>, document: usize) {
    let policy = site.policy(document);
    let (kind, name, spec) = (policy.kind, policy.name.clone(), policy.spec);
    let targets = policy.targets.clone();
    let mut closed = Vec::new();
    let validates = !spec["tls"]["clientValidation"].is_null();
    for target in &targets {
        let why = if target.kind == "Gateway" && target.name.0 == name.0 {
            if site.has_target(target) {
                continue;
            }
            "is not in the input: its fields belong to the Gateway"
        } else {
            "is no Gateway of this namespace: the fields belong to a Gateway"
        };
        let text = format!("{} {}/{} {why}", target.kind, target.name.0, target.name.1);
        site.report
            .say(document, "targetRefs", Verdict::NotCarriedOver, text);
        if validates {
            closed.push("targetRefs".to_owned());
        }
    }
    if validates && spec["tls"]["clientValidation"]["caCertificateRefs"][0].is_null() {
        let text = "the Gateway is closed: certificates are validated by a CA alone";
        let setting = "tls.clientValidation.mode";
        site.report
            .say(document, setting, Verdict::NotCarriedOver, text);
        closed.push(setting.to_owned());
    }
    headers(site, &name, &targets, spec);
    // A field that is not known here may be one of validation.
    closed.extend(site.report.fields(document, kind, spec));
    if !closed.is_empty() {
        site.close(document, &name, &targets);
    }
}

/// Writes the headers of responses.
fn headers(site: &mut Site<'_>, name: &Name, targets: &[Target], spec: &Value) {
    let headers: Vec<Value> = spec["headers"]["lateResponseHeaders"]["set"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|header| {
            json!({"name": header["name"], "value": {"type": "Text", "text": header["value"]}})
        })
        .collect();
    let references: Vec<Value> = targets
        .iter()
        .filter(|target| target.is_parent() && target.name.0 == name.0)
        .map(Target::reference)
        .collect();
    if !headers.is_empty() {
        let spec = json!({"headers": {"response": headers}});
        site.output
            .policy("TrafficPolicy", (&name.0, &name.1), &references, &spec);
    }
}

/// What the policies say of a Gateway: fields of its parameters, of its spec, and of its listeners.
pub(super) fn of_gateway(
    site: &mut Site<'_>,
    gateway: &Name,
    spec: &mut Value,
    parameters: &mut Map<String, Value>,
) {
    let main = nearest(site, gateway, None);
    if let Some(document) = main {
        let action = &site.spec(document)["path"]["escapedSlashesAction"];
        let action = match action.as_str() {
            Some("KeepUnchanged") => Some("Keep"),
            Some("RejectRequest") => Some("Reject"),
            Some(_) => Some("Redirect"),
            None => None,
        };
        if let Some(action) = action {
            parameters.insert("escapedSlashes".to_owned(), json!(action));
        }
    }
    let mut clients: Vec<(Value, Vec<u64>)> = Vec::new();
    let mut ports: Vec<u64> = Vec::new();
    let mut validations: Vec<(Option<u64>, Value)> = Vec::new();
    for listener in items(spec, "/listeners") {
        let name = listener["name"].as_str().unwrap_or_default().to_owned();
        let Some(document) = nearest(site, gateway, Some(&name)) else {
            continue;
        };
        let source = site.spec(document);
        let port = listener["port"].as_u64().unwrap_or_default();
        options(listener, source);
        if Some(document) != main && !source["path"]["escapedSlashesAction"].is_null() {
            let text = "escapedSlashes of GatewayParameters is for a whole Gateway";
            let setting = "path.escapedSlashesAction";
            site.report
                .say(document, setting, Verdict::NotCarriedOver, text);
        }
        let is_first = !ports.contains(&port);
        ports.push(port);
        if let (Some(of), true) = (client(source), is_first) {
            match clients.iter_mut().find(|(other, _)| *other == of) {
                Some((_, ports)) => ports.push(port),
                None => clients.push((of, vec![port])),
            }
        }
        let is_whole = Some(document) == main;
        let key = (!is_whole).then_some(port);
        if listener["protocol"] == "HTTPS" && !validations.iter().any(|(other, _)| *other == key) {
            let validation = validation(site, document, gateway);
            validations.extend(validation.map(|validation| (key, validation)));
        }
    }
    let clients: Vec<Value> = clients
        .into_iter()
        .map(|(mut of, mut ports)| {
            ports.truncate(16);
            of["ports"] = json!(ports);
            of
        })
        .collect();
    if !clients.is_empty() {
        parameters.insert("clients".to_owned(), json!(clients));
    }
    for (port, validation) in validations {
        let validation = json!({"validation": validation});
        let frontend = &mut spec["tls"]["frontend"];
        match port {
            None => frontend["default"] = validation,
            Some(port) => {
                let entry = json!({"port": port, "tls": validation});
                match frontend.get_mut("perPort").and_then(Value::as_array_mut) {
                    Some(entries) => entries.push(entry),
                    None => frontend["perPort"] = json!([entry]),
                }
            }
        }
    }
    // The field is needed beside that of a port.
    let frontend = spec.pointer_mut("/tls/frontend");
    if let Some(fields) = frontend.and_then(Value::as_object_mut) {
        fields.entry("default").or_insert_with(|| json!({}));
    }
}

/// The policy of a listener, otherwise of the Gateway.
fn nearest(site: &Site<'_>, gateway: &Name, listener: Option<&str>) -> Option<usize> {
    [listener, None].into_iter().find_map(|section| {
        site.policies
            .iter()
            .filter(|policy| policy.kind == "ClientTrafficPolicy" && policy.name.0 == gateway.0)
            .find(|policy| {
                policy.targets.iter().any(|target| {
                    target.kind == "Gateway"
                        && target.name == *gateway
                        && target.section.as_deref() == section
                })
            })
            .map(|policy| policy.document)
    })
}

/// Whose word is taken for the address of a client.
fn client(source: &Value) -> Option<Value> {
    let mut client = json!({});
    let protocol = &source["proxyProtocol"];
    if !protocol.is_null() || source["enableProxyProtocol"] == true {
        let mode = if protocol["optional"] == true {
            "Optional"
        } else {
            "Required"
        };
        client["proxyProtocol"] =
            json!({"mode": mode, "from": ["0.0.0.0/0", "::/0"], "anyone": true});
    }
    let hops = source["clientIPDetection"]["xForwardedFor"]["numTrustedHops"].as_u64();
    if let Some(hops) = hops.filter(|hops| *hops > 0) {
        client["forwardedFor"] = json!({"hops": hops.min(HOPS)});
    }
    (client != json!({})).then_some(client)
}

/// Sets `tls.options` of a listener.
fn options(listener: &mut Value, source: &Value) {
    let is_terminated = listener["tls"].is_object() && listener["tls"]["mode"] != "Passthrough";
    if !is_terminated {
        return;
    }
    let tls = &source["tls"];
    let mut options = Map::new();
    for (option, field) in [
        ("gatewright.io/tls-min-version", "minVersion"),
        ("gatewright.io/tls-max-version", "maxVersion"),
    ] {
        if let Some(version @ ("1.2" | "1.3")) = tls[field].as_str() {
            options.insert(option.to_owned(), json!(version));
        }
    }
    for (option, field) in [
        ("tls-alpn", "alpnProtocols"),
        ("tls-ciphers", "ciphers"),
        ("tls-curves", "ecdhCurves"),
        ("tls-signature-algorithms", "signatureAlgorithms"),
    ] {
        let known = TLS_VALUES
            .into_iter()
            .find_map(|(name, values)| (name == option).then_some(values))
            .unwrap_or(ALPN);
        let mut items: Vec<&str> = Vec::new();
        for item in tls[field].as_array().into_iter().flatten() {
            // Groups of ciphers stand in brackets, with bars between them.
            for item in item.as_str().unwrap_or_default().split(['[', ']', '|']) {
                if known.contains(&item) && !items.contains(&item) {
                    items.push(item);
                }
            }
        }
        if !items.is_empty() {
            options.insert(format!("gatewright.io/{option}"), json!(items.join(",")));
        }
    }
    if tls["session"]["resumption"].as_object().is_some() {
        options.insert("gatewright.io/session-tickets".to_owned(), json!("Enabled"));
    }
    let is_exact = listener["hostname"]
        .as_str()
        .is_some_and(|host| !host.starts_with('*'));
    if !source["http3"].is_null() && is_exact && listener["protocol"] == "HTTPS" {
        options.insert("gatewright.io/http3".to_owned(), json!("Enabled"));
    }
    for (option, value) in options {
        listener["tls"]["options"][option] = value;
    }
}

/// How certificates of clients are validated.
fn validation(site: &mut Site<'_>, document: usize, gateway: &Name) -> Option<Value> {
    let source = &site.spec(document)["tls"]["clientValidation"]["caCertificateRefs"];
    let references: Vec<Value> = source
        .as_array()?
        .iter()
        .map(|reference| {
            if reference["kind"] != "Secret" && !reference["kind"].is_null() {
                let mut reference = reference.clone();
                reference["group"] = json!("");
                return reference;
            }
            let secret = name_in(reference, &gateway.0);
            let name = format!("{}-ca", secret.1);
            if !site.ca(&gateway.0, &secret) {
                let text = format!(
                    "ConfigMap {}/{name} with ca.crt, which is not written: add Secret {}/{} to the input. Without it no client is admitted",
                    gateway.0, secret.0, secret.1
                );
                let setting = "tls.clientValidation.caCertificateRefs";
                site.report
                    .say(document, setting, Verdict::NotCarriedOver, text);
            }
            json!({"group": "", "kind": "ConfigMap", "name": name})
        })
        .collect();
    (!references.is_empty()).then(|| json!({"caCertificateRefs": references}))
}

/// True for a Gateway of the Gateway API that is one of Envoy Gateway's.
pub(super) fn is_gateway(site: &Site<'_>, document: usize) -> bool {
    let value = &site.documents[document].value;
    value["kind"] == "Gateway"
        && super::group(value) == GATEWAY_GROUP
        && value["spec"]["gatewayClassName"]
            .as_str()
            .is_some_and(|class| site.classes.contains(class))
}
