//! Certificates of listeners, and the names of secrets in SDS.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::{FrontendId, Hostname, ObjectName, RootsName, TlsParams};

/// A private key. Has no `Debug` that prints it, and is compared by value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PrivateKey(Arc<[u8]>);

impl PrivateKey {
    /// Wraps the encoding of a key in PKCS #8 (RFC 5958).
    pub fn new(pkcs8: &[u8]) -> Self {
        Self(pkcs8.into())
    }

    /// The PEM text; only the code that sends the key to Envoy calls it.
    pub fn expose(&self) -> String {
        pki::encode("PRIVATE KEY", &self.0)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[private key]")
    }
}

/// A certificate chain with its key, validated: the key matches the leaf, and the chain parses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Certificate {
    /// The leaf in DER, which takes three quarters of the size of PEM.
    pub leaf: Arc<[u8]>,
    /// The rest of the chain in PEM, issuer by issuer; many leaves share it.
    pub issuers: Arc<str>,
    /// The leaf's key.
    pub key: PrivateKey,
    /// DNS names the leaf is valid for, sorted.
    pub names: Vec<Hostname>,
    /// Start of the leaf's validity.
    pub not_before: SystemTime,
    /// End of the leaf's validity.
    pub not_after: SystemTime,
    /// The leaf's issuer, as text for people.
    pub issuer: Arc<str>,
}

impl Certificate {
    /// The leaf's serial number in lower-case hex; empty if the leaf cannot be parsed. Parsed at
    /// each call: only people, and the replacement of a certificate, need it.
    pub fn serial(&self) -> String {
        let leaf = X509Certificate::from_der(&self.leaf).ok();
        let bytes = leaf
            .map(|(_, leaf)| leaf.raw_serial().to_vec())
            .unwrap_or_default();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bits of the leaf's key if that is one of RSA, whose signature is most of what a
    /// handshake costs. Parsed at each call.
    pub fn rsa_bits(&self) -> Option<usize> {
        let (_, leaf) = X509Certificate::from_der(&self.leaf).ok()?;
        match leaf.public_key().parsed().ok()? {
            PublicKey::RSA(key) => Some(key.key_size()),
            _ => None,
        }
    }

    /// The chain in PEM, leaf first.
    pub fn chain(&self) -> String {
        pki::encode("CERTIFICATE", &self.leaf) + &self.issuers
    }

    /// Why Envoy, or usual TLS clients, refuse the chain at a time.
    pub fn findings(&self, now: SystemTime) -> Vec<pki::Finding> {
        let issuers = pki::certificates(self.issuers.as_bytes()).unwrap_or_default();
        let chain: Vec<&[u8]> = std::iter::once(&*self.leaf)
            .chain(issuers.iter().map(|der| der.as_ref()))
            .collect();
        pki::judge(&chain, now)
    }
}

/// The name of a secret in SDS.
///
/// Envoy hangs a handshake when one name is used both on demand and by a regular SDS subscription;
/// the two kinds are therefore disjoint by construction: a hostname never contains a slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SecretName {
    /// The lower-case SNI of a handshake, requested through the `on_demand_secret` selector.
    Sni(Hostname),
    /// The certificate of a chain of one frontend that always serves the same one:
    /// `sds/<frontend>/<hostname>`.
    Fixed(FrontendId, Arc<str>),
    /// The client certificate of a Gateway, requested by clusters:
    /// `sds/client@<namespace>/<gateway>`. No frontend has an `@`.
    Client(ObjectName),
    /// The client roots, requested by chains that validate client certificates:
    /// `sds/roots@<gateway>` or `sds/roots@<gateway>:<port>`. No frontend has an `@`.
    Roots(RootsName),
    /// The secret of an AccessPolicy's client of a provider, requested by routes:
    /// `sds/oidc-client@<namespace>/<policy>`.
    ClientSecret(ObjectName),
    /// The key of the cookies of an AccessPolicy, requested by routes:
    /// `sds/oidc-cookies@<namespace>/<policy>`.
    CookieKey(ObjectName),
    /// The keys of session tickets of a host on a frontend, requested by the host's chain:
    /// `sds/tickets@<frontend>/<hostname>`. No frontend has an `@`.
    Tickets(FrontendId, Hostname),
}

impl SecretName {
    /// The names of the client secret and of the key of cookies of a policy.
    pub fn of_login(policy: &ObjectName) -> [Self; 2] {
        [Self::ClientSecret, Self::CookieKey].map(|name| name(policy.clone()))
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretName::Sni(host) => f.write_str(host.as_str()),
            SecretName::Fixed(frontend, name) => write!(f, "sds/{frontend}/{name}"),
            SecretName::Client(gateway) => write!(f, "sds/client@{gateway}"),
            SecretName::Roots(name) => write!(f, "sds/roots@{name}"),
            SecretName::ClientSecret(policy) => write!(f, "sds/oidc-client@{policy}"),
            SecretName::CookieKey(policy) => write!(f, "sds/oidc-cookies@{policy}"),
            SecretName::Tickets(frontend, host) => write!(f, "sds/tickets@{frontend}/{host}"),
        }
    }
}

/// One SDS secret: a certificate under the name Envoy asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Secret {
    /// The name in SDS.
    pub name: SecretName,
    /// The certificate with its key.
    pub certificate: Arc<Certificate>,
    /// TLS parameters that go with a certificate served by SNI; a fixed one has them in its chain.
    pub params: Arc<TlsParams>,
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn of(leaf: &[u8]) -> Certificate {
        Certificate {
            leaf: leaf.into(),
            issuers: "".into(),
            key: PrivateKey::new(&[]),
            names: Vec::new(),
            not_before: UNIX_EPOCH,
            not_after: UNIX_EPOCH,
            issuer: "".into(),
        }
    }

    #[test]
    fn rsa_keys_are_told_from_others() {
        let rsa = pki::certificates(include_bytes!("testdata/rsa-2048.pem")).expect("PEM");
        assert_eq!(of(&rsa[0]).rsa_bits(), Some(2048));
        let made = rcgen::generate_simple_self_signed(["a.example.org".to_owned()]);
        let ecdsa = made.expect("a certificate").cert;
        assert_eq!(of(ecdsa.der()).rsa_bits(), None);
    }
}
