//! Which connections may stay open: those with a stream, and for a while a bounded number without.
//!
//! A connection without a stream has proven nothing yet, or has nothing to do any more. It has a place among those of its
//! source address, and keeps it until a deadline, or until a newer connection needs the place.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, watch};

use crate::Fingerprint;
use crate::identity::Peer;

/// Whose connection it is: one address, or of IPv6 one network of 64 bits, which is what one client has.
pub(crate) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
    }
}

/// A connection, as its requests and its streams know it.
pub(crate) struct Connection {
    /// The far end, as the transport proves it.
    pub(crate) peer: Peer,
    /// The address that it comes from; none on a Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// Whose it is, by that address.
    pub(crate) source: Option<IpAddr>,
    /// The certificate that it was opened with.
    pub(crate) credential: Option<Fingerprint>,
    use_: watch::Sender<Use>,
}

/// What a connection is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    /// Streams that were let in and have not ended.
    pub(crate) streams: usize,
    /// Whether a request was denied.
    pub(crate) denied: bool,
    /// Whether the credential that it was opened with has ended.
    pub(crate) expired: bool,
}

impl Connection {
    pub(crate) fn new(peer: Peer, address: Option<IpAddr>) -> Connection {
        let address = address.map(|address| address.to_canonical());
        let credential = match &peer {
            Peer::Tls { certificates } => certificates.first().map(|leaf| Fingerprint::of(leaf)),
            Peer::Unix { .. } => None,
        };
        Connection { peer, address, source: address.map(source), credential, use_: watch::Sender::default() }
    }

    /// A request was denied.
    pub(crate) fn deny(&self) {
        self.use_.send_modify(|now| now.denied = true);
    }

    /// The credential has ended: nothing can be asked over this connection any more.
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
pub(crate) struct Idle {
    each: usize,
    all: usize,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    next: u64,
    /// Oldest first.
    by_source: HashMap<IpAddr, BTreeMap<u64, Arc<Notify>>>,
}

/// The place of one of them, until it is dropped.
pub(crate) struct Place {
    idle: Arc<Idle>,
    source: IpAddr,
    number: u64,
    taken: Arc<Notify>,
}

impl Idle {
    /// So many places of one address, and so many in all.
    pub(crate) fn new(each: usize, all: usize) -> Idle {
        Idle { each, all, places: Mutex::default() }
    }

    /// A place for a connection from `source`. Nobody is turned away: the oldest connection of an address makes way for its
    /// newest, and when all places are taken, the oldest of the address that has the most.
    pub(crate) fn enter(self: &Arc<Self>, source: IpAddr) -> Place {
        let mut places = self.places.lock().expect("no holder of this lock panics");
        let held = places.by_source.get(&source).map_or(0, BTreeMap::len);
        let crowded = if held >= self.each {
            Some(source)
        } else if places.by_source.values().map(BTreeMap::len).sum::<usize>() >= self.all {
            places.by_source.iter().max_by_key(|(_, of)| of.len()).map(|(source, _)| *source)
        } else {
            None
        };
        if let Some(crowded) = crowded {
            places.evict_oldest(crowded);
        }
        let (number, taken) = (places.next, Arc::new(Notify::new()));
        places.next += 1;
        places.by_source.entry(source).or_default().insert(number, taken.clone());
        Place { idle: self.clone(), source, number, taken }
    }
}

impl Places {
    fn evict_oldest(&mut self, source: IpAddr) {
        let Some(of) = self.by_source.get_mut(&source) else { return };
        if let Some((_, taken)) = of.pop_first() {
            taken.notify_one();
        }
        if of.is_empty() {
            self.by_source.remove(&source);
        }
    }
}

impl Place {
    /// Ends once somebody else has it.
    pub(crate) async fn taken(&self) {
        self.taken.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.idle.places.lock().expect("no holder of this lock panics");
        if let Some(of) = places.by_source.get_mut(&self.source) {
            of.remove(&self.number);
            if of.is_empty() {
                places.by_source.remove(&self.source);
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

    fn gone(place: &Place) -> bool {
        place.taken().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_of_an_address_makes_way_and_no_neighbour_does() {
        let idle = Arc::new(Idle::new(2, 100));
        let other = idle.enter(address(2));
        let places: Vec<_> = (0..4).map(|_| idle.enter(address(1))).collect();
        assert_eq!(places.iter().map(gone).collect::<Vec<_>>(), [true, true, false, false]);
        assert!(!gone(&other));
    }

    #[test]
    fn of_all_addresses_the_one_with_the_most_makes_way() {
        let idle = Arc::new(Idle::new(3, 4));
        let many: Vec<_> = (0..3).map(|_| idle.enter(address(1))).collect();
        let few: Vec<_> = (2..4).map(|last| idle.enter(address(last))).collect();
        assert_eq!(many.iter().map(gone).collect::<Vec<_>>(), [true, false, false]);
        assert!(!few.iter().any(gone));
    }

    #[test]
    fn a_place_that_is_given_up_is_free_again() {
        let idle = Arc::new(Idle::new(1, 1));
        drop(idle.enter(address(1)));
        let next = idle.enter(address(2));
        assert!(!gone(&next));
        drop(next);
        assert!(idle.places.lock().expect("nobody panicked").by_source.is_empty());
    }

    #[test]
    fn a_source_of_ipv6_is_its_network() {
        let of = |text: &str| source(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
