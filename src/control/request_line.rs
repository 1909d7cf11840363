//! A line of the access log of an Envoy, and the choice among lines. Pure.

use gatewright_core::handshake_failure;
use gatewright_core::printable::printable;
use gatewright_core::request_outcome::{Evidence, RequestOutcome, outcome};
use serde::Serialize;
use serde_json::{Map, Value};

/// The field with the AccessPolicy that would have refused the request.
const WOULD_REFUSE: &str = "would_refuse";

/// The field of what TLS said of a handshake that failed, which only lines of these have.
const HANDSHAKE_FAILURE: &str = "handshake_failure";

/// A line of the access log: of a request, or of a handshake that failed.
pub struct RequestLine {
    fields: Map<String, Value>,
    /// Why no backend answered.
    outcome: Option<&'static RequestOutcome>,
}

impl RequestLine {
    /// Reads a line; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let Value::Object(fields) = serde_json::from_str(text).ok()? else {
            return None;
        };
        let status = fields.get("status")?.as_u64()?;
        let evidence = Evidence {
            status: u16::try_from(status).ok()?,
            details: text_of(&fields, "details").unwrap_or_default(),
            route: text_of(&fields, "route").unwrap_or_default(),
            has_host: fields.contains_key("hostname"),
        };
        let outcome = match text_of(&fields, HANDSHAKE_FAILURE) {
            Some(failure) => Some(handshake_failure::of_client(failure)),
            None => outcome(&evidence),
        };
        Some(Self { fields, outcome })
    }

    fn field(&self, name: &str) -> Option<&str> {
        text_of(&self.fields, name)
    }

    fn number(&self, name: &str) -> u64 {
        self.fields
            .get(name)
            .and_then(Value::as_u64)
            .unwrap_or_default()
    }

    /// The namespace that has the hostname.
    pub fn namespace(&self) -> Option<&str> {
        self.field("namespace")
    }

    /// True if the request was for this host, in lower case; its port and a rewrite by a route do
    /// not count.
    pub fn is_for(&self, host: &str) -> bool {
        let asked = self.field("host").unwrap_or_default();
        let bare = match asked.rsplit_once(':') {
            Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => bare,
            _ => asked,
        };
        bare.eq_ignore_ascii_case(host)
            || self.field("hostname") == Some(host)
            || self.is_handshake() && self.field("sni") == Some(host)
    }

    fn is_handshake(&self) -> bool {
        self.fields.contains_key(HANDSHAKE_FAILURE)
    }

    /// True if the request failed, or an AccessPolicy that only reports would have refused it: as
    /// mode Errors of the access log has it.
    pub fn is_error(&self) -> bool {
        let status = self.number("status");
        let by_backend = self.field("details") == Some("via_upstream");
        self.outcome.is_some()
            || status >= 500
            || status >= 400 && !by_backend
            || self.field(WOULD_REFUSE).is_some()
    }

    /// The line for people. What clients wrote is shown without control characters.
    pub fn text(&self) -> String {
        let field = |name| printable(self.field(name).unwrap_or("-"));
        let time = field("time");
        let status = self.number("status");
        let method = field("method");
        let host = field("host");
        let path = field("path");
        let duration = self.number("duration_ms");
        let mut text = if self.is_handshake() {
            let (port, name, client) = (field("port"), field("sni"), field("client"));
            format!("{time} TLS {name} at {port} by {client} {duration} ms")
        } else {
            format!("{time} {status} {method} {host}{path} {duration} ms")
        };
        let said = [
            ("route", "route"),
            ("backend", "backend"),
            ("backend_address", "at"),
        ];
        for (name, label) in said {
            if let Some(value) = self.field(name) {
                text += &format!(" {label} {}", printable(value));
            }
        }
        match self.outcome {
            Some(RequestOutcome { reason, words, .. }) => {
                text += &format!(": {reason}: {words}");
                let failure = self.field("backend_failure");
                if let Some(failure) = failure.or(self.field(HANDSHAKE_FAILURE)) {
                    text += &format!(" ({})", printable(failure));
                }
            }
            None if status >= 400 && self.is_error() => text += &format!(": {}", field("details")),
            None => {}
        }
        if let Some(policy) = self.field(WOULD_REFUSE) {
            let policy = printable(policy);
            text += &format!(": AccessPolicy {policy} would refuse it, and only reports");
        }
        text
    }

    /// A field without control characters.
    fn shown(&self, name: &str) -> String {
        printable(self.field(name).unwrap_or("-")).into_owned()
    }

    /// The line as a request that failed.
    pub fn failed(&self) -> FailedRequest {
        let path = self.field("path").unwrap_or("-");
        let path = path.split('?').next().unwrap_or_default();
        let policy = self.field(WOULD_REFUSE);
        let message = match (self.outcome, policy) {
            (Some(outcome), _) => outcome.words.to_owned(),
            (None, Some(policy)) => {
                format!("AccessPolicy {policy} would refuse it, and only reports")
            }
            (None, None) => self.shown("details"),
        };
        FailedRequest {
            time: self.shown("time"),
            status: self.number("status"),
            method: self.shown("method"),
            path: printable(path).into_owned(),
            reason: self.outcome.map(|outcome| outcome.reason),
            message,
        }
    }

    /// The line as JSON, with the reason.
    pub fn json(&self) -> Value {
        let mut fields = self.fields.clone();
        if let Some(RequestOutcome { reason, words, .. }) = self.outcome {
            fields.insert("reason".to_owned(), (*reason).into());
            fields.insert("message".to_owned(), (*words).into());
        }
        Value::Object(fields)
    }

    /// The line as its namespace may see it: the name of a policy of another namespace is left out,
    /// and that it would refuse the request is not.
    #[must_use]
    pub fn seen_by(mut self, namespace: &str) -> Self {
        let policy = self
            .field(WOULD_REFUSE)
            .and_then(|name| name.split_once('/'));
        if policy.is_some_and(|(of, _)| of != namespace) {
            let another = Value::from("of another namespace");
            self.fields.insert(WOULD_REFUSE.to_owned(), another);
        }
        self
    }
}

