//! TLS: certificates of the server and of its clients, their authority, rotation and revocation.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio::sync::watch;

use crate::Fingerprint;
use crate::identity::names;

/// The error of certificates.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The PEM text has no certificate, or no key.
    #[error("cannot read the {what}: {why}")]
    Read {
        /// The text that was to be read.
        what: &'static str,
        /// The cause.
        why: String,
    },
    /// A certificate could not be issued.
    #[error("cannot issue a certificate for {name:?}: {why}")]
    Issue {
        /// The subject.
        name: String,
        /// The cause.
        why: String,
    },
    /// Certificate, key and roots do not match.
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

/// Omits the key.
impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair { .. }")
    }
}

/// A private key with its certificate signing request (PKCS #10), in PEM.
#[derive(Clone)]
pub struct CertificateRequest {
    /// The certificate signing request, for the signer.
    pub request: String,
    /// The private key.
    pub key: String,
}

/// Omits the key.
impl fmt::Debug for CertificateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateRequest { .. }")
    }
}

impl CertificateRequest {
    /// Makes a new key, and a request without a subject: the signer decides on it.
    pub fn new() -> Result<CertificateRequest, TlsError> {
        fn fail(e: rcgen::Error) -> TlsError {
            TlsError::Issue {
                name: "a request".to_owned(),
                why: e.to_string(),
            }
        }
        let key = KeyPair::generate().map_err(fail)?;
        let request = CertificateParams::default()
            .serialize_request(&key)
            .and_then(|made| made.pem())
            .map_err(fail)?;
        Ok(CertificateRequest {
            request,
            key: key.serialize_pem(),
        })
    }
}

