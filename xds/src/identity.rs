//! Authentication of clients, and the view that each may read.
//!
//! The `node` that a client describes itself with is not trusted: only what its transport or its
//! token proves counts. Everything that is not granted is denied.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use rustls_pki_types::CertificateDer;
use tonic::Status;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::View;

/// The far end of a connection, as the transport authenticates it.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A process on this machine, by the kernel's `SO_PEERCRED`.
    Unix {
        /// Its user.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// A TLS client. Its certificates are verified against the server's roots; empty if it sent
    /// none.
    Tls {
        /// The chain, leaf first.
        certificates: Arc<[CertificateDer<'static>]>,
    },
}

/// The credentials of a request.
pub struct Credentials<'a> {
    /// The connection's far end.
    pub peer: &'a Peer,
    /// The token of an `authorization: Bearer` header.
    pub bearer: Option<&'a str>,
}

/// Omits the token, which is secret.
impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("peer", self.peer)
            .field("bearer", &self.bearer.is_some())
            .finish()
    }
}

/// A grant to an authenticated client: the view that it may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The authenticated identity.
    pub identity: Arc<str>,
    /// The instance of that identity, where the credential proves one.
    pub instance: Option<Instance>,
    /// The view that it may read.
    pub view: View,
    /// Expiry of the credential, at which its streams end.
    pub expires: Option<SystemTime>,
}

/// One of several clients of an identity, by a credential of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The name of the instance, a URI of its certificate.
    pub name: Arc<str>,
    /// The name of its node, which overrides what the client calls itself.
    pub node: Arc<str>,
}

/// Parses a URI of a certificate as the name of an instance: returns its identity, and the
/// instance.
pub type InstanceOf = fn(&str) -> Option<(&str, Instance)>;

/// The reason why a client is denied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The credential is missing or invalid.
    #[error("not authenticated: {0}")]
    Unauthenticated(String),
    /// The client is authenticated, but may not read any view.
    #[error("{0} may not read any view of this server")]
    Forbidden(String),
    /// The credential could not be checked.
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

/// Maps credentials to a grant. Called once for every RPC, of any service.
#[async_trait]
pub trait Authenticate: Send + Sync + 'static {
    /// Returns the grant, or the reason why there is none.
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Grant, Denied>;

    /// Returns true if an earlier grant still holds. Called before every response and at every
    /// request of a stream, so that it must be fast.
    fn still_granted(&self, _grant: &Grant) -> bool {
        true
    }
}

/// Authentication of local processes by their user.
#[derive(Clone, Debug, Default)]
pub struct UnixPeers {
    users: BTreeMap<u32, View>,
}

impl UnixPeers {
    /// Allows nobody.
    pub fn new() -> UnixPeers {
        UnixPeers::default()
    }

    /// Allows processes of user `uid` to read `view`.
    pub fn allow(mut self, uid: u32, view: View) -> UnixPeers {
        self.users.insert(uid, view);
        self
    }
}

#[async_trait]
impl Authenticate for UnixPeers {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Grant, Denied> {
        let Peer::Unix { uid, .. } = credentials.peer else {
            return Err(Denied::Unauthenticated(
                "expected a process of this machine on the Unix socket".into(),
            ));
        };
        let identity = format!("uid:{uid}");
        match self.users.get(uid) {
            Some(view) => Ok(Grant {
                identity: identity.into(),
                instance: None,
                view: view.clone(),
                expires: None,
            }),
            None => Err(Denied::Forbidden(identity)),
        }
    }
}

/// The view that each identity may read; can be changed while the server runs.
#[derive(Clone, Debug, Default)]
pub struct Views(Arc<RwLock<BTreeMap<String, View>>>);

impl Views {
    /// Allows nobody.
    pub fn new() -> Views {
        Views::default()
    }

    /// Allows `identity` to read `view`, and no other.
    pub fn allow(&self, identity: impl Into<String>, view: View) {
        self.0
            .write()
            .expect("no holder of this lock panics")
            .insert(identity.into(), view);
    }

    /// Allows `identity` nothing any more. Its open streams end at their next request or response.
    pub fn revoke(&self, identity: &str) {
        self.0
            .write()
            .expect("no holder of this lock panics")
            .remove(identity);
    }

