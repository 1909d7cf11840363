//! How complete our view of the cluster is. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gatewright_core::inputs::Kind;

/// How many of the objects whose bodies are waited for are named.
const NAMED: usize = 3;

/// What is known of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is being listed.
    Listing,
    /// All of it has been seen, and changes come.
    Complete,
    /// All of it had been seen, and changes do not come now, for this reason. What was seen is kept.
    Stale(String),
    /// It cannot be listed, for this reason.
    Unreadable(String),
    /// The server does not serve it.
    Missing,
}

/// What is known of all kinds.
#[derive(Clone, Debug)]
pub struct WatchSync {
    kinds: BTreeMap<Kind, State>,
    /// Objects whose bodies are still being fetched for the first view.
    fetching: BTreeSet<String>,
    /// Kinds whose end of the first list has come.
    seen: BTreeSet<Kind>,
}

impl WatchSync {
    /// Nothing seen of these kinds.
    pub fn new(kinds: &[Kind]) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind, State::Listing)).collect();
        Self { kinds, fetching: BTreeSet::new(), seen: BTreeSet::new() }
    }

    /// The view of a kind is complete. Returns a line for people when that is new.
    pub fn complete(&mut self, kind: Kind) -> Option<String> {
        self.seen.insert(kind);
        self.set(kind, State::Complete)
    }

    /// A kind cannot be watched.
    pub fn trouble(&mut self, kind: Kind, text: String) -> Option<String> {
        let state = if self.seen.contains(&kind) { State::Stale(text) } else { State::Unreadable(text) };
        self.set(kind, state)
    }

    /// A kind is not served.
    pub fn missing(&mut self, kind: Kind) -> Option<String> {
        self.set(kind, State::Missing)
    }

    /// A kind that was not served is now, and is being listed.
    pub fn listing(&mut self, kind: Kind) -> Option<String> {
        self.set(kind, State::Listing)
    }

    /// Whether everything of a kind was seen once.
    pub fn was_seen(&self, kind: Kind) -> bool {
        self.seen.contains(&kind)
    }

    /// Whether what is known of a kind is all there is: only then something is written for it.
    pub fn is_whole(&self, kind: Kind) -> bool {
        matches!(self.kinds.get(&kind), Some(State::Complete))
    }

    /// Whether the server has told anything: all of a kind, or that it does not serve one.
    pub fn is_heard(&self) -> bool {
        self.kinds.values().any(|state| matches!(state, State::Complete | State::Missing))
    }

    /// Whether the server does not serve a kind.
    pub fn is_missing(&self, kind: Kind) -> bool {
        matches!(self.kinds.get(&kind), None | Some(State::Missing))
    }

    fn set(&mut self, kind: Kind, state: State) -> Option<String> {
        let old = self.kinds.insert(kind, state.clone());
        (old.as_ref() != Some(&state)).then(|| line(kind, &state))
    }

    /// Whether everything that is served has been seen once: only then may anything be served, written or deleted.
    pub fn is_complete(&self) -> bool {
        self.fetching.is_empty()
            && self.kinds.iter().all(|(kind, state)| self.seen.contains(kind) || *state == State::Missing)
    }

    /// What is waited for, for people; empty when nothing is.
    pub fn waiting(&self) -> Vec<String> {
        let kinds = self.kinds.iter().filter(|(kind, state)| {
            !self.seen.contains(kind) && **state != State::Missing || matches!(state, State::Stale(_))
        });
        let fetching = self.fetching.iter().take(NAMED).map(|name| format!("{name}: its body is being fetched"));
        let rest = self.fetching.len().saturating_sub(NAMED);
        let rest = (rest > 0).then(|| format!("{rest} more objects: their bodies are being fetched"));
        kinds.map(|(kind, state)| line(*kind, state)).chain(fetching).chain(rest).collect()
    }

    /// A line for people on a kind of which nothing was heard for so long, where nobody has said why.
    pub fn silent(&self, kind: Kind, age: Duration) -> Option<String> {
        let text = format!("{}: changes do not come: nothing was heard of it for {} s", kind.as_str(), age.as_secs());
        self.is_whole(kind).then_some(text)
    }

    /// Each kind with a word for its state, for metrics.
    pub fn states(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.kinds.iter().map(|(kind, state)| {
            let word = match state {
                State::Listing => "listing",
                State::Complete => "complete",
                State::Stale(_) => "stale",
                State::Unreadable(_) => "unreadable",
                State::Missing => "missing",
            };
            (kind.as_str(), word)
        })
    }

    /// The body of an object is being fetched.
    pub fn fetching(&mut self, name: String) {
        self.fetching.insert(name);
    }

    /// It is there, or will not be.
    pub fn fetched(&mut self, name: &str) {
        self.fetching.remove(name);
    }
}

fn line(kind: Kind, state: &State) -> String {
    let kind = kind.as_str();
    match state {
        State::Listing => format!("{kind}: waiting for the list"),
        State::Complete => format!("{kind}: watched"),
        State::Stale(text) => format!("{kind}: changes do not come: {text}"),
        State::Unreadable(text) => format!("{kind}: {text}"),
        State::Missing => format!("{kind}: not served by this API server; waiting for its definition"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_is_everything_that_is_served() {
        let mut view = WatchSync::new(&[Kind::Gateway, Kind::TLSRoute, Kind::Secret]);
        assert!(view.complete(Kind::Gateway).is_some());
        assert_eq!(view.complete(Kind::Gateway), None);
        view.missing(Kind::TLSRoute);
        view.trouble(Kind::Secret, "not allowed".into());
        assert!(!view.is_complete());
        assert_eq!(view.waiting(), ["Secret: not allowed"]);
        view.complete(Kind::Secret);
        view.fetching("a/b".into());
        assert!(!view.is_complete());
        view.fetched("a/b");
        assert!(view.is_complete() && view.waiting().is_empty());
    }

    #[test]
    fn a_few_of_many_bodies_are_named() {
        let mut view = WatchSync::new(&[]);
        for number in 0..1000 {
            view.fetching(format!("secret a/s{number}"));
        }
        let waiting = view.waiting();
        assert_eq!((waiting.len(), &*waiting[3]), (4, "997 more objects: their bodies are being fetched"));
    }

    /// What was seen once does not become incomplete by a server that is away.
    #[test]
    fn trouble_after_the_first_view_is_told_and_takes_nothing_back() {
        let mut view = WatchSync::new(&[Kind::Gateway]);
        view.complete(Kind::Gateway);
        assert_eq!(view.trouble(Kind::Gateway, "away".into()).as_deref(), Some("Gateway: changes do not come: away"));
        assert!(view.is_complete());
        assert_eq!(view.waiting().len(), 1);
        view.missing(Kind::Gateway);
        assert!(view.is_complete());
    }
}
