//! Who a client is, and therefore which view it sees.
//!
//! The `node` a client describes itself with is never consulted: only what its transport or its token
//! proves counts. Everything not granted is denied.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use rustls_pki_types::CertificateDer;
use tonic::Status;

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
    /// What it sees.
    pub view: View,
    /// When the proof expires; its streams end then.
    pub expires: Option<SystemTime>,
}

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
            Some(view) => Ok(Grant { identity: identity.into(), view: view.clone(), expires: None }),
            None => Err(Denied::Forbidden(identity)),
        }
    }
}
