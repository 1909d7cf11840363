//! ConfigMaps: a bundle of CA certificates, and data that may be bodies of answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::ConfigMap as K8sConfigMap;

use super::configmap_data::ConfigMapData;
use super::{Meta, ParseError};
use crate::limits::{ObjectLimits, OverCaLimit};
use crate::model::ObjectName;

/// The key of a ConfigMap with CA certificates (Gateway API, `caCertificateRefs`).
const KEY: &str = "ca.crt";

/// A ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMap {
    /// Its name.
    pub name: ObjectName,
    /// The certificates under `ca.crt`, or why there are none.
    pub bundle: Result<Arc<CaBundle>, CaBundleError>,
    /// The values of the other keys; or why the ConfigMap cannot be read.
    pub data: Result<ConfigMapData, String>,
}

/// CA certificates, each of them X.509, without duplicates; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaBundle(Vec<CaCertificate>);

/// A CA certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaCertificate {
    /// The certificate in PEM.
    pub pem: Arc<str>,
    /// Start of its validity.
    pub not_before: SystemTime,
    /// End of its validity.
    pub not_after: SystemTime,
}

/// Why an object holds no CA certificates, with the field that should hold them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaBundleError {
    /// The key is missing.
    #[error("has no key {KEY}")]
    Missing,
    /// No certificate in PEM, or one that cannot be read.
    #[error("{0}: {1}")]
    Pem(&'static str, pki::PemError),
    /// More than one object may refer to. It is not kept.
    #[error("has {0}")]
    OverLimit(#[from] OverCaLimit),
    /// The object could not be read.
    #[error("cannot be read: {0}")]
    Unread(String),
}

impl ConfigMap {
    pub(super) fn read(meta: Meta, mut object: K8sConfigMap) -> Result<Self, ParseError> {
        let text = object
            .data
            .as_mut()
            .and_then(|data| data.remove(KEY))
            .map(String::into_bytes);
        let bytes = text.or_else(|| {
            object
                .binary_data
                .as_mut()
                .and_then(|data| data.remove(KEY))
                .map(|bytes| bytes.0)
        });
        let bundle = bytes
            .ok_or(CaBundleError::Missing)
            .and_then(|bytes| CaBundle::parse(&bytes, KEY))
            .map(Arc::new);
        Ok(Self {
            name: meta.name,
            bundle,
            data: Ok(ConfigMapData::of(object.data, object.binary_data)),
        })
    }

    /// A ConfigMap that could not be read, and why.
    pub fn without(name: ObjectName, why: CaBundleError) -> Self {
        Self {
            name,
            data: Err(why.to_string()),
            bundle: Err(why),
        }
    }
}

/// Drops a bundle that is over the limits: no object may refer to it. The error says why.
pub(super) fn drop_over_limit(
    bundle: &mut Result<Arc<CaBundle>, CaBundleError>,
    limits: &ObjectLimits,
) {
    if let Ok(found) = bundle
        && let Err(over) = limits.check_ca_certificates(found.size())
    {
        *bundle = Err(over.into());
    }
}

impl CaBundle {
    /// A bundle of these certificates.
    pub fn new(certificates: Vec<CaCertificate>) -> Self {
        Self(certificates)
    }

    /// Reads the certificates from PEM text of the field `place`. Leaves out private keys above
    /// all: the text goes to Envoys.
    ///
    /// # Errors
    /// When there is no certificate, or an unreadable one: Envoy would refuse the whole bundle.
    pub fn parse(text: &[u8], place: &'static str) -> Result<Self, CaBundleError> {
        let ders = pki::bundle(text).map_err(|why| CaBundleError::Pem(place, why))?;
        let certificates = ders.iter().map(|der| {
            let validity = pki::validity(&pki::read(der).expect("it was read before"));
            let pem = pki::encode("CERTIFICATE", der).into();
            CaCertificate {
                pem,
                not_before: validity.from,
                not_after: validity.until,
            }
        });
        Ok(Self(certificates.collect()))
    }

    /// The number of certificates.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The bytes of all certificates in PEM.
    pub fn size(&self) -> usize {
        self.0.iter().map(|certificate| certificate.pem.len()).sum()
    }

    /// The times at which a certificate begins or ceases to be valid.
    pub fn times(&self) -> impl Iterator<Item = SystemTime> {
        self.0
            .iter()
            .flat_map(|certificate| [certificate.not_before, certificate.not_after])
    }

    /// The certificates to trust at a time: the valid ones. Envoy takes the first that has the name
    /// of an issuer, and refuses everybody if that one has ended, whatever stands behind it. Those
    /// that are not valid yet are returned where none is: clocks differ.
    ///
    /// # Errors
    /// When all of them have ended; the time of the last end.
    pub fn trusted(&self, now: SystemTime) -> Result<Vec<&CaCertificate>, SystemTime> {
        let left = || {
            self.0
                .iter()
                .filter(|certificate| certificate.not_after > now)
        };
        let valid: Vec<_> = left()
            .filter(|certificate| certificate.not_before <= now)
            .collect();
        let trusted = if valid.is_empty() {
            left().collect()
        } else {
            valid
        };
        match self.0.iter().map(|certificate| certificate.not_after).max() {
            Some(end) if trusted.is_empty() => Err(end),
            _ => Ok(trusted),
        }
    }

    /// The certificates of several bundles to trust at a time, in PEM and without duplicates.
    pub fn join(bundles: &[Arc<CaBundle>], now: SystemTime) -> String {
        let mut seen = BTreeSet::new();
        let trusted = bundles
            .iter()
            .filter_map(|bundle| bundle.trusted(now).ok())
            .flatten();
        trusted
            .filter(|certificate| seen.insert(&*certificate.pem))
            .map(|certificate| &*certificate.pem)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn root(name: &str) -> String {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&key).expect("a certificate").pem()
    }

    #[test]
    fn certificates_are_kept_once_each_and_nothing_else_is() {
        let one = root("one");
        let two = root("two");
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        let bundle = CaBundle::parse(format!("a word\n{one}\n{key}{two}{one}").as_bytes(), KEY)
            .expect("a bundle");
        assert_eq!(bundle.count(), 2, "each stands in it once");
        let text = CaBundle::join(&[Arc::new(bundle.clone())], SystemTime::now());
        assert!(
            !text.contains("PRIVATE") && !text.contains("word"),
            "{text}"
        );
        assert_eq!(
            CaBundle::parse(text.as_bytes(), KEY),
            Ok(bundle),
            "what is written is read"
        );
    }

    #[test]
    fn a_bundle_without_certificates_states_the_reason() {
        fn pem(body: &str) -> String {
            format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
        }
        let why = |text: &str| {
            CaBundle::parse(text.as_bytes(), KEY)
                .expect_err("no bundle")
                .to_string()
        };
        assert_eq!(why(""), "ca.crt: no certificate in PEM in it");
        assert_eq!(why("nonsense"), "ca.crt: no certificate in PEM in it");
        assert_eq!(why(&pem("%%%")), "ca.crt: part 1 (line 1) is not base64");
        let second = why(&(root("one").replace("\r\n", "\n") + &pem("AAAA")));
        assert!(
            second.starts_with("ca.crt: part 2 (line ") && second.contains("is no X.509"),
            "{second}"
        );
    }

    #[test]
    fn a_bundle_over_the_limits_is_dropped_and_one_at_the_limits_is_kept() {
        let text: String = (0..3).map(|number| root(&format!("ca-{number}"))).collect();
        let bundle = CaBundle::parse(text.as_bytes(), KEY).map(Arc::new);
        let size = bundle.as_ref().expect("a bundle").size();
        fn within(
            ca_kib: usize,
            bundle: &Result<Arc<CaBundle>, CaBundleError>,
        ) -> Result<usize, String> {
            let mut bundle = bundle.clone();
            let limits = ObjectLimits {
                ca_kib,
                ..ObjectLimits::default()
            };
            drop_over_limit(&mut bundle, &limits);
            bundle
                .map(|bundle| bundle.count())
                .map_err(|why| why.to_string())
        }
        let kib = size.div_ceil(1024);
        assert_eq!(within(kib, &bundle), Ok(3));
        let told = format!(
            "has {kib} KiB of certificates, limits.object.caKib is {}",
            kib - 1
        );
        assert_eq!(within(kib - 1, &bundle), Err(told));
    }

    #[test]
    fn ended_certificates_are_left_out_beside_valid_ones() {
        fn at(day: u64) -> SystemTime {
            SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * day)
        }
        fn certificate(pem: &str, days: (u64, u64)) -> CaCertificate {
            CaCertificate {
                pem: pem.into(),
                not_before: at(days.0),
                not_after: at(days.1),
            }
        }
        let old = certificate("old", (0, 10));
        let new = certificate("new", (5, 20));
        for bundle in [
            CaBundle::new(vec![old.clone(), new.clone()]),
            CaBundle::new(vec![new, old]),
        ] {
            fn names(day: u64, bundle: &CaBundle) -> Vec<String> {
                let trusted = bundle.trusted(at(day)).expect("some are valid").into_iter();
                let mut names: Vec<_> = trusted
                    .map(|certificate| certificate.pem.to_string())
                    .collect();
                names.sort();
                names
            }
            assert_eq!(names(1, &bundle), ["old"], "the new one is not valid yet");
            assert_eq!(names(7, &bundle), ["new", "old"], "both are valid");
            assert_eq!(names(10, &bundle), ["new"], "the old one has ended");
            assert_eq!(bundle.trusted(at(20)), Err(at(20)), "none is left");
        }
    }
}
