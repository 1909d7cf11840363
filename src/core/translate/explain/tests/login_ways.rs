//! Logins that cannot end: the status of the policy and the explanation of its host say the same.

use super::*;
use gatewright_objects::inputs::{Kind, ObjectKey};
use gatewright_objects::model::Status;
use gatewright_objects::status::StatusBody;

/// An engine whose route `web` has these rules, with a login on it or on one of its rules.
fn guarded(rules: &Value, section: Option<&str>, more: &Value) -> Engine {
    let mut rules = rules.clone();
    for rule in rules.as_array_mut().expect("rules") {
        rule["backendRefs"] = json!([{"name": "web", "port": 80}]);
    }
    let route = json!({"parentRefs": [{"name": "edge", "sectionName": "https"}],
        "hostnames": [HOST], "rules": rules});
    let mut target =
        json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
    if let Some(section) = section {
        target["sectionName"] = json!(section);
    }
    engine(vec![
        gateway_api("HTTPRoute", "web", route),
        secret(),
        login(json!([target]), more),
    ])
}

fn secret() -> Change {
    let written = json!({"type": "gatewright.io/oidc-client",
        "stringData": {"client-secret": "open-sesame-open-sesame"}});
    object("v1", "Secret", "login", written)
}

/// The policy `people` with these targets, and these fields of its login.
fn login(targets: Value, more: &Value) -> Change {
    let id = "https://id.example.org";
    let mut oidc = json!({"clientID": "shop", "clientSecret": {"name": "login"},
        "provider": {"issuer": id, "authorizationEndpoint": id, "tokenEndpoint": id,
            "backendRef": {"name": "web", "port": 80}}});
    for (field, value) in more.as_object().expect("fields") {
        oidc[field] = value.clone();
    }
    let spec = json!({"targetRefs": targets, "oidc": oidc});
    object(
        "gatewright.io/v1alpha1",
        "AccessPolicy",
        "people",
        json!({"spec": spec}),
    )
}

/// Whether the policy is accepted, and what its status says.
fn told(engine: &Engine) -> (Status, String) {
    let key = ObjectKey::new(Kind::AccessPolicy, ObjectName::new("a", "people"));
    let status = engine.status(&key).expect("a status");
    let StatusBody::Policy(status) = status.body else {
        panic!("of a policy")
    };
    let condition = &status.ancestors[0].1[0];
    (condition.status, condition.message.clone())
}

#[test]
fn a_login_whose_way_back_nobody_answers_is_not_accepted() {
    fn path(path: &str) -> Value {
        json!([{"path": {"value": path}}])
    }
    let whole = json!([{}]);
    let app = json!([{"name": "app", "matches": path("/app")}]);
    let app_and_rest = json!([{"name": "app", "matches": path("/app")}, {"name": "rest"}]);
    let shadowed = json!([{"name": "rest"}, {"name": "open", "matches": path("/oauth2")}]);
    let exact = json!([{"name": "open", "matches": path("/oauth2")},
        {"name": "back", "matches": [{"path": {"type": "Exact", "value": "/oauth2/callback"}}]}]);
    let post = json!([{"matches": [{"method": "POST"}]}]);
    let beta = json!([{"matches": [{"queryParams": [{"name": "beta", "value": "1"}]}]}]);
    let code = json!([{"matches": [{"queryParams": [{"name": "iss", "value": "https://id"}]}]}]);
    let header = json!([{"matches": [{"headers": [{"name": "x-beta", "value": "1"}]}]}]);
    let regex = json!([{"matches": [{"path": {"type": "RegularExpression", "value": "/o.*"}}]}]);
    let within = json!({"redirectURL": "https://web.example.org:8443/app/back"});
    let both = json!({"redirectURL": "https://web.example.org/app/back", "logoutPath": "/app/out"});
    let elsewhere = json!({"redirectURL": "https://id.example.org/oauth2/callback"});
    let of_domain = json!({"redirectURL": "https://id.example.org/oauth2/callback",
        "cookieDomain": "example.org"});
    let outside = json!({"cookieDomain": "example.net"});
    let none = json!({});
    let nobody = "no rule with the policy answers GET https://web.example.org/oauth2/callback";
    let no_logout = "nobody can log out";
    for (case, rules, section, more, accepted, part) in [
        ("whole", &whole, None, &none, true, ""),
        ("a path", &app, None, &none, false, nobody),
        ("in the path", &app, None, &both, true, ""),
        ("no way out", &app, None, &within, true, no_logout),
        ("a rule", &app_and_rest, Some("app"), &none, false, nobody),
        (
            "the other rule",
            &app_and_rest,
            Some("rest"),
            &none,
            true,
            "",
        ),
        (
            "nearer",
            &shadowed,
            Some("rest"),
            &none,
            false,
            "rule open of",
        ),
        ("nearest", &exact, Some("back"), &none, true, no_logout),
        ("a method", &post, None, &none, false, nobody),
        ("a parameter", &beta, None, &none, false, nobody),
        ("a parameter of providers", &code, None, &none, true, ""),
        (
            "a header",
            &header,
            None,
            &none,
            true,
            "only with the headers",
        ),
        ("an expression", &regex, None, &none, true, ""),
        (
            "another host",
            &whole,
            None,
            &elsewhere,
            false,
            "does not get the cookies",
        ),
        (
            "a host of nobody",
            &whole,
            None,
            &of_domain,
            false,
            "no target of the policy has host",
        ),
        (
            "another domain",
            &whole,
            None,
            &outside,
            false,
            "is outside of example.net",
        ),
    ] {
        let engine = guarded(rules, section, more);
        let (status, message) = told(&engine);
        assert_eq!(status == Status::True, accepted, "{case}: {message}");
        assert!(message.contains(part), "{case}: {message}");
        assert_eq!(message.is_empty(), part.is_empty(), "{case}: {message}");
        let mut asked = Question::get(true, HOST, 443);
        "/app".clone_into(&mut asked.path);
        let explained = engine.explain(&asked);
        let says = format!("{explained:?}").contains(part);
        let is_guarded = format!("{explained:?}").contains("AccessPolicy a/people");
        assert!(
            accepted || !is_guarded || (says && !explained.ok()),
            "{case}: {explained:?}"
        );
    }
}

