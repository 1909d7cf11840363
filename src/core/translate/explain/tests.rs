//! Tests of explanations: the first link that fails names the cause.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Explanation, Question};
use crate::{Change, Engine, Settings};
use gatewright_objects::inputs::{Object, Secret};
use gatewright_objects::model::{Certificate, Hostname, ObjectName, PrivateKey};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const HOST: &str = "web.example.org";

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn object(api: &str, kind: &str, name: &str, body: Value) -> Change {
    let mut all =
        json!({"apiVersion": api, "kind": kind, "metadata": {"namespace": "a", "name": name}});
    let fields = all.as_object_mut().expect("an object");
    fields.extend(body.as_object().expect("fields").clone());
    Change::put(Object::parse(all).expect("an object"))
}

fn gateway_api(kind: &str, name: &str, spec: Value) -> Change {
    object(GATEWAY, kind, name, json!({"spec": spec}))
}

fn certificate() -> Change {
    certificate_for(vec![Hostname::any()], 0..1000)
}

/// The Secret `cert` with a certificate for these names and seconds.
fn certificate_for(names: Vec<Hostname>, valid: std::ops::Range<u64>) -> Change {
    let certificate = Certificate {
        leaf: b"leaf".as_slice().into(),
        issuers: Arc::from(""),
        key: PrivateKey::new(b"key"),
        names,
        not_before: at(valid.start),
        not_after: at(valid.end),
        issuer: Arc::from("test"),
    };
    Change::put(Object::Secret(Secret::with_certificate(
        ObjectName::new("a", "cert"),
        Arc::new(certificate),
    )))
}

fn ca() -> String {
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters
        .self_signed(&rcgen::KeyPair::generate().expect("a key"))
        .expect("a root")
        .pem()
}

fn config_map(name: &str) -> Change {
    object("v1", "ConfigMap", name, json!({"data": {"ca.crt": ca()}}))
}

/// The Gateway `edge` of a class, with HTTP on port 80 and HTTPS on port 443, and this `spec.tls`.
fn gateway(class: &str, tls: &Value) -> Change {
    let mut spec = json!({"gatewayClassName": class, "listeners": [
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "cert"}]}}]});
    if !tls.is_null() {
        spec["tls"] = tls.clone();
    }
    gateway_api("Gateway", "edge", spec)
}

/// The HTTPRoute `web` with this parentRef and backendRef.
fn route(parent: &Value, backend: &Value) -> Change {
    let spec =
        json!({"parentRefs": [parent], "hostnames": [HOST], "rules": [{"backendRefs": [backend]}]});
    gateway_api("HTTPRoute", "web", spec)
}

fn policy(name: &str, config_map: &str, section: Option<&str>) -> Change {
    let mut target = json!({"group": "", "kind": "Service", "name": "web"});
    if let Some(section) = section {
        target["sectionName"] = json!(section);
    }
    let roots = json!([{"group": "", "kind": "ConfigMap", "name": config_map}]);
    let validation = json!({"hostname": "web.internal", "caCertificateRefs": roots});
    gateway_api(
        "BackendTLSPolicy",
        name,
        json!({"targetRefs": [target], "validation": validation}),
    )
}

fn class(name: &str, controller: &str) -> Change {
    gateway_api("GatewayClass", name, json!({"controllerName": controller}))
}

/// An engine that serves the host, with these changes of it.
fn engine(changes: Vec<Change>) -> Engine {
    let mut engine = Engine::new(Settings::new("c", vec![[127, 0, 0, 1].into()]));
    let slice = json!({"metadata": {"namespace": "a", "name": "web", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "p", "port": 8080}], "endpoints": [{"addresses": ["10.0.0.1"]}]});
    let all = vec![
        class("g", "c"),
        certificate(),
        gateway("g", &Value::Null),
        object(
            "v1",
            "Service",
            "web",
            json!({"spec": {"ports": [{"name": "p", "port": 80}]}}),
        ),
        object("discovery.k8s.io/v1", "EndpointSlice", "web", slice),
        route(
            &json!({"name": "edge"}),
            &json!({"name": "web", "port": 80}),
        ),
    ];
    engine.apply(all, at(1));
    engine.apply(changes, at(2));
    engine
}

