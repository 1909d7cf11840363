//! The record of ownership: which namespace has a hostname, the protocol of a port, or a socket, where several could.
//!
//! The namespace is the unit of trust. Within one, the precedence of the Gateway API holds; between namespaces the record
//! decides: whoever claimed something first keeps it for as long as it claims it, and for a while after. Claims that come
//! together are decided by creation time, then by name.
//!
//! What decides is in the record and in the claims, never in the order of events, so that whoever is given both comes to
//! the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::claims::Family;
use super::fleet::shared;
use super::key::{ListenerId, RouteKey};
use crate::model::{FrontendId, Hostname, ObjectName, Transport, TransportPort};
use crate::multimap::MultiMap;
use crate::reservations::Reservations;

/// What a namespace can own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ownable {
    /// A hostname on the addresses of the shared fleet, whatever the port.
    Hostname(Hostname),
    /// The protocol of a port of the shared fleet; where no hostname divides it, the whole port.
    Port(TransportPort),
    /// A port of an address, where Gateways have addresses of their own.
    Socket(IpAddr, TransportPort),
    /// The name of the secret for a hostname, among frontends of several namespaces at the same Envoys.
    Secret(Hostname),
    /// A hostname among the namespaces that another one admits to its listeners, by routes or ListenerSets, whatever the
    /// port.
    Admitted(Arc<ListenersOf>, Hostname),
}

/// The listeners of one namespace at the same addresses: what other namespaces are admitted to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenersOf {
    /// The namespace of the Gateway or ListenerSet.
    pub namespace: Arc<str>,
    /// Where they are: `shared` for the shared fleet, `own` for all Gateways with addresses of their own in standalone, else
    /// the Gateway of the dedicated fleet.
    pub place: Arc<str>,
}

/// Who owns something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// The namespace.
    pub namespace: Arc<str>,
    /// Since when: milliseconds since the epoch, or one more than whatever was recorded before.
    pub since: u64,
    /// What is spoken there, of a port.
    pub protocol: Option<Family>,
    /// When the namespace gave it up, in seconds since the epoch: it is still reserved for it.
    pub released: Option<u64>,
}

impl Ownership {
    /// Whether it is of a port that no hostname divides.
    pub(super) fn has_whole_port(&self) -> bool {
        self.protocol.is_some_and(|protocol| !protocol.has_hostnames())
    }
}

/// Who writes the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// Whoever asks: decisions hold at once, and are told to be written before they are published.
    Here,
    /// Somebody whom many follow: decisions are proposals, and hold once they come back recorded.
    OtherListeners,
}

/// One line of the record, as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    /// Whose secret's name it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// To whose listeners the owner is admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listeners: Option<At>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// What carries the port; not written where it is TCP.
    #[serde(default, skip_serializing_if = "Transport::is_tcp")]
    transport: Transport,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol: Option<Family>,
    /// None where nobody owns it any more.
    namespace: Option<Arc<str>>,
    #[serde(default)]
    since: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    released: Option<u64>,
}

/// Listeners of a namespace, as they are written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    namespace: Arc<str>,
    place: Arc<str>,
}

impl Ownable {
    /// Its hostname, if it is one.
    pub fn hostname(&self) -> Option<&Hostname> {
        match self {
            Ownable::Hostname(name) | Ownable::Admitted(_, name) => Some(name),
            Ownable::Port(_) | Ownable::Socket(..) | Ownable::Secret(_) => None,
        }
    }

    /// Another hostname among the same namespaces.
    pub(super) fn with(&self, name: Hostname) -> Option<Ownable> {
        Some(match self {
            Ownable::Hostname(_) => Ownable::Hostname(name),
            Ownable::Admitted(at, _) => Ownable::Admitted(at.clone(), name),
            Ownable::Port(_) | Ownable::Socket(..) | Ownable::Secret(_) => return None,
        })
    }

    /// Whether it is a hostname among the same namespaces as another one.
    fn is_beside(&self, other: &Ownable) -> bool {
        match (self, other) {
            (Ownable::Hostname(_), Ownable::Hostname(_)) => true,
            (Ownable::Admitted(at, _), Ownable::Admitted(other, _)) => at == other,
            _ => false,
        }
    }

