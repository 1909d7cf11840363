//! Tests of the memory that a stream takes, and of secrets that are withdrawn to bound it.

use super::*;

/// Returns the size of a stream's state.
fn weight(session: &Session) -> usize {
    fn of(s: &Subscription) -> usize {
        s.named.len()
            + s.answers.len()
            + s.pending_removals.len()
            + s.withdrawn.len()
            + s.older.len()
            + s.quarantine.len()
            + s.probes.iter().map(Vec::len).sum::<usize>()
            + s.in_flight.iter().map(|f| f.items.len()).sum::<usize>()
    }
    let unsent = session
        .round
        .iter()
        .flat_map(|r| r.unsent.values())
        .map(VecDeque::len)
        .sum::<usize>();
    session.subscriptions().map(of).sum::<usize>()
        + session.deferred.len()
        + session.warming.len()
        + unsent
}

#[test]
fn the_memory_of_a_stream_does_not_grow_with_its_view() {
    for n in [10, 5_000] {
        let many = (0..n).flat_map(|i| [cluster(&format!("c{i}"), ""), secret(&format!("h{i}"))]);
        let mut chat = Chat::new(Limits::default(), many.collect());
        chat.subscribe(Kind::Cluster, &[]);
        chat.subscribe(Kind::Secret, &["h1", "h2"]);
        chat.settle();
        assert_eq!(
            weight(&chat.session),
            2,
            "the two names it asked for, beside {n} clusters and {n} secrets"
        );
        chat.publish(
            (0..n).map(|i| cluster(&format!("c{i}"), "new")).collect(),
            &[(Kind::Cluster, "c3")],
        );
        chat.settle();
        assert_eq!(weight(&chat.session), 2);
    }
}

#[test]
fn the_least_recently_requested_secrets_are_withdrawn() {
    let limits = Limits {
        on_demand_secrets: 3,
        ..Default::default()
    };
    let mut chat = Chat::new(
        limits,
        ["a", "b", "c", "d", "sds/r"]
            .into_iter()
            .map(secret)
            .collect(),
    );
    for name in ["sds/r", "a", "b", "c"] {
        chat.subscribe(Kind::Secret, &[name]);
        chat.settle();
    }
    // A repeated request counts; the regular secret, although the oldest, is exempt.
    chat.subscribe(Kind::Secret, &["a"]);
    chat.settle();
    chat.subscribe(Kind::Secret, &["d"]);
    let said: Vec<Said> = chat.settle().into_iter().flatten().collect();
    assert_eq!(said, [gone(Kind::Secret, "b"), new(Kind::Secret, "d")]);
    let evicted = chat
        .session
        .subscription(Kind::Secret)
        .expect("subscribed")
        .named
        .keys()
        .map(|n| n.to_string());
    assert_eq!(
        evicted.collect::<BTreeSet<_>>(),
        ["a", "c", "d", "sds/r"].map(str::to_owned).into()
    );
}

#[test]
fn secrets_are_withdrawn_by_the_memory_that_they_take_also_when_they_grow() {
    fn sized(name: &str, bytes: usize) -> Resource {
        let message = Secret {
            name: "x".repeat(bytes),
            ..Default::default()
        };
        Resource::new(name, &message)
    }
    let limits = Limits {
        on_demand_secret_memory: 280_000,
        ..Default::default()
    };
    // Each takes 24 KB and six times its bytes.
    let small = ["a", "b", "c"].map(|name| sized(name, 1_000));
    let mut chat = Chat::new(
        limits,
        small.into_iter().chain([sized("d", 20_000)]).collect(),
    );
    for name in ["a", "b", "c", "d"] {
        chat.subscribe(Kind::Secret, &[name]);
        assert!(!chat.settle().is_empty(), "{name} is sent");
    }
    fn held(chat: &Chat) -> BTreeSet<String> {
        let sub = chat.session.subscription(Kind::Secret).expect("subscribed");
        sub.named.keys().map(|name| name.to_string()).collect()
    }
    assert_eq!(
        held(&chat),
        ["a", "b", "c", "d"].map(str::to_owned).into(),
        "234 KB"
    );
    chat.publish(vec![sized("c", 10_000)], &[]);
    let said: Vec<Said> = chat.settle().into_iter().flatten().collect();
    assert_eq!(
        said,
        [new(Kind::Secret, "c"), gone(Kind::Secret, "a")],
        "288 KB"
    );
    assert_eq!(
        held(&chat),
        ["b", "c", "d"].map(str::to_owned).into(),
        "a sixteenth below the limit"
    );
    chat.send(
        Kind::Secret,
        DeltaRequest {
            unsubscribe: vec!["d".into()],
            ..Default::default()
        },
    );
    chat.subscribe(Kind::Secret, &["a"]);
    chat.settle();
    assert_eq!(
        held(&chat),
        ["a", "b", "c"].map(str::to_owned).into(),
        "what is unsubscribed does not count"
    );
}

#[test]
fn unknown_secrets_are_answered_displace_no_others_and_are_limited() {
    let limits = Limits {
        on_demand_secrets: 2,
        unknown_secrets: 3,
        ..Default::default()
    };
    let mut chat = Chat::new(limits, ["a", "b"].into_iter().map(secret).collect());
    chat.subscribe(Kind::Secret, &["a", "b"]);
    chat.settle();
    for i in 0..100 {
        let name = format!("u{i:03}");
        chat.subscribe(Kind::Secret, &[&name]);
        assert_eq!(
            chat.settle(),
            [[gone(Kind::Secret, &name)]],
            "and nothing is taken back"
        );
    }
    let sub = chat.session.subscription(Kind::Secret).expect("subscribed");
    assert_eq!(sub.on_demand.len(), 2, "two names are asked for on demand");
    assert_eq!(sub.named.len(), 5, "no more names are kept than the limit");
    // A remembered secret is published: it counts from then on, and the least recently requested
    // one is withdrawn.
    chat.publish(vec![secret("u099")], &[]);
    assert_eq!(chat.settle()[0], [new(Kind::Secret, "u099")]);
    chat.publish(vec![secret("u001")], &[]);
    assert!(
        chat.settle().is_empty(),
        "a client that wants it asks again"
    );
    chat.subscribe(Kind::Secret, &["u001"]);
    let said: Vec<Said> = chat.settle().into_iter().flatten().collect();
    assert!(said.contains(&new(Kind::Secret, "u001")), "{said:?}");
    let sub = chat.session.subscription(Kind::Secret).expect("subscribed");
    assert!(
        sub.on_demand.len() <= 2 && sub.named.contains_key("u001"),
        "{:?}",
        sub.named
    );
    chat.send(
        Kind::Secret,
        DeltaRequest {
            unsubscribe: vec!["u001".into(), "u098".into()],
            ..Default::default()
        },
    );
    let sub = chat.session.subscription(Kind::Secret).expect("subscribed");
    assert!(sub.named.len() >= sub.on_demand.len());
}
