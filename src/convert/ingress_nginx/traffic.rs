//! TrafficPolicies: of the routes of an Ingress, and of its Services.

use serde_json::{Value, json};

use super::source::Ingress;
use super::timeouts::{duration, seconds};
use crate::convert::Verdict;
use crate::convert::output::Output;
use crate::convert::report::Report;

/// The name of the cookie for sessions without an annotation.
const COOKIE: &str = "INGRESSCOOKIE";
/// How often the rate a client may send at once without an annotation.
const BURST: u64 = 5;
/// The most requests of a limit.
const REQUESTS: u64 = 1_000_000;
/// The seconds of nginx's timeout of a connection, which is Envoy's as well.
const CONNECT: u64 = 5;
/// The most seconds of it.
const CONNECT_AT_MOST: u64 = 60;
/// The most bytes of a body.
const BODY: u64 = 1 << 40;

/// Writes the policy of an Ingress for its routes.
pub(super) fn traffic(
    ingress: &Ingress,
    targets: &[Value],
    output: &mut Output,
    report: &mut Report,
) {
    let name = (ingress.namespace.as_str(), ingress.name.as_str());
    let limits = limits(ingress);
    if !limits.is_empty() {
        output.policy(
            "TrafficPolicy",
            name,
            targets,
            &json!({"rateLimit": limits}),
        );
    }
    if let Some(bytes) = body(ingress, report) {
        let of_http: Vec<Value> = targets
            .iter()
            .filter(|target| target["kind"] == "HTTPRoute")
            .cloned()
            .collect();
        output.policy(
            "TrafficPolicy",
            name,
            &of_http,
            &json!({"requestBody": {"maxBytes": bytes}}),
        );
    }
}

fn limits(ingress: &Ingress) -> Vec<Value> {
    let burst = number(ingress, "limit-burst-multiplier")
        .filter(|of| *of > 0)
        .unwrap_or(BURST);
    [("limit-rps", "Second"), ("limit-rpm", "Minute")]
        .into_iter()
        .filter_map(|(name, per)| {
            let requests = number(ingress, name)
                .filter(|requests| *requests > 0)?
                .min(REQUESTS);
            let burst = requests.saturating_mul(burst).min(REQUESTS);
            Some(json!({
                "limit": {"requests": requests, "per": per, "burst": burst},
                "by": {"type": "ClientAddress"},
            }))
        })
        .collect()
}

fn number(ingress: &Ingress, name: &str) -> Option<u64> {
    ingress.annotation(name)?.parse().ok()
}

fn body(ingress: &Ingress, report: &mut Report) -> Option<u64> {
    let text = ingress.value("proxy-body-size")?;
    let Some(bytes) = bytes(text) else {
        let text = "no number of bytes: nginx does not read it either";
        report.tell(ingress, "proxy-body-size", Verdict::NoEffect, text);
        return None;
    };
    if bytes == 0 {
        let text = "no limit, as without a policy";
        report.tell(ingress, "proxy-body-size", Verdict::CarriedOver, text);
        return None;
    }
    Some(bytes.min(BODY))
}

