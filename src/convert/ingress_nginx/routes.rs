//! The routes of an Ingress: one for hosts with the same rules, and one that redirects plain HTTP.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::canary::Canary;
use super::filters::Filters;
use super::listeners::{Listeners, Parent, Parents};
use super::output::{GATEWAY_API, Output};
use super::protocol::Protocol;
use super::redirect::app_root;
use super::report::Report;
use super::rewrite::{Rewrite, rewrite};
use super::server::{Backend, CATCH_ALL, Location, Server, hosts};
use super::source::{Ingress, Source};
use super::timeouts::{retry, timeouts};
use crate::convert::Verdict;

/// The most hostnames of a route; each has two parents, of which there may be 32.
const HOSTNAMES: usize = 16;
/// The header in which a proxy in front says how a client came.
const FORWARDED_PROTO: &str = "X-Forwarded-Proto";

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
enum Serving {
    /// On HTTP, and on HTTPS if the host has that.
    Both,
    /// On HTTPS; HTTP redirects there. True if all Ingresses of the host do so.
    Redirected { all: bool },
    /// On both; a proxy in front says by a header which requests are redirected.
    ByHeader,
}

/// A route before it has a name.
#[derive(PartialEq)]
struct Plan {
    kind: &'static str,
    rules: Vec<Value>,
    serving: Serving,
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
        let is_call = protocol.is_grpc();
        if is_call {
            for name in NOT_OF_CALLS {
                let text = "GRPCRoutes have no such field";
                report.tell(ingress, name, Verdict::NotCarriedOver, text);
            }
        }
        if !is_call {
            rules.extend(app_root(ingress));
        }
        for location in locations {
            let setting = format!("path {host}{}", location.path.text);
            let of_location = if is_call {
                self.calls(server, location, filters, &serving)
            } else {
                self.rules(server, location, filters, &serving, report)
            };
            match of_location {
                Ok((of_location, verdict, text)) => {
                    rules.extend(of_location);
                    report.say(ingress.document, &setting, verdict, text);
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
            serving,
        }
    }

    fn serving(&self, host: &str, server: &Server, index: usize, report: &mut Report) -> Serving {
        let has_tls = server.certificate.is_some() && !server.passthrough;
        let redirects = |index: usize| {
            let ingress = &self.source.ingresses[index];
            let own = ["temporal-redirect", "permanent-redirect"];
            let is_forced = ingress.flag("force-ssl-redirect") == Some(true);
            let is_usual = ingress.flag("ssl-redirect").unwrap_or(true) && has_tls;
            (is_forced || is_usual) && !own.iter().any(|name| ingress.annotation(name).is_some())
        };
        if !redirects(index) {
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
        let all = server.locations.iter().all(|of| redirects(of.ingress));
        Serving::Redirected { all }
    }

    /// True if proxies in front end TLS.
    fn is_behind_proxy(&self) -> bool {
        let key = self.source.keys.get("use-forwarded-headers");
        key.is_some_and(|value| value == "true")
    }

    /// The rules of a path for HTTP, and what becomes of it.
    fn rules(
        &self,
        server: &Server,
        location: &Location,
        filters: &Filters,
        serving: &Serving,
        report: &mut Report,
    ) -> Result<(Vec<Value>, Verdict, String), String> {
        let ingress = &self.source.ingresses[location.ingress];
        let matched = if server.is_regex(&self.source.ingresses) {
            let others = server.locations.iter().map(|other| &other.path);
            location
                .path
                .regex(others.filter(|other| **other != location.path))
        } else {
            location.path.plain()
        }?;
        let path = &matched.value["path"];
        let is_prefix = path["type"] == "PathPrefix";
        let text = format!(
            "{} {}",
            path["type"].as_str().unwrap_or_default(),
            path["value"].as_str().unwrap_or_default()
        );
        let path = match self.replaced(ingress, location, is_prefix, filters, report) {
            Ok(path) => path,
            Err(why) => {
                // Without a backend it is answered 500; without a rule another path's backend
                // would get the requests.
                let rule = json!({"matches": [matched.value]});
                let text = format!("{text}: {why}");
                return Ok((vec![rule], Verdict::NotCarriedOver, text));
            }
        };
        let is_secure = matches!(serving, Serving::Redirected { .. });
        let filters = filters.of_rule(self.source, path.as_ref(), is_secure);
        let mut rule = json!({"matches": [matched.value]});
        if !filters.is_empty() {
            rule["filters"] = json!(filters);
        }
        let is_answer = filters.iter().any(|filter| {
            ["RequestRedirect", "ExtensionRef"]
                .iter()
                .any(|kind| filter["type"] == *kind)
        });
        let rules = if is_answer {
            vec![rule]
        } else {
            let fields = [
                ("timeouts", timeouts(ingress, report)),
                ("retry", retry(ingress, report)),
            ];
            for (field, value) in fields {
                if let Some(value) = value {
                    rule[field] = value;
                }
            }
            self.with_backends(&rule, location)
        };
        Ok(match matched.difference {
            None => (rules, Verdict::CarriedOver, text),
            Some(difference) => (rules, Verdict::Differs, format!("{text}: {difference}")),
        })
    }

    /// What replaces the path of requests.
    fn replaced(
        &self,
        ingress: &Ingress,
        location: &Location,
        is_prefix: bool,
        filters: &Filters,
        report: &mut Report,
    ) -> Result<Option<Value>, &'static str> {
        let target = ingress.annotation("rewrite-target").unwrap_or_default();
        if target == location.path.text {
            report.tell(
                ingress,
                "rewrite-target",
                Verdict::CarriedOver,
                "the path stays",
            );
        }
        if target.is_empty() || target == location.path.text || filters.redirect.is_some() {
            return Ok(None);
        }
        match rewrite(&location.path, target, is_prefix) {
            Rewrite::Filter(path) => {
                let text = format!(
                    "filter URLRewrite, {} {}",
                    path["type"].as_str().unwrap_or_default(),
                    path["replacePrefixMatch"]
                        .as_str()
                        .or(path["replaceFullPath"].as_str())
                        .unwrap_or_default()
                );
                report.tell(ingress, "rewrite-target", Verdict::CarriedOver, text);
                Ok(Some(path))
            }
            Rewrite::Expression(why) => {
                let text = format!("{}: {why}", location.path.text);
                report.tell(ingress, "rewrite-target", Verdict::NotCarriedOver, text);
                Err("answered 500, since its backend would get other paths without rewrite-target")
            }
        }
    }

    /// The rules of a path for calls of gRPC.
    fn calls(
        &self,
        server: &Server,
        location: &Location,
        filters: &Filters,
        serving: &Serving,
    ) -> Result<(Vec<Value>, Verdict, String), String> {
        if server.is_regex(&self.source.ingresses) && location.path.literal().is_none() {
            return Err("a regular expression is no method of gRPC".to_owned());
        }
        let path = location
            .path
            .text
            .trim_end_matches("(.*)")
            .trim_matches('/');
        let mut rule = json!({});
        let text = match (path, path.split_once('/')) {
            ("", _) => "any method".to_owned(),
            (service, None) => {
                rule["matches"] = json!([{"method": {"service": service}}]);
                format!("service {service}")
            }
            (_, Some((service, method))) if !method.contains('/') => {
                rule["matches"] = json!([{"method": {"service": service, "method": method}}]);
                format!("method {service}/{method}")
            }
            _ => return Err("no method of gRPC: /SERVICE/METHOD".to_owned()),
        };
        let filters = filters.of_call(self.source, matches!(serving, Serving::Redirected { .. }));
        if !filters.is_empty() {
            rule["filters"] = json!(filters);
        }
        Ok((
            self.with_backends(&rule, location),
            Verdict::CarriedOver,
            text,
        ))
    }

    /// A rule with the backends of its path; one more for each condition of a canary.
    fn with_backends(&self, rule: &Value, location: &Location) -> Vec<Value> {
        let ingress = &self.source.ingresses[location.ingress];
        if !Protocol::read(ingress).is_spoken() {
            // Without a backend it is answered 500.
            return vec![rule.clone()];
        }
        let with = |rule: &Value, backends: &[(&Backend, Option<u32>)]| {
            let backends: Vec<Value> = backends
                .iter()
                .filter_map(|(backend, weight)| {
                    let mut reference = json!({"name": backend.service, "port": backend.port?});
                    if let Some(weight) = weight {
                        reference["weight"] = json!(weight);
                    }
                    Some(reference)
                })
                .collect();
            let mut rule = rule.clone();
            if !backends.is_empty() {
                rule["backendRefs"] = json!(backends);
            }
            rule
        };
        let Some((canary, other)) = &location.canary else {
            return vec![with(rule, &[(&location.backend, None)])];
        };
        let canary = Canary::read(&self.source.ingresses[*canary]);
        let mut rules: Vec<Value> = canary
            .conditions
            .iter()
            .map(|(header, is_canary)| {
                let backend = if *is_canary { other } else { &location.backend };
                let mut rule = with(rule, &[(backend, None)]);
                if rule.get("matches").is_none() {
                    rule["matches"] = json!([{}]);
                }
                rule["matches"][0]["headers"] = json!([header]);
                rule
            })
            .collect();
        rules.push(match canary.weight {
            0 => with(rule, &[(&location.backend, None)]),
            weight => with(
                rule,
                &[
                    (&location.backend, Some(canary.total - weight)),
                    (other, Some(weight)),
                ],
            ),
        });
        rules
    }

    /// Writes the route of hosts with the same rules.
    fn route(
        &self,
        index: usize,
        plan: &Plan,
        hosts: &[&str],
        output: &mut Output,
        targets: &mut Vec<Value>,
    ) {
        let ingress = &self.source.ingresses[index];
        let namespace = &ingress.namespace;
        let names: Vec<&str> = hosts
            .iter()
            .flat_map(|host| match *host {
                CATCH_ALL => vec![CATCH_ALL],
                host => self.servers[host].names(host).collect(),
            })
            .collect();
        for names in names.chunks(HOSTNAMES) {
            let parents: Vec<Parents> = names.iter().map(|name| self.parents(name)).collect();
            let http = || parents.iter().filter_map(|of| of.http.as_ref());
            let https = || parents.iter().filter_map(|of| of.https.as_ref());
            let served: Vec<&Parent> = match plan.serving {
                Serving::Redirected { .. } => https().collect(),
                Serving::Both | Serving::ByHeader => http().chain(https()).collect(),
            };
            let references = |of: Vec<&Parent>| -> Vec<Value> {
                let mut references: Vec<Value> = of
                    .into_iter()
                    .map(|parent| parent.reference(namespace))
                    .collect();
                references.dedup();
                references
            };
            let mut spec = json!({"parentRefs": references(served), "rules": plan.rules});
            if !names.contains(&CATCH_ALL) {
                spec["hostnames"] = json!(names);
            }
            if spec["parentRefs"]
                .as_array()
                .is_some_and(|of| !of.is_empty())
                && !plan.rules.is_empty()
            {
                let name = output.name(plan.kind, namespace, &ingress.name);
                output.add(GATEWAY_API, plan.kind, (namespace, &name), &spec);
                targets.push(json!({
                    "group": "gateway.networking.k8s.io", "kind": plan.kind, "name": name,
                }));
            }
            if let Some(rules) = self.redirects(index, plan, hosts) {
                spec["rules"] = json!(rules);
                spec["parentRefs"] = json!(references(http().collect()));
                let name = output.name("HTTPRoute", namespace, &format!("{}-https", ingress.name));
                output.add(GATEWAY_API, "HTTPRoute", (namespace, &name), &spec);
            }
        }
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

    /// The rules that redirect plain HTTP; one for all paths where all are redirected.
    fn redirects(&self, index: usize, plan: &Plan, hosts: &[&str]) -> Option<Vec<Value>> {
        let code = self.source.keys.get("http-redirect-code");
        let code = code
            .and_then(|code| code.parse::<u16>().ok())
            .unwrap_or(308);
        let filter = json!({
            "type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": code},
        });
        let matches = || plan.rules.iter().filter_map(|rule| rule.get("matches"));
        let redirect = |of: &Value| json!({"matches": of, "filters": [filter]});
        let first = |host: &&str| {
            let locations = self.servers[*host].locations.iter();
            locations.map(|of| of.ingress).min() == Some(index)
        };
        match plan.serving {
            Serving::Both => None,
            Serving::Redirected { all: true } if hosts.iter().all(first) => {
                Some(vec![json!({"filters": [filter]})])
            }
            Serving::Redirected { all: true } => None,
            Serving::Redirected { all: false } => Some(matches().map(redirect).collect()),
            Serving::ByHeader => Some(
                matches()
                    .map(|of| {
                        let mut of = of.clone();
                        let header = json!({"name": FORWARDED_PROTO, "value": "http"});
                        let headers = &mut of[0]["headers"];
                        match headers.as_array_mut() {
                            Some(headers) => headers.push(header),
                            None => *headers = json!([header]),
                        }
                        redirect(&of)
                    })
                    .collect(),
            ),
        }
    }

    /// The route from the other name of a host, with or without `www.`.
    fn other_names(&self, ingress: &Ingress, output: &mut Output) {
        if ingress.flag("from-to-www-redirect") != Some(true) {
            return;
        }
        let code = self.source.keys.get("http-redirect-code");
        let code = code
            .and_then(|code| code.parse::<u16>().ok())
            .unwrap_or(308);
        for host in hosts(ingress) {
            let Some(name) = self.servers.get(host).and_then(|of| of.redirected.as_ref()) else {
                continue;
            };
            let parents = self.listeners.parents(name);
            let references: Vec<Value> = [parents.http, parents.https]
                .iter()
                .flatten()
                .map(|parent| parent.reference(&ingress.namespace))
                .collect();
            let redirect = json!({"hostname": host, "statusCode": code});
            let spec = json!({
                "parentRefs": references, "hostnames": [name],
                "rules": [{"filters": [{"type": "RequestRedirect", "requestRedirect": redirect}]}],
            });
            let wanted = format!("{}-www", ingress.name);
            let route = output.name("HTTPRoute", &ingress.namespace, &wanted);
            output.add(
                GATEWAY_API,
                "HTTPRoute",
                (&ingress.namespace, &route),
                &spec,
            );
        }
    }
}
