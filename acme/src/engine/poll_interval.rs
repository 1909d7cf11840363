//! How soon to look again: learned from how long the CA took for the orders before.
//!
//! RFC 8555, 7.5.1 leaves polling to the client where the CA sends no `Retry-After`. Looking too early costs the CA a
//! request, looking too late costs us the time; what the last orders took is the best guess for the next.

use std::sync::Mutex;
use std::time::Duration;

/// Before anything was learned: a fast CA must not be waited for in vain by all that begin together, and a slow one is
/// known after a few looks more.
const UNKNOWN: Duration = Duration::from_millis(10);
/// Nobody is looked at later than this for the first time.
const MAX_FIRST_POLL: Duration = Duration::from_secs(5);
/// Shorter than an exchange takes: the first look comes at once.
const NOTHING: Duration = Duration::from_millis(2);
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const SLOWEST_POLL: Duration = Duration::from_secs(10);

/// How long a CA takes for one kind of work, as far as its orders showed.
pub(super) struct PollInterval(Mutex<Duration>);

impl Default for PollInterval {
    fn default() -> Self {
        Self(Mutex::new(UNKNOWN))
    }
}

impl PollInterval {
    /// Begins to wait for the CA.
    pub(super) fn looks(&self) -> Looks {
        Looks { first: *self.0.lock().expect("nobody panics while holding it"), looked: 0 }
    }

    /// The CA was done `took` after it was asked.
    pub(super) fn learn(&self, looks: &Looks, took: Duration) {
        let mut guess = self.0.lock().expect("nobody panics while holding it");
        *guess = if looks.looked > 1 {
            took.min(MAX_FIRST_POLL)
        } else {
            // Done at the first look, so perhaps long before.
            let sooner = guess.min(looks.first) * 3 / 4;
            if sooner < NOTHING { Duration::ZERO } else { sooner }
        };
    }
}

/// The pauses of one wait.
pub(super) struct Looks {
    first: Duration,
    looked: u32,
}

impl Looks {
    /// Is the CA believed to be done at once?
    pub(super) fn is_at_once(&self) -> bool {
        self.first.is_zero() && self.looked == 0
    }

    /// How long to wait before the next look: the guess at first, then a part of it that grows.
    pub(super) fn pause(&mut self) -> Duration {
        self.looked += 1;
        match self.looked {
            1 => self.first,
            n => {
                let grown = (self.first / 4).max(SHORTEST_PAUSE).mul_f64(1.6_f64.powi(n.min(40) as i32 - 2));
                grown.min(SLOWEST_POLL)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One wait for a CA that takes `takes`: how often was looked, and when it was found done.
    fn wait(pace: &PollInterval, takes: Duration) -> (u32, Duration) {
        let mut looks = pace.looks();
        let mut passed = Duration::ZERO;
        loop {
            passed += looks.pause();
            if passed >= takes {
                pace.learn(&looks, passed);
                return (looks.looked, passed);
            }
        }
    }

    #[test]
    fn a_fast_ca_is_looked_at_without_a_pause_soon() {
        let pace = PollInterval::default();
        for _ in 0..20 {
            wait(&pace, Duration::ZERO);
        }
        assert_eq!(wait(&pace, Duration::ZERO), (1, Duration::ZERO));
    }

    #[test]
    fn a_slow_ca_is_asked_once_or_twice_and_no_order_waits_long_in_vain() {
        let pace = PollInterval::default();
        let takes = Duration::from_secs(2);
        let (first, _) = wait(&pace, takes);
        assert!(first > 5, "it was not known to be slow: {first} looks");
        let (mut looks, mut late) = (0, Duration::ZERO);
        for _ in 0..100 {
            let (n, found) = wait(&pace, takes);
            looks += n;
            late += found - takes;
        }
        assert!(looks < 300, "{looks} looks at 100 orders");
        assert!(late < takes * 100 / 3, "{late:?} too late in all");
    }

    #[test]
    fn pauses_grow_up_to_ten_seconds() {
        let mut looks = PollInterval::default().looks();
        let pauses: Vec<_> = (0..60).map(|_| looks.pause()).collect();
        assert!(pauses[1..].is_sorted() && pauses[59] == SLOWEST_POLL, "{pauses:?}");
    }
}
