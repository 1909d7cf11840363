//! AccessPolicies, and TrafficPolicies on Gateways, ListenerSets and routes, among the objects, and
//! what they refer to.

use proptest::prelude::*;
use serde_json::json;

use super::{NAMESPACES, object, pick};
use gatewright_objects::inputs::Object;

/// Policies on Gateways, ListenerSets and routes that may not be there: AccessPolicies with a valid
/// list of networks, a long one or another, or with users of a Secret, keys of a ConfigMap, or a
/// login or an authorization server at a Service, that may not be there, some of which only report.
///
/// And TrafficPolicies with rate limits, compression, a rewrite, a header, or a page of a
/// ConfigMap, which have the names of those on Services.
pub(super) fn attached_policy() -> impl Strategy<Value = Object> {
    let target = prop_oneof![
        (Just("Gateway"), pick(&["g", "f"]), pick(&["", "l0", "l1"])),
        (
            Just("ListenerSet"),
            pick(&["s", "t"]),
            pick(&["", "l0", "l1"])
        ),
        (
            pick(&["HTTPRoute", "GRPCRoute"]),
            pick(&["r", "q", "p"]),
            pick(&["", "main", "0"])
        ),
    ];
    let policy = (
        pick(NAMESPACES),
        pick(&["p", "o"]),
        0u32..3,
        proptest::collection::btree_set(target, 1..3),
        pick(&[
            "10.0.0.0/8",
            "192.0.2.0/24",
            "198.51.100.0/24",
            "nowhere",
            "many",
            "a",
            "b",
            "jwt",
            "login",
            "server",
            "Everyone",
            "ClientAddress",
            "Nobody",
            "Gzip",
            "Page",
            "Rewrite",
            "Port",
        ]),
    );
    policy.prop_map(|(namespace, name, created, targets, asked)| {
        let targets = targets.into_iter().map(|(kind, name, section)| {
            let group = "gateway.networking.k8s.io";
            let mut target = json!({"group": group, "kind": kind, "name": name});
            if !section.is_empty() {
                target["sectionName"] = json!(section);
            }
            target
        });
        let targets: Vec<_> = targets.collect();
        let (kind, field, value) = match asked {
            "Everyone" | "ClientAddress" | "Nobody" => {
                // Zero requests are refused.
                let requests = if asked == "Nobody" { 0 } else { created + 1 };
                let by = if asked == "ClientAddress" {
                    asked
                } else {
                    "Everyone"
                };
                let limit = json!({"requests": requests, "per": "Second"});
                let limits = json!([{"limit": limit, "by": {"type": by}}]);
                ("TrafficPolicy", "rateLimit", limits)
            }
            // Less than the least is refused.
            "Gzip" => {
                let compression = json!({"minBytes": 63 + created, "algorithms": [asked]});
                ("TrafficPolicy", "compression", compression)
            }
            "Port" => {
                let header = json!({"name": "x-port", "value": {"type": asked}});
                ("TrafficPolicy", "headers", json!({"request": [header]}))
            }
            // There is no third group.
            "Rewrite" => {
                let new = format!(r"/\{}", created + 1);
                let path = json!({"pattern": "/(a*)/(.*)", "substitution": new});
                ("TrafficPolicy", "rewrite", json!({"path": path}))
            }
            // Namespace a alone has the ConfigMap, and GRPCRoutes have no pages.
            "Page" => {
                let map = json!({"kind": "ConfigMap", "name": "users", "key": "jwks"});
                let page = json!([{"match": {"statusCodes": [{"value": 500 + created}]},
                    "response": {"body": {"type": "ValueRef", "valueRef": map}}}]);
                ("TrafficPolicy", "responseOverride", page)
            }
            "jwt" => {
                let keys =
                    json!({"configMapRef": {"name": "users", "namespace": "a", "key": "jwks"}});
                ("AccessPolicy", "jwt", json!({"issuer": "id", "jwks": keys}))
            }
            "login" => {
                let at = "https://id.example.org/a";
                let namespace = if created == 1 { "b" } else { "a" };
                let server = json!({"name": "web", "namespace": namespace, "port": 80});
                let provider = json!({"issuer": at, "authorizationEndpoint": at,
                    "tokenEndpoint": at, "backendRef": server});
                let secret = json!({"name": "users", "namespace": "a"});
                let oidc = json!({"provider": provider, "clientID": "c", "clientSecret": secret});
                ("AccessPolicy", "oidc", oidc)
            }
            "server" => {
                let namespace = if created == 1 { "b" } else { "a" };
                let server = json!({"name": "web", "namespace": namespace, "port": 80});
                let auth = json!({"protocol": "HTTP", "backendRef": server});
                ("AccessPolicy", "externalAuth", auth)
            }
            "a" | "b" => {
                let users = json!({"users": {"name": "users", "namespace": asked}});
                ("AccessPolicy", "basicAuth", users)
            }
            "many" => {
                // Quotas have no room for it at all hostnames of a route.
                let networks: Vec<_> = (0..64)
                    .map(|number| format!("10.0.{number}.0/24"))
                    .collect();
                let lists = json!({"allow": networks, "deny": networks});
                ("AccessPolicy", "clientAddress", lists)
            }
            network => ("AccessPolicy", "clientAddress", json!({"allow": [network]})),
        };
        let mut policy = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": kind,
            "metadata": {"namespace": namespace, "name": name,
                "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
            "spec": {"targetRefs": targets}});
        policy["spec"][field] = value;
        // Logins and users cannot be rehearsed.
        if kind == "AccessPolicy" && (asked == "198.51.100.0/24" || created == 2) {
            policy["spec"]["enforcement"] = json!("Report");
        }
        object(policy)
    })
}

/// Secrets with users or of a client, with the type and a line that may be wrong, ConfigMaps with
/// keys, and grants to refer to them.
pub(super) fn users() -> impl Strategy<Value = Object> {
    let secret = (
        pick(NAMESPACES),
        pick(&[
            "gatewright.io/htpasswd",
            "gatewright.io/oidc-client",
            "Opaque",
        ]),
        pick(&["a:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "a:b"]),
    );
    let secret = secret.prop_map(|(namespace, kind, line)| {
        object(json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
            "metadata": {"namespace": namespace, "name": "users"},
            "stringData": {".htpasswd": line, "client-secret": line}}))
    });
    let keys = pick(&["EC", "none"]).prop_map(|kty| {
        let key = json!({"kty": kty, "crv": "P-256",
            "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
            "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"});
        let keys = json!({"keys": [key]}).to_string();
        object(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "a", "name": "users"}, "data": {"jwks": keys}}))
    });
    let grant = (
        pick(NAMESPACES),
        pick(NAMESPACES),
        pick(&["Secret", "ConfigMap", "Service"]),
    );
    let grant = grant.prop_map(|(namespace, from, to)| {
        object(
            json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
            "metadata": {"namespace": namespace, "name": "users"},
            "spec": {"from": [{"group": "gatewright.io", "kind": "AccessPolicy", "namespace": from}],
                "to": [{"group": "", "kind": to}]}}),
        )
    });
    prop_oneof![2 => secret, 1 => keys, 1 => grant]
}
