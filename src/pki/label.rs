//! Labels of PEM parts.

/// The content of a part, by its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// A certificate, under any label that OpenSSL reads one from.
    Certificate,
    /// A certificate followed by trust settings of OpenSSL.
    TrustedCertificate,
    /// A private key in a form that is read.
    PrivateKey(Form),
    /// A private key that cannot be used as it is.
    EncryptedKey,
    /// A private key in OpenSSH's format.
    OpenSshKey,
    /// A certificate revocation list (RFC 5280, 5).
    RevocationList,
    /// Several certificates in one structure (RFC 5652).
    Pkcs7,
    /// What often stands beside certificates and keys, and is neither.
    Beside,
    /// Anything else.
    Unknown,
}

/// The encoding of a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// PKCS #8 (RFC 5958).
    Pkcs8,
    /// The encoding of elliptic curve keys (RFC 5915).
    Sec1,
    /// The encoding of RSA keys (RFC 8017).
    Pkcs1,
}

impl Label {
    pub(crate) fn of(text: &str) -> Self {
        match text {
            "CERTIFICATE" | "X509 CERTIFICATE" | "X.509 CERTIFICATE" => Self::Certificate,
            "TRUSTED CERTIFICATE" => Self::TrustedCertificate,
            "PRIVATE KEY" => Self::PrivateKey(Form::Pkcs8),
            "EC PRIVATE KEY" => Self::PrivateKey(Form::Sec1),
            "RSA PRIVATE KEY" => Self::PrivateKey(Form::Pkcs1),
            "ENCRYPTED PRIVATE KEY" => Self::EncryptedKey,
            "OPENSSH PRIVATE KEY" => Self::OpenSshKey,
            "X509 CRL" => Self::RevocationList,
            "PKCS7" | "PKCS #7 SIGNED DATA" | "CMS" => Self::Pkcs7,
            "EC PARAMETERS"
            | "DH PARAMETERS"
            | "X9.42 DH PARAMETERS"
            | "DSA PARAMETERS"
            | "DSA PRIVATE KEY"
            | "PUBLIC KEY"
            | "RSA PUBLIC KEY"
            | "CERTIFICATE REQUEST"
            | "NEW CERTIFICATE REQUEST" => Self::Beside,
            _ => Self::Unknown,
        }
    }
}
