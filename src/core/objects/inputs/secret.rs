//! Secrets with certificates, users, or the secret of a client, parsed and validated once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::Secret as K8sSecret;
use x509_parser::extensions::GeneralName;
use zeroize::Zeroizing;

use super::chain_judgement::{ChainJudgement, Judged};
use super::htpasswd::{self, HTPASSWD_KEY, HTPASSWD_TYPE, UsersError};
use super::oidc_client::{self, CLIENT_SECRET_KEY, ClientSecretError, OIDC_CLIENT_TYPE};
use super::{Meta, ParseError};
use crate::model::{Certificate, Hostname, ObjectName, PrivateKey, SecretText, Users};

/// A Secret, of which only a TLS certificate, users, and small credentials are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Its name.
    pub name: ObjectName,
    /// The certificate in it, or why there is none.
    pub certificate: Result<Arc<Certificate>, SecretError>,
    /// The users in it, or why there are none.
    pub users: Result<Users, UsersError>,
    /// The secret of a client of OpenID Connect in it, or why there is none.
    pub client_secret: Result<SecretText, ClientSecretError>,
    /// The previous certificate, if the present one cannot be served: it is served until it
    /// expires. It is set by [`Secret::following`], never read from the object.
    pub last_good: Option<Arc<Certificate>>,
    /// The issuer of the certificate by the annotations: an issuer of ours, or [`CERT_MANAGER`].
    pub issued_by: Option<Arc<str>>,
    /// Credentials of DNS providers, if the Secret is small enough.
    credentials: Option<Arc<Credentials>>,
    judged: Judged,
}

/// Secret texts by key; `Debug` prints the keys alone.
#[derive(PartialEq, Eq)]
struct Credentials(BTreeMap<String, Zeroizing<String>>);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// The annotation that names the issuer of a certificate that we put into a Secret.
pub const ISSUED_BY: &str = "gatewright.io/issuer";
/// The annotation by which cert-manager names the Certificate that a Secret belongs to.
pub const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";
/// The issuer in place of any that cert-manager used.
pub const CERT_MANAGER: &str = "cert-manager";

/// The annotation with the serial number of the certificate that we put into a Secret: one with
/// another number is not ours.
pub const ISSUED_SERIAL: &str = "gatewright.io/serial";

/// Returns the issuer of the certificate in a Secret by its annotations; ours is valid only for the
/// serial number that is annotated with it.
pub fn issued_by<'a>(
    annotations: Option<&'a BTreeMap<String, String>>,
    certificate: &Certificate,
) -> Option<&'a str> {
    let annotations = annotations?;
    let is_it =
        says(ISSUED_SERIAL, annotations).is_none_or(|serial| serial == certificate.serial());
    says(ISSUED_BY, annotations)
        .filter(|_| is_it)
        .or_else(|| says(CERTIFICATE_NAME, annotations).map(|_| CERT_MANAGER))
}

fn says<'a>(key: &str, annotations: &'a BTreeMap<String, String>) -> Option<&'a str> {
    annotations.get(key).map(String::as_str)
}

/// The largest Secret, in bytes, that is kept for its credentials; those of DNS providers are
/// smaller.
const LARGEST_CREDENTIALS: usize = 16 << 10;

/// The largest RSA key that is served, in bits. A signature of 4096 bits takes 4 ms of an Envoy
/// worker, one of 7680 bits 32 ms; Envoy accepts up to 16384.
const LARGEST_RSA: usize = 4096;

