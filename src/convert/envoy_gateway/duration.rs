//! Durations and quantities.

use serde_json::Value;

/// The milliseconds of a duration of the Gateway API.
pub(super) fn millis(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = rest.split_at(digits);
        let (factor, length) = match unit {
            unit if unit.starts_with("ms") => (1, 2),
            unit if unit.starts_with('s') => (1000, 1),
            unit if unit.starts_with('m') => (60_000, 1),
            unit if unit.starts_with('h') => (3_600_000, 1),
            _ => return None,
        };
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = &unit[length..];
    }
    (!text.is_empty()).then_some(sum)
}

/// A duration that is neither shorter nor longer than that.
pub(super) fn within(text: &str, least: u64, most: u64) -> String {
    match millis(text) {
        Some(millis) if millis < least => shown(least),
        Some(millis) if millis > most => shown(most),
        _ => text.to_owned(),
    }
}

fn shown(millis: u64) -> String {
    if millis.is_multiple_of(1000) {
        format!("{}s", millis / 1000)
    } else {
        format!("{millis}ms")
    }
}

/// The number of a quantity of Kubernetes.
pub(super) fn quantity(value: &Value) -> Option<u64> {
    if let Some(number) = value.as_u64() {
        return Some(number);
    }
    let text = value.as_str()?;
    let units = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    let (number, factor) = units
        .into_iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, factor)))
        .unwrap_or((text, 1));
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_and_quantities_are_read_as_kubernetes_reads_them() {
        for (text, expected) in [
            ("1h30m", Some(5_400_000)),
            ("250ms", Some(250)),
            ("10s", Some(10_000)),
            ("", None),
            ("5", None),
            ("s", None),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
        for (value, expected) in [
            (json!("10Mi"), Some(10 << 20)),
            (json!("1k"), Some(1000)),
            (json!(512), Some(512)),
            (json!("x"), None),
        ] {
            assert_eq!(quantity(&value), expected, "{value}");
        }
        assert_eq!(within("90s", 10, 60_000), "60s", "the most");
        assert_eq!(within("1ms", 10, 60_000), "10ms", "the least");
    }
}
