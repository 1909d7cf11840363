//! `rewrite-target`.

use serde_json::{Value, json};

use super::paths::Path;

/// What replaces the path of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rewrite {
    /// The whole path, or the prefix of the match, by filter URLRewrite.
    Filter(Value),
    /// Nothing that a filter can do: why. A setting for groups of expressions belongs here.
    Expression(&'static str),
}

/// What a target makes of a path. `matches_prefix` says whether the match of the route is a prefix.
pub(super) fn rewrite(path: &Path, target: &str, matches_prefix: bool) -> Rewrite {
    if target.contains("://") {
        return Rewrite::Expression("a target with a scheme is a redirect: use permanent-redirect");
    }
    if target.contains('?') {
        return Rewrite::Expression("a target cannot have a query");
    }
    if !target.contains('$') {
        return Rewrite::Filter(
            json!({"type": "ReplaceFullPath", "replaceFullPath": rooted(target)}),
        );
    }
    let literal = path.literal().filter(|_| matches_prefix);
    let Some((literal, rest)) = literal.and_then(|of| Some((of.clone(), of.rest?))) else {
        return Rewrite::Expression(GROUPS);
    };
    // `$1$2` of `(/|$)(.*)` is the rest with its slash.
    let slash = if literal.tail.starts_with("(/|$)") {
        "$1"
    } else {
        ""
    };
    let group = format!("${rest}");
    let Some(prefix) = target
        .strip_suffix(&format!("/{group}"))
        .or_else(|| target.strip_suffix(&format!("{slash}{group}")))
    else {
        return Rewrite::Expression(GROUPS);
    };
    if prefix.contains('$') {
        return Rewrite::Expression(GROUPS);
    }
    Rewrite::Filter(json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": rooted(prefix)}))
}

const GROUPS: &str = "groups of a regular expression: no filter has them; let the application take the paths as they are, or write a rule for \
                      each prefix";

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
            Rewrite::Expression(_) => None,
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
            ("/app/(.*)/x", "/$1", None),
            ("/app(/|$)(.*)", "/$1", None),
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
