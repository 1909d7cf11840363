//! Counters of encoded, sent, acknowledged and refused resources, for tests and metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use crate::Kind;
use crate::tables::Applied;

/// Upper bounds of the buckets of ACK latencies, in seconds; one more bucket has the rest.
pub(crate) const ACK_SECONDS: [f64; 11] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

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
    answered_within: [AtomicU64; ACK_SECONDS.len() + 1],
    answer_micros: AtomicU64,
}

/// Counters of one cache and its streams.
#[derive(Default)]
pub(crate) struct Counters {
    kinds: [PerKind; Kind::COUNT],
    removed: AtomicU64,
    unchanged: AtomicU64,
    /// By gRPC code.
    refused: [AtomicU64; CODES.len()],
    ended: [AtomicU64; CODES.len()],
    closed: [AtomicU64; Closed::ALL.len()],
}

/// The reason why the server closed a connection that had no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Its TLS handshake failed: without a client certificate, or with an invalid one.
    Handshake,
    /// It opened no stream in time.
    Idle,
    /// A newer connection took its place.
    Evicted,
    /// A request on it was denied.
    Denied,
}

impl Closed {
    /// All reasons.
    pub const ALL: [Closed; 4] = [
        Closed::Handshake,
        Closed::Idle,
        Closed::Evicted,
        Closed::Denied,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Closed::Handshake => "handshake",
            Closed::Idle => "idle",
            Closed::Evicted => "evicted",
            Closed::Denied => "denied",
        }
    }
}

/// The status codes of RPCs, in the order of their numbers
/// (<https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>).
pub(crate) const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Counts of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindCounts {
    /// Published resources whose value was new.
    pub changed: u64,
    /// Responses sent.
    pub responses: u64,
    /// Resources in these responses.
    pub sent: u64,
    /// Removed names in these responses.
    pub removed: u64,
    /// Encoded bytes of their resources.
    pub bytes: u64,
    /// Responses acknowledged.
    pub acks: u64,
    /// Responses refused.
    pub nacks: u64,
    /// On-demand secrets withdrawn because their client holds too many.
    pub evicted: u64,
    /// Answers by latency: up to 1, 2.5, 5, 10, 25, 50, 100 and 250 ms, 1, 5 and 30 s, longer.
    pub answered_within: [u64; 12],
    /// Sum of the latencies of all answers, in microseconds.
    pub answer_micros: u64,
}

/// All counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// By kind, in the order of [`Kind::ALL`].
    pub kinds: [KindCounts; Kind::COUNT],
    /// Published removals that removed something.
    pub removed: u64,
    /// Published resources that were equal to the existing ones.
    pub unchanged: u64,
    /// Denied RPCs, by the number of their gRPC code.
    pub refused: [u64; 17],
    /// Ended streams, by the number of their gRPC code: 0 if the client closed it, else the
    /// server's reason. Broken connections are not counted.
    pub ended: [u64; 17],
    /// Connections without a stream that the server closed, in the order of [`Closed::ALL`].
    pub closed: [u64; 4],
}

impl Counts {
    /// Returns the counts of `kind`.
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

    pub(crate) fn answered(&self, kind: Kind, after: std::time::Duration, refused: bool) {
        let counters = &self.kinds[kind as usize];
        let bucket = ACK_SECONDS
            .iter()
            .position(|bound| after.as_secs_f64() <= *bound)
            .unwrap_or(ACK_SECONDS.len());
        counters.answered_within[bucket].fetch_add(1, Relaxed);
        counters.answer_micros.fetch_add(
            u64::try_from(after.as_micros()).unwrap_or(u64::MAX),
            Relaxed,
        );
        (if refused {
            &counters.nacks
        } else {
            &counters.acks
        })
        .fetch_add(1, Relaxed);
    }

    pub(crate) fn evicted(&self, kind: Kind, n: usize) {
        self.kinds[kind as usize]
            .evicted
            .fetch_add(n as u64, Relaxed);
    }

    /// Counts a denied RPC.
    pub(crate) fn refused(&self, code: tonic::Code) {
        self.refused[code as usize].fetch_add(1, Relaxed);
    }

    /// Counts a closed connection without a stream.
    pub(crate) fn closed(&self, why: Closed) {
        self.closed[why as usize].fetch_add(1, Relaxed);
    }

    /// Counts an ended stream.
    pub(crate) fn ended(&self, code: tonic::Code) {
        self.ended[code as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        let mut counts = Counts {
            removed: self.removed.load(Relaxed),
            unchanged: self.unchanged.load(Relaxed),
            refused: std::array::from_fn(|i| self.refused[i].load(Relaxed)),
            ended: std::array::from_fn(|i| self.ended[i].load(Relaxed)),
            closed: std::array::from_fn(|i| self.closed[i].load(Relaxed)),
            ..Default::default()
        };
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
                answered_within: std::array::from_fn(|i| from.answered_within[i].load(Relaxed)),
                answer_micros: from.answer_micros.load(Relaxed),
            };
        }
        counts
    }
}