/// Why a Secret holds no certificate to serve. No message contains key material.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The Secret has another type.
    #[error("has type {0:?}, expected kubernetes.io/tls")]
    Type(String),
    /// A key is missing.
    #[error("has no {0}")]
    Missing(&'static str),
    /// Not PEM, without a certificate, or too long.
    #[error("tls.crt: {0}")]
    Chain(#[from] pki::ChainError),
    /// Not PEM, or not a private key that Envoy serves with.
    #[error("tls.key: {0}")]
    Key(#[from] pki::KeyError),
    /// Envoy would serve with the key, at the cost of other hosts.
    #[error(
        "tls.key: RSA with {0} bits, at most {LARGEST_RSA} are served, because handshakes with larger keys delay those of \
         other hosts: use ECDSA on P-256, or RSA with 2048 bits"
    )]
    Costly(usize),
    /// Envoy does not load the certificate.
    #[error("tls.crt: {0}: Envoy does not load it")]
    Refused(pki::Finding),
    /// The key does not match the certificate.
    #[error("tls.key does not match the first certificate in tls.crt")]
    Mismatch,
    /// The Secret could not be read.
    #[error("cannot be read: {0}")]
    Unread(String),
    /// The files that the Secret has in place of data give no certificate.
    #[error("{0}")]
    Files(String),
}

impl Secret {
    pub(super) fn read(meta: Meta, object: K8sSecret) -> Result<Self, ParseError> {
        let mut data = object.data.unwrap_or_default();
        for (key, text) in object.string_data.unwrap_or_default() {
            data.insert(key, k8s_openapi::ByteString(text.into_bytes()));
        }
        let kind = object.type_.unwrap_or_else(|| "Opaque".to_owned());
        let certificate = if kind == "kubernetes.io/tls" {
            let part = |name: &'static str| {
                data.get(name)
                    .map(|b| b.0.as_slice())
                    .ok_or(SecretError::Missing(name))
            };
            part("tls.crt").and_then(|chain| parse_certificate(chain, part("tls.key")?))
        } else {
            Err(SecretError::Type(kind.clone()))
        };
        let has_users = kind == HTPASSWD_TYPE;
        let users = if has_users {
            data.get(HTPASSWD_KEY)
                .ok_or(UsersError::Missing)
                .and_then(|text| htpasswd::users(&text.0))
        } else {
            Err(UsersError::Type(kind.clone()))
        };
        let is_client = kind == OIDC_CLIENT_TYPE;
        let client_secret = if is_client {
            data.get(CLIENT_SECRET_KEY)
                .ok_or(ClientSecretError::Missing)
                .and_then(|text| oidc_client::client_secret(&text.0))
        } else {
            Err(ClientSecretError::Type(kind))
        };
        let size: usize = data.values().map(|bytes| bytes.0.len()).sum();
        let is_other = certificate.is_err() && !has_users && !is_client;
        let credentials = is_other && size <= LARGEST_CREDENTIALS && !data.is_empty();
        let credentials = credentials.then(|| {
            fn text(bytes: Vec<u8>) -> Option<Zeroizing<String>> {
                String::from_utf8(bytes).ok().map(Zeroizing::new)
            }
            Arc::new(Credentials(
                data.into_iter()
                    .filter_map(|(key, b)| Some((key, text(b.0)?)))
                    .collect(),
            ))
        });
        let annotations = object.metadata.annotations.as_ref();
        let issued_by = certificate
            .as_ref()
            .ok()
            .and_then(|certificate| issued_by(annotations, certificate));
        let issued_by = issued_by.map(Arc::from);
        Ok(Self {
            name: meta.name,
            certificate: certificate.map(Arc::new),
            users,
            client_secret,
            last_good: None,
            issued_by,
            credentials,
            judged: Judged::default(),
        })
    }

    /// A Secret with this certificate.
    pub fn with_certificate(name: ObjectName, certificate: Arc<Certificate>) -> Self {
        Self {
            certificate: Ok(certificate),
            ..Self::without(name, SecretError::Missing("tls.crt"))
        }
    }

    /// A Secret without a certificate, and why.
    pub fn without(name: ObjectName, why: SecretError) -> Self {
        let judged = Judged::default();
        let (users, client_secret) = match &why {
            SecretError::Unread(why) => (
                UsersError::Unread(why.clone()),
                ClientSecretError::Unread(why.clone()),
            ),
            SecretError::Files(why) => (UsersError::Files(why.clone()), ClientSecretError::Missing),
            _ => (UsersError::Missing, ClientSecretError::Missing),
        };
        Self {
            name,
            certificate: Err(why),
            users: Err(users),
            client_secret: Err(client_secret),
            last_good: None,
            issued_by: None,
            credentials: None,
            judged,
        }
    }

    /// This Secret, whose data are of files, with their names in what is wrong with it; `read` says
    /// why they cannot be read.
    pub fn of_files(self, files: &str, read: Result<(), String>) -> Self {
        if let Err(why) = read {
            return Self::without(self.name, SecretError::Files(why));
        }
        let certificate = self.certificate.map_err(|why| match why {
            why @ SecretError::Type(_) => why,
            why => SecretError::Files(format!("{why} ({files})")),
        });
        let users = self.users.map_err(|why| match why {
            why @ UsersError::Type(_) => why,
            why => UsersError::Files(format!("{why} ({files})")),
        });
        Self {
            certificate,
            users,
            ..self
        }
    }

    /// Judges the chain in it now, on the thread that reads the object.
    pub fn judge(&self) {
        // The judgement is kept beside the certificate.
        let _ = self.judgement();
    }

    /// The judgement of the chain in it; `None` for one of an issuer of ours, which is judged
    /// before it is stored.
    pub fn judgement(&self) -> Option<&ChainJudgement> {
        let is_ours = self
            .issued_by
            .as_deref()
            .is_some_and(|by| by != CERT_MANAGER);
        let brought = self.certificate.as_ref().ok().filter(|_| !is_ours);
        brought.map(|certificate| self.judged.of(certificate))
    }

    /// The certificate to serve at `now`: the present one, else the last good one; `None` if both
    /// have expired.
    pub fn usable(&self, now: SystemTime) -> Option<&Arc<Certificate>> {
        let all = self
            .certificate
            .as_ref()
            .ok()
            .into_iter()
            .chain(&self.last_good);
        all.into_iter()
            .find(|certificate| certificate.not_after > now)
    }

    /// Returns this Secret as the successor of `before`: if its certificate cannot be served, it
    /// takes over the last good one.
    pub fn following(self, before: Option<&Secret>, now: SystemTime) -> Self {
        let is_good = self
            .certificate
            .as_ref()
            .is_ok_and(|certificate| certificate.not_after > now);
        let last_good = before
            .and_then(|before| before.usable(now))
            .filter(|_| !is_good)
            .cloned();
        Self { last_good, ..self }
    }

    /// The text under a key, of a Secret that was kept for its credentials.
    pub fn credential(&self, key: &str) -> Option<Zeroizing<String>> {
        self.credentials.as_ref()?.0.get(key).cloned()
    }
}

