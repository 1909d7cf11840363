//! Ingresses with annotations of ingress-nginx.
//!
//! In: Ingresses, IngressClasses, the controller's ConfigMap and command line, the ConfigMaps of
//! TCP and UDP, and the Services, Secrets and ConfigMaps that these name. Out: objects, and what
//! becomes of each annotation ([`ANNOTATIONS`]) and key ([`KEYS`]). The hosts are made as the
//! controller makes them (`server`), then routes, policies and Gateways of them.

mod access;
mod annotations;
mod arguments;
mod auth_url;
mod canary;
mod filters;
mod gateway;
mod https;
mod keys;
mod listeners;
mod paths;
mod protocol;
mod redirect;
mod report;
mod rewrite;
mod routes;
mod rules;
mod server;
mod source;
mod streams;
mod timeouts;
mod traffic;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use annotations::ANNOTATIONS;
pub use keys::KEYS;

use self::listeners::{Listeners, Parent};
use self::routes::Hosts;
use self::server::{Server, servers};
use self::source::{Ingress, Source};
use super::output::{GATEWAY_API, Output};
use super::report::Report;
use super::{Conversion, Document, Options, Verdict};

/// Settings of a redirect, of which the others have no effect: it comes before them.
const REDIRECT: [&str; 11] = [
    "auth-tls-secret",
    "auth-tls-verify-client",
    "permanent-redirect",
    "permanent-redirect-code",
    "temporal-redirect",
    "temporal-redirect-code",
    "from-to-www-redirect",
    "server-alias",
    "app-root",
    "ssl-passthrough",
    "relative-redirects",
];

/// What nginx does without a setting, and Envoy does not.
const DEFAULTS: &str = "where no setting says otherwise, bodies of requests have no limit (nginx: 1m); a stream without bytes ends after \
                        300 s (60 s); no request is sent to another endpoint after an error (3 tries); backends get X-Forwarded-For, \
                        X-Forwarded-Proto and X-Request-ID, and none of X-Real-IP, X-Forwarded-Host, -Port and -Scheme, X-Scheme and \
                        X-Original-*";

/// Converts the objects of ingress-nginx.
pub(super) fn convert(documents: &[Document], options: &Options) -> Conversion {
    let mut report = Report::default();
    let mut output = Output::default();
    let source = Source::read(documents, options, &mut report);
    let servers = servers(&source, &mut report);
    let main = gateway::name(&source, options);
    let mut listeners = Listeners::new(main, gateway::tls_options(&source.keys));
    for (host, server) in &servers {
        listeners.host(host, server, &source.ingresses, &mut output);
    }
    let certificate = source.arguments.certificate.as_ref();
    let catch_all = certificate.map(|secret| listeners.catch_all(secret, &mut output));
    let streams = streams::read(&source, &mut listeners, &mut report);
    let default = default_backend(&source, &mut listeners, catch_all.as_ref(), &mut report);
    if let Some(ingress) = source.ingresses.first() {
        report.say(
            ingress.document,
            "defaults of ingress-nginx",
            Verdict::Differs,
            DEFAULTS,
        );
    }
    let hosts = Hosts {
        source: &source,
        servers: &servers,
        listeners: &listeners,
        catch_all: catch_all.as_ref(),
    };
    for (index, ingress) in source.ingresses.iter().enumerate() {
        let before = output.len();
        if !ingress.is_canary() {
            of_ingress(&hosts, index, &mut output, &mut report);
        }
        report.annotations(ingress);
        output.comment(before, &documents[ingress.document].comments);
    }
    streams::write(&streams, &mut output);
    if let Some((namespace, spec)) = default {
        let name = output.name("HTTPRoute", &namespace, "default-backend");
        output.add(GATEWAY_API, "HTTPRoute", (&namespace, &name), &spec);
    }
    let gateways = output.len();
    gateway::write(
        &source,
        options,
        &streams,
        &mut listeners,
        &mut output,
        &mut report,
    );
    if let Some((document, _)) = &source.configmap {
        report.keys(*document, &source.keys);
    }
    Conversion {
        objects: output.finish(gateways),
        notes: report.notes(documents),
    }
}

/// Writes the routes and the policies of an Ingress.
fn of_ingress(hosts: &Hosts<'_>, index: usize, output: &mut Output, report: &mut Report) {
    let ingress = &hosts.source.ingresses[index];
    let targets = hosts.write(index, output, report);
    if redirects(ingress) {
        for name in ingress.annotations.keys() {
            if !REDIRECT.contains(&name.as_str()) {
                let text = "the redirect comes before it";
                report.tell(ingress, name, Verdict::NoEffect, text);
            }
        }
        return;
    }
    access::access(hosts.source, ingress, &targets, output, report);
    traffic::traffic(ingress, &targets, output, report);
    let services = services(hosts.servers, index);
    traffic::of_services(ingress, &services, output, report);
    protocol::backend_tls(hosts.source, ingress, &services, output, report);
}

/// True for an Ingress whose requests are all redirected.
fn redirects(ingress: &Ingress) -> bool {
    ["temporal-redirect", "permanent-redirect"]
        .iter()
        .any(|name| ingress.annotation(name).is_some_and(|url| !url.is_empty()))
}

/// The Services of an Ingress, each once.
fn services(servers: &BTreeMap<String, Server>, index: usize) -> Vec<&str> {
    let mut services: Vec<&str> = servers
        .values()
        .flat_map(|server| &server.locations)
        .filter(|location| location.ingress == index)
        .map(|location| location.backend.service.as_str())
        .collect();
    services.sort_unstable();
    services.dedup();
    services
}

/// The route to the Service of what no rule matches: its namespace and spec.
fn default_backend(
    source: &Source,
    listeners: &mut Listeners,
    catch_all: Option<&Parent>,
    report: &mut Report,
) -> Option<(String, Value)> {
    let (document, (namespace, service)) = source.arguments.backend.as_ref()?;
    let setting = arguments::BACKEND;
    let Some(port) = source.objects.first_port(namespace, service) else {
        let text = format!("add Service {namespace}/{service} to the input");
        report.say(*document, setting, Verdict::NotCarriedOver, text);
        return None;
    };
    let text =
        "HTTPRoute for hosts that no Ingress has; a path that no Ingress has is answered 404";
    report.say(*document, setting, Verdict::Differs, text);
    let parent = listeners.http_of_all(namespace);
    let parents: Vec<Value> = [Some(&parent), catch_all]
        .into_iter()
        .flatten()
        .map(|parent| parent.reference(namespace))
        .collect();
    let spec = json!({
        "parentRefs": parents,
        "rules": [{"backendRefs": [{"name": service, "port": port}]}],
    });
    Some((namespace.clone(), spec))
}
