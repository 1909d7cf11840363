//! TLS configuration of the servers of this program, from PEM.

use std::sync::Arc;

use rustls::{ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// The reason for which there is no TLS configuration. It quotes nothing of a key.
#[derive(Debug, thiserror::Error)]
pub enum ServerTlsError {
    /// The certificates cannot be read.
    #[error("the certificates cannot be read: {0}")]
    Chain(#[from] pki::PemError),
    /// The key cannot be read.
    #[error("the key cannot be read: {0}")]
    Key(#[from] pki::KeyError),
    /// Certificate and key do not match, or are of an unsupported type.
    #[error("{0}")]
    Pair(#[from] rustls::Error),
}

/// Creates the TLS configuration of a server without client authentication, from the chain (leaf
/// first) and the key, both as PEM.
///
/// # Errors
/// When they cannot be parsed, or do not match.
pub fn server_tls(
    chain: &[u8],
    key: &[u8],
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ServerConfig>, ServerTlsError> {
    let chain = pki::certificates(chain)?;
    let key = pki::PrivateKey::from_pem(key)?.pkcs8().to_vec();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}
