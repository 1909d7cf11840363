//! `spec.accessLog` of GatewayParameters.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;

use super::names::is_label;
use crate::model::{LoggedQuery, LoggedRequests};

/// The most header names of one list.
const MOST_HEADERS: usize = 16;
/// The most sinks.
const MOST_SINKS: usize = 2;
/// The most characters of a header name.
const HEADER_NAME: usize = 64;

/// Headers that hold credentials, which no log may have.
const SECRET: [&str; 4] = [
    "authorization",
    "cookie",
    "proxy-authorization",
    "set-cookie",
];

/// The access log that parameters ask for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct AccessLogParameters {
    /// The requests that have a line; `None` for no log at all.
    pub requests: Option<LoggedRequests>,
    /// Where lines go; the default of the installation if `None`.
    pub sinks: Option<Vec<SinkParameters>>,
    /// Lower-case names of request headers whose values are in the line.
    pub request_headers: Vec<Arc<str>>,
    /// Lower-case names of response headers whose values are in the line.
    pub response_headers: Vec<Arc<str>>,
    /// The treatment of the query string.
    pub query: LoggedQuery,
}

impl Default for AccessLogParameters {
    fn default() -> Self {
        Self {
            requests: Some(LoggedRequests::Errors),
            sinks: None,
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            query: LoggedQuery::Omit,
        }
    }
}

/// A sink that parameters ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkParameters {
    /// The standard output of Envoy.
    Stdout,
    /// The file that a standalone program keeps.
    File,
    /// A collector that speaks OTLP over gRPC.
    OpenTelemetry(CollectorRef),
}

/// A collector: a Service of the namespace of the parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorRef {
    /// The name of the Service.
    pub service: Arc<str>,
    /// The port of the Service.
    pub port: u16,
}

/// `type` of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum SinkType {
    Stdout,
    File,
    OpenTelemetry,
}

/// `mode` of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Mode {
    /// No log.
    Off,
    /// Errors alone.
    #[default]
    Errors,
    /// Errors, and a part of all other requests.
    All,
}

/// [`AccessLogParameters`] as written, before validation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(default)]
    mode: Mode,
    percent: Option<u8>,
    sinks: Option<Vec<WrittenSink>>,
    #[serde(default)]
    request_headers: Vec<String>,
    #[serde(default)]
    response_headers: Vec<String>,
    #[serde(default)]
    query: LoggedQuery,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenSink {
    r#type: SinkType,
    open_telemetry: Option<WrittenCollector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCollector {
    service: String,
    port: u16,
}

impl TryFrom<Written> for AccessLogParameters {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written {
            mode,
            percent,
            sinks,
            request_headers,
            response_headers,
            query,
        } = written;
        let requests = match (mode, percent) {
            (Mode::Off, None) => None,
            (Mode::Errors, None) => Some(LoggedRequests::Errors),
            (Mode::All, None) => Some(LoggedRequests::All { percent: 100 }),
            (Mode::All, Some(percent @ 0..=100)) => Some(LoggedRequests::All { percent }),
            (Mode::All, Some(percent)) => {
                return Err(format!(
                    "accessLog.percent: expected 0 to 100, found {percent}"
                ));
            }
            (Mode::Off | Mode::Errors, Some(_)) => {
                return Err(
                    "accessLog.percent belongs to mode All: leave it out, or use that mode"
                        .to_owned(),
                );
            }
        };
        Ok(Self {
            requests,
            sinks: sinks.map(checked_sinks).transpose()?,
            request_headers: header_names("requestHeaders", request_headers)?,
            response_headers: header_names("responseHeaders", response_headers)?,
            query,
        })
    }
}

