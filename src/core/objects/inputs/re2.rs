//! Validates regular expressions for Envoy, and estimates their size there. Pure.
//!
//! An expression that Envoy refuses would hold back all resources that are sent with it, so this is
//! an allow-list: the `regex` crate's parser reads the expression, and only syntax that is known to
//! be RE2's is accepted (<https://github.com/google/re2/wiki/Syntax>). Envoy compiles expressions
//! for bytes (Latin-1), not for UTF-8. `e2e/tests/isolation/regex.rs` compares the verdicts with
//! Envoy's.

use regex_syntax::ast::{
    self, Ast, ClassPerlKind, ClassSet, ClassSetItem, ClassUnicodeKind, Flag, FlagsItemKind,
    GroupKind, LiteralKind, RepetitionKind, RepetitionRange, SpecialLiteralKind,
    parse::ParserBuilder,
};

use super::text::quoted;

/// RE2's limit of repetitions, nested ones multiplied.
const REPEAT: u32 = 1000;
/// The deepest nesting of groups that is accepted. RE2's own limit is 1000.
const MAX_DEPTH: u32 = 100;
/// RE2's names of the Unicode general categories. It does not know `Cn` and `LC`, and no other
/// spelling.
const CATEGORIES: [&str; 36] = [
    "C", "Cc", "Cf", "Co", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd",
    "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z",
    "Zl", "Zp", "Zs", "Any",
];
/// Scripts that are accepted by name.
const SCRIPTS: [&str; 12] = [
    "Latin",
    "Greek",
    "Cyrillic",
    "Han",
    "Hiragana",
    "Katakana",
    "Arabic",
    "Hebrew",
    "Thai",
    "Hangul",
    "Devanagari",
    "Armenian",
];
/// An upper bound of the instructions of a category, whose 256 bytes are matched (measured: 16).
const CATEGORY_SIZE: u32 = 20;

/// Returns an upper bound of the instructions that RE2 compiles an expression to, or why Envoy
/// would refuse it.
pub(super) fn size(text: &str) -> Result<u32, String> {
    let wrong = |reason: String| {
        format!(
            "regular expression {} is not valid RE2 ({reason})",
            quoted(text)
        )
    };
    if text.is_empty() {
        return Err("the regular expression is empty".to_owned());
    }
    if let Some(control) = text.chars().find(|c| c.is_control()) {
        return Err(wrong(format!(
            "it has the control character {control:?}: write it as an escape"
        )));
    }
    let mut parser = ParserBuilder::new().nest_limit(MAX_DEPTH).build();
    let ast = parser
        .parse(text)
        .map_err(|error| wrong(error.kind().to_string()))?;
    let checker = Checker {
        text,
        fold: ignores_case(text),
    };
    // Beside the expression RE2 needs instructions to begin, to match and to fail.
    checker
        .size(&ast, 1)
        .map(|size| size.saturating_add(8))
        .map_err(wrong)
}

/// True if an expression may set the flag `i` somewhere.
fn ignores_case(text: &str) -> bool {
    text.split("(?").skip(1).any(|rest| {
        rest.chars()
            .take_while(|c| c.is_ascii_alphabetic() || *c == '-')
            .any(|c| c == 'i')
    })
}

struct Checker<'a> {
    text: &'a str,
    fold: bool,
}

