//! The receiver of what Envoys report about backends. Each view has failures of its own: an Envoy
//! is heard about backends of its fleet alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::watch;
use xds::{ClusterStats, LogEntries, Reporter, Reports, View};

use crate::last_failures::LastFailures;
use gatewright_envoy::{Report, loads, reports};

/// The failures of backends that Envoys report, by view.
#[derive(Clone, Default)]
pub struct FailureReports(Arc<Mutex<BTreeMap<View, OfView>>>);

struct OfView {
    failures: LastFailures,
    /// The clusters whose load its Envoys report.
    watched: watch::Sender<Arc<[String]>>,
}

impl Default for OfView {
    fn default() -> Self {
        Self {
            failures: LastFailures::default(),
            watched: watch::channel(Arc::default()).0,
        }
    }
}

impl OfView {
    fn rewatch(&mut self, now: SystemTime) {
        self.failures.forget(now);
        let clusters = self.failures.clusters();
        self.watched.send_if_modified(|watched| {
            let has_changed = *watched != clusters;
            *watched = clusters;
            has_changed
        });
    }
}

impl FailureReports {
    fn views(&self) -> MutexGuard<'_, BTreeMap<View, OfView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function with the failures of a view.
    pub(crate) fn read<T>(&self, view: &View, read: impl FnOnce(&LastFailures) -> T) -> T {
        match self.views().get(view) {
            Some(view) => read(&view.failures),
            None => read(&LastFailures::default()),
        }
    }
}

impl Reports for FailureReports {
    fn log(&self, reporter: &Reporter, entries: LogEntries) {
        let now = SystemTime::now();
        let mut views = self.views();
        let view = views.entry(reporter.view.clone()).or_default();
        for report in reports(entries) {
            match report {
                Report::Failed(failure) => view.failures.fail(&reporter.node, failure, now),
                Report::Answered(load) => view.failures.load(&reporter.node, &load),
            }
        }
        view.rewatch(now);
    }

    fn load(&self, reporter: &Reporter, clusters: Vec<ClusterStats>) {
        let mut views = self.views();
        let view = views.entry(reporter.view.clone()).or_default();
        for load in loads(&clusters) {
            view.failures.load(&reporter.node, &load);
        }
        view.rewatch(SystemTime::now());
    }

    fn watched(&self, view: &View) -> watch::Receiver<Arc<[String]>> {
        let mut views = self.views();
        // Those of Gateways that have no Envoys of their own any more.
        views.retain(|_, view| {
            view.watched.receiver_count() > 0 || !view.watched.borrow().is_empty()
        });
        views.entry(view.clone()).or_default().watched.subscribe()
    }
}
