//! All frontends, the sockets that they are bound to, and the listeners that do not get their
//! hostnames.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::claims::{Claim, Conflict, Rank};
use super::dirty::Dirty;
use super::frontend_state::{Account, FrontendState};
use super::http3::Http3Hosts;
use super::register::Register;
use super::scope_keys::ScopeKeys;
use crate::key::{ListenerId, ParentKey};
use crate::rule::gateway_exposure::is_shared;
use crate::rule::ownership::shared_frontend;
use gatewright_objects::model::{
    Family, FrontendId, Hostname, ObjectName, Thumbprint, Transport, TransportPort,
};
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::ownership::Ownable;

/// A contender for a socket: the creation time of the Gateway, or [`FOR_CHALLENGES`] without a
/// listener; and the frontend.
type Bound = (i64, FrontendId);

/// The creation time of a frontend for challenges alone: it yields to any listener.
pub(crate) const FOR_CHALLENGES: i64 = i64::MAX;

/// All frontends.
#[derive(Default)]
pub(crate) struct Frontends {
    all: BTreeMap<FrontendId, FrontendState>,
    /// Contenders for each socket, the oldest first.
    sockets: MultiMap<(TransportPort, IpAddr), Bound>,
    /// Why listeners do not get their hostnames.
    conflicts: BTreeMap<ListenerId, Conflict>,
    /// The frontend of the same namespace that has a socket of another, and answers its challenges.
    deputies: BTreeMap<FrontendId, FrontendId>,
    /// The others, by that one.
    represented: MultiMap<FrontendId, FrontendId>,
    /// The units with scopes, by the hashes of their keys.
    pub(crate) scope_keys: ScopeKeys,
}

impl Frontends {
    /// A frontend.
    pub(crate) fn get(&self, id: &FrontendId) -> Option<&FrontendState> {
        self.all.get(id)
    }

    /// A frontend, for changes.
    pub(crate) fn get_mut(&mut self, id: &FrontendId) -> Option<&mut FrontendState> {
        self.all.get_mut(id)
    }

    /// A frontend, created if it does not exist.
    pub(crate) fn get_or_insert(&mut self, id: &FrontendId) -> &mut FrontendState {
        self.all.entry(id.clone()).or_default()
    }