/// Backdating of a certificate's `notBefore`, because clocks differ.
pub const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// A certificate authority for xDS servers and their clients.
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
    /// Makes a new authority called `name`, valid for `ttl`. Authorities that are trusted together
    /// need different names: a client may find the root of a certificate by the name of its issuer
    /// alone.
    pub fn new(name: &str, ttl: Duration, now: SystemTime) -> Result<Authority, TlsError> {
        let fail = |e: rcgen::Error| TlsError::Issue {
            name: name.to_owned(),
            why: e.to_string(),
        };
        let key = KeyPair::generate().map_err(fail)?;
        let mut params = params(name, ttl, now);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(fail)?.pem();
        let pem = key.serialize_pem();
        Ok(Authority {
            issuer: Issuer::new(params, key),
            certificate,
            key: pem,
        })
    }

    /// Loads the authority of an earlier [`Authority::pair`].
    pub fn load(pair: &Pair) -> Result<Authority, TlsError> {
        fn fail(e: rcgen::Error) -> TlsError {
            TlsError::Read {
                what: "certificate authority",
                why: e.to_string(),
            }
        }
        let key = KeyPair::from_pem(&pair.key).map_err(fail)?;
        let issuer = Issuer::from_ca_cert_pem(&pair.certificate, key).map_err(fail)?;
        Ok(Authority {
            issuer,
            certificate: pair.certificate.clone(),
            key: pair.key.clone(),
        })
    }

    /// Returns the authority's certificate and key, to be persisted.
    pub fn pair(&self) -> Pair {
        Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
        }
    }

    /// Returns the authority's certificate, the root that others trust.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns true if this client certificate (PEM, leaf first) was issued by this authority and
    /// is valid now.
    pub fn issued_client(&self, certificate: &str, now: SystemTime) -> bool {
        let chain = certificates("client certificate", certificate);
        let verifier = verifier(&self.certificate, Clients::Certified, Revoked::default());
        chain
            .and_then(|chain| Ok(is_trusted(&*verifier?, &chain, now)))
            .unwrap_or(false)
    }

    /// Issues a certificate for a server with these host names or IP addresses.
    pub fn issue_server(
        &self,
        names: &[String],
        ttl: Duration,
        now: SystemTime,
    ) -> Result<Pair, TlsError> {
        let sans = names
            .iter()
            .map(|name| match name.parse() {
                Ok(ip) => Ok(SanType::IpAddress(ip)),
                Err(_) => name.as_str().try_into().map(SanType::DnsName),
            })
            .collect::<Result<_, _>>()
            .map_err(|e: rcgen::Error| TlsError::Issue {
                name: names.join(", "),
                why: e.to_string(),
            })?;
        self.issue(
            names.first().map_or("xds", String::as_str),
            sans,
            ExtendedKeyUsagePurpose::ServerAuth,
            ttl,
            now,
        )
    }

    /// Issues a certificate for the client `identity`, a URI such as
    /// `spiffe://cluster.local/fleet/edge`.
    pub fn issue_client(
        &self,
        identity: &str,
        ttl: Duration,
        now: SystemTime,
    ) -> Result<Pair, TlsError> {
        self.issue(
            identity,
            vec![uri(identity)?],
            ExtendedKeyUsagePurpose::ClientAuth,
            ttl,
            now,
        )
    }

    /// Issues a certificate for the client `identity`, a URI, and the key of a
    /// [`CertificateRequest`], whose signature proves possession of the key. Only the key is taken
    /// from the request.
    pub fn sign_client(
        &self,
        request: &str,
        identity: &str,
        ttl: Duration,
        now: SystemTime,
    ) -> Result<String, TlsError> {
        let fail = |e: rcgen::Error| TlsError::Issue {
            name: identity.to_owned(),
            why: e.to_string(),
        };
        let key = CertificateSigningRequestParams::from_pem(request)
            .map_err(|e| TlsError::Read {
                what: "certificate request",
                why: e.to_string(),
            })?
            .public_key;
        let params = leaf(
            identity,
            vec![uri(identity)?],
            ExtendedKeyUsagePurpose::ClientAuth,
            ttl,
            now,
        );
        Ok(params.signed_by(&key, &self.issuer).map_err(fail)?.pem())
    }

    fn issue(
        &self,
        name: &str,
        sans: Vec<SanType>,
        usage: ExtendedKeyUsagePurpose,
        ttl: Duration,
        now: SystemTime,
    ) -> Result<Pair, TlsError> {
        let fail = |e: rcgen::Error| TlsError::Issue {
            name: name.to_owned(),
            why: e.to_string(),
        };
        let key = KeyPair::generate().map_err(fail)?;
        let certificate = leaf(name, sans, usage, ttl, now)
            .signed_by(&key, &self.issuer)
            .map_err(fail)?
            .pem();
        Ok(Pair {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

fn uri(identity: &str) -> Result<SanType, TlsError> {
    identity
        .try_into()
        .map(SanType::URI)
        .map_err(|e| TlsError::Issue {
            name: identity.to_owned(),
            why: e.to_string(),
        })
}

fn leaf(
    name: &str,
    sans: Vec<SanType>,
    usage: ExtendedKeyUsagePurpose,
    ttl: Duration,
    now: SystemTime,
) -> CertificateParams {
    let mut params = params(name, ttl, now);
    params.subject_alt_names = sans;
    // Identifies the signing key, where several authorities are trusted.
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params
}

fn params(name: &str, ttl: Duration, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(
        DnType::CommonName,
        name.chars().take(64).collect::<String>(),
    );
    params.not_before = (now - CLOCK_SKEW).into();
    params.not_after = (now + ttl).into();
    params
}

/// The TLS settings of a server: certificate and client roots, replaceable while it runs.
#[derive(Clone)]
pub struct ServerTls {
    settings: Arc<watch::Sender<TlsSettings>>,
    revoked: Revoked,
}

/// Clients that are refused although their certificates chain to a root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevokedClients {
    /// Revoked certificates.
    pub certificates: BTreeSet<Fingerprint>,
    /// Revoked names: every certificate that has one of them is refused.
    pub names: BTreeSet<String>,
}

impl RevokedClients {
    fn has(&self, leaf: &CertificateDer<'_>) -> bool {
        // A certificate that cannot be parsed may have any name.
        let is_named = || {
            names(leaf).is_none_or(|(names, _)| names.iter().any(|name| self.names.contains(name)))
        };
        self.certificates.contains(&Fingerprint::of(leaf)) || !self.names.is_empty() && is_named()
    }
}

/// Shared by the settings before and after a rotation.
type Revoked = Arc<RwLock<RevokedClients>>;

/// The current settings.
#[derive(Clone)]
struct TlsSettings {
    config: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    clients: Clients,
}

/// The requirement of client certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    /// Required; the handshake of others fails.
    Certified,
    /// Optional: the authenticator decides, which may accept a token instead.
    Any,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls { .. }")
    }
}

