//! Plans of hostnames that other objects than their own tell apart: each was once announced wrong,
//! or held to be.

use std::collections::BTreeSet;
use std::path::Path;

use gatewright::manifest::parse;
use gatewright::plan::{Change, Effect, HostChange, Plan};
use gatewright_core::inputs::{Object, ObjectKey};

use super::{Live, Seen, announced, check};

const HTTP: &str =
    "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}";

fn http(host: &str) -> String {
    HTTP.replace("name: http", &format!("name: http, hostname: '{host}'"))
}

/// A listener with a certificate, for every name without a `host`.
fn https(host: &str) -> String {
    let hostname = if host.is_empty() {
        String::new()
    } else {
        format!("hostname: '{host}', ")
    };
    format!(
        "{{name: https, port: 443, protocol: HTTPS, {hostname}tls: {{certificateRefs: [{{name: own}}]}}, \
         allowedRoutes: {{namespaces: {{from: All}}}}}}"
    )
}

fn gateway(namespace: &str, class: &str, listeners: &[&str]) -> Object {
    object(&format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: g, namespace: {namespace}}}, \
         spec: {{gatewayClassName: {class}, allowedListeners: {{namespaces: {{from: All}}}}, listeners: [{}]}}}}",
        listeners.join(", ")
    ))
}

/// A ListenerSet of Gateway `a/g`.
fn set(namespace: &str, listener: &str) -> Object {
    object(&format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, metadata: {{name: s, namespace: {namespace}}}, \
         spec: {{parentRef: {{name: g, namespace: a}}, listeners: [{listener}]}}}}"
    ))
}

/// A route of a namespace, at the Gateway or ListenerSet of another.
fn route(namespace: &str, (kind, of): (&str, &str), hosts: &str) -> Object {
    let name = if kind == "Gateway" { "g" } else { "s" };
    object(&format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {{name: r, namespace: {namespace}}}, \
         spec: {{parentRefs: [{{kind: {kind}, name: {name}, namespace: {of}}}], hostnames: [{hosts}], \
         rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}}}"
    ))
}

fn object(text: &str) -> Object {
    let mut parsed = parse(Path::new("site.yaml"), text);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    parsed.objects.remove(0).1
}

fn put(objects: Vec<Object>) -> Change {
    Change {
        put: objects,
        ..Change::default()
    }
}

fn delete(object: &Object) -> Change {
    Change {
        delete: BTreeSet::<ObjectKey>::from([object.key()]),
        ..Change::default()
    }
}

/// The plan of a change of a site whose objects are of one age after the other. It is checked that
/// it happens.
fn plan(site: Vec<Object>, change: Change) -> Plan {
    let mut live = Live::new();
    for object in site {
        live.apply(put(vec![object]));
    }
    let plan = live.plan(change.clone());
    let before = Seen::of(&live);
    live.apply(change);
    let checked = check(&plan, &before, &Seen::of(&live));
    assert!(checked.is_ok(), "{checked:?}: {plan:#?}");
    plan
}

fn host<'a>(plan: &'a Plan, hostname: &str) -> &'a HostChange {
    announced(plan, hostname).unwrap_or_else(|| panic!("{hostname} is not announced: {plan:#?}"))
}

/// The ports on which something is announced, with the effects there.
fn places(host: &HostChange) -> Vec<(u16, Vec<Effect>)> {
    let places = host.places.iter().map(|place| {
        let shown = place.before.as_ref().or(place.after.as_ref());
        let port = shown.and_then(|shown| shown.port).expect("it may be read");
        (port, place.effects.iter().copied().collect())
    });
    places.collect()
}

#[test]
fn a_redirect_ends_with_the_route_of_a_listener_set_that_it_led_to() {
    let of_set = route("a", ("ListenerSet", "c"), "'*.x.org'");
    let site = vec![
        gateway("a", "redirecting", &[HTTP]),
        set("c", &https("")),
        of_set.clone(),
    ];
    let plan = plan(site, delete(&of_set));
    let expected = [(80, vec![Effect::Ends]), (443, vec![Effect::Ends])];
    assert_eq!(places(host(&plan, "*.x.org")), expected);
}

