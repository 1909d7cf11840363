//! The receiver of what Envoys report about backends and clients. Each view has failures of its
//! own: an Envoy is heard about its fleet alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use xds::{ClusterStats, LogEntries, Reporter, Reports, View};

use crate::failed_handshakes::FailedHandshakes;
use crate::last_failures::LastFailures;
use gatewright_envoy::{Report, loads, reports};

/// The least time between two looks at all failures of a view. While there are any, its Envoys
/// report load every second, so that another look follows.
const LOOK: Duration = Duration::from_millis(200);

/// What the Envoys of a view met.
#[derive(Debug, Default)]
pub(crate) struct ViewReports {
    pub(crate) failures: LastFailures,
    pub(crate) handshakes: FailedHandshakes,
}

impl ViewReports {
    fn is_empty(&self) -> bool {
        self.failures.is_empty() && self.handshakes.is_empty()
    }

    fn forget(&mut self, now: SystemTime) {
        self.failures.forget(now);
        self.handshakes.forget(now);
    }
}

/// What Envoys report, by view.
#[derive(Clone, Default)]
pub struct FailureReports(Arc<Mutex<BTreeMap<View, OfView>>>);

struct OfView {
    seen: ViewReports,
    /// The clusters whose load its Envoys report.
    watched: watch::Sender<Arc<[String]>>,
    /// When all failures were looked at last.
    looked: SystemTime,
}

impl Default for OfView {
    fn default() -> Self {
        Self {
            seen: ViewReports::default(),
            watched: watch::channel(Arc::default()).0,
            looked: SystemTime::UNIX_EPOCH,
        }
    }
}

impl OfView {
    /// Forgets what is over, and watches the clusters that failed.
    fn rewatch(&mut self, now: SystemTime) {
        if now.duration_since(self.looked).is_ok_and(|age| age < LOOK) {
            return;
        }
        self.looked = now;
        self.seen.forget(now);
        let clusters = self.seen.failures.clusters();
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

    /// Calls a function with what the Envoys of a view met; `None` if no Envoy of it reports here.
    pub(crate) fn read<T>(&self, view: &View, read: impl FnOnce(&ViewReports) -> T) -> Option<T> {
        let views = self.views();
        let view = views.get(view)?;
        let is_heard = view.watched.receiver_count() > 0;
        is_heard.then(|| read(&view.seen))
    }
}

impl Reports for FailureReports {
    fn log(&self, reporter: &Reporter, entries: LogEntries) {
        let reports = reports(entries);
        let now = SystemTime::now();
        let mut views = self.views();
        let view = views.entry(reporter.view.clone()).or_default();
        for report in reports {
            match report {
                Report::Failed(failure) => view.seen.failures.fail(&reporter.node, failure, now),
                Report::Answered(load) => view.seen.failures.load(&reporter.node, &load),
                Report::Handshake(failed) => view.seen.handshakes.fail(failed, now),
            }
        }
        view.rewatch(now);
    }

    fn load(&self, reporter: &Reporter, clusters: Vec<ClusterStats>) {
        let mut views = self.views();
        let view = views.entry(reporter.view.clone()).or_default();
        for load in loads(&clusters) {
            view.seen.failures.load(&reporter.node, &load);
        }
        view.rewatch(SystemTime::now());
    }

    fn watched(&self, view: &View) -> watch::Receiver<Arc<[String]>> {
        let mut views = self.views();
        let now = SystemTime::now();
        // Those of Gateways that have no Envoys of their own any more.
        views.retain(|_, view| {
            view.seen.forget(now);
            view.watched.receiver_count() > 0 || !view.seen.is_empty()
        });
        views.entry(view.clone()).or_default().watched.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::data::accesslog::v3::{
        AccessLogCommon, HttpAccessLogEntry, HttpResponseProperties,
    };
    use envoy_types::pb::envoy::service::accesslog::v3::stream_access_logs_message::HttpAccessLogEntries;

    use super::*;

    const WEB: &str = "shop/web:80";

    fn reporter(view: &str) -> Reporter {
        Reporter {
            view: View::new(view),
            node: "envoy".into(),
        }
    }

    fn timed_out() -> LogEntries {
        let common = AccessLogCommon {
            custom_tags: [("backend".to_owned(), WEB.to_owned())].into(),
            ..Default::default()
        };
        let response = HttpResponseProperties {
            response_code_details: "upstream_response_timeout".to_owned(),
            ..Default::default()
        };
        LogEntries::HttpLogs(HttpAccessLogEntries {
            log_entry: vec![HttpAccessLogEntry {
                common_properties: Some(common),
                response: Some(response),
                ..Default::default()
            }],
        })
    }

    #[test]
    fn a_view_knows_what_its_own_envoys_report() {
        let all = FailureReports::default();
        let (one, other) = (View::new("one"), View::new("other"));
        let (watched, not_watched) = (all.watched(&one), all.watched(&other));
        all.log(&reporter("one"), timed_out());
        let fails = |view| {
            let now = SystemTime::now();
            all.read(view, |seen| seen.failures.of(WEB, None, now).is_some())
        };
        assert_eq!(fails(&one), Some(true));
        assert_eq!(fails(&other), Some(false), "another view");
        assert_eq!(**watched.borrow(), [WEB.to_owned()]);
        assert!(not_watched.borrow().is_empty(), "another view");
    }

    #[test]
    fn a_view_without_envoys_here_is_not_asked_and_not_kept() {
        let all = FailureReports::default();
        let gone = View::new("gone");
        drop(all.watched(&gone));
        assert_eq!(all.read(&gone, ViewReports::is_empty), None, "not asked");
        let _other = all.watched(&View::new("other"));
        assert_eq!(all.views().len(), 1, "it is removed");
    }
}
