//! Roots of trust for connections to a CA.

use rustls::{ClientConfig, RootCertStore};

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
        add(&mut RootCertStore::empty(), pem)
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
            // A damaged certificate of the machine is skipped; a trust store without any
            // certificate is an error.
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                return Err(HttpError::Roots(
                    "this machine has no trusted roots; install ca-certificates or give a CA bundle".to_owned(),
                ));
            }
        }
        if let Some(pem) = pem.filter(|pem| !pem.trim().is_empty()) {
            add(&mut store, pem).map_err(HttpError::Roots)?;
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

/// Adds the certificates of a bundle to the store.
fn add(store: &mut RootCertStore, pem: &str) -> Result<(), String> {
    let certificates = pki::bundle(pem.as_bytes())
        .map_err(|why| format!("expected certificates in PEM: {why}"))?;
    for (index, der) in certificates.into_iter().enumerate() {
        store.add(der).map_err(|error| {
            format!(
                "certificate {} cannot be a root of trust: {error}",
                index + 1
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_without_certificates_is_refused() {
        for pem in [
            "nonsense",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            assert!(
                matches!(
                    Roots::Pem(pem.to_owned()).client_config(),
                    Err(HttpError::Roots(_))
                ),
                "{pem}"
            );
            assert!(Roots::check(pem).is_err(), "{pem}");
        }
    }
}
