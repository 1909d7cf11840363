//! Events about changes for the log, with a severity and fields. The text is for people, the fields
//! are for programs that read the log as JSON.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use tracing::{debug, info, warn};
use xds::Generation;

use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::Reason;
use gatewright_core::unserved::Unserved;

/// The field with the name of an event: where it is present, other fields have the information of
/// the text.
pub const FIELD: &str = "event";

/// The event name for the Envoy that `gatewright standalone` runs; field `pid` where it is about
/// one process.
pub const PROCESS: &str = "EnvoyProcess";
/// The event name for a file; field `file`.
pub const FILE: &str = "File";
/// The event name for a Lease; fields `object` and `identity`.
pub const LEASE: &str = "Lease";
/// The event name for watches of the API server; field `kind`.
pub const WATCH: &str = "Watch";
/// The event name for the record of owners; field `count`.
pub const RECORD: &str = "Record";
/// The event name for the last good state that a controller stores.
pub const LAST_GOOD: &str = "LastGood";
/// The event name for a name of a Service of type ExternalName; fields `object` and `namespace`.
pub const EXTERNAL_NAME: &str = "ExternalName";
/// The event name for the keys and certificates of xDS; fields `object` and `step` where it is
/// about one.
pub const XDS_KEYS: &str = "XdsKeys";

/// The maximum number of listeners in the text of an event.
const LISTENERS_NAMED: usize = 4;

/// The maximum number of events of one step about things on their way: a first start has one for
/// each listener.
const ON_THEIR_WAY_LOGGED: usize = 20;

/// Logs a warning about a file: its path, and `text`.
pub fn warn_of_file(path: &Path, text: impl fmt::Display) {
    let path = path.display();
    warn!(event = FILE, file = %path, "{path}: {text}");
}

/// The severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Of interest for debugging.
    Debug,
    /// A normal step.
    Info,
    /// A problem that an author or an operator has to solve.
    Warn,
}

/// The subject of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The object of the change; the first where there are several.
    pub object: Option<ObjectKey>,
    /// The text about all objects.
    pub text: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An event for the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A change does not change the resources of Envoys.
    Unchanged {
        /// The change.
        subject: Subject,
    },
    /// Every connected Envoy has acknowledged the publication of a change.
    Acknowledged {
        /// The change.
        subject: Subject,
        /// The number of hostnames that it affects.
        hosts: usize,
        /// The hostname, if the change affects only one.
        host: Option<String>,
        /// The number of connected Envoys.
        envoys: usize,
        /// The generation of the publication.
        generation: Generation,
        /// The time from the change to the last acknowledgement.
        took: Duration,
    },
    /// A condition of an object needs attention.
    Condition {
        /// The object.
        object: ObjectKey,
        /// The listeners that have the condition; empty where it is the object's own, or of a
        /// parent of a route.
        listeners: Vec<String>,
        /// The generation of the object that the condition is about.
        generation: i64,
        /// The type of the condition.
        condition: String,
        /// The status of the condition: `True`, `False` or `Unknown`.
        status: String,
        /// The reason of the condition.
        reason: String,
        /// The message of the condition.
        message: String,
        /// True if the configuration before is still served.
        frozen: bool,
    },
    /// No controller can serve an object: it has a class or a parent that is not there.
    Unserved {
        /// The object.
        object: ObjectKey,
        /// Why.
        why: Unserved,
    },
    /// An Envoy rejected a resource, or a part of one (NACK); logged once.
    Rejected {
        /// The Envoy.
        node: String,
        /// The object that the resource was made from, if it is only one.
        object: Option<ObjectKey>,
        /// The type of the resource.
        kind: String,
        /// The name of the resource, and of the part.
        resource: String,
        /// The message of Envoy.
        text: String,
    },
    /// An Envoy accepts a listener that it rejected because it could not bind the address.
    Bound {
        /// The Envoy.
        node: String,
        /// The name of the listener.
        resource: String,
    },
    /// The Envoys of a view rejected more than is logged.
    RejectionsOmitted {
        /// The view.
        view: String,
    },
    /// More conditions of one step are pending than are logged.
    ConditionsOmitted {
        /// The number of those that are not logged.
        omitted: usize,
    },
    /// An object is ignored because it cannot be parsed.
    Unreadable {
        /// The object.
        object: ObjectKey,
        /// The error.
        why: String,
    },
    /// A request to the API server about an object failed, or another manager reverts it.
    RequestFailed {
        /// The object.
        object: ObjectKey,
        /// The class of the failure, or the reason of a condition.
        reason: &'static str,
        /// The message: the object, the request, and the error.
        text: String,
    },
    /// A part of a manifest is invalid.
    Manifest {
        /// The file.
        file: String,
        /// The line in the file; 0 where it concerns the whole file.
        line: usize,
        /// The object, as far as it is known.
        object: Option<String>,
        /// The message: the place, the object, and the error.
        text: String,
    },
    /// Clients request many unknown hostnames (a flood): TLS listeners name every host from now on.
    FloodBegan,
    /// The flood is over.
    FloodEnded,
}

