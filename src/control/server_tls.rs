//! TLS configuration of the servers of this program, from PEM.

use std::sync::Arc;

use rustls::{ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The reason for which there is no TLS configuration. It quotes nothing of a key.
#[derive(Debug, thiserror::Error)]
pub enum ServerTlsError {
    /// The certificates cannot be read.
    #[error("the certificates are not PEM")]
    Chain,
    /// The key cannot be read.
    #[error("the key is not a private key in PEM")]
    Key,
    /// Certificate and key do not match, or are of an unsupported type.
    #[error("{0}")]
    Pair(#[from] rustls::Error),
}

/// Creates the TLS configuration of a server without client authentication, from the chain (leaf first) and the key,
/// both as PEM.
///
/// # Errors
/// When they cannot be parsed, or do not match.
pub fn server_tls(
    chain: &[u8],
    key: &[u8],
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ServerConfig>, ServerTlsError> {
    let chain =
        CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>().map_err(|_| ServerTlsError::Chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| ServerTlsError::Key)?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}
