//! All frontends, the sockets that they are bound to, and the listeners that have no hostname on theirs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::claims::{Claim, Conflict, Rank};
use super::dirty::Dirty;
use super::frontend_state::FrontendState;
use super::gateway_exposure::is_shared;
use super::key::{ListenerId, ParentKey};
use super::ownership::{Ownable, shared_frontend};
use super::protocol::Family;
use super::register::Register;
use crate::model::{FrontendId, ObjectName, TransportPort};
use crate::multimap::MultiMap;

/// A contender for a socket: the creation time of the Gateway, [`FOR_CHALLENGES`] without a listener, and the frontend.
type Bound = (i64, FrontendId);

/// In place of a creation time: a frontend for challenges alone gives way to everybody's listeners.
pub(super) const FOR_CHALLENGES: i64 = i64::MAX;

/// All frontends.
#[derive(Default)]
pub(super) struct Frontends {
    all: BTreeMap<FrontendId, FrontendState>,
    /// Contenders for each socket, the older first.
    sockets: MultiMap<(IpAddr, TransportPort), Bound>,
    /// Why listeners do not have their hostnames.
    conflicts: BTreeMap<ListenerId, Conflict>,
}

impl Frontends {
    /// A frontend.
    pub(super) fn get(&self, id: &FrontendId) -> Option<&FrontendState> {
        self.all.get(id)
    }

    /// A frontend, to be changed by its operations.
    pub(super) fn get_mut(&mut self, id: &FrontendId) -> Option<&mut FrontendState> {
        self.all.get_mut(id)
    }

    /// A frontend that is made where there is none.
    pub(super) fn get_or_insert(&mut self, id: &FrontendId) -> &mut FrontendState {
        self.all.entry(id.clone()).or_default()
    }

