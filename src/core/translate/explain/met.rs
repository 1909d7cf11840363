//! What Envoys met at the endpoints of an explanation: facts that the engine does not know. Whoever
//! shows the explanation has them, or says that nobody was asked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::{Explanation, Link};
use gatewright_objects::last_failure::LastFailure;
use gatewright_objects::request_outcome::RequestOutcome;

/// The endpoints that Envoys reach by a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The names that Envoys have for them: clusters.
    pub clusters: Vec<String>,
    /// The endpoints.
    pub endpoints: Vec<SocketAddr>,
    /// How they are spoken to.
    pub spoken: Spoken,
}

/// How a backend is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spoken {
    /// True with a BackendTLSPolicy.
    pub tls: bool,
    /// True for HTTP/2.
    pub http2: bool,
    /// True if connections begin with a PROXY header.
    pub proxy_header: bool,
}

/// The last failure of an endpoint, as a fact of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Met {
    /// The endpoint; none if no endpoint was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<SocketAddr>,
    /// The reason that the request has in the access log.
    pub reason: &'static str,
    /// How often it was seen in a row.
    pub count: u32,
    /// The time since it was seen last.
    pub seconds_ago: u64,
    /// What the transport said.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub detail: Box<str>,
    /// The requests that were answered since.
    pub answered_since: u64,
}

/// The knowledge of the answers of endpoints since they failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Whoever reports failures reports answers.
    Reported,
    /// Failures alone are known, so that they are notes.
    Unknown,
}

/// Endpoints with the same reason.
struct Group {
    outcome: &'static RequestOutcome,
    /// The endpoints; 0 where none was chosen.
    endpoints: usize,
    count: u32,
    age: Duration,
    detail: String,
}

impl Explanation {
    /// Takes in the last failures of endpoints, by cluster and endpoint. A link all of whose
    /// endpoints failed, and have not answered since, fails, and is the last.
    pub fn meet(
        &mut self,
        last: impl Fn(&str, Option<SocketAddr>) -> Option<LastFailure>,
        answers: Answers,
        now: SystemTime,
    ) {
        let mut index = 0;
        while index < self.links.len() {
            if let Some(reached) = self.links[index].reached.clone() {
                let met = met(&reached, &last);
                if self.judge(index, &reached, (&met, answers), now) {
                    return;
                }
            }
            index += 1;
        }
    }

    /// Says that nobody was asked what Envoys met.
    pub fn leave_unasked(&mut self, why: &str) {
        for link in self.links.iter_mut().filter(|link| link.reached.is_some()) {
            link.text = format!("{}; not asked: {why}", link.text);
        }
    }

    /// Adds facts to the link of endpoints, or to that of their TLS. Returns whether it fails.
    fn judge(
        &mut self,
        index: usize,
        reached: &Reached,
        (met, answers): (&[(Option<SocketAddr>, LastFailure)], Answers),
        now: SystemTime,
    ) -> bool {
        if met.is_empty() {
            return false;
        }
        let facts: Vec<Met> = met.iter().map(|(at, last)| fact(*at, last, now)).collect();
        let all = reached.endpoints.len();
        let groups = grouped(met, now);
        let failing: usize = groups.iter().map(|group| group.endpoints).sum();
        let as_a_whole = groups.iter().find(|group| is_of_all(group.outcome.reason));
        let main = groups
            .iter()
            .filter(|_| failing >= all)
            .max_by_key(|group| group.endpoints);
        let main = main.or(as_a_whole);
        let Some(main) = main.filter(|_| answers == Answers::Reported) else {
            let notes = groups
                .iter()
                .map(|group| format!("NOTE: {}", words(group, all)));
            let answered = met.iter().filter(|(_, last)| last.answered > 0);
            let notes = notes.chain(answered.map(|(at, last)| recovered(*at, last, now)));
            let link = &mut self.links[index];
            link.text = std::iter::once(link.text.clone())
                .chain(notes)
                .collect::<Vec<_>>()
                .join("; ");
            link.met = facts;
            return false;
        };
        let text = words(main, all);
        let hint = hint(main.outcome.reason, reached.spoken);
        let at = match step(main.outcome.reason) {
            "backend TLS" => self.tls_of(index).unwrap_or(index),
            _ => index,
        };
        self.links.truncate(at + 1);
        let link = &mut self.links[at];
        if step(main.outcome.reason) == "protocol" {
            *link = Link::new("protocol", false, format!("{hint}{text}"));
        } else {
            link.text = format!("{}; {text}{hint}", link.text);
            link.ok = false;
        }
        link.reason = Some(main.outcome.reason);
        link.met = facts;
        true
    }

