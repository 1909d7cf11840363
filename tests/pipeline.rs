//! Properties of both stages together: after every change, routes of the owner of a hostname are
//! served, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use gatewright_core::inputs::{Kind, Object, ObjectKey, RouteKind};
use gatewright_core::model::{ConditionType, Hostname, ObjectName, Reason, Status};
use gatewright_core::ownership::Recording;
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::translate::{Change, Protocol, Settings, StatusBody};
use gatewright_core::{statuses, tenancy};
use proptest::prelude::*;
use serde_json::{Value, json};

fn object(value: Value) -> Object {
    let text = value.to_string();
    Object::parse(value).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn pipeline(recording: Option<Recording>) -> Pipeline {
    let settings = Settings::new("ours", vec!["127.0.0.1".parse().expect("an address")]);
    let tenancy = tenancy::Settings {
        certificates: tenancy::Source::Acme,
        recording,
        ..tenancy::Settings::default()
    };
    let mut pipeline = Pipeline::new(settings, tenancy, Written::Here);
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "cilium"}, "spec": {"controllerName": "ours"}});
    let namespaces = [
        ("tenant-a", "a.org"),
        ("tenant-b", "a.org"),
        ("tenant-c", "c.a.org"),
        ("cozy-x", "a.org"),
    ];
    let namespaces = namespaces.map(|(name, host)| {
        object(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
            "namespace.cozystack.io/gateway": "tenant-a", "namespace.cozystack.io/host": host}}}),
        )
    });
    let all = std::iter::once(object(class))
        .chain(namespaces)
        .chain([tenant(0)]);
    pipeline.apply(all.map(Change::put).collect(), SystemTime::UNIX_EPOCH);
    pipeline
}

/// A TenantGateway in one of its modes.
fn tenant(mode: usize) -> Object {
    let specs = [
        json!({"apex": "a.org"}),
        json!({"apex": "a.org", "certMode": "existingSecret", "wildcardSecretRef": {"name": "w"}}),
        json!({"apex": "a.org", "tlsPassthroughServices": ["api"]}),
        json!({"apex": "A.org"}),
    ];
    object(
        json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
        "metadata": {"namespace": "tenant-a", "name": "cozystack"}, "spec": specs[mode % specs.len()]}),
    )
}

fn route(kind: &str, namespace: &str, name: &str, parent: &str, hostnames: &[&str]) -> Object {
    let set = parent.contains("overflow");
    object(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"hostnames": hostnames, "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
            "parentRefs": [{"kind": if set { "ListenerSet" } else { "Gateway" },
                "namespace": "tenant-a", "name": parent}]}}),
    )
}

/// Returns the namespaces of the routes that are served under each hostname of a TLS port.
fn served(pipeline: &Pipeline) -> BTreeMap<String, Vec<String>> {
    let engine = pipeline.engine();
    let hosts = engine
        .hosts()
        .into_iter()
        .filter(|host| host.protocol != Protocol::Http);
    let all = hosts.map(|host| (host.hostname.to_string(), engine.tenants(&host)));
    all.filter(|(_, tenants)| !tenants.is_empty()).collect()
}

/// Returns the owner of a hostname, or of the closest wildcard over it.
fn owner(pipeline: &Pipeline, hostname: &str) -> Option<String> {
    let tenant = ObjectName::new("tenant-a", "cozystack");
    let hostname = Hostname::parse(hostname).expect("a hostname");
    let mut names = std::iter::once(hostname.clone()).chain(hostname.covering());
    let owner = names.find_map(|name| pipeline.tenancy().owner(&tenant, &name))?;
    Some(owner.name.namespace.to_string())
}

/// Returns a ListenerSet with a listener for each hostname, named by its first label.
fn listener_set(name: &str, hostnames: &[&str]) -> Object {
    let listener = |hostname: &&str| {
        let tls = json!({"certificateRefs": [{"name": "own"}]});
        json!({"name": hostname.split('.').next(), "port": 443, "protocol": "HTTPS", "hostname": hostname, "tls": tls})
    };
    let spec = json!({"parentRef": {"name": "cozystack"}, "listeners": hostnames.iter().map(listener).collect::<Vec<_>>()});
    object(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
        "metadata": {"namespace": "tenant-a", "name": name}, "spec": spec}),
    )
}

