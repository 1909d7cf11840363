//! The state of the standalone program's main loop, and its handling of each event.

use std::convert::Infallible;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyhow::Result;
use jiff::Timestamp;
use tracing::{info, warn};

use super::unserved_log::UnservedLog;
use crate::manifest::{self, Outcome, Stale};
use crate::replace::replace;
use crate::standalone::{ClaimLog, FirstSeen, Ownership, PortProbe, TicketFile};
use gatewright_control::certificates::{CertificateManager, CertificateUpdate, WantedTracker};
use gatewright_control::event::{Events, Severity, warn_of_file};
use gatewright_control::history::Author;
use gatewright_control::names::WantedNames;
use gatewright_control::{AdminQuery, AdminRequest, ControlPlane, Effects};
use gatewright_core::fair_queue::FairQueue;
use gatewright_core::inputs::Kind;
use gatewright_core::model::ObjectName;
use gatewright_core::pipeline;
use gatewright_core::translate::{Change, Explanation, Fact};

/// The state of the main loop.
pub(super) struct StandaloneRuntime {
    pub(super) live: ControlPlane,
    /// The queued changes of manifests.
    pub(super) queue: FairQueue,
    pub(super) manager: Arc<CertificateManager>,
    pub(super) wanted_tracker: WantedTracker,
    /// The names of Services that are looked up.
    pub(super) names: WantedNames,
    /// The record of ownership.
    pub(super) claim_log: ClaimLog<Ownership>,
    /// Its content at the start, until it is applied.
    pub(super) recorded: Vec<Change>,
    /// The age of the objects of manifests.
    pub(super) first_seen: FirstSeen,
    /// The probe of new ports; `None` where others start Envoy.
    pub(super) port_probe: Option<PortProbe>,
    pub(super) bundle: PathBuf,
    /// The text that was last written there.
    pub(super) written: String,
    /// True if a write of it has failed and is to be retried.
    pub(super) roots_wait: bool,
    pub(super) start: Instant,
    /// The objects that no Gateway serves, as far as the log has them.
    pub(super) unserved: UnservedLog,
    /// The keys of session tickets.
    pub(super) tickets: TicketFile,
}

impl StandaloneRuntime {
    /// Takes the objects of the directory at the start.
    pub(super) fn begin(&mut self, mut outcome: Outcome) {
        self.first_seen
            .begin(&mut outcome.changes, SystemTime::now());
        self.enqueue(outcome);
    }

    /// Takes changes of the directory.
    pub(super) fn take(&mut self, mut outcome: Outcome) {
        self.first_seen
            .take(&mut outcome.changes, SystemTime::now());
        self.enqueue(outcome);
    }

    /// The keys of session tickets, as a fact.
    pub(super) fn ticket_keys(&self) -> Change {
        Change::Fact(Fact::TicketKeys(Some(self.tickets.keys())))
    }

    fn enqueue(&mut self, outcome: Outcome) {
        for problem in outcome.problems {
            problem.event().log(Severity::Debug);
        }
        for note in outcome.notes {
            info!("{note}");
        }
        for change in &outcome.changes {
            let at = self.start.elapsed();
            self.live.note_arrival(change.key(), Author::default(), at);
        }
        self.queue
            .push(outcome.changes.into_iter().map(Change::from).collect());
    }

    pub(super) fn apply(&mut self, changes: Vec<Change>) -> Result<()> {
        let changes = self.queue.take_urgent(changes);
        let keys = changes
            .iter()
            .filter_map(Change::key)
            .filter(|key| key.kind == Kind::Secret);
        let secrets: Vec<ObjectName> = keys.map(|key| key.name).collect();
        let events = self.publish(changes, secrets)?;
        events.log(Severity::Info);
        self.log_acknowledgements();
        Ok(())
    }

    /// Publishes the result of changes, after the records that the next run needs are written, and
    /// passes on the requests of certificates that have changed by it or by these Secrets.
    pub(super) fn publish(
        &mut self,
        changes: Vec<Change>,
        secrets: Vec<ObjectName>,
    ) -> Result<Events> {
        let claim_log = &mut self.claim_log;
        let port_probe = &mut self.port_probe;
        let unserved = &mut self.unserved;
        let mut record = |outcome: &pipeline::Outcome| {
            // Before Envoy can have bound the ports.
            if let Some(port_probe) = port_probe {
                port_probe.probe(&outcome.delta);
            }
            claim_log.append(&outcome.records());
            unserved.examine_later(&outcome.concerned);
            Ok::<_, Infallible>(())
        };
        let changes = std::mem::take(&mut self.recorded)
            .into_iter()
            .chain(changes)
            .collect();
        // Outside of a cluster no Services can be created.
        let Effects {
            mut events,
            services: _,
            envoys: _,
            wanted,
            names,
        } = self.live.apply(
            changes,
            Vec::new(),
            &mut record,
            SystemTime::now(),
            self.start.elapsed(),
        )?;
        self.names.want(names);
        let changes = self
            .wanted_tracker
            .changes(self.live.pipeline(), wanted, secrets);
        if !changes.is_empty() {
            self.manager.change(changes);
        }
        // A parent or a class may be among the changes that still wait.
        if self.queue.is_empty() {
            events.extend(self.unserved.news(self.live.pipeline()));
        }
        Ok(events)
    }

