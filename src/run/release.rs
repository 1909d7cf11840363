//! What an operator takes out of the records of ownership.

use anyhow::Result;

use super::runtime::StandaloneRuntime;
use gatewright_core::tenancy;
use gatewright_core::translate::{Change, Fact, Ownable};

impl StandaloneRuntime {
    /// Takes something out of the records. Returns what is wrong with that, if anything.
    pub(super) fn release(&mut self, what: &Ownable) -> Result<String> {
        let recorded = self.live.engine().recorded_as(what);
        let tenancy = self.live.pipeline().tenancy();
        let among_tenants = what.hostname().filter(|hostname| tenancy.records().contains_key(*hostname));
        if recorded.is_empty() && among_tenants.is_none() {
            return Ok(format!("{what} has no owner"));
        }
        if let Some((hostname, book)) = among_tenants.zip(self.book.as_mut()) {
            book.append(&[(hostname.clone(), None)].into());
            self.known.push(tenancy::Change::Fact(tenancy::Fact::Recorded(hostname.clone(), None)));
        }
        self.apply(recorded.into_iter().map(|what| Change::Fact(Fact::Recorded(what, None))).collect())?;
        Ok(String::new())
    }
}
