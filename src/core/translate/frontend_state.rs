//! What the engine keeps of a frontend, and where frontends are bound.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::challenge::KnownHosts;
use super::claims::{Claims, Family};
use super::compile::table_chain_name;
use super::engine::{Dirty, Engine};
use super::exposure;
use super::fleet::is_shared;
use super::key::{ListenerId, ParentKey};
use super::ownership::{By, Claimant, Ownable};
use super::parent::{ParentListener, Protocol};
use super::sans::Sans;
use super::sni_matcher::SniMatcher;
use super::tables::elsewhere;
use crate::inputs::Address;
use crate::model::{Chain, FrontendId, Handler, Hostname, ObjectName, VirtualHost};

/// One port of one Gateway, or of the Gateways that share it.
#[derive(Default)]
pub(super) struct FrontendState {
    /// Who wants which hostname.
    pub(super) claims: Claims,
    /// Who has it.
    pub(super) winners: BTreeMap<Hostname, (ListenerId, Protocol)>,
    /// Wildcards and the catch-all among the winners.
    wide: BTreeSet<Hostname>,
    /// For each wildcard, and the catch-all, how many winners lie under it.
    under: HashMap<Hostname, usize>,
    /// Which SNI goes where.
    pub(super) gate: SniMatcher,
    /// Virtual hosts by table: the plain-HTTP one, or one for each wildcard or catch-all listener.
    pub(super) tables: BTreeMap<Option<Hostname>, BTreeMap<Hostname, VirtualHost>>,
    /// In which table a hostname stands.
    pub(super) placed: BTreeMap<Hostname, Option<Hostname>>,
    /// Exact hostnames with routes under a wildcard or catch-all listener, by that listener's hostname.
    pub(super) beneath: BTreeMap<Hostname, BTreeSet<Hostname>>,
    /// The names in the certificates of winners.
    pub(super) sans: Sans,
    /// Hosts whose HTTP-01 challenges are answered here.
    pub(super) challenges: KnownHosts,
    /// Addresses it is to be bound to.
    pub(super) addresses: Vec<IpAddr>,
    /// The port there.
    pub(super) port: u16,
    /// What it claims of those addresses, where Gateways have addresses of their own.
    claimed: BTreeMap<Ownable, Claimant>,
}

impl FrontendState {
    /// The listener that serves a hostname: the most specific one that covers it.
    pub(super) fn owner(&self, hostname: &Hostname) -> Option<(&Hostname, &ListenerId, Protocol)> {
        let own = self.winners.get_key_value(hostname);
        let wider = || hostname.covering().find_map(|w| self.winners.get_key_value(&w));
        let any = || self.winners.get_key_value(&Hostname::any());
        let (hostname, (listener, protocol)) = own.or_else(wider).or_else(any)?;
        Some((hostname, listener, *protocol))
    }

    /// Whether a wildcard or catch-all listener has its name here.
    pub(super) fn is_wide(&self) -> bool {
        !self.wide.is_empty()
    }

    /// Sets who has a hostname. Returns the listeners that begin or cease to overlap with another.
    pub(super) fn set_winner(
        &mut self,
        hostname: &Hostname,
        winner: Option<(ListenerId, Protocol)>,
    ) -> BTreeSet<ListenerId> {
        let there = winner.is_some();
        let was = match winner {
            Some(winner) => self.winners.insert(hostname.clone(), winner),
            None => self.winners.remove(hostname),
        };
        let mut flipped = BTreeSet::new();
        if was.is_some() == there {
            return flipped;
        }
        match there && !hostname.is_exact() {
            true => self.wide.insert(hostname.clone()),
            false => self.wide.remove(hostname),
        };
        let any = (!hostname.is_any()).then(Hostname::any);
        for wide in hostname.covering().chain(any) {
            let count = self.under.entry(wide.clone()).or_insert(0);
            if there {
                *count += 1
            } else {
                *count -= 1
            }
            let edge = *count == usize::from(there);
            if *count == 0 {
                self.under.remove(&wide);
            }
            if edge && let Some((listener, _)) = self.winners.get(&wide) {
                flipped.insert(listener.clone());
            }
        }
        if !hostname.is_exact() {
            let beneath = self.winners.iter().filter(|(name, _)| *name != hostname && hostname.covers(name));
            flipped.extend(beneath.map(|(_, (listener, _))| listener.clone()));
        }
        flipped
    }

    /// A chain of the gate with what depends on all winners: whose the hosts without a scope are.
    pub(super) fn complete(&self, chain: &Chain) -> Chain {
        let Handler::Scopes { listener, .. } = &chain.handler else { return chain.clone() };
        // Its own hosts without a scope are nobody's, unless a table serves some of them.
        let tabled = |name: &Hostname| self.gate.chain(&table_chain_name(name)).is_some();
        let theirs = |name: &&Hostname| listener.as_ref() != Some(name) || tabled(name);
        let elsewhere = elsewhere(self.wide.iter().filter(theirs));
        Chain { tls: chain.tls.clone(), handler: Handler::Scopes { listener: listener.clone(), elsewhere } }
    }

    /// Whether another hostname of the port covers this one or lies under it.
    pub(super) fn overlaps(&self, hostname: &Hostname) -> bool {
        let wider = |h: &Hostname| h.covering().any(|w| self.winners.contains_key(&w));
        let any = !hostname.is_any() && self.winners.contains_key(&Hostname::any());
        self.under.contains_key(hostname) || wider(hostname) || any
    }
}