    /// What people call it: a hostname, `*` for what nobody has, a port (`53/udp` one of UDP), or an address and a port.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn named(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Ownable::Hostname(Hostname::any()));
        }
        let (number, transport) = match text.strip_suffix("/udp") {
            Some(number) => (number, Transport::Udp),
            None => (text, Transport::Tcp),
        };
        if let Ok(socket) = number.parse::<SocketAddr>() {
            return Ok(Ownable::Socket(socket.ip(), TransportPort { number: socket.port(), transport }));
        }
        if let Ok(number) = number.parse::<u16>() {
            return Ok(Ownable::Port(TransportPort { number, transport }));
        }
        let refused = |error| format!("{error}; expected a hostname, *, a port, or an address and a port");
        Hostname::parse(text).map(Ownable::Hostname).map_err(refused)
    }

    /// A line of the record.
    pub fn line(&self, owner: Option<&Ownership>) -> String {
        let (mut listeners, mut address, mut port) = (None, None, None);
        match self {
            Ownable::Hostname(_) | Ownable::Secret(_) => {}
            Ownable::Port(of) => port = Some(*of),
            Ownable::Socket(ip, of) => (address, port) = (Some(*ip), Some(*of)),
            Ownable::Admitted(at, _) => {
                listeners = Some(At { namespace: at.namespace.clone(), place: at.place.clone() });
            }
        }
        let line = Line {
            hostname: self.hostname().map(ToString::to_string),
            secret: match self {
                Ownable::Secret(name) => Some(name.to_string()),
                _ => None,
            },
            listeners,
            address,
            port: port.map(|port: TransportPort| port.number),
            transport: port.map(|port| port.transport).unwrap_or_default(),
            protocol: owner.and_then(|owner| owner.protocol),
            namespace: owner.map(|owner| owner.namespace.clone()),
            since: owner.map_or(0, |owner| owner.since),
            released: owner.and_then(|owner| owner.released),
        };
        serde_json::to_string(&line).expect("strings and numbers")
    }

    /// What a line of the record says.
    ///
    /// # Errors
    /// When it is none; the text says why.
    pub fn parse(line: &str) -> Result<(Self, Option<Ownership>), String> {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if let (Some(name), None) = (&line.secret, &line.hostname) {
            let what = Ownable::Secret(Hostname::parse(name).map_err(|error| error.to_string())?);
            let Line { protocol, since, released, .. } = line;
            return Ok((what, line.namespace.map(|namespace| Ownership { namespace, since, protocol, released })));
        }
        let name = match line.hostname.as_deref() {
            Some("*") => Some(Hostname::any()),
            Some(name) => Some(Hostname::parse(name).map_err(|error| error.to_string())?),
            None => None,
        };
        let port = line.port.map(|number| TransportPort { number, transport: line.transport });
        let what = match (name, line.listeners, line.address, port) {
            (Some(name), None, None, None) => Ownable::Hostname(name),
            (Some(name), Some(At { namespace, place }), None, None) => {
                Ownable::Admitted(Arc::new(ListenersOf { namespace, place }), name)
            }
            (None, None, None, Some(port)) => Ownable::Port(port),
            (None, None, Some(ip), Some(port)) => Ownable::Socket(ip, port),
            _ => return Err("expected a hostname, a port, or an address and a port".to_owned()),
        };
        let Line { protocol, since, released, .. } = line;
        Ok((what, line.namespace.map(|namespace| Ownership { namespace, since, protocol, released })))
    }
}

impl std::fmt::Display for Ownable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ownable::Hostname(name) => write!(f, "hostname {name}"),
            Ownable::Port(port) => write!(f, "port {port}"),
            Ownable::Socket(ip, port) => write!(f, "port {port} of {ip}"),
            Ownable::Secret(name) => write!(f, "secret {name}"),
            Ownable::Admitted(at, name) => write!(f, "hostname {name} at {at}"),
        }
    }
}

impl std::fmt::Display for ListenersOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.place {
            "shared" => write!(f, "listeners of {} in the shared fleet", self.namespace),
            "own" => write!(f, "listeners of {}", self.namespace),
            gateway => write!(f, "listeners of {} at gateway {gateway}", self.namespace),
        }
    }
}

