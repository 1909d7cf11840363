//! Maps errors of the CA, the protocol and DNS to failures: class, message, remedy and retry time
//! (RFC 8555, 6.7).

use instant_acme::{Error, Identifier, Problem};
use jiff::{SignedDuration, Timestamp};

use super::{AcmeIssuer, refusal};
use crate::account::AccountError;
use crate::challenge::dns::{DnsError, DnsRetry};
use crate::client::{Exchange, HttpError};
use crate::failure::{Class, Dependency, Failure};
use crate::names::{DnsName, Names};

/// Most characters of a foreign text in a message.
const LONGEST_TEXT: usize = 500;
/// Most characters of a link, which is useless when truncated.
const LONGEST_LINK: usize = 4000;

/// Returns the class of a problem, by the last part of its type, its status and its detail.
pub(super) fn class_of(kind: &str, status: Option<u16>, detail: &str) -> Class {
    match kind.rsplit(':').next().unwrap_or_default() {
        "rateLimited" => refusal::read(detail).0,
        "unauthorized" | "connection" | "dns" | "tls" | "incorrectResponse" => Class::HostFault,
        "rejectedIdentifier"
        | "caa"
        | "unsupportedIdentifier"
        | "invalidProfile"
        | "unsupportedContact"
        | "invalidContact" => Class::Policy,
        // A resource that a replica of the CA does not know yet, or that the CA lost: the request
        // is not at fault.
        "malformed" if matches!(status, Some(404 | 410)) => Class::Transient,
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
            Some(429) => refusal::read(detail).0,
            Some(404 | 410) => Class::Transient,
            Some(500..) | None => Class::Transient,
            Some(401 | 403) => Class::Account,
            Some(_) => Class::Bug,
        },
    }
}

/// Makes the failure of a problem document about an order for `names`.
pub(super) fn of_problem(
    issuer: &str,
    problem: &Problem,
    exchange: Option<&Exchange>,
    names: Option<&Names>,
    now: Timestamp,
) -> Failure {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    let said = problem.detail.as_deref().unwrap_or("no reason given");
    let detail = stable(said);
    // The status of the document is advisory (RFC 9457, 3.1.3); that of a problem without an answer
    // of its own is all there is.
    let status = problem.status.or(exchange.map(|e| e.status));
    let class = class_of(kind, status, said);
    let mut message = format!("{issuer}: {detail}");
    for sub in problem.subproblems.iter().take(5) {
        if let (Some(Identifier::Dns(name)), Some(text)) = (&sub.identifier, &sub.detail) {
            message.push_str(&format!("; {}: {}", stable(name), stable(text)));
        }
    }
    // A page that explains the error (RFC 8555, 6.7; Boulder links it for rate limits).
    if let Some(help) = exchange
        .and_then(|e| e.help.as_ref())
        .filter(|help| !message.contains(help.as_str()))
    {
        message.push_str(&format!("; see {help}"));
    }
    message.push_str(remedy(kind, class, said));
    let mut failure = Failure::new(class, message).by(refusal::culprits(problem, names));
    match (class, status) {
        (Class::Transient, Some(500..) | None) => {
            failure.dependency = Some(Box::new(Dependency::Ca))
        }
        (Class::Account, _) => failure.dependency = Some(Box::new(Dependency::Account)),
        _ => {}
    }
    let retry_at = exchange
        .and_then(|e| e.retry_after)
        .map(|d| now + d)
        .or_else(|| refusal::retry_after(said, now));
    if let Some(at) = retry_at
        && matches!(class, Class::RateLimited | Class::Transient)
    {
        // The longest window of any limit is a week; a longer wait is a mistake.
        failure = failure.not_before(at.min(now + SignedDuration::from_hours(24 * 8)));
    }
    failure
}

/// Returns advice for the operator, to be appended to the message.
pub(super) fn remedy(kind: &str, class: Class, detail: &str) -> &'static str {
    fn is(text: &str, kind: &str) -> bool {
        kind.ends_with(text)
    }
    match class {
        Class::Account if is(":accountDoesNotExist", kind) => {
            "; the CA has no such account: if it was set up anew, `gatewright certs new-account ISSUER` makes another one"
        }
        Class::Account if is(":externalAccountRequired", kind) => {
            "; it takes accounts with an external account binding only: configure its key id and key file"
        }
        Class::Account if is(":userActionRequired", kind) => {
            "; open the link that the CA gives and agree there, most likely to new terms of service"
        }
        Class::Account if detail.contains("deactivated") || detail.contains("revoked") => {
            "; that is for ever: `gatewright certs new-account ISSUER` makes another one"
        }
        // A CA says why, by a type; the page of a web application firewall has none.
        Class::Account if kind.is_empty() || kind == "about:blank" => {
            "; this is no ACME error: a proxy or a firewall between us and the CA may refuse our requests"
        }
        Class::Account => {
            "; ask the CA about the account, or make another one by `gatewright certs new-account ISSUER`"
        }
        _ => "",
    }
}

