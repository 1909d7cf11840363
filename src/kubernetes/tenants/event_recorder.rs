//! Records transitions of conditions as Events of the API (`events.k8s.io/v1`) on the object that
//! has the condition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::Value;
use tokio::task::JoinSet;
use tracing::debug;

use super::super::FIELD_MANAGER;
use super::transitions::{Transition, Watched, transitions};
use crate::write::request::{begin, in_time};
use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::Reason;

/// The maximum length of a note (`events.k8s.io/v1`, `note`).
const NOTE: usize = 1000;
/// The maximum number of Events being written. Further ones are dropped, since statuses have the
/// same information.
const AT_ONCE: usize = 64;
/// The maximum number of these about objects of one namespace.
const OF_NAMESPACE: usize = 16;
/// The maximum number of Events of one write of a status.
const OF_STATUS: usize = 8;
/// The time in which an Event about the same condition of an object is not written again.
const AGAIN: Duration = Duration::from_secs(300);
/// The maximum number of Events that are remembered for that.
const REMEMBERED: usize = 4096;
/// Where reasons of conditions are explained, and where those of Events alone.
const EXPLAINED: [&str; 2] = ["docs/reference/conditions.md", "docs/kubernetes.md"];

/// Records transitions once the status that has them is written.
pub struct EventRecorder {
    client: Client,
    pending: BTreeMap<ObjectKey, (String, Vec<Transition>)>,
    /// When an Event about a condition of an object was written, by its place and reason.
    recent: BTreeMap<(ObjectKey, String, String), Instant>,
    /// The number of Events that are being written, by namespace.
    under_way: BTreeMap<Arc<str>, usize>,
    tasks: JoinSet<Arc<str>>,
}

impl EventRecorder {
    /// Creates a recorder without pending transitions.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            pending: BTreeMap::new(),
            recent: BTreeMap::new(),
            under_way: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Notes that a status is being written to the object of this UID, in place of the status
    /// `before`.
    pub fn note(
        &mut self,
        key: &ObjectKey,
        uid: &str,
        before: &Value,
        after: &Value,
        watched: &Watched,
    ) {
        let mut transitions = transitions(before, after, watched);
        transitions.truncate(OF_STATUS);
        if transitions.is_empty() {
            self.pending.remove(key);
        } else {
            self.pending
                .insert(key.clone(), (uid.to_owned(), transitions));
        }
    }

    /// Takes in the outcome of the write: after a success the transitions are recorded.
    pub fn written(&mut self, key: &ObjectKey, done: bool) {
        let Some((uid, transitions)) = self.pending.remove(key).filter(|_| done) else {
            return;
        };
        let now = Instant::now();
        for transition in transitions {
            if self.is_news(key, &transition, now) {
                self.record(key, uid.clone(), transition);
            }
        }
    }

    /// Records a problem that no status has, about the object of this UID.
    pub fn warn(&mut self, key: &ObjectKey, uid: &str, reason: &str, note: &str) {
        let note = note.chars().take(NOTE).collect();
        self.record(
            key,
            uid.to_owned(),
            Transition {
                place: String::new(),
                warning: true,
                reason: reason.to_owned(),
                note,
            },
        );
    }

    /// Returns whether no Event about the same was written in the last minutes, and notes it.
    fn is_news(&mut self, key: &ObjectKey, transition: &Transition, now: Instant) -> bool {
        let about = (
            key.clone(),
            transition.place.clone(),
            transition.reason.clone(),
        );
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < AGAIN;
        if self.recent.get(&about).is_some_and(is_recent) {
            return false;
        }
        if self.recent.len() >= REMEMBERED {
            self.recent.retain(|_, at| is_recent(at));
        }
        if self.recent.len() < REMEMBERED {
            self.recent.insert(about, now);
        }
        true
    }

