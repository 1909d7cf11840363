//! Which regular expressions Envoy takes: RE2's syntax, checked before anything is sent.
//!
//! The `regex` crate knows almost the same language. What it knows beyond RE2 is refused here
//! (<https://github.com/google/re2/wiki/Syntax>): one expression that Envoy refuses would hold back all that is sent with it.

/// RE2 repeats at most so often.
const REPEAT: u32 = 1000;
/// What is larger when compiled is refused; the bootstrap lets Envoy take what passes here.
const SIZE: usize = 1 << 20;
/// Flags of RE2.
const FLAGS: &str = "imsU-";
/// Scripts that are taken by name in `\p{...}`, beside the general categories of one or two letters.
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

/// Says why Envoy would refuse an expression.
pub(super) fn check(text: &str) -> Result<(), String> {
    let wrong = |reason: &str| Err(format!("regular expression {text:?} is not valid RE2 ({reason})"));
    if let Err(error) = regex::RegexBuilder::new(text).size_limit(SIZE).build() {
        let line = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
        return wrong(&line);
    }
    let chars: Vec<char> = text.chars().collect();
    let (mut at, mut in_class) = (0, false);
    while at < chars.len() {
        let rest = &chars[at + 1..];
        match chars[at] {
            '\\' => {
                let next = rest.first().copied().unwrap_or_default();
                let is_letter = next.is_ascii_alphabetic() && !"afnrtvxAbBzdDsSwWpP".contains(next);
                // To RE2 these two are plain characters, to the crate they are word boundaries.
                if is_letter || matches!(next, '<' | '>') {
                    return wrong(&format!("RE2 does not know \\{next}"));
                }
                if next == 'b' && rest.get(1) == Some(&'{') {
                    return wrong("RE2 does not know \\b{...}");
                }
                if matches!(next, 'p' | 'P') && rest.get(1) == Some(&'{') {
                    let name: String = rest[2..].iter().take_while(|c| **c != '}').collect();
                    let bare = name.strip_prefix('^').unwrap_or(&name);
                    if bare.len() > 2 && !SCRIPTS.contains(&bare) {
                        return wrong(&format!("\\p{{{name}}} is neither a general category nor a script we know"));
                    }
                }
                at += 2;
                continue;
            }
            '[' if in_class && rest.first() != Some(&':') => return wrong("RE2 does not nest character classes"),
            '[' if in_class => at += rest.iter().position(|c| *c == ']').map_or(0, |end| end + 1),
            '[' => {
                in_class = true;
                // `]` right behind the opening, or behind `^`, is itself.
                let opening = usize::from(rest.first() == Some(&'^'));
                at += opening + usize::from(rest.get(opening) == Some(&']'));
            }
            ']' if in_class => in_class = false,
            c @ ('&' | '-' | '~') if in_class && rest.first() == Some(&c) => {
                return wrong("RE2 does not know operations on character classes");
            }
            '(' if !in_class && rest.starts_with(&['?']) && !rest[1..].starts_with(&['P']) => {
                let flags: String = rest[1..].iter().take_while(|c| !matches!(c, ':' | ')' | '<')).collect();
                if !rest[1..].starts_with(&['<']) && flags.chars().any(|flag| !FLAGS.contains(flag)) {
                    return wrong(&format!("RE2 does not know the flags {flags:?}"));
                }
            }
            '{' if !in_class => {
                let counts: String = rest.iter().take_while(|c| **c != '}').collect();
                if counts.split(',').filter_map(|count| count.trim().parse().ok()).any(|count: u32| count > REPEAT) {
                    return wrong(&format!("RE2 repeats at most {REPEAT} times"));
                }
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_re2_knows_is_taken() {
        for good in [
            "/users/[0-9]{1,64}",
            "(?i)abc|d+?",
            "(?P<name>x)(?:y)",
            "[]a]|[^]a]|[[:alpha:]_-]",
            r"\p{Greek}\pL\P{Lu}\x41\bx\.\-",
            "a{2,1000}",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn what_only_the_regex_crate_knows_is_refused() {
        for bad in [
            "(?x)a b",
            "(?R)a",
            r"\u{61}",
            r"a\<",
            "[a-z&&[^b]]",
            "[a--b]",
            "[a~~b]",
            "[a[bc]]",
            "a{1001}",
            r"\p{Script=Greek}",
            r"\p{Alphabetic}",
            r"\b{start}a",
            "(",
            r"(a)\1",
            "(?=a)",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