impl ServerTls {
    /// Serves with `pair`. Clients must have a certificate that chains to `client_roots` (PEM).
    pub fn mutual(pair: &Pair, client_roots: &str) -> Result<ServerTls, TlsError> {
        ServerTls::new(pair, client_roots, Clients::Certified)
    }

    /// Serves with `pair`. A client certificate, if sent, must chain to `client_roots` (PEM); the
    /// authenticator decides whether one is required, and may accept a token instead.
    pub fn optional(pair: &Pair, client_roots: &str) -> Result<ServerTls, TlsError> {
        ServerTls::new(pair, client_roots, Clients::Any)
    }

    fn new(pair: &Pair, client_roots: &str, clients: Clients) -> Result<ServerTls, TlsError> {
        let revoked = Revoked::default();
        let first = tls_settings(pair, client_roots, clients, revoked.clone())?;
        Ok(ServerTls {
            settings: Arc::new(watch::Sender::new(first)),
            revoked,
        })
    }

    /// Replaces certificate and roots for new connections. Open connections continue, except those
    /// of clients whose certificate chains to none of the roots any more, which are closed.
    pub fn rotate(&self, pair: &Pair, client_roots: &str) -> Result<(), TlsError> {
        let clients = self.settings.borrow().clients;
        self.settings.send_replace(tls_settings(
            pair,
            client_roots,
            clients,
            self.revoked.clone(),
        )?);
        Ok(())
    }

    /// Sets the revoked clients, for certificates of any authority: their handshakes fail, and
    /// their open connections are closed. Those of others continue.
    pub fn revoke(&self, revoked: RevokedClients) {
        {
            let mut now = self.revoked.write().expect("no holder of this lock panics");
            if *now == revoked {
                return;
            }
            *now = revoked;
        }
        // Connections check again when the settings change.
        self.settings.send_modify(|_| ());
    }

    /// Returns the settings for a new connection, and the trust in its client.
    pub(crate) fn begin(&self) -> (Arc<ServerConfig>, ClientTrust) {
        let mut settings = self.settings.subscribe();
        let config = settings.borrow_and_update().config.clone();
        (config, ClientTrust(settings))
    }
}

/// The trust of the server in the client of one connection.
pub(crate) struct ClientTrust(watch::Receiver<TlsSettings>);

