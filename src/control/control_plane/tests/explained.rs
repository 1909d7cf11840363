//! Tests of explanations of what Envoys refuse.

use super::*;
use crate::visibility::Visibility;

/// A URL that is served, and the program that serves it.
fn served() -> (ControlPlane, Question) {
    let mut live = live();
    put(&mut live, gateway(80));
    let name = json!({"name": "web", "namespace": "a"});
    let labels = json!({"kubernetes.io/service-name": "web"});
    put(
        &mut live,
        json!({"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": {"ports": [{"port": 80}]}}),
    );
    put(
        &mut live,
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web", "namespace": "a", "labels": labels},
            "ports": [{"port": 8080}], "endpoints": [{"addresses": ["10.1.0.1"]}]}),
    );
    put(
        &mut live,
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": name,
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": ["a.example.org"],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}),
    );
    (live, Question::get(false, "a.example.org", 80))
}

#[test]
fn envoys_that_only_another_replica_knows_are_no_failure() {
    let (mut live, question) = served();
    fn last(
        live: &ControlPlane,
        knows_all: bool,
        question: &Question,
    ) -> (&'static str, bool, String) {
        let link = live
            .explain(question, knows_all)
            .links
            .pop()
            .expect("it has links");
        (link.what, link.ok, link.text)
    }
    assert_eq!(
        last(&live, true, &question),
        ("envoys", false, "no Envoy is connected".to_owned())
    );
    let (what, ok, text) = last(&live, false, &question);
    assert!(
        what == "envoys" && ok && text.contains("lease holder"),
        "{text}"
    );
    // An Envoy that is known, and has not acknowledged, is a failure for every replica.
    envoys(&mut live, &[0]);
    assert_eq!(
        last(&live, false, &question),
        (
            "envoys",
            false,
            "acknowledged by 0 of 1 Envoys, not yet by envoy-0".to_owned()
        )
    );
}

#[test]
fn a_refusal_on_another_port_or_for_another_host_is_no_failure() {
    let (mut live, question) = served();
    let newest = live.publication();
    let node = NodeProgress {
        node: "e".into(),
        identity: "i".into(),
        acknowledged: newest,
    };
    for (kind, name, good) in [
        (xds::Kind::Listener, "a/edge:80", false),
        (xds::Kind::Listener, "a/edge:8080", true),
        (xds::Kind::Listener, "a/edge:80/udp", true),
        (xds::Kind::Route, "a/edge:80|*.example.org", false),
        (xds::Kind::Route, "a/edge:80|*.example.net", true),
        (xds::Kind::Scope, "a/edge:80|a.example.org", false),
        (xds::Kind::Scope, "a/edge:80|b.example.org", true),
    ] {
        let view = View::new("v");
        let version = Arc::from("1");
        let text = Arc::from("no room");
        let rejected = Rejection {
            view,
            node: "e".into(),
            kind,
            name: name.into(),
            part: None,
            version,
            text,
        };
        live.set_others(live.views.each(|_| vec![node.clone()]), vec![rejected]);
        let explanation = live.explain(&question, true);
        assert_eq!(explanation.ok(), good, "{name}: {explanation:?}");
    }
}

/// A certificate for `*.example.org` that lasts from 1970 on.
pub(super) fn wildcard_certificate() -> Change {
    let certificate = Certificate {
        leaf: b"leaf".as_slice().into(),
        issuers: Arc::from(""),
        key: PrivateKey::new(b"key"),
        names: vec![Hostname::parse("*.example.org").expect("a hostname")],
        not_before: SystemTime::UNIX_EPOCH,
        not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(100 * 24 * 60 * 60),
        issuer: Arc::from("test"),
    };
    Change::put(Object::Secret(Secret::with_certificate(
        ObjectName::new("a", "cert"),
        Arc::new(certificate),
    )))
}

#[test]
fn a_certificate_that_an_envoy_refused_fails_in_explain_and_is_told_in_the_list() {
    for (hostname, secret) in [
        ("*.example.org", "sds/a/edge:443/*.example.org"),
        ("web.example.org", "web.example.org"),
    ] {
        let mut live = live();
        apply(&mut live, wildcard_certificate());
        let listener = json!({"name": "l", "protocol": "HTTPS", "port": 443, "hostname": hostname,
            "tls": {"certificateRefs": [{"name": "cert"}]}});
        put(
            &mut live,
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "a"}, "spec": {"gatewayClassName": "g", "listeners": [listener]}}),
        );
        let filter = json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}});
        put(
            &mut live,
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "web", "namespace": "a"}, "spec": {"parentRefs": [{"name": "edge"}],
                "rules": [{"filters": [filter]}]}}),
        );
        let newest = live.publication();
        envoys(&mut live, &[newest]);
        let question = Question::get(true, "web.example.org", 443);
        assert!(
            live.explain(&question, true).ok(),
            "{:?}",
            live.explain(&question, true)
        );
        assert_eq!(
            live.brought_certificates(&Visibility::Everything)[0].last_error,
            None
        );
        let rejected = Rejection {
            view: View::new("v"),
            node: Arc::from("envoy"),
            kind: xds::Kind::Secret,
            name: Arc::from(secret),
            part: None,
            version: Arc::from("1"),
            text: Arc::from("no key usage"),
        };
        live.others.1 = vec![rejected];
        let explanation = live.explain(&question, true);
        let last = explanation.links.last().expect("links");
        assert_eq!(last.what, "certificate", "{explanation:?}");
        assert!(!last.ok, "{explanation:?}");
        assert!(
            last.text.contains("refused by Envoy: no key usage"),
            "{}",
            last.text
        );
        let rows = live.brought_certificates(&Visibility::Everything);
        assert_eq!(rows.len(), 1, "one Secret: {rows:?}");
        assert_eq!(
            rows[0].last_error.as_deref(),
            Some("refused by Envoy: no key usage")
        );
    }
}
