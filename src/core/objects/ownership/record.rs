//! The owner of an item, and who writes it down.

use std::sync::Arc;

use crate::model::Family;

/// The owner of an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRecord {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The start: milliseconds since the epoch, or more than the latest earlier record.
    pub since: u64,
    /// The protocol, of a port.
    pub protocol: Option<Family>,
    /// When the namespace released it, in seconds since the epoch: it is still reserved for that
    /// namespace.
    pub released: Option<u64>,
}

impl OwnerRecord {
    /// An owner to be recorded. [`Ledger::record`](super::Ledger::record) sets the start.
    pub fn new(namespace: Arc<str>) -> Self {
        Self {
            namespace,
            since: 0,
            protocol: None,
            released: None,
        }
    }

    /// True if it owns a whole port, whose protocol has no hostnames.
    pub fn has_whole_port(&self) -> bool {
        self.protocol
            .is_some_and(|protocol| !protocol.has_hostnames())
    }
}

/// The writer of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// The caller: decisions hold at once, and are returned to be written before they are
    /// published.
    ThisProcess,
    /// Another process, for all replicas: decisions are proposals, and hold once the record has
    /// them.
    OtherProcess,
}
