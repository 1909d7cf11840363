//! From what a CA says to what helps against it (RFC 8555, 6.7).

use instant_acme::{Error, Identifier, Problem};
use jiff::{SignedDuration, Timestamp};

use super::AcmeIssuer;
use crate::account::AccountError;
use crate::budget::Scope;
use crate::challenge::dns::{DnsError, DnsRetry};
use crate::client::{Exchange, HttpError};
use crate::failure::{Class, Failure};
use crate::names::Names;

/// Longer texts help nobody.
const LONGEST_TEXT: usize = 500;

/// The class of a problem, by the last part of its type, its status and its text.
pub(super) fn class_of(kind: &str, status: Option<u16>, detail: &str) -> Class {
    match kind.rsplit(':').next().unwrap_or_default() {
        "rateLimited" if detail.to_ascii_lowercase().contains("paused") => Class::Paused,
        "rateLimited" => Class::RateLimited,
        "unauthorized" | "connection" | "dns" | "tls" | "incorrectResponse" => Class::HostFault,
        "rejectedIdentifier"
        | "caa"
        | "unsupportedIdentifier"
        | "invalidProfile"
        | "unsupportedContact"
        | "invalidContact" => Class::Policy,
        "accountDoesNotExist" | "externalAccountRequired" | "userActionRequired" => Class::Account,
        "malformed"
        | "badCSR"
        | "badSignatureAlgorithm"
        | "alreadyReplaced"
        | "badPublicKey"
        | "orderNotReady"
        | "badRevocationReason"
        | "alreadyRevoked"
        | "conflict" => Class::Bug,
        "serverInternal" | "badNonce" => Class::Transient,
        _ => match status {
            Some(429) => Class::RateLimited,
            Some(500..) | None => Class::Transient,
            Some(401 | 403) => Class::Account,
            Some(_) => Class::Bug,
        },
    }
}

/// A problem document, as a failure.
pub(super) fn of_problem(issuer: &str, problem: &Problem, exchange: Option<&Exchange>, now: Timestamp) -> Failure {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let detail = stable(problem.detail.as_deref().unwrap_or("no reason given"));
    let status = problem.status.or(exchange.map(|e| e.status));
    let class = class_of(kind, status, &detail);
    let culprits = problem
        .subproblems
        .iter()
        .filter_map(|s| match &s.identifier {
            Some(Identifier::Dns(name)) => Some(name.clone()),
            _ => None,
        })
        .collect::<Vec<_>>();
    let mut message = format!("{issuer}: {detail}");
    for sub in problem.subproblems.iter().take(5) {
        if let (Some(Identifier::Dns(name)), Some(text)) = (&sub.identifier, &sub.detail) {
            message.push_str(&format!("; {name}: {}", stable(text)));
        }
    }
    let mut failure = Failure::new(class, message).by(culprits);
    let told = exchange.and_then(|e| e.retry_after).map(|d| now + d).or_else(|| retry_after_in(&detail));
    if let Some(at) = told
        && matches!(class, Class::RateLimited | Class::Transient)
    {
        // A week is the longest window of any limit; a longer one is a mistake.
        failure = failure.not_before(at.min(now + SignedDuration::from_hours(24 * 8)));
    }
    failure
}

/// Which limit a 429 speaks of; by the text, since the protocol has no field for it.
pub(super) fn scope_of(detail: &str, names: &Names) -> Scope {
    let text = detail.to_ascii_lowercase();
    if text.contains("exact set") {
        Scope::Set(names.to_strings().join(","))
    } else if text.contains("failed authorizations") {
        Scope::Failures(named(detail, names, |n| n.base()))
    } else if text.contains("certificates") && text.contains("already issued for") {
        Scope::Domain(named(detail, names, |n| n.registered_domain()))
    } else {
        Scope::Orders
    }
}

fn named<'a>(detail: &str, names: &'a Names, of: impl Fn(&'a crate::names::DnsName) -> &'a str) -> String {
    names.iter().map(&of).find(|n| detail.contains(n)).unwrap_or_else(|| of(names.first())).to_owned()
}

/// `retry after 1970-01-01 00:18:15 UTC`, as Boulder writes it.
fn retry_after_in(detail: &str) -> Option<Timestamp> {
    let (_, rest) = detail.split_once("retry after ")?;
    let text = rest.get(..19)?;
    format!("{}Z", text.replace(' ', "T")).parse().ok()
}

/// An error of the protocol crate, as a failure. `exchange` is what the CA said beside the body.
pub(super) fn of_protocol(issuer: &AcmeIssuer, error: &Error, exchange: Option<&Exchange>, now: Timestamp) -> Failure {
    let name = &issuer.config.name;
    match error {
        Error::Api(problem) => of_problem(name, problem, exchange, now),
        Error::Other(other) => match other.downcast_ref::<HttpError>() {
            Some(http) => of_http(name, http),
            None => Failure::new(Class::Bug, format!("{name}: {}", stable(&other.to_string()))),
        },
        Error::Json(_) => {
            Failure::new(Class::Transient, format!("{name} answered with something that is no ACME JSON"))
        }
        other => Failure::new(Class::Bug, format!("{name}: {}", stable(&other.to_string()))),
    }
}