impl Checker<'_> {
    /// Returns the size of a part; `times` is the product of the counts of the repetitions around
    /// it.
    fn size(&self, ast: &Ast, times: u32) -> Result<u32, String> {
        Ok(match ast {
            Ast::Empty(_) => 1,
            Ast::Flags(set) => flags(&set.flags)?,
            Ast::Literal(literal) => self.literal(literal)?,
            Ast::Dot(_) => 2,
            Ast::Assertion(assertion) => known_assertion(&assertion.kind)?,
            Ast::ClassPerl(class) => perl(&class.kind),
            Ast::ClassUnicode(class) => category(&class.kind)?,
            Ast::ClassBracketed(class) => {
                let ClassSet::Item(item) = &class.kind else {
                    return Err("RE2 does not know operations on character classes".to_owned());
                };
                self.item(item)?.saturating_add(1)
            }
            Ast::Repetition(repetition) => self.repetition(repetition, times)?,
            Ast::Group(group) => {
                let own = match &group.kind {
                    GroupKind::CaptureIndex(_) => 2,
                    GroupKind::CaptureName { name, .. } => named(&name.name)?,
                    GroupKind::NonCapturing(set) => flags(set)?,
                };
                self.size(&group.ast, times)?.saturating_add(own)
            }
            Ast::Alternation(alternation) => {
                let branches = u32::try_from(alternation.asts.len()).unwrap_or(u32::MAX);
                self.sum(&alternation.asts, times)?.saturating_add(branches)
            }
            Ast::Concat(concat) => self.sum(&concat.asts, times)?,
        })
    }

    fn sum(&self, asts: &[Ast], times: u32) -> Result<u32, String> {
        asts.iter().try_fold(0_u32, |sum, ast| {
            Ok(sum.saturating_add(self.size(ast, times)?))
        })
    }

    fn repetition(&self, repetition: &ast::Repetition, times: u32) -> Result<u32, String> {
        match &*repetition.ast {
            Ast::Repetition(_) => {
                return Err("RE2 does not repeat a repetition: put it into a group".to_owned());
            }
            Ast::Literal(literal) if !literal.c.is_ascii() => return Err(beyond_ascii(literal.c)),
            _ => {}
        }
        let RepetitionKind::Range(range) = &repetition.op.kind else {
            // A repetition of an expression that may match the empty string needs more
            // instructions.
            return Ok(self.size(&repetition.ast, times)?.saturating_add(3));
        };
        let span = &repetition.op.span;
        let written = self
            .text
            .get(span.start.offset..span.end.offset)
            .unwrap_or_default();
        let digits = written
            .trim_start_matches('{')
            .trim_end_matches('?')
            .trim_end_matches('}');
        fn is_plain(number: &str) -> bool {
            number.bytes().all(|b| b.is_ascii_digit())
                && (number == "0" || !number.starts_with('0'))
        }
        if !digits.split(',').all(is_plain) {
            return Err(format!(
                "RE2 does not take {written} for a repetition: expected a form such as {{2,5}}"
            ));
        }
        let (least, most) = match range {
            RepetitionRange::Exactly(count) => (*count, *count),
            RepetitionRange::AtLeast(count) => (*count, *count),
            RepetitionRange::Bounded(least, most) => (*least, *most),
        };
        let times = times.saturating_mul(most.max(1));
        if times > REPEAT {
            return Err(format!(
                "RE2 repeats at most {REPEAT} times, nested repetitions multiplied"
            ));
        }
        let one = self.size(&repetition.ast, times)?;
        Ok(one
            .saturating_mul(most.max(1))
            .saturating_add(most - least.min(most))
            .saturating_add(3))
    }

    /// Returns the size of a literal outside of a class: one instruction for each byte.
    fn literal(&self, literal: &ast::Literal) -> Result<u32, String> {
        known_literal(literal)?;
        if literal.c.is_ascii() || !matches!(literal.kind, LiteralKind::Verbatim) {
            return Ok(1);
        }
        if self.fold {
            Err(beyond_ascii(literal.c))
        } else {
            Ok(u32::try_from(literal.c.len_utf8()).unwrap_or(4))
        }
    }

    /// Returns the size of an item of a class: one instruction for each range of bytes.
    fn item(&self, item: &ClassSetItem) -> Result<u32, String> {
        match item {
            ClassSetItem::Empty(_) => Ok(0),
            ClassSetItem::Literal(literal) => {
                in_class(literal)?;
                // RE2 reads `[]-a]` and `[--a]` as ranges, the parser does not.
                let rest = self.text.get(literal.span.end.offset..).unwrap_or_default();
                if rest.starts_with('-') && !rest.starts_with("-]") {
                    Err(format!(
                        "in a class {:?} before '-' begins a range: write \\- for the character",
                        literal.c
                    ))
                } else {
                    Ok(ranges(literal.c.is_ascii(), &self.fold))
                }
            }
            ClassSetItem::Range(range) => {
                in_class(&range.start)?;
                in_class(&range.end)?;
                Ok(ranges(range.end.c.is_ascii(), &self.fold))
            }
            // All of these classes are ASCII, and have the same names in RE2.
            ClassSetItem::Ascii(_) => Ok(8),
            ClassSetItem::Unicode(class) => category(&class.kind),
            ClassSetItem::Perl(class) => Ok(perl(&class.kind)),
            ClassSetItem::Bracketed(_) => Err("RE2 does not nest character classes".to_owned()),
            ClassSetItem::Union(union) => union
                .items
                .iter()
                .try_fold(0_u32, |sum, item| Ok(sum.saturating_add(self.item(item)?))),
        }
    }
}