/// Who claims something, in the order in which claims that come together are decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claimant {
    /// When the object was made that claims it.
    pub(super) created: i64,
    /// Its namespace.
    pub(super) namespace: Arc<str>,
    /// The namespace of the Gateway that is to serve it: it admitted the claimant.
    pub(super) through: Arc<str>,
    /// What claims it.
    pub(super) by: By,
    /// What is spoken there.
    pub(super) protocol: Family,
}

/// What claims something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Listener(ListenerId),
    Frontend(FrontendId),
    Route(ListenerId, RouteKey),
}

/// Whether the owner of a wildcard, or the platform, lets a claimant have a name below it: the claimant, the name, the
/// wildcard, its owner.
pub(super) type Consents<'a> = dyn Fn(&Claimant, &Ownable, &Hostname, &Arc<str>) -> bool + 'a;

/// Claims, and the record.
pub(super) struct Register {
    recording: Recording,
    claims: MultiMap<Ownable, Claimant>,
    records: BTreeMap<Ownable, Ownership>,
    /// What is to be recorded, where somebody else does it.
    proposed: BTreeMap<Ownable, Option<Ownership>>,
    /// What namespaces claim that others own.
    denied: MultiMap<Arc<str>, Ownable>,
    /// What stays reserved for the namespace that gave it up.
    reserved: Reservations<Ownable>,
    latest: u64,
}

impl Register {
    pub(super) fn new(recording: Recording, hold: u64) -> Self {
        Self {
            recording,
            claims: MultiMap::default(),
            records: BTreeMap::new(),
            proposed: BTreeMap::new(),
            denied: MultiMap::default(),
            reserved: Reservations::new(hold),
            latest: 0,
        }
    }

    /// Who writes the record.
    pub(super) fn recording(&self) -> Recording {
        self.recording
    }

    /// What a port of the shared fleet speaks, if that is known.
    pub(super) fn family(&self, port: TransportPort) -> Option<Family> {
        let recorded = || self.owner(&Ownable::Port(port)).and_then(|owner| owner.protocol);
        well_known(port).or_else(recorded)
    }

    /// Whose something is, as recorded.
    pub(super) fn owner(&self, what: &Ownable) -> Option<&Ownership> {
        self.records.get(what)
    }

    /// Whose something is, as recorded or about to be.
    pub(super) fn decided(&self, what: &Ownable) -> Option<&Ownership> {
        match self.proposed.get(what) {
            Some(proposed) => proposed.as_ref(),
            None => self.records.get(what),
        }
    }

    /// Everything that is recorded.
    pub(super) fn records(&self) -> &BTreeMap<Ownable, Ownership> {
        &self.records
    }

    /// What is to be recorded by whoever keeps the record.
    pub(super) fn proposed(&self) -> &BTreeMap<Ownable, Option<Ownership>> {
        &self.proposed
    }

