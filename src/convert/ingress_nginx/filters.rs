//! Filters of the rules of an Ingress.

use serde_json::{Map, Value, json};

use super::redirect::Redirect;
use super::source::{Ingress, Source, name_in};
use crate::convert::Verdict;
use crate::convert::document::Name;
use crate::convert::objects::Keys;
use crate::convert::output::{Grant, OURS, Output};
use crate::convert::report::Report;

/// What CORS allows without annotations.
const METHODS: &str = "GET, PUT, POST, DELETE, PATCH, OPTIONS";
const HEADERS: &str = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization";
const MAX_AGE: i64 = 1_728_000;
/// The most headers of a ConfigMap: two of them and one more fit into a filter.
const HEADERS_OF_A_MAP: usize = 7;
/// How long browsers keep to HTTPS without a key, in seconds.
const HSTS_MAX_AGE: &str = "31536000";

/// The filters of an Ingress that all of its rules have.
#[derive(Default)]
pub(super) struct Filters {
    /// The redirect that every request gets, in place of all others.
    pub(super) redirect: Option<Value>,
    pub(super) cors: Option<Value>,
    request_headers: Vec<Value>,
    response_headers: Vec<Value>,
    mirror: Option<Value>,
    /// The host for backends.
    vhost: Option<String>,
}

impl Filters {
    /// Reads the filters of an Ingress, and adds the objects that they refer to.
    pub(super) fn read(
        source: &Source,
        ingress: &Ingress,
        output: &mut Output,
        report: &mut Report,
    ) -> Self {
        if let Some(redirect) = Redirect::read(ingress, report) {
            let filter = match redirect {
                Redirect::Filter(filter) => filter,
                Redirect::Answer(spec) => answer(ingress, &spec, output),
            };
            return Self {
                redirect: Some(filter),
                ..Self::default()
            };
        }
        Self {
            redirect: None,
            cors: cors(ingress),
            request_headers: request_headers(source, ingress, report),
            response_headers: response_headers(source, ingress, report),
            mirror: mirror(source, ingress, output, report),
            vhost: ingress.annotation("upstream-vhost").map(str::to_owned),
        }
    }

