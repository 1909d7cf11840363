//! The table of contents of a bundle: what is in it, what was left out, and what could not be read.

use std::fmt::Write;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::version::version;

/// The table of contents.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// The version of the program that wrote it.
    pub version: String,
    /// When it was written.
    pub written: Timestamp,
    /// Whom it is of.
    pub of: Of,
    /// The files, and what is missing.
    pub entries: Vec<Entry>,
}

/// Whom a bundle is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Of {
    /// A running program.
    Program,
    /// A cluster, as far as a person may read it.
    Cluster {
        /// The namespace of the person.
        namespace: String,
        /// The namespace of the installation.
        installation: String,
    },
}

/// A file of the archive, or what is missing.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its path in the archive.
    pub path: String,
    /// The description of its content.
    pub what: String,
    /// The state of the file.
    #[serde(flatten)]
    pub state: State,
    /// The request of which it is the answer, of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The state of a file of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum State {
    /// It is there.
    Written {
        /// The number of places where something was left out.
        redacted: usize,
    },
    /// It could not be read.
    NotRead {
        /// The reason.
        why: String,
    },
    /// Nobody was asked.
    NotAsked {
        /// The reason, and how to get it.
        why: String,
    },
}

impl Contents {
    /// An empty one.
    pub fn new(of: Of) -> Self {
        Self {
            version: version().to_owned(),
            written: Timestamp::now(),
            of,
            entries: Vec::new(),
        }
    }

    /// The text for people, in Markdown.
    pub fn text(&self) -> String {
        let of = match &self.of {
            Of::Program => "a running program".to_owned(),
            Of::Cluster { installation, .. } => {
                format!("a cluster, with the installation in namespace {installation}")
            }
        };
        let mut text = format!(
            "# Support bundle of {of}\n\nWritten {:.0} by gatewright {}. Read it with `gatewright status --bundle FILE` and \
             `gatewright explain --bundle FILE URL`.\n",
            self.written, self.version
        );
        let written = self.lines(|state| match state {
            State::Written { redacted: 0 } => Some("nothing was left out".to_owned()),
            State::Written { redacted } => Some(format!("left out in {redacted} places")),
            _ => None,
        });
        let not_read = self.lines(|state| match state {
            State::NotRead { why } => Some(why.clone()),
            _ => None,
        });
        let not_asked = self.lines(|state| match state {
            State::NotAsked { why } => Some(why.clone()),
            _ => None,
        });
        for (title, lines) in [
            ("Files", written),
            ("Could not be read", not_read),
            ("Not asked", not_asked),
        ] {
            if !lines.is_empty() {
                // A String takes everything.
                let _ = write!(text, "\n## {title}\n\n{lines}");
            }
        }
        text + LEFT_OUT
    }

    fn lines(&self, said: impl Fn(&State) -> Option<String>) -> String {
        self.entries
            .iter()
            .filter_map(|entry| Some((entry, said(&entry.state)?)))
            .map(|(entry, said)| format!("- `{}`: {} ({said})\n", entry.path, entry.what))
            .collect()
    }
}

/// The text about what no bundle has.
const LEFT_OUT: &str = "\n## Left out\n\nThe content of Secrets and files of keys is not read. Left out of what is read, and replaced by \
`[redacted]`: private keys, tokens, passwords, fields with such names, headers with credentials, users in URLs, values of \
queries, values of environment variables, and the annotation `kubectl.kubernetes.io/last-applied-configuration`. Names, hostnames, \
addresses and paths are in the bundle.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let mut contents = Contents::new(Of::Program);
        let states = [
            ("a.json", State::Written { redacted: 3 }),
            (
                "b.json",
                State::NotRead {
                    why: "no such file".to_owned(),
                },
            ),
            (
                "c.json",
                State::NotAsked {
                    why: "it is in pods".to_owned(),
                },
            ),
        ];
        contents.entries = states
            .map(|(path, state)| Entry {
                path: path.to_owned(),
                what: "something".to_owned(),
                state,
                request: None,
            })
            .into();
        let text = contents.text();
        for expected in [
            "## Files\n\n- `a.json`: something (left out in 3 places)",
            "## Could not be read\n\n- `b.json`: something (no such file)",
            "## Not asked\n\n- `c.json`: something (it is in pods)",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        let json = serde_json::to_string(&contents).expect("JSON");
        let read: Contents = serde_json::from_str(&json).expect(&json);
        assert_eq!(read.entries[1].state, contents.entries[1].state, "{json}");
    }
}
