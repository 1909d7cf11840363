//! Timeouts and retries of the rules of an Ingress.

use serde_json::{Value, json};

use super::source::Ingress;

/// The seconds of a timeout that is as good as none: from nginx's own to that after which Envoy
/// ends a stream without bytes.
const USUAL: std::ops::RangeInclusive<u64> = 60..=300;
/// The most that a rule may say.
const ATTEMPTS: u64 = 10;

/// The timeouts of rules.
pub(super) fn timeouts(ingress: &Ingress) -> Option<Value> {
    let seconds = ["proxy-read-timeout", "proxy-send-timeout"]
        .into_iter()
        .filter_map(|name| seconds(ingress, name))
        .max()?;
    let is_said = seconds > 0 && !USUAL.contains(&seconds);
    is_said.then(|| json!({"request": format!("{seconds}s")}))
}

/// A number of seconds.
pub(super) fn seconds(ingress: &Ingress, name: &str) -> Option<u64> {
    ingress.value(name)?.trim_end_matches('s').parse().ok()
}

/// The retries of rules: those that nginx makes of any method.
pub(super) fn retry(ingress: &Ingress) -> Option<Value> {
    let conditions = ingress.value("proxy-next-upstream")?;
    let words: Vec<&str> = conditions.split_whitespace().collect();
    if !words.contains(&"non_idempotent") {
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
