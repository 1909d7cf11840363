//! Tests of hostnames between a Gateway's own namespace and those that it admits, and of what the
//! routes are told that do not answer for theirs.

use super::*;

/// `gatewright.io/HostnameWarning` of a route: its reason and message; empty without one.
fn warned(site: &Site, route: &Value) -> (&'static str, String) {
    let of = |field: &str| {
        route["metadata"][field]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    let key = ObjectKey::new(
        Kind::HTTPRoute,
        ObjectName::new(of("namespace"), of("name")),
    );
    let StatusBody::Route(status) = site.engine.status(&key).expect("a status").body else {
        panic!("a route's")
    };
    let mut conditions = status.parents.iter().flat_map(|(_, all)| all);
    let found = conditions.find(|condition| condition.kind == ConditionType::HostnameWarning);
    found.map_or(("", String::new()), |found| {
        (found.reason.as_str(), found.message.clone())
    })
}

/// A site whose Gateway, with a listener for `*.x.org`, admits ListenerSets of all namespaces.
fn site(listeners: &[(&str, u16, &str, &str)]) -> Site {
    let mut site = Site::new(Fleet::Own, Recording::ThisProcess);
    site.put(admitting(listeners));
    site
}

fn admitting(listeners: &[(&str, u16, &str, &str)]) -> Value {
    let mut gateway = gateway(listeners);
    gateway["spec"]["allowedListeners"] = json!({"namespaces": {"from": "All"}});
    gateway
}

/// The namespace that has a hostname among those that the Gateway admits.
fn owner(site: &Site, hostname: &str) -> Option<String> {
    let records = site.engine.ledger().records();
    let mut found = records.iter().filter(|(what, owner)| {
        owner.released.is_none()
            && matches!(what, Ownable::Admitted(_, name) if *name == super::name(hostname))
    });
    found.next().map(|(_, owner)| owner.namespace.to_string())
}

const WIDE: (&str, u16, &str, &str) = ("wide", 80, "HTTP", "*.x.org");

#[test]
fn a_live_host_of_the_gateways_namespace_does_not_move_to_one_that_it_admits() {
    let mut site = site(&[WIDE]);
    let beta = route("infra", 9, "", &["beta.x.org", "a.team.x.org"], "/");
    site.put(beta.clone());
    site.apply(set("mallory", 1, &[("l", 80, "HTTP", "beta.x.org")]));
    assert_eq!(site.served(80, "beta.x.org"), "infra", "by its name");
    site.apply(set("mallory", 1, &[("l", 80, "HTTP", "*.team.x.org")]));
    assert_eq!(site.served(80, "a.team.x.org"), "infra", "by a wildcard");
    let path = route("mallory", 1, "", &["beta.x.org"], "/login");
    site.put(path.clone());
    assert_eq!(site.served(80, "beta.x.org"), "infra", "by a path");
    assert_eq!(site.told(&path).0, "HostnameConflict");
    assert_eq!(warned(&site, &beta).0, "", "nothing is lost");
    // The name is free once the route gave it up, and the reservation has ended.
    site.delete(&beta);
    site.now += Duration::from_secs(3600);
    site.apply(Vec::new());
    assert_eq!(site.served(80, "beta.x.org"), "mallory", "it is free");
    assert_eq!(site.served(80, "a.team.x.org"), "mallory", "it is free");
}

#[test]
fn a_redirect_of_the_gateways_namespace_keeps_no_host_from_others() {
    let mut site = site(&[WIDE]);
    let mut redirect = route("infra", 1, "", &["beta.x.org"], "/");
    redirect["spec"]["rules"] = json!([{"filters": [
        {"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]}]);
    site.put(redirect);
    site.apply(set("alice", 9, &[("l", 80, "HTTP", "beta.x.org")]));
    assert_eq!(site.served(80, "beta.x.org"), "alice");
}

#[test]
fn a_route_is_told_of_the_listener_that_was_first_and_of_its_end() {
    let mut site = site(&[WIDE]);
    let hers = set("alice", 1, &[("l", 80, "HTTP", "beta.x.org")]);
    site.apply(hers.clone());
    let beta = route("infra", 9, "wide", &["beta.x.org"], "/");
    site.put(beta.clone());
    assert_eq!(site.served(80, "beta.x.org"), "alice", "she was first");
    let (reason, text) = warned(&site, &beta);
    assert_eq!(reason, "ServedElsewhere");
    assert!(
        text.starts_with("beta.x.org on port 80: listener l of listenerset alice/set has it"),
        "the owner of the Gateway knows whom it admits: {text}"
    );
    let third = route("mallory", 9, "wide", &["beta.x.org", "m.x.org"], "/");
    site.put(third.clone());
    assert_eq!(site.told(&third).0, "HostnameConflict");
    let gone = match &hers[0] {
        Change::Object(ObjectChange::Put(object)) => object.key(),
        _ => panic!("an object"),
    };
    site.apply(vec![Change::delete(gone)]);
    assert_eq!(site.served(80, "beta.x.org"), "infra");
    assert_eq!(warned(&site, &beta).0, "", "it is served again");
}

#[test]
fn a_tenant_is_told_of_another_one_without_its_name() {
    let mut site = site(&[WIDE]);
    let hers = route("alice", 1, "wide", &["a.team.x.org"], "/");
    site.put(hers.clone());
    site.apply(set("mallory", 9, &[("l", 80, "HTTP", "*.team.x.org")]));
    let (reason, text) = warned(&site, &hers);
    assert_eq!(reason, "ServedElsewhere", "a narrower listener takes it");
    assert!(
        !text.contains("mallory") && text.contains("another namespace"),
        "{text}"
    );
    // A listener of the Gateway itself is named to everybody whom it admits.
    site.put(admitting(&[WIDE, ("exact", 80, "HTTP", "b.x.org")]));
    let other = route("alice", 1, "wide", &["b.x.org"], "/b");
    site.put(other.clone());
    let (_, text) = warned(&site, &other);
    assert!(
        text.contains("listener exact of gateway infra/edge has it"),
        "{text}"
    );
}

#[test]
fn who_shares_a_hostname_is_told_unless_it_is_meant() {
    let mut site = site(&[("one", 80, "HTTP", "s.x.org")]);
    let own = route("infra", 1, "one", &[], "/");
    let hers = route("alice", 2, "one", &[], "/a");
    site.put(own.clone());
    site.put(route("infra", 1, "one", &[], "/more"));
    assert_eq!(warned(&site, &own).0, "", "routes of one namespace share");
    site.put(hers.clone());
    let (reason, text) = warned(&site, &own);
    assert_eq!(reason, "SharedHostname");
    assert!(text.contains("httproute alice/r-a answers"), "{text}");
    let (reason, text) = warned(&site, &hers);
    assert_eq!(reason, "SharedHostname");
    assert!(
        text.contains("a route of the Gateway's namespace"),
        "{text}"
    );
    site.delete(&hers);
    assert_eq!(warned(&site, &own).0, "", "it is alone again");
}

/// `gatewright claims` reads the record.
#[test]
fn the_record_names_nobody_whose_listener_is_refused() {
    let pay = ("pay", 80, "HTTP", "pay.x.org");
    let mut site = site(&[WIDE, pay]);
    site.apply(set("mallory", 1, &[("l", 80, "HTTP", "pay.x.org")]));
    assert_eq!(owner(&site, "pay.x.org"), None, "it is the Gateway's own");
    site.put(admitting(&[WIDE]));
    assert_eq!(
        owner(&site, "pay.x.org").as_deref(),
        Some("mallory"),
        "it is free"
    );
    assert_eq!(site.served(80, "pay.x.org"), "mallory");
    site.put(admitting(&[WIDE, pay]));
    assert_eq!(
        owner(&site, "pay.x.org"),
        None,
        "the Gateway's listener precedes"
    );
    // Another port is another listener.
    site.apply(set("mallory", 1, &[("l", 81, "HTTP", "pay.x.org")]));
    assert_eq!(owner(&site, "pay.x.org").as_deref(), Some("mallory"));
    assert_eq!(site.served(81, "pay.x.org"), "mallory");
}

#[test]
fn a_route_for_every_host_is_told_of_the_first_listeners_of_others_whatever_their_number() {
    let mut site = site(&[("any", 80, "HTTP", "")]);
    let all = route("infra", 1, "", &[], "/");
    site.put(all.clone());
    let hosts: Vec<String> = (10..60).map(|at| format!("h{at}.x.org")).collect();
    let mut worked = Vec::new();
    for namespace in 0..4 {
        let names: Vec<String> = hosts
            .iter()
            .map(|host| format!("{namespace}.{host}"))
            .collect();
        let listeners: Vec<(&str, u16, &str, &str)> = names
            .iter()
            .map(|name| (&**name, 80, "HTTP", &**name))
            .collect();
        site.apply(set(&format!("n{namespace}"), 1, &listeners));
        // One more, behind the first ones.
        let before = site.engine.counters();
        site.apply(set(
            &format!("m{namespace}"),
            1,
            &[("z", 80, "HTTP", &format!("{namespace}.z.x.org"))],
        ));
        worked.push(site.engine.counters().statuses - before.statuses);
    }
    let (reason, text) = warned(&site, &all);
    assert_eq!(reason, "NarrowerHostnames");
    assert!(text.len() < 512 && text.ends_with(", more"), "{text}");
    assert!(
        text.contains("0.h10.x.org (listener 0.h10.x.org of listenerset n0/set)"),
        "{text}"
    );
    assert_eq!(
        worked[3], worked[1],
        "the work for one does not grow: {worked:?}"
    );
    let hers = route("n0", 1, "", &[], "/set");
    assert_eq!(
        warned(&site, &hers).0,
        "",
        "others serve what nobody else has"
    );
}
