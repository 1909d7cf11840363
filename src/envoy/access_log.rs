//! Access logs: which requests have a line, and what is in it.
//!
//! The line is a JSON object whose values Envoy escapes. What a client sends is in fields of its
//! own; the fields about the configuration are names that only the configuration has, so that no
//! request can forge them.
//!
//! The line has the reason in Envoy's words, and [`gatewright_core::request_outcome`] translates
//! it: the table as an expression takes 58 KB of Envoy's memory for each filter chain, which is
//! several times what the chain takes without it. The whole log takes about 20 KB.

use std::sync::Arc;

use envoy_types::pb::envoy::config::accesslog::v3 as pb;
use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLogFilter, RuntimeFilter, access_log, access_log_filter::FilterSpecifier,
    comparison_filter::Op,
};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};

use super::log_filter::{
    HANDSHAKE_FAILED, all_of, any_of, client_left, expression, flags, made, status,
};
use super::log_format::{self, Fields, Value};
use super::otlp;
use super::rbac;
use super::utf8::utf8;
use gatewright_core::model::{
    AccessLog, ClientAddress, FrontendId, HostOwner, Hostname, LogSink, LoggedQuery, LoggedRequests,
};

/// The most bytes of a value that a client or a backend chooses.
const VALUE_BYTES: usize = 1024;

/// Response flags of requests whose response is an error whatever its status says: that of gRPC is
/// 200, and so is that of a response that was cut off.
const ERROR_FLAGS: [&str; 14] = [
    "DT", "LR", "NC", "NR", "OM", "SI", "UAEX", "UC", "UF", "UH", "UO", "UPE", "UR", "UT",
];

/// Envoy's words about the response, in the same spelling as `%RESPONSE_CODE_DETAILS%`. Those of a
/// login are sentences, with spaces before any brace. Behind their colon are the path of the
/// request with its query, the state, a cookie, or the answer of the provider with its tokens.
const DETAILS: &str = "(response.code_details.split('{')[0].contains(' ') ? \
                       response.code_details.split(':')[0] : response.code_details)\
                       .split('?')[0].split(' ').join('_')";
/// The headers that may have a URL on the way to a provider or back.
const WITH_URL: [&str; 2] = ["location", "referer"];

/// The field of what BoringSSL says of a handshake that failed.
const HANDSHAKE_FAILURE: &str = "handshake_failure";

/// The client's address and port; an IPv4-mapped address (RFC 4291, 2.5.5.2) as that of IPv4, which
/// it is. No other form of IPv6 is written with these letters and dots.
const CLIENT: &str = "source.address.startsWith('[::ffff:') && source.address.contains('.') ? \
                      source.address.replace('[::ffff:', '').replace(']', '') : source.address";

/// The parts of the name of a virtual host after the hostname: the listener, its Gateway, and the
/// namespace that has the hostname.
const PARTS: [(&str, usize); 3] = [("listener", 1), ("gateway", 2), ("namespace", 3)];

/// The headers of a request, or of a response.
struct Headers {
    /// The field of the line.
    field: &'static str,
    /// The command of a format.
    command: &'static str,
    /// The attribute of an expression.
    attribute: &'static str,
}

impl Headers {
    /// An expression for the value of a header.
    fn value(&self, name: &str) -> String {
        let value = format!("{}['{name}']", self.attribute);
        if WITH_URL.contains(&name) {
            without_login(&value)
        } else {
            value
        }
    }
}

const REQUEST_HEADERS: Headers = Headers {
    field: "request_headers",
    command: "REQ",
    attribute: "request.headers",
};
const RESPONSE_HEADERS: Headers = Headers {
    field: "response_headers",
    command: "RESP",
    attribute: "response.headers",
};

/// The name of the virtual host of a hostname. No hostname, and no name of Kubernetes, has a `|`.
pub(super) fn host_name(hostname: &Hostname, owner: Option<&Arc<HostOwner>>) -> String {
    let Some(owner) = owner else {
        return hostname.to_string();
    };
    let HostOwner {
        namespace,
        gateway,
        listener,
    } = &**owner;
    format!("{hostname}|{listener}|{gateway}|{namespace}")
}

