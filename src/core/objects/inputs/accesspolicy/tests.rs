use serde_json::{Value, json};

use super::*;
use crate::inputs::{Kind, Object, ObjectKey, PolicyTarget};
use crate::model::{ClaimType, Enforcement, ObjectName, RequiredClaim};
use crate::settings::{JwksSource, TokenRules};

fn written(spec: Value) -> Value {
    let mut spec = spec;
    if spec["targetRefs"].is_null() {
        spec["targetRefs"] =
            json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop"}]);
    }
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
        "metadata": {"namespace": "a", "name": "p"}, "spec": spec})
}

fn policy(spec: Value) -> Policy {
    match Object::parse(written(spec)) {
        Ok(Object::Policy(policy)) => policy,
        other => panic!("{other:?}"),
    }
}

pub(super) fn rules_of(spec: Value) -> Result<AccessRules, String> {
    access(policy(spec).rules)
}

fn access(rules: PolicyRules) -> Result<AccessRules, String> {
    match rules {
        PolicyRules::Access(_, rules) => rules,
        other => panic!("{other:?}"),
    }
}

#[test]
fn networks_are_read() {
    let rules = rules_of(json!({"clientAddress":
        {"allow": ["198.51.100.0/24", "2001:db8::/32", "198.51.100.0/24"], "deny": ["198.51.100.7/32"]}}));
    let addresses = rules.expect("valid").client_address.expect("a list");
    assert_eq!(addresses.allow.len(), 2, "each once");
    assert_eq!(addresses.deny.len(), 1, "one is denied");
}

#[test]
fn a_value_that_cannot_be_carried_out_is_kept_with_its_reason() {
    let many: Vec<String> = (0..65).map(|n| format!("10.0.{n}.0/24")).collect();
    for (spec, told) in [
        (
            json!({}),
            "clientAddress, basicAuth, oidc, jwt or externalAuth is needed",
        ),
        (json!({"clientAddress": {}}), "allow or deny is needed"),
        (
            json!({"clientAddress": {"allow": ["10.0.0.1/8"]}}),
            "clientAddress.allow[0]: 10.0.0.1/8: expected 10.0.0.0/8 or 10.0.0.1/32",
        ),
        (
            json!({"clientAddress": {"deny": ["10.0.0.0/8", "home"]}}),
            "clientAddress.deny[1]: \"home\": expected a network",
        ),
        (
            json!({"clientAddress": {"allow": many}}),
            "clientAddress.allow: expected at most 64 networks, found 65",
        ),
    ] {
        let error = rules_of(spec.clone()).expect_err("it is refused");
        assert!(error.contains(told), "{spec}: {error}");
    }
}

