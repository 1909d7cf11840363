//! The requests that are there, when each is due, and what is to be done about it. Pure: the time
//! is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gatewright_core::model::ObjectName;

use super::pace::Pace;
use super::request::ReportSpec;

/// The time after its answer at which an object is removed.
pub(super) const KEPT: Duration = Duration::from_secs(60);
/// The maximum number of objects of a namespace. Beyond it all of them are removed.
const OF_NAMESPACE: usize = 64;
/// The maximum number of objects. Beyond it those of the namespace with most are removed.
const OF_ALL: usize = 4096;
/// The pace of answers to a namespace.
const INTERVAL: Duration = Duration::from_millis(500);
const BURST: u32 = 20;
/// The longest time that a request waits for its turn; one that would wait longer is refused.
const PATIENCE: Duration = Duration::from_secs(5);
/// The minimum time between two removals of all objects of a namespace.
const SWEEPS: Duration = Duration::from_secs(5);

/// All requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    all: BTreeMap<ObjectName, Request>,
    paces: BTreeMap<Arc<str>, Pace>,
    /// When the objects of a namespace were last removed together.
    swept: BTreeMap<Arc<str>, Instant>,
}

/// An object, as the API server has it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) name: ObjectName,
    pub(super) uid: String,
    pub(super) generation: i64,
    /// The generation that its status is about.
    pub(super) answered: Option<i64>,
    pub(super) spec: ReportSpec,
}

#[derive(Debug)]
struct Request {
    seen: Seen,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waiting,
    /// It has asked too often; it may ask again after this time.
    TooOften(Duration),
    Answered(Instant),
}

/// What is to be done about an object.
#[derive(Clone, Debug)]
pub(super) enum Todo {
    Answer(Seen),
    Refuse(Seen, Duration),
    /// The object with this UID is to be removed.
    Remove(String),
    /// All objects of the namespace are to be removed.
    Sweep,
}

impl Requests {
    /// Takes in an object. Returns the item that is due because of it, and when: the object, or its
    /// namespace, which is an item without a name.
    pub(super) fn see(&mut self, seen: Seen, now: Instant) -> Option<(ObjectName, Instant)> {
        let name = seen.name.clone();
        let known = self.all.get(&name);
        if known.is_some_and(|known| {
            known.seen.uid == seen.uid && known.seen.generation >= seen.generation
        }) {
            return None;
        }
        if known.is_none() && self.count(&name.namespace) >= OF_NAMESPACE {
            return Some(self.sweep(&name.namespace, now));
        }
        let (state, at) = if seen.answered == Some(seen.generation) {
            (State::Answered(now), now + KEPT)
        } else {
            self.turn(&name.namespace, now)
        };
        self.all.insert(name.clone(), Request { seen, state });
        if self.all.len() > OF_ALL
            && let Some(fullest) = self.fullest()
        {
            self.forget(&fullest);
            return Some(self.sweep(&fullest, now));
        }
        Some((name, at))
    }

    /// Takes in that an object is gone.
    pub(super) fn gone(&mut self, name: &ObjectName) {
        self.all.remove(name);
    }

    /// Takes in that an item was answered or refused. Returns when it is to be removed.
    pub(super) fn answered(&mut self, seen: &Seen, now: Instant) -> Option<Instant> {
        let request = self.all.get_mut(&seen.name)?;
        // The object was changed meanwhile: its next turn is due already.
        if request.seen.uid != seen.uid || request.seen.generation != seen.generation {
            return None;
        }
        request.state = State::Answered(now);
        Some(now + KEPT)
    }

    /// Returns what is to be done about an item that is due.
    pub(super) fn todo(&mut self, item: &ObjectName, now: Instant) -> Option<Todo> {
        if item.name.is_empty() {
            self.swept.insert(item.namespace.clone(), now);
            self.forget(&item.namespace);
            return Some(Todo::Sweep);
        }
        self.paces.retain(|_, pace| !pace.is_full(now));
        self.swept.retain(|_, at| now < *at + SWEEPS);
        let Request { seen, state } = self.all.get(item)?;
        match state {
            State::Waiting => Some(Todo::Answer(seen.clone())),
            State::TooOften(wait) => Some(Todo::Refuse(seen.clone(), *wait)),
            State::Answered(at) if now >= *at + KEPT => Some(Todo::Remove(seen.uid.clone())),
            State::Answered(_) => None,
        }
    }

    /// Returns the state of a new request, and when it is due.
    fn turn(&mut self, namespace: &Arc<str>, now: Instant) -> (State, Instant) {
        let pace = self
            .paces
            .entry(namespace.clone())
            .or_insert_with(|| Pace::new(INTERVAL, BURST, now));
        let wait = pace.next(now) - now;
        if wait > PATIENCE {
            (State::TooOften(wait), now)
        } else {
            (State::Waiting, pace.take(now))
        }
    }

    fn count(&self, namespace: &Arc<str>) -> usize {
        self.of(namespace).take(OF_NAMESPACE).count()
    }

    fn of<'a>(&'a self, namespace: &'a Arc<str>) -> impl Iterator<Item = &'a ObjectName> {
        let first = ObjectName::new(namespace.clone(), "");
        let names = self.all.range(first..).map(|(name, _)| name);
        names.take_while(move |name| name.namespace == *namespace)
    }

    /// Returns the namespace with most objects.
    fn fullest(&self) -> Option<Arc<str>> {
        let mut counts: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for name in self.all.keys() {
            *counts.entry(&name.namespace).or_default() += 1;
        }
        let fullest = counts.into_iter().max_by_key(|(_, count)| *count);
        fullest.map(|(namespace, _)| namespace.clone())
    }

