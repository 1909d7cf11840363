//! The time of a certificate's renewal. Pure.
//!
//! With ARI: a time that is drawn once, uniformly, from the CA's renewal window (RFC 9773, 4.2).
//! Without: at two thirds of its validity, minus an offset of its own, so that certificates that
//! were issued together are renewed apart. Nothing postpones a renewal beyond the emergency floor.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// A window further in the future than this, or longer, is rejected.
const MAX_WINDOW_DISTANCE: SignedDuration = SignedDuration::from_hours(24 * 3650);

/// A certificate's renewal window by ARI, and the time drawn from it; persisted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The certificate, by its ARI identifier.
    pub of: String,
    /// Start of the window.
    pub start: Timestamp,
    /// End of the window.
    pub end: Timestamp,
    /// URL of the CA's explanation (RFC 9773, 4.2).
    pub explanation: Option<String>,
    /// The time drawn from the window.
    pub selected: Timestamp,
    /// Time of the next request for the window.
    pub poll_at: Timestamp,
    /// True if the window was over when the certificate was new, and still is: the CA or our clock
    /// is wrong. It is ignored.
    #[serde(default)]
    pub untrusted: bool,
}

impl Window {
    /// Takes an answer of the CA. The time drawn before stays if it lies in the new window.
    ///
    /// Rejects invalid answers: an end before the start, a window ten years in the future or ten
    /// years long.
    pub fn answered(
        previous: Option<&Self>,
        of: &str,
        (start, end): (Timestamp, Timestamp),
        explanation: Option<String>,
        life: (Timestamp, Timestamp),
        retry_after: Option<SignedDuration>,
        now: Timestamp,
    ) -> Result<Self, &'static str> {
        if end <= start {
            return Err("the renewal window ends before it starts");
        }
        if start > life.1
            || start > now + MAX_WINDOW_DISTANCE
            || end.duration_since(start) > MAX_WINDOW_DISTANCE
        {
            return Err(
                "the renewal window starts after the certificate's end, or is absurdly long",
            );
        }
        let selected = match previous {
            Some(p) if p.of == of && start <= p.selected && p.selected < end => p.selected,
            _ => {
                start
                    + SignedDuration::from_secs_f64(
                        end.duration_since(start).as_secs_f64() * uniform(of, 0),
                    )
            }
        };
        let lifetime = life.1.duration_since(life.0);
        // RFC 9773, 4.3: Retry-After decides, within an hour and half a day; more often for short
        // validities.
        let most = (lifetime / 8).clamp(HOUR / 6, HOUR * 12);
        let asked = retry_after.unwrap_or(HOUR * 6).clamp(most.min(HOUR), most);
        let poll_at =
            now + asked + SignedDuration::from_secs_f64(asked.as_secs_f64() * 0.1 * uniform(of, 1));
        let explanation =
            explanation.map(|e| e.chars().filter(|c| !c.is_control()).take(500).collect());
        Ok(Self {
            of: of.to_owned(),
            start,
            end,
            explanation,
            selected,
            poll_at,
            untrusted: false,
        })
    }

    /// Decides whether to follow the window, by the previous one and the time at which the
    /// certificate was obtained. A window that moves into the past is the CA's request; one that
    /// was over from the beginning would be so for the next certificate as well, and renewals would
    /// follow each other.
    pub fn weigh(&mut self, previous: Option<&Self>, obtained: Timestamp, now: Timestamp) {
        let was = match previous.filter(|p| p.of == self.of) {
            Some(previous) => previous.untrusted,
            None => now < obtained + DAY,
        };
        self.untrusted = was && self.is_over(now);
    }

    /// Returns a notice for people: the CA's explanation, and that the window is ignored.
    pub fn notice(&self) -> Option<String> {
        let explained = self
            .explanation
            .as_ref()
            .map(|url| format!("the CA explains it at {url}"));
        if !self.untrusted {
            return explained;
        }
        let text = format!(
            "the CA asks to renew it before {}, which was over when it was new: not followed; is the clock right?",
            self.end
        );
        Some(explained.map_or(text.clone(), |explained| format!("{text} {explained}")))
    }

    /// Returns true if the window is in the past, as for a certificate that is, or will be,
    /// revoked.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.end <= now
    }

    /// Returns true if an order placed now would be within the window.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.start <= now && now < self.end
    }
}

/// The time of a renewal, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The time.
    pub at: Timestamp,
    /// The reason.
    pub because: Because,
}

/// The reason for the time of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The CA's window.
    Window,
    /// Two thirds of the validity.
    TwoThirds,
    /// The emergency floor.
    Floor,
}

