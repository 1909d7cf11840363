//! A new path by a regular expression for the whole path, whose groups may be parts of it.
//!
//! In: the expression and the new path, as a person writes them. Out: both as Envoy has them, and
//! what they cost a request; or why they are not taken. What comes of a path is no longer than the
//! path and the text of the new one together: a part of a path is used once.

use std::ops::Range;

use regex_syntax::ast::{self, Ast, Visitor};

use super::automaton::{self, Automata};
use super::re2;
use super::text::{self, Refused, quoted};

/// A new path for requests whose path an expression matches as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Substitution {
    /// The regular expression (RE2).
    pub pattern: String,
    /// The new path, in which `\1` to `\9` are groups of the expression, and `\0` all of it.
    pub new: String,
    /// The instructions of the expression, as RE2 compiles it.
    pub instructions: u32,
    /// The bytes that Envoy keeps of it when requests came.
    pub kept: u64,
    /// The processor time that the longest path takes, in nanoseconds.
    pub time: u64,
}

impl Substitution {
    /// The longest expression, in bytes: as long as that of a match.
    pub const PATTERN: usize = 1024;
    /// The longest new path, as it is written.
    pub const NEW: usize = 1024;

    /// Reads the fields `pattern` and `substitution` of `field`.
    ///
    /// # Errors
    /// The field that cannot be carried out, and why.
    pub fn read(field: &str, pattern: String, new: String) -> Result<Self, String> {
        let groups = Groups::read(&pattern).map_err(|why| format!("{field}.pattern: {why}"))?;
        let used = references(&format!("{field}.substitution"), &new, &groups)?;
        Self::measured(pattern, new, used > 0).map_err(|why| format!("{field}.pattern: {why}"))
    }

    fn measured(pattern: String, new: String, has_groups: bool) -> Result<Self, String> {
        let instructions = re2::size(&pattern)?;
        let mut automata = Automata::of_a_route();
        let automaton = automata.of(&pattern)?;
        let of_groups = if has_groups {
            automaton::time_of_groups(&pattern)
        } else {
            Some(0)
        };
        let Some(of_groups) = of_groups else {
            return Err(format!(
                "{} can match in too many ways at a time to find its groups: repeat less, or name the characters that may \
                 be between",
                quoted(&pattern)
            ));
        };
        Ok(Self {
            instructions,
            kept: automaton.kept,
            time: automaton.time.saturating_add(of_groups),
            pattern,
            new,
        })
    }
}

/// Checks a new path: text, and groups of the expression. Returns how many groups it has.
fn references(field: &str, new: &str, groups: &Groups) -> Result<usize, String> {
    let mut parts = new.split('\\');
    let begin = parts.next().unwrap_or_default();
    if !begin.starts_with('/') {
        return Err(format!("{field}: {} must start with \"/\"", quoted(new)));
    }
    longest(Substitution::NEW, new).map_err(|why| format!("{field}: {why}"))?;
    text::new_path(field, begin).map_err(|Refused(why)| why)?;
    let mut used: Vec<(char, &Range<usize>)> = Vec::new();
    for part in parts {
        let mut rest = part.chars();
        let group = rest.next().filter(char::is_ascii_digit).ok_or_else(|| {
            format!(
                "{field}: \\ begins the number of a group, \\0 to \\9, in {}",
                quoted(new)
            )
        })?;
        text::new_path(field, rest.as_str()).map_err(|Refused(why)| why)?;
        let number = usize::from(group as u8 - b'0');
        let within = groups.0.get(number).ok_or_else(|| {
            let found = groups.0.len() - 1;
            format!("{field}: \\{group} is no group of pattern, which has {found}")
        })?;
        let other = used.iter().find(|(_, other)| overlap(other, within));
        if let Some((other, _)) = other {
            return Err(format!(
                "{field}: \\{other} and \\{group} have a part of the path in common, which may be there once"
            ));
        }
        used.push((group, within));
    }
    Ok(used.len())
}

