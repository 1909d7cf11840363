//! Where the listener of a hostname stands: in the Gateway, or in which ListenerSet. Nothing that stands is moved.

use std::sync::Arc;

use super::beside::Takes;
use super::claim::{Rank, within};
use super::delta::{Derived, DerivedKind, Existing};
use super::engine::{Dirty, Tenancy};
use super::hosts::{Held, Host, HostId};
use super::{ClaimKind, Claimant, Desired, Source, names};
use crate::inputs::Listener;
use crate::model::{Hostname, ObjectName};
use crate::wanted::WantedCertificate;

/// Listeners of one Gateway or ListenerSet. Gateway API: `spec.listeners`, at most 64 items.
const LISTENERS: usize = 64;

impl Tenancy {
    /// Takes note of an object under a derived name: whose it is, and which hosts stand there.
    pub(super) fn observe(&mut self, key: Derived, new: Option<Existing>, dirty: &mut Dirty) {
        self.touch_certified(&key, dirty);
        if names::challenges_of(&key.name.name).is_some() {
            self.observe_solver(&key, new.as_ref().map(|there| there.owner.as_str()), dirty);
        }
        let Some(new) = new else {
            self.existing.remove(&key);
            dirty.tenants.extend(self.tenants_in.of(&key.name.namespace).cloned());
            return;
        };
        if self.existing.get(&key) == Some(&new) {
            return;
        }
        let tenants: Vec<ObjectName> = self.tenants_in.of(&key.name.namespace).cloned().collect();
        for tenant in &tenants {
            let shard = match key.kind {
                DerivedKind::Gateway if key.name == *tenant => 0,
                DerivedKind::ListenerSet => match names::overflow_of(&key.name.name) {
                    Some((of, number)) if *of == *tenant.name => number,
                    _ => continue,
                },
                _ => continue,
            };
            let ours = self.is_uid_of(&new.owner, tenant);
            if !ours && shard > 0 {
                // Somebody was faster under this name: hosts that were to stand there go to the next number.
                let held = self.shards.get(&(tenant.clone(), shard));
                let held: Vec<Hostname> = held.into_iter().flat_map(|shard| shard.keys().cloned()).collect();
                let held: Vec<HostId> = held.iter().filter_map(|name| self.hosts.find(tenant, name)).collect();
                for host in held {
                    self.take(host, dirty);
                    self.touch(host, dirty);
                }
            }
            for (name, hostname) in new.hosts.iter().filter(|_| ours) {
                // A listener under another name is none of ours: somebody edited the object.
                let id = (tenant.clone(), Arc::from(name.as_str()));
                if **name != *names::OfHost::new(&tenant.name, hostname.as_str()).listener
                    || self.listeners.contains_key(&id)
                {
                    continue;
                }
                let host = self.hosts.hold(tenant, hostname);
                self.put(host, id.1, None, shard);
                self.touch(host, dirty);
            }
        }
        self.existing.insert(key, new);
        for tenant in &tenants {
            if self.is_as_found(tenant) && self.readiness.contains_key(tenant) {
                dirty.claims.extend(self.claims.on(tenant));
            }
        }
        dirty.tenants.extend(tenants);
    }

    /// Marks the host whose Certificate came, went or changed hands.
    pub(super) fn touch_certified(&self, key: &Derived, dirty: &mut Dirty) {
        if key.kind != DerivedKind::Certificate {
            return;
        }
        for tenant in self.tenants_in.of(&key.name.namespace) {
            let short = key.name.name.strip_prefix(&*tenant.name).and_then(|rest| rest.strip_prefix('-'));
            let listener = short.and_then(|rest| rest.strip_suffix("-tls")).map(|short| format!("https-{short}"));
            let host = listener.and_then(|listener| self.listeners.get(&(tenant.clone(), Arc::from(listener))));
            dirty.hosts.extend(host.copied());
        }
    }