    pub(super) fn log_acknowledgements(&mut self) {
        self.live
            .acknowledgement_events(self.start.elapsed())
            .log(Severity::Info);
        self.manager.refuse(self.live.rejected_certificates());
    }

    /// Does the time-dependent work: certificates become valid and expire.
    pub(super) fn tick(&mut self) -> Result<()> {
        self.live.tick(self.start.elapsed()).log(Severity::Info);
        if self.live.loses_patience(self.start.elapsed()) {
            self.log_acknowledgements();
        }
        let now = SystemTime::now();
        if self.tickets.rotate(now)? {
            self.apply(vec![self.ticket_keys()])?;
        }
        if self
            .live
            .pipeline()
            .next_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.apply(Vec::new())?;
        }
        Ok(())
    }

    /// Writes the roots of the internal CA, if they have changed.
    fn write_roots(&mut self) {
        let roots = self.manager.authority().bundle(Timestamp::now());
        if roots == self.written {
            self.roots_wait = false;
            return;
        }
        match replace(&self.bundle, |file| file.write_all(roots.as_bytes())) {
            Ok(()) => (self.written, self.roots_wait) = (roots, false),
            Err(error) => {
                if !std::mem::replace(&mut self.roots_wait, true) {
                    let text = format_args!("{error}: it is written as soon as that is possible");
                    warn_of_file(&self.bundle, text);
                }
            }
        }
    }

    /// Retries failed writes.
    pub(super) fn write_again(&mut self) {
        self.claim_log.write();
        self.first_seen.write();
        if self.roots_wait {
            self.write_roots();
        }
    }

    /// Takes in updates of the certificate manager: Secrets, answers to challenges, and problems.
    pub(super) fn hand_in(&mut self, certificate_updates: Vec<CertificateUpdate>) -> Result<()> {
        if certificate_updates.is_empty() {
            return Ok(());
        }
        // Clients need the roots before a certificate is served.
        self.write_roots();
        let mut changes = Vec::with_capacity(certificate_updates.len());
        for update in certificate_updates {
            match update.change() {
                Ok(change) => changes.push(change),
                Err(problem) => warn!("a certificate cannot be served: {problem}"),
            }
        }
        let changes = self.queue.take_urgent(changes);
        // A certificate that is still pending was logged with its publication, and the keeper logs
        // each failure.
        let events = self.publish(changes, Vec::new())?;
        events.without_pending().log(Severity::Info);
        self.log_acknowledgements();
        Ok(())
    }

    pub(super) fn answer(&mut self, ask: AdminRequest, stale: Vec<Stale>) -> Result<()> {
        let text = match ask.what {
            AdminQuery::Owners(visibility) => self.live.owners(&visibility).to_string(),
            AdminQuery::Release(what) => self.release(&what)?,
            AdminQuery::Status(query) => {
                let mut list = self.live.statuses(&query, Timestamp::now());
                list["notes"] = stale.iter().map(Stale::to_string).collect();
                list.to_string()
            }
            AdminQuery::Hosts(query) => {
                let hosts = self.live.hosts(&query, Timestamp::now());
                serde_json::to_string(&hosts).expect("strings and numbers")
            }
            AdminQuery::History(query, visibility) => {
                serde_json::to_string(&self.live.history(&query, &visibility))
                    .expect("strings and numbers")
            }
            AdminQuery::Explain(question) => {
                let notes = stale.iter().map(Stale::to_string).collect();
                let explanation = Explanation {
                    notes,
                    ..self.live.explain(&question, true)
                };
                serde_json::to_string(&explanation).expect("strings and booleans")
            }
            AdminQuery::BroughtCertificates(visibility) => {
                serde_json::to_string(&self.live.brought_certificates(&visibility))
                    .expect("strings and times")
            }
            AdminQuery::Clients => self.live.clients().to_string(),
            AdminQuery::Metrics => {
                let manifests = manifest::ManifestMetrics::new(&stale, SystemTime::now());
                self.live.metrics(
                    vec![Box::new(self.manager.metrics()), Box::new(manifests)],
                    self.start.elapsed(),
                )
            }
            AdminQuery::Ready if stale.iter().any(Stale::is_unready) => {
                let unready = stale.iter().filter(|stale| stale.is_unready());
                unready.map(Stale::to_string).collect::<Vec<_>>().join("\n")
            }
            AdminQuery::Ready if self.live.acknowledged() => stale
                .iter()
                .fold("true".to_owned(), |text, stale| format!("{text}\n{stale}")),
            AdminQuery::Ready => "false".to_owned(),
        };
        // The receiver may be gone.
        let _ = ask.answer.send(text);
        Ok(())
    }
}
