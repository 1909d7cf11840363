//! Roots of trust for connections to a CA.

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::HttpError;

/// The roots of trust for connections to a CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The trust store of the machine.
    System,
    /// Exactly these certificates, in PEM.
    Pem(String),
    /// The trust store of the machine, and these certificates.
    SystemAnd(String),
}

impl Roots {
    /// Checks that a text is a bundle of CA certificates in PEM.
    ///
    /// # Errors
    /// The problem; the text does not name the source of the bundle.
    pub fn check(pem: &str) -> Result<(), String> {
        match add(&mut RootCertStore::empty(), pem) {
            Ok(0) => Err("expected certificates in PEM, found none".to_owned()),
            added => added.map(drop),
        }
    }

    pub(super) fn client_config(&self) -> Result<ClientConfig, HttpError> {
        let mut store = RootCertStore::empty();
        let (system, pem) = match self {
            Self::System => (true, None),
            Self::Pem(pem) => (false, Some(pem)),
            Self::SystemAnd(pem) => (true, Some(pem)),
        };
        if system {
            let found = rustls_native_certs::load_native_certs();
            // A damaged certificate of the machine is skipped; a trust store without any certificate is an error.
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                return Err(HttpError::Roots(
                    "this machine has no trusted roots; install ca-certificates or give a CA bundle".to_owned(),
                ));
            }
        }
        if let Some(pem) = pem {
            let count = add(&mut store, pem).map_err(HttpError::Roots)?;
            if count == 0 && !pem.trim().is_empty() {
                return Err(HttpError::Roots("expected certificates in PEM, found none".to_owned()));
            }
        }
        // An explicit crypto provider works regardless of the process-wide default.
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        Ok(ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| HttpError::Roots(e.to_string()))?
            .with_root_certificates(store)
            .with_no_client_auth())
    }
}

/// Adds the certificates of a bundle to the store; returns their number.
fn add(store: &mut RootCertStore, pem: &str) -> Result<usize, String> {
    let mut count = 0;
    for der in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let der = der.map_err(|_| "expected certificates in PEM".to_owned())?;
        store.add(der).map_err(|error| format!("certificate {}: {error}", count + 1))?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_without_certificates_is_refused() {
        for pem in ["nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(Roots::Pem(pem.to_owned()).client_config(), Err(HttpError::Roots(_))), "{pem}");
            assert!(Roots::check(pem).is_err(), "{pem}");
        }
    }
}
