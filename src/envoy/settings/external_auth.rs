//! `externalAuth`: the filter of external authorization that routes have as well.

use super::report::Report;
use super::{Filters, Phase, Waits};
use crate::credentials::replaced;
use crate::external_auth::{ORIGINAL, filter};
use gatewright_core::model::{ExternalAuth, ObjectName};
use gatewright_core::settings::Visit;

impl Visit<ExternalAuth> for Filters<'_> {
    /// Asks the server of a policy. What a client says in its place is removed before, and what
    /// the server alone is told of the request behind it.
    fn visit(&mut self, _: &ObjectName, auth: &ExternalAuth) {
        let removed: Vec<&str> = auth.replaced().map(String::as_str).collect();
        let set: &[(&str, &str)] = if auth.is_told_url() { &ORIGINAL } else { &[] };
        if !removed.is_empty() || !set.is_empty() {
            self.add(Phase::Authorization, replaced(removed, set));
        }
        self.add_waiting(Phase::Authorization, filter(auth), Waits::Always);
        if !set.is_empty() {
            let names = set.iter().map(|(name, _)| *name).collect();
            self.add(Phase::Authorization, replaced(names, &[]));
        }
    }
}

impl Visit<ExternalAuth> for Report<'_, '_> {
    /// No server is asked for a policy that reports.
    fn visit(&mut self, _: &ObjectName, _: &ExternalAuth) {}
}