/// A number of bytes in nginx's notation.
fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_lowercase();
    let units = [("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30)];
    let (digits, factor) = units
        .into_iter()
        .find_map(|(suffix, factor)| Some((lower.strip_suffix(suffix)?, factor)))
        .unwrap_or((&lower, 1));
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Sets what an Ingress says of its Services.
pub(super) fn of_services(
    ingress: &Ingress,
    services: &[&str],
    output: &mut Output,
    report: &mut Report,
) {
    let chosen = load_balancer(ingress, report);
    let connect = seconds(ingress, "proxy-connect-timeout").filter(|of| *of > 0 && *of != CONNECT);
    for service in services {
        if let Some((annotation, value)) = &chosen {
            let field = ("loadBalancer", value.clone());
            set(ingress, (service, annotation), field, output, report);
        }
        if let Some(seconds) = connect {
            let seconds = seconds.min(CONNECT_AT_MOST);
            let value = json!({"tcp": {"connectTimeout": format!("{seconds}s")}});
            let of = (*service, "proxy-connect-timeout");
            set(ingress, of, ("timeout", value), output, report);
        }
    }
}

/// Sets a field of the policy of a Service. Another value of another Ingress stays.
fn set(
    ingress: &Ingress,
    (service, annotation): (&str, &str),
    field: (&'static str, Value),
    output: &mut Output,
    report: &mut Report,
) {
    let name = (ingress.namespace.clone(), service.to_owned());
    let of = format!("{}/{}", ingress.namespace, ingress.name);
    if let Err(by) = output.service(name, field, &of) {
        let text = format!("Ingress {by} says otherwise of Service {service}, which has one");
        report.tell(ingress, annotation, Verdict::NotCarriedOver, text);
    }
}

/// How an endpoint is chosen, and the annotation that says so.
fn load_balancer(ingress: &Ingress, report: &mut Report) -> Option<(&'static str, Value)> {
    if ingress.annotation("affinity") == Some("cookie") {
        let name = ingress.annotation("session-cookie-name").unwrap_or(COOKIE);
        let ttl = ["session-cookie-max-age", "session-cookie-expires"]
            .into_iter()
            .find_map(|name| seconds(ingress, name))
            .unwrap_or(0)
            .min(8760 * 3600);
        let cookie = json!({"name": name, "ttl": duration(ttl)});
        for name in ["upstream-hash-by", "load-balance"] {
            report.tell(ingress, name, Verdict::NoEffect, "affinity comes before it");
        }
        return Some((
            "affinity",
            hash(json!({"type": "Cookie", "cookie": cookie})),
        ));
    }
    for name in ingress.annotations.keys() {
        if name.starts_with("session-cookie") {
            report.tell(
                ingress,
                name,
                Verdict::NoEffect,
                "there is no affinity: cookie",
            );
        }
    }
    if let Some(by) = ingress
        .value("upstream-hash-by")
        .filter(|by| !by.is_empty())
    {
        let key = hash_key(by);
        if key.is_none() {
            let text = "no key of a hash: $remote_addr, $http_NAME and $cookie_NAME are";
            report.tell(ingress, "upstream-hash-by", Verdict::NotCarriedOver, text);
        }
        let text = "upstream-hash-by comes before it";
        report.tell(ingress, "load-balance", Verdict::NoEffect, text);
        return key.map(|key| ("upstream-hash-by", hash(key)));
    }
    let kind = match ingress.value("load-balance")? {
        "round_robin" => "RoundRobin",
        "ewma" => "LeastRequest",
        _ => {
            let text = "ingress-nginx has no such algorithm";
            report.tell(ingress, "load-balance", Verdict::NoEffect, text);
            return None;
        }
    };
    Some(("load-balance", json!({"type": kind})))
}

fn hash(key: Value) -> Value {
    json!({"type": "ConsistentHash", "consistentHash": key})
}

/// The key of a hash, of a variable of nginx.
fn hash_key(by: &str) -> Option<Value> {
    let variable = by.strip_prefix('$')?;
    let variable = variable
        .strip_prefix('{')
        .and_then(|inner| inner.strip_suffix('}'))
        .unwrap_or(variable);
    if ["remote_addr", "binary_remote_addr"].contains(&variable) {
        return Some(json!({"type": "SourceIP"}));
    }
    if let Some(name) = variable.strip_prefix("http_").filter(|name| is_name(name)) {
        return Some(json!({"type": "Header", "header": {"name": name.replace('_', "-")}}));
    }
    let name = variable
        .strip_prefix("cookie_")
        .filter(|name| is_name(name))?;
    Some(json!({"type": "Cookie", "cookie": {"name": name}}))
}

/// True if a variable of nginx has the name of a header or a cookie.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_nginx_reads_them() {
        for (text, expected) in [
            ("8m", Some(8 << 20)),
            ("1G", Some(1 << 30)),
            ("512", Some(512)),
            ("0", Some(0)),
            ("8mb", None),
            ("-1", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn a_variable_is_a_key_if_it_is_alone() {
        for (by, expected) in [
            ("$binary_remote_addr", Some(json!({"type": "SourceIP"}))),
            (
                "${http_x_user}",
                Some(json!({"type": "Header", "header": {"name": "x-user"}})),
            ),
            (
                "$cookie_sid",
                Some(json!({"type": "Cookie", "cookie": {"name": "sid"}})),
            ),
            ("$request_uri", None),
            ("$http_a$http_b", None),
        ] {
            assert_eq!(hash_key(by), expected, "{by}");
        }
    }
}
