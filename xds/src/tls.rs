//! Certificates of the server and of its clients.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The PEM text holds no certificate, or no key.
    #[error("cannot read the {what}: {why}")]
    Read {
        /// What was to be read.
        what: &'static str,
        /// Why it was not.
        why: String,
    },
    /// A certificate could not be made.
    #[error("cannot issue a certificate for {name:?}: {why}")]
    Issue {
        /// For whom.
        name: String,
        /// Why not.
        why: String,
    },
    /// Certificate, key and roots do not fit together.
    #[error("cannot serve TLS: {0}")]
    Configure(String),
}

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub struct Pair {
    /// The chain, leaf first.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// Never the key.
impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair { .. }")
    }
}

/// A certificate authority that issues for xDS servers and their clients.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    key: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority { .. }")
    }
}

impl Authority {
    /// A new authority called `name`, valid for `ttl`.
    pub fn new(name: &str, ttl: Duration, now: SystemTime) -> Result<Authority, TlsError> {
        let fail = |e: rcgen::Error| TlsError::Issue { name: name.to_owned(), why: e.to_string() };
        let key = KeyPair::generate().map_err(fail)?;
        let mut params = params(name, ttl, now);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(fail)?.pem();
        let pem = key.serialize_pem();
        Ok(Authority { issuer: Issuer::new(params, key), certificate, key: pem })
    }

    /// The authority of an earlier [`Authority::pair`].
    pub fn load(pair: &Pair) -> Result<Authority, TlsError> {
        let fail = |e: rcgen::Error| TlsError::Read { what: "certificate authority", why: e.to_string() };
        let key = KeyPair::from_pem(&pair.key).map_err(fail)?;
        let issuer = Issuer::from_ca_cert_pem(&pair.certificate, key).map_err(fail)?;
        Ok(Authority { issuer, certificate: pair.certificate.clone(), key: pair.key.clone() })
    }

    /// The authority's own certificate and key, to be kept.
    pub fn pair(&self) -> Pair {
        Pair { certificate: self.certificate.clone(), key: self.key.clone() }
    }

    /// What others trust it by.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate for a server reached as `names` (host names or IP addresses).
    pub fn issue_server(&self, names: &[String], ttl: Duration, now: SystemTime) -> Result<Pair, TlsError> {
        let sans = names
            .iter()
            .map(|name| match name.parse() {
                Ok(ip) => Ok(SanType::IpAddress(ip)),
                Err(_) => name.as_str().try_into().map(SanType::DnsName),
            })
            .collect::<Result<_, _>>()
            .map_err(|e: rcgen::Error| TlsError::Issue { name: names.join(", "), why: e.to_string() })?;
        self.issue(names.first().map_or("xds", String::as_str), sans, ExtendedKeyUsagePurpose::ServerAuth, ttl, now)
    }

    /// A certificate for the client `identity`, a URI such as `spiffe://cluster.local/fleet/edge`.
    pub fn issue_client(&self, identity: &str, ttl: Duration, now: SystemTime) -> Result<Pair, TlsError> {
        let uri = identity
            .try_into()
            .map_err(|e: rcgen::Error| TlsError::Issue { name: identity.to_owned(), why: e.to_string() })?;
        self.issue(identity, vec![SanType::URI(uri)], ExtendedKeyUsagePurpose::ClientAuth, ttl, now)
    }

    fn issue(
        &self,
        name: &str,
        sans: Vec<SanType>,
        usage: ExtendedKeyUsagePurpose,
        ttl: Duration,
        now: SystemTime,
    ) -> Result<Pair, TlsError> {
        let fail = |e: rcgen::Error| TlsError::Issue { name: name.to_owned(), why: e.to_string() };
        let key = KeyPair::generate().map_err(fail)?;
        let mut params = params(name, ttl, now);
        params.subject_alt_names = sans;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.issuer).map_err(fail)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }
}

fn params(name: &str, ttl: Duration, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    // Clocks differ by a little.
    params.not_before = (now - Duration::from_secs(300)).into();
    params.not_after = (now + ttl).into();
    params
}

/// The TLS side of a server: what it shows and whom it trusts, replaceable while it runs.
#[derive(Clone)]
pub struct ServerTls(Arc<watch::Sender<Arc<ServerConfig>>>);

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls { .. }")
    }
}

impl ServerTls {
    /// Shows `pair`. A client certificate, when shown, must chain to `client_roots` (PEM); whether one is
    /// needed is the authenticator's business, which may take a token instead.
    pub fn new(pair: &Pair, client_roots: &str) -> Result<ServerTls, TlsError> {
        Ok(ServerTls(Arc::new(watch::Sender::new(Arc::new(config(pair, client_roots)?)))))
    }

    /// New connections see the new certificate and roots; those open go on.
    pub fn rotate(&self, pair: &Pair, client_roots: &str) -> Result<(), TlsError> {
        let config = Arc::new(config(pair, client_roots)?);
        self.0.send_replace(config);
        Ok(())
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.0.borrow().clone()
    }
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(TlsError::Read { what, why: "no certificate in the PEM text".into() }),
        Err(e) => Err(TlsError::Read { what, why: e.to_string() }),
    }
}

fn config(pair: &Pair, client_roots: &str) -> Result<ServerConfig, TlsError> {
    let chain = certificates("server certificate", &pair.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())
        .map_err(|e| TlsError::Read { what: "server key", why: e.to_string() })?;
    let mut roots = RootCertStore::empty();
    for root in certificates("client roots", client_roots)? {
        roots.add(root).map_err(|e| TlsError::Read { what: "client roots", why: e.to_string() })?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let configure = |e: &dyn fmt::Display| TlsError::Configure(e.to_string());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|e| configure(&e))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| configure(&e))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|e| configure(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would skip the check of the client's certificate against rotated roots.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
