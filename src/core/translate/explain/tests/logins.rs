//! Explanations of hosts whose policy asks for a login.

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