    /// Gives the listener of a hostname a place, or takes it away.
    pub(super) fn arrange(&mut self, id: HostId, dirty: &mut Dirty) {
        self.counters.places += 1;
        let held = &self.hosts[id];
        let host = held.host.clone();
        let owner = held.owner.as_ref().map(|owner| owner.rank.namespace().clone());
        // Whoever has it elsewhere, or over it, keeps it from those who ask here in vain.
        let keeper = owner.clone().or_else(|| self.kept_by_others(&host));
        let under =
            owner.as_ref().is_some_and(|owner| self.hosts.covering(&host).any(|over| over.rank.namespace() != owner));
        self.tell_over(id, dirty);
        let beside = self.is_beside(&host.tenant);
        let keeper_beside = beside.then(|| self.keeper_beside(id));
        let needed_beside =
            self.valid.get(&host.tenant).is_some_and(|valid| beside && self.wants_listener_beside(id, valid));
        let held = &mut self.hosts[id];
        let stood = (held.place.is_some(), held.keeper.clone());
        let contested = under
            || held.ranks().any(|rank| Some(rank.namespace()) != keeper.as_ref())
            || owner.is_some() && !held.intruders.is_empty();
        let keeper = keeper_beside.unwrap_or_else(|| keeper.filter(|_| contested));
        // Who has it may change while it stays contested, and then the selector does.
        let changed = (held.contested, &held.keeper) != (contested, &keeper);
        (held.contested, held.keeper) = (contested, keeper.clone());
        let of_sets = |rank: &&Rank| rank.kind == ClaimKind::ListenerSet;
        // A listener of a ListenerSet for plain HTTP leaves TLS to ours.
        let mut secured = held.bids.iter().filter(|bid| bid.secure && of_sets(&&bid.rank));
        let by_set = secured.any(|bid| Some(bid.rank.namespace()) == owner.as_ref());
        let with_set = owner.is_some() && held.ranks().any(|rank| of_sets(&rank));
        let counted = std::mem::replace(&mut held.with_set, with_set) != with_set;
        let placed = held.place.is_some();
        // What plain HTTP alone serves has no listener for TLS, unless a wildcard of others would take it.
        let secure = owner.as_ref().is_some_and(|owner| under || held.is_secure(owner));
        let names = held.names_given();
        dirty.verdicts.extend(held.bids.iter().map(|bid| bid.claim));
        dirty.readiness.insert(host.tenant.clone());
        let (mut wanted, mut fixed, mut listener) = (false, false, None);
        if let Some(valid) = self.valid.get(&host.tenant) {
            let (name, apex) = (host.hostname.as_str(), valid.apex.as_str());
            let per_host = valid.mode.per_host();
            let of_apex = name.strip_prefix("*.").unwrap_or(name) == apex;
            fixed = valid.frame.passes_through(&host.hostname) || !per_host && of_apex;
            wanted = !fixed
                && !by_set
                && within(&host.hostname, apex)
                && match (per_host, beside) {
                    (true, _) => secure,
                    (false, true) => needed_beside || self.child_hosts.contains(&host),
                    (false, false) => contested || self.child_hosts.contains(&host),
                };
            if wanted {
                let takes = Takes::of(keeper.as_deref(), !beside);
                listener = Some(Arc::new(valid.frame.listener(&names, &host.hostname, takes)));
            }
        }
        match (listener, placed) {
            (Some(listener), false) => self.place(id, listener, dirty),
            (Some(listener), true) => self.renew(id, listener, dirty),
            (None, true) if self.is_as_found(&host.tenant) => {}
            (None, true) => self.take(id, dirty),
            (None, false) if fixed && changed => dirty.shards.insert((host.tenant.clone(), 0)),
            (None, false) => {}
        }
        if !wanted && !self.waiting.is_empty() {
            for name in [names.listener.clone(), Arc::from("")] {
                self.waiting.remove(&(host.tenant.clone(), name), &host);
            }
        }
        if counted {
            let count = self.with_sets.entry(host.tenant.clone()).or_default();
            *count = if with_set { *count + 1 } else { *count - 1 };
            dirty.shards.insert((host.tenant.clone(), 0));
        }
        self.certify(id, names, dirty);
        let stands = |held: &Held| (held.place.is_some(), held.keeper.clone());
        if beside && host.hostname.is_wildcard() && stands(&self.hosts[id]) != stood {
            // What others own below it needs listeners of its own, or none any more.
            dirty.hosts.extend(self.hosts.below(&host));
        }
        if owner.is_none() && !dirty.hosts.holds(&id) {
            self.hosts.release(id);
        }
    }

