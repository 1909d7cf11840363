//! The last failure of an endpoint, as Envoys report it: a fact about what a backend does, which no
//! object says. Pure.

use std::time::{Duration, SystemTime};

use crate::printable::printable;
use crate::request_outcome::{NO_ENDPOINTS, RequestOutcome, by_cause};

/// What the logins of a route are called among the clusters of Envoys: these do not say which
/// provider they asked.
pub fn logins_of(route: &str) -> String {
    format!("{route}#logins")
}

/// The same of the keys for tokens.
pub fn keys_of(route: &str) -> String {
    format!("{route}#keys")
}

/// The most characters of what a transport says.
const DETAIL: usize = 256;

/// A failure of a request or of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its reason.
    pub outcome: &'static RequestOutcome,
    /// The words of the transport, which a backend may choose; empty if there are none.
    detail: String,
}

impl Failure {
    /// A failure with the words of the transport: one line, and no more of it than people read.
    pub fn new(outcome: &'static RequestOutcome, transport: &str) -> Self {
        let words = in_words(transport);
        let clipped: String = words.chars().take(DETAIL).collect();
        Self {
            outcome,
            detail: printable(&clipped).into_owned(),
        }
    }

    /// The words of the transport; empty if there are none.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// True if no connection was opened: the first one that is opened ends it.
    pub fn is_of_connection(&self) -> bool {
        matches!(
            self.outcome.reason,
            "BackendRefused" | "ConnectTimedOut" | "BackendNotVerified" | "BackendTlsFailed"
        ) || by_cause(NO_ENDPOINTS) == Some(self.outcome)
    }
}

/// The last failure of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastFailure {
    /// The failure.
    pub failure: Failure,
    /// How often it was seen in a row, with the same reason.
    pub count: u32,
    /// When it was seen last.
    pub at: SystemTime,
    /// The requests that the endpoint has answered since.
    pub answered: u64,
}

impl LastFailure {
    /// The time since it was seen.
    pub fn age(&self, now: SystemTime) -> Duration {
        now.duration_since(self.at).unwrap_or_default()
    }
}

/// What the transport says, in words for people where it is known: Envoy's have numbers and names
/// of BoringSSL around it, and in lines of access logs no spaces.
fn in_words(transport: &str) -> String {
    let text = transport.replace('_', " ");
    let text = text
        .trim_start_matches("TLS error:|")
        .trim_end_matches(":TLS error end");
    let (_, verified) = text
        .rsplit_once("verify cert failed: ")
        .unwrap_or(("", text));
    if let Some((_, names)) = verified.split_once("certificate SANs are ") {
        return format!("its certificate is for {names}");
    }
    let known = [
        ("certificate has expired", "its certificate has expired"),
        (
            "certificate is not yet valid",
            "its certificate is not valid yet",
        ),
        (
            "unable to get local issuer certificate",
            "its certificate is of a CA that the policy does not name",
        ),
        (
            "self-signed certificate",
            "its certificate is of a CA that the policy does not name",
        ),
        (
            "self signed certificate",
            "its certificate is of a CA that the policy does not name",
        ),
        ("WRONG VERSION NUMBER", "it does not speak TLS"),
        ("CERTIFICATE REQUIRED", "it asks for a client certificate"),
        (
            "UNSUPPORTED PROTOCOL",
            "it speaks another version of TLS than 1.2 and 1.3",
        ),
        (
            "TLSV1 ALERT PROTOCOL VERSION",
            "it speaks another version of TLS than 1.2 and 1.3",
        ),
    ];
    let found = known.iter().find(|(theirs, _)| text.contains(theirs));
    match found {
        Some((_, words)) => (*words).to_owned(),
        None => text
            .rsplit_once("connect error: ")
            .map_or(text, |(_, error)| error)
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == '|')
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_outcome::{CONNECTION_FAILED, NOT_VERIFIED};

    fn detail(transport: &str) -> String {
        let outcome = by_cause(NOT_VERIFIED).expect("an outcome");
        Failure::new(outcome, transport).detail
    }

    #[test]
    fn what_a_transport_says_is_put_in_words() {
        for (transport, words) in [
            (
                "TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: verify SAN list failed: \
                 does not match SAN matcher, certificate SANs are [backend.internal, b.example.org]:TLS_error_end",
                "its certificate is for [backend.internal, b.example.org]",
            ),
            (
                "TLS_error:|268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify cert failed: X509_verify_cert: certificate \
                 verification error at depth 0: certificate has expired:TLS_error_end",
                "its certificate has expired",
            ),
            (
                "TLS_error:|268435703:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER:TLS_error_end",
                "it does not speak TLS",
            ),
            (
                "delayed connect error: 111|Connection refused",
                "Connection refused",
            ),
            (
                "delayed connect error: Connection refused",
                "Connection refused",
            ),
            (
                "delayed_connect_error:_Connection_refused",
                "Connection refused",
            ),
            (
                "TLS_error:|268435581:SSL_routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify_cert_failed:_X509_verify_cert:_certificate_\
                 verification_error_at_depth_0:_certificate_has_expired:TLS_error_end",
                "its certificate has expired",
            ),
            ("", ""),
        ] {
            assert_eq!(detail(transport), words, "{transport}");
        }
    }

    #[test]
    fn a_backend_does_not_write_to_the_terminal() {
        let forged = detail(&format!(
            "certificate SANs are [\u{1b}[2J\n{}",
            "x".repeat(4096)
        ));
        assert!(!forged.chars().any(char::is_control), "{forged}");
        assert!(forged.len() < 300, "{}", forged.len());
    }

    #[test]
    fn a_refused_connection_ends_with_the_next_that_is_opened() {
        let of = |cause| Failure::new(by_cause(cause).expect("an outcome"), "");
        assert!(of(CONNECTION_FAILED).is_of_connection());
        assert!(of(NO_ENDPOINTS).is_of_connection());
        assert!(!of("upstream_response_timeout").is_of_connection());
    }
}
