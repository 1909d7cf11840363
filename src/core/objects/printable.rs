//! Texts of strangers in lines that people read: of objects, clients, backends and CAs. Pure.

use std::borrow::Cow;
use std::fmt::Write;

/// True for characters that end a line, that a terminal obeys, or that change the order in which
/// text is shown (UTR 36; "Trojan Source", CVE-2021-42574): they have no place within a line.
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

/// The same text on one line, with such characters escaped as Rust and JavaScript do: `\n`,
/// `\u{202e}`. A printable text stays as it is.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unprintable(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// The same for a JSON document, where these characters stand in strings alone, or between values.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    fn is_hidden(character: char) -> bool {
        !character.is_ascii() && is_unprintable(character)
    }
    if !json.contains(is_hidden) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_hidden(character) {
            // All of them are in the Basic Multilingual Plane. A String takes everything.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_an_effect_in_a_line_is_escaped() {
        for (text, expected) in [
            ("shop/web", "shop/web"),
            ("名前 ä \\n", "名前 ä \\n"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[2J\u{7}\u{9b}", "\\u{1b}[2J\\u{7}\\u{9b}"),
            ("\u{202e}x\u{2069}\u{61c}", "\\u{202e}x\\u{2069}\\u{61c}"),
            ("\u{2028}\u{200f}", "\\u{2028}\\u{200f}"),
        ] {
            assert_eq!(printable(text), expected);
        }
    }

    #[test]
    fn a_json_document_stays_the_same_value() {
        let value = serde_json::json!({"a\u{9b}": "\u{202e}x\n", "ä": 1});
        let text = value.to_string() + "\n";
        let escaped = printable_json(&text);
        assert!(
            !escaped.contains(|c: char| c != '\n' && is_unprintable(c)),
            "{escaped}"
        );
        let read: serde_json::Value = serde_json::from_str(&escaped).expect("JSON");
        assert_eq!(read, value);
    }
}
