//! TLS parameters of listeners.

/// TLS protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2
    V1_2,
    /// TLS 1.3
    V1_3,
}

/// TLS parameters from `tls.options` of a listener, keys under `gatewright.io/`. Empty lists mean
/// the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TlsParams {
    /// Lowest version; TLS 1.2 when absent.
    pub min: Option<TlsVersion>,
    /// Highest version; TLS 1.3 when absent.
    pub max: Option<TlsVersion>,
    /// Cipher suites for TLS 1.2, in BoringSSL's names.
    pub ciphers: Vec<String>,
    /// Key exchange groups, in order of preference; `X25519MLKEM768, X25519, P-256` when empty.
    pub curves: Vec<String>,
    /// Signature algorithms, in BoringSSL's names.
    pub signature_algorithms: Vec<String>,
}
