//! A row of what becomes of a setting.

use super::Verdict;

/// A setting of a source, and what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What becomes of it in general; a conversion may say otherwise of a value.
    pub verdict: Verdict,
    /// What it becomes, the difference, or why it is not carried over and what to use instead.
    pub note: &'static str,
    /// True if the routes are closed where it is not carried over.
    pub closes: bool,
    /// The values with which it asks for nothing.
    neutral: &'static [&'static str],
}

impl Row {
    /// The verdict on a value of which the conversion itself says nothing.
    pub(super) fn of(&self, value: &str) -> (Verdict, &'static str) {
        if self.neutral.contains(&value.trim()) {
            return (Verdict::NoEffect, "as without it");
        }
        (self.verdict, self.note)
    }
}

const fn row(name: &'static str, verdict: Verdict, note: &'static str) -> Row {
    Row {
        name,
        verdict,
        note,
        closes: false,
        neutral: &[],
    }
}

/// A setting that is carried over.
pub(super) const fn carried(name: &'static str, note: &'static str) -> Row {
    row(name, Verdict::CarriedOver, note)
}

/// A setting that is carried over with a difference.
pub(super) const fn differs(name: &'static str, note: &'static str) -> Row {
    row(name, Verdict::Differs, note)
}

/// A setting that is not carried over.
pub(super) const fn gone(name: &'static str, note: &'static str) -> Row {
    row(name, Verdict::NotCarriedOver, note)
}

/// A setting that is not carried over, and asks for nothing with these values.
pub(super) const fn gone_unless(
    name: &'static str,
    neutral: &'static [&'static str],
    note: &'static str,
) -> Row {
    Row {
        neutral,
        ..gone(name, note)
    }
}

/// A setting that restricts access, is not carried over, and so closes the routes.
pub(super) const fn closes(name: &'static str, note: &'static str) -> Row {
    Row {
        closes: true,
        ..gone(name, note)
    }
}

/// A setting that closes the routes, except with these values.
pub(super) const fn closes_unless(
    name: &'static str,
    neutral: &'static [&'static str],
    note: &'static str,
) -> Row {
    Row {
        closes: true,
        ..gone_unless(name, neutral, note)
    }
}

/// A setting that has no effect on what clients and backends see, or none to have.
pub(super) const fn nothing(name: &'static str, note: &'static str) -> Row {
    row(name, Verdict::NoEffect, note)
}