#[test]
fn a_redirect_that_a_listener_set_brings_about_is_announced_for_its_hosts_alone() {
    let site = vec![
        route("a", ("ListenerSet", "a"), "h.x.org"),
        gateway("a", "plain", &[HTTP]),
        set("a", &https("")),
    ];
    let plan = plan(site, put(vec![gateway("a", "redirecting", &[HTTP])]));
    assert_eq!(plan.hosts.len(), 1, "{:#?}", plan.hosts);
    let expected = [(80, vec![Effect::Appears])];
    assert_eq!(places(host(&plan, "h.x.org")), expected);
}

#[test]
fn a_host_that_was_redirected_and_still_is_changes_nothing() {
    let listeners = [https("g.x.org"), HTTP.to_owned()];
    let site = vec![
        route("a", ("Gateway", "a"), ""),
        gateway("a", "redirecting", &[&listeners[0], &listeners[1]]),
    ];
    let plan = plan(site, put(vec![route("a", ("Gateway", "a"), "g.x.org")]));
    assert_eq!(plan.hosts.len(), 1, "{:#?}", plan.hosts);
    assert_eq!(places(host(&plan, "*")), [(80, vec![Effect::Ends])]);
}

#[test]
fn a_host_is_redirected_to_https_whatever_redirect_a_wider_one_has() {
    let forwards = route("a", ("Gateway", "a"), "");
    let elsewhere = object(
        "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: r, namespace: a}, \
         spec: {parentRefs: [{name: g}], rules: [{filters: [{type: RequestRedirect, \
         requestRedirect: {hostname: elsewhere.org}}]}]}}",
    );
    let listeners = [https("h.x.org"), HTTP.to_owned()];
    let site = vec![
        forwards,
        gateway("a", "redirecting", &[&listeners[0], &listeners[1]]),
    ];
    let plan = plan(site, put(vec![elsewhere]));
    let ports: Vec<u16> = places(host(&plan, "h.x.org"))
        .into_iter()
        .map(|(port, _)| port)
        .collect();
    assert_eq!(ports, [443], "{:#?}", plan.hosts);
}

#[test]
fn a_host_ends_where_a_namespace_that_claims_it_elsewhere_becomes_its_owner() {
    let site = vec![
        gateway("a", "plain", &[&https("")]),
        route("b", ("Gateway", "b"), "h.x.org"),
        route("a", ("ListenerSet", "b"), ""),
        set("b", HTTP),
    ];
    let plan = plan(site, put(vec![gateway("b", "plain", &[HTTP])]));
    let host = host(&plan, "h.x.org");
    assert!(host.effects.contains(&Effect::Ends), "{host:#?}");
    assert!(plan.loses(), "it was answered on port 80");
}

#[test]
fn a_host_changes_hands_with_the_gateway_that_holds_its_port() {
    let site = vec![
        set("c", &http("h.x.org")),
        route("b", ("Gateway", "b"), ""),
        gateway("b", "plain", &[HTTP]),
        route("c", ("ListenerSet", "c"), ""),
    ];
    let change = vec![
        gateway("a", "plain", &[&http("g.x.org")]),
        gateway("b", "plain", &[&https("")]),
    ];
    let plan = plan(site, put(change));
    let host = host(&plan, "h.x.org");
    assert!(host.effects.contains(&Effect::ChangesHands), "{host:#?}");
    assert!(plan.loses(), "namespace b loses it");
}

#[test]
fn a_listener_without_routes_ends_what_a_wider_one_served() {
    let site = vec![
        route("a", ("Gateway", "a"), ""),
        gateway("a", "plain", &[&https("")]),
    ];
    let plan = plan(site, put(vec![set("a", &https("*.x.org"))]));
    assert_eq!(
        places(host(&plan, "*.x.org")),
        [(443, vec![Effect::Ends])],
        "connections for it are of the new listener"
    );
}

#[test]
fn a_host_is_answered_once_nobody_owns_a_wildcard_over_it() {
    let site = vec![
        set("b", HTTP),
        set("c", &https("*.x.org")),
        route("a", ("ListenerSet", "b"), "k.h.x.org"),
        gateway("a", "plain", &[&http("h.x.org")]),
    ];
    let plan = plan(site, put(vec![set("c", &http("h.x.org"))]));
    let expected = [(80, vec![Effect::Appears])];
    assert_eq!(places(host(&plan, "k.h.x.org")), expected);
}