    /// All of them, sorted.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&FrontendId, &FrontendState)> {
        self.all.iter()
    }

    /// The frontends of a Gateway, or those that Gateways share.
    pub(super) fn of_gateway(&self, gateway: &ObjectName) -> impl Iterator<Item = (&FrontendId, &FrontendState)> {
        let start = FrontendId::first(gateway.clone());
        self.all.range(start..).take_while(move |(id, _)| id.gateway == *gateway)
    }

    /// The frontends that Gateways share.
    pub(super) fn shared(&self) -> impl Iterator<Item = (&FrontendId, &FrontendState)> {
        self.all.range(shared_frontend(TransportPort::tcp(0))..).take_while(|(id, _)| is_shared(&id.gateway))
    }

    /// Forgets a frontend that nobody needs and that is bound nowhere. Whether it is gone.
    pub(super) fn forget_idle(&mut self, id: &FrontendId) -> bool {
        let is_idle = self.all.get(id).is_some_and(|frontend| frontend.is_idle() && frontend.addresses().is_empty());
        is_idle && self.all.remove(id).is_some()
    }

    /// Sets or removes what a listener claims of a frontend, and what is recorded of the port where Gateways share it. Marks
    /// the hostnames whose outcome may be another.
    pub(super) fn set_claim(
        &mut self,
        id: &FrontendId,
        rank: Rank,
        claim: Option<Claim>,
        recorded: Option<Option<Family>>,
        dirty: &mut Dirty,
    ) {
        let frontend = self.get_or_insert(id);
        let was_empty = frontend.claims().is_empty();
        let mut touched = frontend.claim(rank, claim);
        touched.extend(recorded.into_iter().flat_map(|family| frontend.speak(family)));
        if frontend.has_challenges() {
            dirty.tables.insert((id.clone(), None));
        }
        if was_empty != frontend.claims().is_empty() {
            dirty.bindings.insert(id.gateway.clone());
        }
        dirty.contend(id, touched);
    }

    /// Why a listener does not have its hostname.
    pub(super) fn conflict(&self, listener: &ListenerId) -> Option<&Conflict> {
        self.conflicts.get(listener)
    }

    /// Sets why a listener does not have its hostname. Whether that is different from before.
    pub(super) fn set_conflict(&mut self, listener: &ListenerId, conflict: Option<Conflict>) -> bool {
        let before = match conflict {
            Some(conflict) => self.conflicts.insert(listener.clone(), conflict),
            None => self.conflicts.remove(listener),
        };
        before != conflict
    }

    /// Whether a frontend wants to be bound to a socket.
    pub(super) fn has_socket(&self, ip: IpAddr, port: TransportPort) -> bool {
        self.sockets.first(&(ip, port)).is_some()
    }

    /// Binds a frontend to addresses, in place of those that it was bound to; `created` decides between rivals. Marks it
    /// with those that it has sockets in common with, and returns the addresses where that changes anything.
    pub(super) fn bind(
        &mut self,
        id: &FrontendId,
        addresses: Vec<IpAddr>,
        port: u16,
        created: i64,
        dirty: &mut Dirty,
    ) -> Vec<IpAddr> {
        let Some(frontend) = self.all.get_mut(id) else { return Vec::new() };
        let at = |number| TransportPort { number, transport: id.transport };
        let (held, held_port) = frontend.rebind(addresses.clone(), port);
        let same = held == addresses && held_port == port;
        if same && addresses.iter().all(|ip| self.sockets.contains(&(*ip, at(port)), &(created, id.clone()))) {
            return Vec::new();
        }
        let mut touched = Vec::new();
        let old = held.iter().map(|ip| (*ip, at(held_port)));
        for socket in old.chain(addresses.iter().map(|ip| (*ip, at(port)))) {
            touched.push(socket.0);
            let rivals: Vec<Bound> = self.sockets.of(&socket).cloned().collect();
            for rival in rivals {
                self.touch(&rival.1, dirty);
                if rival.1 == *id {
                    self.sockets.remove(&socket, &rival);
                }
            }
        }
        for ip in &addresses {
            self.sockets.insert((*ip, at(port)), (created, id.clone()));
        }
        self.touch(id, dirty);
        touched
    }

    /// Marks a frontend and everybody who has a listener there.
    pub(super) fn touch(&self, id: &FrontendId, dirty: &mut Dirty) {
        dirty.frontends.insert(id.clone());
        dirty.services.insert(id.gateway.clone());
        dirty.statuses.insert(ParentKey::Gateway(id.gateway.clone()).object());
        for listener in self.all.get(id).into_iter().flat_map(|frontend| frontend.claims().listeners()) {
            dirty.statuses.insert(listener.parent.object());
            // Whose port it is decides who gets certificates.
            dirty.wanting.insert(listener.parent.clone());
        }
    }

    /// Marks whoever wants a socket.
    pub(super) fn touch_socket(&self, ip: IpAddr, port: TransportPort, dirty: &mut Dirty) {
        for (_, id) in self.sockets.of(&(ip, port)) {
            self.touch(id, dirty);
        }
    }

    /// Marks all frontends to be put together anew.
    pub(super) fn touch_all(&self, dirty: &mut Dirty) {
        dirty.frontends.extend(self.all.keys().cloned());
    }

    /// The Gateway that holds one of a frontend's sockets instead of it: the namespace keeps it that is recorded to own it,
    /// and within it the older Gateway.
    pub(super) fn rival(&self, id: &FrontendId, register: &Register) -> Option<&FrontendId> {
        let frontend = self.all.get(id)?;
        let port = TransportPort { number: frontend.port(), transport: id.transport };
        let first = |ip: &IpAddr| {
            let owner = register.owner(&Ownable::Socket(*ip, port));
            let may_hold = |(created, other): &&Bound| {
                // What answers challenges alone claims nothing, and the shared fleet is nobody's.
                let claims = *created != FOR_CHALLENGES && !is_shared(&other.gateway);
                !claims || owner.is_none_or(|owner| owner.namespace == other.gateway.namespace)
            };
            self.sockets.of(&(*ip, port)).find(may_hold).map(|(_, first)| first)
        };
        frontend.addresses().iter().filter_map(first).find(|first| *first != id)
    }
}
