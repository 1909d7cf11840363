//! The access logs of all Envoys, read from the output of their pods.

use std::collections::{BTreeMap, VecDeque};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use gatewright_control::Visibility;
use gatewright_control::request_line::{RequestFilter, RequestLine};

use super::part::{Cut, cut};
use super::sources::{Answer, Refusal};
use crate::write::request::in_time;

/// The labels of pods of Envoys.
const ENVOYS: &str = "app.kubernetes.io/component in (envoy, envoy-dedicated, envoy-isolated)";
const CONTAINER: &str = "envoy";
/// The maximum number of pods whose logs are read.
const PODS: usize = 64;
/// The number of logs that are read at a time.
const AT_ONCE: usize = 2;
/// The bytes that are read of one log, and the lines from its end where no time is given. The API
/// server cuts off the newest beyond the bytes.
const BYTES: usize = 8 << 20;
const TAIL: i64 = 5000;
/// With fewer lines from the end, what is cut off is left out.
const FEWEST: i64 = 500;
/// The number of lines of an answer: at most, and without a number.
const MOST_LINES: usize = 2000;
const LINES: usize = 100;

/// What is read of the logs.
pub(super) struct LogQuery {
    pub(super) filter: RequestFilter,
    pub(super) since: Option<Timestamp>,
    pub(super) lines: Option<usize>,
    /// The place up to which an earlier answer went.
    pub(super) after: Option<String>,
}

/// Reads the lines that are asked for, of all Envoys, by time.
///
/// # Errors
/// When the pods cannot be listed.
pub(super) async fn read(
    client: &Client,
    namespace: &str,
    query: &LogQuery,
    visibility: &Visibility,
) -> Result<Answer, Refusal> {
    let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().labels(ENVOYS);
    let pods = in_time(api.list_metadata(&params))
        .await
        .map_err(|failure| {
            Refusal::unavailable(format!("the pods of Envoys cannot be listed: {failure}"))
        })?;
    let names: Vec<String> = pods.items.iter().map(ResourceExt::name_any).collect();
    let places = Places::parse(query.after.as_deref().unwrap_or_default());
    let logs: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut found = Found::new(query);
    for pods in names[..names.len().min(PODS)].chunks(AT_ONCE) {
        let texts = pods
            .iter()
            .map(|pod| log_of(&logs, pod, &places, query.since));
        for (pod, text) in pods.iter().zip(join_all(texts).await) {
            found = found.with(query, visibility, pod, places.of(pod), text);
        }
    }
    Ok(found.answer(names.len()))
}

/// Reads the log of a pod since its place, with the times at which lines were written.
async fn log_of(
    logs: &Api<Pod>,
    pod: &str,
    places: &Places,
    since: Option<Timestamp>,
) -> Result<String, String> {
    let place = places.of(pod);
    let place = place.and_then(|place| place.parse::<Timestamp>().ok());
    let mut params = LogParams {
        container: Some(CONTAINER.to_owned()),
        limit_bytes: i64::try_from(BYTES).ok(),
        since_time: place.or(since),
        timestamps: true,
        ..LogParams::default()
    };
    params.tail_lines = params.since_time.is_none().then_some(TAIL);
    loop {
        let text = in_time(logs.logs(pod, &params)).await;
        let text = text.map_err(|failure| failure.to_string())?;
        match params.tail_lines {
            Some(tail) if text.len() >= BYTES && tail > FEWEST => {
                params.tail_lines = Some(tail / 4);
            }
            _ => return Ok(text),
        }
    }
}

/// The lines that were found.
struct Found {
    /// The last ones of each pod, by their time.
    lines: VecDeque<(String, Value)>,
    most: usize,
    /// The number of older lines that are left out.
    omitted: usize,
    places: Places,
    /// True if a log has more than was read.
    is_cut: bool,
    /// Pods whose log cannot be read, with the reason.
    unread: Vec<String>,
}