fn change() -> impl Strategy<Value = (Object, bool)> {
    let pick = |options: &'static [&'static str]| proptest::sample::select(options);
    let hosts = pick(&[
        "x.a.org",
        "y.a.org",
        "x.c.a.org",
        "*.c.a.org",
        "*.a.org",
        "api.a.org",
        "a.org",
        "z.org",
    ]);
    let spaces = pick(&["tenant-a", "tenant-b", "tenant-c", "cozy-x", "stranger"]);
    let parents = pick(&["cozystack", "cozystack", "cozystack-overflow-1"]);
    let routes = (
        spaces,
        pick(&["r", "q"]),
        parents,
        proptest::collection::vec(hosts, 0..3),
        any::<bool>(),
    )
        .prop_map(|(namespace, name, parent, hosts, tls)| {
            if tls && !hosts.is_empty() {
                route("TLSRoute", namespace, name, parent, &hosts)
            } else {
                route("HTTPRoute", namespace, name, parent, &hosts)
            }
        });
    prop_oneof![8 => (routes, proptest::bool::weighted(0.25)), 1 => (0usize..4).prop_map(|mode| (tenant(mode), false))]
}

fn step(pipeline: &mut Pipeline, object: Object, gone: bool) {
    let change = if gone {
        Change::delete(object.key())
    } else {
        Change::put(object)
    };
    pipeline.apply(vec![change], SystemTime::UNIX_EPOCH);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_but_the_owner_is_served(changes in proptest::collection::vec(change(), 1..25)) {
        let mut pipeline = pipeline(None);
        for (object, gone) in changes {
            step(&mut pipeline, object, gone);
            for (hostname, tenants) in served(&pipeline) {
                prop_assert_eq!(tenants.len(), 1, "{}: {:?}", hostname, tenants);
                prop_assert_eq!(Some(tenants[0].clone()), owner(&pipeline, &hostname), "{}", hostname);
            }
        }
    }

    #[test]
    fn any_order_serves_the_same(changes in proptest::collection::vec(change(), 1..25)) {
        let mut one = pipeline(None);
        let mut last: BTreeMap<ObjectKey, Object> = BTreeMap::new();
        // A TenantGateway that becomes invalid keeps what was live, which another order cannot
        // reproduce.
        let changes = changes.into_iter().filter(|(object, _)| !matches!(object, Object::TenantGateway(_)));
        for (object, gone) in changes {
            if gone { last.remove(&object.key()) } else { last.insert(object.key(), object.clone()) };
            step(&mut one, object, gone);
        }
        let mut other = pipeline(None);
        for object in last.into_values().rev() {
            step(&mut other, object, false);
        }
        prop_assert_eq!(served(&one), served(&other));
        prop_assert_eq!(one.engine().statuses().collect::<Vec<_>>(), other.engine().statuses().collect::<Vec<_>>());
    }

    #[test]
    fn an_edit_moves_no_host_that_it_does_not_name(changes in proptest::collection::vec(change(), 1..25)) {
        let mut pipeline = pipeline(None);
        let mut last: BTreeMap<ObjectKey, Object> = BTreeMap::new();
        let names = |object: Option<&Object>| -> Vec<Hostname> {
            let Some(Object::Route(route)) = object else { return Vec::new() };
            route.hostnames.iter().flatten().cloned().collect()
        };
        for (object, gone) in changes.into_iter().filter(|(object, _)| matches!(object, Object::Route(_))) {
            let before = served(&pipeline);
            let mut named = names(Some(&object));
            let key = object.key();
            named.extend(names(last.get(&key)));
            if gone { last.remove(&key) } else { last.insert(key, object.clone()) };
            step(&mut pipeline, object, gone);
            let after = served(&pipeline);
            for (hostname, tenants) in before {
                let host = Hostname::parse(&hostname).expect("a hostname");
                if !named.iter().any(|name| name.covers(&host) || host.covers(name)) {
                    prop_assert_eq!(after.get(&hostname), Some(&tenants), "{}", hostname);
                }
            }
        }
    }

    #[test]
    fn the_first_claimant_keeps_a_hostname_until_it_releases_it(changes in proptest::collection::vec(change(), 1..25)) {
        let mut pipeline = pipeline(Some(Recording::ThisProcess));
        let mut claims: BTreeMap<ObjectKey, Object> = BTreeMap::new();
        let changes = changes.into_iter().filter(|(object, _)| matches!(object, Object::Route(_)));
        for (object, gone) in changes {
            let before: BTreeMap<String, Vec<String>> = served(&pipeline);
            if gone { claims.remove(&object.key()) } else { claims.insert(object.key(), object.clone()) };
            step(&mut pipeline, object, gone);
            let after = served(&pipeline);
            let claiming = |hostname: &str| -> BTreeSet<String> {
                let all = claims.values().filter(|object| matches!(object, Object::Route(route)
                    if route.kind == RouteKind::Http
                        && route.hostnames.iter().flatten().any(|name| name.as_str() == hostname)));
                all.map(|object| object.key().name.namespace.to_string()).collect()
            };
            for (hostname, tenants) in before {
                if claiming(&hostname).contains(&tenants[0]) && let Some(now) = after.get(&hostname) {
                    prop_assert_eq!(now, &tenants, "{} was taken from who had it", hostname);
                }
            }
        }
    }
}

