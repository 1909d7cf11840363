use std::time::SystemTime;

use serde_json::{Value, json};

use super::*;
use crate::published::Published;
use crate::{Change, Engine, Settings, StatusBody};
use gatewright_objects::inputs::{Kind, Object, ObjectKey};
use gatewright_objects::model::ObjectName;

const API: &str = "gateway.networking.k8s.io/v1";

fn put(value: Value) -> Change {
    Change::put(Object::parse(value).expect("an object"))
}

fn parameters(spec: &Value) -> Change {
    put(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "a", "name": "edge"}, "spec": spec}),
    )
}

fn gateway(https: &[(&str, u16)]) -> Change {
    let mut listeners = vec![json!({"name": "http", "protocol": "HTTP", "port": 80})];
    for (at, (hostname, port)) in https.iter().enumerate() {
        let hostname = (!hostname.is_empty()).then_some(hostname);
        listeners.push(
            json!({"name": format!("s{at}"), "protocol": "HTTPS", "port": port,
            "hostname": hostname, "tls": {"options": {"gatewright.io/issuer": "internal-ca"}}}),
        );
    }
    put(
        json!({"apiVersion": API, "kind": "Gateway", "metadata": {"namespace": "a", "name": "edge"},
        "spec": {"gatewayClassName": "g", "listeners": listeners, "infrastructure":
            {"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "name": "edge"}}}}),
    )
}

fn route(name: &str, section: Option<&str>, hosts: &[&str], rules: &Value) -> Change {
    put(
        json!({"apiVersion": API, "kind": "HTTPRoute", "metadata": {"namespace": "a", "name": name},
        "spec": {"parentRefs": [{"name": "edge", "sectionName": section}], "hostnames": hosts,
            "rules": rules}}),
    )
}

fn forward() -> Value {
    json!([{"backendRefs": [{"name": "web", "port": 80}]}])
}

fn redirect() -> Value {
    json!([{"filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": "new.example"}}]}])
}

struct Site {
    engine: Engine,
    published: Published,
}

impl Site {
    fn new(plain: &str, changes: Vec<Change>) -> Self {
        Self::of(
            Settings::new("c", vec![[127, 0, 0, 1].into()]),
            plain,
            changes,
        )
    }

    fn of(settings: Settings, plain: &str, changes: Vec<Change>) -> Self {
        let mut site = Self {
            engine: Engine::new(settings),
            published: Published::default(),
        };
        let class = json!({"apiVersion": API, "kind": "GatewayClass", "metadata": {"name": "g"},
            "spec": {"controllerName": "c"}});
        site.apply(vec![put(class)]);
        site.say(plain);
        site.apply(changes);
        site
    }

    fn say(&mut self, plain: &str) {
        let spec = if plain.is_empty() {
            json!({})
        } else {
            json!({"plainHttp": plain})
        };
        self.apply(vec![parameters(&spec)]);
    }

    fn apply(&mut self, changes: Vec<Change>) {
        let delta = self.engine.apply(changes, SystemTime::UNIX_EPOCH);
        self.published.take(delta);
    }

    /// The actions of the routes of a hostname on port 80, in order; empty without a scope.
    fn plain(&self, hostname: &str) -> Vec<String> {
        let id = FrontendId::tcp(ObjectName::new("a", "edge"), 80);
        let scopes = self.published.scopes(&id);
        let Some(host) = scopes.get(&crate::confluence::hostname(hostname)) else {
            return Vec::new();
        };
        let routes = host.routes.iter();
        routes
            .map(|route| match &route.rule.action {
                Action::Redirect(to) => format!(
                    "{} {}://{}:{}",
                    to.status,
                    to.scheme.as_deref().unwrap_or("same"),
                    to.hostname.as_deref().unwrap_or("same"),
                    to.port.unwrap_or(to.default_port)
                ),
                Action::Forward(_) => "forward".to_owned(),
                Action::Answer(answer) => answer.status.to_string(),
                Action::Respond(status) => status.to_string(),
            })
            .collect()
    }

    /// The message of `Accepted` of a route.
    fn note(&self, route: &str) -> String {
        let key = ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", route));
        let Some(StatusBody::Route(status)) = self.engine.status(&key).map(|status| status.body)
        else {
            panic!("a route has a status")
        };
        status.parents[0].1[0].message.clone()
    }
}

const TO_SHOP: &str = "301 https://shop.example:443";

#[test]
fn a_host_that_https_serves_is_redirected_and_others_are_served() {
    let changes = vec![
        gateway(&[("shop.example", 443)]),
        route("both", None, &["shop.example", "other.example"], &forward()),
    ];
    let mut site = Site::new("Redirect", changes);
    assert_eq!(site.plain("shop.example"), [TO_SHOP]);
    assert_eq!(site.plain("other.example"), ["forward"]);
    site.say("Serve");
    assert_eq!(
        site.plain("shop.example"),
        ["forward"],
        "it is served again"
    );
    site.say("Redirect");
    assert_eq!(
        site.plain("shop.example"),
        [TO_SHOP],
        "and redirected again"
    );
    site.apply(vec![gateway(&[])]);
    assert_eq!(site.plain("shop.example"), ["forward"], "HTTPS is gone");
    site.apply(vec![gateway(&[
        ("shop.example", 8443),
        ("shop.example", 9443),
    ])]);
    assert_eq!(
        site.plain("shop.example"),
        ["301 https://same:8443"],
        "the lowest port counts"
    );
}

#[test]
fn a_gateway_that_lost_its_tenant_gateway_serves_nothing_in_clear() {
    // Its label says for which it was made. Where another program reconciles TenantGateways, it is
    // not known whether there is one.
    let made = json!({"apiVersion": API, "kind": "Gateway",
        "metadata": {"namespace": "a", "name": "edge", "labels": {"cozystack.io/gateway": "a"}},
        "spec": {"gatewayClassName": "g", "listeners": [
            {"name": "http", "protocol": "HTTP", "port": 80},
            {"name": "https", "protocol": "HTTPS", "port": 443, "hostname": "shop.example",
                "tls": {"options": {"gatewright.io/issuer": "internal-ca"}}}]}});
    for (tenants, answers) in [(true, TO_SHOP), (false, "forward")] {
        let settings = Settings {
            tenants,
            ..Settings::new("c", vec![[127, 0, 0, 1].into()])
        };
        let changes = vec![
            put(made.clone()),
            route("both", None, &["shop.example"], &forward()),
        ];
        let site = Site::of(settings, "", changes);
        assert_eq!(site.plain("shop.example"), [answers], "{tenants}");
    }
}

#[test]
fn a_host_without_a_route_on_plain_http_is_redirected_too() {
    let listeners = [("shop.example", 443), ("*.w.example", 443)];
    let mut site = Site::new(
        "Redirect",
        vec![
            gateway(&listeners),
            route("secure", Some("s0"), &[], &forward()),
            route("any", Some("http"), &[], &forward()),
            route("below", Some("http"), &["x.w.example"], &forward()),
        ],
    );
    assert_eq!(site.plain("shop.example"), [TO_SHOP]);
    assert_eq!(site.plain(""), ["forward"], "other hosts are served");
    assert_eq!(site.plain("x.w.example"), ["forward"], "HTTPS has no route");
    site.apply(vec![route("wild", Some("s1"), &[], &forward())]);
    assert_eq!(site.plain("*.w.example"), ["301 https://same:443"]);
    assert_eq!(
        site.plain("x.w.example"),
        ["301 https://x.w.example:443"],
        "the wildcard serves it now"
    );
    let key = ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", "secure"));
    site.apply(vec![Change::delete(key)]);
    assert!(
        site.plain("shop.example").is_empty(),
        "the catch-all has it"
    );
}

/// A Gateway with a wildcard on HTTPS, and with or without plain HTTP.
fn gateway_with(has_http: bool) -> Change {
    let Change::Object(gatewright_objects::inputs::ObjectChange::Put(Object::Gateway(mut gateway))) =
        gateway(&[("*.w.example", 443)])
    else {
        panic!("a Gateway")
    };
    gateway
        .listeners
        .retain(|listener| has_http || &*listener.name != "http");
    Change::put(Object::Gateway(gateway))
}

#[test]
fn a_listener_that_comes_later_redirects_what_https_serves_already() {
    let mut site = Site::new(
        "Redirect",
        vec![
            gateway_with(false),
            route("wild", None, &["x.w.example"], &forward()),
        ],
    );
    assert!(site.plain("x.w.example").is_empty(), "there is no port 80");
    site.apply(vec![gateway_with(true)]);
    assert_eq!(site.plain("x.w.example"), ["301 https://x.w.example:443"]);
    site.apply(vec![gateway_with(false)]);
    assert!(site.plain("x.w.example").is_empty(), "it is closed again");
}

#[test]
fn routes_that_redirect_and_challenges_stay() {
    fn path(path: &str, mut rule: Value) -> Value {
        rule["matches"] = json!([{"path": {"value": path}}]);
        rule
    }
    let rules = json!([
        path("/", forward()[0].clone()),
        path("/app", forward()[0].clone()),
        path("/old", redirect()[0].clone()),
        path("/.well-known/acme-challenge/token", forward()[0].clone()),
    ]);
    let changes = vec![
        gateway(&[("shop.example", 443)]),
        route("both", None, &["shop.example"], &rules),
    ];
    let site = Site::new("Redirect", changes);
    assert_eq!(
        site.plain("shop.example"),
        ["forward", TO_SHOP, "302 same://new.example:80", TO_SHOP],
        "longer paths come first; what follows the last that stays is one redirect"
    );
}

#[test]
fn what_is_served_in_clear_is_told_unless_it_is_meant() {
    let mut site = Site::new(
        "",
        vec![
            gateway(&[("shop.example", 443)]),
            route("both", None, &["shop.example", "other.example"], &forward()),
            route("secure", Some("s0"), &[], &forward()),
            route("plain", Some("http"), &["shop.example"], &forward()),
            route("moved", None, &["shop.example"], &redirect()),
        ],
    );
    let told = site.note("both");
    assert!(
        told.starts_with("served in clear on port 80 beside HTTPS on port 443 (shop.example): "),
        "{told}"
    );
    for (name, why) in [
        ("secure", "it is on HTTPS only"),
        ("plain", "its author names the listener"),
        ("moved", "it redirects"),
    ] {
        assert_eq!(site.note(name), "", "{why}");
    }
    let clear: Vec<String> = site
        .engine
        .served_in_clear()
        .map(|(route, _)| route.name.name.to_string())
        .collect();
    assert_eq!(clear, ["both"], "lint says the same");
    site.say("Serve");
    assert_eq!(site.note("both"), "", "it is meant");
    site.say("Redirect");
    let alone = site.note("both");
    assert!(
        alone.starts_with("served in clear alone, on port 80 (other.example): "),
        "{alone}"
    );
    site.say("");
    assert_eq!(site.note("both"), told, "it is told again");
}

#[test]
fn what_is_served_in_clear_is_told_by_the_narrower_names() {
    let https = ["e", "d", "c", "b", "a"].map(|label| format!("{label}.shop.example"));
    let listeners: Vec<(&str, u16)> = https.iter().map(|name| (name.as_str(), 8443)).collect();
    let changes = vec![
        gateway(&listeners),
        route("wide", None, &["*.shop.example"], &forward()),
    ];
    let told = Site::new("", changes).note("wide");
    assert!(
        told.contains(
            "HTTPS on port 8443 (a.shop.example, b.shop.example, c.shop.example, d.shop.example, more): "
        ),
        "{told}"
    );
    let changes = vec![
        gateway(&[("", 8443), ("other.example", 443)]),
        route("narrow", Some("http"), &["a.shop.example"], &forward()),
        route("both", None, &["b.shop.example"], &forward()),
    ];
    let told = Site::new("", changes).note("both");
    assert!(
        told.contains("HTTPS on port 8443 (b.shop.example): "),
        "{told}"
    );
}

#[test]
fn a_hostname_without_routes_of_its_own_has_no_scope_below_a_wildcard() {
    let mut site = Site::new(
        "Redirect",
        vec![
            gateway(&[("*.example.org", 8443)]),
            route("wild", Some("s0"), &[], &forward()),
            route("both", None, &["a.example.org"], &forward()),
        ],
    );
    assert_eq!(
        site.plain("a.example.org"),
        ["301 https://same:8443"; 1],
        "it has routes of its own"
    );
    let key = ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", "both"));
    site.apply(vec![Change::delete(key)]);
    assert!(
        site.plain("a.example.org").is_empty(),
        "the wildcard's scope redirects it"
    );
    assert_eq!(
        site.plain("*.example.org"),
        ["301 https://same:8443"],
        "it is redirected"
    );
}
