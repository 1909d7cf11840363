//! Who a client is, and therefore which view it sees.
//!
//! The `node` a client describes itself with is never consulted: only what its transport or its token
//! proves counts. Everything not granted is denied.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use rustls_pki_types::CertificateDer;
use tonic::Status;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::View;

/// The far end of a connection, as the transport proves it.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A process on this machine, as the kernel names it (`SO_PEERCRED`).
    Unix {
        /// Its user.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A TLS client. Its certificates are verified against the server's roots; none when it showed none.
    Tls {
        /// The chain, leaf first.
        certificates: Arc<[CertificateDer<'static>]>,
    },
}

/// What a request proves.
pub struct Credentials<'a> {
    /// The connection's far end.
    pub peer: &'a Peer,
    /// The token of an `authorization: Bearer` header.
    pub bearer: Option<&'a str>,
}

/// The token is a secret.
impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("peer", self.peer).field("bearer", &self.bearer.is_some()).finish()
    }
}

/// What an authenticated client may do: see one view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Who it is.
    pub identity: Arc<str>,
    /// Which of several of that identity it is, where its credential proves that.
    pub instance: Option<Instance>,
    /// What it sees.
    pub view: View,
    /// When the proof expires; its streams end then.
    pub expires: Option<SystemTime>,
}

/// One of several clients of an identity, by a credential of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its own name, a URI of its certificate.
    pub name: Arc<str>,
    /// What its node is called, whatever it calls itself.
    pub node: Arc<str>,
}

/// Reads a URI of a certificate as the name of an instance: the identity that it is one of, and which one.
pub type InstanceOf = fn(&str) -> Option<(&str, Instance)>;

/// Why a client may do nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It proved nothing, or something wrong.
    #[error("not authenticated: {0}")]
    Unauthenticated(String),
    /// It is known and has no view.
    #[error("{0} may not read any view of this server")]
    Forbidden(String),
    /// The proof could not be checked.
    #[error("cannot check the credential now: {0}")]
    Unavailable(String),
}

impl From<Denied> for Status {
    fn from(denied: Denied) -> Status {
        let text = denied.to_string();
        match denied {
            Denied::Unauthenticated(_) => Status::unauthenticated(text),
            Denied::Forbidden(_) => Status::permission_denied(text),
            Denied::Unavailable(_) => Status::unavailable(text),
        }
    }
}

/// Maps credentials to a grant. Asked once for every RPC, of whatever service.
#[async_trait]
pub trait Authenticate: Send + Sync + 'static {
    /// Decides.
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Grant, Denied>;

    /// Whether an earlier grant still holds. Asked before every response and at every request of a stream,
    /// so it must be quick.
    fn still_granted(&self, _grant: &Grant) -> bool {
        true
    }
}

/// Processes of this machine, by user.
#[derive(Clone, Debug, Default)]
pub struct UnixPeers {
    users: BTreeMap<u32, View>,
}

impl UnixPeers {
    /// Nobody.
    pub fn new() -> UnixPeers {
        UnixPeers::default()
    }

    /// Lets processes of user `uid` read `view`.
    pub fn allow(mut self, uid: u32, view: View) -> UnixPeers {
        self.users.insert(uid, view);
        self
    }
}

#[async_trait]
impl Authenticate for UnixPeers {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Grant, Denied> {
        let Peer::Unix { uid, .. } = credentials.peer else {
            return Err(Denied::Unauthenticated("expected a process of this machine on the Unix socket".into()));
        };
        let identity = format!("uid:{uid}");
        match self.users.get(uid) {
            Some(view) => Ok(Grant { identity: identity.into(), instance: None, view: view.clone(), expires: None }),
            None => Err(Denied::Forbidden(identity)),
        }
    }
}

/// Who sees which view, changeable while the server runs.
#[derive(Clone, Debug, Default)]
pub struct Views(Arc<RwLock<BTreeMap<String, View>>>);

impl Views {
    /// Nobody sees anything.
    pub fn new() -> Views {
        Views::default()
    }

    /// Lets `identity` read `view`, and no other.
    pub fn allow(&self, identity: impl Into<String>, view: View) {
        self.0.write().expect("no holder of this lock panics").insert(identity.into(), view);
    }

    /// Lets `identity` read nothing any more. Its open streams end at their next request or response.
    pub fn revoke(&self, identity: &str) {
        self.0.write().expect("no holder of this lock panics").remove(identity);
    }

