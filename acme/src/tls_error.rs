//! Errors of TLS in the words of a person, where rustls has those of its own types.

/// What rustls says, and what it means. The text after the first is of no use to anybody.
const MEANINGS: [(&str, &str); 5] = [
    (
        "CaUsedAsEndEntity",
        "the server shows a CA certificate as its own (basicConstraints CA:TRUE); give it one that the CA signed for its name",
    ),
    (
        "UnsupportedSignatureAlgorithm",
        "it is signed by an algorithm that is not supported; expected ECDSA on P-256 or P-384 with SHA-256 or SHA-384, RSA \
         of 2048 bits and more with SHA-256 and above, or Ed25519",
    ),
    ("UnsupportedCertVersion", "it is not X.509 version 3"),
    ("BadEncoding", "it cannot be decoded"),
    (
        "UnhandledCriticalExtension",
        "it has a critical extension that is not supported",
    ),
];
/// The start of the messages about certificates of servers; the kind of a failure depends on it.
const CERTIFICATE: &str = "invalid peer certificate: ";
const CUT: &str = "peer closed connection without sending TLS close_notify";

/// Replaces what rustls says about the certificate of a server, or about a connection that was cut.
pub(crate) fn in_words(text: String) -> String {
    if let Some(at) = text.find(CUT) {
        return format!(
            "{}the connection was closed in the middle of an exchange (no TLS close_notify)",
            &text[..at]
        );
    }
    let Some(at) = text.find(CERTIFICATE).map(|at| at + CERTIFICATE.len()) else {
        return text;
    };
    match MEANINGS.iter().find(|(said, _)| text[at..].contains(said)) {
        Some((_, meaning)) => format!("{}{meaning}", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types_are_told_in_words() {
        fn told(said: &str) -> String {
            in_words(format!("client error (Connect): {said}"))
        }
        let ca = told("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))");
        assert!(
            ca.starts_with(
                "client error (Connect): invalid peer certificate: the server shows a CA"
            ),
            "{ca}"
        );
        let algorithm =
            told("invalid peer certificate: UnsupportedSignatureAlgorithmContext { id: [6, 8] }");
        assert!(
            algorithm.contains("signed by an algorithm") && !algorithm.contains("Context"),
            "{algorithm}"
        );
        let cut =
            told("peer closed connection without sending TLS close_notify: https://docs.rs/rustls");
        assert!(
            cut.contains("closed in the middle") && !cut.contains("docs.rs"),
            "{cut}"
        );
        assert_eq!(
            in_words("connection refused".to_owned()),
            "connection refused"
        );
    }
}