impl Event {
    /// Returns the severity of the event.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Unchanged { .. } => Severity::Debug,
            Self::Acknowledged { .. }
            | Self::Bound { .. }
            | Self::ConditionsOmitted { .. }
            | Self::FloodEnded => Severity::Info,
            Self::Condition { .. } if self.is_on_its_way() => Severity::Info,
            Self::Condition { .. }
            | Self::Unserved { .. }
            | Self::Rejected { .. }
            | Self::RejectionsOmitted { .. }
            | Self::Unreadable { .. }
            | Self::RequestFailed { .. }
            | Self::Manifest { .. }
            | Self::FloodBegan => Severity::Warn,
        }
    }

    /// Returns whether the event is about a condition that is only pending.
    pub fn is_pending(&self) -> bool {
        self.has_reason(Reason::Pending)
    }

    /// Returns whether the event is about something that another controller has not created yet: an
    /// address comes with a Service, and a Service takes a moment.
    fn is_on_its_way(&self) -> bool {
        self.is_pending() || self.has_reason(Reason::AddressNotAssigned)
    }

    /// Returns what an object loses to another one: the object, the reason, and the message.
    pub(crate) fn loss(&self) -> Option<(&ObjectKey, &str, &str)> {
        let Self::Condition {
            object,
            reason,
            message,
            ..
        } = self
        else {
            return None;
        };
        let mut known = Reason::ALL.iter();
        let is_loss = known.any(|known| known.is_loss() && known.as_str() == reason);
        is_loss.then_some((object, reason.as_str(), message.as_str()))
    }

    fn has_reason(&self, wanted: Reason) -> bool {
        matches!(self, Self::Condition { reason, .. } if reason == wanted.as_str())
    }

    /// Logs the event, with at least the severity `least`.
    pub fn log(&self, least: Severity) {
        let severity = self.severity().max(least);
        macro_rules! at_its_severity {
            ($($field:tt)*) => {
                match severity {
                    Severity::Debug => debug!($($field)*, "{self}"),
                    Severity::Info => info!($($field)*, "{self}"),
                    Severity::Warn => warn!($($field)*, "{self}"),
                }
            };
        }
        match self {
            Self::Unchanged { subject } => {
                let (object, namespace) = named(subject.object.as_ref());
                at_its_severity!(event = "Unchanged", object, namespace);
            }
            Self::Acknowledged {
                subject,
                hosts,
                host,
                envoys,
                generation,
                took,
            } => {
                let (object, namespace) = named(subject.object.as_ref());
                let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                at_its_severity!(
                    event = "Acknowledged",
                    object,
                    namespace,
                    hosts,
                    host,
                    envoys,
                    generation,
                    milliseconds
                );
            }
            Self::Condition {
                object,
                listeners,
                generation,
                condition,
                status,
                reason,
                ..
            } => {
                let (object, namespace) = named(Some(object));
                let listeners = (!listeners.is_empty()).then(|| listeners.join(","));
                let observed_generation = generation;
                at_its_severity!(
                    event = "Condition",
                    object,
                    namespace,
                    listeners,
                    observed_generation,
                    condition,
                    status,
                    reason
                );
            }
            Self::Unserved { object, why } => {
                let (object, namespace) = named(Some(object));
                at_its_severity!(event = "Unserved", object, namespace, reason = why.reason());
            }
            Self::Rejected {
                node,
                object,
                kind,
                resource,
                ..
            } => {
                let (object, namespace) = named(object.as_ref());
                at_its_severity!(
                    event = "Rejected",
                    object,
                    namespace,
                    envoy = node,
                    r#type = kind,
                    resource
                );
            }
            Self::Bound { node, resource } => {
                at_its_severity!(event = "Bound", envoy = node, resource)
            }
            Self::RejectionsOmitted { view } => at_its_severity!(event = "RejectionsOmitted", view),
            Self::ConditionsOmitted { omitted } => {
                at_its_severity!(event = "ConditionsOmitted", omitted);
            }
            Self::Unreadable { object, .. } => {
                let (object, namespace) = named(Some(object));
                at_its_severity!(event = "Unreadable", object, namespace);
            }
            Self::RequestFailed { object, reason, .. } => {
                let (object, namespace) = named(Some(object));
                at_its_severity!(event = "RequestFailed", object, namespace, reason);
            }
            Self::Manifest {
                file, line, object, ..
            } => at_its_severity!(event = "Manifest", file, line, object),
            Self::FloodBegan => at_its_severity!(event = "FloodBegan"),
            Self::FloodEnded => at_its_severity!(event = "FloodEnded"),
        }
    }
}

