//! The hosts of Ingresses with their paths, as ingress-nginx makes servers and locations of them.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{IngressBackend, IngressTLS};

use super::paths::{Path, PathType};
use super::source::{Ingress, Source};
use crate::convert::Verdict;
use crate::convert::document::Name;
use crate::convert::report::Report;

/// The key of the host that has no name.
pub(super) const CATCH_ALL: &str = "";

/// A host.
#[derive(Default)]
pub(super) struct Server {
    /// Other names of it.
    pub(super) aliases: Vec<String>,
    /// The Secret with its certificate.
    pub(super) certificate: Option<Name>,
    /// True if TLS goes through to the backend.
    pub(super) passthrough: bool,
    /// The Secret with the CA of client certificates.
    pub(super) client_ca: Option<Name>,
    /// The name from which clients are redirected to the host.
    pub(super) redirected: Option<String>,
    /// Its paths: those that come first in nginx first.
    pub(super) locations: Vec<Location>,
}

impl Server {
    /// Its names; none of the host without a name.
    pub(super) fn names<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a str> {
        let host = Some(host).filter(|host| *host != CATCH_ALL);
        host.into_iter()
            .chain(self.aliases.iter().map(String::as_str))
    }

    /// True if one of its Ingresses makes nginx read all of its paths as regular expressions.
    pub(super) fn is_regex(&self, ingresses: &[Ingress]) -> bool {
        self.locations.iter().any(|location| {
            let ingress = &ingresses[location.ingress];
            let target = ingress.annotation("rewrite-target").unwrap_or_default();
            let rewrites = !target.is_empty() && target != location.path.text;
            rewrites || ingress.flag("use-regex") == Some(true)
        })
    }
}

/// A path of a host.
#[derive(Clone, PartialEq)]
pub(super) struct Location {
    /// The index of its Ingress.
    pub(super) ingress: usize,
    pub(super) path: Path,
    pub(super) backend: Backend,
    /// The index of the Ingress with another backend of the same path, and that backend.
    pub(super) canary: Option<(usize, Backend)>,
}

/// A Service's port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Backend {
    pub(super) service: String,
    /// None if the number is not known.
    pub(super) port: Option<i32>,
}

/// Makes the hosts of the Ingresses.
pub(super) fn servers(source: &Source, report: &mut Report) -> BTreeMap<String, Server> {
    let mut servers: BTreeMap<String, Server> = BTreeMap::new();
    let all = source.ingresses.iter().enumerate();
    for (index, ingress) in all.filter(|(_, ingress)| !ingress.is_canary()) {
        default_backend(source, index, ingress, &mut servers, report);
        for (host, path, backend) in paths(source, ingress, report) {
            let server = servers.entry(host.clone()).or_default();
            let setting = format!("path {host}{}", path.text);
            if server.locations.iter().any(|other| other.path == path) {
                let text = "another path of the host is the same, and comes first";
                report.say(ingress.document, &setting, Verdict::NoEffect, text);
                continue;
            }
            server.locations.push(Location {
                ingress: index,
                path,
                backend,
                canary: None,
            });
        }
        for host in hosts(ingress) {
            let server = servers.entry(host.to_owned()).or_default();
            settings(source, ingress, host, server, report);
        }
    }
    let names: Vec<String> = servers.keys().cloned().collect();
    for (host, server) in &mut servers {
        server
            .aliases
            .retain(|alias| alias != host && !names.contains(alias));
        server.redirected = server
            .redirected
            .take()
            .filter(|name| !names.contains(name));
    }
    canaries(source, &mut servers, report);
    for server in servers.values_mut() {
        // nginx takes the longest, and of regular expressions the first: they are in this order.
        server.locations.sort_by(|a, b| {
            let [a, b] = [a, b].map(|location| &location.path.text);
            b.len().cmp(&a.len()).then_with(|| b.cmp(a))
        });
    }
    servers
}