    /// The link about TLS of the endpoints of a link.
    fn tls_of(&self, endpoints: usize) -> Option<usize> {
        let before = self.links[..endpoints].iter().enumerate().rev();
        before
            .take_while(|(_, link)| link.what != "backend")
            .find(|(_, link)| link.what == "backend TLS")
            .map(|(index, _)| index)
    }
}

fn met(
    reached: &Reached,
    last: impl Fn(&str, Option<SocketAddr>) -> Option<LastFailure>,
) -> Vec<(Option<SocketAddr>, LastFailure)> {
    let endpoints = reached.endpoints.iter().copied().map(Some).chain([None]);
    endpoints
        .filter_map(|endpoint| {
            let clusters = reached.clusters.iter();
            let last = clusters.filter_map(|cluster| last(cluster, endpoint));
            Some((endpoint, last.max_by_key(|last| last.at)?))
        })
        .collect()
}

fn fact(endpoint: Option<SocketAddr>, last: &LastFailure, now: SystemTime) -> Met {
    Met {
        endpoint,
        reason: last.failure.outcome.reason,
        count: last.count,
        seconds_ago: last.age(now).as_secs(),
        detail: last.failure.detail().into(),
        answered_since: last.answered,
    }
}

/// The endpoints that have not answered since they failed, by reason.
fn grouped(met: &[(Option<SocketAddr>, LastFailure)], now: SystemTime) -> Vec<Group> {
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    for (endpoint, last) in met.iter().filter(|(_, last)| last.answered == 0) {
        let group = groups
            .entry(last.failure.outcome.reason)
            .or_insert_with(|| Group {
                outcome: last.failure.outcome,
                endpoints: 0,
                count: 0,
                age: last.age(now),
                detail: last.failure.detail().to_owned(),
            });
        group.endpoints += usize::from(endpoint.is_some());
        group.count = group.count.saturating_add(last.count);
        group.age = group.age.min(last.age(now));
    }
    groups.into_values().collect()
}

/// True for reasons that are about all endpoints, since no failure names one.
fn is_of_all(reason: &str) -> bool {
    matches!(reason, "NoEndpoints" | "LoginFailed" | "Unauthenticated")
}

/// The step that a reason is about.
fn step(reason: &str) -> &'static str {
    match reason {
        "BackendNotVerified" | "BackendTlsFailed" => "backend TLS",
        "InvalidResponse" => "protocol",
        _ => "endpoints",
    }
}

