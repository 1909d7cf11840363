//! What there is to know of a kind stands in its row of one list: no other file of the product goes
//! through the kinds.

mod rust_files;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use gatewright_core::inputs::Kind;
use rust_files::rust_files;

/// The list of kinds.
const LIST: &str = "src/core/objects/inputs/kinds.rs";

/// The most kinds, or types of objects, that another file names: a match over all of them is made
/// from the list.
const MOST: usize = 8;

/// Files that are no part of the product.
const OF_TESTS: [&str; 4] = ["/tests/", "/tests.rs", "/testdata", "/confluence"];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The variants of an enumeration that a text names.
fn variants<'a>(text: &'a str, of: &str) -> BTreeSet<&'a str> {
    text.match_indices(of)
        .filter(|(at, _)| !text[..*at].ends_with(is_word))
        .map(|(at, _)| &text[at + of.len()..])
        .filter(|rest| rest.starts_with(char::is_uppercase))
        .map(|rest| &rest[..rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())])
        .collect()
}

#[test]
fn one_file_names_all_kinds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kinds: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
    let mut broken = Vec::new();
    for file in rust_files(&root.join("src")) {
        let path = file.strip_prefix(root).expect("it is below");
        let path = path.display().to_string();
        if path == LIST || OF_TESTS.iter().any(|part| path.contains(part)) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a file");
        let text = text.split("#[cfg(test)]\nmod tests").next().expect("text");
        let named = variants(text, "Kind::");
        let named = named.intersection(&kinds).count();
        let types = variants(text, "Object::").len();
        if named.max(types) > MOST {
            broken.push(format!("{path}: {named} kinds, {types} types of objects"));
        }
    }
    assert!(
        broken.is_empty(),
        "more than {MOST}; {LIST} is the list:\n{}",
        broken.join("\n")
    );
}