    /// All of them, sorted.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&FrontendId, &FrontendState)> {
        self.all.iter()
    }

    /// The frontends of a Gateway, or of the shared fleet.
    pub(crate) fn of_gateway(
        &self,
        gateway: &ObjectName,
    ) -> impl Iterator<Item = (&FrontendId, &FrontendState)> {
        let start = FrontendId::first(gateway.clone());
        self.all
            .range(start..)
            .take_while(move |(id, _)| id.gateway == *gateway)
    }

    /// The frontends of the shared fleet.
    pub(crate) fn shared(&self) -> impl Iterator<Item = (&FrontendId, &FrontendState)> {
        self.all
            .range(shared_frontend(TransportPort::tcp(0))..)
            .take_while(|(id, _)| is_shared(&id.gateway))
    }

    /// Removes a frontend without claims, challenges and addresses.
    pub(crate) fn forget_idle(&mut self, id: &FrontendId) {
        let is_idle = self
            .all
            .get(id)
            .is_some_and(|frontend| frontend.is_idle() && frontend.addresses().is_empty());
        if is_idle {
            self.all.remove(id);
        }
    }

    /// Sets or removes the claim of a listener on a frontend, and the recorded family of a shared
    /// port. Marks the hostnames whose outcome may change.
    pub(crate) fn set_claim(
        &mut self,
        id: &FrontendId,
        rank: Rank,
        claim: Option<Claim>,
        recorded: Option<Option<Family>>,
        dirty: &mut Dirty,
    ) {
        let frontend = self.get_or_insert(id);
        let was_empty = frontend.claims().is_empty();
        let was_plain = frontend.is_plain();
        let mut touched = frontend.claim(rank, claim);
        touched.extend(
            recorded
                .into_iter()
                .flat_map(|family| frontend.set_recorded_family(family)),
        );
        let is_empty = frontend.claims().is_empty();
        if was_plain != frontend.is_plain() {
            let challenged = self.challenged(id).cloned();
            dirty
                .units
                .extend(challenged.map(|host| (id.clone(), host)));
        }
        if was_empty != is_empty {
            dirty.bindings.insert(id.gateway.clone());
        }
        dirty.contend(id, touched);
        if was_empty != is_empty {
            self.touch_http3(id, dirty);
        }
    }

    /// Sets whether a listener asks for HTTP/3 of its host, on a frontend of UDP.
    pub(crate) fn ask_http3(
        &mut self,
        id: &FrontendId,
        (hostname, listener): (&Hostname, &ListenerId),
        there: bool,
        dirty: &mut Dirty,
    ) {
        let hosts = self.get_or_insert(id).http3_mut();
        let was_asked = hosts.is_asked();
        hosts.ask(hostname, listener, there);
        if was_asked != hosts.is_asked() {
            dirty.bindings.insert(id.gateway.clone());
        }
        dirty.frontends.insert(id.clone());
        dirty
            .units
            .insert((id.over(Transport::Tcp), hostname.clone()));
    }

    /// True if clients reach the hosts with HTTP/3 of a frontend of UDP.
    pub(crate) fn serves_http3(&self, id: &FrontendId, register: &Register) -> bool {
        let is_bound = self.get(id).is_some_and(|frontend| {
            frontend.claims().is_empty() && !frontend.addresses().is_empty()
        });
        is_bound && self.rival(id, register).is_none()
    }

    /// Marks the hosts that ask for HTTP/3 on a frontend: their routes tell clients whether there
    /// is.
    fn touch_http3(&self, id: &FrontendId, dirty: &mut Dirty) {
        let hosts = self.all.get(id).map(FrontendState::http3);
        for (hostname, listener) in hosts.into_iter().flat_map(Http3Hosts::asked) {
            dirty
                .units
                .insert((id.over(Transport::Tcp), hostname.clone()));
            dirty.statuses.insert(listener.parent.object());
        }
    }

    /// Why a listener does not get its hostname.
    pub(crate) fn conflict(&self, listener: &ListenerId) -> Option<&Conflict> {
        self.conflicts.get(listener)
    }

    /// Sets why a listener does not get its hostname. Returns whether that changed.
    pub(crate) fn set_conflict(
        &mut self,
        listener: &ListenerId,
        conflict: Option<Conflict>,
    ) -> bool {
        let before = match conflict {
            Some(conflict) => self.conflicts.insert(listener.clone(), conflict),
            None => self.conflicts.remove(listener),
        };
        before != conflict
    }

    /// True if a frontend requests a socket.
    pub(crate) fn has_socket(&self, ip: IpAddr, port: TransportPort) -> bool {
        self.sockets.first(&(port, ip)).is_some()
    }

    /// Binds a frontend to addresses, in place of its former ones; `created` decides between
    /// rivals. Marks it and the frontends that it shares sockets with, and returns the affected
    /// addresses.
    pub(crate) fn bind(
        &mut self,
        id: &FrontendId,
        addresses: Vec<IpAddr>,
        port: u16,
        created: i64,
        dirty: &mut Dirty,
    ) -> Vec<IpAddr> {
        let Some(frontend) = self.all.get_mut(id) else {
            return Vec::new();
        };
        let (held, held_port) = frontend.rebind(addresses.clone(), port);
        let same = held == addresses && held_port == port;
        if same
            && addresses.iter().all(|ip| {
                self.sockets
                    .contains(&(at(port, &id.transport), *ip), &(created, id.clone()))
            })
        {
            return Vec::new();
        }
        let mut touched = Vec::new();
        let old = held.iter().map(|ip| (at(held_port, &id.transport), *ip));
        for socket in old.chain(addresses.iter().map(|ip| (at(port, &id.transport), *ip))) {
            touched.push(socket.1);
            self.touch_socket(socket.1, socket.0, dirty);
            let own: Vec<Bound> = self
                .sockets
                .of(&socket)
                .filter(|(_, other)| other == id)
                .cloned()
                .collect();
            for bound in own {
                self.sockets.remove(&socket, &bound);
            }
        }
        for ip in &addresses {
            self.sockets
                .insert((at(port, &id.transport), *ip), (created, id.clone()));
        }
        self.touch(id, dirty);
        touched
    }

    /// Marks a frontend and all parents with a listener there.
    pub(crate) fn touch(&self, id: &FrontendId, dirty: &mut Dirty) {
        dirty.frontends.insert(id.clone());
        dirty.represented.insert(id.clone());
        dirty.services.insert(id.gateway.clone());
        dirty
            .statuses
            .insert(ParentKey::Gateway(id.gateway.clone()).object());
        for listener in self
            .all
            .get(id)
            .into_iter()
            .flat_map(|frontend| frontend.claims().listeners())
        {
            dirty.statuses.insert(listener.parent.object());
            // The holder of the port gets the certificates.
            dirty.wanting.insert(listener.parent.clone());
        }
        self.touch_http3(id, dirty);
    }

    /// Marks all frontends that request a socket; for that of all addresses also those that request
    /// one of them.
    pub(crate) fn touch_socket(&self, ip: IpAddr, port: TransportPort, dirty: &mut Dirty) {
        let there = self
            .sockets
            .from((port, ip))
            .take_while(|((other, _), _)| *other == port);
        for (_, bound) in there.take_while(|((_, other), _)| is_part(*other, &ip)) {
            bound.for_each(|(_, id)| self.touch(id, dirty));
        }
    }

    /// Marks all frontends to be assembled again.
    pub(crate) fn touch_all(&self, dirty: &mut Dirty) {
        dirty.frontends.extend(self.all.keys().cloned());
    }

    /// The frontend that holds one of a frontend's sockets instead of it: the recorded owner's, and
    /// within a namespace the older Gateway's. A Gateway with Envoys of its own has no rivals.
    pub(crate) fn rival(&self, id: &FrontendId, register: &Register) -> Option<&FrontendId> {
        let frontend = self.all.get(id).filter(|_| !id.isolated)?;
        let port = TransportPort {
            number: frontend.port(),
            transport: id.transport,
        };
        frontend.addresses().iter().find_map(|ip| {
            let holder = self.holder(*ip, port, register)?;
            let other = (holder.1 != *id).then_some(&holder.1);
            other.or_else(|| self.earlier_on_all(*ip, port, holder, register))
        })
    }

    /// The hosts whose challenges arrive at a frontend.
    fn challenged<'a>(&'a self, id: &'a FrontendId) -> impl Iterator<Item = &'a Hostname> {
        self.represented
            .of(id)
            .chain([id])
            .filter_map(|id| self.all.get(id))
            .flat_map(FrontendState::challenged)
    }

    /// The account that proves a host at a frontend, if one does.
    pub(crate) fn account(&self, id: &FrontendId, host: &Hostname) -> Option<&Thumbprint> {
        let own = self.all.get(id).and_then(|frontend| frontend.account(host));
        let account = own.or_else(|| {
            self.represented
                .of(id)
                .filter_map(|id| self.all.get(id)?.account(host))
                .find(|account| account.is_of_gateway)
        });
        account.map(|account| &account.thumbprint)
    }

    /// Sets or removes the account that proves a host of a frontend, and marks where challenges are
    /// answered. Returns whether that is a change.
    pub(crate) fn answer_challenges(
        &mut self,
        id: &FrontendId,
        host: &Hostname,
        account: Option<Account>,
        dirty: &mut Dirty,
    ) -> bool {
        if !self.get_or_insert(id).answer_challenges(host, account) {
            return false;
        }
        for id in self.deputies.get(id).into_iter().chain([id]) {
            dirty.units.insert((id.clone(), host.clone()));
        }
        true
    }

    /// Determines which frontend of the same namespace answers the challenges of one that does not
    /// have its socket.
    pub(crate) fn represent(&mut self, id: &FrontendId, register: &Register, dirty: &mut Dirty) {
        let deputy = self
            .rival(id, register)
            .filter(|rival| rival.gateway.namespace == id.gateway.namespace)
            .cloned();
        let before = match &deputy {
            Some(deputy) => self.deputies.insert(id.clone(), deputy.clone()),
            None => self.deputies.remove(id),
        };
        if before == deputy {
            return;
        }
        let challenged = self.all.get(id).map(FrontendState::challenged);
        let hosts: Vec<Hostname> = challenged.into_iter().flatten().cloned().collect();
        for (deputy, there) in [(before, false), (deputy, true)] {
            let Some(deputy) = deputy else { continue };
            self.represented.set(&deputy, id, there);
            let units = hosts.iter().map(|host| (deputy.clone(), host.clone()));
            dirty.units.extend(units);
        }
    }

    /// The frontend that gets connections to a port of TCP of an address.
    pub(crate) fn reached(
        &self,
        ip: IpAddr,
        port: u16,
        register: &Register,
    ) -> Option<&FrontendId> {
        let port = TransportPort {
            number: port,
            transport: Transport::Tcp,
        };
        let bound = |ip| self.holder(ip, port, register).map(|(_, id)| id);
        bound(ip).or_else(|| bound(all_of(ip)))
    }

    /// The contender that has a socket.
    fn holder(&self, ip: IpAddr, port: TransportPort, register: &Register) -> Option<&Bound> {
        let owner = register.owner(&Ownable::Socket(ip, port));
        self.sockets
            .of(&(port, ip))
            .filter(|(_, id)| !id.isolated)
            .find(|bound| {
                !claims(bound)
                    || owner.is_none_or(|owner| owner.namespace == bound.1.gateway.namespace)
            })
    }

    /// The frontend that has the port of all addresses since before another one has it of this
    /// address: connections to the address would go to that one.
    fn earlier_on_all(
        &self,
        ip: IpAddr,
        port: TransportPort,
        holder: &Bound,
        register: &Register,
    ) -> Option<&FrontendId> {
        let all = all_of(ip);
        let first = self
            .holder(all, port, register)
            .filter(|first| claims(first) && ip != all)?;
        let gateway = &first.1.gateway;
        let other = &holder.1.gateway;
        let is_earlier = if gateway.namespace == other.namespace {
            gateway != other && first < holder
        } else {
            since(all, &port, register) < since(ip, &port, register)
        };
        is_earlier.then_some(&first.1)
    }
}

/// The address that stands for all of the family of one.
fn all_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn at(number: u16, id_transport: &gatewright_objects::model::Transport) -> TransportPort {
    TransportPort {
        number,
        transport: *id_transport,
    }
}

fn is_part(other: IpAddr, ip: &IpAddr) -> bool {
    other == *ip || ip.is_unspecified() && other.is_ipv4() == ip.is_ipv4()
}

fn since(ip: IpAddr, port: &TransportPort, register: &Register) -> u64 {
    register
        .owner(&Ownable::Socket(ip, *port))
        .map_or(u64::MAX, |owner| owner.since)
}

/// True if a frontend claims its sockets for its namespace, or for the shared fleet: one for
/// challenges alone does not.
fn claims((created, _): &Bound) -> bool {
    *created != FOR_CHALLENGES
}
