//! ConfigMaps, of which only a bundle of CA certificates is kept.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap as K8sConfigMap;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::Meta;
use crate::model::{ObjectName, encode_pem, problem_of_pem, x509};

/// The key of a ConfigMap with CA certificates (Gateway API, `caCertificateRefs`).
const KEY: &str = "ca.crt";
/// The last line of a certificate as we write it.
const END: &str = "-----END CERTIFICATE-----\n";

/// A ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMap {
    /// Its name.
    pub name: ObjectName,
    /// The certificates under `ca.crt`, or why there are none.
    pub bundle: Result<Arc<CaBundle>, CaBundleError>,
}

/// CA certificates, each of them X.509, without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaBundle {
    /// The certificates in PEM, without the text between them.
    pub pem: Arc<str>,
    /// The number of certificates.
    pub count: usize,
}

/// Why an object holds no CA certificates, with the field that should hold them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaBundleError {
    /// The key is missing.
    #[error("has no key {KEY}")]
    Missing,
    /// The field contains no certificate.
    #[error("{0} has no certificate in PEM")]
    Empty(&'static str),
    /// Not PEM.
    #[error("{0} is not PEM: {1}")]
    Pem(&'static str, &'static str),
    /// A certificate is not X.509.
    #[error("certificate {1} of {0} is not X.509: {2}")]
    Certificate(&'static str, usize, String),
    /// The object could not be read.
    #[error("cannot be read: {0}")]
    Unread(String),
}

impl ConfigMap {
    pub(super) fn read(meta: Meta, object: K8sConfigMap) -> Self {
        let text = object.data.and_then(|mut data| data.remove(KEY)).map(String::into_bytes);
        let bytes = text.or_else(|| object.binary_data.and_then(|mut data| data.remove(KEY)).map(|bytes| bytes.0));
        let bundle = bytes.ok_or(CaBundleError::Missing).and_then(|bytes| CaBundle::parse(&bytes, KEY)).map(Arc::new);
        Self { name: meta.name, bundle }
    }

    /// A ConfigMap without a usable bundle, and why.
    pub fn without(name: ObjectName, why: CaBundleError) -> Self {
        Self { name, bundle: Err(why) }
    }
}

impl CaBundle {
    /// The certificates of several bundles, without duplicates.
    pub fn join(bundles: &[Arc<CaBundle>]) -> Self {
        let blocks = bundles.iter().flat_map(|bundle| bundle.pem.split_inclusive(END));
        let mut seen = BTreeSet::new();
        let blocks: Vec<&str> = blocks.filter(|block| seen.insert(*block)).collect();
        Self { pem: blocks.concat().into(), count: blocks.len() }
    }

    /// Reads the certificates from PEM text of the field `place`. Leaves out all other blocks, above all private keys:
    /// the text goes to Envoys.
    ///
    /// # Errors
    /// When there is no certificate, or an unreadable one: Envoy would refuse the whole bundle.
    pub fn parse(text: &[u8], place: &'static str) -> Result<Self, CaBundleError> {
        let ders = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
        let ders = ders.map_err(|error| CaBundleError::Pem(place, problem_of_pem(&error)))?;
        let (mut seen, mut pem) = (BTreeSet::new(), String::new());
        for (index, der) in ders.iter().enumerate() {
            x509(der).map_err(|why| CaBundleError::Certificate(place, index + 1, why))?;
            if seen.insert(der.as_ref()) {
                pem.push_str(&encode_pem("CERTIFICATE", der));
            }
        }
        match seen.len() {
            0 => Err(CaBundleError::Empty(place)),
            count => Ok(Self { pem: pem.into(), count }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(name: &str) -> String {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&key).expect("a certificate").pem()
    }

    #[test]
    fn certificates_are_kept_once_each_and_nothing_else_is() {
        let (one, two) = (root("one"), root("two"));
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        let bundle = CaBundle::parse(format!("a word\n{one}\n{key}{two}{one}").as_bytes(), KEY).expect("a bundle");
        assert_eq!(bundle.count, 2);
        assert!(!bundle.pem.contains("PRIVATE") && !bundle.pem.contains("word"));
        assert_eq!(CaBundle::parse(bundle.pem.as_bytes(), KEY), Ok(bundle));
    }

    #[test]
    fn a_bundle_without_certificates_states_the_reason() {
        let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        let why = |text: &str| CaBundle::parse(text.as_bytes(), KEY).expect_err("no bundle").to_string();
        assert_eq!(why(""), "ca.crt has no certificate in PEM");
        assert_eq!(why("nonsense"), "ca.crt has no certificate in PEM");
        assert!(why(&pem("%%%")).starts_with("ca.crt is not PEM: "), "{}", why(&pem("%%%")));
        // A key without its line feeds, as YAML folds it, or without the first one.
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        assert_eq!(why(&key.replace('\n', " ")), "ca.crt is not PEM: a section has no END line");
        let told = why(&key.replacen('\n', " ", 1));
        assert_eq!(told, "ca.crt is not PEM: a BEGIN line does not end with five hyphens");
        let second = root("one") + &pem("AAAA");
        assert!(why(&second).starts_with("certificate 2 of ca.crt is not X.509: "), "{}", why(&second));
    }
}