    /// What `identity` may read.
    pub fn of(&self, identity: &str) -> Option<View> {
        self.0.read().expect("no holder of this lock panics").get(identity).cloned()
    }
}

/// TLS clients, by a name in their certificate: a URI (`spiffe://...`) or else a DNS name.
#[derive(Clone, Debug)]
pub struct Certificates {
    views: Views,
    /// Whether a certificate may have the name of an identity itself.
    identities: bool,
    instances: Option<InstanceOf>,
}

impl Certificates {
    /// Clients see what `views` says of the name in their certificate.
    pub fn new(views: Views) -> Certificates {
        Certificates { views, identities: true, instances: None }
    }

    /// Clients see what `views` says of the identity that they are an instance of. A certificate of the identity itself is
    /// good for nothing.
    pub fn of_instances(views: Views, instances: InstanceOf) -> Certificates {
        Certificates { views, identities: false, instances: Some(instances) }
    }

    /// The same, and certificates of instances are taken as well.
    pub fn or_instances(self, instances: InstanceOf) -> Certificates {
        Certificates { instances: Some(instances), ..self }
    }

    fn granted(&self, name: &str, expires: SystemTime) -> Option<Grant> {
        let expires = Some(expires);
        let of_identity = || {
            let view = self.views.of(name).filter(|_| self.identities)?;
            Some(Grant { identity: name.into(), instance: None, view, expires })
        };
        let of_instance = || {
            let (identity, instance) = self.instances?(name)?;
            let view = self.views.of(identity)?;
            Some(Grant { identity: identity.into(), instance: Some(instance), view, expires })
        };
        of_identity().or_else(of_instance)
    }
}

/// The names of a certificate by which clients are known; `None` where it cannot be read.
pub(crate) fn names(leaf: &[u8]) -> Option<(Vec<String>, SystemTime)> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let names = certificate.subject_alternative_name().ok()?;
    let names = names.iter().flat_map(|n| &n.value.general_names).filter_map(|n| match n {
        GeneralName::URI(name) | GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    let expires = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    Some((names.collect(), SystemTime::UNIX_EPOCH + Duration::from_secs(expires)))
}

#[async_trait]
impl Authenticate for Certificates {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Grant, Denied> {
        let leaf = match credentials.peer {
            Peer::Tls { certificates } => certificates.first(),
            Peer::Unix { .. } => None,
        };
        let leaf = leaf.ok_or_else(|| Denied::Unauthenticated("expected a client certificate".into()))?;
        let unreadable = || Denied::Unauthenticated("the client certificate cannot be read".into());
        let (names, expires) = names(leaf).ok_or_else(unreadable)?;
        if expires <= SystemTime::now() {
            // It was good when the connection was opened.
            return Err(Denied::Unauthenticated("the client certificate has ended: connect with a new one".into()));
        }
        let granted = names.iter().find_map(|name| self.granted(name, expires));
        granted.ok_or_else(|| Denied::Forbidden(format!("the client certificate of [{}]", names.join(", "))))
    }

    fn still_granted(&self, grant: &Grant) -> bool {
        self.views.of(&grant.identity).as_ref() == Some(&grant.view)
    }
}

/// Whom a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reviewed {
    /// For example `system:serviceaccount:edge:envoy`.
    pub user: String,
    /// When the token ends, where known.
    pub expires: Option<SystemTime>,
}

/// Checks tokens; in a cluster by a TokenReview with an audience of its own.
#[async_trait]
pub trait ReviewToken: Send + Sync + 'static {
    /// Decides whether the token is genuine and meant for this server.
    async fn review(&self, token: &str) -> Result<Reviewed, Denied>;
}

/// Clients that show a token, on an encrypted connection.
pub struct Tokens<R> {
    reviewer: R,
    views: Views,
}

impl<R: ReviewToken> Tokens<R> {
    /// Tokens are checked by `reviewer`; users see what `views` says.
    pub fn new(reviewer: R, views: Views) -> Tokens<R> {
        Tokens { reviewer, views }
    }
}

#[async_trait]
impl<R: ReviewToken> Authenticate for Tokens<R> {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Grant, Denied> {
        let token = credentials.bearer.ok_or_else(|| Denied::Unauthenticated("expected a bearer token".into()))?;
        let Reviewed { user, expires } = self.reviewer.review(token).await?;
        match self.views.of(&user) {
            Some(view) => Ok(Grant { identity: user.into(), instance: None, view, expires }),
            None => Err(Denied::Forbidden(user)),
        }
    }

