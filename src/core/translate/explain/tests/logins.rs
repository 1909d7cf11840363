//! Explanations of hosts whose policy asks for a login, or for tokens with keys of a server.

use super::*;

#[test]
fn a_login_is_told_with_its_provider_and_closes_plain_http() {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
    let id = "https://id.example.org";
    let provider = json!({"issuer": id, "authorizationEndpoint": id, "tokenEndpoint": id,
        "backendRef": {"name": "web", "port": 80}});
    let oidc = json!({"provider": provider, "clientID": "shop", "clientSecret": {"name": "login"}});
    let policy = object(
        "gatewright.io/v1alpha1",
        "AccessPolicy",
        "people",
        json!({"spec": {"targetRefs": [target], "oidc": oidc}}),
    );
    let mut engine = engine(vec![policy]);
    let (what, text) = failure_at(&engine, 443, HOST);
    assert_eq!(what, "access", "{text}");
    let told =
        "there is no Secret a/login of type gatewright.io/oidc-client; requests are answered";
    assert!(text.contains(told), "{text}");
    let secret = "open-sesame-open-sesame";
    let written =
        json!({"type": "gatewright.io/oidc-client", "stringData": {"client-secret": secret}});
    engine.apply(vec![object("v1", "Secret", "login", written)], at(3));
    let explained = format!("{:?}", ask(&engine, 443, HOST));
    let told = "have logged in at https://id.example.org (client shop)";
    assert!(explained.contains(told), "{explained}");
    assert!(!explained.contains(secret), "{explained}");
    let (what, text) = failure_at(&engine, 80, HOST);
    assert_eq!(what, "access", "{text}");
    assert!(text.contains("oidc needs HTTPS"), "{text}");
}

#[test]
fn the_servers_of_a_policy_are_followed_to_their_endpoints() {
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
    let id = "https://id.example.org/keys";
    let backend = json!({"name": "id", "port": 80});
    let remote = json!({"uri": id, "backendRef": backend});
    let provider = json!({"issuer": id, "authorizationEndpoint": id, "tokenEndpoint": id,
        "backendRef": backend});
    let login =
        json!({"provider": provider, "clientID": "shop", "clientSecret": {"name": "login"}});
    let secret = json!({"type": "gatewright.io/oidc-client",
        "stringData": {"client-secret": "open-sesame-open-sesame"}});
    let server = object(
        "v1",
        "Service",
        "id",
        json!({"spec": {"ports": [{"name": "p", "port": 80}]}}),
    );
    let slice = json!({"metadata": {"namespace": "a", "name": "id", "labels": {"kubernetes.io/service-name": "id"}},
        "addressType": "IPv4", "ports": [{"name": "p", "port": 8080}], "endpoints": [{"addresses": ["10.0.0.2"]}]});
    for (field, rules, told) in [
        (
            "jwt.jwks.remote.backendRef",
            json!({"jwt": {"issuer": "id", "jwks": {"remote": remote}}}),
            "tokens are answered 401 once Envoys have no keys",
        ),
        (
            "oidc.provider.backendRef",
            json!({"oidc": login}),
            "who has no session cannot log in",
        ),
    ] {
        let mut spec = rules;
        spec["targetRefs"] = json!([target]);
        let policy = object(
            "gatewright.io/v1alpha1",
            "AccessPolicy",
            "people",
            json!({"spec": spec}),
        );
        let secret = object("v1", "Secret", "login", secret.clone());
        let mut engine = engine(vec![policy, secret, server.clone()]);
        let explained = ask(&engine, 443, HOST);
        let last = explained.links.last().expect("a chain");
        assert!(!last.ok, "{explained:?}");
        assert_eq!(
            (last.what, last.reason),
            ("server", Some("Unauthenticated"))
        );
        let expected = format!(
            "AccessPolicy a/people: {field}: Service a/id:80 has no endpoint that is ready or still serves: {told}"
        );
        assert_eq!(last.text, expected);
        let slice = object("discovery.k8s.io/v1", "EndpointSlice", "id", slice.clone());
        engine.apply(vec![slice], at(3));
        let explained = ask(&engine, 443, HOST);
        assert!(explained.ok(), "{explained:?}");
        let told = format!("{field}: Service a/id:80 has endpoints (1)");
        assert!(format!("{explained:?}").contains(&told), "{explained:?}");
    }
}
