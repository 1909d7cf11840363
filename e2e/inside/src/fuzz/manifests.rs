//! Files of a directory, as editors leave them. The first byte says whether it is a file of JSON.
//!
//! Nothing panics, each problem is told in a line with a place in the file, a good document behind
//! a bad one is read, a file that is read again changes nothing, and what was read can be served.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use gatewright::manifest::{Folder, parse};
use gatewright_core::inputs::ObjectChange;
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::tenancy;
use gatewright_core::translate::{Change, Settings};

use super::{Choice, bytes, checkout};

/// Texts of a file that have a meaning for the parser.
const PIECES: [&str; 28] = [
    "---\n",
    "...\n",
    "--- # a\n",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "|\n",
    ">-\n",
    "&a ",
    "*a",
    "<<: *a\n",
    "!!binary ",
    "!x ",
    "\"",
    "'",
    "#",
    "\t",
    "\r\n",
    "\u{feff}",
    "? ",
    "null",
    "~",
    ".inf",
    " at line 18446744073709551615",
    "kind: List\nitems:\n",
];
/// A document that is good wherever it stands.
const GOOD: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: behind-it-all}\n";
/// A message is no longer, whatever it quotes.
const LONGEST: usize = 64 << 10;

/// The examples and some golden cases.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for folder in [
        "examples",
        "src/core/tenancy/testdata",
        "src/core/translate/testdata",
    ] {
        let entries = fs::read_dir(checkout(folder)).expect("a folder of manifests");
        let mut paths: Vec<_> = entries
            .map(|entry| entry.expect("a readable folder").path())
            .collect();
        paths.retain(|path| {
            let name = path.to_string_lossy();
            name.ends_with(".yaml") && !name.ends_with(".out.yaml")
        });
        paths.sort();
        files.extend(
            paths
                .into_iter()
                .step_by(if folder == "examples" { 1 } else { 8 }),
        );
    }
    let yaml = files
        .iter()
        .map(|path| [b"\0", &fs::read(path).expect("a readable file")[..]].concat());
    let json = br#"1{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Namespace",
 "metadata": {"name": "a", "labels": null}, "status": {"phase": null}}]}"#;
    let misplaced = b"\0apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: |\n  -----BEGIN PRIVATE KEY-----
  MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgevZzL1gdAFr88hb2\n  -----END PRIVATE KEY-----\n";
    yaml.chain([json.to_vec(), misplaced.to_vec()]).collect()
}

/// Bytes of nothing known, or pieces that mean something, or lines moved about.
pub(super) fn mutate(data: &[u8], other: &[u8], choice: &mut Choice) -> Vec<u8> {
    let mut data = data.to_vec();
    match choice.below(4) {
        0 => bytes::mutate(&data, other, choice),
        1 => {
            let mut lines: Vec<&[u8]> = data.split_inclusive(|byte| *byte == b'\n').collect();
            let from = choice.below(lines.len());
            let to = choice.below(lines.len() + 1);
            if let Some(line) = lines.get(from).copied() {
                lines.insert(to.min(lines.len()), line);
            }
            lines.concat()
        }
        _ => {
            let at = choice.below(data.len() + 1);
            data.splice(at..at, choice.of(&PIECES).bytes());
            data
        }
    }
}

pub(super) fn run(data: &[u8]) {
    let Some((first, text)) = data.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let json = first % 2 == 1;
    let path = Path::new(if json { "x.json" } else { "x.yaml" });
    let parsed = parse(path, text);
    // Line breaks of YAML 1.1, which the parser counts: \r alone, NEL, LS and PS as well. An error
    // at the end of the text may be in the line after the last one.
    let breaks = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
    let lines = text.replace("\r\n", "\n").split_inclusive(breaks).count() + 1;
    for problem in &parsed.problems {
        assert!(
            problem.line <= lines,
            "{problem}: the file has {lines} lines"
        );
        assert!(
            problem.reason.len() < LONGEST,
            "a message of {} bytes",
            problem.reason.len()
        );
        // Of a Secret nothing is quoted that could be a key: no line of PEM or base64.
        let is_secret = problem
            .object
            .as_deref()
            .is_some_and(|object| object.starts_with("secret "));
        if is_secret && !problem.reason.contains("is no name") {
            let longest = problem
                .reason
                .split(|c: char| !c.is_ascii_alphanumeric())
                .map(str::len)
                .max();
            assert!(longest <= Some(32), "{problem}");
        }
    }
    if !json {
        let behind = parse(path, &format!("{text}\n---\n{GOOD}"));
        let last = behind.objects.last().expect("the good document is read");
        assert_eq!(last.1.key().to_string(), "namespace behind-it-all");
        assert_eq!(
            behind.objects.len(),
            parsed.objects.len() + 1,
            "documents before it are read as they were"
        );
    }
    let mut folder = Folder::default();
    let changes = folder.put(path, parsed.clone()).changes;
    assert!(
        folder.put(path, parsed).changes.is_empty(),
        "a file that is read again changes nothing"
    );
    let gone: Vec<ObjectChange> = folder.remove(path).changes;
    assert_eq!(
        gone.len(),
        changes.len(),
        "what came with a file goes with it"
    );
    let settings = Settings::new(
        "gatewright.io/gateway-controller",
        vec!["127.0.0.1".parse().expect("an address")],
    );
    let mut pipeline = Pipeline::new(settings, tenancy::Settings::default(), Written::Here);
    for changes in [changes, gone] {
        pipeline.apply(
            changes.into_iter().map(Change::Object).collect(),
            SystemTime::UNIX_EPOCH,
        );
    }
    assert_eq!(
        pipeline.engine().statuses().count(),
        0,
        "nothing is left of it"
    );
}
