//! Paths of Ingresses as matches of routes.
//!
//! If one path of a host is a regular expression, nginx reads all of the host as such, without
//! regard to case, from the beginning of the path, and takes the first that matches: the longest
//! comes first. In a route exact paths come first, then regular expressions, then prefixes, the
//! longest first of each; each expression becomes longer by the same number of characters here,
//! which keeps their order. A path whose expression says no more than a prefix becomes one, unless
//! that would put it behind a shorter expression.

use serde_json::{Value, json};

/// How a path is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathType {
    Exact,
    Prefix,
    ImplementationSpecific,
}

impl PathType {
    pub(super) fn read(text: &str) -> Self {
        match text {
            "Exact" => Self::Exact,
            "Prefix" => Self::Prefix,
            _ => Self::ImplementationSpecific,
        }
    }
}

/// A path of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) text: String,
    pub(super) kind: PathType,
}

/// Characters of a regular expression that do not stand for themselves, without the dot, which
/// matches itself too.
const META: &[char] = &[
    '(', ')', '[', ']', '{', '}', '*', '+', '?', '|', '^', '$', '\\',
];
/// Syntax of PCRE that RE2 does not have.
const PCRE_ONLY: [&str; 8] = ["(?=", "(?!", "(?<", "(?>", "(?#", "*+", "++", "?+"];

/// The tails behind a literal prefix of expressions that mean no more than the prefix: the text,
/// and the group with the rest of the path.
const TAILS: [(&str, Option<usize>); 9] = [
    ("(/|$)(.*)", Some(2)),
    ("(?:/|$)(.*)", Some(1)),
    ("/?(.*)", Some(1)),
    ("/(.*)", Some(1)),
    ("(.*)", Some(1)),
    ("(/.*)?", None),
    ("/.*", None),
    (".*", None),
    ("", None),
];

/// A path whose expression means a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Literal<'a> {
    /// The prefix, without the slash at its end.
    pub(super) prefix: &'a str,
    /// The expression behind the prefix.
    pub(super) tail: &'a str,
    /// The group of the expression that has the rest of the path.
    pub(super) rest: Option<usize>,
}

/// A match, and how it differs from nginx's.
pub(super) struct Matched {
    pub(super) value: Value,
    pub(super) difference: Option<&'static str>,
}

impl Path {
    /// The path `/`.
    pub(super) fn root() -> Self {
        Self {
            text: "/".to_owned(),
            kind: PathType::Prefix,
        }
    }

