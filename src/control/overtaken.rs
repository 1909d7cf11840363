//! Tells which Envoys of a view others have overtaken: they lack a publication that another one
//! acknowledged long ago. Nothing waits for such an Envoy, so that one that hangs, or is not what
//! it says, holds up no status. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use xds::{Generation, NodeProgress, Progress};

/// The time for which an Envoy is waited for after another one has acknowledged what it lacks.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The Envoys of a view that lack what another one has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overtaken(BTreeMap<Arc<str>, Lacked>);

/// What an Envoy lacks.
#[derive(Clone, Copy, Debug)]
struct Lacked {
    /// The newest publication that another Envoy had when this one was overtaken.
    generation: Generation,
    since: Duration,
    /// True if it is waited for no longer.
    left_behind: bool,
}

impl Overtaken {
    /// Takes in the progress of the Envoys. Times are since an origin of the caller. Returns
    /// whether the Envoys that are waited for have changed.
    ///
    /// An Envoy that gets what it lacked is waited for again, also if others have something newer
    /// by then: continuous changes are not mistaken for an Envoy that never acknowledges.
    pub(crate) fn note(&mut self, progress: &Progress, at: Duration) -> bool {
        let newest = progress
            .nodes
            .iter()
            .map(|node| node.acknowledged)
            .max()
            .unwrap_or_default();
        let mut before = std::mem::take(&mut self.0);
        let mut has_changed = false;
        for node in progress
            .nodes
            .iter()
            .filter(|node| node.acknowledged < newest)
        {
            let known = before
                .remove(&node.node)
                .filter(|lacked| node.acknowledged < lacked.generation);
            let mut lacked = known.unwrap_or(Lacked {
                generation: newest,
                since: at,
                left_behind: false,
            });
            let is_over = at.saturating_sub(lacked.since) >= PATIENCE;
            has_changed |= is_over && !lacked.left_behind;
            lacked.left_behind |= is_over;
            self.0.insert(node.node.clone(), lacked);
        }
        has_changed || before.values().any(|lacked| lacked.left_behind)
    }

    /// Returns whether an Envoy that lacks something is waited for no longer.
    pub(crate) fn has_left_behind(&self, node: &NodeProgress) -> bool {
        self.0
            .get(&node.node)
            .is_some_and(|lacked| lacked.left_behind)
    }

    /// Returns the time at which the next Envoy is waited for no longer.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let waited_for = self.0.values().filter(|lacked| !lacked.left_behind);
        waited_for.map(|lacked| lacked.since + PATIENCE).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes what Envoys `a`, `b` ... have acknowledged; returns those that are waited for no
    /// longer.
    fn note(
        overtaken: &mut Overtaken,
        acknowledged: &[Generation],
        second: u64,
    ) -> (bool, Vec<String>) {
        fn node((name, has): (char, &Generation)) -> NodeProgress {
            NodeProgress {
                node: name.to_string().into(),
                identity: "i".into(),
                acknowledged: *has,
            }
        }
        let nodes: Vec<NodeProgress> = ('a'..).zip(acknowledged).map(node).collect();
        let progress = Progress {
            published: 0,
            nodes,
            rejections: Vec::new(),
        };
        let has_changed = overtaken.note(&progress, Duration::from_secs(second));
        let behind = progress
            .nodes
            .iter()
            .filter(|node| overtaken.has_left_behind(node));
        (
            has_changed,
            behind.map(|node| node.node.to_string()).collect(),
        )
    }

    #[test]
    fn an_envoy_is_left_behind_when_it_lacks_for_long_what_another_has() {
        let mut overtaken = Overtaken::default();
        assert_eq!(
            note(&mut overtaken, &[7, 6], 10),
            (false, vec![]),
            "it was overtaken just now"
        );
        assert_eq!(overtaken.deadline(), Some(Duration::from_secs(40)));
        assert_eq!(
            note(&mut overtaken, &[9, 6], 39),
            (false, vec![]),
            "it is waited for"
        );
        assert_eq!(
            note(&mut overtaken, &[9, 6], 40),
            (true, vec!["b".to_owned()])
        );
        assert_eq!(overtaken.deadline(), None);
        assert_eq!(
            note(&mut overtaken, &[12, 6], 50),
            (false, vec!["b".to_owned()]),
            "nothing has changed"
        );
        assert_eq!(
            note(&mut overtaken, &[12, 12], 51),
            (true, vec![]),
            "it has caught up"
        );
    }

    #[test]
    fn an_envoy_that_goes_on_is_waited_for() {
        let mut overtaken = Overtaken::default();
        for second in 0..100 {
            let told = note(&mut overtaken, &[second + 5, second], second);
            assert_eq!(
                told,
                (false, vec![]),
                "it gets what it lacked five seconds ago"
            );
        }
    }

    #[test]
    fn nobody_is_left_behind_while_nobody_is_ahead() {
        let mut overtaken = Overtaken::default();
        assert_eq!(note(&mut overtaken, &[6, 6], 0), (false, vec![]));
        assert_eq!(
            note(&mut overtaken, &[6, 6], 100),
            (false, vec![]),
            "neither has the publication"
        );
        assert_eq!(note(&mut overtaken, &[7, 6], 101), (false, vec![]));
        assert_eq!(
            note(&mut overtaken, &[7, 6], 131),
            (true, vec!["b".to_owned()])
        );
        assert_eq!(
            note(&mut overtaken, &[6], 132),
            (true, vec![]),
            "the one that overtook it has gone"
        );
    }
}
