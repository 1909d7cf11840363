//! When each watch last received anything: an event, a bookmark, or the head of a response. A watch
//! that stays silent for long leaves the replica with a stale view and no error.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gatewright_core::inputs::Kind;

use super::scope::Scope;

/// The longest silence of a healthy watch: bookmarks arrive each minute, and a watch is requested
/// again after five.
const SILENT: Duration = Duration::from_secs(360);

/// When each watch last received anything. Clones share the state.
#[derive(Clone, Debug)]
pub struct LastHeard {
    limit: Duration,
    watches: Arc<Mutex<BTreeMap<(Kind, Scope), Instant>>>,
}

impl Default for LastHeard {
    fn default() -> Self {
        Self::within(SILENT)
    }
}

impl LastHeard {
    /// Creates the state; a watch that is silent for longer than `limit` is reported.
    pub(crate) fn within(limit: Duration) -> Self {
        Self {
            limit,
            watches: Arc::default(),
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, BTreeMap<(Kind, Scope), Instant>> {
        self.watches
            .lock()
            .expect("nothing panics while it is held")
    }

    /// Starts the clock of a watch. The clock of an earlier watch of the same scope goes on.
    pub(crate) fn begin(&self, kind: Kind, scope: &Scope, now: Instant) {
        self.held().entry((kind, scope.clone())).or_insert(now);
    }

    /// Notes that a watch received something.
    pub(crate) fn note(&self, kind: Kind, scope: &Scope, now: Instant) {
        self.held().insert((kind, scope.clone()), now);
    }

    /// Removes the watches of a kind.
    pub(crate) fn end(&self, kind: Kind) {
        self.held().retain(|(of, _), _| *of != kind);
    }

    /// Returns the silence of each kind: the longest among its watches.
    pub fn ages(&self, now: Instant) -> BTreeMap<Kind, Duration> {
        let mut ages = BTreeMap::new();
        for ((kind, _), heard) in self.held().iter() {
            let age = ages.entry(*kind).or_insert(Duration::ZERO);
            *age = now.saturating_duration_since(*heard).max(*age);
        }
        ages
    }

    /// Returns the kinds that have been silent for longer than the limit, with their silence.
    pub fn silent(&self, now: Instant) -> BTreeMap<Kind, Duration> {
        let mut ages = self.ages(now);
        ages.retain(|_, age| *age > self.limit);
        ages
    }

    /// The longest silence that is not reported.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_as_silent_as_the_most_silent_of_its_watches() {
        let heard = LastHeard::default();
        let began = Instant::now();
        let second = Duration::from_secs(1);
        let scopes = ["a", "b"].map(|name| Scope::Namespace(name.into()));
        scopes
            .iter()
            .for_each(|scope| heard.begin(Kind::Gateway, scope, began));
        heard.note(Kind::Gateway, &scopes[0], began + 300 * second);
        // A watch that is begun anew was not heard.
        heard.begin(Kind::Gateway, &scopes[1], began + 300 * second);
        assert_eq!(
            heard.ages(began + 310 * second),
            [(Kind::Gateway, 310 * second)].into()
        );
        assert_eq!(heard.silent(began + 310 * second), BTreeMap::new());
        assert_eq!(
            heard.silent(began + 361 * second),
            [(Kind::Gateway, 361 * second)].into()
        );
        heard.note(Kind::Gateway, &scopes[1], began + 361 * second);
        assert_eq!(
            heard.ages(began + 361 * second),
            [(Kind::Gateway, 61 * second)].into()
        );
        heard.end(Kind::Gateway);
        assert_eq!(heard.ages(began + 361 * second), BTreeMap::new());
    }
}
