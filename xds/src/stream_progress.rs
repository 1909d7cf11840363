//! The state of a stream that is visible to others while it runs, without a lock.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::debug::SubscriptionState;
use crate::session::Session;
use crate::{Generation, Kind};

const NOT_SUBSCRIBED: u8 = 0;
const BY_NAME: u8 = 1;
const WILDCARD: u8 = 2;

#[derive(Default)]
struct OfKind {
    subscribed: AtomicU8,
    names: AtomicU32,
    in_flight: AtomicU32,
    considered: AtomicU64,
}

/// Written by one stream, read by anybody. Each value is consistent by itself; together they may be
/// of two moments.
#[derive(Default)]
pub(crate) struct StreamProgress {
    acknowledged: AtomicU64,
    forgettable: AtomicU64,
    /// Time of the last ACK, in seconds since 1970; 0 before the first.
    last_ack: AtomicU64,
    kinds: [OfKind; Kind::COUNT],
}

impl StreamProgress {
    /// Makes the state of a stream that has considered all changes up to `considered` and
    /// acknowledged nothing.
    pub(crate) fn new(considered: Generation) -> StreamProgress {
        StreamProgress {
            forgettable: AtomicU64::new(considered),
            ..Default::default()
        }
    }

    /// Publishes the state of `session`. Returns true if the acknowledged generation changed.
    pub(crate) fn update(&self, session: &Session, acknowledged: Generation) -> bool {
        for sub in session.subscriptions() {
            let of = &self.kinds[sub.kind as usize];
            of.subscribed
                .store(if sub.wildcard { WILDCARD } else { BY_NAME }, Relaxed);
            of.names
                .store(u32::try_from(sub.named.len()).unwrap_or(u32::MAX), Relaxed);
            of.in_flight.store(
                u32::try_from(sub.in_flight.len()).unwrap_or(u32::MAX),
                Relaxed,
            );
            of.considered.store(sub.cursor, Relaxed);
        }
        self.forgettable.store(session.forgettable(), Relaxed);
        self.acknowledged.swap(acknowledged, Relaxed) != acknowledged
    }

    /// Records the time of an ACK, in seconds since 1970.
    pub(crate) fn note_ack(&self, at: u64) {
        self.last_ack.store(at, Relaxed);
    }

    /// Returns the time of the last ACK, in seconds since 1970.
    pub(crate) fn last_ack(&self) -> Option<u64> {
        Some(self.last_ack.load(Relaxed)).filter(|at| *at > 0)
    }

    /// Returns the generation up to which everything is acknowledged.
    pub(crate) fn acknowledged(&self) -> Generation {
        self.acknowledged.load(Relaxed)
    }

    /// Returns the generation up to which removals need not be remembered.
    pub(crate) fn forgettable(&self) -> Generation {
        self.forgettable.load(Relaxed)
    }

    /// Returns the subscriptions.
    pub(crate) fn subscriptions(&self) -> Vec<SubscriptionState> {
        Kind::ALL
            .into_iter()
            .filter_map(|kind| {
                let of = &self.kinds[kind as usize];
                let subscribed = of.subscribed.load(Relaxed);
                (subscribed != NOT_SUBSCRIBED).then(|| SubscriptionState {
                    kind: kind.label(),
                    wildcard: subscribed == WILDCARD,
                    names: of.names.load(Relaxed) as usize,
                    in_flight: of.in_flight.load(Relaxed) as usize,
                    considered: of.considered.load(Relaxed),
                })
            })
            .collect()
    }
}
