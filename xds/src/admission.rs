//! Admission of connections: those with a stream may stay, and a bounded number without one for a
//! limited time.
//!
//! A connection without a stream is not authenticated yet, or idle. It takes one of the slots of
//! its source address, and keeps it until a deadline, or until a newer connection evicts it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, watch};

use crate::Fingerprint;
use crate::identity::Peer;

/// Returns the source of a connection for its limits: the address, or for IPv6 the /64 network,
/// which one client has.
pub(crate) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
    }
}

/// A connection, as shared by its requests and streams.
pub(crate) struct Connection {
    /// The far end, as the transport authenticates it.
    pub(crate) peer: Peer,
    /// The source address; None on a Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// The source of that address for limits, by [`source`].
    pub(crate) source: Option<IpAddr>,
    /// The client certificate that it was opened with.
    pub(crate) credential: Option<Fingerprint>,
    use_: watch::Sender<Use>,
}

/// The use of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// Number of open streams that were admitted.
    pub(crate) streams: usize,
    /// True once a request was denied.
    pub(crate) denied: bool,
    /// True once the credential that it was opened with has expired.
    pub(crate) expired: bool,
}

impl Connection {
    pub(crate) fn new(peer: Peer, address: Option<IpAddr>) -> Connection {
        let address = address.map(|address| address.to_canonical());
        let credential = match &peer {
            Peer::Tls { certificates } => certificates.first().map(|leaf| Fingerprint::of(leaf)),
            Peer::Unix { .. } => None,
        };
        Connection {
            peer,
            address,
            source: address.map(source),
            credential,
            use_: watch::Sender::default(),
        }
    }

    /// Records that a request was denied.
    pub(crate) fn deny(&self) {
        self.use_.send_modify(|now| now.denied = true);
    }

    /// Records that the credential has expired: no request on this connection can be authenticated
    /// any more.
    pub(crate) fn expire(&self) {
        self.use_.send_modify(|now| now.expired = true);
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Use> {
        self.use_.subscribe()
    }

    pub(crate) fn begin_stream(&self) {
        self.use_.send_modify(|now| now.streams += 1);
    }

    pub(crate) fn end_stream(&self) {
        self.use_.send_modify(|now| now.streams -= 1);
    }
}

/// The connections without a stream, by source address.
pub(crate) struct IdleSlots {
    per_source: usize,
    total: usize,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    next: u64,
    /// By source, the slots by number, the oldest first.
    by_source: HashMap<IpAddr, BTreeMap<u64, Arc<Notify>>>,
}

/// The slot of a connection without a stream, until it is dropped.
pub(crate) struct IdleSlot {
    idle: Arc<IdleSlots>,
    source: IpAddr,
    number: u64,
    evicted: Arc<Notify>,
}

impl IdleSlots {
    /// Limits the slots of one source, and of all.
    pub(crate) fn new(per_source: usize, total: usize) -> IdleSlots {
        IdleSlots {
            per_source,
            total,
            slots: Mutex::default(),
        }
    }

    /// Returns a slot for a connection from `source`. No connection is refused: the newest of a
    /// source evicts its oldest, and when all slots are taken, the oldest of the source that has
    /// the most.
    pub(crate) fn admit(self: &Arc<Self>, source: IpAddr) -> IdleSlot {
        let mut slots = self.slots.lock().expect("no holder of this lock panics");
        let held = slots.by_source.get(&source).map_or(0, BTreeMap::len);
        let crowded = if held >= self.per_source {
            Some(source)
        } else if slots.by_source.values().map(BTreeMap::len).sum::<usize>() >= self.total {
            slots
                .by_source
                .iter()
                .max_by_key(|(_, of)| of.len())
                .map(|(source, _)| *source)
        } else {
            None
        };
        if let Some(crowded) = crowded {
            slots.evict_oldest(crowded);
        }
        let number = slots.next;
        let evicted = Arc::new(Notify::new());
        slots.next += 1;
        slots
            .by_source
            .entry(source)
            .or_default()
            .insert(number, evicted.clone());
        IdleSlot {
            idle: self.clone(),
            source,
            number,
            evicted,
        }
    }
}

impl Slots {
    fn evict_oldest(&mut self, source: IpAddr) {
        let Some(of) = self.by_source.get_mut(&source) else {
            return;
        };
        if let Some((_, evicted)) = of.pop_first() {
            evicted.notify_one();
        }
        if of.is_empty() {
            self.by_source.remove(&source);
        }
    }
}

impl IdleSlot {
    /// Ends once a newer connection has evicted this one.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for IdleSlot {
    fn drop(&mut self) {
        let mut slots = self
            .idle
            .slots
            .lock()
            .expect("no holder of this lock panics");
        if let Some(of) = slots.by_source.get_mut(&self.source) {
            of.remove(&self.number);
            if of.is_empty() {
                slots.by_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn is_evicted(slot: &IdleSlot) -> bool {
        slot.evicted().now_or_never().is_some()
    }

    #[test]
    fn a_new_connection_evicts_the_oldest_of_its_own_address_alone() {
        let idle = Arc::new(IdleSlots::new(2, 100));
        let other = idle.admit(address(2));
        let slots: Vec<_> = (0..4).map(|_| idle.admit(address(1))).collect();
        assert_eq!(
            slots.iter().map(is_evicted).collect::<Vec<_>>(),
            [true, true, false, false]
        );
        assert!(!is_evicted(&other));
    }

    #[test]
    fn at_the_total_limit_the_address_with_the_most_connections_loses_one() {
        let idle = Arc::new(IdleSlots::new(3, 4));
        let many: Vec<_> = (0..3).map(|_| idle.admit(address(1))).collect();
        let few: Vec<_> = (2..4).map(|last| idle.admit(address(last))).collect();
        assert_eq!(
            many.iter().map(is_evicted).collect::<Vec<_>>(),
            [true, false, false]
        );
        assert!(!few.iter().any(is_evicted));
    }

    #[test]
    fn a_dropped_slot_is_free_again() {
        let idle = Arc::new(IdleSlots::new(1, 1));
        drop(idle.admit(address(1)));
        let next = idle.admit(address(2));
        assert!(!is_evicted(&next));
        drop(next);
        assert!(
            idle.slots
                .lock()
                .expect("nobody panicked")
                .by_source
                .is_empty()
        );
    }

    #[test]
    fn the_source_of_an_ipv6_address_is_its_network() {
        fn of(text: &str) -> IpAddr {
            source(text.parse().expect("an address"))
        }
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