/// Parses a chain and a private key in PEM, and checks that Envoy can serve with them.
///
/// # Errors
/// When it cannot.
pub fn parse_certificate(chain: &[u8], key: &[u8]) -> Result<Certificate, SecretError> {
    let ders = pki::chain(chain)?;
    let (leaf_der, others) = ders
        .split_first()
        .expect("a chain that was read has a leaf");
    let leaf = pki::read(leaf_der).expect("it was read before");
    // Written anew: Envoy reads PEM differently, and whatever else stands in the text, keys above
    // all, is not for it.
    let issuers: String = others
        .iter()
        .map(|der| pki::encode("CERTIFICATE", der))
        .collect();
    let private = pki::PrivateKey::from_pem(key)?;
    if let Some(bits) = private
        .public()
        .rsa_bits()
        .filter(|bits| *bits > LARGEST_RSA)
    {
        return Err(SecretError::Costly(bits));
    }
    if let Some(finding) = pki::unloadable(&leaf) {
        return Err(SecretError::Refused(finding));
    }
    if !private.is_of(&leaf) {
        return Err(SecretError::Mismatch);
    }
    let mut names: Vec<Hostname> = leaf
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|extension| &extension.value.general_names)
        .into_iter()
        .flatten()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Hostname::parse(&name.to_ascii_lowercase()).ok(),
            _ => None,
        })
        .collect();
    names.sort();
    names.dedup();
    names.shrink_to_fit();
    let pki::Validity { from, until } = pki::validity(&leaf);
    Ok(Certificate {
        leaf: Arc::from(leaf_der.as_ref()),
        issuers: issuers.into(),
        key: PrivateKey::new(private.pkcs8()),
        names,
        not_before: from,
        not_after: until,
        issuer: Arc::from(leaf.issuer().to_string()),
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    #[test]
    fn a_key_at_the_wrong_place_is_in_no_message() {
        let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\"evZzL1gdAFr88hb2\n";
        let line = key.lines().nth(1).expect("there is one");
        let told = |fields: serde_json::Value| {
            let mut object = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
            object
                .as_object_mut()
                .expect("an object")
                .extend(fields.as_object().expect("an object").clone());
            super::super::Object::parse(object)
                .expect_err("it is wrong")
                .to_string()
        };
        let as_text = told(serde_json::json!({"stringData": key}));
        assert_eq!(as_text, "stringData: expected an object, found (not shown)");
        assert_eq!(
            told(serde_json::json!({line: 1})),
            "unknown field (not shown)"
        );
        assert_eq!(told(serde_json::json!({"datas": 1})), "unknown field datas");
        for fields in [
            serde_json::json!({"data": {"tls.key": key}}),
            serde_json::json!({"data": key}),
            serde_json::json!({"type": [key]}),
            serde_json::json!({"stringData": {"tls.key": {line: key}}}),
            serde_json::json!({"immutable": key}),
            serde_json::json!({"metadata": {"name": "a", "labels": key}}),
        ] {
            let told = told(fields.clone());
            assert!(
                !told.contains("MIGH") && !told.contains("evZz"),
                "{fields}: {told}"
            );
        }
    }

    #[test]
    fn envoy_gets_certificates_and_nothing_else_that_stands_between_them() {
        let root_key = KeyPair::generate().expect("a key");
        let key = KeyPair::generate().expect("a key");
        let mut root = CertificateParams::new(vec!["root.example".to_owned()]).expect("a name");
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_pem = root.self_signed(&root_key).expect("a root").pem();
        let leaf = CertificateParams::new(vec!["a.example.org".to_owned()]).expect("a name");
        let leaf = leaf
            .signed_by(&key, &Issuer::new(root, root_key))
            .expect("a certificate")
            .pem();
        let (leaf, root_pem) = (leaf.replace("\r\n", "\n"), root_pem.replace("\r\n", "\n"));
        let key = key.serialize_pem();
        fn parse(chain: &str, key: &str) -> Result<Certificate, SecretError> {
            parse_certificate(chain.as_bytes(), key.as_bytes())
        }
        let plain = parse(&format!("{leaf}{root_pem}"), &key).expect("a chain");
        assert_eq!(plain.chain(), format!("{leaf}{root_pem}"));
        let end = "-----END CERTIFICATE-----\n";
        for odd in [
            format!("a word\n{leaf}{key}{root_pem}"),
            format!("{end}{leaf}another\n{root_pem}{end}"),
        ] {
            assert_eq!(parse(&odd, &key), Ok(plain.clone()), "{odd}");
        }
        // A key at the place of the chain.
        let told = |text: &str| parse(text, &key).expect_err("no chain").to_string();
        assert_eq!(
            told(&key),
            "tls.crt: no certificate in PEM in it, only PRIVATE KEY"
        );
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let told = told(&format!("{leaf}{broken}"));
        assert!(
            told.starts_with("tls.crt: part 2 (line ")
                && told.contains("is no X.509 certificate: "),
            "{told}"
        );
        // No line end between the two.
        let glued = parse(&format!("{}{root_pem}", leaf.trim_end()), &key);
        assert_eq!(glued, Ok(plain), "both are read");
    }
}
