//! The last failures of backends, as the Envoys of one view report them. Pure: time is an argument.
//!
//! A failure is remembered until its endpoint answers, or for [`KEPT`]. What is remembered of a
//! namespace is bounded by itself, so that no tenant's failures make another's forgotten.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::by_owner::{ByOwner, Dated};
use gatewright_core::last_failure::{Failure, LastFailure};
use gatewright_envoy::{EndpointLoad, ReportedFailure};

/// The most failures of a namespace, or of a hostname that is passed through.
const OF_OWNER: usize = 64;
/// The most failures of a view: about 3 MiB.
const OF_VIEW: usize = 4_096;
/// How long a failure is remembered after it was seen last.
const KEPT: Duration = Duration::from_secs(900);
/// The same once its endpoint has answered, or where nothing tells of that.
const KEPT_SHORTLY: Duration = Duration::from_secs(60);

/// An endpoint of a cluster; `None` for all of them, where none could be chosen.
type Endpoint = (Arc<str>, Option<SocketAddr>);

/// The last failures that the Envoys of a view reported, by the owner of the cluster.
#[derive(Debug, Default)]
pub(crate) struct LastFailures(ByOwner<Endpoint, Record, OF_OWNER, OF_VIEW>);

#[derive(Debug)]
struct Record {
    last: LastFailure,
    /// The Envoy that reported it: what another one reaches does not end it.
    node: Arc<str>,
}

impl Dated for Record {
    fn at(&self) -> SystemTime {
        self.last.at
    }
}

impl LastFailures {
    /// The last failure of an endpoint of a cluster.
    pub(crate) fn of(
        &self,
        cluster: &str,
        endpoint: Option<SocketAddr>,
        now: SystemTime,
    ) -> Option<&LastFailure> {
        let last = &self
            .0
            .get(owner(cluster), &(cluster.into(), endpoint))?
            .last;
        (!is_over(last, now)).then_some(last)
    }

    /// The clusters with failures: Envoys report whether these answer again.
    pub(crate) fn clusters(&self) -> Arc<[String]> {
        let names = self.0.iter().map(|((name, _), _)| name);
        let clusters: BTreeSet<&Arc<str>> = names.filter(|name| !name.contains('#')).collect();
        clusters.into_iter().map(ToString::to_string).collect()
    }

    /// True if nothing is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes in a failure.
    pub(crate) fn fail(&mut self, node: &Arc<str>, reported: ReportedFailure, now: SystemTime) {
        let ReportedFailure {
            cluster,
            endpoint,
            failure,
        } = reported;
        let key: Endpoint = (cluster.into(), endpoint);
        let owner = owner(&key.0);
        if let Some(record) = self.0.get_mut(owner, &key) {
            record.fail(node, failure, now);
            return;
        }
        let last = LastFailure {
            failure,
            count: 1,
            at: now,
            answered: 0,
        };
        let node = node.clone();
        self.0.insert(owner, key.clone(), Record { last, node });
    }

    /// Takes in what an endpoint did.
    pub(crate) fn load(&mut self, node: &Arc<str>, load: &EndpointLoad) {
        let EndpointLoad {
            cluster,
            endpoint,
            issued,
            answered,
        } = load;
        let owner = owner(cluster);
        let cluster: Arc<str> = cluster.as_str().into();
        // One endpoint that is chosen is enough.
        let any = endpoint.map(|_| (cluster.clone(), None));
        for key in any.into_iter().chain([(cluster, *endpoint)]) {
            let Some(record) = self.0.get_mut(owner, &key) else {
                continue;
            };
            if record.node != *node {
                continue;
            }
            if record.last.failure.is_of_connection() {
                if *issued > 0 || *answered > 0 {
                    self.0.remove(owner, &key);
                }
            } else {
                record.last.answered += answered;
            }
        }
    }

    /// Forgets what is over.
    pub(crate) fn forget(&mut self, now: SystemTime) {
        self.0.retain(|record| !is_over(&record.last, now));
    }
}

impl Record {
    fn fail(&mut self, node: &Arc<str>, failure: Failure, now: SystemTime) {
        let is_same = self.last.failure.outcome == failure.outcome && self.last.answered == 0;
        self.last = LastFailure {
            failure,
            count: if is_same {
                self.last.count.saturating_add(1)
            } else {
                1
            },
            at: now,
            answered: 0,
        };
        self.node = node.clone();
    }
}