impl Found {
    fn new(query: &LogQuery) -> Self {
        Self {
            lines: VecDeque::new(),
            most: query.lines.unwrap_or(LINES).min(MOST_LINES),
            omitted: 0,
            places: Places::default(),
            is_cut: false,
            unread: Vec::new(),
        }
    }

    /// With the log of a pod, of which lines up to a place are known.
    fn with(
        mut self,
        query: &LogQuery,
        visibility: &Visibility,
        pod: &str,
        place: Option<String>,
        text: Result<String, String>,
    ) -> Self {
        let text = match text {
            Ok(text) => text,
            Err(why) => {
                // The names of Envoys are the platform's.
                self.unread.push(match visibility {
                    Visibility::Everything => format!("the log of {pod} cannot be read: {why}"),
                    Visibility::Namespace(_) => "the log of an Envoy cannot be read".to_owned(),
                });
                self.places.set(pod, place);
                return self;
            }
        };
        let known = place.unwrap_or_default();
        let mut last = known.clone();
        let written = text.lines().filter_map(|line| line.split_once(' '));
        for (at, line) in written.filter(|(at, _)| **at > *known) {
            at.clone_into(&mut last);
            if let Some(seen) = chosen(line, &query.filter, visibility) {
                self.lines.push_back((at.to_owned(), seen));
            }
        }
        if text.len() >= BYTES {
            self.is_cut = true;
            // More than that within one second: the rest of the second is left out.
            if last == known {
                last = next_second(&known).unwrap_or(last);
            }
        }
        self.lines.make_contiguous().sort_by(|a, b| a.0.cmp(&b.0));
        while self.lines.len() > self.most {
            self.lines.pop_front();
            self.omitted += 1;
        }
        self.places
            .set(pod, Some(last).filter(|last| !last.is_empty()));
        self
    }

    fn answer(self, pods: usize) -> Answer {
        let mut lines: Vec<Value> = self.lines.into_iter().map(|(_, line)| line).collect();
        let mut notes = self.unread;
        notes.sort();
        notes.dedup();
        if pods == 0 {
            notes.push("no pod of an Envoy is there".to_owned());
        }
        if pods > PODS {
            notes.push(format!(
                "the logs of {} more Envoys are not read",
                pods - PODS
            ));
        }
        if self.is_cut {
            let note = "a log has more lines than were read: ask since a later time";
            notes.push(note.to_owned());
        }
        let omitted = self.omitted + cut(&mut lines, Cut::First);
        Answer {
            document: json!({"lines": lines, "notes": notes}),
            omitted,
            after: Some(self.places.to_string()),
        }
    }
}

/// The second after a time.
fn next_second(at: &str) -> Option<String> {
    let next = at
        .parse::<Timestamp>()
        .ok()?
        .checked_add(SignedDuration::from_secs(1));
    Some(format!("{:.9}", next.ok()?))
}

/// A line as it is answered; `None` if it is not asked for, or no line of an access log.
fn chosen(text: &str, filter: &RequestFilter, visibility: &Visibility) -> Option<Value> {
    let line = RequestLine::parse(text).filter(|line| filter.has(line))?;
    match visibility {
        Visibility::Everything => Some(line.json()),
        Visibility::Namespace(namespace) => {
            let is_own = line.namespace() == Some(namespace);
            is_own.then(|| line.seen_by(namespace).json())
        }
    }
}

/// Up to which time the log of each pod is known, by a short name of the pod: the names of Envoys
/// are the platform's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Places(BTreeMap<String, String>);

impl Places {
    fn parse(text: &str) -> Self {
        let places = text.split(',').filter_map(|place| place.split_once('='));
        let valid = places.filter(|(_, at)| at.parse::<Timestamp>().is_ok());
        let places = valid.map(|(pod, at)| (pod.to_owned(), at.to_owned()));
        Self(places.take(PODS).collect())
    }

    fn of(&self, pod: &str) -> Option<String> {
        self.0.get(&short(pod)).cloned()
    }