/// The access logs of a connection manager.
pub(super) fn access_logs(
    frontend: &FrontendId,
    clients: &ClientAddress,
    log: Option<&AccessLog>,
) -> Vec<pb::AccessLog> {
    let Some(log) = log else {
        return Vec::new();
    };
    let AccessLog {
        requests,
        sinks,
        request_headers,
        response_headers,
        query,
    } = log;
    let mut fields = fields(frontend, clients, *query);
    insert_headers(&mut fields, &REQUEST_HEADERS, request_headers);
    insert_headers(&mut fields, &RESPONSE_HEADERS, response_headers);
    let in_utf8 = in_utf8(&fields, log);
    to_sinks(frontend, sinks, (&fields, &in_utf8), &filter(*requests))
}

/// The access logs of a listener of TLS, with the handshakes that fail.
pub(super) fn of_handshakes(frontend: &FrontendId, log: Option<&AccessLog>) -> Vec<pb::AccessLog> {
    let Some(log) = log else {
        return Vec::new();
    };
    let failure = "connection.transport_failure_reason";
    let fields: Fields = [
        ("time", "%START_TIME%"),
        ("port", &frontend.to_string()),
        ("client", "%DOWNSTREAM_REMOTE_ADDRESS%"),
        ("sni", "%REQUESTED_SERVER_NAME%"),
        ("status", "%RESPONSE_CODE%"),
        ("duration_ms", "%DURATION%"),
        (HANDSHAKE_FAILURE, "%DOWNSTREAM_TRANSPORT_FAILURE_REASON%"),
    ]
    .into_iter()
    .map(|(name, format)| (name.to_owned(), Value::text(format)))
    .collect();
    let mut in_utf8 = fields.clone();
    for (field, attribute) in [
        ("sni", "connection.requested_server_name"),
        (HANDSHAKE_FAILURE, failure),
    ] {
        in_utf8.insert(field.to_owned(), Value::text(utf8(attribute, VALUE_BYTES)));
    }
    let failed = Some(expression(HANDSHAKE_FAILED));
    to_sinks(frontend, &log.sinks, (&fields, &in_utf8), &failed)
}

/// A log to each sink, with the fields of lines, and with those for a collector.
fn to_sinks(
    frontend: &FrontendId,
    sinks: &[LogSink],
    (fields, in_utf8): (&Fields, &Fields),
    filter: &Option<AccessLogFilter>,
) -> Vec<pb::AccessLog> {
    let logs = sinks.iter().map(|sink| {
        let (name, config) = match sink {
            LogSink::Stdout => ("envoy.access_loggers.stdout", log_format::stdout(fields)),
            LogSink::File(path) => ("envoy.access_loggers.file", log_format::file(path, fields)),
            LogSink::OpenTelemetry(collector) => {
                (otlp::LOGGER, otlp::logger(collector, frontend, in_utf8))
            }
        };
        pb::AccessLog {
            name: name.to_owned(),
            filter: filter.clone(),
            config_type: Some(access_log::ConfigType::TypedConfig(config)),
        }
    });
    logs.collect()
}

