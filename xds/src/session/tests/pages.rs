//! Rounds of many pages, and changes that are published meanwhile.

use super::*;

/// The resources of one response here.
const PAGE: usize = 2;

impl Chat {
    /// Makes a client that has clusters and no listener, and gets pages.
    fn paged(clusters: &[&str]) -> Chat {
        let limits = Limits {
            response_resources: PAGE,
            ..Limits::default()
        };
        let resources = clusters.iter().map(|name| cluster(name, "")).collect();
        let mut chat = Chat::new(limits, resources);
        chat.subscribe(Kind::Cluster, &[]);
        chat.subscribe(Kind::Listener, &[]);
        chat.settle();
        chat
    }

    /// Publishes a version of the clusters `many-0` and so on.
    fn publish_many(&mut self, number: usize, value: &str) {
        let many = (0..number).map(|number| cluster(&format!("many-{number}"), value));
        self.publish(many.collect(), &[]);
    }

    /// Reads the only response, and answers it.
    fn step(&mut self) -> Said {
        let mut all = self.read();
        assert_eq!(all.len(), 1, "one response at a time: {all:?}");
        let (nonce, said) = all.remove(0);
        self.answer(said.0, nonce, None);
        said
    }
}

fn clusters(names: &[&str]) -> Said {
    let names = names.iter().map(|name| (*name).to_owned());
    (Kind::Cluster, names.collect(), vec![])
}

#[test]
fn a_change_waits_for_a_page_of_anothers_and_not_for_all() {
    let mut chat = Chat::paged(&[]);
    chat.publish_many(7, "");
    let first = chat.read();
    assert_eq!(first[0].1, clusters(&["many-0", "many-1"]));
    chat.publish(vec![cluster("alice", ""), listener("l", "")], &[]);
    assert!(chat.read().is_empty(), "one response in flight");
    chat.answer(Kind::Cluster, first[0].0, None);
    assert_eq!(chat.step(), clusters(&["alice", "many-2"]));
    assert!(
        chat.session.acknowledged() < chat.generation,
        "a part of what was published is not sent"
    );
    assert_eq!(
        chat.settle(),
        [
            vec![clusters(&["many-3", "many-4"])],
            vec![clusters(&["many-5", "many-6"])],
            vec![new(Kind::Listener, "l")],
        ],
        "a listener waits for all that it may need"
    );
    assert_eq!(chat.session.acknowledged(), chat.generation);
}

#[test]
fn a_few_changes_are_sent_before_many_that_wait_with_them() {
    let mut chat = Chat::paged(&["c"]);
    chat.publish(vec![cluster("c", "1")], &[]);
    let first = chat.read();
    chat.publish_many(3, "");
    chat.publish(vec![cluster("alice", "")], &[]);
    chat.answer(Kind::Cluster, first[0].0, None);
    assert_eq!(chat.step(), clusters(&["alice", "many-0"]));
    assert_eq!(chat.step(), clusters(&["many-1", "many-2"]));
    assert!(chat.read().is_empty(), "nothing is left");
    assert_eq!(chat.session.acknowledged(), chat.generation);
}

#[test]
fn what_is_left_of_a_round_is_sent_once_in_its_last_version() {
    let mut chat = Chat::paged(&[]);
    chat.publish_many(7, "");
    let first = chat.read();
    chat.publish(vec![cluster("many-5", "new")], &[(Kind::Cluster, "many-6")]);
    chat.answer(Kind::Cluster, first[0].0, None);
    assert_eq!(
        chat.settle(),
        [
            vec![clusters(&["many-5", "many-2"])],
            vec![clusters(&["many-3", "many-4"])],
            vec![gone(Kind::Cluster, "many-6")],
        ]
    );
    assert_eq!(chat.session.acknowledged(), chat.generation);
}

#[test]
fn a_round_ends_however_often_the_view_changes() {
    let mut chat = Chat::paged(&["old"]);
    chat.publish_many(6, "");
    chat.publish(vec![], &[(Kind::Cluster, "old")]);
    for value in 0..100 {
        chat.publish(vec![cluster("alice", &value.to_string())], &[]);
        if chat.step() == gone(Kind::Cluster, "old") {
            assert!(value < 10, "ended after {value} changes");
            return;
        }
    }
    panic!("the removal was never sent");
}

/// A limit of bytes by which two of these listeners are sent at once.
fn two_listeners() -> Limits {
    let one = Item::Upsert(Arc::new(listener("l0", "new"))).bytes();
    Limits {
        round_bytes: 2 * one,
        ..Limits::default()
    }
}

fn listeners(names: &[&str]) -> Said {
    let names = names.iter().map(|name| (*name).to_owned());
    (Kind::Listener, names.collect(), vec![])
}

#[test]
fn a_change_waits_for_few_bytes_of_anothers() {
    let all = |value: &str| {
        (0..5)
            .map(|at| listener(&format!("l{at}"), value))
            .collect()
    };
    let mut chat = Chat::new(two_listeners(), all("old"));
    chat.subscribe(Kind::Cluster, &[]);
    chat.subscribe(Kind::Listener, &[]);
    let first = chat.settle().concat();
    assert!(
        first.contains(&listeners(&["l0", "l1", "l2", "l3", "l4"])),
        "a client that starts gets all at once: {first:?}"
    );
    chat.publish(all("new"), &[]);
    let two = chat.read();
    assert_eq!(two[0].1, listeners(&["l0", "l1"]));
    chat.publish(vec![cluster("alice", "")], &[]);
    chat.answer(Kind::Listener, two[0].0, None);
    assert_eq!(chat.step(), clusters(&["alice"]));
    assert_eq!(chat.step(), listeners(&["l2", "l3"]));
    assert_eq!(chat.step(), listeners(&["l4"]));
    assert!(chat.read().is_empty(), "nothing is left");
    assert_eq!(chat.session.acknowledged(), chat.generation);
}

#[test]
fn removed_listeners_go_at_once() {
    let resources = ["a", "b", "c", "d"].map(|name| listener(name, ""));
    let mut chat = Chat::new(two_listeners(), resources.into());
    chat.subscribe(Kind::Listener, &[]);
    chat.settle();
    let more = ["e", "f", "g"].map(|name| listener(name, "new"));
    let gone = ["a", "b", "c", "d"];
    chat.publish(more.into(), &gone.map(|name| (Kind::Listener, name)));
    let (_, added, removed) = chat.step();
    assert_eq!(removed, gone, "addresses may move to other listeners");
    assert!(added.len() < 3, "{added:?}");
}
