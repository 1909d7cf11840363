//! Secrets and ConfigMaps that are written of others: those that we read have types and keys of
//! their own. No message has a part of their content.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gatewright_core::inputs::{HTPASSWD_TYPE, OIDC_CLIENT_TYPE};
use serde_json::{Value, json};

use super::Verdict;
use super::document::Name;
use super::output::{Grant, Output};

/// The key of an OpenID client's Secret, here and in Envoy Gateway.
const CLIENT_SECRET: &str = "client-secret";
/// How long its value may be.
const CLIENT_SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=1024;

/// Says that a Secret is not of the source.
pub(super) fn missing(secret: &Name) -> String {
    format!("Secret {}/{} is not in the input", secret.0, secret.1)
}

/// The lines of users of a key of a Secret.
///
/// # Errors
/// When the Secret has no such key.
pub(super) fn users_of(
    secret: &Name,
    data: &BTreeMap<&str, &[u8]>,
    key: &str,
) -> Result<Vec<String>, String> {
    let text = data
        .get(key)
        .ok_or_else(|| format!("Secret {}/{} has no key {key}", secret.0, secret.1))?;
    Ok(String::from_utf8_lossy(text)
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect())
}

/// Writes the Secret of users where all hashes are those of SHA-1. Returns the reference of a
/// policy in a namespace, and what becomes of the Secret of the source.
pub(super) fn htpasswd(
    lines: Result<Vec<String>, String>,
    secret: &Name,
    namespace: &str,
    output: &mut Output,
) -> (Value, Verdict, String) {
    let name = format!("{}-htpasswd", secret.1);
    let lines = lines.and_then(|lines| {
        if lines.is_empty() || !lines.iter().all(|line| is_sha(line)) {
            let text = "has other hashes than those of SHA-1";
            return Err(format!("Secret {}/{} {text}", secret.0, secret.1));
        }
        Ok(lines)
    });
    let data = lines.map(|lines| json!({".htpasswd": STANDARD.encode(lines.join("\n") + "\n")}));
    let remedy = format!("{HTPASSWD_TYPE} with .htpasswd of htpasswd -s");
    written(
        data,
        HTPASSWD_TYPE,
        &remedy,
        (&secret.0, name),
        namespace,
        output,
    )
}

/// Writes the Secret of an OpenID client where its secret is long enough. Returns the reference of
/// a policy in a namespace, and what becomes of the Secret of the source.
pub(super) fn client_secret(
    data: Option<&BTreeMap<&str, &[u8]>>,
    secret: &Name,
    namespace: &str,
    output: &mut Output,
) -> (Value, Verdict, String) {
    let name = format!("{}-oidc-client", secret.1);
    let key = data
        .ok_or_else(|| missing(secret))
        .and_then(|data| match data.get(CLIENT_SECRET) {
            Some(key) if CLIENT_SECRET_BYTES.contains(&key.len()) => Ok(STANDARD.encode(key)),
            _ => Err(format!(
                "Secret {}/{} has no {CLIENT_SECRET} of 16 to 1024 characters",
                secret.0, secret.1
            )),
        });
    let data = key.map(|key| json!({CLIENT_SECRET: key}));
    written(
        data,
        OIDC_CLIENT_TYPE,
        OIDC_CLIENT_TYPE,
        (&secret.0, name),
        namespace,
        output,
    )
}

/// Writes a Secret of one of our types, once. Returns the reference of a policy in a namespace, and
/// what becomes of the Secret of the source.
fn written(
    data: Result<Value, String>,
    of_type: &str,
    remedy: &str,
    (place, name): (&str, String),
    namespace: &str,
    output: &mut Output,
) -> (Value, Verdict, String) {
    let (verdict, message) = match data {
        Ok(data) => {
            if output.name("Secret", place, &name) == name {
                let fields = json!({"type": of_type, "data": data});
                output.add_with("v1", "Secret", (place, &name), &fields);
            }
            (Verdict::CarriedOver, format!("Secret {place}/{name}"))
        }
        Err(why) => {
            let message = format!(
                "{why}: the routes are closed until there is Secret {place}/{name} of type {remedy}"
            );
            (Verdict::NotCarriedOver, message)
        }
    };
    let secret = (place.to_owned(), name);
    (
        reference("AccessPolicy", namespace, secret, output),
        verdict,
        message,
    )
}

/// A reference to a Secret, with the permission that it needs.
pub(super) fn reference(
    kind: &'static str,
    namespace: &str,
    secret: Name,
    output: &mut Output,
) -> Value {
    let mut reference = json!({"name": secret.1});
    if secret.0 != namespace {
        reference["namespace"] = json!(secret.0);
        output.grant(Grant {
            from: ("gatewright.io", kind, namespace.to_owned()),
            to: ("Secret", secret),
        });
    }
    reference
}

/// True for a line whose hash is one of SHA-1.
fn is_sha(line: &str) -> bool {
    let hash = line.split_once(':').map(|(_, hash)| hash);
    hash.is_some_and(|hash| hash.starts_with("{SHA}"))
}

/// Writes a ConfigMap with certificates of a CA, once.
pub(super) fn config_map(namespace: &str, name: &str, pem: &str, output: &mut Output) -> String {
    if output.name("ConfigMap", namespace, name) == name {
        let data: Value = json!({"data": {"ca.crt": pem}});
        output.add_with("v1", "ConfigMap", (namespace, name), &data);
    }
    name.to_owned()
}
