//! Timeouts and retries of the rules of an Ingress.

use serde_json::{Value, json};

use super::source::Ingress;
use crate::convert::Verdict;
use crate::convert::report::Report;

/// The seconds of a timeout that is as good as none: from nginx's own to that after which Envoy
/// ends a stream without bytes.
const USUAL: std::ops::RangeInclusive<u64> = 60..=300;
/// The most that a rule may say.
const ATTEMPTS: u64 = 10;

/// The timeouts of rules.
pub(super) fn timeouts(ingress: &Ingress, report: &mut Report) -> Option<Value> {
    let names = ["proxy-read-timeout", "proxy-send-timeout"];
    let seconds = names
        .into_iter()
        .filter_map(|name| seconds(ingress, name))
        .max()?;
    let is_said = seconds > 0 && !USUAL.contains(&seconds);
    let text = if is_said {
        format!(
            "timeouts.request {}, which is for the whole request",
            duration(seconds)
        )
    } else {
        "Envoy ends a request or response without bytes after 300 s".to_owned()
    };
    for name in names {
        report.tell(ingress, name, Verdict::Differs, &text);
    }
    is_said.then(|| json!({"request": duration(seconds)}))
}

/// A duration as objects have it, of at most five digits a unit.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..=99_999 => format!("{seconds}s"),
        _ if seconds < 60 * 99_999 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h", (seconds / 3600).min(99_999)),
    }
}

/// A number of seconds.
pub(super) fn seconds(ingress: &Ingress, name: &str) -> Option<u64> {
    ingress.value(name)?.trim_end_matches('s').parse().ok()
}

/// The retries of rules: those that nginx makes of any method.
pub(super) fn retry(ingress: &Ingress, report: &mut Report) -> Option<Value> {
    let conditions = ingress.value("proxy-next-upstream")?;
    let words: Vec<&str> = conditions.split_whitespace().collect();
    if !words.contains(&"non_idempotent") {
        let (verdict, text) = if words.contains(&"off") {
            (Verdict::CarriedOver, "no retry")
        } else {
            let text = "no retry: Envoy would repeat requests of all methods; add retry to the rule where that is right";
            (Verdict::NotCarriedOver, text)
        };
        report.tell(ingress, "proxy-next-upstream", verdict, text);
        report.tell(ingress, "proxy-next-upstream-tries", verdict, text);
        return None;
    }
    let codes: Vec<u16> = words
        .iter()
        .filter_map(|word| word.strip_prefix("http_")?.parse().ok())
        .filter(|code| *code >= 500 || *code == 429)
        .collect();
    if codes.is_empty() {
        return None;
    }
    let tries = ingress.value("proxy-next-upstream-tries");
    let tries = tries
        .and_then(|tries| tries.parse::<u64>().ok())
        .unwrap_or(3);
    let attempts = tries.saturating_sub(1).clamp(1, ATTEMPTS);
    Some(json!({"attempts": attempts, "codes": codes}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_five_digits_at_most() {
        for (seconds, expected) in [(3600, "3600s"), (172_800, "2880m0s"), (31_536_000, "8760h")] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