    /// Returns the view that `identity` may read.
    pub fn of(&self, identity: &str) -> Option<View> {
        self.0
            .read()
            .expect("no holder of this lock panics")
            .get(identity)
            .cloned()
    }
}

/// Authentication of TLS clients by a name in their certificate: a URI (`spiffe://...`) or a DNS
/// name.
#[derive(Clone, Debug)]
pub struct Certificates {
    views: Views,
    /// True if a certificate may have the name of an identity itself.
    identities: bool,
    instances: Option<InstanceOf>,
}

impl Certificates {
    /// Clients read the view of the name in their certificate.
    pub fn new(views: Views) -> Certificates {
        Certificates {
            views,
            identities: true,
            instances: None,
        }
    }

    /// Clients read the view of the identity that they are an instance of. A certificate with the
    /// name of the identity itself is denied.
    pub fn of_instances(views: Views, instances: InstanceOf) -> Certificates {
        Certificates {
            views,
            identities: false,
            instances: Some(instances),
        }
    }

    /// Accepts certificates of instances as well.
    pub fn or_instances(self, instances: InstanceOf) -> Certificates {
        Certificates {
            instances: Some(instances),
            ..self
        }
    }

    fn granted(&self, name: &str, expires: SystemTime) -> Option<Grant> {
        let expires = Some(expires);
        let of_identity = || {
            let view = self.views.of(name).filter(|_| self.identities)?;
            Some(Grant {
                identity: name.into(),
                instance: None,
                view,
                expires,
            })
        };
        of_identity().or_else(|| {
            let (identity, instance) = self.instances?(name)?;
            let view = self.views.of(identity)?;
            Some(Grant {
                identity: identity.into(),
                instance: Some(instance),
                view,
                expires,
            })
        })
    }
}

/// Returns the names of a certificate that may identify a client, and its expiry; `None` if it
/// cannot be parsed.
pub(crate) fn names(leaf: &[u8]) -> Option<(Vec<String>, SystemTime)> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let names = certificate.subject_alternative_name().ok()?;
    let names = names
        .iter()
        .flat_map(|n| &n.value.general_names)
        .filter_map(|n| match n {
            GeneralName::URI(name) | GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        });
    let expires = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    Some((
        names.collect(),
        SystemTime::UNIX_EPOCH + Duration::from_secs(expires),
    ))
}

#[async_trait]
impl Authenticate for Certificates {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Grant, Denied> {
        let leaf = match credentials.peer {
            Peer::Tls { certificates } => certificates.first(),
            Peer::Unix { .. } => None,
        };
        let leaf =
            leaf.ok_or_else(|| Denied::Unauthenticated("expected a client certificate".into()))?;
        let (names, expires) = names(leaf).ok_or_else(|| {
            Denied::Unauthenticated("the client certificate cannot be read".into())
        })?;
        if expires <= SystemTime::now() {
            // It was valid when the connection was opened.
            return Err(Denied::Unauthenticated(
                "the client certificate has ended: connect with a new one".into(),
            ));
        }
        let granted = names.iter().find_map(|name| self.granted(name, expires));
        granted.ok_or_else(|| {
            Denied::Forbidden(format!("the client certificate of [{}]", names.join(", ")))
        })
    }

    fn still_granted(&self, grant: &Grant) -> bool {
        self.views.of(&grant.identity).as_ref() == Some(&grant.view)
    }
}

/// The result of a token review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reviewed {
    /// The user name, for example `system:serviceaccount:edge:envoy`.
    pub user: String,
    /// Expiry of the token, where known.
    pub expires: Option<SystemTime>,
}

/// Checks tokens; in a cluster by a TokenReview with an audience of its own.
#[async_trait]
pub trait ReviewToken: Send + Sync + 'static {
    /// Returns the user if the token is genuine and issued for this server.
    async fn review(&self, token: &str) -> Result<Reviewed, Denied>;
}

/// Authentication of clients by a bearer token, on an encrypted connection.
pub struct Tokens<R> {
    reviewer: R,
    views: Views,
}

impl<R: ReviewToken> Tokens<R> {
    /// Checks tokens by `reviewer`; users read the view that `views` has for them.
    pub fn new(reviewer: R, views: Views) -> Tokens<R> {
        Tokens { reviewer, views }
    }
}

