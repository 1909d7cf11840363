//! How many of the requests to a backend may be retries (GEP-3388).

use std::time::Duration;

/// The part of the requests to a backend that may be retries, and how many of them may be at any
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RetryBudget {
    /// Per cent of the requests that began within the interval; at most 100.
    pub percent: u8,
    /// The interval: a second to an hour.
    pub interval: Duration,
    /// So many retries may be in any case, within this time.
    pub count: u32,
    /// The time: up to an hour, never none.
    pub per: Duration,
}

impl RetryBudget {
    /// The most retries at a time that are allowed in any case.
    const MOST: u128 = 1024;

    /// How many retries at a time are allowed in any case, which is how Envoy says it: as many as
    /// begin within a second. At least one, since no rate is none.
    pub fn at_a_time(&self) -> u32 {
        let per_second = (u128::from(self.count) * 1000).div_ceil(self.per.as_millis().max(1));
        u32::try_from(per_second.clamp(1, Self::MOST)).expect("it was made to fit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_as_many_at_a_time_as_begin_within_a_second() {
        for (count, millis, expected) in [
            (10, 1000, 10),
            (3, 500, 6),
            (1, 3_600_000, 1),
            (90, 60_000, 2),
            (1_000_000, 1, 1024),
        ] {
            let per = Duration::from_millis(millis);
            let budget = RetryBudget {
                percent: 20,
                interval: Duration::from_secs(10),
                count,
                per,
            };
            assert_eq!(budget.at_a_time(), expected, "{count} in {per:?}");
        }
    }
}
