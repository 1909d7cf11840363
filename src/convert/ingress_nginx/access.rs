//! AccessPolicies: who may use the routes of an Ingress.
//!
//! What restricts access and cannot be carried over closes the routes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::auth_url;
use super::source::{Ingress, Source, name_in};
use crate::convert::Verdict;
use crate::convert::document::Name;
use crate::convert::output::Output;
use crate::convert::report::Report;
use crate::convert::secrets::{htpasswd, missing, users_of};

/// The most networks of a list.
const NETWORKS: usize = 64;
/// The annotations that keep the controller's authorization server away from an Ingress.
const GLOBAL_AUTH: &str = "enable-global-auth";

/// Writes the policies of an Ingress for its routes.
pub(super) fn access(
    source: &Source,
    ingress: &Ingress,
    targets: &[Value],
    output: &mut Output,
    report: &mut Report,
) {
    let name = (ingress.namespace.as_str(), ingress.name.as_str());
    let mut spec = json!({});
    let mut closed = Vec::new();
    if let Some(addresses) = addresses(ingress, &mut closed, report) {
        spec["clientAddress"] = addresses;
    }
    if let Some(users) = users(source, ingress, &mut closed, output, report) {
        spec["basicAuth"] = users;
    }
    if let Some(url) = ingress.annotation("auth-url").filter(|url| !url.is_empty()) {
        match auth_url::server(source, ingress, url, output, report) {
            Some(server) => spec["externalAuth"] = server,
            None => closed.push("auth-url"),
        }
    } else if source.keys.contains_key("global-auth-url")
        && ingress.flag(GLOBAL_AUTH) != Some(false)
    {
        closed.push("global-auth-url");
    }
    if ingress
        .annotation("auth-tls-match-cn")
        .is_some_and(|name| !name.is_empty())
    {
        closed.push("auth-tls-match-cn");
    }
    if ingress.annotation("satisfy") == Some("any") {
        let text = "a request has to pass all policies";
        report.tell(ingress, "satisfy", Verdict::NotCarriedOver, text);
    }
    if spec.as_object().is_some_and(|fields| !fields.is_empty()) {
        output.policy("AccessPolicy", name, targets, &spec);
    }
    if !closed.is_empty() {
        output.close(name, targets);
    }
}

/// The networks of clients that are admitted and refused.
fn addresses(
    ingress: &Ingress,
    closed: &mut Vec<&'static str>,
    report: &mut Report,
) -> Option<Value> {
    let mut fields = BTreeMap::new();
    for (field, names) in [
        (
            "allow",
            &["whitelist-source-range", "allowlist-source-range"][..],
        ),
        ("deny", &["denylist-source-range"][..]),
    ] {
        let Some((name, value)) = names
            .iter()
            .find_map(|name| Some((*name, ingress.value(name)?)))
        else {
            continue;
        };
        let networks = networks(value);
        if networks.is_empty() {
            continue;
        }
        if networks.len() > NETWORKS {
            let text = format!(
                "a list has at most {NETWORKS} networks, so the routes are closed: put them together"
            );
            report.tell(ingress, name, Verdict::NotCarriedOver, text);
            closed.push(name);
            continue;
        }
        fields.insert(field, networks);
    }
    (!fields.is_empty()).then(|| json!(fields))
}

/// Networks in CIDR notation, of networks and addresses.
pub(super) fn networks(list: &str) -> Vec<String> {
    list.split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| match (word.contains('/'), word.contains(':')) {
            (true, _) => word.to_owned(),
            (false, true) => format!("{word}/128"),
            (false, false) => format!("{word}/32"),
        })
        .collect()
}

/// The users of an Ingress, in a Secret that is written where its hashes are those of SHA-1.
fn users(
    source: &Source,
    ingress: &Ingress,
    closed: &mut Vec<&'static str>,
    output: &mut Output,
    report: &mut Report,
) -> Option<Value> {
    match ingress.annotation("auth-type") {
        None | Some("") => {
            for name in ["auth-secret", "auth-secret-type", "auth-realm"] {
                report.tell(ingress, name, Verdict::NoEffect, "there is no auth-type");
            }
            return None;
        }
        Some("basic") => {
            let text = "AccessPolicy, basicAuth: backends get no Authorization, as from nginx";
            report.tell(ingress, "auth-type", Verdict::CarriedOver, text);
        }
        Some(_) => {
            let text = "only basic is known, so the routes are closed";
            for name in ["auth-type", "auth-secret", "auth-secret-type", "auth-realm"] {
                report.tell(ingress, name, Verdict::NotCarriedOver, text);
            }
            closed.push("auth-type");
            return None;
        }
    }
    let secret = name_in(
        &ingress.namespace,
        ingress.annotation("auth-secret").unwrap_or_default(),
    );
    let lines = lines(source, ingress, &secret);
    let (users, verdict, text) = htpasswd(lines, &secret, &ingress.namespace, output);
    report.tell(ingress, "auth-secret", verdict, text);
    Some(json!({"users": users, "credentials": "Remove"}))
}

/// The lines of users. No message has a part of them.
fn lines(source: &Source, ingress: &Ingress, secret: &Name) -> Result<Vec<String>, String> {
    let Some(data) = source.objects.secret(secret) else {
        return Err(missing(secret));
    };
    if ingress.annotation("auth-secret-type") == Some("auth-map") {
        let users = data
            .iter()
            .map(|(user, hash)| format!("{user}:{}", String::from_utf8_lossy(hash).trim()));
        return Ok(users.collect());
    }
    users_of(secret, &data, "auth")
}
