//! The log on standard error: its filter, and its formats.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use gatewright_control::event;
use gatewright_core::printable::{printable, printable_json};
use tracing::field::{Field, Visit};
use tracing::warn;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{
    DefaultFields, Format, FormatFields, Json, JsonFields, Writer,
};

use crate::cli::LogFormat;

/// Starts logging. The filter is `GATEWRIGHT_LOG`, otherwise `RUST_LOG`.
pub fn begin(how: LogFormat) {
    let (filter, unread) = filter(|name| std::env::var(name).ok());
    let builder = SubscriberBuilder::default().with_env_filter(filter);
    match how {
        LogFormat::Text => {
            let builder = builder.with_writer(io::stderr);
            let builder = builder
                .with_ansi(io::stderr().is_terminal())
                .with_target(false);
            builder.fmt_fields(ForPeople(DefaultFields::new())).init();
        }
        LogFormat::Json => {
            as_json(builder.with_writer(|| HarmlessJson(io::stderr()))).init();
        }
    }
    if let Some(text) = unread {
        warn!("{text}");
    }
}

/// Formats each line as a JSON object: the fields of an event and of its spans beside `timestamp`,
/// `level` and `message`.
fn as_json<F, W>(
    builder: SubscriberBuilder<DefaultFields, Format, F, W>,
) -> SubscriberBuilder<JsonFields, Format<Json>, F, W> {
    builder
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_current_span(true)
        .with_span_list(false)
}

/// Returns the filter, and the error of the variable that sets it.
fn filter(variable: impl Fn(&str) -> Option<String>) -> (EnvFilter, Option<String>) {
    let set = |name| {
        variable(name)
            .filter(|text| !text.is_empty())
            .map(|text| (name, text))
    };
    let Some((name, text)) = set("GATEWRIGHT_LOG").or_else(|| set("RUST_LOG")) else {
        return (usual(), None);
    };
    match EnvFilter::try_new(&text) {
        Ok(filter) => (filter, None),
        Err(error) => (
            usual(),
            Some(format!(
                "{name}={text}: {error}; the default log filter is used"
            )),
        ),
    }
}

fn usual() -> EnvFilter {
    EnvFilter::new("info,kube_client=off,kube_runtime=off")
}

/// Formats fields for people: the text of a typed event ([`gatewright_control::event`]) has the
/// information of its fields, so they are omitted.
struct ForPeople(DefaultFields);

impl<'writer> FormatFields<'writer> for ForPeople {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut typed = TypedEvent::default();
        fields.record(&mut typed);
        let text = match typed {
            TypedEvent {
                is_typed: true,
                text: Some(text),
            } => text,
            _ => {
                let mut text = String::new();
                self.0.format_fields(Writer::new(&mut text), fields)?;
                text
            }
        };
        // Objects, clients, backends and CAs write parts of it: what they write is no line of ours.
        writer.write_str(&printable(&text))
    }
}

/// A writer of lines of JSON, which have no character that a terminal obeys.
struct HarmlessJson<W>(W);