    /// The filters of a rule. `path` is what replaces its path; `https` says whether HTTPS alone
    /// serves it.
    pub(super) fn of_rule(&self, source: &Source, path: Option<&Value>, https: bool) -> Vec<Value> {
        if let Some(redirect) = &self.redirect {
            return vec![redirect.clone()];
        }
        let mut filters: Vec<Value> = self.cors.iter().cloned().collect();
        if !self.request_headers.is_empty() {
            filters.push(json!({
                "type": "RequestHeaderModifier",
                "requestHeaderModifier": {"set": self.request_headers},
            }));
        }
        let mut headers = self.response_headers.clone();
        if https {
            headers.extend(hsts(&source.keys));
        }
        if !headers.is_empty() {
            filters.push(json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": headers}}));
        }
        if path.is_some() || self.vhost.is_some() {
            let mut rewrite = Map::new();
            rewrite.extend(path.map(|path| ("path".to_owned(), path.clone())));
            rewrite.extend(
                self.vhost
                    .as_ref()
                    .map(|host| ("hostname".to_owned(), json!(host))),
            );
            filters.push(json!({"type": "URLRewrite", "urlRewrite": rewrite}));
        }
        filters.extend(self.mirror.clone());
        filters
    }

    /// True if responses over HTTPS have Strict-Transport-Security.
    pub(super) fn sends_hsts(&self, source: &Source) -> bool {
        self.redirect.is_none() && hsts(&source.keys).is_some()
    }

    /// The filters of a call of gRPC.
    pub(super) fn of_call(&self, source: &Source, https: bool) -> Vec<Value> {
        let mut filters = self.of_rule(source, None, https);
        filters.retain(|filter| {
            [
                "RequestHeaderModifier",
                "ResponseHeaderModifier",
                "RequestMirror",
            ]
            .iter()
            .any(|kind| filter["type"] == *kind)
        });
        filters
    }
}

/// Adds a DirectResponse, and returns the filter that refers to it.
fn answer(ingress: &Ingress, spec: &Value, output: &mut Output) -> Value {
    let kind = "DirectResponse";
    let name = output.name(kind, &ingress.namespace, &ingress.name);
    output.add(OURS, kind, (&ingress.namespace, &name), spec);
    json!({"type": "ExtensionRef", "extensionRef": {"group": "gatewright.io", "kind": kind, "name": name}})
}

fn cors(ingress: &Ingress) -> Option<Value> {
    if ingress.flag("enable-cors") != Some(true) {
        return None;
    }
    let age = ingress
        .annotation("cors-max-age")
        .and_then(|age| age.parse::<i64>().ok());
    let mut cors = json!({
        "allowOrigins": list(ingress, "cors-allow-origin", "*"),
        "allowMethods": list(ingress, "cors-allow-methods", METHODS),
        "allowHeaders": list(ingress, "cors-allow-headers", HEADERS),
        "allowCredentials": ingress.flag("cors-allow-credentials").unwrap_or(true),
        "maxAge": age.unwrap_or(MAX_AGE).max(1),
    });
    let exposed = list(ingress, "cors-expose-headers", "");
    if !exposed.is_empty() {
        cors["exposeHeaders"] = json!(exposed);
    }
    Some(json!({"type": "CORS", "cors": cors}))
}

/// The words of an annotation, or those without it.
fn list<'a>(ingress: &'a Ingress, name: &str, usual: &'a str) -> Vec<&'a str> {
    let words = ingress.annotation(name).unwrap_or(usual).split(',');
    words
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect()
}

/// The headers of a ConfigMap; those whose values have a variable of nginx are left out.
fn headers(source: &Source, name: &Name, tell: &mut dyn FnMut(Verdict, String)) -> Vec<Value> {
    let Some(data) = source.objects.data(name) else {
        let text = format!("add ConfigMap {}/{} to the input", name.0, name.1);
        tell(Verdict::NotCarriedOver, text);
        return Vec::new();
    };
    let (variables, plain): (Vec<_>, Vec<_>) =
        data.iter().partition(|(_, value)| value.contains('$'));
    if !variables.is_empty() {
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        let text = format!("{}: a value with a variable of nginx", names.join(", "));
        tell(Verdict::NotCarriedOver, text);
    }
    if plain.len() > HEADERS_OF_A_MAP {
        let text = format!("a filter has 16 headers at most: the first {HEADERS_OF_A_MAP} are set");
        tell(Verdict::NotCarriedOver, text);
    }
    plain
        .into_iter()
        .take(HEADERS_OF_A_MAP)
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}

fn request_headers(source: &Source, ingress: &Ingress, report: &mut Report) -> Vec<Value> {
    let mut set = global_headers(source, "proxy-set-headers", report);
    // As in nginx, it belongs to a rewrite.
    if let Some(prefix) = ingress.annotation("x-forwarded-prefix") {
        if ingress.annotation("rewrite-target").is_some() {
            set.push(json!({"name": "X-Forwarded-Prefix", "value": prefix}));
        } else {
            let text = "it belongs to rewrite-target, as in nginx";
            report.tell(ingress, "x-forwarded-prefix", Verdict::NoEffect, text);
        }
    }
    set
}

fn response_headers(source: &Source, ingress: &Ingress, report: &mut Report) -> Vec<Value> {
    let mut set = global_headers(source, "add-headers", report);
    if let Some(name) = ingress.annotation("custom-headers") {
        let name = name_in(&ingress.namespace, name);
        set.extend(headers(source, &name, &mut |verdict, text| {
            report.tell(ingress, "custom-headers", verdict, text);
        }));
    }
    set
}

/// The headers of the ConfigMap that a key of the controller's names.
fn global_headers(source: &Source, key: &str, report: &mut Report) -> Vec<Value> {
    let (Some(value), Some((document, of))) = (source.keys.get(key), &source.configmap) else {
        return Vec::new();
    };
    headers(source, &name_in(&of.0, value), &mut |verdict, text| {
        report.say(*document, key, verdict, text);
    })
}

fn hsts(keys: &Keys) -> Option<Value> {
    if !flag(keys, "hsts", true) {
        return None;
    }
    let age = keys
        .get("hsts-max-age")
        .map_or(HSTS_MAX_AGE, String::as_str);
    let mut value = format!("max-age={age}");
    if flag(keys, "hsts-include-subdomains", true) {
        value += "; includeSubDomains";
    }
    if flag(keys, "hsts-preload", false) {
        value += "; preload";
    }
    Some(json!({"name": "Strict-Transport-Security", "value": value}))
}

fn flag(keys: &Keys, name: &str, usual: bool) -> bool {
    let value = keys.get(name).and_then(|value| value.trim().parse().ok());
    value.unwrap_or(usual)
}

fn mirror(
    source: &Source,
    ingress: &Ingress,
    output: &mut Output,
    report: &mut Report,
) -> Option<Value> {
    let target = ingress.annotation("mirror-target")?;
    let Some((service, namespace, port)) = service_of(target) else {
        let text = "a target out of the cluster, or with another path: mirror to a Service";
        report.tell(ingress, "mirror-target", Verdict::NotCarriedOver, text);
        return None;
    };
    let port = match source.objects.port(&namespace, &service, &port) {
        Ok(port) => port,
        Err(why) => {
            report.tell(ingress, "mirror-target", Verdict::NotCarriedOver, why);
            return None;
        }
    };
    let mut backend = json!({"name": service, "port": port});
    if namespace != ingress.namespace {
        backend["namespace"] = json!(namespace);
        output.grant(Grant {
            from: (
                "gateway.networking.k8s.io",
                "HTTPRoute",
                ingress.namespace.clone(),
            ),
            to: ("Service", (namespace, service)),
        });
    }
    Some(json!({"type": "RequestMirror", "requestMirror": {"backendRef": backend}}))
}

/// The Service of a URL: name, namespace and port.
pub(super) fn service_of(url: &str) -> Option<(String, String, String)> {
    let url = url.trim_matches('"');
    let (scheme, rest) = url.split_once("://")?;
    let rest = rest.strip_suffix("$request_uri").unwrap_or(rest);
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = authority.split_once(':').unwrap_or((authority, "80"));
    let host = host.strip_suffix(".cluster.local").unwrap_or(host);
    let (service, namespace) = host.strip_suffix(".svc")?.split_once('.')?;
    // To a Service with TLS it would be sent in clear.
    let is_plain = scheme == "http" && port.chars().all(|letter| letter.is_ascii_digit());
    is_plain.then(|| (service.to_owned(), namespace.to_owned(), port.to_owned()))
}