impl ClientTrust {
    /// Ends once this client, verified at the handshake, would be refused. Never ends for a client
    /// without certificates.
    pub(crate) async fn until_untrusted(mut self, client: &[CertificateDer<'static>]) {
        while self.0.changed().await.is_ok() {
            let verifier = self.0.borrow_and_update().verifier.clone();
            if !client.is_empty() && !is_trusted(&*verifier, client, SystemTime::now()) {
                return;
            }
        }
        // The sender is gone: nobody can change the settings any more.
        std::future::pending().await
    }
}

fn is_trusted(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'static>],
    now: SystemTime,
) -> bool {
    let since = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let Some((leaf, others)) = chain.split_first() else {
        return false;
    };
    verifier
        .verify_client_cert(leaf, others, UnixTime::since_unix_epoch(since))
        .is_ok()
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    pki::certificates(pem.as_bytes()).map_err(|why| TlsError::Read {
        what,
        why: why.to_string(),
    })
}

/// The verification of webpki, plus a check for revocation.
#[derive(Debug)]
struct Verifier {
    webpki: Arc<dyn ClientCertVerifier>,
    revoked: Revoked,
}

impl ClientCertVerifier for Verifier {
    fn offer_client_auth(&self) -> bool {
        self.webpki.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.webpki.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.webpki.verify_client_cert(leaf, others, now)?;
        if self
            .revoked
            .read()
            .expect("no holder of this lock panics")
            .has(leaf)
        {
            return Err(Error::InvalidCertificate(CertificateError::Revoked));
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

fn verifier(
    client_roots: &str,
    clients: Clients,
    revoked: Revoked,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for root in certificates("client roots", client_roots)? {
        roots.add(root).map_err(|e| TlsError::Read {
            what: "client roots",
            why: e.to_string(),
        })?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    let builder = match clients {
        Clients::Certified => builder,
        Clients::Any => builder.allow_unauthenticated(),
    };
    let webpki = builder
        .build()
        .map_err(|e| TlsError::Configure(e.to_string()))?;
    Ok(Arc::new(Verifier { webpki, revoked }))
}

fn tls_settings(
    pair: &Pair,
    client_roots: &str,
    clients: Clients,
    revoked: Revoked,
) -> Result<TlsSettings, TlsError> {
    let chain = certificates("server certificate", &pair.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|_| TlsError::Read {
        what: "server key",
        why: "not a private key in PEM".to_owned(),
    })?;
    let verifier = verifier(client_roots, clients, revoked)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    fn configure(e: &dyn fmt::Display) -> TlsError {
        TlsError::Configure(e.to_string())
    }
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| configure(&e))?
        .with_client_cert_verifier(verifier.clone())
        .with_single_cert(chain, key)
        .map_err(|e| configure(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would skip the check of the client's certificate against rotated roots.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsSettings {
        config: Arc::new(config),
        verifier,
        clients,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_authority_recognises_its_own_valid_client_certificates() {
        let now = SystemTime::now();
        let one = Authority::new("one", 2 * HOUR, now).unwrap();
        let two = Authority::new("two", HOUR, now).unwrap();
        let made = one.issue_client("spiffe://test/a", HOUR, now).unwrap();
        assert!(one.issued_client(&made.certificate, now));
        assert!(!two.issued_client(&made.certificate, now));
        assert!(!one.issued_client(&made.certificate, now + HOUR + Duration::from_secs(1)));
        assert!(!one.issued_client("no certificate", now));
    }

    #[tokio::test]
    async fn a_client_is_untrusted_once_it_chains_to_no_root() {
        let now = SystemTime::now();
        let one = Authority::new("one", HOUR, now).unwrap();
        let two = Authority::new("two", HOUR, now).unwrap();
        fn server(by: &Authority, now: &SystemTime) -> Pair {
            by.issue_server(&["localhost".into()], HOUR, *now).unwrap()
        }
        let client = one.issue_client("spiffe://test/a", HOUR, now).unwrap();
        let client = certificates("client", &client.certificate).unwrap();
        let tls = ServerTls::mutual(&server(&one, &now), one.certificate()).unwrap();
        let (_, trusted) = tls.begin();
        let lost = trusted.until_untrusted(&client);
        tokio::pin!(lost);
        let both = format!("{}{}", one.certificate(), two.certificate());
        tls.rotate(&server(&two, &now), &both).unwrap();
        assert!(futures::poll!(&mut lost).is_pending(), "trusted still");
        tls.rotate(&server(&two, &now), two.certificate()).unwrap();
        lost.await;
    }

    #[tokio::test]
    async fn a_revoked_certificate_is_untrusted_and_others_of_its_identity_are_not() {
        let now = SystemTime::now();
        let authority = Authority::new("one", HOUR, now).unwrap();
        let shown = authority
            .issue_server(&["localhost".into()], HOUR, now)
            .unwrap();
        let [one, two] = [(); 2].map(|()| {
            authority
                .issue_client("spiffe://test/a", HOUR, now)
                .unwrap()
                .certificate
        });
        let tls = ServerTls::mutual(&shown, authority.certificate()).unwrap();
        let chains = [&one, &two].map(|pem| certificates("client", pem).unwrap());
        let lost = tls.begin().1.until_untrusted(&chains[0]);
        let other = tls.begin().1.until_untrusted(&chains[1]);
        tokio::pin!(lost, other);
        assert!(futures::poll!(&mut lost).is_pending());
        let certificates = BTreeSet::from([Fingerprint::of_pem(&one).unwrap()]);
        tls.revoke(RevokedClients {
            certificates,
            ..RevokedClients::default()
        });
        lost.await;
        assert!(futures::poll!(&mut other).is_pending());
        // Still true after the next rotation.
        tls.rotate(&shown, authority.certificate()).unwrap();
        let (_, ClientTrust(settings)) = tls.begin();
        let verifier = settings.borrow().verifier.clone();
        assert!(
            !is_trusted(&*verifier, &chains[0], now) && is_trusted(&*verifier, &chains[1], now)
        );
        assert!(futures::poll!(&mut other).is_pending());
    }

    #[tokio::test]
    async fn every_certificate_with_a_revoked_name_is_untrusted_and_others_are_not() {
        let now = SystemTime::now();
        let authority = Authority::new("one", HOUR, now).unwrap();
        let shown = authority
            .issue_server(&["localhost".into()], HOUR, now)
            .unwrap();
        let of = |uri: &str| {
            let asked = CertificateRequest::new().unwrap();
            let signed = authority
                .sign_client(&asked.request, uri, HOUR, now)
                .unwrap();
            certificates("client", &signed).unwrap()
        };
        let a = of("spiffe://test/pod/a");
        let renewed = of("spiffe://test/pod/a");
        let b = of("spiffe://test/pod/b");
        assert_ne!(a, renewed);
        let tls = ServerTls::mutual(&shown, authority.certificate()).unwrap();
        let lost = tls.begin().1.until_untrusted(&a);
        let other = tls.begin().1.until_untrusted(&b);
        tokio::pin!(lost, other);
        assert!(futures::poll!(&mut lost).is_pending());
        tls.revoke(RevokedClients {
            names: ["spiffe://test/pod/a".to_owned()].into(),
            ..RevokedClients::default()
        });
        lost.await;
        assert!(futures::poll!(&mut other).is_pending());
        let (_, ClientTrust(settings)) = tls.begin();
        let verifier = settings.borrow().verifier.clone();
        let trusted = [&a, &renewed, &b].map(|chain| is_trusted(&*verifier, chain, now));
        assert_eq!(trusted, [false, false, true]);
    }

    #[test]
    fn only_the_key_of_a_certificate_request_is_used() {
        let now = SystemTime::now();
        let authority = Authority::new("one", HOUR, now).unwrap();
        // It requests to be an authority in the name of somebody else.
        let key = KeyPair::generate().unwrap();
        let mut asked = CertificateParams::new(vec!["xds.example.org".to_owned()]).unwrap();
        asked.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        asked.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let request = asked.serialize_request(&key).unwrap().pem().unwrap();
        let signed = authority
            .sign_client(&request, "spiffe://test/a", HOUR, now)
            .unwrap();
        let chain = certificates("client", &signed).unwrap();
        let (named, expires) = names(&chain[0]).unwrap();
        assert_eq!(named, ["spiffe://test/a"]);
        assert!(expires <= now + HOUR);
        assert!(authority.issued_client(&signed, now), "for a client");
        // Certificates that its key signs are not trusted.
        let below = Issuer::from_ca_cert_pem(&signed, key);
        let made = below.map(|issuer| {
            leaf("b", vec![], ExtendedKeyUsagePurpose::ClientAuth, HOUR, now)
                .signed_by(&KeyPair::generate().unwrap(), &issuer)
                .unwrap()
                .pem()
        });
        assert!(made.is_ok_and(|made| !authority.issued_client(&(made + &signed), now)));
        // A request that was modified, and a text that is no request.
        let first = CertificateRequest::new().unwrap();
        let second = "no request";
        let mut lines: Vec<String> = first.request.lines().map(str::to_owned).collect();
        let middle = lines.len() / 2;
        lines[middle] = lines[middle].chars().rev().collect();
        for wrong in [lines.join("\n"), second.to_owned()] {
            let told = authority.sign_client(&wrong, "spiffe://test/a", HOUR, now);
            assert!(matches!(told, Err(TlsError::Read { .. })), "{told:?}");
        }
    }
}