    fn record(&mut self, key: &ObjectKey, uid: String, transition: Transition) {
        while let Some(done) = self.tasks.try_join_next() {
            if let Ok(namespace) = done
                && let Some(count) = self.under_way.get_mut(&namespace)
            {
                *count -= 1;
                if *count == 0 {
                    self.under_way.remove(&namespace);
                }
            }
        }
        let namespace = key.name.namespace.clone();
        let of_namespace = self.under_way.get(&namespace).copied().unwrap_or_default();
        if self.tasks.len() >= AT_ONCE || of_namespace >= OF_NAMESPACE {
            debug!(
                "{key}: too many events: {} is not recorded",
                transition.reason
            );
            return;
        }
        *self.under_way.entry(namespace.clone()).or_default() += 1;
        let (client, key) = (self.client.clone(), key.clone());
        begin(&mut self.tasks, "event", &key.to_string(), async move {
            if let Err(failure) = in_time(record(client, &key, uid, transition)).await {
                debug!("{key}: event: {failure}");
            }
            namespace
        });
    }

    /// Aborts the writes of Events.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Writes the Event of a transition, about the object of this UID.
async fn record(
    client: Client,
    key: &ObjectKey,
    uid: String,
    transition: Transition,
) -> kube::Result<()> {
    let namespace = if key.name.namespace.is_empty() {
        "default"
    } else {
        &*key.name.namespace
    };
    let now = Timestamp::now();
    // Names of Events have at most 253 bytes, and may not end with a dot.
    let head: String = key.name.name.chars().take(200).collect();
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{head}.{:x}", now.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        action: Some("UpdateStatus".to_owned()),
        note: Some(explained(&transition.reason, &transition.note)),
        reason: Some(transition.reason),
        type_: Some(
            if transition.warning {
                "Warning"
            } else {
                "Normal"
            }
            .to_owned(),
        ),
        reporting_controller: Some("gatewright.io/gateway-controller".to_owned()),
        reporting_instance: Some(format!("{FIELD_MANAGER}-{}", std::process::id())),
        regarding: Some(ObjectReference {
            api_version: Some(key.kind.api_version()),
            kind: Some(key.kind.as_str().to_owned()),
            name: Some(key.name.name.to_string()),
            namespace: Some(key.name.namespace.to_string())
                .filter(|namespace| !namespace.is_empty()),
            uid: Some(uid),
            ..ObjectReference::default()
        }),
        ..Event::default()
    };
    Api::namespaced(client, namespace)
        .create(&PostParams::default(), &event)
        .await
        .map(|_: Event| ())
}

/// Returns a note with the place in the documentation that explains its reason.
fn explained(reason: &str, note: &str) -> String {
    let [conditions, events] = EXPLAINED;
    let anchor = if Reason::ALL.iter().any(|known| known.as_str() == reason) {
        format!(" ({conditions}#{})", reason.to_lowercase())
    } else {
        format!(" ({events}#events)")
    };
    let room = NOTE - anchor.len();
    note.chars().take(room).collect::<String>() + &anchor
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::inputs::Kind;
    use gatewright_core::model::ObjectName;

    #[test]
    fn a_note_ends_with_where_its_reason_is_explained() {
        let note = explained("HostnameConflict", "no");
        assert_eq!(note, "no (docs/reference/conditions.md#hostnameconflict)");
        let note = explained("Healed", &"x".repeat(2 * NOTE));
        assert_eq!(note.len(), NOTE, "it is as long as it may be");
        assert!(note.ends_with(" (docs/kubernetes.md#events)"), "{note}");
    }

    #[test]
    fn an_event_about_the_same_is_not_repeated_within_minutes() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime");
        let _inside = runtime.enter();
        let config = kube::Config::new("http://127.0.0.1:9".parse().expect("a URL"));
        let client = Client::try_from(config).expect("a client");
        let mut recorder = EventRecorder::new(client);
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "x"));
        fn transition(place: &str) -> Transition {
            Transition {
                place: place.to_owned(),
                warning: true,
                reason: "Invalid".to_owned(),
                note: "no".to_owned(),
            }
        }
        let start = Instant::now();
        assert!(recorder.is_news(&key, &transition("l"), start), "the first");
        assert!(
            !recorder.is_news(&key, &transition("l"), start + AGAIN / 2),
            "the same soon after"
        );
        assert!(
            recorder.is_news(&key, &transition("m"), start + AGAIN / 2),
            "another place"
        );
        assert!(
            recorder.is_news(&key, &transition("l"), start + AGAIN),
            "the same later"
        );
        for place in 0..2 * REMEMBERED {
            let _ = recorder.is_news(&key, &transition(&place.to_string()), start + AGAIN);
        }
        assert!(recorder.recent.len() <= REMEMBERED, "it is bounded");
    }
}
