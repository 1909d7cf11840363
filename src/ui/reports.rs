//! What only the controller of a cluster knows, for a page: asked for by ReportRequests with the
//! rights of its user, and kept for a while, since each is an object that is created and removed.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use gatewright_control::tasks::named;
use gatewright_kubernetes::reports::ReportSpec;
use serde_json::Value;
use tokio::sync::Mutex;

use crate::cli;
use crate::client::reports::ask;

/// The time after which the same is asked again.
const KEPT: Duration = Duration::from_secs(10);

/// The document of a report, or why there is none.
pub(super) type Report = Result<Value, String>;

/// A request that somebody waits for, or that was answered.
struct Asked {
    spec: ReportSpec,
    at: Instant,
    report: Shared<BoxFuture<'static, Report>>,
}

/// The last reports.
#[derive(Default)]
pub(super) struct Reports(Mutex<Vec<Asked>>);

impl Reports {
    /// Returns a report about the namespace of the user: one request answers all pages.
    pub(super) async fn get(&self, options: &cli::Ui, spec: ReportSpec) -> Report {
        let mut last = self.0.lock().await;
        last.retain(|asked| asked.report.peek().is_none() || asked.at.elapsed() < KEPT);
        let known = last.iter().find(|asked| asked.spec == spec);
        let report = match known {
            Some(asked) => asked.report.clone(),
            None => {
                // The task removes the object, also if the page is closed meanwhile.
                let task = tokio::spawn(named("report", report(options.clone(), spec.clone())));
                let report = task.map(|ended| match ended {
                    Ok(report) => report.map_err(|error| format!("{error:#}")),
                    Err(error) => Err(error.to_string()),
                });
                let report = report.boxed().shared();
                last.push(Asked {
                    spec,
                    at: Instant::now(),
                    report: report.clone(),
                });
                report
            }
        };
        drop(last);
        report.await
    }
}

async fn report(options: cli::Ui, spec: ReportSpec) -> Result<Value> {
    let (client, own) = options.cluster.connect().await?;
    let namespace = options.namespace.as_deref().unwrap_or(&own);
    Ok(ask(&client, namespace, &spec).await?.document)
}
