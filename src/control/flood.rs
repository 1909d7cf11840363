//! Whether clients ask for many names that nobody has. Pure: counts and times in, decisions out.
//!
//! Envoy's main thread takes 0.25 ms for a name that its listener lets through and that has no certificate. Under a wildcard
//! that stands for many names (`translate/gate.rs`), strangers decide how many those are. So listeners name every host for
//! as long as that goes on: a name that is not among them then costs Envoy next to nothing.

use std::time::Duration;

/// So many unknown names within [`WITHIN`] are a flood.
const MANY: u64 = 512;
const WITHIN: Duration = Duration::from_secs(1);
/// How long listeners name every host. Whether the flood goes on meanwhile cannot be seen; if so, it is met anew.
const LASTS: Duration = Duration::from_secs(600);

/// What is known of unknown names.
#[derive(Debug, Default)]
pub(super) struct Flood {
    /// When counting began, and the count then.
    counted_from: Option<(Duration, u64)>,
    began: Option<Duration>,
}

impl Flood {
    /// Whether there is one.
    pub(super) fn is_on(&self) -> bool {
        self.began.is_some()
    }

    /// Notes how many unknown names were asked for in all. Whether a flood begins.
    pub(super) fn asked(&mut self, total: u64, at: Duration) -> bool {
        let (since, before) = *self.counted_from.get_or_insert((at, total.saturating_sub(1)));
        if at.saturating_sub(since) > WITHIN {
            self.counted_from = Some((at, total));
            return false;
        }
        if self.is_on() || total.saturating_sub(before) < MANY {
            return false;
        }
        self.began = Some(at);
        true
    }

    /// Whether one ends.
    pub(super) fn ends(&mut self, at: Duration) -> bool {
        let over = self.began.is_some_and(|began| at.saturating_sub(began) >= LASTS);
        if over {
            *self = Self::default();
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn many_names_at_once_are_a_flood_and_as_many_in_an_hour_are_none() {
        let mut flood = Flood::default();
        for second in 0..3600 {
            assert!(!flood.asked(100 * second, at(1000 * second)));
        }
        let total = 100 * 3599;
        assert!(!flood.asked(total + 400, at(3_600_500)));
        assert!(!flood.asked(total + 500, at(3_600_600)));
        assert!(flood.asked(total + 1_100, at(3_600_700)));
        assert!(flood.is_on() && !flood.asked(total + 9_999, at(3_600_800)), "it begins once");
    }

    #[test]
    fn it_is_over_after_a_while_and_may_begin_again() {
        let mut flood = Flood::default();
        assert!(!flood.asked(128, at(0)));
        assert!(flood.asked(1_024, at(300)));
        assert!(!flood.ends(LASTS));
        assert!(flood.ends(LASTS + at(300)) && !flood.is_on());
        assert!(!flood.asked(1_152, LASTS + at(400)));
        assert!(flood.asked(2_048, LASTS + at(500)));
    }
}