fn fields(frontend: &FrontendId, clients: &ClientAddress, query: LoggedQuery) -> Fields {
    // A peer that connects over IPv4 has an address of IPv4.
    let client = if *clients == ClientAddress::default() {
        "%DOWNSTREAM_REMOTE_ADDRESS%".to_owned()
    } else {
        cel(CLIENT)
    };
    let path = match query {
        LoggedQuery::Omit => cut("PATH(NQ:PATH)"),
        LoggedQuery::Keep => cut(&format!("CEL{}", without_login("request.path"))),
    };
    let usual = [
        ("time", "%START_TIME%".to_owned()),
        ("port", frontend.to_string()),
        ("route", "%ROUTE_NAME%".to_owned()),
        ("hostname", cel(&hostname())),
        ("client", client),
        ("method", cut("REQ(:METHOD)")),
        ("scheme", cut("REQ(:SCHEME)")),
        ("host", cut("REQ(:AUTHORITY)")),
        ("path", path),
        ("protocol", "%PROTOCOL%".to_owned()),
        ("sni", "%REQUESTED_SERVER_NAME%".to_owned()),
        ("tls_version", "%DOWNSTREAM_TLS_VERSION%".to_owned()),
        ("request_id", cut("REQ(X-REQUEST-ID)")),
        ("status", "%RESPONSE_CODE%".to_owned()),
        ("details", cel(DETAILS)),
        ("flags", "%RESPONSE_FLAGS_LONG%".to_owned()),
        ("duration_ms", "%DURATION%".to_owned()),
        ("first_byte_ms", "%RESPONSE_DURATION%".to_owned()),
        ("bytes_received", "%BYTES_RECEIVED%".to_owned()),
        ("bytes_sent", "%BYTES_SENT%".to_owned()),
        ("backend", "%UPSTREAM_CLUSTER_RAW%".to_owned()),
        ("backend_address", "%UPSTREAM_HOST%".to_owned()),
        (
            "backend_failure",
            "%UPSTREAM_TRANSPORT_FAILURE_REASON%".to_owned(),
        ),
        ("attempts", "%UPSTREAM_REQUEST_ATTEMPT_COUNT%".to_owned()),
        ("would_refuse", rbac::would_refuse()),
    ];
    let of_hosts = PARTS.map(|(name, index)| (name, cel(&part(index))));
    usual
        .into_iter()
        .chain(of_hosts)
        .map(|(name, format)| (name.to_owned(), Value::text(format)))
        .collect()
}

/// Adds an object with the values of headers.
fn insert_headers(fields: &mut Fields, headers: &Headers, names: &[Arc<str>]) {
    let command = headers.command;
    insert(fields, headers.field, names, |name| {
        cut(&if WITH_URL.contains(&name) {
            format!("CEL({})", headers.value(name))
        } else {
            format!("{command}({name})")
        })
    });
}

fn insert(fields: &mut Fields, field: &str, names: &[Arc<str>], format: impl Fn(&str) -> String) {
    if names.is_empty() {
        return;
    }
    let values = names
        .iter()
        .map(|name| (name.to_string(), Value::text(format(name))))
        .collect();
    fields.insert(field.to_owned(), Value::object(values));
}

/// The fields for a collector: Envoy escapes the values of a JSON line, and puts them into a
/// message of protobuf as they are. One value that is not UTF-8, or was cut within a character,
/// would make the whole batch unreadable, in which the lines of others are.
fn in_utf8(fields: &Fields, log: &AccessLog) -> Fields {
    let mut fields = fields.clone();
    let path = match log.query {
        LoggedQuery::Omit => "request.url_path".to_owned(),
        LoggedQuery::Keep => without_login("request.path"),
    };
    for (field, attribute) in [
        ("host", "request.host"),
        ("path", &path),
        ("sni", "connection.requested_server_name"),
        ("backend_failure", "upstream.transport_failure_reason"),
    ] {
        fields.insert(field.to_owned(), Value::text(utf8(attribute, VALUE_BYTES)));
    }
    for (headers, names) in [
        (REQUEST_HEADERS, &log.request_headers),
        (RESPONSE_HEADERS, &log.response_headers),
    ] {
        insert(&mut fields, headers.field, names, |name| {
            utf8(&headers.value(name), VALUE_BYTES)
        });
    }
    fields
}

/// An expression for a URL: without its query on the way to the provider of a login or back, where
/// the query has a code, a state or a token.
fn without_login(url: &str) -> String {
    let [state, code, error, challenge, hint] =
        ["state", "code", "error", "code_challenge", "id_token_hint"]
            .map(|name| format!("{url}.contains('{name}=')"));
    format!(
        "({hint} || {state} && ({code} || {error} || {challenge}) ? {url}.split('?')[0] : {url})"
    )
}

/// A command whose value is cut to [`VALUE_BYTES`].
fn cut(command: &str) -> String {
    format!("%{command}:{VALUE_BYTES}%")
}