/// What endpoints did: `1 of 1 refused the last 5 connections, 10 s ago (Connection refused)`.
fn words(group: &Group, all: usize) -> String {
    let Group {
        outcome,
        endpoints,
        count,
        age,
        detail,
    } = group;
    let (before, noun, after) = match outcome.reason {
        "BackendRefused" if detail == "Connection refused" => ("refused", "connection", ""),
        "BackendRefused" => ("were not reached for", "connection", ""),
        "ConnectTimedOut" => ("did not accept", "connection", " in time"),
        "BackendNotVerified" => ("were not verified at", "connection", ""),
        "BackendTlsFailed" => ("failed the handshake of", "connection", ""),
        "BackendClosed" => ("closed the connection before they answered", "request", ""),
        "InvalidResponse" => ("gave no valid answer to", "request", ""),
        "TimedOut" => ("did not answer", "request", " in time"),
        "ClientLeft" => ("did not answer", "request", " before the client left"),
        "CutOff" => ("broke off", "response", ""),
        "NoEndpoints" => ("were thought healthy for", "request", ""),
        "LoginFailed" => ("failed", "login", ""),
        "Unauthenticated" => ("gave no keys for", "token", ""),
        _ => ("failed", "request", ""),
    };
    let who = match (endpoints, outcome.reason) {
        (0, "NoEndpoints") => "none".to_owned(),
        (0, "LoginFailed" | "Unauthenticated") => "it".to_owned(),
        (0, _) => "they".to_owned(),
        _ => format!("{endpoints} of {all}"),
    };
    let what = match count {
        1 => format!("the last {noun}"),
        _ => format!("the last {count} {noun}s"),
    };
    let detail = match outcome.reason {
        "BackendRefused" if detail == "Connection refused" => String::new(),
        _ if detail.is_empty() => String::new(),
        _ => format!(" ({detail})"),
    };
    format!("{who} {before} {what}{after}, {} ago{detail}", ago(*age))
}

/// That an endpoint answers again, or answers others.
fn recovered(endpoint: Option<SocketAddr>, last: &LastFailure, now: SystemTime) -> String {
    let endpoint = endpoint.map_or_else(|| "they".to_owned(), |at| at.to_string());
    let (reason, answered) = (last.failure.outcome.reason, last.answered);
    let since = if answered == 1 { "request" } else { "requests" };
    format!(
        "NOTE: {endpoint} failed a request {} ago ({reason}), and has answered {answered} {since} since",
        ago(last.age(now))
    )
}