fn ask(engine: &Engine, port: u16, host: &str) -> Explanation {
    engine.explain(&Question::get(port != 80, host, port))
}

fn traffic_policy(name: &str, mut spec: Value) -> Change {
    spec["targetRefs"] = json!([{"group": "", "kind": "Service", "name": "web"}]);
    object(
        "gatewright.io/v1alpha1",
        "TrafficPolicy",
        name,
        json!({"spec": spec}),
    )
}

#[test]
fn the_policy_of_a_backend_is_told_with_those_that_have_no_effect() {
    let hash = json!({"type": "ConsistentHash", "consistentHash": {"type": "SourceIP"}});
    let ejected = json!({"passive": {}});
    let good = traffic_policy(
        "good",
        json!({"loadBalancer": hash, "healthCheck": ejected}),
    );
    let bad = json!({"circuitBreaker": {"maxConnections": 0}});
    let engine = engine(vec![good, traffic_policy("bad", bad)]);
    let explained = ask(&engine, 80, HOST);
    assert!(explained.ok(), "{explained:?}");
    let link = explained
        .links
        .iter()
        .find(|link| link.what == "backend policy")
        .expect("the policy is told");
    for expected in [
        "trafficpolicy a/good: hash of the client's address",
        "trafficpolicy a/bad cannot be carried out: Invalid: circuitBreaker.maxConnections: ",
    ] {
        assert!(link.text.contains(expected), "{}", link.text);
    }
}

fn access_policy(name: &str, kind: &str, target: &str, addresses: Value) -> Change {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": target});
    object(
        "gatewright.io/v1alpha1",
        "AccessPolicy",
        name,
        json!({"spec": {"targetRefs": [target], "clientAddress": addresses}}),
    )
}

#[test]
fn the_access_policies_of_a_rule_are_told_and_the_one_that_closes_it() {
    let list = json!({"allow": ["10.0.0.0/8"], "deny": ["10.1.0.0/16"]});
    let mut engine = engine(vec![access_policy("office", "Gateway", "edge", list)]);
    let explained = ask(&engine, 80, HOST);
    assert!(explained.ok(), "{explained:?}");
    let told = "AccessPolicy a/office: only clients of 10.0.0.0/8, no clients of 10.1.0.0/16";
    assert!(
        explained.links.iter().any(|link| link.text == told),
        "{explained:?}"
    );
    let broken = access_policy(
        "broken",
        "Gateway",
        "edge",
        json!({"allow": ["10.0.0.1/8"]}),
    );
    engine.apply(vec![broken], at(3));
    let (what, text) = failure_at(&engine, 80, HOST);
    assert_eq!(what, "access", "{text}");
    assert!(
        text.contains("accesspolicy a/broken: Invalid: clientAddress.allow[0]: 10.0.0.1/8"),
        "{text}"
    );
}

#[test]
fn the_rate_limits_of_a_rule_are_told_with_their_policy() {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
    let limits = json!([
        {"limit": {"requests": 20, "per": "Second", "burst": 40}, "by": {"type": "ClientAddress"}},
        {"limit": {"requests": 9, "per": "Hour"},
            "by": {"type": "Header", "header": {"name": "X-Key"}}}]);
    let policy = object(
        "gatewright.io/v1alpha1",
        "TrafficPolicy",
        "calm",
        json!({"spec": {"targetRefs": [target], "rateLimit": limits}}),
    );
    let misplaced = object(
        "gatewright.io/v1alpha1",
        "TrafficPolicy",
        "wrong",
        json!({"spec": {"targetRefs": [target], "timeout": {}}}),
    );
    let told = held(vec![policy, misplaced], "rate limit").expect("a link");
    assert_eq!(
        told,
        "TrafficPolicy a/calm: 20 per second (burst 40) of each client address, 9 per hour of each value of \
         header x-key, by each Envoy; more is answered 429; NOTE: trafficpolicy a/wrong cannot be carried out: \
         Invalid: timeout: it belongs to Services, and targetRefs has a Gateway; the policy has no effect"
    );
}