    /// Returns the item of all objects of a namespace, and when their removal is due.
    fn sweep(&self, namespace: &Arc<str>, now: Instant) -> (ObjectName, Instant) {
        let last = self.swept.get(namespace);
        let at = last.map_or(now, |last| (*last + SWEEPS).max(now));
        (ObjectName::new(namespace.clone(), ""), at)
    }

    fn forget(&mut self, namespace: &Arc<str>) {
        let names: Vec<ObjectName> = self.of(namespace).cloned().collect();
        for name in names {
            self.all.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::ReportKind;
    use super::*;

    fn seen(namespace: &str, name: &str, generation: i64) -> Seen {
        Seen {
            name: ObjectName::new(namespace, name),
            uid: format!("uid of {name}"),
            generation,
            answered: None,
            spec: ReportSpec::new(ReportKind::History, "gatewright-system"),
        }
    }

    fn item(namespace: &str, name: &str) -> ObjectName {
        ObjectName::new(namespace, name)
    }

    #[test]
    fn a_request_is_answered_at_once_and_removed_a_minute_later() {
        let mut requests = Requests::default();
        let now = Instant::now();
        let due = requests.see(seen("shop", "a", 1), now);
        assert_eq!(due, Some((item("shop", "a"), now)));
        let Some(Todo::Answer(asked)) = requests.todo(&item("shop", "a"), now) else {
            panic!("it is answered");
        };
        assert_eq!(requests.answered(&asked, now), Some(now + KEPT));
        assert!(
            requests.todo(&item("shop", "a"), now).is_none(),
            "nothing until then"
        );
        let removed = requests.todo(&item("shop", "a"), now + KEPT);
        assert!(matches!(removed, Some(Todo::Remove(uid)) if uid == "uid of a"));
        requests.gone(&item("shop", "a"));
        assert!(requests.todo(&item("shop", "a"), now + KEPT).is_none());
    }

    #[test]
    fn a_new_holder_answers_what_is_not_answered_and_removes_the_rest() {
        let mut requests = Requests::default();
        let now = Instant::now();
        let before = Seen {
            answered: Some(1),
            ..seen("shop", "a", 1)
        };
        assert_eq!(
            requests.see(before, now),
            Some((item("shop", "a"), now + KEPT))
        );
        let renewed = Seen {
            answered: Some(1),
            ..seen("shop", "b", 2)
        };
        assert_eq!(requests.see(renewed, now), Some((item("shop", "b"), now)));
        assert!(matches!(
            requests.todo(&item("shop", "b"), now),
            Some(Todo::Answer(_))
        ));
    }

    #[test]
    fn an_object_that_is_renewed_is_answered_again() {
        let mut requests = Requests::default();
        let now = Instant::now();
        requests.see(seen("shop", "a", 1), now);
        let first = seen("shop", "a", 1);
        requests.answered(&first, now);
        assert!(
            requests.see(seen("shop", "a", 1), now).is_none(),
            "our own write of its status"
        );
        let renewed = requests.see(seen("shop", "a", 2), now);
        assert_eq!(renewed, Some((item("shop", "a"), now)));
        assert_eq!(
            requests.answered(&first, now),
            None,
            "a late answer to the first is none to the second"
        );
    }

    #[test]
    fn who_asks_too_often_is_refused_and_others_are_not() {
        let mut requests = Requests::default();
        let now = Instant::now();
        let burst = usize::try_from(BURST).expect("a small number");
        let patient = 10;
        for at in 0..burst + patient {
            requests.see(seen("loud", &at.to_string(), 1), now);
        }
        let (late, due) = requests
            .see(seen("loud", "late", 1), now)
            .expect("it is due");
        assert_eq!(due, now, "the refusal does not wait");
        let Some(Todo::Refuse(_, wait)) = requests.todo(&late, now) else {
            panic!("it is refused");
        };
        assert!(wait > PATIENCE, "{wait:?}");
        let (quiet, due) = requests.see(seen("quiet", "a", 1), now).expect("it is due");
        assert_eq!(due, now);
        assert!(matches!(requests.todo(&quiet, now), Some(Todo::Answer(_))));
    }

    #[test]
    fn a_flood_is_removed_together_and_takes_no_memory() {
        let mut requests = Requests::default();
        let now = Instant::now();
        for at in 0..1000 {
            requests.see(seen("loud", &at.to_string(), 1), now);
        }
        assert_eq!(requests.all.len(), OF_NAMESPACE);
        let next = requests.see(seen("loud", "x", 1), now).expect("it is due");
        assert_eq!(next, (item("loud", ""), now));
        assert!(matches!(requests.todo(&next.0, now), Some(Todo::Sweep)));
        assert!(requests.all.is_empty(), "they are forgotten");
        for at in 0..=OF_NAMESPACE {
            requests.see(seen("loud", &at.to_string(), 1), now);
        }
        let (_, due) = requests.see(seen("loud", "x", 1), now).expect("it is due");
        assert_eq!(due, now + SWEEPS, "and not again at once");
    }

    #[test]
    fn many_namespaces_are_bounded_together() {
        let mut requests = Requests::default();
        let now = Instant::now();
        let mut sweeps = 0;
        for at in 0..OF_ALL + 200 {
            let namespace = format!("n{}", at % 100);
            let due = requests.see(seen(&namespace, &at.to_string(), 1), now);
            if let Some((item, _)) = due.filter(|(item, _)| item.name.is_empty()) {
                requests.todo(&item, now);
                sweeps += 1;
            }
        }
        assert!(requests.all.len() <= OF_ALL, "{}", requests.all.len());
        assert!(sweeps > 0, "the fullest are removed");
    }
}