/// A request that failed, for a page: without the query of its URL, in which clients may have
/// written secrets.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct FailedRequest {
    time: String,
    status: u64,
    method: String,
    path: String,
    /// The reason, as in the reference.
    reason: Option<&'static str>,
    /// What happened, for people.
    message: String,
}

/// The requests that are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Those for this host, in lower case; all if `None`.
    pub host: Option<String>,
    /// Those of hostnames of this namespace; all if `None`.
    pub namespace: Option<String>,
    /// True for those that failed.
    pub errors: bool,
}

impl RequestFilter {
    /// True if the request of a line is among them.
    pub fn has(&self, line: &RequestLine) -> bool {
        let Self {
            host,
            namespace,
            errors,
        } = self;
        host.as_ref().is_none_or(|host| line.is_for(host))
            && namespace
                .as_ref()
                .is_none_or(|namespace| line.namespace() == Some(namespace))
            && (!errors || line.is_error())
    }
}

fn text_of<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    fields.get(name)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> RequestLine {
        RequestLine::parse(text).expect("a line")
    }

    #[test]
    fn a_line_says_why_no_backend_answered() {
        let timed_out = line(
            r#"{"time":"2026-11-26T07:51:40.269Z","status":504,"details":"upstream_response_timeout",
            "route":"httproute/blue/shop/0","method":"GET","host":"shop.example.org","path":"/slow","duration_ms":2001,
            "backend":"blue/shop:80","backend_address":"10.0.0.1:8080","hostname":"shop.example.org"}"#,
        );
        assert_eq!(
            timed_out.text(),
            "2026-11-26T07:51:40.269Z 504 GET shop.example.org/slow 2001 ms route httproute/blue/shop/0 \
             backend blue/shop:80 at 10.0.0.1:8080: TimedOut: the backend did not answer within the timeout of the rule"
        );
        let read = timed_out.json();
        assert_eq!(read["reason"], "TimedOut");
        assert!(timed_out.is_error(), "it failed");
    }

    #[test]
    fn a_handshake_says_why_it_failed() {
        let failed = line(
            r#"{"time":"2026-11-26T07:51:40.269Z","status":0,"port":"infra/edge:443","client":"192.0.2.1:50000",
            "sni":"shop.example.org","duration_ms":3,"handshake_failure":"TLS_error:|TLSV1_ALERT_UNKNOWN_CA:TLS_error_end"}"#,
        );
        assert!(failed.is_error() && failed.is_for("shop.example.org"));
        let text = failed.text();
        let begin =
            "2026-11-26T07:51:40.269Z TLS shop.example.org at infra/edge:443 by 192.0.2.1:50000";
        assert!(text.starts_with(begin), "{text}");
        assert!(
            text.contains("CertificateRefused: the client did not"),
            "{text}"
        );
    }

    #[test]
    fn no_client_writes_to_the_terminal() {
        let forged = line(
            r#"{"status":200,"details":"via_upstream","method":"GET","host":"a.org","path":"/\u001b[2J\n200 OK"}"#,
        );
        assert!(
            !forged.text().chars().any(char::is_control),
            "{}",
            forged.text()
        );
    }

    #[test]
    fn a_response_of_a_backend_is_an_error_from_500_on() {
        let of_backend = |status: u16| {
            line(&format!(
                r#"{{"status":{status},"details":"via_upstream"}}"#
            ))
        };
        assert!(!of_backend(404).is_error(), "its own business");
        assert!(of_backend(500).is_error(), "it failed");
    }

    #[test]
    fn a_request_that_a_policy_reports_is_told_with_the_policy() {
        let reported = line(
            r#"{"status":200,"details":"via_upstream","would_refuse":"blue/staff","host":"a.org"}"#,
        );
        assert!(reported.is_error(), "it would be one");
        let told = ": AccessPolicy blue/staff would refuse it, and only reports";
        assert!(reported.text().ends_with(told), "{}", reported.text());
    }

    #[test]
    fn a_namespace_sees_no_name_of_a_policy_of_another() {
        let text = r#"{"status":200,"details":"via_upstream","would_refuse":"platform/staff"}"#;
        let seen = line(text).seen_by("blue");
        assert!(
            !seen.json().to_string().contains("platform"),
            "{}",
            seen.text()
        );
        assert!(seen.is_error(), "that it would be refused is seen");
        let own = line(&text.replace("platform", "blue")).seen_by("blue");
        assert_eq!(own.field(WOULD_REFUSE), Some("blue/staff"), "its own");
    }

    #[test]
    fn a_host_is_found_with_a_port_and_behind_a_rewrite() {
        let rewritten = line(
            r#"{"status":200,"details":"via_upstream","host":"inner:8080","hostname":"shop.example.org"}"#,
        );
        assert!(rewritten.is_for("inner"), "without the port");
        assert!(rewritten.is_for("shop.example.org"), "the hostname");
        assert!(!rewritten.is_for("example.org"), "another one");
    }
}
