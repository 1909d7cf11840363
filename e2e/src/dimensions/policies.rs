//! TrafficPolicies with every setting that each namespace may have: for as many Services as fit its
//! quotas, for as many endpoints, and for as many matches of routes. AccessPolicies with long
//! lists.

use serde_json::{Value, json};

use super::{Batch, MANY, short, to, web};

/// The targets of a policy: with as many policies as a namespace may have, and as many Services as
/// fit nearly all of its memory, each has so many.
const TARGETS: usize = 8;
/// The endpoints of a Service of those that have few.
const FEW: usize = 4;

impl Batch<'_> {
    /// Services with a few endpoints, and policies for some of them each.
    pub(super) fn policed(&self) -> Vec<Value> {
        let name = |number: usize| format!("{}-{number}", self.name);
        let ports = json!({"spec": {"ports": [{"port": 80}]}});
        let services =
            (0..MANY).map(|number| self.place.object("v1", "Service", &name(number), &ports));
        let slices = (0..MANY).map(|number| {
            let addresses: Vec<Value> = (0..FEW)
                .map(|end| json!({"addresses": [format!("198.18.{number}.{end}")]}))
                .collect();
            let rest =
                json!({"addressType": "IPv4", "endpoints": addresses, "ports": [{"port": 80}]});
            let mut slice = self.endpoint_slice(&name(number), &rest);
            slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": name(number)});
            slice
        });
        let policies = (0..MANY / TARGETS).map(|number| {
            let services = number * TARGETS..(number + 1) * TARGETS;
            self.traffic_policy(&name(number), &services.map(name).collect::<Vec<_>>())
        });
        let host = [short(0, &self.name)];
        let route = self.route("HTTPRoute", &self.name, &host, &to(&self.name));
        services
            .chain(slices)
            .chain(policies)
            .chain([route])
            .collect()
    }

    /// A Service with as many endpoints as a namespace may have a tenth of, and its policy.
    pub(super) fn policed_endpoints(&self) -> Vec<Value> {
        let policy = self.traffic_policy(&self.name, std::slice::from_ref(&self.name));
        let mut all = self.endpoints();
        all.push(policy);
        all
    }

    /// A route, and a policy with as many limits as there may be. Clients are left out: they take
    /// memory once they send requests.
    pub(super) fn limited(&self) -> Vec<Value> {
        let route = self.matches(16, json!({"backendRefs": [web()]}));
        let header = json!({"type": "Header", "header": {"name": "x-key"}, "maxClients": 1});
        let address = json!({"type": "ClientAddress", "maxClients": 1});
        let all = [header, address].into_iter().cycle().zip(1..=8);
        let limits: Vec<Value> = all
            .map(|(by, requests)| json!({"limit": {"requests": requests, "per": "Hour"}, "by": by}))
            .collect();
        let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute",
            "name": self.name});
        let spec = json!({"spec": {"targetRefs": [target], "rateLimit": limits}});
        let policy =
            self.place
                .object("gatewright.io/v1alpha1", "TrafficPolicy", &self.name, &spec);
        vec![route, policy]
    }

    /// A route, and a policy with as many media types as there may be, and all algorithms. On plain
    /// HTTP the matches of a rule share them.
    pub(super) fn compressed(&self) -> Vec<Value> {
        let types: Vec<String> = (0..32)
            .map(|number| format!("application/x-{number:02}-{}", "t".repeat(100)))
            .collect();
        let mut all = self.shaped("compression", json!({"types": types}));
        let route = all.swap_remove(0);
        all.extend(self.with_tls(route));
        all
    }

    /// A route, and a policy with as many answers as there may be, as long as they may be.
    pub(super) fn overridden(&self) -> Vec<Value> {
        let pages: Vec<Value> = (0..8)
            .map(|number| {
                let statuses =
                    json!([{"type": "Range", "range": {"start": 400 + number, "end": 599}}]);
                // Each policy has texts of its own.
                let page = format!("{}-{number}-{}", self.name, "p".repeat(4096));
                let body = json!({"type": "Inline", "inline": page[..4096]});
                json!({"match": {"statusCodes": statuses},
                    "response": {"contentType": "text/html; charset=utf-8", "body": body}})
            })
            .collect();
        self.shaped("responseOverride", json!(pages))
    }

    /// A route, and a policy of the bodies of its requests.
    pub(super) fn limited_bodies(&self) -> Vec<Value> {
        self.shaped("requestBody", json!({"maxBytes": 1_000_000}))
    }

    /// A route, and a policy that rewrites the paths of its requests.
    pub(super) fn rewritten(&self) -> Vec<Value> {
        let path = json!({"pattern": "/(.*)", "substitution": r"/\1"});
        self.shaped("rewrite", json!({"path": path}))
    }

    /// A route, and a policy with as many headers as there may be, of which the texts are short.
    pub(super) fn known_headers(&self) -> Vec<Value> {
        let headers = |kind: &str| -> Vec<Value> {
            let names = (0..16).map(|number| format!("x-{number:02}-{}", "h".repeat(58)));
            names
                .map(|name| json!({"name": name, "value": {"type": kind}}))
                .collect()
        };
        let both = json!({"request": headers("ClientAddress"), "response": headers("RequestID")});
        self.shaped("headers", both)
    }

    /// A route, and a policy of the bandwidth of both directions.
    pub(super) fn limited_bandwidth(&self) -> Vec<Value> {
        let both = json!({"requestKibPerSecond": 100, "responseKibPerSecond": 100});
        self.shaped("bandwidthLimit", both)
    }

    /// A route with matches, and a TrafficPolicy with a field for it.
    fn shaped(&self, field: &str, value: Value) -> Vec<Value> {
        let route = self.matches(16, json!({"backendRefs": [web()]}));
        let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute",
            "name": self.name});
        let mut spec = json!({"spec": {"targetRefs": [target]}});
        spec["spec"][field] = value;
        let policy =
            self.place
                .object("gatewright.io/v1alpha1", "TrafficPolicy", &self.name, &spec);
        vec![route, policy]
    }

    /// A route, and a policy with as many networks as its lists may have.
    pub(super) fn listed(&self) -> Vec<Value> {
        let networks = |list: usize| -> Vec<String> {
            let all = (0..64).map(|number| format!("2001:db8:{list}:{number:x}::/64"));
            all.collect()
        };
        let lists = json!({"allow": networks(1), "deny": networks(2)});
        self.guarded(16, "clientAddress", lists)
    }

    /// A route, the Secret of as many users as there may be, and a policy.
    pub(super) fn users(&self) -> Vec<Value> {
        let lines = (0..1000).map(|user| format!("user-{user}:{{SHA}}{}=\n", "a".repeat(27)));
        let users = json!({"type": "gatewright.io/htpasswd",
            "stringData": {".htpasswd": lines.collect::<String>()}});
        let secret = self.place.object("v1", "Secret", &self.name, &users);
        let mut all = self.guarded(4, "basicAuth", json!({"users": {"name": self.name}}));
        all.push(secret);
        all
    }

    /// A route, and a policy with as many keys of an issuer as there may be, the largest ones.
    pub(super) fn tokens(&self) -> Vec<Value> {
        let modulus = |number: usize| format!("q{number:04}{}E", "q".repeat(677));
        let keys = (0..16)
            .map(|number| json!({"kty": "RSA", "kid": number.to_string(), "n": modulus(number), "e": "AQAB"}));
        let set = json!({"keys": keys.collect::<Vec<_>>()}).to_string();
        let jwt = json!({"issuer": "https://id.example.org", "audiences": ["shop"],
            "jwks": {"inline": set}});
        self.guarded(8, "jwt", jwt)
    }

    /// A route, and a policy with as many claims as tokens may have to have, and as many values.
    pub(super) fn claims(&self) -> Vec<Value> {
        let key = json!({"kty": "EC", "crv": "P-256",
            "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
            "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"});
        let values: Vec<String> = (0..16).map(|number| format!("group-{number}")).collect();
        let claims = (0..8).map(|number| {
            json!({"name": format!("org.{number}.groups"), "valueType": "StringArray",
                "values": values})
        });
        let jwt = json!({"issuer": "https://id.example.org",
            "jwks": {"inline": json!({"keys": [key]}).to_string()},
            "requiredClaims": claims.collect::<Vec<_>>()});
        self.guarded(8, "jwt", jwt)
    }

    /// A route with a login, whose texts are as long as they may be, and the Secret of the client.
    pub(super) fn logins(&self) -> Vec<Value> {
        let url = |path: &str| format!("https://id.example.org/{path}{}", "p".repeat(480));
        let scopes: Vec<String> = (0..16)
            .map(|number| format!("{number:02}{}", "s".repeat(500)))
            .collect();
        let provider = json!({"issuer": "https://id.example.org",
            "authorizationEndpoint": url("a"), "tokenEndpoint": url("t"),
            "endSessionEndpoint": url("e"), "backendRef": web()});
        let client = json!({"type": "gatewright.io/oidc-client",
            "stringData": {"client-secret": "s".repeat(1024)}});
        let secret = self.place.object("v1", "Secret", &self.name, &client);
        let oidc = json!({"provider": provider, "clientID": "c".repeat(512),
            "clientSecret": {"name": self.name}, "scopes": scopes});
        // On plain HTTP nobody logs in.
        let mut all = self.guarded(8, "oidc", oidc);
        let route = all.swap_remove(0);
        all.push(secret);
        all.extend(self.with_tls(route));
        all
    }

    /// A route with so many matches, and an AccessPolicy with a field for it.
    fn guarded(&self, matches: usize, field: &str, value: Value) -> Vec<Value> {
        let route = self.matches(matches, json!({"backendRefs": [web()]}));
        let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute",
            "name": self.name});
        let mut spec = json!({"spec": {"targetRefs": [target]}});
        spec["spec"][field] = value;
        let policy = self
            .place
            .object("gatewright.io/v1alpha1", "AccessPolicy", &self.name, &spec);
        vec![route, policy]
    }

    /// A policy for Services. Active checks are left out: no namespace has them by default.
    fn traffic_policy(&self, name: &str, services: &[String]) -> Value {
        let targets: Vec<Value> = services
            .iter()
            .map(|service| json!({"group": "", "kind": "Service", "name": service}))
            .collect();
        let key = "k".repeat(256);
        let hash = if self.number.is_multiple_of(2) {
            json!({"type": "Header", "header": {"name": key}})
        } else {
            json!({"type": "Cookie", "cookie": {"name": key, "ttl": "1h"}})
        };
        let passive = json!({"consecutive5XxErrors": 3, "consecutiveGatewayErrors": 2,
            "interval": "5s", "baseEjectionTime": "45s", "maxEjectionPercent": 100});
        let spec = json!({"spec": {
            "targetRefs": targets,
            "loadBalancer": {"type": "ConsistentHash", "consistentHash": hash},
            "timeout": {"tcp": {"connectTimeout": "500ms"}},
            "circuitBreaker": {"maxConnections": 200, "maxPendingRequests": 50,
                "maxParallelRequests": 400, "maxParallelRetries": 3},
            "healthCheck": {"passive": passive, "panicThreshold": 0},
            "proxyProtocol": {"version": "V2"}}});
        self.place
            .object("gatewright.io/v1alpha1", "TrafficPolicy", name, &spec)
    }
}
