//! Fields that the definitions of a cluster do not have: those of an older bundle of the Gateway
//! API, or of the standard channel.
//!
//! A server-side apply with such a field is refused as a whole, and the answer names the fields.
//! They are left out from then on, until the definitions change. A server may announce them a
//! moment before it uses them, or not announce them to us: so the fields are tried again after a
//! while, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use gatewright_core::inputs::Kind;

/// For so long fields are left out after a refusal, and at most after further ones in a row.
const REMEMBERED: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);

/// The text of the server after the path of a field.
const NOT_DECLARED: &str = ": field not declared in schema";

/// The path of a field, without indices of lists: it is meant in every item.
type Path = Vec<String>;

/// The fields that are left out of statuses, by kind.
#[derive(Debug, Default)]
pub(crate) struct Undeclared {
    of: BTreeMap<Kind, Refused>,
}

/// The fields of one kind.
#[derive(Debug, Default)]
struct Refused {
    paths: BTreeSet<Path>,
    /// The time until which they are left out.
    until: Option<Instant>,
    /// The number of times that they were refused.
    times: u32,
}

impl Undeclared {
    /// Learns from what the server said of a refused apply.
    pub(crate) fn learn(&mut self, kind: Kind, said: &str, now: Instant) {
        let mut named: Vec<&str> = said.split(NOT_DECLARED).collect();
        // Behind the last one nothing is named.
        named.pop();
        let paths = named
            .into_iter()
            .filter_map(|text| text.rsplit(char::is_whitespace).next())
            .map(path);
        let paths: Vec<Path> = paths.filter(|path| !path.is_empty()).collect();
        if !paths.is_empty() {
            let refused = self.of.entry(kind).or_default();
            // Several statuses may be on their way when the first is refused.
            if refused.until.is_none_or(|until| until <= now) {
                refused.until = Some(
                    now + (REMEMBERED * 2_u32.saturating_pow(refused.times.min(16))).min(LONGEST),
                );
                refused.times += 1;
            }
            refused.paths.extend(paths);
        }
    }

    /// Forgets all fields. Returns the kinds that had some.
    pub(crate) fn forget(&mut self) -> Vec<Kind> {
        std::mem::take(&mut self.of).into_keys().collect()
    }

    /// Leaves the fields out of a document. Whether there was any.
    pub(crate) fn leave_out(&self, kind: Kind, document: &mut Value, now: Instant) -> bool {
        let refused = self
            .of
            .get(&kind)
            .filter(|refused| refused.until.is_some_and(|until| now < until));
        let paths = refused.into_iter().flat_map(|refused| &refused.paths);
        paths
            .map(|path| remove(document, path))
            .filter(|is_less| *is_less)
            .count()
            > 0
    }
}

/// `.status.addresses[0].routability` as names of fields.
fn path(text: &str) -> Path {
    let names = text
        .trim_start_matches('.')
        .split('.')
        .map(|name| name.split('[').next().unwrap_or_default());
    names.map(str::to_owned).collect()
}

fn remove(value: &mut Value, path: &[String]) -> bool {
    match (value, path) {
        (Value::Array(items), _) => {
            items
                .iter_mut()
                .map(|item| remove(item, path))
                .filter(|is_less| *is_less)
                .count()
                > 0
        }
        (Value::Object(fields), [last]) => fields.remove(last).is_some(),
        (Value::Object(fields), [first, rest @ ..]) => fields
            .get_mut(first)
            .is_some_and(|value| remove(value, rest)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn undeclared_fields_are_omitted_for_a_while() {
        let mut undeclared = Undeclared::default();
        let mut now = Instant::now();
        let kind = Kind::Gateway;
        fn made() -> Value {
            json!({"status": {"attachedListenerSets": 0, "conditions": [],
                "addresses": [{"value": "a", "routability": ""}, {"value": "b", "routability": ""}]}})
        }
        let mut document = made();
        undeclared.learn(kind, "spec.x: Invalid value", now);
        assert!(
            !undeclared.leave_out(kind, &mut document, now),
            "another refusal teaches nothing"
        );
        let said = "failed to create typed patch object (a/b; g/v1, Kind=Gateway): errors:\n  \
                    .status.addresses[0].routability: field not declared in schema\n  \
                    .status.attachedListenerSets: field not declared in schema";
        undeclared.learn(kind, said, now);
        assert!(undeclared.leave_out(kind, &mut document, now));
        let left =
            json!({"status": {"conditions": [], "addresses": [{"value": "a"}, {"value": "b"}]}});
        assert_eq!(document, left);
        assert!(
            !undeclared.leave_out(Kind::ListenerSet, &mut made(), now),
            "of that kind alone"
        );
        now += REMEMBERED;
        assert!(
            !undeclared.leave_out(kind, &mut made(), now),
            "definitions may be newer"
        );
        undeclared.learn(kind, said, now);
        now += REMEMBERED;
        assert!(
            undeclared.leave_out(kind, &mut made(), now),
            "after another refusal they are left out for longer"
        );
        assert_eq!(undeclared.forget(), [kind]);
        assert!(
            !undeclared.leave_out(kind, &mut made(), now),
            "definitions are newer"
        );
    }
}
