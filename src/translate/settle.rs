//! Who keeps a hostname of a frontend: the record says which namespace, precedence which of its listeners.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::claims::{Claim, Entitled, Family, Rank};
use super::engine::{Dirty, Engine};
use super::fleet::is_shared;
use super::key::{ListenerId, ParentKey};
use super::ownership::{By, Claimant, Ownable, Ownership, Recording, shared_frontend, well_known};
use crate::inputs::HOST_LABEL;
use crate::model::{FrontendId, Hostname, ObjectName, Reason};

impl Engine {
    /// Sets or removes what a listener claims of a frontend.
    pub(super) fn set_claim(&mut self, id: &FrontendId, rank: Rank, claim: Option<Claim>, dirty: &mut Dirty) {
        if is_shared(&id.gateway) {
            self.register_claim(id, &rank, claim.as_ref(), dirty);
        }
        let recorded = is_shared(&id.gateway).then(|| self.family(id.port));
        let frontend = self.frontends.entry(id.clone()).or_default();
        let was_empty = frontend.claims.is_empty();
        let mut touched = frontend.claims.set(rank, claim);
        touched.extend(recorded.into_iter().flat_map(|family| frontend.claims.speak(family)));
        if !frontend.challenges.is_empty() {
            dirty.tables.insert((id.clone(), None));
        }
        if was_empty != frontend.claims.is_empty() {
            self.bind(&id.gateway, dirty);
        }
        dirty.claims.entry(id.clone()).or_default().extend(touched);
    }

    /// Decides who keeps the touched hostnames of a frontend.
    pub(super) fn settle(&mut self, id: &FrontendId, hostnames: &BTreeSet<Hostname>, dirty: &mut Dirty) {
        for hostname in hostnames {
            self.counters.claims += 1;
            let Some(frontend) = self.frontends.get(id) else { return };
            let (winner, losers) = frontend.claims.outcome(hostname, self.entitled(id, hostname));
            let winner = winner.map(|claim| (claim.listener.clone(), claim.protocol));
            let losers =
                losers.into_iter().map(|(loser, reason)| (loser.clone(), self.or_pending(id, hostname, loser, reason)));
            let losers: Vec<(ListenerId, Reason)> = losers.collect();
            for (loser, reason) in losers {
                if self.conflicts.insert(loser.clone(), reason) != Some(reason) {
                    dirty.wishing.insert(loser.parent.clone());
                    dirty.statuses.insert(loser.parent.object());
                }
            }
            if let Some((listener, _)) = &winner
                && self.conflicts.remove(listener).is_some()
            {
                dirty.wishing.insert(listener.parent.clone());
                dirty.statuses.insert(listener.parent.object());
            }
            let Some(frontend) = self.frontends.get_mut(id) else { return };
            let before = frontend.winners.get(hostname).cloned();
            if before == winner {
                continue;
            }
            let overlapping = frontend.set_winner(hostname, winner.clone());
            dirty.statuses.extend(overlapping.into_iter().map(|listener| listener.parent.object()));
            for (listener, _) in [before, winner].into_iter().flatten() {
                self.note_gateway(&id.gateway, &listener, dirty);
                dirty.wishing.insert(listener.parent.clone());
                dirty.statuses.insert(listener.parent.object());
            }
            dirty.units.insert((id.clone(), hostname.clone()));
            dirty.frontends.insert(id.clone());
            if !hostname.is_exact() {
                self.touch_under(id, hostname, dirty);
            }
            self.touch_lists(id, dirty);
        }
    }

    /// Marks every unit under a wildcard or catch-all: for changes that are rare.
    pub(super) fn touch_under(&self, id: &FrontendId, wide: &Hostname, dirty: &mut Dirty) {
        let Some(frontend) = self.frontends.get(id) else { return };
        let served = frontend.claims.listeners().flat_map(|listener| self.names_of(listener));
        let names = frontend.winners.keys().chain(served);
        dirty.units.extend(names.filter(|name| wide.covers(name)).map(|name| (id.clone(), name.clone())));
        if is_shared(&id.gateway) {
            // Names of others are kept from it.
            dirty.units.extend(self.register.owned_below(wide).map(|name| (id.clone(), name.clone())));
        }
    }
}

