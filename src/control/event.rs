//! Events: what people should know of a change, with a severity and fields. The text is for people, the fields are for
//! programs that read the log as JSON.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use tracing::{debug, info, warn};
use xds::Generation;

use gatewright_core::inputs::ObjectKey;
use gatewright_core::model::Reason;

/// The field with the name of an event: its presence tells that the text of a line says what the fields say.
pub const FIELD: &str = "event";

/// About the Envoy that `gatewright standalone` runs; field `pid` where it is about one process.
pub const PROCESS: &str = "EnvoyProcess";
/// About a file; field `file`.
pub const FILE: &str = "File";
/// About a Lease; fields `object` and `identity`.
pub const LEASE: &str = "Lease";
/// About what is watched at the API server; field `kind`.
pub const WATCH: &str = "Watch";
/// About the last good state that a controller keeps.
pub const LAST_GOOD: &str = "LastGood";
/// About the keys and certificates of xDS; fields `object` and `step` where it is about one.
pub const XDS_KEYS: &str = "XdsKeys";

/// How many listeners the text of an event names.
const LISTENERS_TOLD: usize = 4;

/// Writes a line at WARN about a file: its path, and `text`.
pub fn warn_of_file(path: &Path, text: impl fmt::Display) {
    let path = path.display();
    warn!(event = FILE, file = %path, "{path}: {text}");
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Of interest to whoever looks for a cause.
    Debug,
    /// A step of the ordinary way.
    Info,
    /// Something that an author or an operator has to change.
    Warn,
}

/// What a change was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The object, where the change was of one; the first, where it was of several.
    pub object: Option<ObjectKey>,
    /// The same for people.
    pub text: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What people should know.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A change leads to nothing that Envoys do not have.
    Unchanged {
        /// What changed.
        subject: Subject,
    },
    /// Every connected Envoy has acknowledged what a change led to.
    Acknowledged {
        /// What changed.
        subject: Subject,
        /// How many hostnames it touched.
        hosts: usize,
        /// The hostname, where it was one.
        host: Option<String>,
        /// How many Envoys are connected.
        envoys: usize,
        /// The publication.
        generation: Generation,
        /// From the change to the last acknowledgement.
        took: Duration,
    },
    /// A condition of an object needs somebody's attention.
    Condition {
        /// The object.
        object: ObjectKey,
        /// Its listeners that have the condition; none where it is the object's own, or of a parent of a route.
        listeners: Vec<String>,
        /// The generation of the object that was judged.
        generation: i64,
        /// The condition's type, as in its status.
        condition: String,
        /// Its status: `True`, `False` or `Unknown`.
        status: String,
        /// Its reason.
        reason: String,
        /// Its message.
        message: String,
        /// Whether what was served before is served on as it was.
        frozen: bool,
    },
    /// An Envoy refused a resource, or a part of one (NACK); told once.
    Rejected {
        /// The Envoy.
        node: String,
        /// The object that it was made from, where it is one.
        object: Option<ObjectKey>,
        /// The type of the resource.
        kind: String,
        /// The resource, and the part of it.
        resource: String,
        /// Envoy's words.
        text: String,
    },
    /// An object that is served is passed over, because it cannot be read.
    Unreadable {
        /// The object.
        object: ObjectKey,
        /// Why.
        why: String,
    },
    /// A request to the API server about an object failed, or is undone by others.
    RequestFailed {
        /// The object.
        object: ObjectKey,
        /// The class of failure, or the reason that a condition gives.
        reason: &'static str,
        /// For people: the object, what was to be done, and why it was not.
        text: String,
    },
    /// A part of a manifest is not as it has to be.
    Manifest {
        /// The file.
        file: String,
        /// The line in it; 0 where it concerns the whole file.
        line: usize,
        /// The object, as far as it is known.
        object: Option<String>,
        /// For people: the place, the object, and what is wrong.
        text: String,
    },
    /// Clients ask for many names that nobody has: TLS listeners name every host from now on.
    FloodBegan,
    /// That is over.
    FloodEnded,
}