fn longest(most: usize, text: &str) -> Result<(), String> {
    let found = text.len();
    if found > most {
        return Err(format!("at most {most} bytes are expected, found {found}"));
    }
    Ok(())
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Where the groups of an expression are in it, by their numbers; the first is all of it.
struct Groups(Vec<Range<usize>>);

impl Groups {
    /// Those of an expression that RE2 takes.
    fn read(pattern: &str) -> Result<Self, String> {
        longest(Substitution::PATTERN, pattern)?;
        re2::size(pattern)?;
        let parsed = ast::parse::Parser::new().parse(pattern);
        let parsed = parsed.map_err(|error| error.kind().to_string())?;
        let all = Self(std::iter::once(0..pattern.len()).collect());
        ast::visit(&parsed, all).map_err(|never| match never {})
    }
}

impl Visitor for Groups {
    type Output = Self;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<Self, Self::Err> {
        Ok(self)
    }

    /// Groups are numbered in the order in which they begin.
    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        if let Ast::Group(group) = ast
            && group.capture_index().is_some()
        {
            self.0.push(group.span.start.offset..group.span.end.offset);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pattern: &str, new: &str) -> Result<Substitution, String> {
        Substitution::read("path", pattern.to_owned(), new.to_owned())
    }

    #[test]
    fn text_and_groups_are_a_new_path() {
        for (pattern, new) in [
            ("/shop(/|$)(.*)", r"/\2"),
            (r"(?i)/v([0-9]+)/(?P<rest>.*)", r"/api/\2/of/\1"),
            (r"/(en|de)/((a)|(b))", r"/\3\4"),
            ("/.*", r"/old\0"),
            ("/a(.*)", "/b%20c;d=e"),
        ] {
            let read = read(pattern, new).unwrap_or_else(|why| panic!("{pattern}: {why}"));
            assert!(read.kept > 0 && read.instructions > 8, "{read:?}");
        }
    }

    #[test]
    fn time_is_for_groups() {
        let time = |new| read("/shop(/|$)(.*)", new).expect("valid").time;
        let [plain, grouped] = ["/", r"/\2"].map(time);
        assert!(plain < 300_000, "{plain}");
        assert!((2 * plain..10_000_000).contains(&grouped), "{grouped}");
    }

    #[test]
    fn what_is_no_new_path_is_refused_with_its_field() {
        let long = format!("/{}", "a".repeat(1024));
        for (pattern, new, told) in [
            ("/(.*", r"/\1", "path.pattern: regular expression"),
            ("", "/", "path.pattern: the regular expression is empty"),
            ("/a**", "/", "is not valid RE2"),
            (&*long, "/", "path.pattern: at most 1024 bytes"),
            ("/.*a.{300}(c)", r"/\1", "more states than Envoy"),
            ("/(.*)", "", "path.substitution: \"\" must start"),
            ("/(.*)", r"\1", "must start with \"/\""),
            ("/(.*)", "https://a", "must start with \"/\""),
            ("/(.*)", &*long, "path.substitution: at most 1024 bytes"),
            ("/(.*)", "/a b", "path.substitution"),
            ("/(.*)", "/\r\nx: y", "path.substitution"),
            ("/(.*)", r"/\1?a=b", "begins a query"),
            ("/(.*)", r"/\1#b", "begins a fragment"),
            ("/(.*)", r"/%\1", "path.substitution"),
            ("/(.*)", r"/\\", "begins the number of a group"),
            ("/(.*)", r"/\n", "begins the number of a group"),
            ("/(.*)", r"/\", "begins the number of a group"),
            ("/(.*)", r"/\2", r"\2 is no group of pattern, which has 1"),
            ("/(?:.*)", r"/\1", "which has 0"),
            ("/(.*)", r"/\1/\1", r"\1 and \1 have a part"),
            ("/(.*)", r"/\0/\1", r"\0 and \1 have a part"),
            ("/((a)(b))", r"/\2/\1", r"\2 and \1 have a part"),
        ] {
            let why = read(pattern, new).expect_err(new);
            assert!(why.contains(told), "{pattern} to {new}: {why}");
        }
        assert!(read("/(a)(b)", r"/\2\1").is_ok(), "parts beside each other");
    }
}