impl Engine {
    /// What is to be recorded, or not any more: for whoever keeps the record.
    pub fn record_proposals(&self) -> impl Iterator<Item = (&Ownable, Option<&Ownership>)> {
        self.register.proposed().iter().map(|(what, owner)| (what, owner.as_ref()))
    }

    /// What is to be recorded of something; nothing where the record is right.
    pub fn record_proposal(&self, what: &Ownable) -> Option<Option<&Ownership>> {
        self.register.proposed().get(what).map(Option::as_ref)
    }

    /// What is recorded.
    pub fn record(&self) -> impl Iterator<Item = (&Ownable, &Ownership)> {
        self.register.records().iter()
    }

    /// Takes in what is recorded.
    pub(super) fn take_record(&mut self, what: Ownable, owner: Option<Ownership>, dirty: &mut Dirty) {
        if self.register.take(what.clone(), owner) {
            self.touch_owned(&what, dirty);
        }
        dirty.owned.insert(what);
    }

    /// Decides who owns what may have another owner.
    pub(super) fn settle_ownership(&mut self, now: SystemTime, dirty: &mut Dirty) {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        dirty.owned.extend(self.register.expired(now.as_secs()).cloned());
        // Claims that come together: the oldest first.
        let mut todo: BTreeSet<((i64, Arc<str>), Ownable)> = BTreeSet::new();
        loop {
            todo.extend(std::mem::take(&mut dirty.owned).into_iter().map(|what| (self.register.order(&what), what)));
            let Some((_, what)) = todo.pop_first() else { return };
            self.counters.owned += 1;
            let consents = |claimant: &Claimant, name: &Hostname, wide: &Hostname, owner: &Arc<str>| {
                *owner == claimant.through || self.is_delegated(&claimant.namespace, name, wide)
            };
            let owner = self.register.decide(&what, now.as_secs(), &consents);
            let before = self.register.owner(&what).map(|owner| (owner.namespace.clone(), owner.protocol));
            let Some(told) = self.register.record(&what, owner, millis) else { continue };
            dirty.delta.records.insert(what.clone(), told);
            let after = self.register.owner(&what).map(|owner| (owner.namespace.clone(), owner.protocol));
            if before != after {
                self.touch_owned(&what, dirty);
            } else if self.settings.recording == Recording::Elsewhere {
                // Somebody may be told that it is about to have it.
                self.touch_claims(&what, dirty);
            }
        }
    }

    /// Marks what goes by whose something is.
    fn touch_owned(&mut self, what: &Ownable, dirty: &mut Dirty) {
        self.touch_claims(what, dirty);
        match what {
            Ownable::Hostname(name) => {
                for id in self.shared_frontends() {
                    if self.frontends[&id].is_wide() {
                        dirty.units.insert((id.clone(), name.clone()));
                    }
                    if !name.is_exact() {
                        self.touch_under(&id, name, dirty);
                    }
                }
                if name.is_wildcard() {
                    dirty.owned.extend(self.register.below(name).cloned());
                }
            }
            Ownable::Port(port) => {
                let (id, family) = (shared_frontend(*port), self.family(*port));
                if let Some(frontend) = self.frontends.get_mut(&id) {
                    let touched = frontend.claims.speak(family);
                    dirty.claims.entry(id.clone()).or_default().extend(touched);
                    dirty.frontends.insert(id);
                }
            }
            Ownable::Socket(ip, port) => self.touch_socket(*ip, *port, dirty),
        }
    }

    /// Marks a hostname wherever listeners of the shared fleet claim it.
    fn touch_claims(&self, what: &Ownable, dirty: &mut Dirty) {
        let Ownable::Hostname(name) = what else { return };
        for id in self.shared_frontends() {
            if self.frontends[&id].claims.claims(name) {
                dirty.claims.entry(id).or_default().insert(name.clone());
            }
        }
    }

    fn touch_socket(&self, ip: IpAddr, port: u16, dirty: &mut Dirty) {
        for (_, id) in self.sockets.of(&(ip, port)) {
            self.touch_frontend(id, dirty);
        }
    }

    fn shared_frontends(&self) -> Vec<FrontendId> {
        let all = self.frontends.range(shared_frontend(0)..).map(|(id, _)| id);
        all.take_while(|id| is_shared(&id.gateway)).cloned().collect()
    }

    /// What a port of the shared fleet speaks, if that is known.
    fn family(&self, port: u16) -> Option<Family> {
        let recorded = || self.register.owner(&Ownable::Port(port)).and_then(|owner| owner.protocol);
        well_known(port).or_else(recorded)
    }