impl Event {
    /// How much it matters.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Unchanged { .. } => Severity::Debug,
            Self::Acknowledged { .. } | Self::FloodEnded => Severity::Info,
            Self::Condition { .. } if self.is_on_its_way() => Severity::Info,
            Self::Condition { .. }
            | Self::Rejected { .. }
            | Self::Unreadable { .. }
            | Self::RequestFailed { .. }
            | Self::Manifest { .. }
            | Self::FloodBegan => Severity::Warn,
        }
    }

    /// Whether it says that something is on its way.
    pub fn is_pending(&self) -> bool {
        self.has_reason(Reason::Pending)
    }

    /// Whether it says that something others make is not there yet: an address comes by a Service, and a Service takes a moment.
    fn is_on_its_way(&self) -> bool {
        self.is_pending() || self.has_reason(Reason::AddressNotAssigned)
    }

    fn has_reason(&self, wanted: Reason) -> bool {
        matches!(self, Self::Condition { reason, .. } if reason == wanted.as_str())
    }

    /// Writes it to the log, where it has at least the severity `least`.
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
            Self::Acknowledged { subject, hosts, host, envoys, generation, took } => {
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
            Self::Condition { object, listeners, generation, condition, status, reason, .. } => {
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
            Self::Rejected { node, object, kind, resource, .. } => {
                let (object, namespace) = named(object.as_ref());
                at_its_severity!(event = "Rejected", object, namespace, envoy = node, r#type = kind, resource);
            }
            Self::Unreadable { object, .. } => {
                let (object, namespace) = named(Some(object));
                at_its_severity!(event = "Unreadable", object, namespace);
            }
            Self::RequestFailed { object, reason, .. } => {
                let (object, namespace) = named(Some(object));
                at_its_severity!(event = "RequestFailed", object, namespace, reason);
            }
            Self::Manifest { file, line, object, .. } => at_its_severity!(event = "Manifest", file, line, object),
            Self::FloodBegan => at_its_severity!(event = "FloodBegan"),
            Self::FloodEnded => at_its_severity!(event = "FloodEnded"),
        }
    }
}

/// An object and its namespace, as fields.
fn named(object: Option<&ObjectKey>) -> (Option<String>, Option<&str>) {
    let namespace = object.map(|key| &*key.name.namespace).filter(|namespace| !namespace.is_empty());
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
                let stays = if *frozen { "; what was live stays live" } else { "" };
                let of = match &listeners[..] {
                    [] => String::new(),
                    [one] => format!("listener {one}: "),
                    some if some.len() <= LISTENERS_TOLD => format!("listeners {}: ", some.join(", ")),
                    many => {
                        let (told, others) = many.split_at(LISTENERS_TOLD);
                        format!("listeners {} and {} more: ", told.join(", "), others.len())
                    }
                };
                write!(f, "{object}: {of}{condition}={status} {reason}: {message}{stays}")
            }
            Self::Rejected { node, kind, resource, text, .. } => {
                write!(f, "envoy {node:?} refused {kind} {resource}: {text}")
            }
            Self::Unreadable { object, why } => write!(f, "{object} is passed over: {why}"),
            Self::RequestFailed { text, .. } | Self::Manifest { text, .. } => f.write_str(text),
            Self::FloodBegan => {
                f.write_str("clients ask for many names that nobody has: listeners name every host for a while")
            }
            Self::FloodEnded => f.write_str("listeners name hosts by their parent domains again"),
        }
    }
}

/// Events of one step.
#[derive(Debug, Default, PartialEq)]
#[must_use = "events are for the log"]
pub struct Events(Vec<Event>);

impl Events {
    /// Adds one.
    pub fn push(&mut self, event: Event) {
        self.0.push(event);
    }

    /// Adds those of another step.
    pub fn append(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.0.iter()
    }

    /// Without those that say that something is on its way.
    pub fn without_pending(mut self) -> Self {
        self.0.retain(|event| !event.is_pending());
        self
    }

    /// Writes them to the log, each with at least the severity `least`.
    pub fn log(self, least: Severity) {
        for event in self.0 {
            event.log(least);
        }
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
    fn what_an_author_has_to_change_is_a_warning_and_what_is_on_its_way_is_not() {
        let (broken, waits) = (condition("BackendNotFound"), condition("Pending"));
        assert_eq!((broken.severity(), waits.severity()), (Severity::Warn, Severity::Info));
        assert_eq!(
            broken.to_string(),
            "httproute alice/shop: ResolvedRefs=False BackendNotFound: no Service alice/web"
        );
        let mut events = Events::default();
        events.extend([broken.clone(), waits]);
        assert_eq!(events.without_pending(), Events(vec![broken]));
    }

    #[test]
    fn one_host_is_not_hosts() {
        let object = Some(ObjectKey::new(Kind::HTTPRoute, ObjectName::new("alice", "shop")));
        let subject = Subject { object, text: "httproute alice/shop".to_owned() };
        let took = Duration::from_millis(6);
        let told =
            |hosts| Event::Acknowledged { subject: subject.clone(), hosts, host: None, envoys: 2, generation: 7, took };
        assert_eq!(told(1).to_string(), "httproute alice/shop: 1 host changed, acked 2/2 in 6 ms");
        assert_eq!(told(0).to_string(), "httproute alice/shop: 0 hosts changed, acked 2/2 in 6 ms");
    }
}