impl<W: Write> Write for HarmlessJson<W> {
    /// Takes a whole line: each is one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) => self.0.write_all(printable_json(text).as_bytes())?,
            Err(_) => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The text of a log record, and a flag that is true if its fields belong to a typed event.
#[derive(Default)]
struct TypedEvent {
    is_typed: bool,
    text: Option<String>,
}

impl Visit for TypedEvent {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            event::FIELD => self.is_typed = true,
            "message" => self.text = Some(format!("{value:?}")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use gatewright_control::event::{Event, Severity, Subject};
    use gatewright_core::inputs::{Kind, ObjectKey};
    use gatewright_core::model::ObjectName;
    use gatewright_core::printable::is_unprintable;
    use serde_json::{Value, json};

    /// Returns the log in a format.
    fn logged(how: LogFormat, log: impl FnOnce()) -> String {
        let written = Arc::new(Mutex::new(Vec::new()));
        let to = written.clone();
        let builder = SubscriberBuilder::default().with_max_level(tracing::Level::DEBUG);
        match how {
            LogFormat::Text => {
                let builder = builder.with_writer(move || Written(to.clone()));
                let builder = builder.with_ansi(false).with_target(false).without_time();
                tracing::subscriber::with_default(
                    builder.fmt_fields(ForPeople(DefaultFields::new())).finish(),
                    log,
                );
            }
            LogFormat::Json => {
                let builder = builder.with_writer(move || HarmlessJson(Written(to.clone())));
                tracing::subscriber::with_default(as_json(builder).finish(), log);
            }
        }
        let bytes = written.lock().expect("one thread").clone();
        String::from_utf8(bytes).expect("text")
    }

    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("one thread").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn refused() -> Event {
        let text = "no such filter".to_owned();
        Event::Rejected {
            node: "edge-a".to_owned(),
            object: Some(shop()),
            kind: "Listener".to_owned(),
            resource: "a/b:443".to_owned(),
            text,
        }
    }

    fn shop() -> ObjectKey {
        ObjectKey::new(Kind::HTTPRoute, ObjectName::new("alice", "shop"))
    }

    /// Returns a line of the log as JSON, without its time.
    fn as_object(log: impl FnOnce()) -> Value {
        let mut line: Value =
            serde_json::from_str(&logged(LogFormat::Json, log)).expect("one object");
        let time = line
            .as_object_mut()
            .and_then(|fields| fields.remove("timestamp"));
        assert!(time.is_some_and(|time| time.is_string()), "{line}");
        line
    }

    #[test]
    fn people_read_the_text_of_an_event_and_programs_its_fields() {
        let text = logged(LogFormat::Text, || refused().log(Severity::Debug));
        assert_eq!(
            text,
            " WARN envoy \"edge-a\" refused Listener a/b:443: no such filter\n"
        );
        let json = as_object(|| refused().log(Severity::Debug));
        let wanted = json!({"level": "WARN", "event": "Rejected", "object": "httproute alice/shop",
            "namespace": "alice", "envoy": "edge-a", "type": "Listener", "resource": "a/b:443",
            "message": "envoy \"edge-a\" refused Listener a/b:443: no such filter"});
        assert_eq!(json, wanted);
    }

    #[test]
    fn each_event_has_its_fields_as_json() {
        let subject = Subject {
            object: Some(shop()),
            text: shop().to_string(),
        };
        let acknowledged = Event::Acknowledged {
            subject: subject.clone(),
            hosts: 1,
            host: Some("shop.example.org".to_owned()),
            envoys: 2,
            generation: 7,
            took: Duration::from_millis(6),
        };
        let condition = Event::Condition {
            object: shop(),
            listeners: Vec::new(),
            generation: 3,
            condition: "ResolvedRefs".to_owned(),
            status: "False".to_owned(),
            reason: "BackendNotFound".to_owned(),
            message: "no Service alice/web".to_owned(),
            frozen: false,
        };
        let text = "writing the status of httproute alice/shop: refused: no".to_owned();
        let manifest = Event::Manifest {
            file: "a.yaml".to_owned(),
            line: 4,
            object: Some("httproute alice/shop".to_owned()),
            text: "a.yaml:4: httproute alice/shop: unknown field spec.rule".to_owned(),
        };
        let of_shop = json!({"object": "httproute alice/shop", "namespace": "alice"});
        for (event, level, fields) in [
            (
                Event::Unchanged { subject },
                "DEBUG",
                json!({"event": "Unchanged"}),
            ),
            (
                acknowledged,
                "INFO",
                json!({"event": "Acknowledged", "hosts": 1, "host": "shop.example.org", "envoys": 2, "generation": 7,
                    "milliseconds": 6}),
            ),
            (
                condition,
                "WARN",
                json!({"event": "Condition", "observed_generation": 3, "condition": "ResolvedRefs", "status": "False",
                    "reason": "BackendNotFound"}),
            ),
            (
                Event::Unreadable {
                    object: shop(),
                    why: "spec.rules: expected a list".to_owned(),
                },
                "WARN",
                json!({"event": "Unreadable"}),
            ),
            (
                Event::RequestFailed {
                    object: shop(),
                    reason: "refused",
                    text,
                },
                "WARN",
                json!({"event": "RequestFailed", "reason": "refused"}),
            ),
            (
                manifest,
                "WARN",
                json!({"event": "Manifest", "file": "a.yaml", "line": 4, "namespace": null}),
            ),
            (
                Event::FloodBegan,
                "WARN",
                json!({"event": "FloodBegan", "object": null, "namespace": null}),
            ),
        ] {
            let mut wanted = of_shop.clone();
            let fields = fields.as_object().cloned().unwrap_or_default();
            wanted.as_object_mut().expect("fields").extend(fields);
            wanted
                .as_object_mut()
                .expect("fields")
                .retain(|_, field| !field.is_null());
            wanted["level"] = level.into();
            wanted["message"] = event.to_string().into();
            assert_eq!(as_object(|| event.log(Severity::Debug)), wanted);
        }
    }

    #[test]
    fn a_line_about_a_request_has_its_object() {
        let json = as_object(|| {
            let _entered =
                tracing::info_span!("request", what = "status", object = %shop()).entered();
            tracing::warn!("no answer");
        });
        assert_eq!(
            json["span"],
            json!({"name": "request", "what": "status", "object": "httproute alice/shop"})
        );
    }

    #[test]
    fn fields_of_other_lines_are_for_people_too() {
        let text = logged(LogFormat::Text, || {
            tracing::warn!(id = "a", "was not written")
        });
        assert_eq!(text, " WARN was not written id=\"a\"\n");
    }

    /// What an object may be called where the schema takes any text.
    const FORGED: &str = "x\n2026-01-01T00:00:00Z  WARN envoy down\r\u{1b}[2J\u{7}\u{9b}1m\u{202e}evil\u{2066}\u{61c}";

    #[test]
    fn no_text_of_an_object_is_a_line_or_has_an_effect_on_a_terminal() {
        fn log() {
            let event = Event::Unreadable {
                object: shop(),
                why: format!("certificateRefs: {FORGED}"),
            };
            event.log(Severity::Debug);
            tracing::warn!("{FORGED} is no name");
            tracing::warn!(object = FORGED, other = %FORGED, debug = ?FORGED, "it failed");
            let _entered = tracing::info_span!("request", object = %FORGED).entered();
            tracing::warn!(event = "File", file = %FORGED, "{FORGED}");
        }
        for how in [LogFormat::Text, LogFormat::Json] {
            let logged = logged(how, log);
            let hidden = logged.chars().filter(|c| *c != '\n' && is_unprintable(*c));
            assert_eq!(hidden.collect::<String>(), "", "{logged}");
            assert_eq!(logged.lines().count(), 4, "{logged}");
            assert!(logged.ends_with('\n'), "{logged}");
            for line in logged.lines() {
                let begins = match how {
                    LogFormat::Text => line.starts_with(" WARN "),
                    LogFormat::Json => serde_json::from_str::<Value>(line).is_ok(),
                };
                assert!(begins, "{line}");
            }
        }
        let json = as_object(|| tracing::warn!("{FORGED}"));
        assert_eq!(json["message"], FORGED, "programs read what was written");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_told_and_changes_nothing() {
        let (used, unread) = filter(|name| (name == "RUST_LOG").then(|| "a=b=c".to_owned()));
        assert_eq!(used.to_string(), filter(|_| None).0.to_string());
        assert!(unread.is_some_and(|text| text.starts_with("RUST_LOG=a=b=c: ")));
    }
}
