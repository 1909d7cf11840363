//! Values of a TrafficPolicy within their bounds.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::duration::duration;

/// A number within bounds.
pub(crate) fn number(field: &str, value: i64, bounds: RangeInclusive<u32>) -> Result<u32, String> {
    let (least, most) = (bounds.start(), bounds.end());
    u32::try_from(value)
        .ok()
        .filter(|value| bounds.contains(value))
        .ok_or_else(|| format!("{field}: {least} to {most} is expected, found {value}"))
}

/// A number within bounds, or its default.
pub(crate) fn number_or(
    field: &str,
    value: Option<i64>,
    default: u32,
    bounds: RangeInclusive<u32>,
) -> Result<u32, String> {
    match value {
        Some(value) => number(field, value, bounds),
        None => Ok(default),
    }
}

/// Per cent.
pub(super) fn percent(field: &str, value: i64) -> Result<u8, String> {
    let number = number(field, value, 0..=100)?;
    Ok(u8::try_from(number).expect("it is at most 100"))
}

/// A duration (GEP-2257) within bounds.
pub(super) fn time(field: &str, text: &str, least: &str, most: &str) -> Result<Duration, String> {
    let time = duration(text).map_err(|why| format!("{field}: {why}"))?;
    fn bound(text: &str) -> Duration {
        duration(text).expect("a bound is a duration")
    }
    if !(bound(least)..=bound(most)).contains(&time) {
        return Err(format!(
            "{field}: {least} to {most} is expected, found {text}"
        ));
    }
    Ok(time)
}

/// A duration within bounds, or its default.
pub(crate) fn time_or(
    field: &str,
    text: Option<String>,
    default: &str,
    (least, most): (&str, &str),
) -> Result<Duration, String> {
    time(field, text.as_deref().unwrap_or(default), least, most)
}
