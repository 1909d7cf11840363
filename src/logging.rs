//! The log on standard error: what is logged, and how it looks.

use std::fmt;
use std::io::{self, IsTerminal};

use gatewright_control::event;
use tracing::field::{Field, Visit};
use tracing::warn;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::fmt::format::{DefaultFields, Format, FormatFields, Json, JsonFields, Writer};

use crate::cli::LogFormat;

/// Begins to log. What is logged is said by `GATEWRIGHT_LOG`, else by `RUST_LOG`.
pub fn begin(how: LogFormat) {
    let (filter, unread) = filter(|name| std::env::var(name).ok());
    let builder = SubscriberBuilder::default().with_env_filter(filter).with_writer(io::stderr);
    match how {
        LogFormat::Text => {
            let builder = builder.with_ansi(io::stderr().is_terminal()).with_target(false);
            builder.fmt_fields(ForPeople(DefaultFields::new())).init();
        }
        LogFormat::Json => as_json(builder).init(),
    }
    if let Some(text) = unread {
        warn!("{text}");
    }
}

/// An object each line, the fields of an event and of the spans around it beside `timestamp`, `level` and `message`.
fn as_json<F, W>(
    builder: SubscriberBuilder<DefaultFields, Format, F, W>,
) -> SubscriberBuilder<JsonFields, Format<Json>, F, W> {
    builder.json().flatten_event(true).with_target(false).with_current_span(true).with_span_list(false)
}

/// What is logged, and what is wrong with the variable that says so.
fn filter(variable: impl Fn(&str) -> Option<String>) -> (EnvFilter, Option<String>) {
    let usual = || EnvFilter::new("info,kube_client=off");
    let set = |name| variable(name).filter(|text| !text.is_empty()).map(|text| (name, text));
    let Some((name, text)) = set("GATEWRIGHT_LOG").or_else(|| set("RUST_LOG")) else { return (usual(), None) };
    match EnvFilter::try_new(&text) {
        Ok(filter) => (filter, None),
        Err(error) => (usual(), Some(format!("{name}={text}: {error}; logged is what is logged without it"))),
    }
}

/// Fields for people: the text of a typed event ([`gatewright_control::event`]) says what its fields say, so that they stay
/// out of the line.
struct ForPeople(DefaultFields);

impl<'writer> FormatFields<'writer> for ForPeople {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut typed = TypedEvent::default();
        fields.record(&mut typed);
        match typed {
            TypedEvent { is_typed: true, text: Some(text) } => writer.write_str(&text),
            _ => self.0.format_fields(writer, fields),
        }
    }
}

/// Whether fields are those of a typed event, and its text.
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
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use gatewright_control::event::{Event, Severity};

    /// What a log in one format is like.
    fn logged(how: LogFormat, log: impl FnOnce()) -> String {
        let written = Arc::new(Mutex::new(Vec::new()));
        let to = written.clone();
        let writer = move || Written(to.clone());
        let builder = SubscriberBuilder::default().with_max_level(tracing::Level::DEBUG).with_writer(writer);
        match how {
            LogFormat::Text => {
                let builder = builder.with_ansi(false).with_target(false).without_time();
                tracing::subscriber::with_default(builder.fmt_fields(ForPeople(DefaultFields::new())).finish(), log);
            }
            LogFormat::Json => tracing::subscriber::with_default(as_json(builder).finish(), log),
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
        Event::Rejected { node: "edge-a".to_owned(), kind: "Listener".to_owned(), resource: "a/b:443".to_owned(), text }
    }

    #[test]
    fn people_read_the_text_of_an_event_and_programs_its_fields() {
        let text = logged(LogFormat::Text, || refused().log(Severity::Debug));
        assert_eq!(text, " WARN envoy \"edge-a\" refused Listener a/b:443: no such filter\n");
        let json = logged(LogFormat::Json, || refused().log(Severity::Debug));
        let json: serde_json::Value = serde_json::from_str(&json).expect("one object");
        assert_eq!(
            (&json["level"], &json["event"], &json["envoy"]),
            (&"WARN".into(), &"Rejected".into(), &"edge-a".into())
        );
        assert_eq!(json["resource"], "a/b:443");
        assert_eq!(json["message"], "envoy \"edge-a\" refused Listener a/b:443: no such filter");
    }

    #[test]
    fn fields_of_other_lines_are_for_people_too() {
        let text = logged(LogFormat::Text, || tracing::warn!(id = "a", "was not written"));
        assert_eq!(text, " WARN was not written id=\"a\"\n");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_told_and_changes_nothing() {
        let set = |name: &str| (name == "RUST_LOG").then(|| "a=b=c".to_owned());
        let (used, unread) = filter(set);
        assert_eq!(used.to_string(), filter(|_| None).0.to_string());
        assert!(unread.is_some_and(|text| text.starts_with("RUST_LOG=a=b=c: ")));
    }
}
