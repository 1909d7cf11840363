//! `rewrite-target`.

use gatewright_core::inputs::Substitution;
use serde_json::{Value, json};

use super::paths::Path;

/// What replaces the path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rewrite {
    /// The whole path, or the prefix of the match, by filter URLRewrite.
    Filter(Value),
    /// Groups of the expression, by `rewrite.path` of a TrafficPolicy.
    Policy(Value),
    /// Nothing, and why.
    Nothing(String),
}

/// What a target makes of a path. `matches_prefix` says whether the match of the route is a prefix.
pub(super) fn rewrite(path: &Path, target: &str, matches_prefix: bool) -> Rewrite {
    if target.contains("://") {
        let why = "a target with a scheme is a redirect: use permanent-redirect";
        return Rewrite::Nothing(why.to_owned());
    }
    if target.contains('?') {
        return Rewrite::Nothing("a target cannot have a query".to_owned());
    }
    if !target.contains('$') {
        return Rewrite::Filter(
            json!({"type": "ReplaceFullPath", "replaceFullPath": rooted(target)}),
        );
    }
    match prefix(path, target).filter(|_| matches_prefix) {
        Some(prefix) => Rewrite::Filter(
            json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": rooted(prefix)}),
        ),
        None => groups(path, target),
    }
}

/// What stands in place of the prefix that a path means, if the rest follows it.
fn prefix<'a>(path: &Path, target: &'a str) -> Option<&'a str> {
    let literal = path.literal()?;
    // `$1$2` of `(/|$)(.*)` is the rest with its slash.
    let slash = if literal.tail.starts_with("(/|$)") {
        "$1"
    } else {
        ""
    };
    let group = format!("${}", literal.rest?);
    let prefix = target
        .strip_suffix(&format!("/{group}"))
        .or_else(|| target.strip_suffix(&format!("{slash}{group}")))?;
    (!prefix.contains('$')).then_some(prefix)
}

/// A new path of the groups of a path's expression. As in nginx it takes the place of the whole
/// path, and the case of letters does not matter.
fn groups(path: &Path, target: &str) -> Rewrite {
    let Some(substitution) = substitution(target) else {
        let text = format!("{target} has another variable than $1 to $9");
        return Rewrite::Nothing(text);
    };
    let rest = if path.text.ends_with(".*)") { "" } else { ".*" };
    let pattern = format!("(?i)(?:{}){rest}", path.text);
    match Substitution::read("rewrite.path", pattern, substitution) {
        Ok(Substitution { pattern, new, .. }) => {
            Rewrite::Policy(json!({"pattern": pattern, "substitution": new}))
        }
        Err(why) => Rewrite::Nothing(why),
    }
}

/// A target with groups as RE2 has them.
fn substitution(target: &str) -> Option<String> {
    let mut parts = target.split('$');
    let begin = parts.next().unwrap_or_default();
    let mut made = begin.to_owned();
    for part in parts {
        let group = part.chars().next().filter(|c| ('1'..='9').contains(c))?;
        made += &format!("\\{group}{}", &part[1..]);
    }
    (!target.contains('\\')).then_some(made)
}

fn rooted(path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::paths::PathType;
    use super::*;

    fn replaced(path: &str, target: &str) -> Option<String> {
        let path = Path {
            text: path.to_owned(),
            kind: PathType::ImplementationSpecific,
        };
        match rewrite(&path, target, true) {
            Rewrite::Filter(value) => {
                let field = |name: &str| value.get(name).and_then(Value::as_str);
                field("replacePrefixMatch")
                    .map(|to| format!("prefix {to}"))
                    .or_else(|| field("replaceFullPath").map(|to| format!("path {to}")))
            }
            Rewrite::Policy(path) => Some(format!(
                "{} by {}",
                path["pattern"].as_str()?,
                path["substitution"].as_str()?
            )),
            Rewrite::Nothing(_) => None,
        }
    }

    #[test]
    fn prefixes_and_whole_paths_are_replaced() {
        for (path, target, expected) in [
            ("/app(/|$)(.*)", "/$2", Some("prefix /")),
            ("/app(/|$)(.*)", "/new/$2", Some("prefix /new")),
            ("/app(/|$)(.*)", "/new$1$2", Some("prefix /new")),
            ("/app/(.*)", "/$1", Some("prefix /")),
            ("/app/?(.*)", "/$1", Some("prefix /")),
            ("/(.*)", "/app/$1", Some("prefix /app")),
            ("/app", "/", Some("path /")),
            ("/app/(.*)/x", "/$1", Some(r"(?i)(?:/app/(.*)/x).* by /\1")),
            (
                "/(en|de)/shop/(.*)",
                "/shop/$2/$1",
                Some(r"(?i)(?:/(en|de)/shop/(.*)) by /shop/\2/\1"),
            ),
            ("/app(/.*)", "$1", None),
            ("/app/(.*)/x", "/$2", None),
            ("/app/(.*)/x", "/$1/$request_id", None),
            ("/app(/|$)(.*)", "/x?y=$2", None),
            ("/app", "https://example.org/", None),
        ] {
            assert_eq!(
                replaced(path, target).as_deref(),
                expected,
                "{path} by {target}"
            );
        }
    }
}