fn is_over(last: &LastFailure, now: SystemTime) -> bool {
    // Nothing tells that there are keys again.
    let is_of_keys = last.failure.outcome.reason == "Unauthenticated";
    let kept = if last.answered > 0 || is_of_keys {
        KEPT_SHORTLY
    } else {
        KEPT
    };
    last.age(now) > kept
}

/// The owner of a cluster: the namespace of its Service or of its route, or the hostname that is
/// passed through.
fn owner(cluster: &str) -> &str {
    let mut parts = cluster.split('/');
    match cluster.split_once('|') {
        Some((_, hostname)) => hostname,
        None if cluster.contains('#') => parts.nth(1).unwrap_or_default(),
        None => parts.next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use gatewright_core::request_outcome::by_cause;

    use super::*;

    const START: SystemTime = SystemTime::UNIX_EPOCH;

    fn at(seconds: u64) -> SystemTime {
        START + Duration::from_secs(seconds)
    }

    fn endpoint(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn failed(cluster: &str, port: u16, cause: &str) -> ReportedFailure {
        ReportedFailure {
            cluster: cluster.to_owned(),
            endpoint: Some(endpoint(port)),
            failure: Failure::new(by_cause(cause).expect("an outcome"), ""),
        }
    }

    fn load(cluster: &str, port: u16, issued: u64, answered: u64) -> EndpointLoad {
        EndpointLoad {
            cluster: cluster.to_owned(),
            endpoint: Some(endpoint(port)),
            issued,
            answered,
        }
    }

    const WEB: &str = "shop/web:80";
    const REFUSED: &str = "remote_connection_failure";
    const TIMED_OUT: &str = "upstream_response_timeout";

    #[test]
    fn failures_in_a_row_are_counted() {
        let (mut all, node) = (LastFailures::default(), "a".into());
        for second in 0..5 {
            all.fail(&node, failed(WEB, 80, REFUSED), at(second));
        }
        let last = all.of(WEB, Some(endpoint(80)), at(14)).expect("it failed");
        assert_eq!(last.count, 5);
        assert_eq!(last.age(at(14)), Duration::from_secs(10));
        all.fail(&node, failed(WEB, 80, TIMED_OUT), at(15));
        let last = all.of(WEB, Some(endpoint(80)), at(15)).expect("it failed");
        assert_eq!(last.count, 1, "another reason");
        assert_eq!(
            all.of(WEB, Some(endpoint(81)), at(15)),
            None,
            "another endpoint"
        );
    }

    #[test]
    fn a_connection_ends_what_refused_connections() {
        let (mut all, node) = (LastFailures::default(), "a".into());
        all.fail(&node, failed(WEB, 80, REFUSED), at(0));
        all.load(&node, &load(WEB, 80, 0, 0));
        assert!(
            all.of(WEB, Some(endpoint(80)), at(1)).is_some(),
            "none was opened"
        );
        all.load(&"b".into(), &load(WEB, 80, 1, 1));
        assert!(
            all.of(WEB, Some(endpoint(80)), at(1)).is_some(),
            "by another Envoy"
        );
        all.load(&node, &load(WEB, 80, 1, 0));
        assert_eq!(all.of(WEB, Some(endpoint(80)), at(1)), None);
        assert!(all.clusters().is_empty(), "nothing is watched");
    }

    #[test]
    fn an_answer_ends_what_was_not_answered() {
        let (mut all, node) = (LastFailures::default(), "a".into());
        all.fail(&node, failed(WEB, 80, TIMED_OUT), at(0));
        all.load(&node, &load(WEB, 80, 3, 0));
        let unanswered = |all: &LastFailures, now| {
            all.of(WEB, Some(endpoint(80)), now)
                .map(|last| last.answered)
        };
        assert_eq!(unanswered(&all, at(1)), Some(0), "it got three more");
        all.load(&node, &load(WEB, 80, 3, 2));
        assert_eq!(unanswered(&all, at(1)), Some(2));
        assert_eq!(unanswered(&all, at(100)), None, "it answers");
        all.forget(at(100));
        assert!(all.clusters().is_empty(), "nothing is watched");
    }

    #[test]
    fn hosts_that_are_passed_through_have_failures_of_their_own() {
        assert_eq!(owner("infra/edge:443|a.example.org"), "a.example.org");
        assert_eq!(owner("shop/web:80/h2c"), "shop");
        assert_eq!(owner("httproute/shop/app/0#logins"), "shop");
    }
}
