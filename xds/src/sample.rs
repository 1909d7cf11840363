//! Sampling of log lines that untrusted clients can cause.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Most lines of one kind that are written within [`PERIOD`].
const MAX_LINES: u32 = 5;
const PERIOD: Duration = Duration::from_secs(10);

/// A sampler of lines of one kind.
#[derive(Debug, Default)]
pub struct Sample(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    begun: Option<Instant>,
    written: u32,
    omitted: u64,
}

impl Sample {
    /// Returns None if a line is to be omitted now, else the number of lines that were omitted
    /// since the last one.
    pub fn take(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().expect("no holder of this lock panics");
        if state
            .begun
            .is_none_or(|begun| now.saturating_duration_since(begun) >= PERIOD)
        {
            (state.begun, state.written) = (Some(now), 0);
        }
        if state.written >= MAX_LINES {
            state.omitted += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_are_written_and_the_others_are_counted() {
        let sample = Sample::default();
        let now = Instant::now();
        let written = (0..1000).filter(|_| sample.take(now).is_some()).count();
        assert_eq!(written, MAX_LINES as usize);
        assert_eq!(sample.take(now + PERIOD), Some(1000 - u64::from(MAX_LINES)));
        assert_eq!(sample.take(now + PERIOD), Some(0));
    }
}