#[test]
fn users_are_told_by_their_number_alone() {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
    let spec = json!({"targetRefs": [target], "basicAuth": {"users": {"name": "users"}}});
    let policy = object(
        "gatewright.io/v1alpha1",
        "AccessPolicy",
        "people",
        json!({"spec": spec}),
    );
    let mut engine = engine(vec![policy]);
    let (what, text) = failure_at(&engine, 80, HOST);
    assert_eq!(what, "access", "{text}");
    let told = "there is no Secret a/users of type gatewright.io/htpasswd; requests are answered";
    assert!(text.contains(told), "{text}");
    let line = "alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
    let secret = object(
        "v1",
        "Secret",
        "users",
        json!({"type": "gatewright.io/htpasswd", "stringData": {".htpasswd": line}}),
    );
    engine.apply(vec![secret], at(3));
    let explained = format!("{:?}", ask(&engine, 80, HOST));
    assert!(
        explained.contains("only users of Secret a/users (1)"),
        "{explained}"
    );
    assert!(!explained.contains("alice"), "{explained}");
    assert!(!explained.contains("5en6"), "{explained}");
}

#[test]
fn the_claims_that_tokens_need_are_told_with_a_few_of_their_values() {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"});
    let point = json!({"kty": "EC", "crv": "P-256",
        "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
        "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"});
    let claims = json!([
        {"name": "team", "values": ["red", "blue"]},
        {"name": "groups", "valueType": "StringArray", "values": ["1", "2", "3", "4", "5", "6", "7"]},
    ]);
    let jwt = json!({"issuer": "id", "jwks": {"inline": json!({"keys": [point]}).to_string()},
        "requiredClaims": claims});
    let policy = object(
        "gatewright.io/v1alpha1",
        "AccessPolicy",
        "tokens",
        json!({"spec": {"targetRefs": [target], "jwt": jwt}}),
    );
    let engine = engine(vec![policy]);
    let explained = format!("{:?}", ask(&engine, 80, HOST));
    let told = "of them those with team blue or red and 1 or 2 or 3 or 4 or 5 or 2 more in groups";
    assert!(explained.contains(told), "{explained}");
}

#[test]
fn of_all_upgrades_only_websockets_pass() {
    let engine = engine(Vec::new());
    fn upgraded(protocol: &str, engine: &Engine) -> Explanation {
        let question = Question {
            upgrade: Some(protocol.to_owned()),
            ..Question::get(true, HOST, 443)
        };
        engine.explain(&question)
    }
    for passes in ["websocket", "WebSocket", "h2c"] {
        let explained = upgraded(passes, &engine);
        assert!(explained.ok(), "{passes}: {explained:?}");
        assert!(
            explained.links.iter().any(|link| link.what == "upgrade"),
            "{passes}: {explained:?}"
        );
    }
    let explained = upgraded("SPDY/3.1", &engine);
    let last = explained.links.last().expect("a chain");
    assert_eq!(last.what, "upgrade", "{explained:?}");
    assert!(!last.ok, "{explained:?}");
    assert!(
        last.text.contains("SPDY/3.1, answered 403"),
        "{}",
        last.text
    );
}

/// The last link of an explanation of the host over HTTPS, which fails.
fn failure(changes: Vec<Change>) -> (&'static str, String) {
    failure_at(&engine(changes), 443, HOST)
}

