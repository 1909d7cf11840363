//! Tests of how many hosts a Gateway, a certificate and a status have.

use super::*;

/// ListenerSets may become available later, and hosts without room then get a place.
#[test]
fn hosts_without_room_have_it_once_listener_sets_can_be_written() {
    let mut engine = engine();
    engine.apply(vec![Change::Fact(Fact::ListenerSets(false))]);
    engine.apply(tenant_with_namespaces(json!({"apex": "a.org"})));
    engine.apply((0..70).map(host).collect());
    assert_eq!(listeners(&engine).len(), 64, "the Gateway is full");
    assert_eq!(sets(&engine), 0, "no ListenerSet is written");
    engine.apply(vec![Change::Fact(Fact::ListenerSets(true))]);
    assert_eq!(listeners(&engine).len(), 64, "the Gateway is full");
    assert_eq!(sets(&engine), 1, "the others are in a ListenerSet");
}

fn sets(engine: &Tenancy) -> usize {
    engine
        .objects()
        .keys()
        .filter(|d| d.kind == DerivedKind::ListenerSet)
        .count()
}

/// The size of a status is bounded, regardless of the number of hosts, and its counts include all
/// of them.
#[test]
fn a_status_does_not_grow_with_hosts() {
    let mut engine = engine();
    engine.apply(tenant_with_namespaces(json!({"apex": "a.org"})));
    engine.apply((0..1000).map(host).collect());
    let ready = Listening {
        accepted: true,
        programmed: true,
        resolved: true,
    };
    let all = engine
        .status(&name(), &|derived| look(derived, false, &engine, &ready))
        .expect("it is there");
    assert!(all.ready, "the tenant is ready");
    assert_eq!(all.listeners.len(), 64, "the list has its limit");
    assert_eq!(
        &*all.message, "all 1001 listeners are ready",
        "all are counted"
    );
    let few = engine
        .status(&name(), &|derived| look(derived, true, &engine, &ready))
        .expect("it is there");
    assert!(
        few.ready
            && few
                .message
                .starts_with("937 of 1001 listeners are not ready: "),
        "{}",
        few.message
    );
    assert_eq!(few.listeners.len(), 128);
    let none = engine.status(&name(), &|_| None).expect("it is there");
    assert!(!none.ready, "the tenant is not ready");
    assert_eq!(none.reason, "GatewayNotAccepted", "because of the Gateway");
    assert_eq!(none.listeners.len(), 64, "the list has its limit");
}

fn look(
    derived: &Derived,
    gateway_alone: bool,
    engine: &Tenancy,
    ready: &Listening,
) -> Option<Arc<ParentState>> {
    let listeners = engine.objects().get(derived)?.listeners().iter();
    let told = listeners.filter(|_| derived.kind == DerivedKind::Gateway || !gateway_alone);
    let listeners = told
        .map(|listener| (listener.name.clone(), *ready))
        .collect();
    Some(Arc::new(ParentState {
        accepted: true,
        programmed: true,
        listeners,
        ..Default::default()
    }))
}

