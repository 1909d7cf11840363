//! The failures of backends by the access logs of all Envoys, which the controller of a cluster is
//! asked for. A log of errors does not say that a backend has answered since.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use gatewright_core::last_failure::{Failure, LastFailure};
use gatewright_core::request_outcome::{OUTCOMES, RequestOutcome};
use gatewright_core::translate::{Answers, Explanation};
use gatewright_kubernetes::reports::{ReportKind, ReportSpec};
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;

use super::reports::{MOST_LINES, ask_within};

/// The time in which the controller answers.
const LIMIT: Duration = Duration::from_secs(5);
/// The age of the oldest line.
const SINCE: Duration = Duration::from_secs(900);

/// The failures in access logs, if they were asked for.
#[derive(Clone, Debug)]
pub enum LoggedFailures {
    /// They were not, for this reason.
    NotAsked(String),
    /// The last failures, by cluster of Envoys and endpoint.
    Read(BTreeMap<Endpoint, LastFailure>),
}

/// A cluster and an endpoint of it, if one was chosen.
type Endpoint = (String, Option<SocketAddr>);

impl LoggedFailures {
    /// Nobody is asked: whoever explains is not where Envoys are.
    pub fn not_asked() -> Self {
        Self::NotAsked("Envoys reach it, and this machine need not".to_owned())
    }

    /// Asks the controller for the lines about a host.
    pub async fn of(client: &Client, namespace: &str, installation: &str, host: &str) -> Self {
        let spec = ReportSpec {
            about: Some(host.to_owned()),
            since: Timestamp::try_from(SystemTime::now() - SINCE).ok(),
            errors: true,
            lines: Some(MOST_LINES),
            ..ReportSpec::new(ReportKind::Logs, installation)
        };
        match ask_within(LIMIT, client, namespace, &spec).await {
            Ok(answer) => Self::read(&answer.document),
            Err(why) => Self::NotAsked(format!("{why:#}")),
        }
    }

    /// Reads an answer: lines by time, the newest last.
    fn read(answer: &Value) -> Self {
        let mut all: BTreeMap<Endpoint, LastFailure> = BTreeMap::new();
        let lines = answer["lines"].as_array().into_iter().flatten();
        for (endpoint, failure, at) in lines.filter_map(failure) {
            let before = all.get(&endpoint);
            let same = before.filter(|last| last.failure.outcome == failure.outcome);
            let count = same.map_or(0, |last| last.count) + 1;
            let last = LastFailure {
                failure,
                count,
                at,
                answered: 0,
            };
            all.insert(endpoint, last);
        }
        Self::Read(all)
    }

    /// Adds them to an explanation.
    pub(super) fn tell(&self, explanation: &mut Explanation) {
        match self {
            Self::NotAsked(why) => explanation.leave_unasked(why),
            Self::Read(all) => explanation.meet(
                |cluster, endpoint| all.get(&(cluster.to_owned(), endpoint)).cloned(),
                Answers::Unknown,
                SystemTime::now(),
            ),
        }
    }
}

/// The failure of a backend that a line tells of.
fn failure(line: &Value) -> Option<(Endpoint, Failure, SystemTime)> {
    let outcome = outcome(line["reason"].as_str()?)?;
    let at: Timestamp = line["time"].as_str()?.parse().ok()?;
    let cluster = line["backend"].as_str()?.to_owned();
    let endpoint = line["backend_address"].as_str();
    let endpoint = endpoint.and_then(|address| address.parse().ok());
    let transport = line["backend_failure"].as_str().unwrap_or_default();
    Some((
        (cluster, endpoint),
        Failure::new(outcome, transport),
        at.into(),
    ))
}

fn outcome(reason: &str) -> Option<&'static RequestOutcome> {
    let mut outcomes = OUTCOMES.iter();
    outcomes.find(|outcome| outcome.reason == reason && outcome.is_of_backend())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_about_a_backend_are_counted_by_endpoint() {
        let line = |second: u8, reason: &str| {
            json!({"time": format!("2026-12-01T10:00:0{second}.000Z"), "reason": reason,
                "backend": "shop/web:80", "backend_address": "10.0.0.1:8080"})
        };
        let lines = [
            line(0, "TimedOut"),
            line(1, "BackendRefused"),
            line(2, "BackendRefused"),
            line(3, "NoHost"),
        ];
        let LoggedFailures::Read(all) = LoggedFailures::read(&json!({"lines": lines})) else {
            panic!("it was read")
        };
        let endpoint = "10.0.0.1:8080".parse().ok();
        let last = &all[&("shop/web:80".to_owned(), endpoint)];
        assert_eq!(last.failure.outcome.reason, "BackendRefused");
        assert_eq!(last.count, 2);
        assert_eq!(all.len(), 1);
    }
}