#[test]
fn targets_of_one_policy_answer_for_each_other_and_changes_are_noticed() {
    let mut engine = guarded(
        &json!([{"matches": [{"path": {"value": "/app"}}]}]),
        None,
        &json!({}),
    );
    assert_eq!(told(&engine).0, Status::False, "nobody answers");
    let targets = ["web", "back"].map(
        |name| json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name}),
    );
    fn back(path: &str) -> Change {
        let matches = json!([{"path": {"value": path}}]);
        let rules = json!([{"matches": matches, "backendRefs": [{"name": "web", "port": 80}]}]);
        let spec = json!({"parentRefs": [{"name": "edge", "sectionName": "https"}],
            "hostnames": [HOST], "rules": rules});
        gateway_api("HTTPRoute", "back", spec)
    }
    engine.apply(vec![login(json!(targets), &json!({}))], at(3));
    assert_eq!(told(&engine).0, Status::False, "the other is missing");
    engine.apply(vec![back("/oauth2")], at(4));
    let (status, message) = told(&engine);
    assert_eq!(status, Status::True, "{message}");
    engine.apply(vec![back("/oauth")], at(5));
    assert_eq!(told(&engine).0, Status::False, "it answers no more");
}

#[test]
fn a_provider_whose_tls_is_broken_is_told_by_its_policies() {
    for rules in [
        json!({"oidc": true}),
        json!({"jwt": {"issuer": "id", "jwks": {"remote":
            {"uri": "https://id.example.org/keys", "backendRef": {"name": "id", "port": 80}}}}}),
    ] {
        let target =
            json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
        let people = if rules["jwt"].is_object() {
            let mut spec = rules.clone();
            spec["targetRefs"] = json!([target]);
            object(
                "gatewright.io/v1alpha1",
                "AccessPolicy",
                "people",
                json!({"spec": spec}),
            )
        } else {
            let id = "https://id.example.org";
            let provider = json!({"issuer": id, "authorizationEndpoint": id, "tokenEndpoint": id,
                "backendRef": {"name": "id", "port": 80}});
            login(json!([target]), &json!({"provider": provider}))
        };
        let server = json!({"spec": {"ports": [{"name": "p", "port": 80}]}});
        let mut engine = engine(vec![
            secret(),
            people,
            object("v1", "Service", "id", server),
        ]);
        assert_eq!(told(&engine).0, Status::True, "without TLS");
        let of_provider = json!({"targetRefs": [{"group": "", "kind": "Service", "name": "id"}],
            "validation": {"hostname": "id.example.org",
                "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "roots"}]}});
        let tls = gateway_api("BackendTLSPolicy", "id", of_provider);
        fn roots(text: &str) -> Change {
            let data = json!({"data": {"ca.crt": text}});
            object("v1", "ConfigMap", "roots", data)
        }
        engine.apply(vec![roots("nonsense"), tls], at(3));
        let (status, message) = told(&engine);
        assert_eq!(status, Status::False, "{message}");
        assert!(
            message.contains("BackendTLSPolicy of Service a/id"),
            "{message}"
        );
        let key = ObjectKey::new(Kind::BackendTLSPolicy, ObjectName::new("a", "id"));
        let of_tls = format!("{:?}", engine.status(&key).expect("it is used"));
        assert!(of_tls.contains("NoValidCACertificate"), "{of_tls}");
        engine.apply(vec![roots(&ca())], at(4));
        let (status, message) = told(&engine);
        assert_eq!(status, Status::True, "{message}");
        let of_tls = format!("{:?}", engine.status(&key).expect("it is used"));
        assert!(!of_tls.contains("NoValidCACertificate"), "{of_tls}");
        engine.apply(
            vec![Change::delete(ObjectKey::new(
                Kind::AccessPolicy,
                ObjectName::new("a", "people"),
            ))],
            at(5),
        );
        assert!(engine.status(&key).is_none(), "nobody uses it");
    }
}
