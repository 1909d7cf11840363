//! Tracks whether the view of the API server is complete, for each kind. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use gatewright_core::inputs::Kind;

/// The number of objects with a pending body that a message names.
const NAMED: usize = 3;

/// Why a kind cannot be watched now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A right is missing.
    Forbidden(String),
    /// Another reason.
    Failed(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Forbidden(text) | Trouble::Failed(text) => f.write_str(text),
        }
    }
}

impl Trouble {
    /// The same trouble in one namespace of several.
    pub(super) fn in_namespace(self, namespace: &str) -> Self {
        match self {
            Trouble::Forbidden(text) => {
                Trouble::Forbidden(format!("in namespace {namespace}: {text}"))
            }
            Trouble::Failed(text) => Trouble::Failed(format!("in namespace {namespace}: {text}")),
        }
    }
}

/// The state of the view of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The kind is being listed.
    Listing,
    /// The list is complete, and the watch delivers changes.
    Complete,
    /// The list was complete, and the watch is interrupted, for this reason. The objects that were
    /// seen are kept.
    Stale(Trouble),
    /// The kind cannot be listed, for this reason.
    Unreadable(Trouble),
    /// The server does not serve the kind.
    Missing,
}

/// The state of the view of all kinds.
#[derive(Clone, Debug)]
pub struct WatchSync {
    kinds: BTreeMap<Kind, State>,
    /// Objects whose bodies are still being fetched for the first view.
    fetching: BTreeSet<String>,
    /// The kinds whose first list was complete.
    listed: BTreeSet<Kind>,
}

impl WatchSync {
    /// Creates the state in which each of these kinds is being listed.
    pub fn new(kinds: &[Kind]) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind, State::Listing)).collect();
        Self {
            kinds,
            fetching: BTreeSet::new(),
            listed: BTreeSet::new(),
        }
    }

    /// Takes in that the list of a kind is complete. Returns a line for the log if that is a
    /// change.
    pub fn complete(&mut self, kind: Kind) -> Option<String> {
        self.listed.insert(kind);
        self.set(kind, State::Complete)
    }

    /// Takes in that a kind cannot be watched.
    pub fn trouble(&mut self, kind: Kind, trouble: Trouble) -> Option<String> {
        let state = if self.listed.contains(&kind) {
            State::Stale(trouble)
        } else {
            State::Unreadable(trouble)
        };
        self.set(kind, state)
    }

    /// Takes in that a kind is not served.
    pub fn missing(&mut self, kind: Kind) -> Option<String> {
        self.set(kind, State::Missing)
    }

    /// Takes in that a kind which was not served is now, and is being listed.
    pub fn listing(&mut self, kind: Kind) -> Option<String> {
        self.set(kind, State::Listing)
    }

    /// Returns whether the list of a kind has been complete once.
    pub fn has_listed(&self, kind: Kind) -> bool {
        self.listed.contains(&kind)
    }

    /// Returns whether the view of a kind is complete and current: only then objects of it are
    /// written.
    pub fn is_current(&self, kind: Kind) -> bool {
        matches!(self.kinds.get(&kind), Some(State::Complete))
    }

    /// Returns whether the server has answered for any kind: with all its objects, or that it is
    /// not served.
    pub fn has_answer(&self) -> bool {
        self.kinds
            .values()
            .any(|state| matches!(state, State::Complete | State::Missing))
    }

    /// Returns whether a kind counts as without objects: the server does not serve it, or it is
    /// left out since the right to read it is missing. Experimental kinds only add to what is
    /// served. The absence of any other kind would take something from what is served, or a
    /// protection from it.
    pub fn is_missing(&self, kind: Kind) -> bool {
        match self.kinds.get(&kind) {
            None | Some(State::Missing) => true,
            Some(State::Unreadable(Trouble::Forbidden(_))) => kind.is_experimental(),
            Some(_) => false,
        }
    }

    /// Returns whether nothing can be served, since the right to read a kind is missing.
    pub fn lacks_a_right(&self) -> bool {
        self.kinds
            .iter()
            .any(|(kind, state)| is_forbidden(state) && !self.is_missing(*kind))
    }

    fn set(&mut self, kind: Kind, state: State) -> Option<String> {
        let old = self.kinds.insert(kind, state.clone());
        (old.as_ref() != Some(&state)).then(|| line(kind, &state))
    }

    /// Returns whether the first list of every served kind is complete, apart from those that are
    /// left out: only then may anything be served, written or deleted.
    pub fn has_synced(&self) -> bool {
        self.fetching.is_empty()
            && self
                .kinds
                .keys()
                .all(|kind| self.listed.contains(kind) || self.is_missing(*kind))
    }

    /// Returns messages about what is pending; empty when nothing is.
    pub fn pending_work(&self) -> Vec<String> {
        let kinds = self.kinds.iter().filter(|(kind, state)| {
            !self.listed.contains(kind) && **state != State::Missing
                || matches!(state, State::Stale(_))
        });
        let fetching = self
            .fetching
            .iter()
            .take(NAMED)
            .map(|name| format!("{name}: its body is being fetched"));
        let rest = self.fetching.len().saturating_sub(NAMED);
        let rest =
            (rest > 0).then(|| format!("{rest} more objects: their bodies are being fetched"));
        kinds
            .map(|(kind, state)| line(*kind, state))
            .chain(fetching)
            .chain(rest)
            .collect()
    }

    /// Returns a line for people about a kind whose watch has been silent for `age`; `None` where
    /// the kind's state says why.
    pub fn silent(&self, kind: Kind, age: Duration) -> Option<String> {
        let text = format!(
            "{}: watch silent: no event or bookmark for {} s",
            kind.as_str(),
            age.as_secs()
        );
        self.is_current(kind).then_some(text)
    }

    /// Returns each kind with the name of its state, for metrics.
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

    /// Takes in that the body of an object is being fetched.
    pub fn fetching(&mut self, name: String) {
        self.fetching.insert(name);
    }

    /// Takes in that the fetch of the body ended, whatever its result.
    pub fn fetched(&mut self, name: &str) {
        self.fetching.remove(name);
    }
}

