//! A history of changes that is full: it fills for some thousand steps, up to a maximum, which
//! would hide a leak.

use std::fs;
use std::path::Path;

use anyhow::Result;
use gatewright_control::history::{Author, ChangeKind, ChangedObject, HistoryEntry, Outcome};
use jiff::Timestamp;

/// The kinds of the soak's changes.
const KINDS: [ChangeKind; 5] = [
    ChangeKind::Gateway,
    ChangeKind::Route,
    ChangeKind::Service,
    ChangeKind::Endpoints,
    ChangeKind::Certificate,
];
/// Entries of a kind, which take more bytes than a kind may have (`src/control/history.rs`).
const ENTRIES: u64 = 700;
/// Objects and hosts that an entry names.
const NAMED: u64 = 16;

/// Writes a full history into a private directory.
pub(super) fn fill(directory: &Path) -> Result<()> {
    let mut text = String::new();
    for number in 0..ENTRIES * KINDS.len() as u64 {
        let kind = KINDS[usize::try_from(number)? % KINDS.len()];
        text += &serde_json::to_string(&entry(number, kind))?;
        text.push('\n');
    }
    Ok(fs::write(directory.join("history.jsonl"), text)?)
}

fn entry(number: u64, kind: ChangeKind) -> HistoryEntry {
    HistoryEntry {
        number,
        at: Timestamp::now(),
        kind,
        namespace: "default".into(),
        objects: (0..NAMED)
            .map(|at| ChangedObject {
                object: format!("httproute default/h{number}-{at}-example-org"),
                author: Author::default(),
            })
            .collect(),
        more_objects: 0,
        hosts: (0..NAMED)
            .map(|at| format!("h{number}.n{at}.example.org"))
            .collect(),
        named_hosts: 0,
        more_hosts: 0,
        together: 0,
        outcome: Outcome::Acknowledged,
        milliseconds: Some(1),
        envoys: Vec::new(),
        more_envoys: 0,
    }
}
