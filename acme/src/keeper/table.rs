//! The keeper's table: a row for each certificate, with all that is known of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Stored;
use crate::breaker::Breakers;
use crate::failure::Attempts;
use crate::issuer::CertificateId;
use crate::plan::{Obtained, Wanted};
use crate::renewal::Window;

/// Certificates, and what concerns all of them.
#[derive(Default)]
pub(super) struct Table {
    rows: BTreeMap<CertificateId, Row>,
    /// Windows whose certificate is not held yet, by the name of their storage entry.
    pub(super) unclaimed: BTreeMap<String, Window>,
    pub(super) breakers: Breakers,
    pub(super) tidied: Option<Timestamp>,
    /// Problems with stored entries that could not be used.
    pub(super) storage_problems: Vec<String>,
}

/// The row of a certificate, held or wanted. Fields that few rows have are boxed.
#[derive(Default)]
pub(super) struct Row {
    /// The certificate as it is wanted; `None` if it is only held, or named by an operator.
    wanted: Option<Box<Wanted>>,
    pub(super) held: Option<Arc<Stored>>,
    /// The certificate that the held one replaced, in case Envoys refuse that.
    pub(super) replaced: Option<Arc<Stored>>,
    pub(super) window: Option<Window>,
    /// The time of the next request for a renewal window, after one without an answer.
    pub(super) ask_again: Option<Timestamp>,
    /// The failed attempts since the last success.
    pub(super) failed: Option<Box<Attempts>>,
    /// The refusals by Envoys of certificates before the held one.
    pub(super) refusals: Option<Box<Attempts>>,
    /// Time and reason at which this program obtained the held certificate.
    pub(super) obtained: Option<Obtained>,
    /// An operator's request for a renewal now.
    pub(super) forced: Option<Forced>,
}

/// How far an operator's request for a renewal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forced {
    /// The attempt is made at once, whatever failed before.
    Now,
    /// An attempt failed since; the usual back-off applies.
    AfterBackoff,
}

impl Row {
    /// Sets or (with `None`) ends what is wanted. Returns whether that changed something.
    pub(super) fn want(&mut self, wanted: Option<Wanted>) -> bool {
        let changed = self.wanted.as_deref() != wanted.as_ref();
        if changed {
            self.wanted = wanted.map(Box::new);
        }
        changed
    }

    /// Forgets everything but what is wanted and an operator's request, and returns what there was.
    pub(super) fn forget(&mut self) -> Row {
        let kept = Row {
            wanted: self.wanted.take(),
            forced: self.forced,
            ..Row::default()
        };
        std::mem::replace(self, kept)
    }

    fn is_empty(&self) -> bool {
        let Self {
            wanted,
            held,
            replaced,
            window,
            ask_again,
            failed,
            refusals,
            obtained,
            forced,
        } = self;
        let certificates = held.is_none() && replaced.is_none() && obtained.is_none();
        let renewal = window.is_none() && ask_again.is_none() && forced.is_none();
        wanted.is_none() && certificates && renewal && failed.is_none() && refusals.is_none()
    }
}

impl Table {
    pub(super) fn row(&self, id: &CertificateId) -> Option<&Row> {
        self.rows.get(id)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (&CertificateId, &Row)> {
        self.rows.iter()
    }

    pub(super) fn rows_mut(&mut self) -> impl Iterator<Item = &mut Row> {
        self.rows.values_mut()
    }

    /// Changes a row. One without content is none.
    pub(super) fn change<T>(
        &mut self,
        id: &CertificateId,
        change: impl FnOnce(&mut Row) -> T,
    ) -> T {
        let row = self.rows.entry(id.clone()).or_default();
        let changed = change(row);
        if row.is_empty() {
            self.rows.remove(id);
        }
        changed
    }

    /// Returns the wanted certificates, by stable name.
    pub(super) fn wanted(&self) -> impl Iterator<Item = &Wanted> {
        self.rows.values().filter_map(|row| row.wanted.as_deref())
    }

    /// Returns all certificates.
    pub(super) fn certificates(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.rows.values().filter_map(|row| row.held.as_ref())
    }

    /// Returns the certificate that is held under a stable name.
    pub(super) fn held(&self, id: &CertificateId) -> Option<&Arc<Stored>> {
        self.row(id)?.held.as_ref()
    }

    /// Returns the failed attempts for a wanted certificate since the last success.
    pub(super) fn failed(&self, id: &CertificateId) -> Option<&Attempts> {
        self.row(id)?.failed.as_deref()
    }

    /// Returns how far an operator's request for a renewal is.
    pub(super) fn forced(&self, id: &CertificateId) -> Option<Forced> {
        self.row(id)?.forced
    }

    /// Returns the number of failed attempts for a wanted certificate since the last success.
    pub(super) fn failures(&self, id: &CertificateId) -> u32 {
        self.failed(id).map_or(0, Attempts::total)
    }

    /// Returns the times of the next requests for renewal windows; a window that is not known has
    /// been due for ever.
    pub(super) fn polls(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, &Row)> {
        self.rows.values().filter_map(move |row| {
            let held = &row.held.as_ref()?.certificate;
            let of = held.ari_id.as_deref().filter(|_| held.not_after > now)?;
            let known = row.window.as_ref().filter(|window| window.of == of);
            let at = known.map_or(Timestamp::MIN, |window| window.poll_at);
            Some((row.ask_again.map_or(at, |later| later.max(at)), row))
        })
    }
}
