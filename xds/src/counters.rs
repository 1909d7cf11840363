//! What was encoded, sent, acknowledged and refused: numbers that tests assert and metrics show.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use crate::Kind;
use crate::view::Applied;

#[derive(Default)]
struct PerKind {
    changed: AtomicU64,
    responses: AtomicU64,
    sent: AtomicU64,
    removed: AtomicU64,
    bytes: AtomicU64,
    acks: AtomicU64,
    nacks: AtomicU64,
    evicted: AtomicU64,
}

/// Counters of one cache and its streams.
#[derive(Default)]
pub(crate) struct Counters {
    kinds: [PerKind; Kind::COUNT],
    removed: AtomicU64,
    unchanged: AtomicU64,
}

/// Counts of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindCounts {
    /// Resources whose published value was new.
    pub changed: u64,
    /// Responses sent.
    pub responses: u64,
    /// Resources in them.
    pub sent: u64,
    /// Removed names in them.
    pub removed: u64,
    /// Their encoded bytes.
    pub bytes: u64,
    /// Responses acknowledged.
    pub acks: u64,
    /// Responses refused.
    pub nacks: u64,
    /// On-demand secrets taken back because their client holds too many.
    pub evicted: u64,
}

/// All counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// By kind, in the order of [`Kind::ALL`].
    pub kinds: [KindCounts; Kind::COUNT],
    /// Published removals that removed something.
    pub removed: u64,
    /// Published changes that changed nothing.
    pub unchanged: u64,
}

impl Counts {
    /// The counts of `kind`.
    pub fn of(&self, kind: Kind) -> &KindCounts {
        &self.kinds[kind as usize]
    }
}

impl Counters {
    pub(crate) fn published(&self, applied: &Applied) {
        for (kind, n) in self.kinds.iter().zip(applied.upserted) {
            kind.changed.fetch_add(n, Relaxed);
        }
        self.removed.fetch_add(applied.removed, Relaxed);
        self.unchanged.fetch_add(applied.unchanged, Relaxed);
    }

    pub(crate) fn responded(&self, kind: Kind, sent: usize, removed: usize, bytes: usize) {
        let counters = &self.kinds[kind as usize];
        counters.responses.fetch_add(1, Relaxed);
        counters.sent.fetch_add(sent as u64, Relaxed);
        counters.removed.fetch_add(removed as u64, Relaxed);
        counters.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn answered(&self, kind: Kind, _after: std::time::Duration, refused: bool) {
        let counters = &self.kinds[kind as usize];
        (if refused { &counters.nacks } else { &counters.acks }).fetch_add(1, Relaxed);
    }

    pub(crate) fn evicted(&self, kind: Kind, n: usize) {
        self.kinds[kind as usize].evicted.fetch_add(n as u64, Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        let mut counts = Counts { removed: self.removed.load(Relaxed), unchanged: self.unchanged.load(Relaxed), ..Default::default() };
        for (to, from) in counts.kinds.iter_mut().zip(&self.kinds) {
            *to = KindCounts {
                changed: from.changed.load(Relaxed),
                responses: from.responses.load(Relaxed),
                sent: from.sent.load(Relaxed),
                removed: from.removed.load(Relaxed),
                bytes: from.bytes.load(Relaxed),
                acks: from.acks.load(Relaxed),
                nacks: from.nacks.load(Relaxed),
                evicted: from.evicted.load(Relaxed),
            };
        }
        counts
    }
}
