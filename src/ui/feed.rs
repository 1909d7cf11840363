//! The hostnames as pages have them, and what changes: the whole once, and then the rows that
//! differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gatewright_control::HostsAnswer;
use gatewright_core::hosts::HostRow;
use tokio::sync::{Notify, broadcast};

/// The number of messages that a slow page may be behind; beyond that it gets the whole again.
const BEHIND: usize = 64;

/// The rows, and the pages that follow them.
pub(super) struct Feed {
    state: Mutex<State>,
    messages: broadcast::Sender<Message>,
    /// A page has come.
    follower: Notify,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<String, HostRow>,
    revision: u64,
    /// True once there was an answer.
    is_known: bool,
    /// Why there is no present answer.
    trouble: Option<String>,
}

/// A message to pages.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// Hostnames.
    Hosts(HostsAnswer),
    /// The source answers again (`None`), or does not.
    Trouble(Option<String>),
}

impl Feed {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            messages: broadcast::channel(BEHIND).0,
            follower: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a page follows.
    pub(super) async fn followed(&self) {
        while self.messages.receiver_count() == 0 {
            self.follower.notified().await;
        }
    }

    /// Takes in an answer of the source, and tells pages what differs.
    pub(super) fn take(&self, answer: HostsAnswer) {
        let mut state = self.state();
        let is_first = !state.is_known;
        let changed = state.take(answer);
        let recovered = state.trouble.take().is_some();
        // Nobody may listen.
        if recovered {
            let _ = self.messages.send(Message::Trouble(None));
        }
        if is_first || !changed.hosts.is_empty() || !changed.gone.is_empty() {
            let _ = self.messages.send(Message::Hosts(changed));
        }
    }

    /// Takes in that the source does not answer.
    pub(super) fn fail(&self, why: String) {
        let mut state = self.state();
        if state.trouble.as_ref() != Some(&why) {
            state.trouble = Some(why.clone());
            let _ = self.messages.send(Message::Trouble(Some(why)));
        }
    }

    /// Returns what a page that comes now is to have, and the messages that follow.
    pub(super) fn follow(&self) -> (Vec<Message>, broadcast::Receiver<Message>) {
        let state = self.state();
        let receiver = self.messages.subscribe();
        self.follower.notify_one();
        (state.messages(), receiver)
    }

    /// Returns all that a page is to have that is too far behind.
    pub(super) fn whole(&self) -> Vec<Message> {
        self.state().messages()
    }
}

impl State {
    fn messages(&self) -> Vec<Message> {
        let hosts = self.is_known.then(|| {
            Message::Hosts(HostsAnswer {
                revision: self.revision,
                whole: true,
                hosts: self.rows.values().cloned().collect(),
                gone: BTreeSet::new(),
            })
        });
        let trouble = self.trouble.clone();
        let trouble = trouble.map(|why| Message::Trouble(Some(why)));
        hosts.into_iter().chain(trouble).collect()
    }

    /// Takes in an answer. Returns the rows that differ.
    fn take(&mut self, answer: HostsAnswer) -> HostsAnswer {
        let HostsAnswer {
            whole,
            hosts,
            mut gone,
            ..
        } = answer;
        if whole {
            let present: BTreeSet<&str> = hosts.iter().map(|row| row.host.as_str()).collect();
            let missing = self.rows.keys().filter(|host| !present.contains(&***host));
            gone.extend(missing.cloned());
        }
        gone.retain(|host| self.rows.remove(host).is_some());
        let mut changed = Vec::new();
        for row in hosts {
            if self.rows.get(&row.host) != Some(&row) {
                self.rows.insert(row.host.clone(), row.clone());
                changed.push(row);
            }
        }
        self.revision += 1;
        let is_first = !std::mem::replace(&mut self.is_known, true);
        HostsAnswer {
            revision: self.revision,
            whole: is_first,
            hosts: changed,
            gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use gatewright_core::hosts::HostState;

    use super::*;

    fn row(host: &str, state: HostState) -> HostRow {
        HostRow {
            host: host.to_owned(),
            state,
            namespaces: BTreeSet::new(),
            places: Vec::new(),
            policies: BTreeSet::new(),
            faults: Vec::new(),
        }
    }

    fn answer(whole: bool, hosts: Vec<HostRow>, gone: &[&str]) -> HostsAnswer {
        HostsAnswer {
            revision: 7,
            whole,
            hosts,
            gone: gone.iter().map(|host| (*host).to_owned()).collect(),
        }
    }

    fn sent(message: Message) -> (bool, Vec<String>, Vec<String>) {
        let Message::Hosts(hosts) = message else {
            panic!("{message:?} is about hosts");
        };
        let rows = hosts.hosts.into_iter().map(|row| row.host);
        (
            hosts.whole,
            rows.collect(),
            hosts.gone.into_iter().collect(),
        )
    }

    #[test]
    fn pages_get_the_whole_and_then_what_differs() {
        let feed = Feed::new();
        let ok = |host| row(host, HostState::Ok);
        feed.take(answer(true, vec![ok("a"), ok("b"), ok("c")], &[]));
        let (mut first, mut messages) = feed.follow();
        let all = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(sent(first.remove(0)), (true, all, vec![]), "the whole");
        feed.take(answer(true, vec![ok("a"), ok("b"), ok("c")], &[]));
        assert!(messages.try_recv().is_err(), "nothing differs");
        feed.take(answer(
            true,
            vec![ok("a"), row("b", HostState::Failing)],
            &[],
        ));
        let next = sent(messages.try_recv().expect("a message"));
        let (b, c) = (vec!["b".to_owned()], vec!["c".to_owned()]);
        assert_eq!(
            next,
            (false, b.clone(), c),
            "of a whole answer what differs"
        );
        feed.take(answer(false, vec![], &["b", "x"]));
        let next = sent(messages.try_recv().expect("a message"));
        assert_eq!(next, (false, vec![], b), "what was there is gone");
    }

    #[test]
    fn a_source_that_does_not_answer_is_told_once() {
        let feed = Feed::new();
        let (first, mut messages) = feed.follow();
        assert!(first.is_empty(), "nothing is known yet");
        feed.fail("down".to_owned());
        feed.fail("down".to_owned());
        let told = messages.try_recv().expect("a message");
        assert!(matches!(told, Message::Trouble(Some(_))), "{told:?}");
        assert!(messages.try_recv().is_err(), "once");
        feed.take(answer(true, vec![], &[]));
        let told = messages.try_recv().expect("a message");
        assert!(matches!(told, Message::Trouble(None)), "{told:?}");
        assert!(messages.try_recv().is_ok(), "and there are no hosts");
    }
}
