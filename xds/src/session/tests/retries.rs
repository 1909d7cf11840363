//! Tests of resources that a client refuses for a reason outside of them.

use std::time::Duration;

use super::*;

const IN_USE: &str = "l: cannot bind: Address already in use";

/// A client of listeners to which `l` was sent, with the nonce of the response.
fn offered() -> (Chat, u64) {
    let limits = Limits {
        is_temporary: |text| text.contains("in use"),
        ..Default::default()
    };
    let mut chat = Chat::new(limits, vec![listener("l", "a")]);
    chat.subscribe(Kind::Listener, &[]);
    let said = chat.read();
    assert_eq!(
        said.iter()
            .map(|(_, said)| said.clone())
            .collect::<Vec<_>>(),
        [new(Kind::Listener, "l")]
    );
    let nonce = said[0].0;
    (chat, nonce)
}

/// Refuses a response at `now`. Returns the rejections that it leads to.
fn refuse(chat: &mut Chat, nonce: u64, text: &str, now: Instant) -> Vec<String> {
    let nonce = nonce.to_string();
    chat.session.answer(
        Kind::Listener,
        &nonce,
        Some(text.to_owned()),
        &chat.tables,
        now,
    );
    chat.session
        .take_effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Rejected { name, .. } => Some(name.to_string()),
            _ => None,
        })
        .collect()
}

/// Returns the nonce of the response at `now`, if there is one.
fn next(chat: &mut Chat, now: Instant) -> Option<u64> {
    let out = chat.session.next(&chat.tables, now, || true)?;
    assert!(
        matches!(&out.items[..], [Item::Upsert(l)] if l.name() == "l"),
        "{out:?}"
    );
    Some(out.nonce)
}

#[test]
fn a_temporary_refusal_is_retried_with_back_off_until_it_is_accepted() {
    let (mut chat, mut nonce) = offered();
    let mut now = Instant::now();
    for pause in [5, 10, 20, 40, 80, 120, 120].map(Duration::from_secs) {
        assert_eq!(refuse(&mut chat, nonce, IN_USE, now), ["l"]);
        assert_eq!(chat.session.retry_due(), Some(now + pause));
        assert_eq!(
            next(&mut chat, now + pause - Duration::from_millis(1)),
            None
        );
        now += pause;
        nonce = next(&mut chat, now).expect("a retry");
        assert_eq!(next(&mut chat, now), None, "one retry is under way");
    }
    assert_eq!(
        chat.session.acknowledged(),
        chat.generation,
        "a retry delays no acknowledgement"
    );
    chat.session
        .answer(Kind::Listener, &nonce.to_string(), None, &chat.tables, now);
    let effects = chat.session.take_effects();
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Recovered { .. })),
        "{effects:?}"
    );
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Acknowledged(of) if of.len() == 1)),
        "{effects:?}"
    );
    assert_eq!(chat.session.retry_due(), None, "no retry is due");
    assert_eq!(next(&mut chat, now), None, "nothing is sent");
}

#[test]
fn a_refusal_of_the_content_is_not_retried() {
    let (mut chat, nonce) = offered();
    let now = Instant::now();
    assert_eq!(refuse(&mut chat, nonce, "l: no such field", now), ["l"]);
    assert_eq!(chat.session.retry_due(), None, "no retry is due");
    assert_eq!(next(&mut chat, now), None, "nothing is sent");

    // Nor is one that a retry leads to.
    let (mut chat, nonce) = offered();
    refuse(&mut chat, nonce, IN_USE, now);
    let later = now + Duration::from_secs(5);
    let nonce = next(&mut chat, later).expect("a retry");
    assert_eq!(refuse(&mut chat, nonce, "l: no such field", later), ["l"]);
    assert_eq!(chat.session.retry_due(), None, "no retry is due");
    assert_eq!(next(&mut chat, later), None, "nothing is sent later");
}

#[test]
fn a_changed_resource_is_sent_at_once_and_its_older_version_is_not_retried() {
    let (mut chat, nonce) = offered();
    let now = Instant::now();
    refuse(&mut chat, nonce, IN_USE, now);
    chat.publish(vec![listener("l", "b")], &[]);
    let nonce = next(&mut chat, now).expect("the change");
    chat.session
        .answer(Kind::Listener, &nonce.to_string(), None, &chat.tables, now);
    assert_eq!(next(&mut chat, now + Duration::from_secs(5)), None);
    assert_eq!(chat.session.retry_due(), None);
}