fn in_class(literal: &ast::Literal) -> Result<(), String> {
    known_literal(literal)?;
    if literal.c.is_ascii() || !matches!(literal.kind, LiteralKind::Verbatim) {
        Ok(())
    } else {
        Err(beyond_ascii(literal.c))
    }
}

/// With case folding, bytes from 0x80 on become more ranges.
fn ranges(is_ascii: bool, fold: &bool) -> u32 {
    match (*fold, is_ascii) {
        (false, _) => 1,
        (true, true) => 3,
        (true, false) => CATEGORY_SIZE,
    }
}

fn beyond_ascii(c: char) -> String {
    format!(
        "Envoy compares bytes: {c:?} may stand by itself only, not in a class, repeated, or without regard to case"
    )
}

fn known_literal(literal: &ast::Literal) -> Result<(), String> {
    let c = literal.c;
    match &literal.kind {
        LiteralKind::Verbatim | LiteralKind::Meta => Ok(()),
        LiteralKind::Superfluous if c.is_ascii_punctuation() => Ok(()),
        LiteralKind::HexFixed(ast::HexLiteralKind::X)
        | LiteralKind::HexBrace(ast::HexLiteralKind::X) => {
            if u32::from(c) > 0xFF {
                return Err(format!(
                    "Envoy compares bytes: {c:?} is none, at most \\x{{ff}} is"
                ));
            }
            Ok(())
        }
        LiteralKind::Special(kind) if *kind != SpecialLiteralKind::Space => Ok(()),
        LiteralKind::Superfluous
        | LiteralKind::Octal
        | LiteralKind::HexFixed(_)
        | LiteralKind::HexBrace(_)
        | LiteralKind::Special(_) => Err(format!(
            "RE2 does not know this way to write {c:?}: use \\x{{...}}"
        )),
    }
}

fn known_assertion(kind: &ast::AssertionKind) -> Result<u32, String> {
    use ast::AssertionKind as Kind;
    match kind {
        Kind::StartLine | Kind::EndLine | Kind::StartText | Kind::EndText => Ok(2),
        Kind::WordBoundary | Kind::NotWordBoundary => Ok(2),
        Kind::WordBoundaryStart
        | Kind::WordBoundaryEnd
        | Kind::WordBoundaryStartAngle
        | Kind::WordBoundaryEndAngle
        | Kind::WordBoundaryStartHalf
        | Kind::WordBoundaryEndHalf => Err("of word boundaries RE2 knows \\b and \\B".to_owned()),
    }
}

/// Returns the size of a Perl class: `\d`, `\s` and `\w` are ASCII in RE2; their negations need one
/// more range.
fn perl(kind: &ClassPerlKind) -> u32 {
    match kind {
        ClassPerlKind::Digit => 3,
        ClassPerlKind::Space | ClassPerlKind::Word => 6,
    }
}

fn category(kind: &ClassUnicodeKind) -> Result<u32, String> {
    let letter;
    let name = match kind {
        ClassUnicodeKind::OneLetter(c) => {
            letter = c.to_string();
            &letter
        }
        ClassUnicodeKind::Named(name) => name,
        ClassUnicodeKind::NamedValue { name, .. } => name,
    };
    let is_plain = !matches!(kind, ClassUnicodeKind::NamedValue { .. });
    if is_plain && (CATEGORIES.contains(&name.as_str()) || SCRIPTS.contains(&name.as_str())) {
        return Ok(CATEGORY_SIZE);
    }
    Err(format!(
        "\\p{{{name}}} is neither a general category of RE2 nor a script that is known here"
    ))
}

fn flags(flags: &ast::Flags) -> Result<u32, String> {
    if flags.items.iter().all(is_known) {
        Ok(1)
    } else {
        Err("of flags RE2 knows i, m, s and U".to_owned())
    }
}

