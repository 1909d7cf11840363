//! The interval of polls: learned from the time that the CA needed for earlier orders.
//!
//! RFC 8555, 7.5.1 leaves polling to the client where the CA sends no `Retry-After`. Polling too
//! early costs the CA a request, polling too late costs us time; the time of the last orders is the
//! best guess for the next.

use std::sync::Mutex;
use std::time::Duration;

/// The first guess: short, so that orders that start together do not wait in vain for a fast CA; a
/// slow one is learned after a few more polls.
const INITIAL_GUESS: Duration = Duration::from_millis(10);
/// Latest first poll.
const MAX_FIRST_POLL: Duration = Duration::from_secs(5);
/// Guess below which the first poll comes at once, because an exchange takes longer.
const IMMEDIATE_BELOW: Duration = Duration::from_millis(2);
const MIN_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The learned time that a CA needs for one kind of work.
pub(super) struct PollInterval(Mutex<Duration>);

impl Default for PollInterval {
    fn default() -> Self {
        Self(Mutex::new(INITIAL_GUESS))
    }
}

impl PollInterval {
    /// Starts the polls of one wait.
    pub(super) fn polls(&self) -> Polls {
        Polls {
            first: *self.0.lock().expect("nobody panics while holding it"),
            count: 0,
        }
    }

    /// Learns from a wait: the CA was done `took` after the request.
    pub(super) fn learn(&self, polls: &Polls, took: Duration) {
        let mut guess = self.0.lock().expect("nobody panics while holding it");
        *guess = if polls.count > 1 {
            took.min(MAX_FIRST_POLL)
        } else {
            // Done at the first poll, and perhaps long before: the guess is lowered.
            let sooner = guess.min(polls.first) * 3 / 4;
            if sooner < IMMEDIATE_BELOW {
                Duration::ZERO
            } else {
                sooner
            }
        };
    }
}

/// The polls of one wait.
pub(super) struct Polls {
    first: Duration,
    count: u32,
}

impl Polls {
    /// Returns true if the CA is expected to be done at once.
    pub(super) fn is_immediate(&self) -> bool {
        self.first.is_zero() && self.count == 0
    }

    /// Returns the pause before the next poll: at first the guess, then a growing part of it.
    pub(super) fn pause(&mut self) -> Duration {
        self.count += 1;
        match self.count {
            1 => self.first,
            n => {
                let grown = (self.first / 4)
                    .max(MIN_PAUSE)
                    .mul_f64(1.6_f64.powi(n.min(40) as i32 - 2));
                grown.min(MAX_PAUSE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates one wait for a CA that needs `takes`; returns the number of polls and the time at
    /// which it was found done.
    fn wait(pace: &PollInterval, takes: Duration) -> (u32, Duration) {
        let mut polls = pace.polls();
        let mut passed = Duration::ZERO;
        loop {
            passed += polls.pause();
            if passed >= takes {
                pace.learn(&polls, passed);
                return (polls.count, passed);
            }
        }
    }

    #[test]
    fn a_fast_ca_is_soon_polled_without_a_pause() {
        let pace = PollInterval::default();
        for _ in 0..20 {
            wait(&pace, Duration::ZERO);
        }
        assert_eq!(wait(&pace, Duration::ZERO), (1, Duration::ZERO));
    }

    #[test]
    fn a_slow_ca_is_polled_once_or_twice_and_no_order_waits_too_long() {
        let pace = PollInterval::default();
        let takes = Duration::from_secs(2);
        let (first, _) = wait(&pace, takes);
        assert!(first > 5, "it was not known to be slow: {first} looks");
        let mut polls = 0;
        let mut late = Duration::ZERO;
        for _ in 0..100 {
            let (n, found) = wait(&pace, takes);
            polls += n;
            late += found - takes;
        }
        assert!(polls < 300, "{polls} polls of 100 orders");
        assert!(late < takes * 100 / 3, "{late:?} too late in all");
    }

    #[test]
    fn pauses_grow_up_to_ten_seconds() {
        let mut polls = PollInterval::default().polls();
        let pauses: Vec<_> = (0..60).map(|_| polls.pause()).collect();
        assert!(
            pauses[1..].is_sorted() && pauses[59] == MAX_PAUSE,
            "{pauses:?}"
        );
    }
}