    fn set(&mut self, pod: &str, at: Option<String>) {
        if let Some(at) = at {
            self.0.insert(short(pod), at);
        }
    }
}

impl std::fmt::Display for Places {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = self.0.iter().map(|(pod, at)| format!("{pod}={at}"));
        f.write_str(&places.collect::<Vec<_>>().join(","))
    }
}

fn short(pod: &str) -> String {
    let digest = Sha256::digest(pod);
    digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOP: &str = r#"{"status":503,"details":"no_healthy_upstream","namespace":"shop","host":"shop.example.org"}"#;
    const OTHER: &str = r#"{"status":503,"details":"no_healthy_upstream","namespace":"other","host":"theirs.example.org"}"#;

    fn query() -> LogQuery {
        LogQuery {
            filter: RequestFilter::default(),
            since: None,
            lines: None,
            after: None,
        }
    }

    fn at(second: u32) -> String {
        format!("2026-11-26T07:51:{second:02}.000000001Z")
    }

    /// What is found in a log from a place on.
    fn found(log: &str, after: Option<String>, visibility: &Visibility) -> Answer {
        let query = query();
        Found::new(&query)
            .with(&query, visibility, "envoy-1", after, Ok(log.to_owned()))
            .answer(1)
    }

    #[test]
    fn a_namespace_gets_its_lines_and_nobody_elses() {
        let log = format!("{} {SHOP}\n{} {OTHER}\n{} starting\n", at(1), at(2), at(3));
        let of_shop = found(&log, None, &Visibility::Namespace("shop".into()));
        assert_eq!(of_shop.document["lines"].as_array().map(Vec::len), Some(1));
        assert!(!of_shop.document.to_string().contains("theirs"));
        let of_all = found(&log, None, &Visibility::Everything);
        assert_eq!(of_all.document["lines"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn an_answer_goes_on_after_the_last_line() {
        let log = format!("{} {SHOP}\n{} {OTHER}\n", at(1), at(2));
        let first = found(&log, None, &Visibility::Namespace("shop".into()));
        let after = first.after.expect("a place");
        let place = Places::parse(&after).of("envoy-1").expect("of the pod");
        assert_eq!(place, at(2), "lines of others are passed, too");
        let log = format!("{log}{} {SHOP}\n", at(3));
        let next = found(&log, Some(place), &Visibility::Namespace("shop".into()));
        assert_eq!(next.document["lines"].as_array().map(Vec::len), Some(1));
        assert!(!after.contains("envoy-1"), "the name of an Envoy: {after}");
        assert_eq!(Places::parse("x,y=z,w=").0.len(), 0, "what is no place");
    }

    #[test]
    fn the_newest_lines_are_kept_and_the_others_counted() {
        let log: String = (0..50).map(|n| format!("{} {SHOP}\n", at(n))).collect();
        let few = LogQuery {
            lines: Some(3),
            ..query()
        };
        let answer = Found::new(&few)
            .with(&few, &Visibility::Everything, "envoy-1", None, Ok(log))
            .answer(1);
        assert_eq!(answer.document["lines"].as_array().map(Vec::len), Some(3));
        assert_eq!(answer.omitted, 47);
    }

    #[test]
    fn a_log_that_cannot_be_read_is_said_without_the_name() {
        let query = query();
        let shop = Visibility::Namespace("shop".into());
        let failed = || Err("no such container".to_owned());
        let place = Some(at(7));
        let answer = Found::new(&query)
            .with(&query, &shop, "envoy-1", place, failed())
            .with(&query, &shop, "envoy-2", None, failed())
            .answer(2);
        let notes = json!(["the log of an Envoy cannot be read"]);
        assert_eq!(answer.document["notes"], notes);
        let places = Places::parse(&answer.after.expect("places"));
        assert_eq!(places.of("envoy-1"), Some(at(7)), "it goes on from there");
    }
}
