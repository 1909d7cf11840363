//! The heartbeat of the main loop, by which the liveness probe is answered without a query to it.
//!
//! A probe that waited in the queue of the main loop would be late under load, and the restart of
//! the program would only repeat the load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The interval of an idle main loop.
pub const PERIOD: Duration = Duration::from_secs(1);
/// The age of the heartbeat after which the main loop is considered hung.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// The time of the last heartbeat. Clones share it.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    began: Instant,
    /// Milliseconds from `began` to the last heartbeat.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    /// Creates the heartbeat of a main loop that begins now.
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            last: Arc::default(),
        }
    }

    /// Records a heartbeat.
    pub fn beat(&self, now: Instant) {
        let age = now.saturating_duration_since(self.began).as_millis();
        self.last
            .store(u64::try_from(age).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the age of the last heartbeat, if the main loop is hung.
    pub fn hangs(&self, now: Instant) -> Option<Duration> {
        let last = self.began + Duration::from_millis(self.last.load(Ordering::Relaxed));
        Some(now.saturating_duration_since(last)).filter(|age| *age > HANG_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_hangs_once_it_has_not_turned_for_long() {
        let began = Instant::now();
        let heartbeat = Heartbeat::new(began);
        let copy = heartbeat.clone();
        assert_eq!(copy.hangs(began + HANG_TIMEOUT), None);
        let later = began + HANG_TIMEOUT + Duration::from_secs(7);
        assert_eq!(
            copy.hangs(later),
            Some(HANG_TIMEOUT + Duration::from_secs(7))
        );
        heartbeat.beat(began + Duration::from_secs(10));
        assert_eq!(copy.hangs(later), None);
    }
}