/// Makes the failure of an error of `instant-acme`. `exchange` has status and headers of the
/// answer.
pub(super) fn of_protocol(
    issuer: &AcmeIssuer,
    error: &Error,
    exchange: Option<&Exchange>,
    names: Option<&Names>,
    now: Timestamp,
) -> Failure {
    let name = &issuer.config.name;
    match error {
        Error::Api(problem) => of_problem(name, problem, exchange, names, now),
        Error::Other(other) => match other.downcast_ref::<HttpError>() {
            Some(http) => of_http(name, http),
            None => Failure::new(
                Class::Bug,
                format!("{name}: {}", stable(&other.to_string())),
            ),
        },
        Error::Json(error) => {
            let text = format!(
                "{name} answered with something that is no ACME JSON: {}",
                stable(&error.to_string())
            );
            Failure::new(Class::Transient, text).with_dependency(Dependency::Ca)
        }
        other => Failure::new(
            Class::Bug,
            format!("{name}: {}", stable(&other.to_string())),
        ),
    }
}

pub(super) fn of_http(issuer: &str, error: &HttpError) -> Failure {
    let class = match error {
        HttpError::Url { .. }
        | HttpError::Roots(_)
        | HttpError::NoDirectory { .. }
        | HttpError::Redirected { .. }
        | HttpError::NoNonce {
            status: 200..300 | 404 | 405,
            ..
        } => Class::Config,
        // Waiting does not make an untrusted certificate trusted.
        HttpError::Unreachable { cause, .. } if cause.contains("invalid peer certificate") => {
            Class::Config
        }
        HttpError::Status { status: 404, .. } => Class::Config,
        HttpError::Limited { .. }
        | HttpError::Status { status: 429, .. }
        | HttpError::NoNonce { status: 429, .. } => Class::RateLimited,
        HttpError::Unreachable { .. }
        | HttpError::Timeout { .. }
        | HttpError::Status { .. }
        | HttpError::NoNonce { .. }
        | HttpError::Unreadable(_) => Class::Transient,
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
        _ if class == Class::Transient => failure.with_dependency(Dependency::Ca),
        _ => failure,
    }
}

pub(super) fn of_account(issuer: &str, error: &AccountError, now: Timestamp) -> Failure {
    match error {
        AccountError::Http(e) => of_http(issuer, e),
        AccountError::Storage(e) => super::of_storage(e),
        AccountError::Limited(wait) => {
            Failure::new(Class::RateLimited, format!("issuer {issuer}: {wait}"))
                .not_before(wait.until)
        }
        AccountError::Refused {
            kind,
            detail,
            status,
            retry_after,
            external,
        } => {
            let class = match class_of(kind, Some(*status), detail) {
                Class::HostFault | Class::Policy | Class::Bug => Class::Account,
                class => class,
            };
            let text = format!(
                "issuer {issuer}: the CA refuses the account: {}",
                stable(detail)
            );
            let remedy = match external {
                Some(external)
                    if class == Class::Account
                        && !kind.is_empty()
                        && !kind.ends_with(":userActionRequired") =>
                {
                    format!("; the account was to be bound to {external}: check both at the CA")
                }
                _ => remedy(kind, class, detail).to_owned(),
            };
            let mut failure = Failure::new(class, text + &remedy);
            match (class, status) {
                (Class::Account, _) => failure.dependency = Some(Box::new(Dependency::Account)),
                (Class::Transient, 500..) => failure.dependency = Some(Box::new(Dependency::Ca)),
                _ => {}
            }
            match retry_after {
                Some(after) => failure.not_before(now + *after),
                None => failure,
            }
        }
        other => Failure::new(Class::Config, format!("issuer {issuer}: {other}")),
    }
}

/// Makes the failure of a DNS provider or look-up. A transient one trips the breaker of this
/// provider or zone only.
pub(super) fn of_dns(error: &DnsError, name: &DnsName, now: Timestamp) -> Failure {
    let failure = match error.retry() {
        DnsRetry::Never => Failure::new(Class::Config, error.to_string()),
        DnsRetry::Later => Failure::new(Class::Transient, error.to_string()),
        DnsRetry::After(after) => {
            let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::from_hours(1));
            Failure::new(Class::Transient, error.to_string()).not_before(now + after)
        }
    };
    let failure = failure.by(vec![name.to_string()]);
    if failure.class != Class::Transient {
        return failure;
    }
    failure.with_dependency(match error.provider() {
        // The error is from a look-up, not from a provider: the name servers of the zone fail.
        crate::dns::VIEW => Dependency::zone_of(name),
        provider => Dependency::Provider(provider.to_owned()),
    })
}