    /// Tells those who have wildcards over a host whether others ask for it. Then nobody but them may attach to the
    /// wildcard: what others have below it has a listener of its own.
    fn tell_over(&mut self, id: HostId, dirty: &mut Dirty) {
        if !self.hosts.any_wild() {
            return;
        }
        let held = &self.hosts[id];
        let hostname = held.host.hostname.clone();
        let intrudes = |over: &Held| {
            let owner = over.owner.as_ref().map(|owner| owner.rank.namespace());
            owner.is_some_and(|owner| held.ranks().any(|rank| rank.namespace() != owner))
        };
        let over = self.hosts.over(&held.host.tenant, &hostname);
        let over: Vec<(HostId, bool)> = over.map(|wildcard| (wildcard, intrudes(&self.hosts[wildcard]))).collect();
        for (wildcard, intrudes) in over {
            let intruders = &mut self.hosts[wildcard].intruders;
            let before = intruders.is_empty();
            if intrudes {
                intruders.insert(hostname.clone());
            } else {
                intruders.remove(&hostname);
            }
            if intruders.is_empty() != before {
                dirty.hosts.insert(wildcard);
            }
        }
    }

    /// Who has a host through another TenantGateway, or a wildcard over it.
    pub(super) fn kept_by_others(&self, host: &Host) -> Option<Arc<str>> {
        let mut others = self.hosts.named(&host.hostname).filter_map(|id| self.hosts[id].owner.as_ref());
        let keeper = others.next().or_else(|| self.hosts.covering(host).next());
        keeper.map(|standing| standing.rank.namespace().clone())
    }

    /// The certificate of a host that has a listener of its own.
    fn certify(&mut self, id: HostId, names: names::OfHost, dirty: &mut Dirty) {
        let held = &self.hosts[id];
        let Host { tenant, hostname } = held.host.clone();
        let placed = held.place.is_some();
        if !placed && self.listeners.contains_key(&(tenant.clone(), names.listener)) {
            // Of another hostname, whose certificate that is.
            return;
        }
        let (mut certificate, mut want) = (None, None);
        if let Some(valid) = self.valid.get(&tenant).filter(|valid| placed && valid.mode.per_host()) {
            let ours = valid.source != Source::CertManager;
            let name = names.certificate.clone();
            match &valid.issuer {
                Some(issuer) if ours => {
                    let secret = ObjectName::new(tenant.namespace.clone(), name);
                    want = Some(WantedCertificate { secret, names: vec![hostname], issuer: issuer.clone() });
                }
                _ => {
                    let key = self.key_in(ObjectName::new(tenant.namespace.clone(), name.clone()));
                    certificate = Some(Desired::certificate(&valid.frame.owner, name, hostname, key));
                }
            }
        }
        self.want(ObjectName::new(tenant.namespace.clone(), names.certificate.clone()), want, dirty);
        self.emit(&tenant, DerivedKind::Certificate, names.certificate, certificate, dirty);
    }

    fn place(&mut self, id: HostId, listener: Arc<Listener>, dirty: &mut Dirty) {
        let host = self.hosts[id].host.clone();
        let tenant = &host.tenant;
        let name = (tenant.clone(), listener.name.clone());
        if self.listeners.contains_key(&name) {
            self.waiting.insert(name, host);
            return;
        }
        self.refresh_room(&(tenant.clone(), 0));
        let free = self.room.range((tenant.clone(), 0)..).next().filter(|s| s.0 == *tenant).map(|s| s.1);
        let last = self.shards.range(..=(tenant.clone(), usize::MAX)).next_back().filter(|(s, _)| s.0 == *tenant);
        let next = last.map_or(1, |(shard, _)| shard.1 + 1);
        let next = (next..).find(|number| !self.is_taken(tenant, *number)).expect("names do not end");
        let shard = match free {
            Some(shard) => shard,
            None if self.settings.listener_sets => next,
            None => return self.waiting.insert((tenant.clone(), Arc::from("")), host),
        };
        self.put(id, name.1, Some(listener), shard);
        dirty.shards.insert((tenant.clone(), shard));
        if shard >= next {
            // The Gateway has to admit its first ListenerSet.
            dirty.shards.insert((tenant.clone(), 0));
        }
        self.tell_below(&host, dirty);
    }

    /// Whether somebody else has the name of an overflow ListenerSet.
    fn is_taken(&self, tenant: &ObjectName, number: usize) -> bool {
        let name = ObjectName::new(tenant.namespace.clone(), names::overflow(&tenant.name, number));
        let there = self.existing.get(&Derived { kind: DerivedKind::ListenerSet, name });
        there.is_some_and(|there| !self.is_uid_of(&there.owner, tenant))
    }