#[test]
fn one_route_among_ten_thousand_hosts_and_a_thousand_tenants_redoes_itself_alone() {
    let work = |hosts: usize, tenants: usize| {
        let mut pipeline = pipeline(None);
        let others = (0..tenants).flat_map(|n| {
            let name = format!("other-{n}");
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let tenant = json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
                "metadata": {"namespace": name, "name": "cozystack"}, "spec": {"apex": format!("o{n}.org")}});
            [namespace, tenant].map(object)
        });
        let host = |n: usize| {
            route(
                "HTTPRoute",
                "tenant-a",
                &format!("r{n}"),
                "cozystack",
                &[&format!("h{n}.a.org")],
            )
        };
        let all = others.chain((0..hosts).map(host));
        pipeline.apply(all.map(Change::put).collect(), SystemTime::UNIX_EPOCH);
        // One host more or less in a ListenerSet, and one less in the Gateway itself, whose place
        // the next takes.
        let mut told = Vec::new();
        for change in [
            Change::put(host(hosts)),
            Change::delete(host(hosts / 2).key()),
            Change::delete(host(0).key()),
        ] {
            let before = pipeline.engine().counters();
            let outcome = pipeline.apply(vec![change], SystemTime::UNIX_EPOCH);
            let work = pipeline.engine().counters().since(&before);
            told.push((
                work,
                outcome.delta.resources.len(),
                outcome.tenancy.objects.len(),
            ));
        }
        told
    };
    // Other hosts of the same Gateway or ListenerSet are not even examined.
    for (work, resources, objects) in work(300, 2).into_iter().chain(work(10_000, 1_000)) {
        let most = work
            .attachments
            .max(work.units)
            .max(work.claims)
            .max(work.statuses)
            .max(work.routes);
        // Ten thousand routes are beyond several quotas of their namespace, and each may now serve
        // one or two others.
        assert!(most <= 16, "{work:?}");
        assert!(work.parents <= 1, "{work:?}");
        assert!(
            resources <= 8 && objects <= 3,
            "{resources} resources, {objects} objects"
        );
    }
}

