//! Why a TLS handshake with a client failed, by what BoringSSL says of it.

use crate::request_outcome::{RequestOutcome, by_cause};

/// The cause of a failed handshake that no other cause is known of.
pub(crate) const FAILED: &str = "handshake_failed";
/// The cause where the client ended it because of the certificate.
pub(crate) const CERTIFICATE_REFUSED: &str = "handshake_certificate_refused";
/// The cause where a certificate of the client is required and it sent none.
pub(crate) const CLIENT_CERTIFICATE_MISSING: &str = "handshake_client_certificate_missing";
/// The cause where the certificate of the client is not accepted.
pub(crate) const CLIENT_CERTIFICATE_REFUSED: &str = "handshake_client_certificate_refused";
/// The cause where both have no version of TLS in common.
pub(crate) const NO_COMMON_VERSION: &str = "handshake_no_common_version";
/// The cause where both have no cipher suite, group or signature algorithm in common.
pub(crate) const NO_COMMON_CIPHER: &str = "handshake_no_common_cipher";
/// The cause where the client does not speak TLS.
pub(crate) const NOT_TLS: &str = "handshake_not_tls";

/// Names of errors and alerts of BoringSSL (`ssl.errordata`), with the cause.
const KNOWN: [(&str, &str); 18] = [
    ("ALERT_UNKNOWN_CA", CERTIFICATE_REFUSED),
    ("ALERT_BAD_CERTIFICATE", CERTIFICATE_REFUSED),
    ("ALERT_CERTIFICATE_UNKNOWN", CERTIFICATE_REFUSED),
    ("ALERT_CERTIFICATE_EXPIRED", CERTIFICATE_REFUSED),
    ("ALERT_CERTIFICATE_REVOKED", CERTIFICATE_REFUSED),
    ("ALERT_UNSUPPORTED_CERTIFICATE", CERTIFICATE_REFUSED),
    (
        "PEER_DID_NOT_RETURN_A_CERTIFICATE",
        CLIENT_CERTIFICATE_MISSING,
    ),
    ("CERTIFICATE_VERIFY_FAILED", CLIENT_CERTIFICATE_REFUSED),
    ("UNSUPPORTED_PROTOCOL", NO_COMMON_VERSION),
    ("ALERT_PROTOCOL_VERSION", NO_COMMON_VERSION),
    ("NO_SHARED_CIPHER", NO_COMMON_CIPHER),
    ("NO_SHARED_GROUP", NO_COMMON_CIPHER),
    ("NO_COMMON_SIGNATURE_ALGORITHMS", NO_COMMON_CIPHER),
    ("ALERT_HANDSHAKE_FAILURE", NO_COMMON_CIPHER),
    ("ALERT_INSUFFICIENT_SECURITY", NO_COMMON_CIPHER),
    ("HTTP_REQUEST", NOT_TLS),
    ("HTTPS_PROXY_REQUEST", NOT_TLS),
    ("WRONG_VERSION_NUMBER", NOT_TLS),
];

/// The outcome of a handshake that failed with these words of the transport.
pub fn of_client(transport: &str) -> &'static RequestOutcome {
    let known = KNOWN.iter().find(|(error, _)| transport.contains(error));
    let cause = known.map_or(FAILED, |(_, cause)| cause);
    by_cause(cause).expect("the table has all causes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_an_outcome() {
        for (error, cause) in KNOWN {
            assert_eq!(Some(of_client(error)), by_cause(cause), "{error}");
        }
    }

    #[test]
    fn an_alert_of_the_client_is_about_the_certificate() {
        let transport = "TLS_error:|268436504:SSL routines:OPENSSL_internal:TLSV1_ALERT_UNKNOWN_CA:TLS_error_end";
        assert_eq!(of_client(transport).reason, "CertificateRefused");
        assert_eq!(of_client("").reason, "HandshakeFailed");
    }
}