fn failure_at(engine: &Engine, port: u16, host: &str) -> (&'static str, String) {
    let explanation = ask(engine, port, host);
    assert!(!explanation.ok(), "{explanation:?}");
    let last = explanation
        .links
        .into_iter()
        .next_back()
        .expect("it has links");
    (last.what, last.text)
}

/// The text of a link of an explanation of the host over HTTPS, all of whose links hold; `None`
/// without such a link.
fn held(changes: Vec<Change>, what: &str) -> Option<String> {
    let explanation = ask(&engine(changes), 443, HOST);
    assert!(explanation.ok(), "{explanation:?}");
    explanation
        .links
        .into_iter()
        .find(|link| link.what == what)
        .map(|link| link.text)
}

#[test]
fn a_backend_that_cannot_be_verified_fails_with_the_message_of_its_policy() {
    assert_eq!(held(Vec::new(), "backend TLS"), None);
    let (what, text) = failure(vec![policy("p", "none", None)]);
    assert_eq!(what, "backend TLS");
    for part in [
        "backendtlspolicy a/p",
        "answered 503",
        "NoValidCACertificate",
        "nothing is sent",
        "ConfigMap a/none",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let verified = held(
        vec![policy("p", "ca", None), config_map("ca")],
        "backend TLS",
    )
    .expect("it is verified");
    assert_eq!(verified, "verified as web.internal (backendtlspolicy a/p)");
}

#[test]
fn a_policy_for_a_port_that_the_service_lacks_is_a_note() {
    let plain = held(
        vec![policy("p", "ca", Some("https")), config_map("ca")],
        "backend TLS",
    )
    .expect("a link");
    let note =
        "NOTE: backendtlspolicy a/p is for port \"https\", which Service a/web does not have";
    assert_eq!(plain, format!("none: plain text is sent; {note}"));
    let changes = vec![
        policy("p", "ca", Some("https")),
        policy("q", "ca", None),
        config_map("ca"),
    ];
    let both = held(changes, "backend TLS").expect("a link");
    assert_eq!(
        both,
        format!("verified as web.internal (backendtlspolicy a/q); {note}")
    );
}

fn frontend_tls(config_maps: &[&str], mode: &str) -> Value {
    let references = config_maps
        .iter()
        .map(|name| json!({"group": "", "kind": "ConfigMap", "name": name}));
    let validation = json!({"mode": mode, "caCertificateRefs": references.collect::<Vec<_>>()});
    json!({"frontend": {"default": {"validation": validation}}})
}

#[test]
fn a_port_that_lets_no_client_in_fails_and_one_that_requires_a_certificate_says_so() {
    assert_eq!(held(Vec::new(), "client certificate"), None);
    let tls = frontend_tls(&["ca"], "AllowValidOnly");
    let (what, text) = failure(vec![gateway("g", &tls)]);
    assert_eq!(what, "client certificate");
    assert!(
        text.contains("every connection is closed; caCertificateRefs:") && text.contains("a/ca"),
        "{text}"
    );
    // Plain HTTP requires nothing.
    assert!(ask(&engine(vec![gateway("g", &tls)]), 80, HOST).ok());
    let required = held(
        vec![gateway("g", &tls), config_map("ca")],
        "client certificate",
    )
    .expect("a link");
    assert_eq!(
        required,
        "port 443 requires one that a CA of spec.tls.frontend of gateway a/edge has signed"
    );
    let tls = frontend_tls(&["ca", "none"], "AllowInsecureFallback");
    let requested = held(
        vec![gateway("g", &tls), config_map("ca")],
        "client certificate",
    )
    .expect("a link");
    assert!(
        requested.contains("lets clients in without") && requested.contains("; NOTE: "),
        "{requested}"
    );
}

#[test]
fn filters_of_a_listener_that_cannot_be_carried_out_let_nobody_pass() {
    let filters = json!({"requests": [{"type": "ExtensionRef",
        "extensionRef": {"group": "x.example", "kind": "Waf", "name": "w"}}]});
    let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS", "filters": filters,
        "tls": {"certificateRefs": [{"name": "cert"}]}});
    let edge = gateway_api(
        "Gateway",
        "edge",
        json!({"gatewayClassName": "g", "listeners": [listener]}),
    );
    let (what, text) = failure(vec![edge]);
    assert!(
        what == "filters" && text.contains("nobody passes"),
        "{what}: {text}"
    );
}

