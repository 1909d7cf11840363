//! Tests of parts of a resource that a client refused.

use super::*;

/// A table with a route of alice's, and routes of mallory's that a client may refuse.
fn poisoned(mallorys: usize) -> Resource {
    use envoy_types::pb::envoy::config::route::v3::{
        DirectResponseAction, Route, RouteMatch, VirtualHost, route::Action,
        route_match::PathSpecifier,
    };
    fn host(name: String, author: &str, status: u32) -> VirtualHost {
        VirtualHost {
            domains: vec![name.clone()],
            routes: vec![Route {
                name: format!("httproute/{author}/{name}/0"),
                r#match: Some(RouteMatch {
                    path_specifier: Some(PathSpecifier::Prefix("/".into())),
                    ..Default::default()
                }),
                action: Some(Action::DirectResponse(DirectResponseAction {
                    status,
                    ..Default::default()
                })),
                ..Default::default()
            }],
            name,
            ..Default::default()
        }
    }
    let mallorys = (0..mallorys).map(|number| host(format!("m{number}"), "mallory", 666));
    let virtual_hosts = std::iter::once(host("alice".into(), "alice", 200))
        .chain(mallorys)
        .collect();
    Resource::new(
        "r",
        &RouteConfiguration {
            name: "r".into(),
            virtual_hosts,
            ..Default::default()
        },
    )
}

/// Returns the statuses that a table answers, by virtual host.
fn statuses(resource: &Resource) -> BTreeMap<String, Vec<u32>> {
    use envoy_types::pb::envoy::config::route::v3::route::Action;
    let table = <RouteConfiguration as prost::Message>::decode(resource.body()).expect("a table");
    fn of(action: Option<Action>) -> u32 {
        match action {
            Some(Action::DirectResponse(answer)) => answer.status,
            other => panic!("{other:?}"),
        }
    }
    let hosts = table.virtual_hosts.into_iter();
    hosts
        .map(|host| {
            (
                host.name,
                host.routes
                    .into_iter()
                    .map(|route| of(route.action))
                    .collect(),
            )
        })
        .collect()
}

/// Has a new client subscribe to the table; returns all responses in order until no more come.
fn meet(tables: &mut Tables, refuses: bool) -> Vec<(BTreeMap<String, Vec<u32>>, bool)> {
    let mut session = Session::new(
        Protocol::Delta,
        Arc::new(Limits::default()),
        tables.generation,
    );
    let ask = DeltaRequest {
        subscribe: vec!["r".to_owned()],
        ..Default::default()
    };
    session
        .delta(Kind::Route, ask, tables, Instant::now())
        .expect("within the limits");
    let mut sent = Vec::new();
    while let Some(out) = session.next(tables, Instant::now(), || true) {
        let table = statuses(out.items[0].resource().expect("a table"));
        let is_refused = refuses && table.values().flatten().any(|status| *status == 666);
        sent.push((table, !is_refused));
        let refusal = is_refused.then(|| "no".to_owned());
        session.answer(
            out.kind,
            &out.nonce.to_string(),
            refusal,
            tables,
            Instant::now(),
        );
        for effect in session.take_effects() {
            if let Effect::Suspected { kind, name, held } = effect {
                Arc::make_mut(&mut tables.suspects).set(kind, &name, &held);
            }
        }
    }
    assert_eq!(session.acknowledged(), tables.generation);
    sent
}

#[test]
fn parts_that_one_client_refused_are_sent_last_to_the_next_one() {
    let mut tables = Tables::default();
    tables.apply(1, vec![poisoned(20)], &[], 0);
    let first = meet(&mut tables, true);
    assert!(!first[0].1, "nothing was known of it");
    let suspects = tables.suspects.clone();
    assert!(!suspects.is_empty());

    // The program restarts, and so does its client.
    let mut tables = Tables::default();
    tables.suspects = suspects;
    tables.apply(1, vec![poisoned(20)], &[], 0);
    let next = meet(&mut tables, true);
    assert_eq!(next[0].0["alice"], vec![200], "{next:?}");
    assert!(next[0].1, "{next:?}");
    assert!(next[0].0.values().flatten().all(|status| *status != 666));
    assert!(
        next[1].0.values().flatten().any(|status| *status == 666),
        "it is tried again"
    );
    assert!(
        next.iter().all(|(table, _)| table["alice"] == [200]),
        "alice is never without"
    );
    let (last, is_taken) = next.last().expect("something was sent");
    assert!(
        *is_taken && (0..20).all(|number| last[&format!("m{number}")] == [500]),
        "{last:?}"
    );

    // A newer client accepts it, so that the suspects are cleared.
    let newer = meet(&mut tables, false);
    assert_eq!(newer.len(), 2, "{newer:?}");
    assert!(newer[1].0["m19"] == [666] && tables.suspects.is_empty());
}

#[test]
fn an_incomplete_or_outdated_set_of_suspects_does_no_harm() {
    let mut tables = Tables::default();
    tables.apply(1, vec![poisoned(3)], &[], 0);
    meet(&mut tables, true);
    let suspects = tables.suspects.clone();
    let mut tables = Tables::default();
    tables.suspects = suspects;
    tables.apply(1, vec![poisoned(5)], &[], 0);
    let sent = meet(&mut tables, true);
    let (last, is_taken) = sent.last().expect("something was sent");
    assert!(
        *is_taken && last["alice"] == [200] && last["m0"] == [500] && last["m4"] == [500],
        "{last:?}"
    );
    // Suspects that do not exist any more are ignored.
    tables.apply(2, vec![poisoned(0)], &[], 0);
    assert_eq!(meet(&mut tables, true).len(), 1);
}