fn is_known(item: &ast::FlagsItem) -> bool {
    match &item.kind {
        FlagsItemKind::Negation => true,
        FlagsItemKind::Flag(flag) => {
            matches!(
                flag,
                Flag::CaseInsensitive | Flag::MultiLine | Flag::DotMatchesNewLine | Flag::SwapGreed
            )
        }
    }
}

/// Returns the size of a named capture group, whose name has letters, digits and underscores only.
fn named(name: &str) -> Result<u32, String> {
    if name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return Ok(2);
    }
    Err(format!(
        "a name of a group has letters, digits and underscores only, not {name:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_of_re2_is_accepted() {
        for good in [
            "/users/[0-9]{1,64}",
            "(?i)abc|d+?",
            "(?P<name>x)(?:y)",
            "(?<name_2>x)",
            "[]a]|[^]a]|[[:alpha:]_-]|[[:^digit:]]",
            r"[-a][a-][]-]",
            r"\p{Greek}\pL\P{Lu}\x41\bx\.\-",
            r"a{2,1000}",
            r"(a{10}){10}",
            r"(?:a*)*|()|b|",
            r"[\d\w.-]+\x{ff}\n",
            "/é/(a|b)??",
            "(?is-mU:x)",
        ] {
            assert!(size(good).is_ok(), "{good}: {:?}", size(good));
        }
    }

    #[test]
    fn expressions_that_envoy_refuses_are_refused() {
        for bad in [
            // Found by other people first.
            "/a**",
            "/(a{100}){100}",
            "/(?P<a.b>x)",
            "/[[:foo:]]",
            r"/\p{Cn}",
            r"/\p{LC}",
            "",
            // Syntax of the regex crate that RE2 does not have.
            "(?x)a b",
            "(?R)a",
            "(?u)a",
            r"\u{61}",
            r"\u0061",
            r"a\<",
            "[a-z&&[^b]]",
            "[a--b]",
            "[a~~b]",
            "[a[bc]]",
            "a{1001}",
            r"\p{Script=Greek}",
            r"\p{Alphabetic}",
            r"\p{greek}",
            r"\pl",
            r"\b{start}a",
            "(",
            r"(a)\1",
            "(?=a)",
            r"\Qa\E",
            // Repetitions of repetitions.
            "a+*",
            "a???",
            "a{2}{3}",
            "a*{2}",
            "((a{10}){10}){11}",
            "(a{1000,}){2}",
            // Syntax that RE2 reads in another way.
            "[--!]",
            "[]-(]",
            "a{01}",
            "a{ 2 }",
            // Characters beyond one byte.
            r"\x{100}",
            r"\x{10FFFF}",
            "[é]",
            "é*",
            "(?i)é",
            "(?P<é>a)",
            "a\nb",
            "a\0b",
        ] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_not_below_those_of_envoy() {
        // Measured with Envoy 1.40 and `re2.max_program_size.error_level` 1.
        for (text, envoy) in [
            ("a", 5),
            ("abc", 7),
            ("a{2,5}", 12),
            ("(?:ab|cd)", 8),
            ("(|a)*", 12),
            ("(?:^)*", 9),
            ("(a{2}){3}", 16),
            ("([ab][cd][ef][gh][ij][kl][mn][op]){10}", 104),
            (".{1,100}", 303),
            ("(?:a*b*){4}", 19),
            ("[aceg]", 8),
            ("[^aceg]", 9),
            (r"\p{S}", 20),
            (r"\W", 9),
            ("(?:a{2,1000})?", 2003),
            ("(?i)[a-z]", 5),
        ] {
            let own = size(text).expect("valid");
            assert!(
                own >= envoy && own <= 3 * envoy + 10,
                "{text}: {own} here, {envoy} there"
            );
        }
    }

    #[test]
    fn the_review_bombs_are_large() {
        let nested = format!(
            "({}){{1000}}",
            [
                "[ab]", "[cd]", "[ef]", "[gh]", "[ij]", "[kl]", "[mn]", "[op]"
            ]
            .concat()
        );
        assert!(size(&nested).is_ok_and(|size| size > 8_000));
        assert!(size(".{1,1000}").is_ok_and(|size| size > 2_000));
    }

    #[test]
    fn deep_nesting_is_refused_without_recursion_to_death() {
        assert!(size(&"(".repeat(1000)).is_err());
        assert!(size(&format!("{}a{}", "(".repeat(400), ")".repeat(400))).is_err());
    }
}