#[test]
fn a_backend_that_does_not_resolve_fails_with_the_cause() {
    let parent = json!({"name": "edge"});
    for (backend, cause) in [
        (
            json!({"name": "v9", "port": 80}),
            "backendRef: Service a/v9 does not exist",
        ),
        (
            json!({"name": "web", "port": 81}),
            "port 81: Service a/web has ports 80",
        ),
        (json!({"name": "web"}), "Service a/web needs a port"),
        (
            json!({"name": "web", "namespace": "b", "port": 80}),
            "no ReferenceGrant there permits it",
        ),
    ] {
        let (what, text) = failure(vec![route(&parent, &backend)]);
        let begin = "a backendRef with weight 1 does not resolve: answered 500; httproute a/web: ";
        assert!(
            what == "backend" && text.starts_with(begin) && text.contains(cause),
            "{what}: {text}"
        );
    }
    let filter = json!({"type": "ExtensionRef", "extensionRef": {"group": "x.example", "kind": "Waf", "name": "w"}});
    let rules = json!([{"filters": [filter]}, {"matches": [{"path": {"value": "/a"}}]}]);
    let spec = json!({"parentRefs": [parent], "hostnames": [HOST], "rules": rules});
    let (what, text) = failure(vec![gateway_api("HTTPRoute", "web", spec)]);
    assert!(
        what == "backend" && text.contains("answered 500; httproute a/web: Dropped Rule: rule 0"),
        "{text}"
    );
}

#[test]
fn a_failure_has_the_reason_of_the_access_log() {
    let parent = json!({"name": "edge"});
    let missing = json!({"name": "none", "port": 80});
    let engine = engine(vec![route(&parent, &missing)]);
    for (host, expected) in [("nobody.example.org", "NoHost"), (HOST, "BrokenRule")] {
        let links = ask(&engine, 443, host).links;
        let last = links.last().expect("links");
        assert_eq!(last.reason, Some(expected), "{last:?}");
    }
}

#[test]
fn a_host_without_a_route_fails_with_the_condition_of_the_route_that_names_it() {
    let backend = json!({"name": "web", "port": 80});
    for (parent, cause) in [
        (
            json!({"name": "edge", "sectionName": "htps"}),
            "NoMatchingParent: ",
        ),
        (json!({"name": "edge", "sectionName": "htps"}), "\"htps\""),
        (
            json!({"name": "edge", "sectionName": "http"}),
            "attached to listener \"http\" of gateway a/edge",
        ),
        (
            json!({"name": "egde"}),
            "no Gateway or ListenerSet of ours is a/egde",
        ),
    ] {
        let (what, text) = failure(vec![route(&parent, &backend)]);
        let begin = format!(
            "no route serves {HOST} through this listener: answered 404; httproute a/web: "
        );
        assert!(
            what == "route" && text.starts_with(&begin) && text.contains(cause),
            "{what}: {text}"
        );
    }
    // A route for another host is no cause.
    let (_, text) = failure_at(&engine(Vec::new()), 443, "other.example.org");
    assert_eq!(
        text,
        "no route serves other.example.org through this listener: answered 404"
    );
}