/// Returns an object and its namespace, as fields.
fn named(object: Option<&ObjectKey>) -> (Option<String>, Option<&str>) {
    let namespace = object
        .map(|key| &*key.name.namespace)
        .filter(|namespace| !namespace.is_empty());
    (object.map(ToString::to_string), namespace)
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unchanged { subject } => write!(f, "{subject}: nothing to send"),
            Self::Acknowledged { subject, hosts, envoys, took, .. } => {
                let s = if *hosts == 1 { "" } else { "s" };
                let milliseconds = took.as_millis();
                write!(f, "{subject}: {hosts} host{s} changed, acked {envoys}/{envoys} in {milliseconds} ms")
            }
            Self::Condition { object, listeners, condition, status, reason, message, frozen, .. } => {
                let stays = if *frozen { "; the previous state is still served" } else { "" };
                let of = match &listeners[..] {
                    [] => String::new(),
                    [one] => format!("listener {one}: "),
                    some if some.len() <= LISTENERS_NAMED => format!("listeners {}: ", some.join(", ")),
                    many => {
                        let (named, others) = many.split_at(LISTENERS_NAMED);
                        format!("listeners {} and {} more: ", named.join(", "), others.len())
                    }
                };
                write!(f, "{object}: {of}{condition}={status} {reason}: {message}{stays}")
            }
            Self::Unserved { object, why } => write!(f, "{object}: {why}"),
            Self::Rejected { node, kind, resource, text, .. } => {
                write!(f, "envoy {node:?} refused {kind} {resource}: {text}")
            }
            Self::Bound { node, resource } => {
                write!(f, "envoy {node:?} has bound the address of Listener {resource} and serves it")
            }
            Self::ConditionsOmitted { omitted } => write!(
                f,
                "{omitted} more conditions are pending: see the statuses of the objects"
            ),
            Self::RejectionsOmitted { view } => {
                write!(
                    f,
                    "the Envoys of view {view} refuse more than is logged; `gatewright status` shows what is refused now"
                )
            }
            Self::Unreadable { object, why } => write!(f, "{object} is ignored: {why}"),
            Self::RequestFailed { text, .. } | Self::Manifest { text, .. } => f.write_str(text),
            Self::FloodBegan => {
                f.write_str("clients ask for many unknown names: listeners match every hostname exactly for a while")
            }
            Self::FloodEnded => {
                f.write_str("the flood of unknown names is over: listeners match hostnames by parent domains again")
            }
        }
    }
}

/// The events of one step.
#[derive(Debug, Default, PartialEq)]
#[must_use = "events are for the log"]
pub struct Events(Vec<Event>);

