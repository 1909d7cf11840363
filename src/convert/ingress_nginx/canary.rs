//! Canaries: conditions on a header or a cookie, and a share of the rest.

use serde_json::{Value, json};

use super::source::Ingress;

/// Who gets the backend of a canary.
#[derive(Default)]
pub(super) struct Canary {
    /// Conditions on headers, and whether they lead to the canary: the first that holds decides.
    pub(super) conditions: Vec<(Value, bool)>,
    /// The canary's share of other requests, and of how many.
    pub(super) weight: u32,
    pub(super) total: u32,
}

impl Canary {
    /// Reads the annotations of a canary.
    pub(super) fn read(ingress: &Ingress) -> Self {
        let mut canary = Self {
            weight: number(ingress, "canary-weight").unwrap_or(0),
            // As in nginx, a total below 100 is 100.
            total: number(ingress, "canary-weight-total")
                .unwrap_or(100)
                .max(100),
            ..Self::default()
        };
        canary.weight = canary.weight.min(canary.total);
        if let Some(header) = ingress.annotation("canary-by-header") {
            let value = ingress.annotation("canary-by-header-value");
            let pattern = ingress.annotation("canary-by-header-pattern");
            match (value, pattern) {
                (Some(value), _) if !value.is_empty() => canary.add(exact(header, value), true),
                (_, Some(pattern)) if !pattern.is_empty() => {
                    canary.add(matching(header, &whole(pattern)), true);
                }
                _ => {
                    canary.add(exact(header, "always"), true);
                    canary.add(exact(header, "never"), false);
                }
            }
        }
        if let Some(cookie) = ingress.annotation("canary-by-cookie") {
            for (value, is_canary) in [("always", true), ("never", false)] {
                let cookie = escaped(cookie);
                let expression = format!("(?:.*; ?)?{cookie}={value}(?:;.*)?");
                canary.add(matching("Cookie", &expression), is_canary);
            }
        }
        canary
    }

    fn add(&mut self, header: Value, is_canary: bool) {
        self.conditions.push((header, is_canary));
    }
}

fn number(ingress: &Ingress, name: &str) -> Option<u32> {
    ingress.annotation(name)?.parse().ok()
}

fn exact(header: &str, value: &str) -> Value {
    json!({"name": header, "value": value})
}

fn matching(header: &str, expression: &str) -> Value {
    json!({"type": "RegularExpression", "name": header, "value": expression})
}

/// A name as an expression that matches nothing else.
fn escaped(name: &str) -> String {
    name.chars()
        .flat_map(|letter| {
            let is_plain = letter.is_ascii_alphanumeric() || "_-".contains(letter);
            (!is_plain).then_some('\\').into_iter().chain([letter])
        })
        .collect()
}

/// An expression for the whole of a value, of one that nginx searches in it.
fn whole(pattern: &str) -> String {
    if pattern.contains('|') {
        // Anchors are parts of alternatives.
        return format!(".*(?:{pattern}).*");
    }
    let (before, inner) = match pattern.strip_prefix('^') {
        Some(inner) => ("", inner),
        None => (".*", pattern),
    };
    match inner.strip_suffix('$') {
        Some(inner) if !inner.ends_with('\\') => format!("{before}{inner}"),
        _ => format!("{before}{inner}.*"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_searched_in_the_value() {
        for (pattern, expected) in [
            ("^user-[0-9]+$", "user-[0-9]+"),
            ("beta", ".*beta.*"),
            (r"5\$", r".*5\$.*"),
            ("^a|b$", ".*(?:^a|b$).*"),
        ] {
            assert_eq!(whole(pattern), expected, "{pattern}");
        }
    }
}
