//! The state of views and streams for an operator: the clients, the progress and the rejections of
//! each. Names and versions, never contents.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use crate::rejection::Rejection;
use crate::{Fingerprint, Generation, Kind};

/// The state of one view.
#[derive(Clone, Debug, Serialize)]
pub struct ViewState {
    /// Its name.
    pub view: String,
    /// Its latest generation.
    pub generation: Generation,
    /// Number of its resources, by kind.
    pub resources: BTreeMap<&'static str, usize>,
    /// The streams that read it.
    pub streams: Vec<StreamState>,
}

/// The state of one stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamState {
    /// The node's name, by its credential, else as it calls itself.
    pub node: Arc<str>,
    /// Its authenticated identity.
    pub identity: Arc<str>,
    /// Its instance of that identity, where its credential proves one.
    pub instance: Option<Arc<str>>,
    /// Its source address; None on a Unix socket.
    pub address: Option<IpAddr>,
    /// Its client certificate.
    pub credential: Option<Fingerprint>,
    /// The version of its program, as it reports it.
    pub version: Option<Arc<str>>,
    /// Start of the stream, in seconds since 1970.
    pub connected: u64,
    /// Time of its last ACK, in seconds since 1970; None before the first.
    pub last_ack: Option<u64>,
    /// The generation up to which everything is acknowledged.
    pub acknowledged: Generation,
    /// Its subscriptions.
    pub subscriptions: Vec<SubscriptionState>,
    /// The resources that it refuses.
    pub refused: Vec<Refused>,
}

/// The subscription of one stream to one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SubscriptionState {
    /// The kind.
    pub kind: &'static str,
    /// True for a wildcard subscription.
    pub wildcard: bool,
    /// Number of subscribed names.
    pub names: usize,
    /// Unanswered responses.
    pub in_flight: usize,
    /// The generation up to which everything of this kind has been considered for sending.
    pub considered: Generation,
}

/// A resource that a client refuses.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: Arc<str>,
    /// Names of the virtual host and the route, where only this part is refused.
    pub part: Option<[Arc<str>; 2]>,
    /// The refused version.
    pub version: Arc<str>,
    /// The client's error; omitted for secrets, since it may quote them.
    pub text: Option<Arc<str>>,
}

impl Refused {
    pub(crate) fn new(rejection: &Rejection) -> Refused {
        let Rejection {
            kind,
            name,
            part,
            version,
            text,
            ..
        } = rejection;
        let text = (*kind != Kind::Secret).then(|| text.clone());
        let part = part
            .as_ref()
            .map(|part| [part.virtual_host.clone(), part.route.clone()]);
        Refused {
            kind: kind.label(),
            name: name.clone(),
            part,
            version: version.clone(),
            text,
        }
    }
}