fn ago(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

/// The likely cause of a failure, for the person who reads it.
fn hint(reason: &str, spoken: Spoken) -> &'static str {
    match (reason, spoken) {
        ("InvalidResponse", Spoken { http2: true, .. }) => {
            "HTTP/2 is spoken (appProtocol kubernetes.io/h2c, or a GRPCRoute), and a backend of HTTP/1.1 does not understand it: "
        }
        ("InvalidResponse", Spoken { tls: true, .. }) => {
            "HTTP/1.1 is spoken, and a backend of HTTP/2 needs appProtocol kubernetes.io/h2c: "
        }
        ("InvalidResponse", _) => {
            "HTTP/1.1 in plain text is spoken; a backend of HTTP/2 needs appProtocol kubernetes.io/h2c, one of TLS a BackendTLSPolicy: "
        }
        (
            "BackendClosed",
            Spoken {
                proxy_header: true, ..
            },
        ) => {
            "; a backend that expects no PROXY header does so (proxyProtocol of its TrafficPolicy)"
        }
        ("BackendClosed", Spoken { http2: true, .. }) => {
            "; a backend of HTTP/1.1 does so, to which HTTP/2 is spoken (appProtocol)"
        }
        ("BackendClosed", Spoken { tls: false, .. }) => {
            "; a backend that expects TLS (BackendTLSPolicy), HTTP/2 (appProtocol) or a PROXY header does so"
        }
        ("NoEndpoints", _) => {
            "; health checks or outlier detection of its TrafficPolicy keep Envoys from all of them"
        }
        ("LoginFailed", _) => {
            "; is clientID known to the provider, and the secret of clientSecretRef its own?"
        }
        ("TimedOut" | "ClientLeft", _) => "; the backend accepts connections and is silent",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_objects::last_failure::Failure;
    use gatewright_objects::request_outcome::{NOT_VERIFIED, by_cause};

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn endpoint(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    fn explanation(endpoints: u8) -> Explanation {
        let mut explanation = Explanation::default();
        explanation.hold("backend", "a/web:80 with weight 1".to_owned());
        explanation.hold("backend TLS", "verified as web".to_owned());
        explanation.hold("endpoints", format!("{endpoints} ready"));
        explanation.links[2].reached = Some(Reached {
            clusters: vec!["a/web:80".to_owned()],
            endpoints: (1..=endpoints).map(endpoint).collect(),
            spoken: Spoken::default(),
        });
        explanation.hold("backend", "a/other:80 with weight 1".to_owned());
        explanation
    }

    fn failed(cause: &str, transport: &str, answered: u64) -> LastFailure {
        LastFailure {
            failure: Failure::new(by_cause(cause).expect("an outcome"), transport),
            count: 5,
            at: NOW,
            answered,
        }
    }

    /// The last link of an explanation with two endpoints, the first of which failed so, and the
    /// second too if all did.
    fn last(all: bool, failure: &LastFailure) -> Link {
        let mut explanation = explanation(2);
        let now = NOW + Duration::from_secs(10);
        let by = |_: &str, at: Option<SocketAddr>| {
            let fails = at == Some(endpoint(1)) || all && at.is_some();
            fails.then(|| failure.clone())
        };
        explanation.meet(by, Answers::Reported, now);
        match explanation.links.pop() {
            Some(link) if link.ok => explanation.links.pop().expect("the endpoints"),
            link => link.expect("a link"),
        }
    }

    #[test]
    fn a_backend_that_refuses_fails() {
        let link = last(
            true,
            &failed("remote_connection_failure", "Connection refused", 0),
        );
        assert_eq!(link.what, "endpoints", "{link:?}");
        assert_eq!(link.reason, Some("BackendRefused"), "{link:?}");
        assert!(!link.ok, "{link:?}");
        assert_eq!(
            link.text,
            "2 ready; 2 of 2 refused the last 10 connections, 10 s ago"
        );
        assert_eq!(link.met.len(), 2, "facts");
    }

    #[test]
    fn what_may_have_answered_since_is_a_note() {
        let mut explanation = explanation(1);
        let failure = failed("remote_connection_failure", "Connection refused", 0);
        explanation.meet(
            |_, at| at.map(|_| failure.clone()),
            Answers::Unknown,
            NOW + Duration::from_secs(10),
        );
        let link = &explanation.links[2];
        assert!(link.ok && explanation.links.len() == 4, "{link:?}");
        let note = "1 ready; NOTE: 1 of 1 refused the last 5 connections, 10 s ago";
        assert_eq!(link.text, note);
    }

    #[test]
    fn an_endpoint_among_others_is_a_note() {
        let link = last(false, &failed("upstream_response_timeout", "", 0));
        assert!(link.ok, "{link:?}");
        assert_eq!(
            link.text,
            "2 ready; NOTE: 1 of 2 did not answer the last 5 requests in time, 10 s ago"
        );
    }

    #[test]
    fn an_endpoint_that_answers_again_is_a_note() {
        let link = last(true, &failed("upstream_response_timeout", "", 7));
        assert!(link.ok, "{link:?}");
        let note = "NOTE: 10.0.0.1:80 failed a request 10 s ago (TimedOut), and has answered 7 requests since";
        assert!(link.text.contains(note), "{link:?}");
    }

    #[test]
    fn a_certificate_is_a_matter_of_the_link_about_tls() {
        let names = "verify SAN list failed, certificate SANs are [b.org]:TLS_error_end";
        let link = last(true, &failed(NOT_VERIFIED, names, 0));
        assert_eq!(link.what, "backend TLS");
        assert!(
            link.text.ends_with("(its certificate is for [b.org])"),
            "{link:?}"
        );
    }

    #[test]
    fn an_answer_in_another_protocol_has_a_link_of_its_own() {
        let link = last(true, &failed("protocol_error", "", 0));
        assert_eq!(link.what, "protocol", "{link:?}");
        assert!(!link.ok, "{link:?}");
        assert!(
            link.text.contains("appProtocol kubernetes.io/h2c"),
            "{link:?}"
        );
    }

    #[test]
    fn nobody_may_be_asked() {
        let mut explanation = explanation(1);
        explanation.leave_unasked("Envoys know it");
        assert_eq!(
            explanation.links[2].text,
            "1 ready; not asked: Envoys know it"
        );
    }
}