/// The hosts of an Ingress, each once.
pub(super) fn hosts(ingress: &Ingress) -> Vec<&str> {
    let mut hosts = Vec::new();
    for rule in ingress.spec.rules.iter().flatten() {
        let host = rule.host.as_deref().unwrap_or(CATCH_ALL);
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

/// The backend of what no path of an Ingress matches.
fn default_backend(
    source: &Source,
    index: usize,
    ingress: &Ingress,
    servers: &mut BTreeMap<String, Server>,
    report: &mut Report,
) {
    let Some(object) = &ingress.spec.default_backend else {
        return;
    };
    let setting = "spec.defaultBackend";
    let Some(backend) = backend(source, ingress, object, setting, report) else {
        return;
    };
    report.say(
        ingress.document,
        setting,
        Verdict::CarriedOver,
        "rule for the path /",
    );
    let mut hosts = hosts(ingress);
    if hosts.is_empty() {
        hosts.push(CATCH_ALL);
    }
    for host in hosts {
        let has_root = ingress
            .spec
            .rules
            .iter()
            .flatten()
            .filter(|rule| rule.host.as_deref().unwrap_or(CATCH_ALL) == host)
            .flat_map(|rule| rule.http.iter().flat_map(|http| &http.paths))
            .any(|path| path.path.as_deref().unwrap_or("/") == "/");
        let server = servers.entry(host.to_owned()).or_default();
        let root = Path::root();
        if !has_root && !server.locations.iter().any(|other| other.path == root) {
            server.locations.push(Location {
                ingress: index,
                path: root,
                backend: backend.clone(),
                canary: None,
            });
        }
    }
}

/// The paths of an Ingress: host, path, backend.
fn paths(source: &Source, ingress: &Ingress, report: &mut Report) -> Vec<(String, Path, Backend)> {
    let mut paths = Vec::new();
    for rule in ingress.spec.rules.iter().flatten() {
        let host = rule.host.as_deref().unwrap_or(CATCH_ALL);
        for http in rule.http.iter().flat_map(|http| &http.paths) {
            let text = http.path.as_deref().filter(|path| !path.is_empty());
            let path = Path {
                text: text.unwrap_or("/").to_owned(),
                kind: PathType::read(&http.path_type),
            };
            let setting = format!("path {host}{}", path.text);
            if let Some(backend) = backend(source, ingress, &http.backend, &setting, report) {
                paths.push((host.to_owned(), path, backend));
            }
        }
    }
    paths
}

fn backend(
    source: &Source,
    ingress: &Ingress,
    object: &IngressBackend,
    setting: &str,
    report: &mut Report,
) -> Option<Backend> {
    let Some(service) = &object.service else {
        let text = "a backend that is no Service: ingress-nginx has none either";
        report.say(ingress.document, setting, Verdict::NotCarriedOver, text);
        return None;
    };
    let port = service.port.clone().unwrap_or_default();
    let text = match (port.number, port.name) {
        (Some(number), _) => number.to_string(),
        (None, name) => name.unwrap_or_default(),
    };
    let port = source
        .objects
        .port(&ingress.namespace, &service.name, &text);
    if let Err(why) = &port {
        report.say(ingress.document, setting, Verdict::NotCarriedOver, why);
    }
    Some(Backend {
        service: service.name.clone(),
        port: port.ok(),
    })
}

/// The settings of an Ingress that are about a host.
fn settings(
    source: &Source,
    ingress: &Ingress,
    host: &str,
    server: &mut Server,
    report: &mut Report,
) {
    if server.aliases.is_empty() {
        server.aliases = aliases(ingress, report);
    }
    if ingress.flag("ssl-passthrough") == Some(true) {
        if source.arguments.passes_tls == Some(false) {
            let text =
                "the controller has no --enable-ssl-passthrough: it has no effect there either";
            report.tell(ingress, "ssl-passthrough", Verdict::NoEffect, text);
        } else {
            server.passthrough = true;
        }
    }
    if ingress.flag("from-to-www-redirect") == Some(true) && host != CATCH_ALL {
        server.redirected = Some(match host.strip_prefix("www.") {
            Some(bare) => bare.to_owned(),
            None => format!("www.{host}"),
        });
    }
    if let Some(secret) = ingress.annotation("auth-tls-secret")
        && ingress.annotation("auth-tls-verify-client") != Some("off")
    {
        server.client_ca = Some(super::source::name_in(&ingress.namespace, secret));
    }
    if server.certificate.is_none() {
        server.certificate = certificate(source, ingress, host, report);
    }
}

/// The names of `server-alias`.
fn aliases(ingress: &Ingress, report: &mut Report) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for alias in ingress
        .annotation("server-alias")
        .unwrap_or_default()
        .split(',')
    {
        let alias = alias.trim();
        if alias.starts_with('~') {
            let text = "a regular expression cannot be a hostname";
            report.tell(ingress, "server-alias", Verdict::NotCarriedOver, text);
        } else if !alias.is_empty() && !names.iter().any(|other| other == alias) {
            names.push(alias.to_owned());
        }
    }
    names
}

/// The Secret with the certificate of a host.
fn certificate(
    source: &Source,
    ingress: &Ingress,
    host: &str,
    report: &mut Report,
) -> Option<Name> {
    let tls = tls_of(ingress, host)?;
    let secret = match tls.secret_name.as_deref().filter(|name| !name.is_empty()) {
        Some(secret) => Some((ingress.namespace.clone(), secret.to_owned())),
        None => source.arguments.certificate.clone(),
    };
    let (verdict, text) = match &secret {
        Some((_, secret)) => (
            Verdict::CarriedOver,
            format!("HTTPS listener with Secret {secret}"),
        ),
        None => (
            Verdict::NotCarriedOver,
            "it has no secretName, and no --default-ssl-certificate is in the input: name a Secret, or an issuer in tls.options \
             of a listener"
                .to_owned(),
        ),
    };
    report.say(ingress.document, &format!("spec.tls {host}"), verdict, text);
    secret
}

/// The part of `spec.tls` that is about a host.
fn tls_of<'a>(ingress: &'a Ingress, host: &str) -> Option<&'a IngressTLS> {
    let mut parts = ingress.spec.tls.iter().flatten();
    parts
        .clone()
        .find(|part| part.hosts.iter().flatten().any(|name| name == host))
        .or_else(|| {
            let mut parts = parts.clone();
            parts.find(|part| part.hosts.iter().flatten().any(|name| covers(name, host)))
        })
        .or_else(|| parts.find(|part| part.hosts.iter().flatten().next().is_none()))
}