/// Returns the time at which a certificate of this validity is to be renewed. `id` gives each
/// certificate a time of its own.
pub fn due(id: &str, life: (Timestamp, Timestamp), window: Option<&Window>) -> Due {
    let (not_before, not_after) = life;
    let lifetime = not_after.duration_since(not_before);
    let floor = Due {
        at: not_after - floor_of(lifetime),
        because: Because::Floor,
    };
    let usual = match window {
        Some(window) => Due {
            at: window.selected,
            because: Because::Window,
        },
        None => {
            // Up to a twelfth of the validity earlier: certificates that were all issued within an
            // hour are then renewed over a week.
            let spread =
                SignedDuration::from_secs_f64(lifetime.as_secs_f64() / 12.0 * uniform(id, 0));
            Due {
                at: not_after - lifetime / 3 - spread,
                because: Because::TwoThirds,
            }
        }
    };
    if floor.at < usual.at { floor } else { usual }
}

/// Returns true if the emergency floor is reached, so that the renewal precedes all others.
pub fn is_urgent(life: (Timestamp, Timestamp), now: Timestamp) -> bool {
    now >= life.1 - floor_of(life.1.duration_since(life.0))
}

/// Returns the emergency floor, as remaining validity: a twentieth of it, at least a day; a quarter
/// of short ones.
pub(crate) fn floor_of(lifetime: SignedDuration) -> SignedDuration {
    if lifetime < DAY * 10 {
        lifetime / 4
    } else {
        (lifetime / 20).max(DAY)
    }
}

/// Returns a number in 0..1 for a certificate: equal on every replica and after every restart.
pub(crate) fn uniform(id: &str, salt: u8) -> f64 {
    // FNV-1a and a finalizer: it must spread but not resist attacks, and it is computed for each
    // certificate in each plan.
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ u64::from(salt);
    for byte in id.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    for shift in [33, 29, 32] {
        hash = (hash ^ (hash >> shift)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    hash ^= hash >> 31;
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + hours * 3600).expect("in range")
    }

    fn window(
        previous: Option<&Window>,
        start: i64,
        end: i64,
        life: i64,
    ) -> Result<Window, &'static str> {
        Window::answered(
            previous,
            "aki.serial",
            (at(start), at(end)),
            None,
            (at(0), at(life)),
            None,
            at(1),
        )
    }

    #[test]
    fn every_life_is_renewed_at_about_two_thirds_without_ari() {
        for days in [90, 64, 45, 6] {
            let life = (at(0), at(days * 24));
            for id in ["a", "b", "c", "d", "e"] {
                let due = due(id, life, None);
                let part = due.at.duration_since(at(0)).as_hours() as f64 / (days * 24) as f64;
                assert!((0.57..=0.67).contains(&part), "{days} days: {part}");
                assert_eq!(due.because, Because::TwoThirds);
            }
        }
    }

    #[test]
    fn renewals_of_a_fleet_are_spread() {
        let life = (at(0), at(90 * 24));
        let mut days: Vec<i64> = (0..1000)
            .map(|i| {
                due(&format!("h{i}"), life, None)
                    .at
                    .duration_since(at(0))
                    .as_hours()
                    / 24
            })
            .collect();
        days.sort_unstable();
        let most = days
            .chunk_by(|a, b| a == b)
            .map(<[i64]>::len)
            .max()
            .expect("some");
        assert!(most < 220, "{most} of 1000 on one day");
    }

    #[test]
    fn the_moment_drawn_stays_while_it_lies_inside_the_window() {
        let first = window(None, 1000, 1040, 2160).expect("sensible");
        assert!(first.start <= first.selected && first.selected < first.end);
        let same = window(Some(&first), 999, 1041, 2160).expect("sensible");
        assert_eq!(same.selected, first.selected);
        let moved = window(Some(&first), 10, 20, 2160).expect("sensible");
        assert!(moved.selected >= at(10) && moved.selected < at(20));
        assert_eq!(
            due("a", (at(0), at(2160)), Some(&moved)).because,
            Because::Window
        );
    }

    #[test]
    fn a_window_cannot_postpone_beyond_the_floor() {
        let late = window(None, 2150, 2159, 2160).expect("sensible");
        let due = due("a", (at(0), at(2160)), Some(&late));
        assert_eq!(due.because, Because::Floor, "the floor decides");
        assert_eq!(
            due.at,
            at(2160) - SignedDuration::from_hours(108),
            "at the time of the floor"
        );
    }

    #[test]
    fn absurd_windows_are_refused() {
        assert!(window(None, 20, 10, 2160).is_err());
        assert!(window(None, 3000, 3010, 2160).is_err());
        assert!(window(None, 10, 10 + 24 * 4000, 2160).is_err());
    }

    #[test]
    fn the_ca_is_asked_again_between_an_hour_and_half_a_day_later() {
        for (retry_hours, least, most) in [(0, 1, 2), (6, 6, 7), (1000, 12, 14)] {
            let w = Window::answered(
                None,
                "x",
                (at(1000), at(1040)),
                None,
                (at(0), at(2160)),
                Some(SignedDuration::from_hours(retry_hours)),
                at(0),
            )
            .expect("sensible");
            let hours = w.poll_at.duration_since(at(0)).as_hours();
            assert!((least..=most).contains(&hours), "{retry_hours}: {hours}");
        }
    }
}
