//! The routes of an Ingress: one for hosts with the same rules, and one that redirects plain HTTP.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::filters::Filters;
use super::listeners::{Listeners, Parent, Parents};
use super::protocol::Protocol;
use super::redirect::app_root;
use super::server::{CATCH_ALL, Location, Server, hosts};
use super::source::{Ingress, Source};
use crate::convert::Verdict;
use crate::convert::output::{GATEWAY_API, Output};
use crate::convert::report::Report;

/// The most rules of a route.
const RULES: usize = 16;
/// The most hostnames of a route; each has two parents, of which there may be 32.
const HOSTNAMES: usize = 16;
/// Settings that rules for calls of gRPC do not have.
const NOT_OF_CALLS: [&str; 10] = [
    "app-root",
    "enable-cors",
    "permanent-redirect",
    "proxy-next-upstream",
    "proxy-body-size",
    "proxy-read-timeout",
    "proxy-send-timeout",
    "rewrite-target",
    "temporal-redirect",
    "upstream-vhost",
];

/// What routes are made of.
pub(super) struct Hosts<'a> {
    pub(super) source: &'a Source,
    pub(super) servers: &'a BTreeMap<String, Server>,
    pub(super) listeners: &'a Listeners,
    /// The listener of HTTPS for hosts without a certificate.
    pub(super) catch_all: Option<&'a Parent>,
}

/// How the routes of an Ingress are served at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// On HTTP, and on HTTPS if the host has that.
    Both,
    /// On HTTPS; HTTP redirects there. True if all Ingresses of the host do so.
    Redirected { all: bool },
    /// On both; a proxy in front says by a header which requests are redirected.
    ByHeader,
}

/// A route before it has a name.
#[derive(PartialEq)]
pub(super) struct Plan {
    kind: &'static str,
    /// The rules of each path.
    rules: Vec<Vec<Planned>>,
    /// The matches of its paths, for a redirect.
    pub(super) matches: Vec<Value>,
    pub(super) serving: Serving,
}

/// A rule, and what a TrafficPolicy makes of the path of its requests.
#[derive(Clone, PartialEq)]
struct Planned {
    rule: Value,
    rewrite: Option<Value>,
}

impl From<Value> for Planned {
    fn from(rule: Value) -> Self {
        Self {
            rule,
            rewrite: None,
        }
    }
}