/// Returns what an error of `instant-acme` says, fit for a message.
pub(super) fn said(error: &Error) -> String {
    match error {
        Error::Api(problem) => stable(problem.detail.as_deref().unwrap_or("no reason given")),
        other => stable(&other.to_string()),
    }
}

pub(super) fn is_bad_nonce(error: &Error) -> bool {
    is_kind(error, "badNonce")
}

pub(super) fn is_kind(error: &Error, kind: &str) -> bool {
    matches!(error, Error::Api(p) if p.r#type.as_deref().is_some_and(|t| t.rsplit(':').next() == Some(kind)))
}

/// Makes a foreign text fit for a message: one bounded line without control characters and without
/// parts that differ in each attempt, above all tokens of challenges. Links are kept whole: a
/// paused name can be resumed only there.
fn stable(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(LONGEST_LINK)
        .collect();
    let mut stable = String::new();
    for word in text.split_inclusive(' ') {
        let is_link = word.contains("://");
        let word = match word.split_once(CHALLENGES) {
            Some((before, rest)) => {
                let after = rest.trim_start_matches(|c: char| {
                    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
                });
                format!("{before}{CHALLENGES}…{after}")
            }
            None if is_link => word.to_owned(),
            None => without_tokens(word),
        };
        if stable.chars().count() + word.chars().count() > LONGEST_TEXT && !is_link {
            stable.extend(
                word.chars()
                    .take(LONGEST_TEXT.saturating_sub(stable.chars().count())),
            );
            continue;
        }
        stable.push_str(&word);
    }
    stable.trim_end().to_owned()
}

/// The path prefix of HTTP-01 challenges.
const CHALLENGES: &str = crate::challenge::http::PREFIX;

/// Removes parts of a word that look like a token, a digest or a key authorization: 20 or more
/// base64url characters in both cases, which no host name, number or word has.
fn without_tokens(word: &str) -> String {
    let mut text = String::new();
    let mut rest = word;
    while !rest.is_empty() {
        let (part, others) = rest.split_at(end(true, rest));
        text.push_str(if is_token(part) { "…" } else { part });
        rest = others;
        let (between, others) = rest.split_at(
            rest.find(|c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
                .unwrap_or(rest.len()),
        );
        text.push_str(between);
        rest = others;
    }
    text
}

fn is_token(part: &str) -> bool {
    part.len() >= 20
        && part.bytes().any(|b| b.is_ascii_uppercase())
        && part.bytes().any(|b| b.is_ascii_lowercase())
}

fn end(is: bool, rest: &str) -> usize {
    rest.find(|c: char| (c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) != is)
        .unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn failure(json: &str, exchange: Option<&Exchange>) -> Failure {
        let problem: Problem = serde_json::from_str(json).expect("a problem");
        of_problem("le", &problem, exchange, None, at("2026-11-21T00:00:00Z"))
    }

    #[test]
    fn each_problem_has_its_class() {
        for (kind, status, detail, class) in [
            (
                "urn:ietf:params:acme:error:rateLimited",
                429,
                "too many new orders",
                Class::RateLimited,
            ),
            (
                "urn:ietf:params:acme:error:rateLimited",
                429,
                "Account is paused: https://x",
                Class::Paused,
            ),
            (
                "urn:ietf:params:acme:error:unauthorized",
                403,
                "",
                Class::HostFault,
            ),
            (
                "urn:ietf:params:acme:error:connection",
                400,
                "",
                Class::HostFault,
            ),
            ("urn:ietf:params:acme:error:caa", 403, "", Class::Policy),
            (
                "urn:ietf:params:acme:error:rejectedIdentifier",
                400,
                "",
                Class::Policy,
            ),
            (
                "urn:ietf:params:acme:error:accountDoesNotExist",
                400,
                "",
                Class::Account,
            ),
            ("urn:ietf:params:acme:error:malformed", 400, "", Class::Bug),
            (
                "urn:ietf:params:acme:error:malformed",
                404,
                "no such authorization",
                Class::Transient,
            ),
            ("", 404, "", Class::Transient),
            (
                "urn:ietf:params:acme:error:serverInternal",
                500,
                "",
                Class::Transient,
            ),
            ("", 502, "status 502 Bad Gateway", Class::Transient),
            ("", 429, "", Class::RateLimited),
            ("", 403, "", Class::Account),
        ] {
            assert_eq!(
                class_of(kind, Some(status), detail),
                class,
                "{kind} {status}"
            );
        }
    }

    #[test]
    fn the_retry_time_is_taken_from_the_header_or_the_text() {
        let json = r#"{"type":"urn:ietf:params:acme:error:rateLimited","status":429,
            "detail":"too many certificates (50) already issued for \"example.com\" in the last 168h0m0s, retry after 2026-11-22 03:12:00 UTC: see https://x"}"#;
        assert_eq!(
            failure(json, None).retry_at,
            Some(at("2026-11-22T03:12:00Z"))
        );
        let header = Exchange {
            retry_after: Some(SignedDuration::from_secs(60)),
            ..Exchange::default()
        };
        assert_eq!(
            failure(json, Some(&header)).retry_at,
            Some(at("2026-11-21T00:01:00Z"))
        );
    }

    #[test]
    fn texts_of_others_are_one_bounded_line() {
        let json = format!(
            r#"{{"detail":"a\nb\u001b[31m{}","status":400}}"#,
            "x".repeat(5000)
        );
        let message = failure(&json, None).message;
        assert!(message.len() < 600 && !message.contains('\n') && !message.contains('\u{1b}'));
    }

    #[test]
    fn messages_omit_tokens_and_keep_links_complete() {
        let token = "LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0";
        let link = format!(
            "https://portal.letsencrypt.org/sfe/v1/unpause?jwt={}",
            "eyJh".repeat(300)
        );
        for (text, told) in [
            (
                format!(
                    "Invalid response from http://a.example/.well-known/acme-challenge/{token}: 404"
                ),
                "Invalid response from http://a.example/.well-known/acme-challenge/…: 404",
            ),
            (
                format!("Expected \"{token}.{token}\" (got \"x\")"),
                "Expected \"….…\" (got \"x\")",
            ),
            (
                format!("Incorrect TXT record \"{token}\" found"),
                "Incorrect TXT record \"…\" found",
            ),
            (
                format!("Please visit: {link}"),
                &format!("Please visit: {link}"),
            ),
            (
                "no valid A records found for a-very-long-name-indeed.example.org".to_owned(),
                "no valid A records found for a-very-long-name-indeed.example.org",
            ),
        ] {
            assert_eq!(stable(&text), told);
        }
    }

    #[test]
    fn a_refusal_of_the_account_names_the_remedy() {
        for (kind, detail, word) in [
            (
                "unauthorized",
                "Account is not valid, has status \"deactivated\"",
                "certs new-account",
            ),
            ("accountDoesNotExist", "unknown", "certs new-account"),
            ("externalAccountRequired", "no", "key id"),
            ("userActionRequired", "new terms", "agree"),
        ] {
            let error = AccountError::Refused {
                kind: format!("urn:ietf:params:acme:error:{kind}"),
                detail: detail.to_owned(),
                status: 403,
                retry_after: None,
                external: None,
            };
            let failure = of_account("le", &error, at("2026-11-21T00:00:00Z"));
            assert!(
                failure.class == Class::Account && failure.message.contains(word),
                "{failure}"
            );
            assert_eq!(failure.dependency.as_deref(), Some(&Dependency::Account));
        }
    }

    proptest! {
        /// The CA, or an intermediary that answers in its place, may send anything.
        #[test]
        fn the_message_of_any_problem_is_one_bounded_line(
            kind in "(urn:ietf:params:acme:error:)?[a-zA-Z]{0,20}", status in proptest::option::of(0u16..700),
            detail in proptest::collection::vec(prop_oneof![
                Just("https://ca.example/".to_owned()), Just(format!("{CHALLENGES}AbCdEfGhIjKlMnOpQrStUvWx")),
                Just("retry after 2026-11-21 12:00:00 UTC".to_owned()), Just("for \"a.example.com\"".to_owned()),
                "\\PC{0,80}", ".{0,40}", "[A-Za-z0-9_-]{0,4000}",
            ], 0..12),
            subproblems in proptest::collection::vec((".{0,60}", ".{0,600}"), 0..12),
        ) {
            let subproblems: Vec<_> = subproblems.iter().map(|(name, detail)| {
                serde_json::json!({"identifier": {"type": "dns", "value": name}, "detail": detail})
            }).collect();
            let problem = serde_json::json!({"type": kind, "status": status, "detail": detail.join(" "),
                "subproblems": subproblems});
            let problem: Problem = serde_json::from_value(problem).expect("a problem");
            let names = crate::names::Names::parse(["a.example.com", "b.example.org"]).expect("names");
            let now = at("2026-11-21T00:00:00Z");
            let failure = of_problem("le", &problem, None, Some(&names), now);
            prop_assert!(failure.message.len() < 64 * 1024, "{} bytes", failure.message.len());
            prop_assert!(!failure.message.chars().any(char::is_control), "{:?}", failure.message);
            prop_assert!(failure.culprits.len() <= 2, "{:?}", failure.culprits);
            prop_assert!(failure.retry_at.is_none_or(|at| at <= now + SignedDuration::from_hours(24 * 8)));
        }
    }
}
