//! A line of the access log.

use super::FailedRequest;
use gatewright_core::printable::printable;
use gatewright_core::request_outcome::{Evidence, RequestOutcome, outcome};
use serde_json::{Map, Value};

/// The field with the AccessPolicy that would have refused the request.
const WOULD_REFUSE: &str = "would_refuse";

/// A line of the access log.
pub(super) struct RequestLine {
    fields: Map<String, Value>,
    /// Why no backend answered.
    outcome: Option<&'static RequestOutcome>,
}

impl RequestLine {
    /// Reads a line; `None` if it is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
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
        let outcome = outcome(&evidence);
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

    /// True if the request was for this host, in lower case; its port and a rewrite by a route do
    /// not count.
    pub(super) fn is_for(&self, host: &str) -> bool {
        let asked = self.field("host").unwrap_or_default();
        let bare = match asked.rsplit_once(':') {
            Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => bare,
            _ => asked,
        };
        bare.eq_ignore_ascii_case(host) || self.field("hostname") == Some(host)
    }

    /// The namespace that has the hostname.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.field("namespace")
    }

    /// True if the request failed, or an AccessPolicy that only reports would have refused it: as
    /// mode Errors of the access log has it.
    pub(super) fn is_error(&self) -> bool {
        let status = self.number("status");
        let by_backend = self.field("details") == Some("via_upstream");
        self.outcome.is_some()
            || status >= 500
            || status >= 400 && !by_backend
            || self.field(WOULD_REFUSE).is_some()
    }

    /// The line for people. What clients wrote is shown without control characters.
    pub(super) fn text(&self) -> String {
        let field = |name| printable(self.field(name).unwrap_or("-"));
        let time = field("time");
        let status = self.number("status");
        let method = field("method");
        let host = field("host");
        let path = field("path");
        let duration = self.number("duration_ms");
        let mut text = format!("{time} {status} {method} {host}{path} {duration} ms");
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
                if let Some(failure) = self.field("backend_failure") {
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
    pub(super) fn failed(&self) -> FailedRequest {
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
    pub(super) fn json(&self) -> String {
        let mut fields = self.fields.clone();
        if let Some(RequestOutcome { reason, words, .. }) = self.outcome {
            fields.insert("reason".to_owned(), (*reason).into());
            fields.insert("message".to_owned(), (*words).into());
        }
        Value::Object(fields).to_string()
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
        let read: Value = serde_json::from_str(&timed_out.json()).expect("JSON");
        assert_eq!(read["reason"], "TimedOut");
        assert!(timed_out.is_error(), "it failed");
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
    fn a_host_is_found_with_a_port_and_behind_a_rewrite() {
        let rewritten = line(
            r#"{"status":200,"details":"via_upstream","host":"inner:8080","hostname":"shop.example.org"}"#,
        );
        assert!(rewritten.is_for("inner"), "without the port");
        assert!(rewritten.is_for("shop.example.org"), "the hostname");
        assert!(!rewritten.is_for("example.org"), "another one");
    }
}