impl Hosts<'_> {
    /// Writes the routes of an Ingress. Returns them as targets of policies.
    pub(super) fn write(
        &self,
        index: usize,
        output: &mut Output,
        report: &mut Report,
    ) -> Vec<Value> {
        let ingress = &self.source.ingresses[index];
        let filters = Filters::read(self.source, ingress, output, report);
        let mut own = hosts(ingress);
        if own.is_empty() {
            own.push(CATCH_ALL);
        }
        let mut plans: Vec<(Plan, Vec<&str>)> = Vec::new();
        for host in own {
            let Some(server) = self.servers.get(host) else {
                continue;
            };
            let locations: Vec<&Location> = server
                .locations
                .iter()
                .filter(|location| location.ingress == index)
                .collect();
            if locations.is_empty() {
                continue;
            }
            let plan = self.plan(host, server, &locations, &filters, report);
            match plans.iter_mut().find(|(other, _)| *other == plan) {
                Some((_, hosts)) => hosts.push(host),
                None => plans.push((plan, vec![host])),
            }
        }
        let mut targets = Vec::new();
        for (plan, hosts) in plans {
            self.route(index, &plan, &hosts, output, &mut targets);
        }
        self.passthrough(index, output, report);
        self.other_names(ingress, output);
        targets
    }

    fn plan(
        &self,
        host: &str,
        server: &Server,
        locations: &[&Location],
        filters: &Filters,
        report: &mut Report,
    ) -> Plan {
        let ingress = &self.source.ingresses[locations[0].ingress];
        let serving = self.serving(host, server, locations[0].ingress, report);
        if host.starts_with("*.") {
            let text = "the hostname has names with several labels before it too";
            report.say(
                ingress.document,
                &format!("host {host}"),
                Verdict::Differs,
                text,
            );
        }
        let is_secure = matches!(serving, Serving::Redirected { .. });
        if server.certificate.is_some() && !is_secure && filters.sends_hsts(self.source) {
            let text = format!("{host} is served on plain HTTP too: no Strict-Transport-Security");
            report.say(ingress.document, "hsts", Verdict::NotCarriedOver, text);
        }
        let protocol = Protocol::read(ingress);
        let mut rules = Vec::new();
        let mut matches = Vec::new();
        let is_call = protocol.is_grpc();
        if is_call {
            for name in NOT_OF_CALLS {
                let text = "GRPCRoutes have no such field";
                report.tell(ingress, name, Verdict::NotCarriedOver, text);
            }
        }
        if let Some(rule) = app_root(ingress)
            && !is_call
        {
            matches.push(rule["matches"][0].clone());
            rules.push(vec![Planned::from(rule)]);
        }
        for location in locations {
            let setting = format!("path {host}{}", location.path.text);
            let of_location = if is_call {
                self.calls(server, location, filters, is_secure)
            } else {
                self.rules(server, location, filters, is_secure, report)
            };
            match of_location {
                Ok(made) => {
                    matches.extend(matches_of(location, &made.rules));
                    rules.push(planned(made.rules, made.rewrite, &rules));
                    report.say(ingress.document, &setting, made.verdict, made.text);
                }
                Err(why) => {
                    let text =
                        format!("{why}: its requests have no rule, or that of a shorter path");
                    report.say(ingress.document, &setting, Verdict::NotCarriedOver, text);
                }
            }
        }
        let kind = if is_call { "GRPCRoute" } else { "HTTPRoute" };
        Plan {
            kind,
            rules,
            matches,
            serving,
        }
    }

    fn serving(&self, host: &str, server: &Server, index: usize, report: &mut Report) -> Serving {
        let has_tls = server.certificate.is_some() && !server.passthrough;
        if !redirects(&self.source.ingresses[index], has_tls) {
            return Serving::Both;
        }
        if self.is_behind_proxy() {
            return Serving::ByHeader;
        }
        if !has_tls && self.catch_all.is_none() && !server.passthrough {
            let text = format!(
                "{host} has no certificate, so it is served on plain HTTP: name a Secret in spec.tls"
            );
            let ingress = &self.source.ingresses[index];
            report.tell(ingress, "force-ssl-redirect", Verdict::NotCarriedOver, text);
            return Serving::Both;
        }
        let mut ingresses = server
            .locations
            .iter()
            .map(|of| &self.source.ingresses[of.ingress]);
        let all = ingresses.all(|ingress| redirects(ingress, has_tls));
        Serving::Redirected { all }
    }

    /// True if proxies in front end TLS.
    fn is_behind_proxy(&self) -> bool {
        let key = self.source.keys.get("use-forwarded-headers");
        key.is_some_and(|value| value == "true")
    }

    /// Writes the routes of hosts with the same rules.
    fn route(
        &self,
        index: usize,
        plan: &Plan,
        hosts: &[&str],
        output: &mut Output,
        targets: &mut Vec<Value>,
    ) {
        let ingress = &self.source.ingresses[index];
        let is_secure = matches!(plan.serving, Serving::Redirected { .. });
        for names in self.names(hosts).chunks(HOSTNAMES) {
            for rules in parts(&plan.rules) {
                let parents = self.references(names, &ingress.namespace, !is_secure, true);
                let name = (ingress.namespace.as_str(), ingress.name.as_str());
                let values: Vec<Value> = rules.iter().map(|of| of.rule.clone()).collect();
                if let Some(name) = routed(plan.kind, name, names, parents, &values, output) {
                    let target = json!({
                        "group": "gateway.networking.k8s.io", "kind": plan.kind, "name": name,
                    });
                    rewrites(ingress, &target, &rules, output);
                    targets.push(target);
                }
            }
        }
        let Some((rules, hosts)) = self.redirects(index, plan, hosts) else {
            return;
        };
        for names in self.names(&hosts).chunks(HOSTNAMES) {
            for rule in &rules {
                let parents = self.references(names, &ingress.namespace, true, false);
                let wanted = format!("{}-https", ingress.name);
                let name = (ingress.namespace.as_str(), wanted.as_str());
                let rules = std::slice::from_ref(rule);
                routed("HTTPRoute", name, names, parents, rules, output);
            }
        }
    }

    /// The names of hosts; of the one without a name the mark.
    fn names<'a>(&'a self, hosts: &[&'a str]) -> Vec<&'a str> {
        let names = hosts.iter().flat_map(|host| match *host {
            CATCH_ALL => vec![CATCH_ALL],
            host => self.servers[host].names(host).collect(),
        });
        names.collect()
    }

    /// The listeners of names as parents of a route.
    fn references(&self, names: &[&str], namespace: &str, http: bool, https: bool) -> Vec<Value> {
        let parents: Vec<Parents> = names.iter().map(|name| self.parents(name)).collect();
        let of_http = parents
            .iter()
            .filter(|_| http)
            .filter_map(|of| of.http.as_ref());
        let of_https = parents
            .iter()
            .filter(|_| https)
            .filter_map(|of| of.https.as_ref());
        let mut references: Vec<Value> = of_http
            .chain(of_https)
            .map(|parent| parent.reference(namespace))
            .collect();
        references.dedup();
        references
    }

    /// The routes of hosts whose TLS goes through to the backend of the path `/`.
    fn passthrough(&self, index: usize, output: &mut Output, report: &mut Report) {
        let ingress = &self.source.ingresses[index];
        for host in hosts(ingress).into_iter().filter(|host| *host != CATCH_ALL) {
            let Some(server) = self.servers.get(host).filter(|server| server.passthrough) else {
                continue;
            };
            let root = server.locations.iter().find(|of| of.path.text == "/");
            let Some(root) = root.filter(|of| of.ingress == index && of.backend.port.is_some())
            else {
                if !server.locations.iter().any(|of| of.path.text == "/") {
                    let text = format!("{host} has no path /, whose backend would end TLS");
                    report.tell(ingress, "ssl-passthrough", Verdict::NotCarriedOver, text);
                }
                continue;
            };
            let names: Vec<&str> = server.names(host).collect();
            let parents: Vec<Value> = names
                .iter()
                .filter_map(|name| self.listeners.parents(name).https)
                .map(|parent| parent.reference(&ingress.namespace))
                .collect();
            let backend = json!({"name": root.backend.service, "port": root.backend.port});
            let spec = json!({
                "parentRefs": parents, "hostnames": names, "rules": [{"backendRefs": [backend]}],
            });
            let name = output.name("TLSRoute", &ingress.namespace, &ingress.name);
            output.add(GATEWAY_API, "TLSRoute", (&ingress.namespace, &name), &spec);
        }
    }

    /// The listeners of a name. A host without a certificate has that of all names.
    fn parents(&self, name: &str) -> Parents {
        let mut parents = self.listeners.parents(name);
        let server = self.servers.get(name).or_else(|| {
            let mut servers = self.servers.values();
            servers.find(|server| server.aliases.iter().any(|alias| alias == name))
        });
        // A passthrough listener serves no routes of HTTP, and that of all names asks for no
        // certificates of clients.
        if server.is_some_and(|server| server.passthrough) {
            parents.https = None;
        } else if parents.https.is_none() && server.is_none_or(|of| of.client_ca.is_none()) {
            parents.https = self.catch_all.cloned();
        }
        parents
    }
}

