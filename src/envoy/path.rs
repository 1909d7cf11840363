//! Path rewrites, and their special cases with slashes.

use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher};

use gatewright_core::model::{PathMatch, PathRewrite};

/// The new path of a request in Envoy's terms. The query is kept in every case.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NewPath {
    /// Replaces the matched prefix.
    Prefix(String),
    /// Replaces the matches of the expression.
    Regex(RegexMatchAndSubstitute),
    /// Replaces the whole path, literally.
    Whole(String),
}

/// A percent-encoded slash or backslash.
const ESCAPED: &str = "%(?:2[Ff]|5[Cc])";

/// Returns the new path of a request that `matched`; `None` if it is unchanged.
///
/// `ReplacePrefixMatch` replaces whole path elements (the table in the Gateway API's
/// `HTTPPathModifier`): `/foo` → `/` turns `/foo/bar` into `/bar`, not `//bar`, and `/` → `/xyz`
/// turns `/bar` into `/xyz/bar`, not `/xyzbar`. It is valid with prefix matches only; with others
/// the API refuses it and nothing is rewritten here.
pub(super) fn new_path(matched: &PathMatch, rewrite: &PathRewrite) -> Option<NewPath> {
    let (prefix, new) = match (rewrite, matched) {
        (PathRewrite::Full(path), _) => return Some(NewPath::Whole(absolute(path))),
        (PathRewrite::PlainSlashes, _) => {
            return Some(NewPath::Regex(replace(ESCAPED.to_owned(), "/")));
        }
        (PathRewrite::Pattern { pattern, new }, _) => {
            return Some(NewPath::Regex(RegexMatchAndSubstitute {
                pattern: Some(RegexMatcher {
                    regex: whole_text(pattern),
                    ..Default::default()
                }),
                substitution: new.clone(),
            }));
        }
        (PathRewrite::Prefix(_), PathMatch::Exact(_) | PathMatch::Regex(_)) => return None,
        (PathRewrite::Prefix(new), PathMatch::Prefix(prefix)) => {
            (prefix.trim_end_matches('/'), new.trim_end_matches('/'))
        }
    };
    match (prefix, new) {
        ("", "") => None,
        ("", new) => Some(NewPath::Regex(replace(
            "^/".to_owned(),
            &format!("{}/", absolute(new)),
        ))),
        (prefix, "") => Some(NewPath::Regex(replace(
            format!("^{}/?", regex::escape(prefix)),
            "/",
        ))),
        (_, new) => Some(NewPath::Prefix(absolute(new))),
    }
}

/// "Replace the whole path" as a regular expression, for rewrites, which have no literal form of
/// it.
pub(super) fn whole(path: &str) -> RegexMatchAndSubstitute {
    replace("^/.*$".to_owned(), path)
}

/// An expression for a whole text: Envoy replaces all parts of a path that match one, and looks
/// for each of them to the end of the path.
fn whole_text(pattern: &str) -> String {
    format!("^(?:{pattern})$")
}

/// A full path always starts with a slash; an empty one is the root.
fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}

fn replace(regex: String, literal: &str) -> RegexMatchAndSubstitute {
    RegexMatchAndSubstitute {
        pattern: Some(RegexMatcher {
            regex,
            ..Default::default()
        }),
        // Otherwise `\1` would be a capture group.
        substitution: literal.replace('\\', "\\\\"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path that Envoy makes of `path`, which matches `prefix`.
    fn rewritten(prefix: &str, new: &str, path: &str) -> String {
        let matched = PathMatch::Prefix(prefix.to_owned());
        match new_path(&matched, &PathRewrite::Prefix(new.to_owned())) {
            None => path.to_owned(),
            Some(NewPath::Whole(new)) => new,
            Some(NewPath::Prefix(new)) => {
                new + path
                    .strip_prefix(prefix.trim_end_matches('/'))
                    .expect("the prefix")
            }
            Some(NewPath::Regex(RegexMatchAndSubstitute {
                pattern,
                substitution,
            })) => {
                let regex = regex::Regex::new(&pattern.expect("a pattern").regex)
                    .expect("a regular expression");
                regex
                    .replace_all(path, regex::NoExpand(&substitution))
                    .into_owned()
            }
        }
    }

    #[test]
    fn prefixes_are_replaced_as_the_specification_says() {
        // Gateway API v1.7.0, HTTPPathModifier.replacePrefixMatch, all rows of its table, and `/`
        // as the prefix.
        for (path, prefix, new, expected) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo/", "/foo", "", "/"),
            ("/foo", "/foo", "", "/"),
            ("/foo/", "/foo", "/", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/bar", "/", "/xyz", "/xyz/bar"),
            ("/", "/", "/", "/"),
            ("/f.o/bar", "/f.o", "/", "/bar"),
        ] {
            assert_eq!(
                rewritten(prefix, new, path),
                expected,
                "{path} with {prefix} → {new}"
            );
        }
    }

    #[test]
    fn a_backslash_in_a_new_path_is_no_capture_group() {
        assert_eq!(whole("/a\\1").substitution, "/a\\\\1");
    }

    #[test]
    fn a_prefix_is_not_replaced_where_none_matched() {
        let rewrite = PathRewrite::Prefix("/x".to_owned());
        assert_eq!(new_path(&PathMatch::Exact("/a".to_owned()), &rewrite), None);
    }
}