    fn still_granted(&self, grant: &Grant) -> bool {
        self.views.of(&grant.identity).as_ref() == Some(&grant.view)
    }
}

/// A client certificate, or, for clients without one, a token.
pub struct CertificatesOrTokens<R> {
    certificates: Certificates,
    tokens: Tokens<R>,
}

impl<R: ReviewToken> CertificatesOrTokens<R> {
    /// Both see what `views` says.
    pub fn new(reviewer: R, views: Views) -> CertificatesOrTokens<R> {
        CertificatesOrTokens { certificates: Certificates::new(views.clone()), tokens: Tokens::new(reviewer, views) }
    }
}

#[async_trait]
impl<R: ReviewToken> Authenticate for CertificatesOrTokens<R> {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Grant, Denied> {
        match credentials.peer {
            Peer::Tls { certificates } if certificates.is_empty() => self.tokens.authenticate(credentials).await,
            _ => self.certificates.authenticate(credentials).await,
        }
    }

    fn still_granted(&self, grant: &Grant) -> bool {
        self.certificates.still_granted(grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authority;
    use rustls_pki_types::pem::PemObject;

    const FLEET: &str = "spiffe://test/fleet";

    /// `spiffe://test/fleet/pod/NAME`.
    fn instance(uri: &str) -> Option<(&str, Instance)> {
        let (identity, node) = uri.split_once("/pod/")?;
        Some((identity, Instance { name: uri.into(), node: node.into() }))
    }

    async fn asked(by: &Certificates, uri: &str) -> Result<Grant, Denied> {
        asked_later(by, uri, Duration::ZERO).await
    }

    /// With a certificate of an hour that was issued so long ago.
    async fn asked_later(by: &Certificates, uri: &str, ago: Duration) -> Result<Grant, Denied> {
        let (hour, now) = (Duration::from_secs(3600), SystemTime::now() - ago);
        let authority = Authority::new("test", hour, now).expect("an authority");
        let shown = authority.issue_client(uri, hour, now).expect("issued").certificate;
        let leaf = CertificateDer::from_pem_slice(shown.as_bytes()).expect("a certificate");
        let peer = Peer::Tls { certificates: [leaf].into() };
        by.authenticate(&Credentials { peer: &peer, bearer: None }).await
    }

    #[tokio::test]
    async fn a_certificate_that_has_ended_since_the_handshake_is_good_for_nothing() {
        let views = Views::new();
        views.allow(FLEET, View::new("v"));
        let by = Certificates::new(views);
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert!(asked_later(&by, FLEET, minutes(59)).await.is_ok());
        let told = asked_later(&by, FLEET, minutes(61)).await;
        assert!(matches!(&told, Err(Denied::Unauthenticated(why)) if why.contains("has ended")), "{told:?}");
    }

    #[tokio::test]
    async fn an_instance_sees_what_its_identity_sees_where_instances_are_taken() {
        let views = Views::new();
        views.allow(FLEET, View::new("v"));
        let (pod, other) = (format!("{FLEET}/pod/a"), "spiffe://test/other/pod/a");
        let identities = Certificates::new(views.clone());
        let instances = Certificates::of_instances(views.clone(), instance);
        let both = Certificates::new(views.clone()).or_instances(instance);
        for (by, name, expected) in [
            (&identities, FLEET, Some(None)),
            (&identities, &*pod, None),
            (&instances, FLEET, None),
            (&instances, &*pod, Some(Some("a"))),
            (&instances, other, None),
            (&both, FLEET, Some(None)),
            (&both, &*pod, Some(Some("a"))),
            (&both, other, None),
        ] {
            let asked = asked(by, name).await.ok();
            let found = asked.as_ref().map(|grant| grant.instance.as_ref().map(|instance| &*instance.node));
            assert_eq!(found, expected, "{by:?}: {name}");
            if let Some(grant) = asked {
                assert_eq!((&*grant.identity, grant.view.name()), (FLEET, "v"));
                assert!(by.still_granted(&grant));
            }
        }
        let grant = asked(&both, &pod).await.expect("let in");
        views.revoke(FLEET);
        assert!(!both.still_granted(&grant));
    }
}