impl Events {
    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        self.0.push(event);
    }

    /// Adds the events of another step.
    pub fn append(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Iterates over the events.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.0.iter()
    }

    /// Removes the events about pending conditions.
    pub fn without_pending(mut self) -> Self {
        self.0.retain(|event| !event.is_pending());
        self
    }

    /// Logs the events, each with at least the severity `least`. Of those about things on their way
    /// the first are logged, and the number of the others.
    pub fn log(mut self, least: Severity) {
        let omitted = self.omit_on_their_way();
        if omitted > 0 {
            self.push(Event::ConditionsOmitted { omitted });
        }
        for event in self.0 {
            event.log(least);
        }
    }

    /// Removes the events about things on their way, all but the first. Returns their number.
    fn omit_on_their_way(&mut self) -> usize {
        let mut on_their_way = 0;
        self.0.retain(|event| {
            if !event.is_on_its_way() {
                return true;
            }
            on_their_way += 1;
            on_their_way <= ON_THEIR_WAY_LOGGED
        });
        on_their_way.saturating_sub(ON_THEIR_WAY_LOGGED)
    }
}

impl Extend<Event> for Events {
    fn extend<T: IntoIterator<Item = Event>>(&mut self, events: T) {
        self.0.extend(events);
    }
}

impl From<Option<Event>> for Events {
    fn from(event: Option<Event>) -> Self {
        Self(event.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::inputs::Kind;
    use gatewright_core::model::ObjectName;

    fn condition(reason: &str) -> Event {
        Event::Condition {
            object: ObjectKey::new(Kind::HTTPRoute, ObjectName::new("alice", "shop")),
            listeners: Vec::new(),
            generation: 3,
            condition: "ResolvedRefs".to_owned(),
            status: "False".to_owned(),
            reason: reason.to_owned(),
            message: "no Service alice/web".to_owned(),
            frozen: false,
        }
    }

    #[test]
    fn a_fault_of_an_author_is_a_warning_and_progress_is_not() {
        let broken = condition("BackendNotFound");
        let waits = condition("Pending");
        assert_eq!(
            broken.severity(),
            Severity::Warn,
            "a fault of the author is a warning"
        );
        assert_eq!(waits.severity(), Severity::Info, "waiting is none");
        assert_eq!(
            broken.to_string(),
            "httproute alice/shop: ResolvedRefs=False BackendNotFound: no Service alice/web"
        );
        let mut events = Events::default();
        events.extend([broken.clone(), waits]);
        assert_eq!(events.without_pending(), Events(vec![broken]));
    }

    #[test]
    fn many_objects_that_wait_are_logged_as_a_number_and_faults_one_by_one() {
        let mut events = Events::default();
        for _ in 0..ON_THEIR_WAY_LOGGED + 7 {
            events.extend([condition("Pending"), condition("BackendNotFound")]);
        }
        assert_eq!(events.omit_on_their_way(), 7);
        let waiting = events.iter().filter(|event| event.is_on_its_way()).count();
        assert_eq!(waiting, ON_THEIR_WAY_LOGGED);
        let faults = events.iter().filter(|event| !event.is_on_its_way()).count();
        assert_eq!(faults, ON_THEIR_WAY_LOGGED + 7, "none is omitted");
        assert_eq!(events.omit_on_their_way(), 0, "no more than are logged");
    }

    #[test]
    fn one_host_is_not_hosts() {
        let object = Some(ObjectKey::new(
            Kind::HTTPRoute,
            ObjectName::new("alice", "shop"),
        ));
        let subject = Subject {
            object,
            text: "httproute alice/shop".to_owned(),
        };
        let took = Duration::from_millis(6);
        fn told(hosts: usize, subject: &Subject, took: &Duration) -> Event {
            Event::Acknowledged {
                subject: subject.clone(),
                hosts,
                host: None,
                envoys: 2,
                generation: 7,
                took: *took,
            }
        }
        assert_eq!(
            told(1, &subject, &took).to_string(),
            "httproute alice/shop: 1 host changed, acked 2/2 in 6 ms"
        );
        assert_eq!(
            told(0, &subject, &took).to_string(),
            "httproute alice/shop: 0 hosts changed, acked 2/2 in 6 ms"
        );
    }
}