#[test]
fn a_host_without_a_listener_fails_with_the_condition_of_the_listener_that_names_it() {
    fn listener(name: &str, port: u16, host: &str, issuer: &str) -> Value {
        json!({"name": name, "port": port, "protocol": "HTTPS", "hostname": host,
            "tls": {"options": {"gatewright.io/issuer": issuer}}})
    }
    let listeners = [
        listener("x", 443, "x.example.org", "internal-ca"),
        listener("z", 443, "z.example.org", "internal_ca"),
        listener("only", 8443, "z.example.org", "internal_ca"),
    ];
    let engine = engine(vec![gateway_api(
        "Gateway",
        "edge",
        json!({"gatewayClassName": "g", "listeners": listeners}),
    )]);
    for (port, begin, name) in [
        (
            443,
            "no listener of gateway a/edge on port 443 matches z.example.org (it has x.example.org)",
            "z",
        ),
        (8443, "no Gateway of ours listens on port 8443", "only"),
    ] {
        let (what, text) = failure_at(&engine, port, "z.example.org");
        let begin = format!("{begin}; listener {name:?} of gateway a/edge: Accepted=False ");
        assert!(
            what == "frontend" && text.starts_with(&begin) && text.contains("internal_ca"),
            "{what}: {text}"
        );
    }
    let (_, text) = failure_at(&engine, 443, "other.example.org");
    assert!(text.ends_with("(it has x.example.org)"), "{text}");
}

#[test]
fn a_gateway_of_another_class_is_named_with_the_reason() {
    let (what, text) = failure(vec![gateway("h", &Value::Null)]);
    assert_eq!(what, "frontend");
    let begin = "no Gateway of ours listens on port 443; gateway a/edge: class h ";
    assert_eq!(text, format!("{begin}does not exist (there is: g)"));
    let (_, text) = failure(vec![gateway("h", &Value::Null), class("h", "other")]);
    assert_eq!(
        text,
        format!("{begin}has controllerName other: it is not served, which needs c")
    );
    let (_, text) = failure_at(&engine(Vec::new()), 8443, HOST);
    assert_eq!(text, "no Gateway of ours listens on port 8443");
}

#[test]
fn a_wildcard_certificate_is_for_one_label() {
    let names = ["*.example.org", "deep.a.example.org"]
        .map(|name| Hostname::parse(name).expect("a hostname"));
    let spec = json!({"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
    let engine = engine(vec![
        certificate_for(names.to_vec(), 0..1000),
        gateway_api("HTTPRoute", "web", spec),
    ]);
    for host in ["web.example.org", "deep.a.example.org"] {
        assert!(ask(&engine, 443, host).ok(), "{host}");
    }
    for host in ["a.b.example.org", "example.org", "web.example.com"] {
        let (what, text) = failure_at(&engine, 443, host);
        assert_eq!(what, "certificate", "{host}");
        assert!(
            text.contains(&format!(
                "not valid for {host}: it names *.example.org, deep.a.example.org"
            )),
            "{text}"
        );
    }
}

#[test]
fn a_certificate_that_no_client_accepts_fails_and_one_that_ends_soon_is_a_note() {
    fn any() -> Vec<Hostname> {
        vec![Hostname::any()]
    }
    for (valid, cause) in [
        (0..2, "expired at 1970-01-01T00:00:02Z"),
        (9..1000, "not valid before 1970-01-01T00:00:09Z"),
    ] {
        let (what, text) = failure(vec![certificate_for(any(), valid)]);
        assert_eq!(what, "certificate");
        assert!(
            text.contains("clients refuse it") && text.contains(cause),
            "{text}"
        );
    }
    let noted = held(vec![certificate_for(any(), 0..1000)], "certificate").expect("a link");
    assert!(
        noted.contains("NOTE: ") && noted.contains("within 3 days"),
        "{noted}"
    );
    let quiet = held(
        vec![certificate_for(any(), 0..100 * 24 * 3600)],
        "certificate",
    )
    .expect("a link");
    assert!(!quiet.contains("NOTE"), "{quiet}");
}

mod bodies;
mod http3;
mod login_ways;
mod logins;
mod requests;
