//! Where the listener of a hostname stands: in the Gateway, or in which ListenerSet. Nothing that stands is moved.

use super::claim::within;
use super::delta::{Certificates, Derived, DerivedKind, Existing};
use super::engine::{Dirty, Host, Place, Tenancy};
use super::{ClaimKind, Claimant, Mode, issuer, names, render};
use crate::model::{Hostname, ObjectName};

/// Listeners of one Gateway or ListenerSet. Gateway API: `spec.listeners`, at most 64 items.
const LISTENERS: usize = 64;

impl Tenancy {
    /// Takes note of an object under a derived name: whose it is, and which hosts stand there.
    pub(super) fn observe(&mut self, key: Derived, new: Option<Existing>, dirty: &mut Dirty) {
        self.touch_certified(&key, dirty);
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
            let ours = self.given.get(tenant).is_some_and(|t| !t.uid.is_empty() && t.uid == new.owner);
            for (name, hostname) in new.hosts.iter().filter(|_| ours) {
                // A listener under another name is none of ours: somebody edited the object.
                let rendered = *name == names::listener(hostname.as_str());
                if !rendered || self.places.contains_key(&(tenant.clone(), name.clone())) {
                    continue;
                }
                self.put(tenant, name, hostname, shard);
                dirty.touch(Host::new(tenant, hostname));
            }
        }
        self.existing.insert(key, new);
        dirty.tenants.extend(tenants);
    }

    /// Marks the host whose Certificate came, went or changed hands.
    fn touch_certified(&self, key: &Derived, dirty: &mut Dirty) {
        if key.kind != DerivedKind::Certificate {
            return;
        }
        for tenant in self.tenants_in.of(&key.name.namespace) {
            let short = key.name.name.strip_prefix(&*tenant.name).and_then(|rest| rest.strip_prefix('-'));
            let listener = short.and_then(|rest| rest.strip_suffix("-tls")).map(|short| format!("https-{short}"));
            let place = listener.and_then(|listener| self.places.get(&(tenant.clone(), listener)));
            dirty.hosts.extend(place.map(|place| Host::new(tenant, &place.hostname)));
        }
    }

    /// Gives the listener of a hostname a place, or takes it away.
    pub(super) fn arrange(&mut self, host: &Host, dirty: &mut Dirty) {
        self.counters.places += 1;
        let owner = self.standing(&host.tenant, &host.hostname).cloned();
        // Whoever has it elsewhere, or over it, keeps it from those who ask here in vain.
        let elsewhere = self.owners.get(&host.name()).and_then(|owners| owners.values().next());
        let over = self.covering(&host.tenant, &host.hostname).next();
        let keeper = owner.as_ref().or(elsewhere).or(over).map(|standing| standing.rank.namespace().clone());
        let bids: Vec<_> = self.bids.of(host).cloned().collect();
        let among = bids.iter().any(|bid| Some(bid.namespace()) != keeper.as_ref());
        let under = owner.as_ref().is_some_and(|o| {
            self.covering(&host.tenant, &host.hostname).any(|over| over.rank.namespace() != o.rank.namespace())
        });
        let contested = among || under;
        let changed = if contested { self.contested.insert(host.clone()) } else { self.contested.remove(host) };
        // Who has it may change while it stays contested, and then the selector does.
        let narrowed = contested.then_some(keeper).flatten();
        let before = match &narrowed {
            Some(keeper) => self.narrowed.insert(host.clone(), keeper.clone()),
            None => self.narrowed.remove(host),
        };
        let changed = changed || before != narrowed;
        let listener = names::listener(host.hostname.as_str());
        let by_set = owner.as_ref().is_some_and(|owner| {
            let own = bids.iter().filter(|bid| bid.namespace() == owner.rank.namespace());
            own.into_iter().any(|bid| bid.key().kind == ClaimKind::ListenerSet)
        });
        let (mut wanted, mut fixed) = (false, false);
        if let Some(valid) = self.valid.get(&host.tenant) {
            let (name, apex) = (host.hostname.as_str(), valid.apex.as_str());
            fixed = self.passes_through(&host.hostname, valid) || !valid.mode.per_host() && name == apex;
            let wild = contested && name.strip_prefix("*.") != Some(apex);
            wanted = !fixed
                && !by_set
                && within(&host.hostname, apex)
                && if valid.mode.per_host() { owner.is_some() } else { wild || self.child_hosts.contains(host) };
        }
        let id = (host.tenant.clone(), listener.clone());
        let placed = self.places.get(&id).is_some_and(|place| place.hostname == host.hostname);
        match (wanted, placed) {
            (true, false) => self.place(host, &listener, dirty),
            (false, true) => self.take(&host.tenant, &listener, dirty),
            (true, true) if changed => {
                dirty.shards.insert((host.tenant.clone(), self.places[&id].shard));
            }
            _ if fixed && changed => {
                dirty.shards.insert((host.tenant.clone(), 0));
            }
            _ => {}
        }
        if !wanted {
            for name in [listener.clone(), String::new()] {
                self.waiting.remove(&(host.tenant.clone(), name), host);
            }
        }
        let sets = bids.iter().any(|bid| bid.key().kind == ClaimKind::ListenerSet) && owner.is_some();
        let counted = if sets { self.with_sets.insert(host.clone()) } else { self.with_sets.remove(host) };
        if counted {
            dirty.shards.insert((host.tenant.clone(), 0));
        }
        self.certify(host, dirty);
        dirty.verdicts.extend(bids.iter().map(|bid| (bid.key(), host.tenant.clone())));
        dirty.readiness.insert(host.tenant.clone());
    }

    /// The certificate of a host that has a listener of its own.
    fn certify(&mut self, host: &Host, dirty: &mut Dirty) {
        let hostname = host.hostname.as_str();
        let name = names::host_certificate(&host.tenant.name, hostname);
        let id = (host.tenant.clone(), names::listener(hostname));
        let holder = self.places.get(&id).map(|place| place.hostname.clone());
        if holder.as_ref().is_some_and(|holder| *holder != host.hostname) {
            return;
        }
        let (mut certificate, mut wish) = (None, None);
        if let Some(valid) = self.valid.get(&host.tenant).filter(|valid| holder.is_some() && valid.mode.per_host()) {
            let ours = self.settings.certificates == Certificates::Own || valid.mode == Mode::InternalCa;
            match issuer::issuer(&valid.object, valid.mode) {
                Some(from) if ours => wish = Some(self.wish(&host.tenant, &name, &[hostname.to_owned()], from)),
                _ => certificate = Some(render::host_certificate(&valid.object, hostname)),
            }
        }
        self.want(ObjectName::new(host.tenant.namespace.clone(), name.as_str()), wish, dirty);
        self.emit(&host.tenant, DerivedKind::Certificate, name, certificate, dirty);
    }

    fn place(&mut self, host: &Host, listener: &str, dirty: &mut Dirty) {
        let tenant = &host.tenant;
        let id = (tenant.clone(), listener.to_owned());
        if self.places.contains_key(&id) {
            self.waiting.insert(id, host.clone());
            return;
        }
        self.refresh_room(&(tenant.clone(), 0));
        let free = self.room.range((tenant.clone(), 0)..).next().filter(|s| s.0 == *tenant).map(|s| s.1);
        let last = self.shards.range(..=(tenant.clone(), usize::MAX)).next_back().filter(|(s, _)| s.0 == *tenant);
        let next = last.map_or(1, |(shard, _)| shard.1 + 1);
        let shard = match free {
            Some(shard) => shard,
            None if self.settings.listener_sets => next,
            None => return self.waiting.insert((tenant.clone(), String::new()), host.clone()),
        };
        self.put(tenant, listener, &host.hostname, shard);
        dirty.shards.insert((tenant.clone(), shard));
        if shard >= next {
            // The Gateway has to admit its first ListenerSet.
            dirty.shards.insert((tenant.clone(), 0));
        }
        self.tell_below(host, dirty);
    }

    fn put(&mut self, tenant: &ObjectName, listener: &str, hostname: &Hostname, shard: usize) {
        let key = (tenant.clone(), shard);
        self.places.insert((tenant.clone(), listener.to_owned()), Place { shard, hostname: hostname.clone() });
        self.shards.entry(key.clone()).or_default().insert(hostname.clone(), listener.to_owned());
        self.refresh_room(&key);
    }

    pub(super) fn take(&mut self, tenant: &ObjectName, listener: &str, dirty: &mut Dirty) {
        let id = (tenant.clone(), listener.to_owned());
        let Some(place) = self.places.remove(&id) else { return };
        let key = (tenant.clone(), place.shard);
        if let Some(shard) = self.shards.get_mut(&key) {
            shard.remove(&place.hostname);
            if shard.is_empty() {
                self.shards.remove(&key);
                dirty.shards.insert((tenant.clone(), 0));
            }
        }
        self.refresh_room(&key);
        self.tell_below(&Host::new(tenant, &place.hostname), dirty);
        dirty.shards.insert(key);
        for id in [id, (tenant.clone(), String::new())] {
            if let Some(next) = self.waiting.first(&id).cloned() {
                self.waiting.remove(&id, &next);
                dirty.hosts.insert(next);
            }
        }
    }

    /// Hosts under a wildcard without listeners of their own are served where it stands.
    fn tell_below(&self, host: &Host, dirty: &mut Dirty) {
        if host.hostname.is_wildcard() {
            let below = host.reversed[..host.reversed.len() - 2].to_owned();
            let all = self.bids.from(host.clone());
            let all = all.take_while(|(other, _)| other.tenant == host.tenant && other.reversed.starts_with(&below));
            dirty.verdicts.extend(all.flat_map(|(_, bids)| bids.map(|bid| (bid.key(), host.tenant.clone()))));
        }
    }

    /// After a change of the specification the Gateway may have room for fewer: the last have to go elsewhere.
    pub(super) fn make_room(&mut self, tenant: &ObjectName, dirty: &mut Dirty) {
        let held = self.shards.get(&(tenant.clone(), 0)).map_or(0, |shard| shard.len());
        for _ in self.capacity(tenant, 0)..held {
            let last = self.shards.get(&(tenant.clone(), 0)).and_then(|shard| shard.last_key_value());
            let Some((hostname, listener)) = last.map(|(h, l)| (h.clone(), l.clone())) else { break };
            self.take(tenant, &listener, dirty);
            dirty.touch(Host::new(tenant, &hostname));
        }
        self.refresh_room(&(tenant.clone(), 0));
    }

    fn capacity(&self, tenant: &ObjectName, shard: usize) -> usize {
        let fixed = self.valid.get(tenant).map_or(LISTENERS, |v| render::fixed(&v.object, v.mode));
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
    pub(super) fn shard_of(&self, host: &Host) -> usize {
        let names = std::iter::once(host.hostname.clone()).chain(host.hostname.covering());
        let shard = names.into_iter().find_map(|name| {
            let place = self.places.get(&(host.tenant.clone(), names::listener(name.as_str())))?;
            (place.hostname == name).then_some(place.shard)
        });
        shard.unwrap_or(0)
    }

    /// Whether a claimant's route reaches a listener outside of the Gateway.
    pub(super) fn reaches(&self, claimant: &Claimant, tenant: &ObjectName, shard: usize) -> Result<(), ObjectName> {
        let set = ObjectName::new(tenant.namespace.clone(), names::overflow(&tenant.name, shard));
        let own = self.valid.get(tenant).is_some_and(|valid| self.frame(valid).own);
        if shard == 0 || own || claimant.names_set(&set) { Ok(()) } else { Err(set) }
    }
}