/// True if a wildcard has the host.
fn covers(wildcard: &str, host: &str) -> bool {
    let (_, parent) = host.split_once('.').unwrap_or_default();
    wildcard.strip_prefix("*.") == Some(parent)
}

/// Adds the backends of canaries to the paths that have the same host and path.
fn canaries(source: &Source, servers: &mut BTreeMap<String, Server>, report: &mut Report) {
    let canaries = source.ingresses.iter().enumerate();
    for (index, ingress) in canaries.filter(|(_, ingress)| ingress.is_canary()) {
        for (host, path, backend) in paths(source, ingress, report) {
            let setting = format!("path {host}{}", path.text);
            let main = servers
                .get_mut(&host)
                .and_then(|server| server.locations.iter_mut().find(|of| of.path == path));
            let (verdict, text) = match main {
                None => {
                    let text = "no other Ingress has the path: ingress-nginx leaves the canary out";
                    for name in ingress.annotations.keys() {
                        report.tell(ingress, name, Verdict::NoEffect, text);
                    }
                    (Verdict::NoEffect, text)
                }
                Some(main) if main.canary.is_some() => (
                    Verdict::NoEffect,
                    "ingress-nginx takes one canary of a path",
                ),
                Some(main) => {
                    main.canary = Some((index, backend));
                    (Verdict::CarriedOver, "beside the main backend")
                }
            };
            report.say(ingress.document, &setting, verdict, text);
        }
        for name in ingress.annotations.keys() {
            if !name.starts_with("canary") && name != "affinity-canary-behavior" {
                let text = "ingress-nginx ignores it on a canary";
                report.say(ingress.document, name, Verdict::NoEffect, text);
            }
        }
    }
}
