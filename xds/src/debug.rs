//! What an operator may look at: who is connected, how far each is, what each refuses. Names and versions,
//! never contents.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use crate::rejection::Rejection;
use crate::{Fingerprint, Generation, Kind};

/// One view.
#[derive(Clone, Debug, Serialize)]
pub struct ViewState {
    /// Its name.
    pub view: String,
    /// Its latest generation.
    pub generation: Generation,
    /// How many resources it holds, by kind.
    pub resources: BTreeMap<&'static str, usize>,
    /// The streams that read it.
    pub streams: Vec<StreamState>,
}

/// One stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamState {
    /// The node, as its credential names it, else as it calls itself.
    pub node: Arc<str>,
    /// Who it is, as authenticated.
    pub identity: Arc<str>,
    /// Which of that identity, where its credential proves it.
    pub instance: Option<Arc<str>>,
    /// The address that it comes from; none on a Unix socket.
    pub address: Option<IpAddr>,
    /// The certificate that it showed.
    pub credential: Option<Fingerprint>,
    /// The version of its program, as it says.
    pub version: Option<Arc<str>>,
    /// When the stream began, in seconds since 1970.
    pub connected: u64,
    /// When it acknowledged something last.
    pub last_ack: Option<u64>,
    /// Everything up to here is acknowledged.
    pub acknowledged: Generation,
    /// What it subscribes to.
    pub subscriptions: Vec<SubscriptionState>,
    /// What it refuses.
    pub refused: Vec<Refused>,
}

/// One kind on one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SubscriptionState {
    /// The kind.
    pub kind: &'static str,
    /// Whether everything is subscribed to.
    pub wildcard: bool,
    /// How many names are.
    pub names: usize,
    /// Unanswered responses.
    pub in_flight: usize,
    /// Everything of this kind up to here has been considered.
    pub considered: Generation,
}

/// One resource a client refuses.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: Arc<str>,
    /// The virtual host and the route, where only they are refused.
    pub part: Option<[Arc<str>; 2]>,
    /// The refused version.
    pub version: Arc<str>,
    /// The client's words; left out for secrets, whose errors may quote them.
    pub text: Option<Arc<str>>,
}

impl Refused {
    pub(crate) fn new(rejection: &Rejection) -> Refused {
        let Rejection { kind, name, part, version, text, .. } = rejection;
        let text = (*kind != Kind::Secret).then(|| text.clone());
        let part = part.as_ref().map(|part| [part.virtual_host.clone(), part.route.clone()]);
        Refused { kind: kind.label(), name: name.clone(), part, version: version.clone(), text }
    }
}
