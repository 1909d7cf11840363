//! The record of ownership: the namespace that owns a hostname, the protocol of a port, or a
//! socket, where several could.
//!
//! ```text
//! claims, records ==> tie-break of a stage ==> Ledger ==> records to write, or proposals
//! ```
//!
//! The namespace is the unit of trust. Within one, the precedence of the Gateway API holds; between
//! namespaces the record decides: the first claimant owns an item for as long as it claims it, and
//! for a while after. Each stage decides which of several claimants is the first: translation by
//! creation time, then by name, and tenancy by the order of the Cozystack gateway page.
//!
//! The result depends on the record and the claims, never on the order of events, so that every
//! replica with both has the same result.

mod ledger;
mod line;
mod ownable;
mod quota;
mod record;
mod reservations;

pub use ledger::Ledger;
pub use ledger::is_same_owner;
pub use ownable::{ListenersOf, Ownable};
pub use record::{OwnerRecord, Recording};