    /// What a namespace claims that others own.
    pub(super) fn denied<'a>(&'a self, namespace: &Arc<str>) -> impl Iterator<Item = &'a Ownable> + use<'a> {
        self.denied.of(namespace)
    }

    /// Adds or removes a claim.
    pub(super) fn claim(&mut self, what: &Ownable, claimant: &Claimant, there: bool) {
        self.claims.set(what, claimant, there);
        if !there && !self.claims.of(what).any(|other| other.namespace == claimant.namespace) {
            self.denied.remove(&claimant.namespace, what);
        }
    }

    /// Whether a namespace claims something through a Gateway of another.
    pub(super) fn reaches(&self, what: &Ownable, namespace: &str, through: &str) -> bool {
        self.claims.of(what).any(|claimant| *claimant.namespace == *namespace && *claimant.through == *through)
    }

    /// Takes in what is recorded. Whether that changes whose it is.
    pub(super) fn take(&mut self, what: Ownable, owner: Option<Ownership>) -> bool {
        let before = self.records.get(&what).cloned();
        self.set(what, owner.clone());
        !same_owner(before.as_ref(), owner.as_ref())
    }

    fn set(&mut self, what: Ownable, owner: Option<Ownership>) {
        let before = match &owner {
            Some(owner) => {
                self.latest = self.latest.max(owner.since);
                self.records.insert(what.clone(), owner.clone())
            }
            None => self.records.remove(&what),
        };
        if let Some(Ownership { namespace, released: Some(released), .. }) = before {
            self.reserved.remove(&what, &namespace, released);
        }
        if let Some(Ownership { namespace, released: Some(released), .. }) = owner {
            self.reserved.add(&what, &namespace, released);
        }
    }

    /// What need not be reserved any longer.
    pub(super) fn expired(&self, now: u64) -> impl Iterator<Item = &Ownable> {
        self.reserved.expired(now)
    }

    /// When the next reservation ends, in seconds since the epoch.
    pub(super) fn next_expiry(&self) -> Option<u64> {
        self.reserved.next_expiry()
    }

    /// By what things are sorted whose ownership is decided together.
    pub(super) fn order(&self, what: &Ownable) -> (i64, Arc<str>) {
        match self.claims.of(what).next() {
            Some(first) => (first.created, first.namespace.clone()),
            None => (i64::MAX, Arc::from("")),
        }
    }

    /// What is claimed below a wildcard, or below the catch-all.
    pub(super) fn below<'a>(&'a self, wide: &'a Ownable) -> impl Iterator<Item = &'a Ownable> {
        let all = wide.with(Hostname::any()).into_iter().flat_map(|first| self.claims.from(first));
        all.map(|(what, _)| what).take_while(|what| what.is_beside(wide)).filter(|what| is_below(wide, what))
    }

    /// The hostnames below a wildcard, or below the catch-all, that somebody owns.
    pub(super) fn owned_below<'a>(&'a self, wide: &'a Ownable) -> impl Iterator<Item = &'a Hostname> {
        let all = wide.with(Hostname::any()).into_iter().flat_map(|first| self.records.range(first..));
        let all = all.map(|(what, _)| what).take_while(|what| what.is_beside(wide));
        all.filter(|what| is_below(wide, what)).filter_map(Ownable::hostname)
    }

    /// Whether somebody who is admitted to some listeners has a wildcard there, or the catch-all.
    pub(super) fn has_wide(&self, at: &Arc<ListenersOf>) -> bool {
        // They come before all exact hostnames.
        let mut records = self.records.range(Ownable::Admitted(at.clone(), Hostname::any())..);
        let first = records.next().map(|(what, _)| what);
        first.is_some_and(|what| matches!(what, Ownable::Admitted(other, name) if other == at && !name.is_exact()))
    }

    /// Who claims something.
    pub(super) fn claimants<'a>(&'a self, what: &Ownable) -> impl Iterator<Item = &'a Claimant> + use<'a> {
        self.claims.of(what)
    }

    /// Who is to own something from now on.
    pub(super) fn decide(&self, what: &Ownable, now: u64, consents: &Consents<'_>) -> Option<Ownership> {
        let held = self.records.get(what);
        if let Some(held) = held {
            let mut own = self.claims.of(what).filter(|claimant| match what {
                // Who began does not matter while the port is used as it was.
                Ownable::Port(_) if claimant.protocol.has_hostnames() => Some(claimant.protocol) == held.protocol,
                Ownable::Port(_) => Some(claimant.protocol) == held.protocol && claimant.namespace == held.namespace,
                _ => claimant.namespace == held.namespace,
            });
            if own.next().is_some() {
                return Some(Ownership { released: None, ..held.clone() });
            }
            let is_reserved = what.hostname().is_some() || held.has_whole_port();
            let released = is_reserved.then(|| self.reserved.since(&held.namespace, held.released, now)).flatten();
            if released.is_some() {
                return Some(Ownership { released, ..held.clone() });
            }
        }
        let mut candidates = self.claims.of(what);
        let first = match what {
            Ownable::Hostname(_) | Ownable::Admitted(..) => {
                candidates.find(|claimant| self.may_own(claimant, what, consents))
            }
            Ownable::Socket(..) | Ownable::Secret(_) => candidates.next(),
            // An object that contradicts itself says nothing of the port.
            Ownable::Port(_) => {
                let parent = |claimant: &Claimant| match &claimant.by {
                    By::Listener(listener) => Some(listener.parent.clone()),
                    By::Frontend(_) | By::Route(..) => None,
                };
                candidates.find(|claimant| {
                    let mut others = self.claims.of(what).filter(|other| parent(other) == parent(claimant));
                    others.all(|other| other.protocol == claimant.protocol)
                })
            }
        };
        first.map(|first| Ownership {
            namespace: first.namespace.clone(),
            since: self.latest + 1,
            protocol: matches!(what, Ownable::Port(_)).then_some(first.protocol),
            released: None,
        })
    }

    /// Whether nobody else has a wildcard over a name, or consents.
    fn may_own(&self, claimant: &Claimant, what: &Ownable, consents: &Consents<'_>) -> bool {
        // The most specific one decides: its owner has what lies below it.
        let over = what.hostname().into_iter().flat_map(Hostname::covering).find_map(|wide| {
            let over = what.with(wide.clone())?;
            Some((wide, self.decided(&over)?.namespace.clone()))
        });
        over.is_none_or(|(wide, owner)| {
            owner == claimant.namespace || is_public(&wide) || consents(claimant, what, &wide, &owner)
        })
    }

    /// Records who is to own something, or proposes it. What is to be told to whoever writes the record, if anything.
    pub(super) fn record(
        &mut self,
        what: &Ownable,
        owner: Option<Ownership>,
        now_ms: u64,
    ) -> Option<Option<Ownership>> {
        let namespaces: BTreeSet<Arc<str>> = self.claims.of(what).map(|claimant| claimant.namespace.clone()).collect();
        for namespace in namespaces {
            let denied = owner.as_ref().is_none_or(|owner| owner.namespace != namespace);
            self.denied.set(&namespace, what, denied);
        }
        let held = self.records.get(what);
        let same = same_owner(held, owner.as_ref())
            && held.and_then(|held| held.released) == owner.as_ref().and_then(|owner| owner.released);
        if same {
            self.proposed.remove(what);
            return None;
        }
        let anew = !same_owner(held, owner.as_ref());
        let owner = owner.map(|owner| {
            let since = if anew { now_ms.max(self.latest + 1) } else { owner.since };
            Ownership { since, ..owner }
        });
        match self.recording {
            Recording::Here => self.set(what.clone(), owner.clone()),
            Recording::OtherListeners => {
                let there = self.proposed.get(what);
                let known = there.is_some_and(|there| {
                    same_owner(there.as_ref(), owner.as_ref())
                        && there.as_ref().and_then(|o| o.released).is_some()
                            == owner.as_ref().and_then(|o| o.released).is_some()
                });
                if known {
                    return None;
                }
                self.proposed.insert(what.clone(), owner.clone());
            }
        }
        Some(owner)
    }

    /// Whether a namespace is about to own something.
    pub(super) fn is_about_to_own(&self, what: &Ownable, namespace: &str) -> bool {
        let proposed = self.proposed.get(what).and_then(Option::as_ref);
        proposed.is_some_and(|owner| *owner.namespace == *namespace)
    }
}

