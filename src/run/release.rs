//! Releases entries of the record of ownership on an operator's request.

use anyhow::Result;

use super::runtime::StandaloneRuntime;
use gatewright_core::ownership::Ownable;
use gatewright_core::translate::{Change, Fact};

impl StandaloneRuntime {
    /// Removes an entry from the record. Returns the reason for which that is not possible, or an
    /// empty text.
    pub(super) fn release(&mut self, what: &Ownable) -> Result<String> {
        let recorded = self.live.pipeline().recorded_as(what);
        if recorded.is_empty() {
            return Ok(format!("{what} has no owner"));
        }
        self.apply(
            recorded
                .into_iter()
                .map(|what| Change::Fact(Fact::Recorded(what, None)))
                .collect(),
        )?;
        Ok(String::new())
    }
}
