//! Secrets whose removal a client learns of while it still uses the listener that needs them.

use super::*;

/// Envoy requests the certificate of a hostname at the first handshake, which may come after the
/// hostname was published under another certificate and before the listener that knows that.
#[test]
fn a_removed_secret_is_served_until_the_listener_has_changed() {
    let mut chat = Chat::settled(vec![listener("l", ""), secret("web")]);
    chat.publish(vec![listener("l", "new")], &[(Kind::Secret, "web")]);
    let (listeners, content) = chat.read().remove(0);
    assert_eq!(content, new(Kind::Listener, "l"));

    chat.subscribe(Kind::Secret, &["web"]);
    let (secrets, content) = chat.read().remove(0);
    assert_eq!(content, new(Kind::Secret, "web"));
    chat.answer(Kind::Secret, secrets, None);
    assert!(chat.read().is_empty(), "the listener before is in use");

    chat.answer(Kind::Listener, listeners, None);
    assert_eq!(chat.settle(), [[gone(Kind::Secret, "web")]]);
    assert_eq!(chat.session.acknowledged(), chat.generation);
    chat.subscribe(Kind::Secret, &["web"]);
    assert_eq!(chat.settle(), [[gone(Kind::Secret, "web")]]);
}

/// A publication may drop removals that every stream has considered.
#[test]
fn a_removed_secret_is_remembered_while_a_listener_is_unanswered() {
    let mut chat = Chat::settled(vec![listener("l", ""), secret("web")]);
    chat.publish(vec![listener("l", "new")], &[(Kind::Secret, "web")]);
    let (listeners, _) = chat.read().remove(0);
    chat.publish(vec![secret("other")], &[]);
    chat.subscribe(Kind::Secret, &["web"]);
    assert_eq!(chat.settle(), [[new(Kind::Secret, "web")]]);

    chat.answer(Kind::Listener, listeners, None);
    assert_eq!(chat.settle(), [[gone(Kind::Secret, "web")]]);
    assert_eq!(chat.tables.oldest_removal(), Some(2));
    chat.tables.prune(chat.session.forgettable());
    assert!(
        chat.tables.table(Kind::Secret).removed("web").is_none(),
        "nobody needs it any more"
    );
}

/// Envoy acknowledges a listener before it has the secrets for which it warms it.
#[test]
fn a_removal_waits_for_the_secrets_of_the_new_listener() {
    let mut chat = Chat::settled(vec![listener("l", ""), secret("a.web")]);
    chat.subscribe(Kind::Secret, &["a.web"]);
    chat.settle();
    chat.publish(
        vec![listener("l", "new"), secret("sds/own")],
        &[(Kind::Secret, "a.web")],
    );
    let (listeners, _) = chat.read().remove(0);
    chat.subscribe(Kind::Secret, &["unknown"]);
    let (secrets, _) = chat.read().remove(0);
    chat.subscribe(Kind::Secret, &["sds/own"]);
    chat.answer(Kind::Listener, listeners, None);
    assert!(chat.read().is_empty(), "a secret is unanswered");
    chat.answer(Kind::Secret, secrets, None);
    assert_eq!(
        chat.settle(),
        [
            [new(Kind::Secret, "sds/own")],
            [gone(Kind::Secret, "a.web")]
        ]
    );
}

/// Strangers cause requests for secrets of unknown names.
#[test]
fn a_removal_does_not_wait_for_requests_of_strangers() {
    let mut chat = Chat::settled(vec![listener("l", ""), secret("web"), secret("other")]);
    chat.subscribe(Kind::Secret, &["web"]);
    chat.settle();
    chat.publish(vec![listener("l", "new")], &[(Kind::Secret, "web")]);
    let (listeners, _) = chat.read().remove(0);
    chat.subscribe(Kind::Secret, &["unknown", "other"]);
    let secrets = chat.read();
    chat.answer(Kind::Listener, listeners, None);
    assert!(chat.read().is_empty(), "the secrets are unanswered");
    assert!(
        chat.session
            .subscriptions()
            .all(|sub| sub.pending_removals.is_empty()),
        "the removal is next"
    );
    for (nonce, (kind, ..)) in secrets {
        chat.answer(kind, nonce, None);
    }
    assert_eq!(chat.settle(), [[gone(Kind::Secret, "web")]]);
}

/// A client that connects again may still use the listener that needs what it reports.
#[test]
fn a_secret_that_a_client_reports_is_removed_after_its_listener_has_changed() {
    let mut chat = Chat::new(Limits::default(), vec![listener("l", "new")]);
    fn held(name: &str) -> DeltaRequest {
        DeltaRequest {
            subscribe: vec![name.into()],
            initial_resource_versions: [(name.to_owned(), "older".to_owned())].into(),
            ..Default::default()
        }
    }
    chat.send(
        Kind::Listener,
        DeltaRequest {
            subscribe: vec!["*".into()],
            ..held("l")
        },
    );
    chat.send(Kind::Secret, held("web"));
    assert_eq!(
        chat.settle(),
        [[new(Kind::Listener, "l")], [gone(Kind::Secret, "web")]]
    );
}

/// The names of unknown secrets that are remembered are limited, their removals are not.
#[test]
fn all_secrets_that_a_client_reports_and_that_are_gone_are_removed() {
    let limits = Limits {
        unknown_secrets: 2,
        ..Limits::default()
    };
    let mut chat = Chat::new(limits, vec![listener("l", "")]);
    let names = ["a", "b", "c", "d"];
    let reported = names.map(|name| (name.to_owned(), "older".to_owned()));
    chat.send(
        Kind::Secret,
        DeltaRequest {
            subscribe: names.map(str::to_owned).into(),
            initial_resource_versions: reported.into(),
            ..Default::default()
        },
    );
    let removed = names.map(str::to_owned).into();
    assert_eq!(chat.settle(), [[(Kind::Secret, vec![], removed)]]);
}
