//! A token bucket, which limits a rate.

use std::time::{Duration, Instant};

/// A token bucket. It is full at the start.
pub(crate) struct Bucket {
    tokens: f64,
    burst: f64,
    per_second: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(burst: u32, per_second: u32) -> Bucket {
        Bucket {
            tokens: burst.into(),
            burst: burst.into(),
            per_second: f64::from(per_second.max(1)),
            filled: Instant::now(),
        }
    }

    /// Takes a token; the count may become negative.
    pub(crate) fn take(&mut self) {
        self.tokens -= 1.0;
    }

    /// Returns the time at which a token is available; `None` if one is now.
    pub(crate) fn empty_until(&mut self, now: Instant) -> Option<Instant> {
        let elapsed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst);
        self.filled = now;
        (self.tokens < 1.0)
            .then(|| now + Duration::from_secs_f64((1.0 - self.tokens) / self.per_second))
    }
}