/// Whether something is a hostname below a wildcard, or below the catch-all, among the same namespaces.
fn is_below(wide: &Ownable, what: &Ownable) -> bool {
    let names = wide.hostname().zip(what.hostname());
    names.is_some_and(|(wide, name)| name != wide && wide.covers(name))
}

/// Whether a wildcard stands for all domains below a public suffix, as `*.co.uk`: whoever has it has nobody's domain.
fn is_public(wide: &Hostname) -> bool {
    let Some(bare) = wide.as_str().strip_prefix("*.") else { return false };
    psl::suffix(bare.as_bytes()).is_some_and(|suffix| suffix.is_known() && suffix.as_bytes() == bare.as_bytes())
}

fn same_owner(a: Option<&Ownership>, b: Option<&Ownership>) -> bool {
    let seen = |owner: &Ownership| (owner.namespace.clone(), owner.protocol);
    a.map(seen) == b.map(seen)
}

/// What a port of the shared fleet speaks whoever comes first.
pub(super) fn well_known(port: TransportPort) -> Option<Family> {
    match (port.number, port.transport) {
        (80, Transport::Tcp) => Some(Family::Http),
        (443, Transport::Tcp) => Some(Family::Tls),
        _ => None,
    }
}

/// The frontend of a port of the shared fleet.
pub(super) fn shared_frontend(port: TransportPort) -> FrontendId {
    let TransportPort { number, transport } = port;
    FrontendId { gateway: ObjectName::clone(shared()), port: number, transport }
}