/// The rules of a path behind others. One with a policy has a name, by which that finds it.
fn planned(rules: Vec<Value>, rewrite: Option<Value>, others: &[Vec<Planned>]) -> Vec<Planned> {
    let named = others.iter().flatten().filter(|of| of.rewrite.is_some());
    let first = named.count() + 1;
    let rules = rules.into_iter().zip(first..).map(|(mut rule, number)| {
        if rewrite.is_some() {
            rule["name"] = json!(format!("rewrite-{number}"));
        }
        Planned {
            rule,
            rewrite: rewrite.clone(),
        }
    });
    rules.collect()
}

/// Writes the policies that rewrite the paths of a route, one for the rules that are alike.
fn rewrites(ingress: &Ingress, route: &Value, rules: &[Planned], output: &mut Output) {
    let mut all: Vec<(&Value, Vec<Value>)> = Vec::new();
    for Planned { rule, rewrite } in rules {
        let Some(rewrite) = rewrite else { continue };
        let mut target = route.clone();
        target["sectionName"] = rule["name"].clone();
        match all.iter_mut().find(|(other, _)| *other == rewrite) {
            Some((_, targets)) => targets.push(target),
            None => all.push((rewrite, vec![target])),
        }
    }
    let name = format!("{}-rewrite", ingress.name);
    for (rewrite, targets) in all {
        let spec = json!({"rewrite": {"path": rewrite}});
        output.policy(
            "TrafficPolicy",
            (&ingress.namespace, &name),
            &targets,
            &spec,
        );
    }
}

/// The rules of paths, as many as a route may have in each part. Those of a path stay together: of
/// equal matches the first counts.
fn parts(rules: &[Vec<Planned>]) -> Vec<Vec<Planned>> {
    let mut parts: Vec<Vec<Planned>> = Vec::new();
    for of_path in rules {
        match parts.last_mut() {
            Some(part) if part.len() + of_path.len() <= RULES => part.extend(of_path.clone()),
            _ => parts.push(of_path.clone()),
        }
    }
    parts
}

/// Writes a route, if it has parents. Returns its name.
fn routed(
    kind: &str,
    (namespace, wanted): (&str, &str),
    names: &[&str],
    parents: Vec<Value>,
    rules: &[Value],
    output: &mut Output,
) -> Option<String> {
    if parents.is_empty() {
        return None;
    }
    let mut spec = json!({"parentRefs": parents, "rules": rules});
    if !names.contains(&CATCH_ALL) {
        spec["hostnames"] = json!(names);
    }
    let name = output.name(kind, namespace, wanted);
    output.add(GATEWAY_API, kind, (namespace, &name), &spec);
    Some(name)
}

/// The matches of a path's rules for HTTP; of calls of gRPC that of the path.
fn matches_of(location: &Location, rules: &[Value]) -> Vec<Value> {
    let of_http = rules.iter().map(|rule| &rule["matches"][0]);
    let of_http: Vec<Value> = of_http
        .filter(|of| !of["path"].is_null())
        .cloned()
        .collect();
    if !of_http.is_empty() {
        return of_http;
    }
    let path = location.path.text.trim_end_matches("(.*)");
    vec![json!({"path": {"type": "PathPrefix", "value": path}})]
}

/// True if plain HTTP redirects to HTTPS.
fn redirects(ingress: &Ingress, has_tls: bool) -> bool {
    let own = ["temporal-redirect", "permanent-redirect"];
    let is_forced = ingress.flag("force-ssl-redirect") == Some(true);
    let is_usual = ingress.flag("ssl-redirect").unwrap_or(true) && has_tls;
    (is_forced || is_usual) && !own.iter().any(|name| ingress.annotation(name).is_some())
}