#[test]
fn of_more_children_than_a_certificate_has_names_for_the_others_are_told() {
    let mut engine = engine();
    // With another data plane, their bare apexes would have listeners of their own, and routes
    // would have to name ListenerSets.
    let spec = json!({"apex": "a.org", "certMode": "dns01", "gatewayClassName": "gatewright", "dns01": {
        "provider": "cloudflare", "cloudflare": {"apiTokenSecretRef": {"name": "t", "key": "k"}}}});
    let mut changes = vec![
        namespace("tenant-a", "tenant-a", "a.org"),
        tenant("tenant-a", spec),
    ];
    for n in 10..70 {
        let child = format!("tenant-a-{n}");
        changes.push(namespace(&child, "tenant-a", &format!("c{n}.a.org")));
        changes.push(http(
            &child,
            "r",
            &[&format!("x.c{n}.a.org"), &format!("c{n}.a.org")],
        ));
    }
    engine.apply(changes.clone());
    let certificate = Derived {
        kind: DerivedKind::Certificate,
        name: ObjectName::new("tenant-a", "cozystack-gateway-tls"),
    };
    let document = engine.objects()[&certificate].document();
    let names = document["spec"]["dnsNames"].as_array().expect("names");
    assert_eq!(names.len(), 100);
    assert_eq!(
        engine.readiness(&name()).map(|readiness| readiness.reason),
        Some("TooManyNames")
    );
    let told: Vec<bool> = (10..70)
        .map(|n| reason(&engine, &format!("tenant-a-{n}"), "r") == "Accepted")
        .collect();
    assert_eq!(told.iter().filter(|accepted| **accepted).count(), 49);
    for (n, accepted) in (10..70).zip(told) {
        assert_eq!(
            accepted,
            names.contains(&json!(format!("*.c{n}.a.org"))),
            "{n}"
        );
    }
    // After one is removed, the next has room.
    engine.apply(vec![gone(namespace("tenant-a-10", "", ""))]);
    let served = (10..70)
        .filter(|n| reason(&engine, &format!("tenant-a-{n}"), "r") == "Accepted")
        .count();
    assert_eq!(served, 49);
    // A new first one takes nothing from those that are served, now or after a restart.
    let first = [
        namespace("tenant-a-01", "tenant-a", "a01.a.org"),
        http("tenant-a-01", "r", &["x.a01.a.org"]),
    ];
    engine.apply(first.to_vec());
    assert_eq!(
        reason(&engine, "tenant-a-01", "r"),
        "CertificateLimitReached"
    );
    let live = view(&engine);
    let mut again = self::engine();
    let existing = existing_objects(&engine);
    changes
        .retain(|change| !matches!(change, Change::Namespace(name, _) if **name == *"tenant-a-10"));
    again.apply([changes, first.into(), existing].concat());
    assert_eq!(view(&again), live);
}

#[test]
fn names_at_their_limits_give_names_that_are_none_too_long() {
    let mut engine = engine();
    let apex = format!("{}org", "a.".repeat(90));
    let label = "l".repeat(63);
    let long = "n".repeat(63);
    let value = json!({"metadata": {"namespace": "tenant-a", "name": long, "uid": "u"}, "spec": {"apex": apex,
        "tlsPassthroughServices": ["p".repeat(63)]}});
    let given = TenantGateway::parse(&value).expect("a TenantGateway");
    let value = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "tenant-a", "name": "r"},
        "spec": {"hostnames": [format!("{label}.{apex}")], "parentRefs": [{"name": long}], "rules": []}});
    let Object::Route(route) = Object::parse(value).expect("a route") else {
        unreachable!("a route")
    };
    let route = Claimant::from(&route);
    let changes = vec![
        namespace("tenant-a", "tenant-a", &apex),
        Change::TenantGateway(given.name.clone(), Some(given)),
        Change::Claimant(route.key.clone(), Some(route)),
    ];
    engine.apply(changes);
    assert_eq!(
        engine
            .verdicts()
            .filter(|(.., verdict)| verdict.is_accepted())
            .count(),
        1
    );
    assert_eq!(
        engine.objects().len(),
        4,
        "Gateway, redirect, Issuer, Certificate"
    );
    for (derived, desired) in engine.objects() {
        assert!(derived.name.name.len() <= 253, "{derived:?}");
        let document = desired.document();
        let labels = document["metadata"]["labels"].as_object().expect("labels");
        assert!(
            labels
                .values()
                .all(|value| value.as_str().is_some_and(|value| value.len() <= 63)),
            "{document}"
        );
        assert!(
            desired
                .listeners()
                .iter()
                .all(|listener| listener.name.len() <= 253),
            "{document}"
        );
        assert!(
            desired
                .object()
                .is_none_or(|given| given == Object::parse(document).expect("an object"))
        );
    }
}