#[test]
fn an_empty_policy_is_told_all_fields() {
    macro_rules! names {
        (access { $($field:ident: $setting:ident, $variant:ident, $name:literal;)* } traffic $traffic:tt) => {
            [$($name),*]
        };
    }
    let error = rules_of(json!({})).expect_err("it asks for nothing");
    for name in settings!(names) {
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn users_are_those_of_a_secret_and_their_header_is_no_other_ones() {
    let rules = rules_of(json!({"basicAuth":
        {"users": {"name": "users"}, "forwardUsernameHeader": "X-User", "credentials": "Remove"}}));
    let users = rules.expect("valid").basic_auth.expect("users");
    assert_eq!(users.secret.name, ObjectName::new("a", "users"));
    assert_eq!(users.forward_username.as_deref(), Some("x-user"));
    assert!(!users.forwards_credentials, "they are removed");
    let rules = rules_of(json!({"basicAuth": {"users": {"name": "users", "namespace": "b"}}}));
    let users = rules.expect("valid").basic_auth.expect("users");
    assert_eq!(users.secret.name, ObjectName::new("b", "users"));
    assert!(users.forwards_credentials, "they are kept by default");
    let long = "x".repeat(65);
    for (header, told) in [
        ("Authorization", "other than authorization, cookie"),
        ("X-Forwarded-User", "the name of a client cannot be in"),
        ("x_user", "without '_'"),
        ("Host", "the name of a client cannot be in"),
        ("x user", "is no header name"),
        (&long, "at most 64 characters"),
    ] {
        let auth = json!({"users": {"name": "users"}, "forwardUsernameHeader": header});
        let error = rules_of(json!({"basicAuth": auth})).expect_err("it is refused");
        assert!(
            error.starts_with("basicAuth.forwardUsernameHeader: "),
            "{error}"
        );
        assert!(error.contains(told), "{header}: {error}");
    }
}

#[test]
fn tokens_have_an_issuer_and_keys_and_each_header_has_one_claim() {
    let point = json!({"kty": "EC", "crv": "P-256",
        "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
        "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"});
    let inline = json!({"inline": json!({"keys": [point]}).to_string()});
    let map = json!({"configMapRef": {"name": "keys", "namespace": "b", "key": "jwks.json"}});
    fn read(issuer: &str, jwks: &Value, more: Value) -> Result<TokenRules, String> {
        let mut jwt = more;
        jwt["issuer"] = json!(issuer);
        jwt["jwks"] = jwks.clone();
        rules_of(json!({"jwt": jwt})).map(|rules| Arc::unwrap_or_clone(rules.jwt.expect("tokens")))
    }
    let claims = json!([{"claim": "sub", "header": "X-Sub"}]);
    let tokens = read("id", &inline, json!({"claimToHeaders": claims})).expect("valid");
    assert_eq!(&*tokens.claims[0].header, "x-sub", "in lower case");
    assert!(matches!(tokens.jwks, JwksSource::Inline(jwks) if jwks.count() == 1));
    let tokens = read("id", &map, json!({})).expect("valid");
    let JwksSource::ConfigMap { map: found, .. } = tokens.jwks else {
        panic!("a ConfigMap")
    };
    assert_eq!(found.name, ObjectName::new("b", "keys"));
    let twice = json!([{"claim": "sub", "header": "x-sub"}, {"claim": "a", "header": "X-Sub"}]);
    let both = json!({"inline": "{}", "configMapRef": map["configMapRef"]});
    for (issuer, jwks, more, told) in [
        (
            "",
            &inline,
            json!({}),
            "jwt.issuer: expected 1 to 256 bytes",
        ),
        ("a\n", &inline, json!({}), "jwt.issuer: expected"),
        (
            "id",
            &both,
            json!({}),
            "one of inline, configMapRef and remote",
        ),
        (
            "id",
            &json!({"inline": "{}"}),
            json!({}),
            "jwt.jwks.inline: expected a JSON object",
        ),
        (
            "id",
            &map,
            json!({"audiences": [""]}),
            "jwt.audiences[0]: expected",
        ),
        (
            "id",
            &map,
            json!({"claimToHeaders": twice}),
            "jwt.claimToHeaders[1].header: x-sub is there twice",
        ),
        (
            "id",
            &map,
            json!({"claimToHeaders": claims, "forwardPayloadHeader": "x-sub"}),
            "x-sub is there twice",
        ),
        (
            "id",
            &map,
            json!({"forwardPayloadHeader": "cookie"}),
            "jwt.forwardPayloadHeader: ",
        ),
    ] {
        let error = read(issuer, jwks, more.clone()).expect_err("it is refused");
        assert!(error.contains(told), "{more}: {error}");
    }
    let both = json!({"jwt": {"issuer": "id", "jwks": map}, "basicAuth": {"users": {"name": "u"}}});
    let error = rules_of(both).expect_err("it is refused");
    assert!(
        error.contains("both need the header Authorization"),
        "{error}"
    );
}

#[test]
fn required_claims_have_values_and_one_type_each() {
    fn read(claims: Value) -> Result<TokenRules, String> {
        let keys = json!({"configMapRef": {"name": "keys", "key": "jwks.json"}});
        let jwt = json!({"issuer": "id", "jwks": keys, "requiredClaims": claims});
        rules_of(json!({"jwt": jwt})).map(|rules| Arc::unwrap_or_clone(rules.jwt.expect("tokens")))
    }
    let tokens = read(json!([
        {"name": "org.team", "values": ["red", "blue", "red"]},
        {"name": "groups", "valueType": "StringArray", "values": ["a"]},
        {"name": "groups", "valueType": "StringArray", "values": ["b"]},
    ]));
    let claims = tokens.expect("valid").required_claims;
    let team = RequiredClaim {
        claim: "org.team".into(),
        value_type: ClaimType::String,
        values: ["blue".into(), "red".into()].into(),
    };
    assert_eq!(claims[0], team, "the order of values has no meaning");
    assert_eq!(claims.len(), 3, "both groups are needed");
    let many: Vec<Value> = (0..9)
        .map(|_| json!({"name": "a", "values": ["b"]}))
        .collect();
    let values: Vec<String> = (0..17).map(|number| number.to_string()).collect();
    let types = json!([{"name": "scope", "values": ["a"]},
        {"name": "scope", "valueType": "StringArray", "values": ["a"]}]);
    for (claims, told) in [
        (
            json!(many),
            "jwt.requiredClaims: expected at most 8, found 9",
        ),
        (
            json!([{"name": "a", "values": []}]),
            "jwt.requiredClaims[0].values: at least one",
        ),
        (
            json!([{"name": "a", "values": values}]),
            "jwt.requiredClaims[0].values: expected at most 16, found 17",
        ),
        (
            json!([{"name": "a", "values": [""]}]),
            "jwt.requiredClaims[0].values[0]: expected 1 to 256",
        ),
        (
            json!([{"name": "a..b", "values": ["c"]}]),
            "jwt.requiredClaims[0].name: expected names with single dots",
        ),
        (
            json!([{"name": "", "values": ["c"]}]),
            "jwt.requiredClaims[0].name: expected",
        ),
        (types, "jwt.requiredClaims[1].valueType: claim scope has"),
    ] {
        let error = read(claims.clone()).expect_err("it is refused");
        assert!(error.contains(told), "{claims}: {error}");
    }
}

#[test]
fn targets_are_of_the_kinds_that_have_hosts() {
    let group = "gateway.networking.k8s.io";
    let targets = json!([
        {"group": group, "kind": "Gateway", "name": "edge", "sectionName": "https"},
        {"group": group, "kind": "HTTPRoute", "name": "shop"},
    ]);
    let list = json!({"allow": ["10.0.0.0/8"]});
    let read = policy(json!({"targetRefs": targets, "clientAddress": list}));
    let listener = PolicyTarget {
        object: ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge")),
        section: Some("https".into()),
    };
    assert_eq!(read.targets[0], listener, "the listener, and no other");
    for (targets, told) in [
        (json!([]), "1 to 16 are needed"),
        (
            json!([{"group": "", "kind": "Service", "name": "web"}]),
            "expected one of Gateway, ListenerSet, HTTPRoute, GRPCRoute",
        ),
    ] {
        let object = written(json!({"targetRefs": targets, "clientAddress": list}));
        let error = Object::parse(object)
            .expect_err("it is refused")
            .to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn a_policy_with_an_unknown_field_keeps_its_targets() {
    let group = "gateway.networking.k8s.io";
    let object = written(
        json!({"targetRefs": [{"group": group, "kind": "Gateway", "name": "edge"}],
        "clientAddress": {"allow": 7}}),
    );
    let Ok(Object::Policy(policy)) = Object::parse_admitted(object) else {
        panic!("it is salvaged")
    };
    assert_eq!(policy.targets.len(), 1, "the Gateway");
    let error = access(policy.rules).expect_err("nobody is admitted");
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn a_rehearsal_has_rules_that_refuse_change_and_delay_nothing() {
    fn reported(mut spec: Value) -> Result<AccessRules, String> {
        spec["enforcement"] = json!("Report");
        rules_of(spec)
    }
    let list = json!({"allow": ["10.0.0.0/8"]});
    let map = json!({"configMapRef": {"name": "keys", "key": "jwks.json"}});
    let spec = json!({"clientAddress": list, "jwt": {"issuer": "id", "jwks": map}});
    reported(spec).expect("both are rehearsed");
    let at = "https://id.example.org/a";
    let backend = json!({"name": "id", "port": 443});
    let remote = json!({"remote": {"uri": at, "backendRef": backend}});
    let provider = json!({"issuer": at, "authorizationEndpoint": at, "tokenEndpoint": at,
        "backendRef": backend});
    for (spec, field) in [
        (json!({"basicAuth": {"users": {"name": "u"}}}), "basicAuth"),
        (
            json!({"oidc": {"provider": provider, "clientID": "shop",
                "clientSecret": {"name": "login"}}}),
            "oidc",
        ),
        (
            json!({"jwt": {"issuer": "id", "jwks": remote}, "clientAddress": list}),
            "jwt.jwks.remote",
        ),
    ] {
        rules_of(spec.clone()).expect("it is enforced");
        let error = reported(spec).expect_err("it is not rehearsed");
        let told = format!("{field}: enforcement Report cannot rehearse it");
        assert!(error.starts_with(&told), "{error}");
    }
}

#[test]
fn a_policy_that_cannot_be_read_is_enforced_unless_it_says_that_it_reports() {
    for (enforcement, expected) in [
        (json!(null), Enforcement::Enforce),
        (json!("Later"), Enforcement::Enforce),
        (json!("Report"), Enforcement::Report),
    ] {
        let object = written(json!({"enforcement": enforcement, "clientAddress": 7}));
        let Ok(Object::Policy(policy)) = Object::parse_admitted(object) else {
            panic!("it is salvaged")
        };
        let PolicyRules::Access(found, Err(_)) = policy.rules else {
            panic!("it has no rules: {policy:?}")
        };
        assert_eq!(found, expected, "{enforcement}");
    }
}

#[test]
fn a_login_is_for_routes_and_its_urls_and_paths_are_checked() {
    fn login(edit: impl FnOnce(&mut Value)) -> Value {
        let at = "https://id.example.org/a";
        let provider = json!({"issuer": at, "authorizationEndpoint": at, "tokenEndpoint": at,
            "backendRef": {"name": "id", "port": 443}});
        let mut oidc = json!({"provider": provider, "clientID": "shop",
            "clientSecret": {"name": "login"}});
        edit(&mut oidc);
        json!({"oidc": oidc})
    }
    let rules = rules_of(login(|_| ())).expect("it is valid");
    let rules = rules.oidc.expect("a login");
    assert_eq!(*rules.redirect_path, *"/oauth2/callback");
    assert_eq!(rules.redirect_host, None, "that of the request");
    assert_eq!(*rules.logout_path, *"/logout");
    assert_eq!(*rules.scopes, ["openid".into()]);
    let rules = login(|oidc| {
        oidc["redirectURL"] = json!("https://shop.example.org:8443/back");
        oidc["scopes"] = json!(["profile", "openid", "email"]);
    });
    let rules = rules_of(rules).expect("it is valid").oidc.expect("a login");
    assert_eq!(
        rules.redirect_host.as_deref(),
        Some("shop.example.org:8443")
    );
    assert_eq!(*rules.redirect_path, *"/back");
    assert_eq!(rules.scopes.len(), 3, "openid once: {:?}", rules.scopes);
    for (field, value, told) in [
        (
            "redirectURL",
            json!("http://shop.example.org/back"),
            "expected https://",
        ),
        (
            "redirectURL",
            json!("https://shop.example.org"),
            "a path behind the host",
        ),
        (
            "redirectURL",
            json!("https://shop.example.org/%41"),
            "without any of %",
        ),
        (
            "redirectURL",
            json!("https://shop.example.org/back;a"),
            "without any of %",
        ),
        (
            "redirectURL",
            json!("https://shop.example.org/logout"),
            "another path",
        ),
        ("logoutPath", json!("/"), "a path other than /"),
        ("clientID", json!("a b"), "visible characters"),
        ("cookieDomain", json!("*.example.org"), "oidc.cookieDomain"),
    ] {
        let spec = login(|oidc| oidc[field] = value.clone());
        let error = rules_of(spec).expect_err("it is refused");
        assert!(error.contains(told), "{field} {value}: {error}");
    }
    for url in [
        "https://a@id.example.org/",
        "https://id.example.org/#a",
        "https://id.example.org:0/",
    ] {
        let spec = login(|oidc| oidc["provider"]["tokenEndpoint"] = json!(url));
        let error = rules_of(spec).expect_err("it is refused");
        assert!(
            error.contains("oidc.provider.tokenEndpoint"),
            "{url}: {error}"
        );
    }
    let mut of_gateway = login(|_| ());
    of_gateway["targetRefs"] =
        json!([{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}]);
    let error = rules_of(of_gateway).expect_err("it is refused");
    assert!(error.contains("oidc is for HTTPRoutes"), "{error}");
}