/// The value of an expression; without a value, the line does not have the field.
fn cel(expression: &str) -> String {
    format!("%CEL({expression})%")
}

/// A part of the name of the virtual host, if it has several.
fn part(index: usize) -> String {
    format!("xds.virtual_host_name.split('|')[{index}]")
}

/// The hostname whose routes were looked at: that of the host before a route rewrites it.
fn hostname() -> String {
    let name = "xds.virtual_host_name";
    format!("{{true:{name}.split('|')[0]}}[{name}.contains('|')]")
}

/// The filter of lines; `None` if every request has one.
fn filter(requests: LoggedRequests) -> Option<AccessLogFilter> {
    match requests {
        LoggedRequests::Errors | LoggedRequests::All { percent: 0 } => Some(any_of(errors())),
        LoggedRequests::All { percent: 100.. } => None,
        LoggedRequests::All { percent } => {
            let part = FilterSpecifier::RuntimeFilter(RuntimeFilter {
                runtime_key: "gatewright.access_log.percent".to_owned(),
                percent_sampled: Some(FractionalPercent {
                    numerator: percent.into(),
                    denominator: DenominatorType::Hundred.into(),
                }),
                use_independent_randomness: true,
            });
            let mut all = errors();
            all.push(made(part));
            Some(any_of(all))
        }
    }
}

/// The filters of errors, the cheapest first, and of what would be one if a policy did not only
/// report.
fn errors() -> Vec<AccessLogFilter> {
    // Either side ends an upgraded connection, which is no error.
    let cut_off = all_of(vec![flags(&ERROR_FLAGS), status(Op::Ne, 101)]);
    let by_envoy = expression("response.code_details != 'via_upstream'");
    let refusals = all_of(vec![status_from(400), by_envoy]);
    vec![
        status_from(500),
        cut_off,
        client_left(),
        rbac::reported(),
        refusals,
    ]
}

/// Responses of this status and more.
pub(super) fn status_from(from: u32) -> AccessLogFilter {
    status(Op::Ge, from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::{frontend, host};
    use gatewright_core::model::ObjectName;

    fn log(requests: LoggedRequests) -> AccessLog {
        AccessLog {
            requests,
            sinks: vec![LogSink::Stdout, LogSink::File("/log".into())],
            request_headers: vec!["user-agent".into()],
            response_headers: Vec::new(),
            query: LoggedQuery::Omit,
        }
    }

    #[test]
    fn a_frontend_without_a_log_has_nothing_of_it() {
        assert_eq!(
            access_logs(&frontend(80), &ClientAddress::default(), None),
            [],
            "it costs nothing"
        );
        assert_eq!(host_name(&host("a.org"), None), "a.org");
    }

    #[test]
    fn a_host_is_named_with_its_owner() {
        let owner = HostOwner {
            namespace: "blue".into(),
            gateway: ObjectName::new("infra", "edge"),
            listener: "https".into(),
        };
        assert_eq!(
            host_name(&host("a.org"), Some(&Arc::new(owner))),
            "a.org|https|infra/edge|blue"
        );
    }

    #[test]
    fn all_sinks_have_the_filter() {
        let made = access_logs(
            &frontend(80),
            &ClientAddress::default(),
            Some(&log(LoggedRequests::Errors)),
        );
        assert_eq!(made.len(), 2, "one for each sink");
        assert!(made.iter().all(|log| log.filter.is_some()), "of errors");
        let all = LoggedRequests::All { percent: 100 };
        let made = access_logs(&frontend(80), &ClientAddress::default(), Some(&log(all)));
        assert!(made.iter().all(|log| log.filter.is_none()), "of nothing");
    }

    #[test]
    fn equal_logs_encode_to_equal_bytes() {
        let made = access_logs(
            &frontend(80),
            &ClientAddress::default(),
            Some(&log(LoggedRequests::Errors)),
        );
        for _ in 0..20 {
            let again = access_logs(
                &frontend(80),
                &ClientAddress::default(),
                Some(&log(LoggedRequests::Errors)),
            );
            assert_eq!(
                again, made,
                "the configuration is packed, so these are bytes"
            );
        }
    }
}
