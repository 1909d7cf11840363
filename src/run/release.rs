//! Releases entries of the records of ownership on an operator's request.

use anyhow::Result;

use super::runtime::StandaloneRuntime;
use gatewright_core::tenancy;
use gatewright_core::translate::{Change, Fact, Ownable};

impl StandaloneRuntime {
    /// Removes an entry from the records. Returns the reason for which that is not possible, or an
    /// empty text.
    pub(super) fn release(&mut self, what: &Ownable) -> Result<String> {
        let recorded = self.live.engine().recorded_as(what);
        let tenancy = self.live.pipeline().tenancy();
        let among_tenants = what
            .hostname()
            .filter(|hostname| tenancy.records().contains_key(*hostname));
        if recorded.is_empty() && among_tenants.is_none() {
            return Ok(format!("{what} has no owner"));
        }
        if let Some((hostname, claim_log)) = among_tenants.zip(self.claim_log.as_mut()) {
            claim_log.append(&[(hostname.clone(), None)].into());
            self.known
                .push(tenancy::Change::Fact(tenancy::Fact::Recorded(
                    hostname.clone(),
                    None,
                )));
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
