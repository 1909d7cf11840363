//! Redirects of plain HTTP to HTTPS, and from the other name of a host.

use serde_json::{Value, json};

use super::routes::{Hosts, Plan, Serving};
use super::server::hosts;
use super::source::Ingress;
use crate::convert::output::{GATEWAY_API, Output};

/// The header in which a proxy in front says how a client came.
const FORWARDED_PROTO: &str = "X-Forwarded-Proto";
/// The most matches of a rule.
const MATCHES: usize = 64;
/// The status of redirects without a key.
const CODE: u16 = 308;

impl Hosts<'_> {
    /// The rules that redirect plain HTTP, and the hosts that have them: one rule for all paths
    /// where all are redirected, of the host's first Ingress.
    pub(super) fn redirects<'a>(
        &self,
        index: usize,
        plan: &Plan,
        hosts: &[&'a str],
    ) -> Option<(Vec<Value>, Vec<&'a str>)> {
        let filter = json!({
            "type": "RequestRedirect",
            "requestRedirect": {"scheme": "https", "statusCode": self.redirect_code()},
        });
        let matches: Vec<Value> = match plan.serving {
            Serving::Both => return None,
            Serving::Redirected { all: true } => {
                let first = hosts.iter().copied().filter(|host| {
                    let locations = self.servers[*host].locations.iter();
                    locations.map(|of| of.ingress).min() == Some(index)
                });
                return Some((vec![json!({"filters": [filter]})], first.collect()));
            }
            Serving::Redirected { all: false } => plan.matches.clone(),
            Serving::ByHeader => plan.matches.iter().map(of_plain_http).collect(),
        };
        let rules = matches
            .chunks(MATCHES)
            .map(|of| json!({"matches": of, "filters": [filter]}))
            .collect();
        Some((rules, hosts.to_vec()))
    }

    fn redirect_code(&self) -> u16 {
        let code = self.source.keys.get("http-redirect-code");
        code.and_then(|code| code.parse().ok()).unwrap_or(CODE)
    }

    /// The route from the other name of a host, with or without `www.`.
    pub(super) fn other_names(&self, ingress: &Ingress, output: &mut Output) {
        if ingress.flag("from-to-www-redirect") != Some(true) {
            return;
        }
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
            let redirect = json!({"hostname": host, "statusCode": self.redirect_code()});
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

/// A match of requests that came to a proxy in front by plain HTTP.
fn of_plain_http(of: &Value) -> Value {
    let mut of = of.clone();
    let header = json!({"name": FORWARDED_PROTO, "value": "http"});
    match of["headers"].as_array_mut() {
        Some(headers) => headers.push(header),
        None => of["headers"] = json!([header]),
    }
    of
}
