//! Detects floods of requests for unknown hostnames. Pure: counts and times in, decisions out.
//!
//! Envoy's main thread takes 0.25 ms for an SNI that matches its listener and that has no
//! certificate. Under a wildcard that stands for many names (`translate/state/sni_matcher.rs`), untrusted
//! clients determine the number of such names. So listeners name every host during a flood: an
//! unknown name then costs Envoy next to nothing.

use std::time::Duration;

/// The number of unknown names within [`WITHIN`] that is a flood.
const MANY: u64 = 512;
const WITHIN: Duration = Duration::from_secs(1);
/// The time for which listeners name every host. Meanwhile the flood cannot be observed; if it goes
/// on, it is detected again.
const LASTS: Duration = Duration::from_secs(600);

/// The state of the detection.
#[derive(Debug, Default)]
pub(super) struct Flood {
    /// The time and the count at which counting began.
    counted_from: Option<(Duration, u64)>,
    began: Option<Duration>,
}

impl Flood {
    /// Returns whether there is a flood.
    pub(super) fn is_on(&self) -> bool {
        self.began.is_some()
    }

    /// Takes in the total number of unknown names so far. Returns whether a flood begins.
    pub(super) fn asked(&mut self, total: u64, at: Duration) -> bool {
        let (since, before) = *self
            .counted_from
            .get_or_insert((at, total.saturating_sub(1)));
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

    /// Returns whether a flood ends.
    pub(super) fn ends(&mut self, at: Duration) -> bool {
        let over = self
            .began
            .is_some_and(|began| at.saturating_sub(began) >= LASTS);
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
        assert!(
            flood.is_on() && !flood.asked(total + 9_999, at(3_600_800)),
            "it begins once"
        );
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
