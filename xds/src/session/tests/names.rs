//! Names that a client invents: they are nobody's, and few of them are kept.

use super::*;

/// Returns the names that were reported as refused and did not recover.
fn rejected(chat: &mut Chat) -> BTreeSet<String> {
    let mut rejected = BTreeSet::new();
    for effect in chat.session.take_effects() {
        match effect {
            Effect::Rejected { name, .. } => {
                rejected.insert(name.to_string());
            }
            Effect::Recovered { name, .. } => {
                rejected.remove(&*name);
            }
            _ => {}
        }
    }
    rejected
}

#[test]
fn names_that_the_view_does_not_have_are_not_reported_as_refused() {
    let mut chat = Chat::new(Limits::default(), vec![cluster("own", "")]);
    for kind in [
        Kind::Cluster,
        Kind::Route,
        Kind::Listener,
        Kind::Endpoints,
        Kind::Secret,
        Kind::VirtualHost,
    ] {
        chat.subscribe(kind, &["other/edge:80", "other/web:80"]);
        let mut refused = 0;
        while let Some(out) = chat.session.next(&chat.tables, Instant::now(), || true) {
            chat.answer(out.kind, out.nonce, Some("other/edge:80 is bad"));
            refused += 1;
        }
        assert!((1..=3).contains(&refused), "{kind}: {refused} responses");
        assert_eq!(rejected(&mut chat), BTreeSet::new(), "{kind}");
    }
    chat.subscribe(Kind::Cluster, &["own"]);
    let out = chat
        .session
        .next(&chat.tables, Instant::now(), || true)
        .expect("it exists");
    chat.answer(out.kind, out.nonce, Some("own is bad"));
    assert_eq!(
        rejected(&mut chat),
        ["own".to_owned()].into(),
        "what it has it may refuse"
    );
}

#[test]
fn the_refusal_of_a_resource_ends_with_its_removal_even_if_that_is_refused() {
    let mut chat = Chat::new(Limits::default(), vec![cluster("c", "")]);
    chat.subscribe(Kind::Cluster, &["c"]);
    let out = chat
        .session
        .next(&chat.tables, Instant::now(), || true)
        .expect("it exists");
    chat.answer(Kind::Cluster, out.nonce, Some("c is bad"));
    chat.publish(vec![], &[(Kind::Cluster, "c")]);
    let out = chat
        .session
        .next(&chat.tables, Instant::now(), || true)
        .expect("it is removed");
    chat.answer(Kind::Cluster, out.nonce, Some("c is missed"));
    assert_eq!(rejected(&mut chat), BTreeSet::new());
    assert!(
        chat.session
            .subscription(Kind::Cluster)
            .expect("it was asked for")
            .quarantine
            .is_empty()
    );
}

#[test]
fn names_that_the_view_has_are_free_and_the_bytes_of_others_are_limited_over_all_types() {
    fn limits() -> Limits {
        Limits {
            unknown_names_bytes: 10_000,
            ..Limits::default()
        }
    }
    fn long(number: usize) -> String {
        format!("{number:0500}")
    }
    let mut chat = Chat::new(
        limits(),
        (0..100).map(|number| cluster(&long(number), "")).collect(),
    );
    for number in 0..100 {
        chat.subscribe(Kind::Cluster, &[&long(number)]);
    }
    chat.settle();
    fn ask(
        kind: Kind,
        chat: &mut Chat,
        subscribe: Vec<String>,
        unsubscribe: Vec<String>,
    ) -> Result<(), Refusal> {
        let request = DeltaRequest {
            subscribe,
            unsubscribe,
            ..Default::default()
        };
        chat.session
            .delta(kind, request, &chat.tables, Instant::now())
    }
    // Names that were answered and left are free again.
    for number in 0..100 {
        let left = if number == 0 {
            Vec::new()
        } else {
            vec![long(1_000 + number - 1)]
        };
        ask(Kind::Endpoints, &mut chat, vec![long(1_000 + number)], left).expect("one at a time");
        chat.settle();
    }
    // Those that are not answered are not, by whatever means they are kept.
    let kinds = [Kind::Cluster, Kind::Route, Kind::Listener];
    let refused = (2_000..2_100).find_map(|number| {
        let kind = kinds[number % kinds.len()];
        ask(kind, &mut chat, vec!["*".into(), long(number)], Vec::new()).err()
    });
    let refused = refused
        .expect("the limit is of all types together")
        .to_string();
    assert!(
        refused.contains("on this stream; at most 10000 are allowed"),
        "{refused}"
    );

    let mut chat = Chat::new(limits(), vec![cluster("c", "")]);
    chat.subscribe(Kind::Cluster, &["*"]);
    let waits = chat
        .session
        .next(&chat.tables, Instant::now(), || true)
        .expect("a response");
    let refused = (0..100).find_map(|number| {
        let left = vec![long(number)];
        ask(Kind::Cluster, &mut chat, left.clone(), Vec::new())
            .and_then(|()| ask(Kind::Cluster, &mut chat, Vec::new(), left))
            .err()
    });
    assert!(
        refused.is_some(),
        "response {} is not answered",
        waits.nonce
    );

    let mut chat = Chat::new(limits(), Vec::new());
    let versions = (0..100)
        .map(|number| (long(number), "1".to_owned()))
        .collect();
    let request = DeltaRequest {
        initial_resource_versions: versions,
        ..Default::default()
    };
    let refused = chat
        .session
        .delta(Kind::Cluster, request, &chat.tables, Instant::now());
    assert!(
        matches!(refused, Err(Refusal::TooManyUnknownNames { .. })),
        "{refused:?}"
    );
}