fn is_forbidden(state: &State) -> bool {
    matches!(state, State::Unreadable(Trouble::Forbidden(_)))
}

fn line(kind: Kind, state: &State) -> String {
    let kind = kind.as_str();
    match state {
        State::Listing => format!("{kind}: waiting for the list"),
        State::Complete => format!("{kind}: watched"),
        State::Stale(trouble) => format!("{kind}: watch interrupted: {trouble}"),
        State::Unreadable(trouble) => format!("{kind}: {trouble}"),
        State::Missing if kind == Kind::XListenerSet.as_str() => {
            format!(
                "{kind}: not served by this API server; bundles since v1.5 have ListenerSet instead"
            )
        }
        State::Missing => {
            format!("{kind}: not served by this API server; waiting for its definition")
        }
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
        view.trouble(Kind::Secret, Trouble::Forbidden("not allowed".into()));
        assert!(view.lacks_a_right(), "nothing is served without Secrets");
        assert!(!view.has_synced());
        assert_eq!(view.pending_work(), ["Secret: not allowed"]);
        view.complete(Kind::Secret);
        view.fetching("a/b".into());
        assert!(!view.has_synced());
        view.fetched("a/b");
        assert!(view.has_synced() && view.pending_work().is_empty());
    }

    #[test]
    fn kinds_that_only_add_are_left_out_where_a_right_is_missing() {
        let mut view = WatchSync::new(&[Kind::Gateway, Kind::XListenerSet]);
        view.complete(Kind::Gateway);
        view.trouble(Kind::XListenerSet, Trouble::Failed("away".into()));
        assert!(!view.has_synced(), "the server may be there in a moment");
        view.trouble(Kind::XListenerSet, Trouble::Forbidden("not allowed".into()));
        assert!(
            view.has_synced() && view.is_missing(Kind::XListenerSet),
            "all else is served"
        );
        assert!(
            !view.lacks_a_right(),
            "what is served is complete without it"
        );
        assert_eq!(
            view.pending_work(),
            ["XListenerSet: not allowed"],
            "and it is told"
        );
        view.listing(Kind::XListenerSet);
        assert!(!view.is_missing(Kind::XListenerSet), "it may have objects");
        view.complete(Kind::XListenerSet);
        view.trouble(
            Kind::XListenerSet,
            Trouble::Forbidden("not allowed any more".into()),
        );
        assert!(
            !view.is_missing(Kind::XListenerSet),
            "its objects are known"
        );
    }

    #[test]
    fn a_few_of_many_bodies_are_named() {
        let mut view = WatchSync::new(&[]);
        for number in 0..1000 {
            view.fetching(format!("secret a/s{number}"));
        }
        let waiting = view.pending_work();
        assert_eq!(waiting.len(), 4, "three are named and the others counted");
        assert_eq!(
            &*waiting[3], "997 more objects: their bodies are being fetched",
            "the others are counted"
        );
    }

    /// A server that becomes unreachable does not make the view incomplete.
    #[test]
    fn trouble_after_the_first_view_is_told_and_takes_nothing_back() {
        let mut view = WatchSync::new(&[Kind::Gateway]);
        view.complete(Kind::Gateway);
        let away = Trouble::Failed("away".into());
        assert_eq!(
            view.trouble(Kind::Gateway, away).as_deref(),
            Some("Gateway: watch interrupted: away")
        );
        assert!(view.has_synced());
        assert_eq!(view.pending_work().len(), 1);
        view.missing(Kind::Gateway);
        assert!(view.has_synced());
    }
}
