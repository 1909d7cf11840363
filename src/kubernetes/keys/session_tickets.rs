//! The Secret with the keys of session tickets, which all replicas read and the lease holder
//! rotates.

use std::collections::BTreeMap;
use std::time::SystemTime;

use gatewright_control::ticket_rotation::TicketRotation;

use super::{Keys, KeysError, bytes, secret};
use crate::format;

/// The Secret with the keys of session tickets.
pub const TICKETS: &str = "gatewright-session-tickets";

/// The key of its data.
const DATA: &str = "keys.json";

impl Keys {
    /// Returns the keys of session tickets; `None` if the lease holder has not created them yet. If
    /// `may_write`, creates or rotates them.
    ///
    /// # Errors
    /// When the Secret cannot be read or written; keys that are known stay valid.
    pub async fn tickets(&self, may_write: bool) -> Result<Option<TicketRotation>, KeysError> {
        let held = self.get_known(TICKETS).await?;
        let stored = held.as_ref().map(|held| bytes(held, DATA).unwrap_or(b""));
        let known = stored
            .map(TicketRotation::read)
            .transpose()
            .map_err(|why| self.broken(TICKETS, why))?;
        if !may_write {
            return Ok(known);
        }
        let now = SystemTime::now();
        let due = match &known {
            Some(known) => known.rotated(now),
            None => TicketRotation::new(now).map(Some),
        };
        let due = due.map_err(|why| self.broken(TICKETS, why.to_string()))?;
        let Some(due) = due else { return Ok(known) };
        let data = BTreeMap::from([(DATA, due.written())]);
        let mut wanted = secret(TICKETS, data, held.as_ref());
        format::record(&mut wanted.metadata);
        let written = self.put(TICKETS, wanted, held.is_some()).await?;
        // Otherwise another writer was faster: its keys are read next time.
        Ok(if written { Some(due) } else { known })
    }
}
