//! The heartbeat of the main loop, by which a liveness probe is answered without asking it.
//!
//! A probe that queued for the main loop would be late whenever there is much to do, and the program would be restarted
//! for it, only to have the same to do again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the main loop turns when there is nothing to do.
pub const PERIOD: Duration = Duration::from_secs(1);
/// A main loop that has not turned for so long hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// When the main loop turned last. Copies are of one and the same.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    began: Instant,
    /// Milliseconds since then.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    /// A main loop that begins now.
    pub fn new(now: Instant) -> Self {
        Self { began: now, last: Arc::default() }
    }

    /// The main loop turns.
    pub fn beat(&self, now: Instant) {
        let age = now.saturating_duration_since(self.began).as_millis();
        self.last.store(u64::try_from(age).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// For how long the main loop hangs, if it does.
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
        assert_eq!(copy.hangs(later), Some(HANG_TIMEOUT + Duration::from_secs(7)));
        heartbeat.beat(began + Duration::from_secs(10));
        assert_eq!(copy.hangs(later), None);
    }
}
