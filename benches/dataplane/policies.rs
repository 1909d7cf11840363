//! What a policy on all hosts adds to a request that it lets pass as it is.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use e2e::issuer::{ISSUER, Issuer};
use e2e_inside::world::{World, gatewright, object};
use gatewright_core::translate::Change;
use serde_json::{Value, json};

use super::{Cost, Request, begin, cost, parts};

/// A policy with one field.
struct Policy {
    /// The field, as it is printed.
    name: &'static str,
    kind: &'static str,
    field: &'static str,
    value: Value,
    /// Header `Authorization` of the request that passes.
    authorization: Option<String>,
}

impl Policy {
    fn traffic(name: &'static str, field: &'static str, value: Value) -> Self {
        Self {
            name,
            kind: "TrafficPolicy",
            field,
            value,
            authorization: None,
        }
    }

    fn access(field: &'static str, value: Value, authorization: Option<String>) -> Self {
        Self {
            name: field,
            kind: "AccessPolicy",
            field,
            value,
            authorization,
        }
    }

    /// The request that passes.
    fn request<'a>(&'a self, request: Request<'a>) -> Request<'a> {
        Request {
            authorization: self.authorization.as_deref(),
            ..request
        }
    }

    fn object(&self) -> Change {
        let target =
            json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
        let mut spec = json!({"targetRefs": [target]});
        spec[self.field] = self.value.clone();
        gatewright(self.kind, "all", spec)
    }
}

/// Policies which no request exceeds.
fn all() -> Result<Vec<Policy>> {
    let issuer = Issuer::new()?;
    let day = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + 86_400;
    let token = issuer.token(json!({"exp": day}))?;
    let keys = json!({"keys": [issuer.jwk()]}).to_string();
    let jwt = json!({"issuer": ISSUER, "jwks": {"inline": keys}});
    let header = json!({"type": "Header", "header": {"name": "User-Agent"}});
    let two = json!([limit(json!({"type": "Everyone"})), limit(header)]);
    let page = json!({"body": {"inline": "sorry"}});
    Ok(vec![
        Policy::access("clientAddress", json!({"allow": ["127.0.0.0/8"]}), None),
        // Password `secret`, as `htpasswd -s` writes it.
        Policy::access(
            "basicAuth",
            json!({"users": {"name": "users"}}),
            Some("Basic YWxpY2U6c2VjcmV0".to_owned()),
        ),
        Policy::access("jwt", jwt, Some(format!("Bearer {token}"))),
        Policy::traffic(
            "rateLimit by address",
            "rateLimit",
            json!([limit(json!({"type": "ClientAddress"}))]),
        ),
        Policy::traffic("rateLimit of all and by header", "rateLimit", two),
        Policy::traffic(
            "requestBody, without a body",
            "requestBody",
            json!({"maxBytes": 1_000_000}),
        ),
        // No response is an error.
        Policy::traffic(
            "responseOverride",
            "responseOverride",
            json!([{"match": {"statusCodes": [{"value": 503}]}, "response": page}]),
        ),
        Policy::traffic(
            "rewrite",
            "rewrite",
            json!({"path": {"pattern": "/(.*)", "substitution": r"/\1"}}),
        ),
        Policy::traffic(
            "headers: one of requests, one of responses",
            "headers",
            json!({"request": [header_of("x-real-ip", "ClientAddress")],
                "response": [header_of("x-asked", "Host")]}),
        ),
        Policy::traffic(
            "bandwidthLimit of responses, not reached",
            "bandwidthLimit",
            json!({"responseKibPerSecond": 1_000_000}),
        ),
        // The client accepts no encoding.
        Policy::traffic("compression, not asked for", "compression", json!({})),
    ])
}

fn header_of(name: &str, kind: &str) -> Value {
    json!({"name": name, "value": {"type": kind}})
}

fn limit(by: Value) -> Value {
    json!({"limit": {"requests": 1_000_000, "per": "Second"}, "by": by})
}

/// The Secret of the user `alice` with the password `secret`.
fn users() -> Change {
    object(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "gatewright.io/htpasswd",
        "metadata": {"namespace": "default", "name": "users"},
        "stringData": {".htpasswd": "alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"}}),
    )
}

/// Prints what the same request costs more with each policy.
pub(super) async fn run(objects: &[Change], request: Request<'_>, classic: Cost) -> Result<()> {
    println!("policy: instructions that it adds, by HTTP/1 and HTTP/2, percent of the classic one");
    let policies = all()?;
    let mut plain = Vec::new();
    {
        // Of two Envoys on one port each would get a part of the connections.
        let world = World::start_counted(objects.to_vec(), |_| ()).await?;
        let mut callgrind = begin(&world.envoy, request).await?;
        for policy in &policies {
            plain.push(cost(&mut callgrind, policy.request(request)).await?);
        }
    }
    for (policy, without) in policies.iter().zip(plain) {
        let objects = [objects, &[users(), policy.object()]].concat();
        let world = World::start_counted(objects, |_| ()).await?;
        let request = policy.request(request);
        let mut callgrind = begin(&world.envoy, request).await?;
        let with = cost(&mut callgrind, request).await?;
        parts::print(policy.name, with, without, classic);
    }
    Ok(())
}