pub(super) fn of_http(issuer: &str, error: &HttpError) -> Failure {
    let class = match error {
        HttpError::Url { .. } | HttpError::Roots(_) | HttpError::NoDirectory { .. } => Class::Config,
        // A certificate we do not trust does not become trusted by waiting.
        HttpError::Unreachable { cause, .. } if cause.contains("invalid peer certificate") => Class::Config,
        HttpError::Status { status: 404, .. } => Class::Config,
        HttpError::Limited { .. } | HttpError::Status { status: 429, .. } => Class::RateLimited,
        HttpError::Unreachable { .. } | HttpError::Timeout { .. } | HttpError::Status { .. } => Class::Transient,
    };
    let hint = match error {
        HttpError::Unreachable { cause, .. } if cause.contains("UnknownIssuer") => {
            "; its certificate is not signed by a root we trust: check the CA bundle of the issuer"
        }
        _ => "",
    };
    let failure = Failure::new(class, format!("issuer {issuer}: {error}{hint}"));
    match error {
        HttpError::Limited { until, .. } => failure.not_before(*until),
        _ => failure,
    }
}

pub(super) fn of_account(issuer: &str, error: &AccountError, now: Timestamp) -> Failure {
    match error {
        AccountError::Http(e) => of_http(issuer, e),
        AccountError::Storage(e) => super::of_storage(e),
        AccountError::Limited(wait) => {
            Failure::new(Class::RateLimited, format!("issuer {issuer}: {wait}")).not_before(wait.until)
        }
        AccountError::Refused { kind, detail, status, retry_after } => {
            let class = match class_of(kind, Some(*status), detail) {
                Class::HostFault | Class::Policy | Class::Bug => Class::Account,
                class => class,
            };
            let failure =
                Failure::new(class, format!("issuer {issuer}: the CA refuses the account: {}", stable(detail)));
            match retry_after {
                Some(after) => failure.not_before(now + *after),
                None => failure,
            }
        }
        other => Failure::new(Class::Config, format!("issuer {issuer}: {other}")),
    }
}

pub(super) fn of_dns(error: &DnsError, now: Timestamp) -> Failure {
    match error.retry() {
        DnsRetry::Never => Failure::new(Class::Config, error.to_string()),
        DnsRetry::Later => Failure::new(Class::Transient, error.to_string()),
        DnsRetry::After(after) => {
            let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::from_hours(1));
            Failure::new(Class::Transient, error.to_string()).not_before(now + after)
        }
    }
}

pub(super) fn is_bad_nonce(error: &Error) -> bool {
    is_kind(error, "badNonce")
}

pub(super) fn is_kind(error: &Error, kind: &str) -> bool {
    matches!(error, Error::Api(p) if p.r#type.as_deref().is_some_and(|t| t.rsplit(':').next() == Some(kind)))
}

/// One line, bounded, nothing that could steer a terminal.
fn stable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn failure(json: &str, exchange: Option<&Exchange>) -> Failure {
        let problem: Problem = serde_json::from_str(json).expect("a problem");
        of_problem("le", &problem, exchange, at("2026-11-21T00:00:00Z"))
    }

    #[test]
    fn each_problem_has_its_class() {
        for (kind, status, detail, class) in [
            ("urn:ietf:params:acme:error:rateLimited", 429, "too many new orders", Class::RateLimited),
            ("urn:ietf:params:acme:error:rateLimited", 429, "Account is paused: https://x", Class::Paused),
            ("urn:ietf:params:acme:error:unauthorized", 403, "", Class::HostFault),
            ("urn:ietf:params:acme:error:connection", 400, "", Class::HostFault),
            ("urn:ietf:params:acme:error:caa", 403, "", Class::Policy),
            ("urn:ietf:params:acme:error:rejectedIdentifier", 400, "", Class::Policy),
            ("urn:ietf:params:acme:error:accountDoesNotExist", 400, "", Class::Account),
            ("urn:ietf:params:acme:error:malformed", 400, "", Class::Bug),
            ("urn:ietf:params:acme:error:serverInternal", 500, "", Class::Transient),
            ("", 502, "status 502 Bad Gateway", Class::Transient),
            ("", 429, "", Class::RateLimited),
            ("", 403, "", Class::Account),
        ] {
            assert_eq!(class_of(kind, Some(status), detail), class, "{kind} {status}");
        }
    }

    #[test]
    fn the_time_to_come_back_is_in_the_header_or_in_the_text() {
        let json = r#"{"type":"urn:ietf:params:acme:error:rateLimited","status":429,
            "detail":"too many certificates (50) already issued for \"example.com\" in the last 168h0m0s, retry after 2026-11-22 03:12:00 UTC: see https://x"}"#;
        assert_eq!(failure(json, None).retry_at, Some(at("2026-11-22T03:12:00Z")));
        let header = Exchange { retry_after: Some(SignedDuration::from_secs(60)), ..Exchange::default() };
        assert_eq!(failure(json, Some(&header)).retry_at, Some(at("2026-11-21T00:01:00Z")));
    }

    #[test]
    fn a_limit_is_learned_for_what_it_is_about() {
        let names = Names::parse(["a.example.com", "b.example.org"]).expect("names");
        for (detail, scope) in [
            ("too many new orders (300) from this account in the last 3h0m0s", Scope::Orders),
            (
                "too many certificates (50) already issued for \"example.org\" in the last 168h0m0s",
                Scope::Domain("example.org".to_owned()),
            ),
            (
                "too many certificates (5) already issued for this exact set of identifiers in the last 168h0m0s",
                Scope::Set("a.example.com,b.example.org".to_owned()),
            ),
            (
                "too many failed authorizations (5) for \"b.example.org\" in the last 1h0m0s",
                Scope::Failures("b.example.org".to_owned()),
            ),
        ] {
            assert_eq!(scope_of(detail, &names), scope);
        }
    }

    #[test]
    fn texts_of_others_are_one_bounded_line() {
        let json = format!(r#"{{"detail":"a\nb\u001b[31m{}","status":400}}"#, "x".repeat(5000));
        let message = failure(&json, None).message;
        assert!(message.len() < 600 && !message.contains('\n') && !message.contains('\u{1b}'));
    }
}
