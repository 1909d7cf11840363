//! The rules of a path: its match, filters, timeouts and backends.

use serde_json::{Value, json};

use super::canary::Canary;
use super::filters::Filters;
use super::protocol::Protocol;
use super::rewrite::{Rewrite, rewrite};
use super::routes::Hosts;
use super::server::{Backend, Location, Server};
use super::source::Ingress;
use super::timeouts::{retry, timeouts};
use crate::convert::Verdict;
use crate::convert::report::Report;

/// The rules of a path, and what became of it.
pub(super) struct Rules {
    pub(super) rules: Vec<Value>,
    /// What a TrafficPolicy makes of the path of requests.
    pub(super) rewrite: Option<Value>,
    pub(super) verdict: Verdict,
    pub(super) text: String,
}

impl Hosts<'_> {
    /// The rules of a path for HTTP, and what becomes of it.
    pub(super) fn rules(
        &self,
        server: &Server,
        location: &Location,
        filters: &Filters,
        is_secure: bool,
        report: &mut Report,
    ) -> Result<Rules, String> {
        let ingress = &self.source.ingresses[location.ingress];
        let matched = if server.is_regex(&self.source.ingresses) {
            let others = server.locations.iter().map(|other| &other.path);
            location
                .path
                .regex(others.filter(|other| **other != location.path))
        } else {
            location.path.plain()
        };
        let matched = match (matched, location.path.beginning_match()) {
            (Ok(matched), _) => matched,
            (Err(why), None) => return Err(why),
            // Another path's backend would get the requests, perhaps with other policies.
            (Err(why), Some((matched, beginning))) => {
                return Ok(Rules {
                    rules: vec![json!({"matches": [matched]})],
                    rewrite: None,
                    verdict: Verdict::NotCarriedOver,
                    text: format!("{why}: paths that begin with {beginning} are answered 500"),
                });
            }
        };
        let path = &matched.value["path"];
        let is_prefix = path["type"] == "PathPrefix";
        let text = format!(
            "{} {}",
            path["type"].as_str().unwrap_or_default(),
            path["value"].as_str().unwrap_or_default()
        );
        let (path, rewrite) = match self.replaced(ingress, location, is_prefix, filters, report) {
            Ok(replaced) => replaced,
            Err(why) => {
                // Without a backend it is answered 500; without a rule another path's backend
                // would get the requests.
                let rule = json!({"matches": [matched.value]});
                let text = format!("{text}: {why}");
                return Ok(Rules {
                    rules: vec![rule],
                    rewrite: None,
                    verdict: Verdict::NotCarriedOver,
                    text,
                });
            }
        };
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
            self.of_location(&rule, location)
        };
        Ok(match matched.difference {
            None => Rules {
                rules,
                rewrite,
                verdict: Verdict::CarriedOver,
                text,
            },
            Some(difference) => Rules {
                rules,
                rewrite,
                verdict: Verdict::Differs,
                text: format!("{text}: {difference}"),
            },
        })
    }

    /// What replaces the path of requests: a filter, or a TrafficPolicy.
    fn replaced(
        &self,
        ingress: &Ingress,
        location: &Location,
        is_prefix: bool,
        filters: &Filters,
        report: &mut Report,
    ) -> Result<(Option<Value>, Option<Value>), &'static str> {
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
            return Ok((None, None));
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
                Ok((Some(path), None))
            }
            Rewrite::Policy(path) => {
                let text = format!(
                    "TrafficPolicy, rewrite.path {}",
                    path["substitution"].as_str().unwrap_or_default()
                );
                report.tell(ingress, "rewrite-target", Verdict::CarriedOver, text);
                Ok((None, Some(path)))
            }
            Rewrite::Nothing(why) => {
                let text = format!("{}: {why}", location.path.text);
                report.tell(ingress, "rewrite-target", Verdict::NotCarriedOver, text);
                Err("answered 500, since its backend would get other paths without rewrite-target")
            }
        }
    }

    /// The rules of a path for calls of gRPC.
    pub(super) fn calls(
        &self,
        server: &Server,
        location: &Location,
        filters: &Filters,
        is_secure: bool,
    ) -> Result<Rules, String> {
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
        let filters = filters.of_call(self.source, is_secure);
        if !filters.is_empty() {
            rule["filters"] = json!(filters);
        }
        Ok(Rules {
            rules: self.of_location(&rule, location),
            rewrite: None,
            verdict: Verdict::CarriedOver,
            text,
        })
    }

    /// A rule with the backends of its path; one more for each condition of a canary.
    fn of_location(&self, rule: &Value, location: &Location) -> Vec<Value> {
        let ingress = &self.source.ingresses[location.ingress];
        if !Protocol::read(ingress).is_spoken() {
            // Without a backend it is answered 500.
            return vec![rule.clone()];
        }
        let Some((canary, other)) = &location.canary else {
            return vec![with_backends(rule, &[(&location.backend, None)])];
        };
        let canary = Canary::read(&self.source.ingresses[*canary]);
        let mut rules: Vec<Value> = canary
            .conditions
            .iter()
            .map(|(header, is_canary)| {
                let backend = if *is_canary { other } else { &location.backend };
                let mut rule = with_backends(rule, &[(backend, None)]);
                if rule.get("matches").is_none() {
                    rule["matches"] = json!([{}]);
                }
                rule["matches"][0]["headers"] = json!([header]);
                rule
            })
            .collect();
        rules.push(match canary.weight {
            0 => with_backends(rule, &[(&location.backend, None)]),
            weight => with_backends(
                rule,
                &[
                    (&location.backend, Some(canary.total - weight)),
                    (other, Some(weight)),
                ],
            ),
        });
        rules
    }
}

/// A rule with these backends, and their weights.
fn with_backends(rule: &Value, backends: &[(&Backend, Option<u32>)]) -> Value {
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
}