    /// The path as a prefix, if its expression means no more.
    pub(super) fn literal(&self) -> Option<Literal<'_>> {
        TAILS.iter().find_map(|(tail, rest)| {
            let prefix = self.text.strip_suffix(tail)?;
            (!prefix.contains(META)).then(|| Literal {
                prefix: prefix.trim_end_matches('/'),
                tail,
                rest: *rest,
            })
        })
    }

    /// The match in a host without regular expressions.
    pub(super) fn plain(&self) -> Result<Matched, String> {
        if self.text.contains(['*', '(', '[', '^', '\\', ' ']) {
            return Err("a path with such characters needs use-regex".to_owned());
        }
        let difference = match self.kind {
            PathType::ImplementationSpecific if !self.text.ends_with('/') => {
                Some("the prefix ends with a segment: /a is no prefix of /ab")
            }
            _ => None,
        };
        let kind = match self.kind {
            PathType::Exact => "Exact",
            PathType::Prefix | PathType::ImplementationSpecific => "PathPrefix",
        };
        Ok(Matched {
            value: json!({"path": {"type": kind, "value": self.text}}),
            difference,
        })
    }

    /// The match in a host whose paths are regular expressions, with these others.
    pub(super) fn regex<'a>(
        &self,
        mut others: impl Iterator<Item = &'a Path>,
    ) -> Result<Matched, String> {
        if self.text == "/" {
            return Ok(Matched {
                value: json!({"path": {"type": "PathPrefix", "value": "/"}}),
                difference: None,
            });
        }
        if let Some(literal) = self.literal()
            && !others.any(|other| other.comes_between(self))
        {
            let prefix = match literal.prefix {
                "" => "/",
                prefix => prefix,
            };
            let difference = match (prefix, literal.tail) {
                ("/", _) => None,
                (_, "(/|$)(.*)" | "(?:/|$)(.*)" | "(/.*)?") => Some("the case of letters counts"),
                (_, "/(.*)" | "/.*") => Some(
                    "the case of letters counts, and the path without the last slash matches too",
                ),
                _ => Some(
                    "the case of letters counts, and the prefix ends with a segment: /a is no prefix of /ab",
                ),
            };
            return Ok(Matched {
                value: json!({"path": {"type": "PathPrefix", "value": prefix}}),
                difference,
            });
        }
        if let Some(syntax) = PCRE_ONLY.iter().find(|syntax| self.text.contains(**syntax)) {
            return Err(format!("RE2 has no {syntax}"));
        }
        let expression = if self.text.contains('|') {
            format!("(?i)(?:{}).*", self.text)
        } else {
            format!("(?i){}.*", self.text)
        };
        Ok(Matched {
            value: json!({"path": {"type": "RegularExpression", "value": expression}}),
            difference: None,
        })
    }

    /// The match of all paths that begin as an expression does, and that beginning; none where that
    /// is all paths of the host.
    pub(super) fn beginning_match(&self) -> Option<(Value, &str)> {
        let beginning = self.beginning();
        (beginning.len() > 1).then(|| {
            let expression = format!("(?i){beginning}.*");
            let path = json!({"type": "RegularExpression", "value": expression});
            (json!({"path": path}), beginning)
        })
    }

    /// What an expression begins with, without what may be missing.
    fn beginning(&self) -> &str {
        let end = self.text.find(META).unwrap_or(self.text.len());
        let is_optional = self.text[end..].starts_with(['?', '*', '{']);
        let beginning = &self.text[..end];
        match beginning.char_indices().next_back() {
            Some((last, _)) if is_optional => &beginning[..last],
            _ => beginning,
        }
    }

    /// True if this path stays an expression, nginx would try it after the other one, and both can
    /// match the same path.
    fn comes_between(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|path| path.beginning().to_lowercase());
        self.literal().is_none()
            && self.text.len() <= other.text.len()
            && (own.starts_with(&others) || others.starts_with(&own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        Path {
            text: text.to_owned(),
            kind: PathType::ImplementationSpecific,
        }
    }

    fn matched(text: &str, others: &[&str]) -> String {
        let others: Vec<Path> = others.iter().map(|text| path(text)).collect();
        match path(text).regex(others.iter()) {
            Ok(found) => {
                let of = &found.value["path"];
                format!("{} {}", of["type"], of["value"]).replace('"', "")
            }
            Err(why) => why,
        }
    }

    #[test]
    fn an_expression_that_means_a_prefix_becomes_one() {
        for (text, expected) in [
            ("/app(/|$)(.*)", "PathPrefix /app"),
            ("/app/(.*)", "PathPrefix /app"),
            ("/(.*)", "PathPrefix /"),
            ("/app", "PathPrefix /app"),
            ("/app/v[0-9]+", "RegularExpression (?i)/app/v[0-9]+.*"),
            ("/(a|b)/c", "RegularExpression (?i)(?:/(a|b)/c).*"),
            ("/a(?!b)", "RE2 has no (?!"),
        ] {
            assert_eq!(matched(text, &[]), expected, "{text}");
        }
    }

    #[test]
    fn a_beginning_has_nothing_that_may_be_missing() {
        for (text, expected) in [
            ("/no(?!pe)", Some("/no")),
            ("/nos?(?!pe)", Some("/no")),
            ("/(?!a)", None),
        ] {
            let path = path(text);
            let beginning = path.beginning_match().map(|(_, beginning)| beginning);
            assert_eq!(beginning, expected, "{text}");
        }
    }

    #[test]
    fn a_prefix_stays_an_expression_before_a_shorter_one() {
        assert_eq!(
            matched("/app/static(/|$)(.*)", &["/app/[a-z]+"]),
            "RegularExpression (?i)(?:/app/static(/|$)(.*)).*"
        );
        assert_eq!(
            matched("/app/static(/|$)(.*)", &["/img/[a-z]+"]),
            "PathPrefix /app/static",
            "the other one matches no such path"
        );
        assert_eq!(
            matched("/app", &["/app/v[0-9]+/x"]),
            "PathPrefix /app",
            "the longer expression comes first in both"
        );
    }
}