    /// Puts another listener in the place of the one that stands there, if it differs.
    fn renew(&mut self, id: HostId, listener: Arc<Listener>, dirty: &mut Dirty) {
        let Held { host, place: Some(shard), .. } = &self.hosts[id] else { return };
        let key = (host.tenant.clone(), *shard);
        let Some(slot) = self.shards.get_mut(&key).and_then(|shard| shard.get_mut(&host.hostname)) else { return };
        if slot.as_ref() != Some(&listener) {
            *slot = Some(listener);
            dirty.shards.insert(key);
        }
    }

    fn put(&mut self, id: HostId, name: Arc<str>, listener: Option<Arc<Listener>>, shard: usize) {
        let held = &mut self.hosts[id];
        held.place = Some(shard);
        let Host { tenant, hostname } = held.host.clone();
        self.listeners.insert((tenant.clone(), name), id);
        let key = (tenant, shard);
        self.shards.entry(key.clone()).or_default().insert(hostname, listener);
        self.refresh_room(&key);
    }

    pub(super) fn take(&mut self, id: HostId, dirty: &mut Dirty) {
        let held = &mut self.hosts[id];
        let Some(place) = held.place.take() else { return };
        let (host, name) = (held.host.clone(), held.names_given().listener);
        let tenant = &host.tenant;
        let name = (tenant.clone(), name);
        self.listeners.remove(&name);
        let key = (tenant.clone(), place);
        if let Some(shard) = self.shards.get_mut(&key) {
            shard.remove(&host.hostname);
            if shard.is_empty() {
                self.shards.remove(&key);
                dirty.shards.insert((tenant.clone(), 0));
            }
        }
        self.refresh_room(&key);
        self.tell_below(&host, dirty);
        dirty.shards.insert(key);
        for name in [name, (tenant.clone(), Arc::from(""))] {
            if let Some(next) = self.waiting.first(&name).cloned() {
                self.waiting.remove(&name, &next);
                dirty.hosts.extend(self.hosts.find(&next.tenant, &next.hostname));
            }
        }
    }

    /// Hosts under a wildcard without listeners of their own are served where it stands.
    fn tell_below(&self, host: &Host, dirty: &mut Dirty) {
        if host.hostname.is_wildcard() {
            let bids = self.hosts.below(host).flat_map(|id| &self.hosts[id].bids);
            dirty.verdicts.extend(bids.map(|bid| bid.claim));
        }
    }

    /// After a change of the specification the Gateway may have room for fewer: the last have to go elsewhere.
    pub(super) fn make_room(&mut self, tenant: &ObjectName, dirty: &mut Dirty) {
        let held = self.shards.get(&(tenant.clone(), 0)).map_or(0, |shard| shard.len());
        for _ in self.capacity(tenant, 0)..held {
            let last = self.shards.get(&(tenant.clone(), 0)).and_then(|shard| shard.last_key_value());
            let Some(host) = last.and_then(|(hostname, _)| self.hosts.find(tenant, hostname)) else { break };
            self.take(host, dirty);
            self.touch(host, dirty);
        }
        self.refresh_room(&(tenant.clone(), 0));
    }

    fn capacity(&self, tenant: &ObjectName, shard: usize) -> usize {
        let fixed = self.valid.get(tenant).map_or(LISTENERS, |valid| valid.frame.fixed());
        if shard == 0 { LISTENERS.saturating_sub(fixed) } else { LISTENERS }
    }

    fn refresh_room(&mut self, key: &(ObjectName, usize)) {
        let held = self.shards.get(key).map_or(0, |shard| shard.len());
        if held < self.capacity(&key.0, key.1) && (held > 0 || key.1 == 0) {
            self.room.insert(key.clone());
        } else {
            self.room.remove(key);
        }
    }

    /// The shard whose listener serves a host that is owned: its own, that of the closest wildcard, or the Gateway's.
    pub(super) fn shard_of(&self, tenant: &ObjectName, hostname: &Hostname) -> usize {
        let own = self.hosts.get(tenant, hostname).and_then(|held| held.place);
        own.or_else(|| self.hosts.over(tenant, hostname).find_map(|id| self.hosts[id].place)).unwrap_or(0)
    }

    /// Whether a claimant's route reaches a listener outside of the Gateway.
    pub(super) fn reaches(&self, claimant: &Claimant, tenant: &ObjectName, shard: usize) -> Result<(), ObjectName> {
        let set = ObjectName::new(tenant.namespace.clone(), names::overflow(&tenant.name, shard));
        let own = self.valid.get(tenant).is_some_and(|valid| valid.frame.own);
        if shard == 0 || own || claimant.names_set(&set) { Ok(()) } else { Err(set) }
    }
}