#[test]
fn a_listener_set_stays_as_written_and_is_evaluated_without_what_another_owns() {
    let mut pipeline = pipeline(None);
    let mine = listener_set("mine", &["x.a.org", "y.a.org"]);
    let others = (0..50).map(|n| listener_set(&format!("other-{n}"), &[&format!("o{n}.a.org")]));
    pipeline.apply(
        others.chain([mine.clone()]).map(Change::put).collect(),
        SystemTime::UNIX_EPOCH,
    );
    let Object::ListenerSet(written) = &mine else {
        panic!("a ListenerSet")
    };
    let status = |pipeline: &Pipeline| {
        let (_, mut status) = pipeline
            .engine()
            .statuses()
            .find(|(key, _)| **key == mine.key())
            .expect("the ListenerSet has a status");
        statuses::refused(pipeline.tenancy(), &mine.key(), &mut status);
        let StatusBody::ListenerSet(set) = status.body else {
            panic!("a status of a ListenerSet")
        };
        let names: Vec<String> = set
            .listeners
            .iter()
            .map(|listener| listener.name.to_string())
            .collect();
        let accepted = set
            .conditions
            .iter()
            .find(|condition| condition.kind == ConditionType::Accepted);
        (names, accepted.expect("it has Accepted").reason)
    };
    assert_eq!(
        status(&pipeline),
        (
            vec!["x".to_owned(), "y".to_owned()],
            Reason::ListenersNotValid
        )
    );

    let rival = route("HTTPRoute", "cozy-x", "r", "cozystack", &["x.a.org"]);
    for (change, names, reason) in [
        (
            Change::put(rival.clone()),
            vec!["y"],
            Reason::HostnameConflict,
        ),
        (
            Change::delete(rival.key()),
            vec!["x", "y"],
            Reason::ListenersNotValid,
        ),
    ] {
        let before = pipeline.engine().counters();
        pipeline.apply(vec![change], SystemTime::UNIX_EPOCH);
        let work = pipeline.engine().counters().since(&before);
        assert_eq!(
            status(&pipeline),
            (names.into_iter().map(str::to_owned).collect(), reason)
        );
        let held = pipeline
            .engine()
            .store()
            .listener_set(&written.key())
            .expect("the ListenerSet is there");
        assert_eq!(**held, *written, "as its author wrote it");
        // The Gateway, which gets the listener for x instead, and this ListenerSet.
        assert_eq!(work.parents, 2, "{work:?}");
    }
}

/// The label of a namespace changes before the apex of its TenantGateway does: hosts in the Gateway
/// and hosts in ListenerSets are treated alike. Routes of the namespace itself lose hostnames that
/// its label no longer allows; those of others keep theirs until the apex is corrected.
#[test]
fn hosts_of_a_tenant_whose_label_moved_before_its_apex_are_treated_alike() {
    let tenant = ObjectName::new("tenant-a", "cozystack");
    let moved = object(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-a", "labels": {
        "namespace.cozystack.io/gateway": "tenant-a", "namespace.cozystack.io/host": "b.org"}}}),
    );
    let mended = object(
        json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
        "metadata": {"namespace": "tenant-a", "name": "cozystack"}, "spec": {"apex": "b.org"}}),
    );
    let hosts: Vec<String> = (0..70).map(|number| format!("h{number}.a.org")).collect();
    for (namespace, left) in [("tenant-a", 0), ("tenant-b", hosts.len())] {
        let mut pipeline = pipeline(None);
        let routes: Vec<Object> = hosts
            .iter()
            .map(|host| {
                route(
                    "HTTPRoute",
                    namespace,
                    host.split('.').next().expect("a label"),
                    "cozystack",
                    &[host],
                )
            })
            .collect();
        pipeline.apply(
            routes.iter().cloned().map(Change::put).collect(),
            SystemTime::UNIX_EPOCH,
        );
        let overflow = pipeline
            .tenancy()
            .objects()
            .keys()
            .filter(|key| key.name.name.contains("overflow"));
        assert_eq!(
            served(&pipeline).len(),
            hosts.len(),
            "more than a Gateway has listeners"
        );
        assert_eq!(overflow.count(), 1, "more than a Gateway has listeners");

        step(&mut pipeline, moved.clone(), false);
        assert_eq!(served(&pipeline).len(), left, "routes of {namespace}");
        let told = |pipeline: &Pipeline| {
            let readiness = pipeline.tenancy().readiness(&tenant).expect("it is known");
            (readiness.reason, readiness.frozen)
        };
        assert_eq!(told(&pipeline), ("ApexNotAllowed", true));
        for route in &routes {
            let status = pipeline
                .engine()
                .status(&route.key())
                .expect("it has a parent");
            let accepted = status
                .conditions()
                .find(|condition| condition.kind == ConditionType::Accepted);
            let expected = if left == 0 {
                Reason::HostnameNotAllowed
            } else {
                Reason::Accepted
            };
            assert_eq!(
                accepted.map(|condition| condition.reason),
                Some(expected),
                "{}",
                route.key()
            );
        }

        step(&mut pipeline, mended.clone(), false);
        assert_eq!(served(&pipeline).len(), 0, "nothing is served");
        assert_eq!(told(&pipeline), ("Reconciled", false), "the tenant is told");
    }
}

