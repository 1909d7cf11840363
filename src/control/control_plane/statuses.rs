//! The statuses of objects for whoever asks, and the handshakes that fail.

use std::cell::RefCell;
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Clock, ControlPlane};
use crate::failed_handshakes::HostHandshakes;
use crate::status_query::StatusQuery;
use gatewright_core::model::Hostname;
use gatewright_core::statuses::documents;

impl ControlPlane {
    /// Returns statuses as they would be written now, with their revision; the revision alone while
    /// it is the one that the query names.
    pub fn statuses(&mut self, query: &StatusQuery, now: Timestamp) -> Value {
        let progress = self.progress();
        let revision = self.status_revision(&progress);
        if query.unless.as_ref() == Some(&revision) {
            return json!({"revision": revision});
        }
        let mut fleet = self.fleet();
        let keys = self.engine().statuses();
        fleet.acks = keys
            .map(|(key, _)| (key.clone(), self.acks(key, &progress)))
            .collect();
        let clock = Clock {
            fleet,
            controller: &self.controller,
            now,
            since: RefCell::new(&mut self.since),
        };
        let items = documents(&self.pipeline, &clock, &query.selection);
        let mut answer = query.answer(items, self.pipeline.quota_uses());
        let handshakes = self.failed_handshakes(query.selection.host.as_ref());
        answer["handshakes"] = json!(handshakes);
        answer["revision"] = revision.into();
        answer
    }

    /// Returns the handshakes that failed, as the Envoys that are connected to this replica report
    /// them: of a host, or of all; the most first.
    fn failed_handshakes(&self, host: Option<&Hostname>) -> Vec<HostHandshakes> {
        let now = SystemTime::now();
        let mut all: Vec<HostHandshakes> = Vec::new();
        for (_, view) in self.views.iter() {
            let of_view = self.reports.read(view, |seen| {
                let handshakes = &seen.handshakes;
                handshakes.of(|failed| host.is_none_or(|host| host.covers(failed)), now)
            });
            all.extend(of_view.into_iter().flatten());
        }
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.host.cmp(&b.host)));
        all
    }
}
