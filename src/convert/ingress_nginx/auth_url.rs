//! `auth-url` and what belongs to it: `externalAuth` of an AccessPolicy, if the URL is one of a Service
//! of the cluster.

use serde_json::{Value, json};

use super::filters::service_of;
use super::source::{Ingress, Source};
use crate::convert::Verdict;
use crate::convert::output::{Grant, Output};
use crate::convert::report::Report;

/// The request headers that the server gets beside `Authorization`. nginx sends all.
const HEADERS: [&str; 4] = ["Accept", "Cookie", "X-Forwarded-For", "X-Forwarded-Proto"];
/// The path at which oauth2-proxy is asked by nginx: who has logged in is answered 202 there.
const OAUTH2_PROXY: &str = "/oauth2/auth";
/// The note on the settings of a URL that is not carried over.
const CLOSED: &str = "part of auth-url, which closes the routes";
/// Why a URL is not carried over.
const FOREIGN: &str = "the URL is no http://NAME.NAMESPACE.svc.cluster.local[:PORT]/PATH";
/// The settings of `auth-url` about which nothing can be said without it.
const PARTS: [&str; 7] = [
    "auth-always-set-cookie",
    "auth-method",
    "auth-proxy-set-headers",
    "auth-request-redirect",
    "auth-response-headers",
    "auth-signin",
    "auth-signin-redirect-param",
];

/// The authorization server of an Ingress; `None` if the routes are to be closed.
pub(super) fn server(
    source: &Source,
    ingress: &Ingress,
    url: &str,
    output: &mut Output,
    report: &mut Report,
) -> Option<Value> {
    match backend(source, ingress, url) {
        Ok((backend, path)) => {
            if let Some(namespace) = backend["namespace"].as_str() {
                let name = backend["name"].as_str().unwrap_or_default();
                output.grant(Grant {
                    from: ("gatewright.io", "AccessPolicy", ingress.namespace.clone()),
                    to: ("Service", (namespace.to_owned(), name.to_owned())),
                });
            }
            Some(asked(ingress, backend, &path, report))
        }
        Err(why) => {
            let text = format!(
                "{why}, so the routes are closed by an AccessPolicy: use its externalAuth with a Service of the server, or \
                 jwt or oidc, and delete the policy that closes"
            );
            report.tell(ingress, "auth-url", Verdict::NotCarriedOver, text);
            for name in PARTS {
                report.tell(ingress, name, Verdict::NotCarriedOver, CLOSED);
            }
            None
        }
    }
}

/// The Service of a URL with its port, and the path.
fn backend(source: &Source, ingress: &Ingress, url: &str) -> Result<(Value, String), String> {
    let (authority, path) = match url.strip_prefix("http://") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => return Err(FOREIGN.to_owned()),
    };
    if path.contains(['?', '#', '$']) {
        return Err("the URL has a query or variables of nginx".to_owned());
    }
    let (service, namespace, port) = service_of(&format!("http://{authority}")).ok_or(FOREIGN)?;
    let port = source.objects.port(&namespace, &service, &port)?;
    let mut backend = json!({"name": service, "port": port});
    if namespace != ingress.namespace {
        backend["namespace"] = json!(namespace);
    }
    let path = if path.is_empty() { "/" } else { path };
    Ok((backend, path.to_owned()))
}

fn asked(ingress: &Ingress, backend: Value, path: &str, report: &mut Report) -> Value {
    let is_oauth2_proxy = path == OAUTH2_PROXY;
    let mut http = json!({"allowedHeaders": HEADERS, "clientResponseHeaders": ["Set-Cookie"]});
    http["pathType"] = json!("Exact");
    let text = if is_oauth2_proxy {
        http["path"] = json!("/");
        "AccessPolicy, externalAuth, which 200 alone permits: oauth2-proxy answers 202 at /oauth2/auth, so it is asked for /: \
         run it with --reverse-proxy, --skip-provider-button and --upstream=static://200, else nobody passes"
    } else {
        http["path"] = json!(path);
        "AccessPolicy, externalAuth: 200 alone permits a request; the server gets its host and method, and of its headers \
         Authorization and those of http.allowedHeaders"
    };
    report.tell(ingress, "auth-url", Verdict::Differs, text);
    let always = "http.clientResponseHeaders: whatever the backend answers";
    report.tell(
        ingress,
        "auth-always-set-cookie",
        Verdict::CarriedOver,
        always,
    );
    let names: Vec<&str> = ingress
        .annotation("auth-response-headers")
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    if !names.is_empty() {
        http["allowedResponseHeaders"] = json!(names);
        let text = "http.allowedResponseHeaders";
        report.tell(ingress, "auth-response-headers", Verdict::CarriedOver, text);
    }
    sign_in(ingress, is_oauth2_proxy, report);
    json!({"protocol": "HTTP", "backendRef": backend, "http": http})
}

/// Notes on the redirect of unauthenticated clients.
fn sign_in(ingress: &Ingress, is_oauth2_proxy: bool, report: &mut Report) {
    let (verdict, text) = if is_oauth2_proxy {
        let text =
            "oauth2-proxy redirects browsers by itself, and back to the page that they asked for";
        (Verdict::Differs, text)
    } else {
        let text = "clients get the answer of the server, its 401 as well: let it redirect browsers by itself (302)";
        (Verdict::NotCarriedOver, text)
    };
    for name in [
        "auth-request-redirect",
        "auth-signin",
        "auth-signin-redirect-param",
    ] {
        report.tell(ingress, name, verdict, text);
    }
}
