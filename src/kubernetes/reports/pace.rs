//! A rate with a burst: at most `burst` at once, and one more after each interval (the generic cell
//! rate algorithm). Pure: the time is an argument.

use std::time::{Duration, Instant};

/// The state of one who is limited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    interval: Duration,
    burst: u32,
    /// The time at which all of the burst is free again.
    full_at: Instant,
}

impl Pace {
    pub(super) fn new(interval: Duration, burst: u32, now: Instant) -> Self {
        Self {
            interval,
            burst,
            full_at: now,
        }
    }

    /// Returns the time at which the next one is free.
    pub(super) fn next(&self, now: Instant) -> Instant {
        let head_start = self.interval * self.burst.saturating_sub(1);
        self.full_at
            .checked_sub(head_start)
            .map_or(now, |at| at.max(now))
    }

    /// Takes the next one. Returns the time at which it is free.
    pub(super) fn take(&mut self, now: Instant) -> Instant {
        let at = self.next(now);
        self.full_at = self.full_at.max(now) + self.interval;
        at
    }

    /// Returns whether nothing of it is used.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_then_one_after_each_interval() {
        let second = Duration::from_secs(1);
        let now = Instant::now() + Duration::from_secs(3600);
        let mut pace = Pace::new(second, 3, now);
        let taken: Vec<Duration> = (0..5).map(|_| pace.take(now) - now).collect();
        let zero = Duration::ZERO;
        assert_eq!(taken, [zero, zero, zero, second, second * 2]);
        assert!(!pace.is_full(now + second * 4), "it is used");
        assert!(pace.is_full(now + second * 5), "and free again");
        assert_eq!(pace.next(now + second * 10), now + second * 10);
    }
}