/// The Gateway of a TenantGateway, as somebody in its namespace would have it: their own routes
/// would come there past tenancy.
#[test]
fn the_gateway_of_a_tenant_gateway_is_no_default_one_whatever_is_written_into_it() {
    let settings = Settings {
        channel: gatewright_core::channel::Channel::Experimental,
        ..Settings::new("ours", vec!["127.0.0.1".parse().expect("an address")])
    };
    let tenancy = tenancy::Settings {
        certificates: tenancy::Source::Acme,
        ..tenancy::Settings::default()
    };
    let mut pipeline = Pipeline::new(settings, tenancy, Written::ToTheCluster);
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "cilium"}, "spec": {"controllerName": "ours", "parametersRef":
            {"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "infra", "name": "open"}}});
    let parameters = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "infra", "name": "open"}, "spec": {"defaultGateways": "Allow"}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-a", "labels": {
        "namespace.cozystack.io/gateway": "tenant-a", "namespace.cozystack.io/host": "a.org"}}});
    let listeners = json!([{"name": "https", "protocol": "HTTPS", "port": 443, "tls": {"certificateRefs": [{"name": "x"}]},
        "allowedRoutes": {"namespaces": {"from": "All"}}}]);
    let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"namespace": "tenant-a", "name": "cozystack"},
        "spec": {"gatewayClassName": "cilium", "defaultScope": "All", "listeners": listeners}});
    let route = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"namespace": "stranger", "name": "r"},
        "spec": {"useDefaultGateways": "All", "hostnames": ["bank.org"], "rules": [{}]}});
    let condition = |pipeline: &Pipeline| {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("tenant-a", "cozystack"));
        let status = pipeline.engine().status(&key).expect("it is ours");
        let found = status
            .conditions()
            .find(|condition| condition.kind == ConditionType::DefaultGateway);
        found.map(|condition| (condition.status, condition.reason))
    };
    let told = |pipeline: &Pipeline| {
        let key = ObjectKey::new(Kind::HTTPRoute, ObjectName::new("stranger", "r"));
        pipeline.engine().status(&key).is_some()
    };
    let objects =
        [class, parameters, namespace, gateway, route].map(|value| Change::put(object(value)));
    pipeline.apply(objects.to_vec(), SystemTime::UNIX_EPOCH);
    assert_eq!(
        condition(&pipeline),
        Some((Status::True, Reason::DefaultGateway)),
        "it is a Gateway as any other"
    );
    assert!(told(&pipeline));
    // It becomes a TenantGateway's, and ceases to be one's.
    pipeline.apply(vec![Change::put(tenant(0))], SystemTime::UNIX_EPOCH);
    assert_eq!(
        condition(&pipeline),
        Some((Status::False, Reason::NotAllowed))
    );
    assert!(!told(&pipeline), "and no route comes to it");
    pipeline.apply(
        vec![Change::delete(tenant(0).key())],
        SystemTime::UNIX_EPOCH,
    );
    assert!(told(&pipeline));
}