    /// Notes what a listener of the shared fleet claims now, in place of what it claimed.
    fn register_claim(&mut self, id: &FrontendId, rank: &Rank, claim: Option<&Claim>, dirty: &mut Dirty) {
        let old = self.frontends.get(id).and_then(|frontend| frontend.claims.get(rank)).cloned();
        for (claim, there) in [(old.as_ref(), false), (claim, true)] {
            let Some(claim) = claim else { continue };
            let namespace = rank.parent.namespace.clone();
            let through = rank.gateway.as_ref().map_or_else(|| namespace.clone(), |first| first.1.namespace.clone());
            let claimant = Claimant {
                created: if self.settings.believes_creation_times { rank.created } else { 0 },
                namespace,
                through,
                by: By::Listener(claim.listener.clone()),
                protocol: claim.protocol.family(),
            };
            let port = well_known(id.port).is_none().then_some(Ownable::Port(id.port));
            for what in port.into_iter().chain([Ownable::Hostname(claim.hostname.clone())]) {
                self.register.claim(&what, &claimant, there);
                dirty.owned.insert(what);
            }
        }
    }

    /// Who may have a hostname of a frontend.
    fn entitled(&self, id: &FrontendId, hostname: &Hostname) -> Entitled<'_> {
        if !is_shared(&id.gateway) {
            return Entitled::All;
        }
        match self.register.owner(&Ownable::Hostname(hostname.clone())) {
            Some(owner) => Entitled::Namespace(&owner.namespace),
            None => Entitled::None,
        }
    }

    /// What a loser is told: that it has to wait, where what it needs is about to be recorded as its own.
    fn or_pending(&self, id: &FrontendId, hostname: &Hostname, loser: &ListenerId, reason: Reason) -> Reason {
        if self.settings.recording == Recording::Here || !is_shared(&id.gateway) {
            return reason;
        }
        let namespace = &loser.parent.name().namespace;
        let port = Ownable::Port(id.port);
        let undecided = || self.family(id.port).is_none() && self.record_proposal(&port).is_some();
        let name = Ownable::Hostname(hostname.clone());
        let waits = match reason {
            Reason::ProtocolConflict => undecided(),
            _ => self.register.is_about_to_own(&name, namespace) && self.register.owner(&name).is_none(),
        };
        if waits { Reason::Pending } else { reason }
    }

    /// Whether the platform gave a namespace a domain of its own below a wildcard, and the name is in it.
    fn is_delegated(&self, namespace: &str, name: &Hostname, wide: &Hostname) -> bool {
        let Some(host) = self.store.labels(namespace).get(HOST_LABEL) else { return false };
        let Ok(domain) = Hostname::parse(&host.to_ascii_lowercase()) else { return false };
        let bare = name.as_str().strip_prefix("*.").unwrap_or(name.as_str());
        let within =
            bare == domain.as_str() || bare.strip_suffix(domain.as_str()).is_some_and(|rest| rest.ends_with('.'));
        domain.is_exact() && wide.covers(&domain) && within
    }

    /// Whether a hostname below a wildcard or catch-all listener of the shared fleet is another namespace's: it is kept
    /// from that listener on every port.
    pub(super) fn is_of_another(&self, id: &FrontendId, hostname: &Hostname, listener: &ListenerId) -> bool {
        if !is_shared(&id.gateway) {
            return false;
        }
        let namespace = &listener.parent.name().namespace;
        let mut names = std::iter::once(hostname.clone()).chain(hostname.covering()).filter(|name| !name.is_any());
        names
            .find_map(|name| {
                let what = Ownable::Hostname(name);
                let owner = self.register.owner(&what)?;
                // Whoever extends a Gateway leaves to it what it does not have itself.
                Some(owner.namespace != *namespace && !self.register.reaches(&what, &owner.namespace, namespace))
            })
            .unwrap_or(false)
    }

    /// Why a listener does not have its hostname although no listener of its namespace goes first; `None` where that is not
    /// what is wrong.
    pub(super) fn owned_by_another(&self, parent: &ParentKey, place: &ObjectName, hostname: &Hostname) -> bool {
        let owner = self.register.owner(&Ownable::Hostname(hostname.clone()));
        is_shared(place) && owner.is_none_or(|owner| owner.namespace != parent.name().namespace)
    }
}