#[async_trait]
impl<R: ReviewToken> Authenticate for Tokens<R> {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Grant, Denied> {
        let token = credentials
            .bearer
            .ok_or_else(|| Denied::Unauthenticated("expected a bearer token".into()))?;
        let Reviewed { user, expires } = self.reviewer.review(token).await?;
        match self.views.of(&user) {
            Some(view) => Ok(Grant {
                identity: user.into(),
                instance: None,
                view,
                expires,
            }),
            None => Err(Denied::Forbidden(user)),
        }
    }

    fn still_granted(&self, grant: &Grant) -> bool {
        self.views.of(&grant.identity).as_ref() == Some(&grant.view)
    }
}

/// Authentication by a client certificate, or by a token for clients without one.
pub struct CertificatesOrTokens<R> {
    certificates: Certificates,
    tokens: Tokens<R>,
}

impl<R: ReviewToken> CertificatesOrTokens<R> {
    /// Certificates and tokens share `views`.
    pub fn new(reviewer: R, views: Views) -> CertificatesOrTokens<R> {
        CertificatesOrTokens {
            certificates: Certificates::new(views.clone()),
            tokens: Tokens::new(reviewer, views),
        }
    }
}

#[async_trait]
impl<R: ReviewToken> Authenticate for CertificatesOrTokens<R> {
    async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Grant, Denied> {
        match credentials.peer {
            Peer::Tls { certificates } if certificates.is_empty() => {
                self.tokens.authenticate(credentials).await
            }
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

    /// Parses `spiffe://test/fleet/pod/NAME`.
    fn instance(uri: &str) -> Option<(&str, Instance)> {
        let (identity, node) = uri.split_once("/pod/")?;
        Some((
            identity,
            Instance {
                name: uri.into(),
                node: node.into(),
            },
        ))
    }

    async fn asked(by: &Certificates, uri: &str) -> Result<Grant, Denied> {
        asked_later(by, uri, Duration::ZERO).await
    }

    /// Authenticates by a certificate valid for an hour that was issued `ago`.
    async fn asked_later(by: &Certificates, uri: &str, ago: Duration) -> Result<Grant, Denied> {
        let hour = Duration::from_secs(3600);
        let now = SystemTime::now() - ago;
        let authority = Authority::new("test", hour, now).expect("an authority");
        let shown = authority
            .issue_client(uri, hour, now)
            .expect("issued")
            .certificate;
        let leaf = CertificateDer::from_pem_slice(shown.as_bytes()).expect("a certificate");
        let peer = Peer::Tls {
            certificates: [leaf].into(),
        };
        by.authenticate(&Credentials {
            peer: &peer,
            bearer: None,
        })
        .await
    }

    #[tokio::test]
    async fn a_certificate_that_expired_since_the_handshake_is_refused() {
        let views = Views::new();
        views.allow(FLEET, View::new("v"));
        let by = Certificates::new(views);
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert!(asked_later(&by, FLEET, minutes(59)).await.is_ok());
        let told = asked_later(&by, FLEET, minutes(61)).await;
        assert!(
            matches!(&told, Err(Denied::Unauthenticated(why)) if why.contains("has ended")),
            "{told:?}"
        );
    }

    #[tokio::test]
    async fn an_instance_reads_the_view_of_its_identity_where_instances_are_accepted() {
        let views = Views::new();
        views.allow(FLEET, View::new("v"));
        let pod = format!("{FLEET}/pod/a");
        let other = "spiffe://test/other/pod/a";
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
            let found = asked
                .as_ref()
                .map(|grant| grant.instance.as_ref().map(|instance| &*instance.node));
            assert_eq!(found, expected, "{by:?}: {name}");
            if let Some(grant) = asked {
                assert_eq!(&*grant.identity, FLEET, "the identity is that of the fleet");
                assert_eq!(grant.view.name(), "v", "the view is that of the fleet");
                assert!(by.still_granted(&grant));
            }
        }
        let grant = asked(&both, &pod).await.expect("let in");
        views.revoke(FLEET);
        assert!(!both.still_granted(&grant));
    }
}
