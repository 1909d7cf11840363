//! The keys of session tickets, and their rotation. Pure, except for randomness.
//!
//! A new key is known to all Envoys for a whole period before it encrypts, and decrypts for another
//! one after that: neither Envoys nor replicas have to change keys at the same time. Keys older
//! than that are gone, so that nobody reads old sessions with the present keys.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gatewright_core::model::{TICKET_KEY_BYTES, TicketKeys};
use serde::{Deserialize, Serialize};

/// The time after which the next key encrypts.
pub const PERIOD: Duration = Duration::from_secs(12 * 3600);

/// The system has no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no randomness for the keys of session tickets")]
pub struct NoRandomness;

/// The keys of three periods, as they are stored.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TicketRotation {
    /// The start of the present period, in seconds since the epoch.
    since: u64,
    next: [u8; TICKET_KEY_BYTES],
    current: [u8; TICKET_KEY_BYTES],
    previous: [u8; TICKET_KEY_BYTES],
}

impl TicketRotation {
    /// New keys.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn new(now: SystemTime) -> Result<Self, NoRandomness> {
        Ok(Self {
            since: seconds(now),
            next: random()?,
            current: random()?,
            previous: random()?,
        })
    }

    /// The keys of the next period if it has begun; new ones if the period after it has, or if the
    /// clock was set back by more than a period. `None` while the present ones are due.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn rotated(&self, now: SystemTime) -> Result<Option<Self>, NoRandomness> {
        let now_seconds = seconds(now);
        let away = Duration::from_secs(self.since.abs_diff(now_seconds));
        if away < PERIOD {
            return Ok(None);
        }
        if self.since > now_seconds || away >= 2 * PERIOD {
            return Self::new(now).map(Some);
        }
        Ok(Some(Self {
            since: now_seconds,
            next: random()?,
            current: self.next,
            previous: self.current,
        }))
    }

    /// The keys for Envoys.
    pub fn keys(&self) -> TicketKeys {
        TicketKeys::new(self.current, &[self.previous, self.next])
    }

    /// Reads stored keys.
    ///
    /// # Errors
    /// When they cannot be read; the message has nothing of them.
    pub fn read(stored: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(stored).map_err(|error| {
            format!(
                "the keys of session tickets cannot be read (line {}, column {})",
                error.line(),
                error.column()
            )
        })
    }

    /// The keys as they are stored.
    pub fn written(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers")
    }
}

impl fmt::Debug for TicketRotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[session ticket keys since {}]", self.since)
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn random() -> Result<[u8; TICKET_KEY_BYTES], NoRandomness> {
    let mut key = [0; TICKET_KEY_BYTES];
    let provider = rustls::crypto::ring::default_provider();
    provider
        .secure_random
        .fill(&mut key)
        .map_err(|_| NoRandomness)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(periods: f64) -> SystemTime {
        let seconds = 1_800_000_000.0 + periods * PERIOD.as_secs_f64();
        UNIX_EPOCH + Duration::from_secs_f64(seconds)
    }

    fn first() -> TicketRotation {
        TicketRotation::new(at(0.0)).expect("randomness")
    }

    fn rotated(keys: &TicketRotation, periods: f64) -> Option<TicketRotation> {
        keys.rotated(at(periods)).expect("randomness")
    }

    #[test]
    fn the_next_key_becomes_the_current_one_and_that_the_previous_one() {
        let keys = first();
        assert_eq!(rotated(&keys, 0.9), None, "it is not due");
        let then = rotated(&keys, 1.1).expect("it is due");
        assert_eq!(then.current, keys.next);
        assert_eq!(then.previous, keys.current);
        assert_ne!(then.next, keys.next);
        assert_eq!(rotated(&then, 2.0), None, "its period began late");
    }

    #[test]
    fn keys_of_long_ago_and_of_the_future_are_replaced() {
        for periods in [2.0, 1000.0, -1.0, -1000.0] {
            let keys = first();
            let then = rotated(&keys, periods).expect("they are due");
            for old in [keys.next, keys.current, keys.previous] {
                assert!(
                    ![then.next, then.current, then.previous].contains(&old),
                    "{periods}"
                );
            }
        }
        assert_eq!(rotated(&first(), -0.5), None, "the clock is a little off");
    }

    #[test]
    fn what_is_written_is_read_and_an_error_shows_no_key() {
        let keys = first();
        let written = keys.written();
        assert_eq!(TicketRotation::read(&written), Ok(keys.clone()));
        let broken = String::from_utf8(written).expect("JSON").replace(']', "");
        let error = TicketRotation::read(broken.as_bytes()).expect_err("broken");
        assert!(error.starts_with("the keys of session tickets cannot be read"));
        assert_eq!(
            format!("{keys:?}"),
            format!("[session ticket keys since {}]", keys.since)
        );
    }
}
