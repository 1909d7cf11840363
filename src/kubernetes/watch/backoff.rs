//! State and back-off of the watch of a kind: whether its list is complete, and how long a failed
//! watch pauses. Pure.

use std::time::Duration;

const MIN_DELAY: Duration = Duration::from_millis(200);
const MAX_DELAY: Duration = Duration::from_secs(15);

/// The state of a watch.
#[derive(Debug)]
pub(super) struct WatchBackoff {
    /// A list has begun and is not complete.
    listing: bool,
    /// A list has been complete once.
    listed: bool,
    /// An interruption of the watch was reported.
    troubled: bool,
    pause: Duration,
}

/// A summary of one chunk of events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkSummary {
    /// A list has begun and is not complete.
    pub(super) begun: bool,
    /// A list is complete.
    pub(super) ended: bool,
    /// Objects were added, changed or deleted.
    pub(super) objects: bool,
}

impl WatchBackoff {
    /// Creates the state of a watch before its first request.
    pub(super) fn new() -> Self {
        Self {
            listing: false,
            listed: false,
            troubled: false,
            pause: MIN_DELAY,
        }
    }

    /// Takes in a chunk of events. Returns whether the view is complete by it, which the caller
    /// must report.
    pub(super) fn observe(&mut self, chunk: ChunkSummary) -> bool {
        // The begin of a list does not reset the back-off: its request may fail as the one before.
        if chunk.ended || chunk.objects {
            self.pause = MIN_DELAY;
        }
        if chunk.ended {
            self.listed = true;
            self.troubled = false;
        }
        self.listing = chunk.begun || self.listing && !chunk.ended;
        chunk.ended || chunk.objects && self.resumed()
    }

    /// Takes in a failure; `usual` is a normal end of a watch. Returns how long to wait.
    pub(super) fn failed(&mut self, usual: bool) -> Duration {
        self.troubled |= !usual;
        let pause = self.pause;
        self.pause = (pause * 2).min(MAX_DELAY);
        pause
    }

    /// Returns whether the watch is to resume after an interruption. A resumed watch has no events
    /// while nothing changes.
    pub(super) fn is_interrupted(&self) -> bool {
        self.troubled && self.listed && !self.listing
    }

    /// Takes in that the watch was resumed. A resumed watch lost nothing: otherwise the server
    /// would have required a new list. Returns whether the view is complete again.
    pub(super) fn resumed(&mut self) -> bool {
        let interrupted = self.is_interrupted();
        if interrupted {
            self.troubled = false;
            self.pause = MIN_DELAY;
        }
        interrupted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTS: ChunkSummary = ChunkSummary {
        begun: false,
        ended: false,
        objects: true,
    };
    const BEGUN: ChunkSummary = ChunkSummary {
        begun: true,
        ended: false,
        objects: false,
    };
    const ENDED: ChunkSummary = ChunkSummary {
        begun: false,
        ended: true,
        objects: true,
    };

    #[test]
    fn a_view_is_complete_when_a_list_ends_or_an_interrupted_watch_goes_on() {
        let mut backoff = WatchBackoff::new();
        assert!(!backoff.observe(BEGUN) && !backoff.observe(OBJECTS));
        assert!(
            backoff.observe(ENDED) && !backoff.observe(OBJECTS),
            "it is told once"
        );
        backoff.failed(true);
        assert!(
            !backoff.is_interrupted() && !backoff.observe(OBJECTS),
            "nobody was told that changes do not come"
        );
        backoff.failed(false);
        assert!(backoff.is_interrupted() && backoff.resumed());
        assert!(!backoff.is_interrupted() && !backoff.resumed());
        backoff.failed(false);
        assert!(backoff.observe(OBJECTS), "changes come");
    }

    #[test]
    fn a_list_that_begins_anew_is_complete_when_it_ends_and_not_sooner() {
        let mut backoff = WatchBackoff::new();
        backoff.observe(ENDED);
        for _ in 0..3 {
            backoff.failed(false);
            assert!(!backoff.observe(BEGUN) && !backoff.observe(OBJECTS) && !backoff.resumed());
        }
        assert!(backoff.observe(ENDED));
    }

    #[test]
    fn a_list_that_fails_again_and_again_is_asked_for_ever_more_rarely() {
        let mut backoff = WatchBackoff::new();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            backoff.observe(BEGUN);
            pauses.push(backoff.failed(false).as_millis());
        }
        assert_eq!(
            pauses,
            [200, 400, 800, 1600, 3200, 6400, 12_800, 15_000, 15_000]
        );
        backoff.observe(ENDED);
        assert_eq!(backoff.failed(true), MIN_DELAY);
    }
}