fn checked_sinks(written: Vec<WrittenSink>) -> Result<Vec<SinkParameters>, String> {
    let distinct: BTreeSet<SinkType> = written.iter().map(|sink| sink.r#type).collect();
    match written.len() {
        0 => Err("accessLog.sinks is empty: leave it out, or use mode Off".to_owned()),
        count if count > MOST_SINKS => Err(format!(
            "accessLog.sinks: {count} sinks, the limit is {MOST_SINKS}"
        )),
        count if distinct.len() < count => {
            Err("accessLog.sinks: a type is there twice: remove one".to_owned())
        }
        _ => written.into_iter().map(sink).collect(),
    }
}

fn sink(written: WrittenSink) -> Result<SinkParameters, String> {
    match (written.r#type, written.open_telemetry) {
        (SinkType::Stdout, None) => Ok(SinkParameters::Stdout),
        (SinkType::File, None) => Ok(SinkParameters::File),
        (SinkType::OpenTelemetry, Some(written)) => {
            Ok(SinkParameters::OpenTelemetry(collector(written)?))
        }
        (SinkType::OpenTelemetry, None) => Err(
            "accessLog.sinks: type OpenTelemetry needs openTelemetry with service and port"
                .to_owned(),
        ),
        (SinkType::Stdout | SinkType::File, Some(_)) => Err(
            "accessLog.sinks: openTelemetry belongs to type OpenTelemetry: leave it out, or use \
             that type"
                .to_owned(),
        ),
    }
}

fn collector(written: WrittenCollector) -> Result<CollectorRef, String> {
    let WrittenCollector { service, port } = written;
    if !is_label(&service) {
        return Err(format!(
            "accessLog.sinks: openTelemetry.service: {service:?} is not the name of a Service"
        ));
    }
    if port == 0 {
        return Err("accessLog.sinks: openTelemetry.port: expected 1 to 65535, found 0".to_owned());
    }
    Ok(CollectorRef {
        service: service.into(),
        port,
    })
}

/// Checks names of headers, and returns them in lower case. The characters are those that stand for
/// themselves in a command of Envoy's format.
fn header_names(field: &str, written: Vec<String>) -> Result<Vec<Arc<str>>, String> {
    if written.len() > MOST_HEADERS {
        return Err(format!(
            "accessLog.{field}: {} names, the limit is {MOST_HEADERS}",
            written.len()
        ));
    }
    let mut names: Vec<Arc<str>> = Vec::new();
    for name in written {
        let name = name.to_ascii_lowercase();
        if !is_header_name(&name) {
            return Err(format!(
                "accessLog.{field}: {name:?} is no header name: expected 1 to {HEADER_NAME} letters, digits, - and _, \
                 and a letter or digit first"
            ));
        }
        if SECRET.contains(&name.as_str()) {
            return Err(format!(
                "accessLog.{field}: header {name} has credentials, which no log may have: leave it out"
            ));
        }
        if names.iter().any(|known| **known == *name) {
            return Err(format!(
                "accessLog.{field}: {name} is there twice: remove one"
            ));
        }
        names.push(name.into());
    }
    Ok(names)
}

fn is_header_name(name: &str) -> bool {
    (1..=HEADER_NAME).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !name.starts_with(['-', '_'])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::plain;

    fn read(value: Value) -> Result<AccessLogParameters, String> {
        AccessLogParameters::deserialize(value).map_err(|error| plain(&error.to_string()))
    }

    #[test]
    fn an_empty_log_is_the_default() {
        assert_eq!(
            read(json!({})),
            Ok(AccessLogParameters::default()),
            "errors to the default sink"
        );
    }

    #[test]
    fn each_mode_says_which_requests_have_a_line() {
        for (written, expected) in [
            (json!({"mode": "Off"}), None),
            (json!({"mode": "Errors"}), Some(LoggedRequests::Errors)),
            (
                json!({"mode": "All"}),
                Some(LoggedRequests::All { percent: 100 }),
            ),
            (
                json!({"mode": "All", "percent": 0}),
                Some(LoggedRequests::All { percent: 0 }),
            ),
        ] {
            let found = read(written.clone()).expect("it is valid").requests;
            assert_eq!(found, expected, "{written}");
        }
    }

    #[test]
    fn a_collector_is_a_service_with_a_port() {
        fn collector(written: Value) -> Result<AccessLogParameters, String> {
            read(json!({"sinks": [{"type": "OpenTelemetry", "openTelemetry": written}]}))
        }
        let found = collector(json!({"service": "collector", "port": 4317})).expect("it is valid");
        let expected = CollectorRef {
            service: "collector".into(),
            port: 4317,
        };
        assert_eq!(
            found.sinks,
            Some(vec![SinkParameters::OpenTelemetry(expected)])
        );
        for (written, expected) in [
            (json!({"service": "a.b", "port": 1}), "not the name"),
            (json!({"service": "a", "port": 0}), "expected 1 to 65535"),
            (
                json!({"service": "a", "port": 1, "tls": {}}),
                "unknown field",
            ),
        ] {
            let error = collector(written.clone()).expect_err("it is not valid");
            assert!(error.contains(expected), "{written}: {error}");
        }
        for (sink, expected) in [
            (json!({"type": "OpenTelemetry"}), "needs openTelemetry"),
            (
                json!({"type": "Stdout", "openTelemetry": {"service": "a", "port": 1}}),
                "belongs to type OpenTelemetry",
            ),
        ] {
            let error = read(json!({"sinks": [sink]})).expect_err("it is not valid");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn names_of_headers_are_those_of_http_in_lower_case() {
        let found = read(json!({"requestHeaders": ["User-Agent"], "responseHeaders": ["x_cache"]}))
            .expect("it is valid");
        assert_eq!(found.request_headers, ["user-agent".into()]);
        assert_eq!(found.response_headers, ["x_cache".into()]);
    }

    #[test]
    fn a_mistake_is_told_with_its_field() {
        let many: Vec<String> = (0..17).map(|index| format!("h{index}")).collect();
        for (written, expected) in [
            (
                json!({"mode": "All", "percent": 101}),
                "accessLog.percent: expected 0 to 100, found 101",
            ),
            (
                json!({"percent": 5}),
                "accessLog.percent belongs to mode All",
            ),
            (json!({"sinks": []}), "accessLog.sinks is empty"),
            (
                json!({"sinks": [{"type": "File"}, {"type": "File"}]}),
                "accessLog.sinks: a type is there twice",
            ),
            (
                json!({"sinks": [{"type": "Syslog"}]}),
                "unknown value `Syslog`",
            ),
            (
                json!({"requestHeaders": ["%DURATION%"]}),
                "accessLog.requestHeaders: \"%duration%\" is no header name",
            ),
            (
                json!({"requestHeaders": [":path"]}),
                "accessLog.requestHeaders: \":path\" is no header name",
            ),
            (
                json!({"requestHeaders": ["Authorization"]}),
                "accessLog.requestHeaders: header authorization has credentials",
            ),
            (
                json!({"responseHeaders": ["Set-Cookie"]}),
                "accessLog.responseHeaders: header set-cookie has credentials",
            ),
            (
                json!({"responseHeaders": ["a", "A"]}),
                "accessLog.responseHeaders: a is there twice",
            ),
            (
                json!({"requestHeaders": many}),
                "accessLog.requestHeaders: 17 names, the limit is 16",
            ),
            (json!({"format": "%REQ(:PATH)%"}), "unknown field `format`"),
        ] {
            let error = read(written.clone()).expect_err("it is wrong");
            assert!(error.contains(expected), "{written}: {error}");
        }
    }
}
