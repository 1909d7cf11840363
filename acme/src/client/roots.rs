//! Whom to trust when talking to a CA.

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::HttpError;

/// The roots of trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// Those of the machine.
    System,
    /// Exactly these, in PEM.
    Pem(String),
    /// Those of the machine, and these.
    SystemAnd(String),
}

impl Roots {
    /// Whether a text is a bundle of certificates that can be trusted.
    ///
    /// # Errors
    /// Why not: it says nothing of where the text is from.
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
            // A single damaged certificate of the machine must not stop us; none at all must.
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
        // Named, so that it works whatever provider the process has installed, or none.
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        Ok(ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| HttpError::Roots(e.to_string()))?
            .with_root_certificates(store)
            .with_no_client_auth())
    }
}

/// Takes the certificates of a bundle in; how many there were.
fn add(store: &mut RootCertStore, pem: &str) -> Result<usize, String> {
    let mut count = 0;
    for der in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let der = der.map_err(|error| format!("expected certificates in PEM: {error}"))?;
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