impl Engine {
    /// Notes the certificate that a listener serves, and marks those whose certificates begin or cease to overlap.
    pub(super) fn place_sans(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        own: Option<&ParentListener>,
        dirty: &mut Dirty,
    ) {
        let Some(frontend) = self.frontends.get_mut(id) else { return };
        let touched = frontend.sans.set(hostname, own.and_then(|listener| listener.served.certificate()));
        let listeners = touched.iter().filter_map(|hostname| frontend.winners.get(hostname));
        dirty.statuses.extend(listeners.map(|(listener, _)| listener.parent.object()));
    }

    /// Binds the frontends of a Gateway, or what Gateways share, to its addresses: where two want one, the namespace keeps it
    /// that is recorded to own it, and within it the older Gateway.
    pub(super) fn bind(&mut self, gateway: &ObjectName, dirty: &mut Dirty) {
        // Which ports there are may have changed.
        dirty.services.insert(gateway.clone());
        let start = FrontendId { gateway: gateway.clone(), port: 0 };
        let ids: Vec<FrontendId> =
            self.frontends.range(start..).map(|(id, _)| id.clone()).take_while(|id| id.gateway == *gateway).collect();
        if ids.is_empty() {
            return;
        }
        let sockets: Vec<(Vec<IpAddr>, u16)>;
        let created;
        {
            let (age, socket) = self.sockets_of(gateway);
            created = age;
            sockets = ids.iter().map(|id| socket(id.port)).collect();
        }
        for (id, (addresses, port)) in ids.into_iter().zip(sockets) {
            let frontend = self.frontends.get_mut(&id).expect("just listed");
            let wanted = if frontend.is_idle() { Vec::new() } else { addresses };
            // A frontend for challenges alone gives way to everybody's listeners.
            let claims_socket = !frontend.claims.is_empty() && !is_shared(&id.gateway) && !exposure::is_internal(port);
            let created = if frontend.claims.is_empty() { i64::MAX } else { created };
            let namespace = &id.gateway.namespace;
            let claimant = Claimant {
                created: if self.settings.believes_creation_times { created } else { 0 },
                namespace: namespace.clone(),
                through: namespace.clone(),
                by: By::Frontend(id.clone()),
                protocol: Family::Tcp,
            };
            let sockets = wanted.iter().filter(|_| claims_socket).map(|ip| Ownable::Socket(*ip, port));
            let claimed: BTreeMap<Ownable, Claimant> = sockets.map(|what| (what, claimant.clone())).collect();
            let before = std::mem::replace(&mut frontend.claimed, claimed.clone());
            if before != claimed {
                for (claims, there) in [(before, false), (claimed, true)] {
                    for (what, claimant) in claims {
                        self.register.claim(&what, &claimant, there);
                        dirty.owned.insert(what);
                    }
                }
            }
            let held = std::mem::replace(&mut frontend.addresses, wanted.clone());
            let held_port = std::mem::replace(&mut frontend.port, port);
            let same = held == wanted && held_port == port;
            if same && wanted.iter().all(|ip| self.sockets.contains(&(*ip, port), &(created, id.clone()))) {
                continue;
            }
            let old = held.iter().map(|ip| (*ip, held_port));
            for socket in old.chain(wanted.iter().map(|ip| (*ip, port))) {
                self.touch_socket(socket.0, dirty);
                let rivals: Vec<_> = self.sockets.of(&socket).cloned().collect();
                for rival in rivals {
                    self.touch_frontend(&rival.1, dirty);
                    if rival.1 == id {
                        self.sockets.remove(&socket, &rival);
                    }
                }
            }
            for ip in &wanted {
                self.sockets.insert((*ip, port), (created, id.clone()));
            }
            self.touch_frontend(&id, dirty);
        }
    }

    /// Marks a frontend and everybody who has a listener there.
    pub(super) fn touch_frontend(&self, id: &FrontendId, dirty: &mut Dirty) {
        dirty.frontends.insert(id.clone());
        dirty.services.insert(id.gateway.clone());
        dirty.statuses.insert(ParentKey::Gateway(id.gateway.clone()).object());
        for listener in self.frontends.get(id).into_iter().flat_map(|frontend| frontend.claims.listeners()) {
            dirty.statuses.insert(listener.parent.object());
            // Whose port it is decides who gets certificates.
            dirty.wanting.insert(listener.parent.clone());
        }
    }

    /// The addresses a Gateway is bound to, sorted.
    pub(super) fn addresses(&self, wanted: &[Address]) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = wanted
            .iter()
            .flat_map(|address| match address {
                Address::Ip(ip) => std::slice::from_ref(ip),
                Address::Any => self.settings.default_addresses.as_slice(),
                Address::Unsupported(_) | Address::Malformed(_) => &[],
            })
            .copied()
            .collect();
        if wanted.is_empty() {
            all.clone_from(&self.settings.default_addresses);
        }
        all.sort();
        all.dedup();
        all
    }

    /// The Gateway that holds one of a frontend's sockets instead of it.
    pub(super) fn rival(&self, id: &FrontendId) -> Option<&FrontendId> {
        let frontend = self.frontends.get(id)?;
        let first = |ip: &IpAddr| {
            let owner = self.register.owner(&Ownable::Socket(*ip, frontend.port));
            let may_hold = |(created, other): &&(i64, FrontendId)| {
                // What answers challenges alone claims nothing, and the shared fleet is nobody's.
                let claims = *created != i64::MAX && !is_shared(&other.gateway);
                !claims || owner.is_none_or(|owner| owner.namespace == other.gateway.namespace)
            };
            self.sockets.of(&(*ip, frontend.port)).find(may_hold).map(|(_, first)| first)
        };
        frontend.addresses.iter().filter_map(first).find(|first| *first != id)
    }
}
