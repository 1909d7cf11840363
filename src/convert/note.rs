//! What became of a setting.

use std::fmt;

use serde::Serialize;

/// What became of a setting, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// It has the same effect.
    CarriedOver,
    /// It has nearly the same effect.
    Differs,
    /// It has no effect any more.
    NotCarriedOver,
    /// It had none on what clients and backends see.
    NoEffect,
}

impl Verdict {
    /// The verdict, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CarriedOver => "carried over",
            Self::Differs => "carried over with a difference",
            Self::NotCarriedOver => "not carried over",
            Self::NoEffect => "no effect",
        }
    }
}

/// What became of a setting of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The file of the source's object.
    pub file: String,
    /// The line on which the object begins.
    pub line: usize,
    /// The object: kind, namespace and name.
    pub object: String,
    /// The setting: an annotation, a key or a field.
    pub setting: String,
    /// What became of it.
    pub verdict: Verdict,
    /// What it became, the difference, or why it is not carried over and what to use instead.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            object,
            setting,
            verdict,
            message,
        } = self;
        let verdict = verdict.as_str();
        write!(
            f,
            "{file}:{line}: {object}: {setting}: {verdict}: {message}"
        )
    }
}
