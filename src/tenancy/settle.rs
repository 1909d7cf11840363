//! Deciding: which claims are admitted, who owns a host, and where its listener stands.

use std::collections::BTreeSet;

use super::claim::{Rank, within};
use super::delta::{Derived, DerivedKind, Existing};
use super::engine::{Dirty, Host, Place, Tenancy, Valid};
use super::render::{self, GATEWAY_LABEL, HOST_LABEL};
use super::{ClaimKey, ClaimKind, Claimant, Mode, Readiness, names};
use crate::model::{Hostname, ObjectName};

/// Listeners of one Gateway or ListenerSet. Gateway API: `spec.listeners`, at most 64 items.
const LISTENERS: usize = 64;
/// Names on one certificate: Let's Encrypt takes no more.
pub(super) const NAMES: usize = 100;

impl Tenancy {
    /// Takes note of an object under a derived name: whose it is, and which hosts stand there.
    pub(super) fn observe(&mut self, key: Derived, new: Option<Existing>, dirty: &mut Dirty) {
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
                DerivedKind::ListenerSet => {
                    let prefix = format!("{}-overflow-", tenant.name);
                    let Some(Ok(number)) = key.name.name.strip_prefix(&prefix).map(str::parse) else { continue };
                    number
                }
                _ => continue,
            };
            let ours = self.given.get(tenant).is_some_and(|t| !t.uid.is_empty() && t.uid == new.owner);
            for (name, hostname) in new.hosts.iter().filter(|_| ours) {
                let fixed = *name == "https" || *name == "https-apex" || name.starts_with("tls-");
                if fixed || self.places.contains_key(&(tenant.clone(), name.clone())) {
                    continue;
                }
                self.put(tenant, name, hostname, shard);
                dirty.hosts.insert(Host::new(tenant, hostname));
            }
        }
        self.existing.insert(key, new);
        dirty.tenants.extend(tenants);
    }

    /// Checks a TenantGateway. One that cannot be carried out leaves what was live as it is.
    pub(super) fn evaluate(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        self.counters.tenants += 1;
        dirty.readiness.insert(name.clone());
        let verdict = self.given.get(name).map(|tenant| self.check(tenant));
        match verdict {
            Some(Err((reason, message))) => {
                self.readiness.insert(name.clone(), Readiness { reason, message, frozen: true });
                dirty.delta.tenants.insert(name.clone(), self.readiness.get(name).cloned());
                return;
            }
            Some(Ok(valid)) => {
                if self.readiness.get(name).is_some_and(|readiness| readiness.frozen) {
                    self.readiness.remove(name);
                }
                let rules = |v: &Valid| (v.apex.clone(), v.mode, v.object.passthrough(), v.object.uid.clone());
                let same = self.valid.get(name).is_some_and(|old| rules(old) == rules(&valid));
                if !same || self.valid.get(name).is_none_or(|old| old.object != valid.object) {
                    self.valid.insert(name.clone(), valid);
                    dirty.claims.extend(self.by_tenant.of(name).map(|claim| (claim.clone(), name.clone())));
                    self.touch_hosts(name, dirty);
                }
            }
            None => {
                self.valid.remove(name);
                dirty.claims.extend(self.by_tenant.of(name).map(|claim| (claim.clone(), name.clone())));
                self.touch_hosts(name, dirty);
            }
        }
        let placed = self.shards.range((name.clone(), 0)..).map(|(shard, _)| shard).take_while(|s| s.0 == *name);
        dirty.shards.extend(placed.cloned());
        dirty.shards.insert((name.clone(), 0));
        self.family(name, dirty);
        let spilled = self.shards.get(&(name.clone(), 0)).map_or(0, |shard| shard.len());
        for _ in self.capacity(name, 0)..spilled {
            let last = self.shards.get(&(name.clone(), 0)).and_then(|shard| shard.last_key_value());
            let Some((hostname, listener)) = last.map(|(h, l)| (h.clone(), l.clone())) else { break };
            self.take(name, &listener, dirty);
            dirty.hosts.insert(Host::new(name, &hostname));
        }
        self.refresh_room(&(name.clone(), 0));
        let desired = self.valid.get(name).map(|v| {
            let children = self.child_hosts.range(start(name)..).take_while(|h| h.tenant == *name);
            let children: BTreeSet<&str> = children.filter_map(|h| h.hostname.as_str().strip_prefix("*.")).collect();
            let children = children.into_iter().take(NAMES / 2 - 1);
            let certificate = (v.mode == Mode::Dns01).then(|| render::wildcard_certificate(&v.object, children));
            (render::redirect(&v.object), render::issuer(&v.object, v.mode), certificate)
        });
        let (redirect, issuer, certificate) = desired.map_or((None, None, None), |(r, i, c)| (Some(r), i, c));
        for (kind, own, value) in [
            (DerivedKind::HttpRoute, names::redirect(&name.name), redirect),
            (DerivedKind::Issuer, names::issuer(&name.name), issuer),
            (DerivedKind::Certificate, names::wildcard_certificate(&name.name), certificate),
        ] {
            self.emit(name, kind, own, value, dirty);
        }
    }

    fn check(&self, tenant: &super::TenantGateway) -> Result<Valid, (&'static str, String)> {
        let (apex, mode) = tenant.check().map_err(|error| ("InvalidSpec", error.to_string()))?;
        let namespace = &tenant.name.namespace;
        // The first stays; by name, and one that is already carried out before one that is not.
        let first = self.tenants_in.of(namespace).find(|t| self.valid.contains_key(*t));
        if first.or(self.tenants_in.first(namespace)) != Some(&tenant.name) {
            let text = format!("metadata.namespace: {namespace} has a TenantGateway already: delete one of them");
            return Err(("DuplicateTenantGateway", text));
        }
        let labels = self.namespaces.get(namespace).map(|ns| &ns.labels);
        let host = labels.and_then(|labels| labels.get(HOST_LABEL));
        match host {
            None if namespace.starts_with("tenant-") => {
                let text = format!("namespace {namespace} has no label {HOST_LABEL}: set it to the tenant's apex");
                Err(("NamespaceNotLabelled", text))
            }
            Some(host) if !within(&apex, &host.to_ascii_lowercase()) => {
                let text =
                    format!("spec.apex: {apex} is not below {host}, which label {HOST_LABEL} of {namespace} allows");
                Err(("ApexNotAllowed", text))
            }
            _ => match labels.and_then(|labels| labels.get(GATEWAY_LABEL)) {
                Some(other) if **other != **namespace => {
                    let text = format!(
                        "namespace {namespace} has label {GATEWAY_LABEL}={other}: set it to {namespace}, or delete this TenantGateway"
                    );
                    Err(("NamespaceInheritsElsewhere", text))
                }
                _ => Ok(Valid { object: tenant.clone(), apex, mode }),
            },
        }
    }

    /// The child apexes of a TenantGateway in wildcard mode.
    fn family(&mut self, name: &ObjectName, dirty: &mut Dirty) {
        let there: BTreeSet<Host> =
            self.child_hosts.range(start(name)..).take_while(|h| h.tenant == *name).cloned().collect();
        let mut wanted = BTreeSet::new();
        if let Some(valid) = self.valid.get(name).filter(|v| !v.mode.per_host()) {
            for child in self.children.of(&name.namespace).filter(|ns| **ns != name.namespace) {
                let host = self.namespaces.get(child).and_then(|ns| ns.labels.get(HOST_LABEL));
                let wildcard = host.and_then(|host| Hostname::parse(&format!("*.{host}")).ok());
                let below = |w: &Hostname| within(w, valid.apex.as_str()) && w.as_str()[2..] != *valid.apex.as_str();
                wanted.extend(wildcard.filter(below).map(|wildcard| Host::new(name, &wildcard)));
            }
        }
        for host in there.symmetric_difference(&wanted) {
            dirty.hosts.insert(host.clone());
        }
        for host in there.difference(&wanted) {
            self.child_hosts.remove(host);
        }
        self.child_hosts.extend(wanted);
    }

    fn touch_hosts(&self, name: &ObjectName, dirty: &mut Dirty) {
        dirty
            .hosts
            .extend(self.bids.from(start(name)).map(|(host, _)| host).take_while(|h| h.tenant == *name).cloned());
        let placed = self.places.range((name.clone(), String::new())..).take_while(|(key, _)| key.0 == *name);
        dirty.hosts.extend(placed.map(|(_, place)| Host::new(name, &place.hostname)));
    }

    /// Sorts a claimant's hostnames into bids and refusals.
    pub(super) fn admit(&mut self, key: &ClaimKey, tenant: &ObjectName, dirty: &mut Dirty) {
        self.counters.claimants += 1;
        let id = (key.clone(), tenant.clone());
        let (mut bids, mut refused) = (BTreeSet::new(), Vec::new());
        let claimant = self.claimants.get(key).filter(|c| c.tenants().contains(tenant));
        if let (Some(claimant), Some(valid)) = (claimant, self.valid.get(tenant))
            && self.may_attach(key, valid)
            && !claimant.challenge
        {
            for hostname in &claimant.hostnames {
                match hostname {
                    Err(error) => refused.push(("InvalidHostname", error.to_string())),
                    Ok(hostname) => match self.refusal(key, hostname, valid) {
                        Some(refusal) => refused.push(refusal),
                        None => {
                            bids.insert(Host::new(tenant, hostname));
                        }
                    },
                }
            }
            if claimant.hostnames.is_empty() {
                let text = "spec.hostnames: at least one is needed on a shared Gateway".to_owned();
                refused.push(("HostnameRequired", text));
            }
        }
        refused.sort();
        refused.dedup();
        let before: BTreeSet<Host> = self.bids_of.of(&id).cloned().collect();
        for host in before.difference(&bids) {
            self.bids.remove(host, &Rank::of(key));
            self.bids_of.remove(&id, host);
        }
        for host in bids.difference(&before) {
            self.bids.insert(host.clone(), Rank::of(key));
            self.bids_of.insert(id.clone(), host.clone());
        }
        dirty.hosts.extend(before.symmetric_difference(&bids).cloned());
        if refused.is_empty() {
            self.refused.remove(&id);
        } else {
            self.refused.insert(id.clone(), refused);
        }
        dirty.verdicts.insert(id);
    }

    fn may_attach(&self, key: &ClaimKey, valid: &Valid) -> bool {
        let (own, from) = (&valid.object.name.namespace, &key.name.namespace);
        let redirect = *key.name.name == *names::redirect(&valid.object.name.name) && key.kind == ClaimKind::HttpRoute;
        !(own == from && redirect) && (own == from || self.gateway_of(from).as_ref() == Some(own))
    }

    fn refusal(&self, key: &ClaimKey, hostname: &Hostname, valid: &Valid) -> Option<(&'static str, String)> {
        let apex = valid.apex.as_str();
        let labels = self.namespaces.get(&key.name.namespace).map(|ns| &ns.labels);
        let host = labels.and_then(|l| l.get(HOST_LABEL)).map(|host| host.to_ascii_lowercase());
        let outside = |of: &str| Some(("HostnameNotAllowed", format!("{hostname} is not {of} or below it")));
        match host {
            _ if hostname.is_any() || !within(hostname, apex) => return outside(apex),
            Some(host) if !within(hostname, &host) => return outside(&host),
            // Absence means denial where a label is what allows.
            None if key.name.namespace.starts_with("tenant-") => {
                return Some(("HostnameNotAllowed", format!("{hostname}: the namespace has no label {HOST_LABEL}")));
            }
            _ => {}
        }
        let passthrough = self.passes_through(hostname, valid);
        match key.kind {
            ClaimKind::TlsRoute if !passthrough => {
                let text = format!("{hostname} is no passthrough service of the Gateway");
                Some(("NoMatchingListenerHostname", text))
            }
            ClaimKind::TlsRoute => None,
            _ if passthrough => Some(("HostnameConflict", format!("{hostname} belongs to a passthrough service"))),
            _ if hostname.is_wildcard() && valid.mode == Mode::Http01 => {
                Some(("WildcardNotIssuable", format!("{hostname}: HTTP-01 issues no wildcard certificates; use dns01")))
            }
            _ => None,
        }
    }

    pub(super) fn passes_through(&self, hostname: &Hostname, valid: &Valid) -> bool {
        let rest = hostname.as_str().strip_suffix(valid.apex.as_str()).and_then(|rest| rest.strip_suffix('.'));
        rest.is_some_and(|service| valid.object.passthrough().iter().any(|s| **s == *service))
    }

    /// Decides who owns a host, and gives its listener a place or takes it away.
    pub(super) fn settle(&mut self, host: &Host, dirty: &mut Dirty) {
        self.counters.hosts += 1;
        let bids: Vec<Rank> = self.bids.of(host).cloned().collect();
        let covering = host.hostname.covering().filter_map(|w| self.owners.get(&Host::new(&host.tenant, &w)));
        let covering: Vec<Rank> = covering.cloned().collect();
        let holds = |bid: &&Rank| covering.iter().all(|over| over.namespace() == bid.namespace() || *bid < over);
        let owner = bids.iter().find(holds).cloned();
        let keeper = owner.as_ref().or(covering.first()).map(Rank::namespace).cloned();
        let contested = !bids.is_empty() && bids.iter().any(|bid| Some(bid.namespace()) != keeper.as_ref())
            || owner.as_ref().is_some_and(|o| covering.iter().any(|over| over.namespace() != o.namespace()));
        let moved = self.owners.get(host) != owner.as_ref();
        if moved && host.hostname.is_wildcard() {
            // Whatever lies below it may have to yield, or be free again.
            let below = host.reversed[..host.reversed.len() - 2].to_owned();
            let all = self.bids.from(host.clone()).map(|(other, _)| other);
            let all = all.take_while(|other| other.tenant == host.tenant && other.reversed.starts_with(&below));
            dirty.hosts.extend(all.filter(|other| *other != host).cloned());
        }
        match &owner {
            Some(owner) => drop(self.owners.insert(host.clone(), owner.clone())),
            None => drop(self.owners.remove(host)),
        }
        let was = if contested { !self.contested.insert(host.clone()) } else { self.contested.remove(host) };
        let listener = if host.hostname.is_wildcard() {
            names::child_listener(&host.hostname.as_str()[2..])
        } else {
            names::host_listener(host.hostname.as_str())
        };
        let wanted = self.valid.get(&host.tenant).is_some_and(|valid| {
            let name = host.hostname.as_str();
            let apex = valid.apex.as_str();
            let fixed = self.passes_through(&host.hostname, valid) || !within(&host.hostname, apex);
            let wild = contested && name != apex && name.strip_prefix("*.") != Some(apex);
            !fixed && if valid.mode.per_host() { owner.is_some() } else { wild || self.child_hosts.contains(host) }
        });
        let id = (host.tenant.clone(), listener.clone());
        let placed = self.places.get(&id).is_some_and(|place| place.hostname == host.hostname);
        match (wanted, placed) {
            (true, false) => self.place(host, &listener, dirty),
            (false, true) => self.take(&host.tenant, &listener, dirty),
            (true, true) if moved || was != contested => {
                dirty.shards.insert((host.tenant.clone(), self.places[&id].shard));
            }
            _ => {}
        }
        if !wanted {
            for name in [listener.clone(), String::new()] {
                self.waiting.remove(&(host.tenant.clone(), name), host);
            }
        }
        self.certify(host, dirty);
        dirty.verdicts.extend(bids.iter().map(|bid| (bid.key(), host.tenant.clone())));
        dirty.readiness.insert(host.tenant.clone());
    }

    /// The certificate of a host that has a listener of its own.
    fn certify(&mut self, host: &Host, dirty: &mut Dirty) {
        let hostname = host.hostname.as_str();
        let name = names::host_certificate(&host.tenant.name, hostname);
        let id = (host.tenant.clone(), names::host_listener(hostname));
        let holder = self.places.get(&id).map(|place| place.hostname.clone());
        if holder.as_ref().is_some_and(|holder| *holder != host.hostname) {
            return;
        }
        let valid = self.valid.get(&host.tenant).filter(|_| holder.is_some());
        let mode = valid.map(|valid| valid.mode);
        let value = valid.filter(|_| mode == Some(Mode::Http01)).map(|v| render::host_certificate(&v.object, hostname));
        let secret = ObjectName::new(host.tenant.namespace.clone(), name.as_str());
        let wish = (mode == Some(Mode::InternalCa)).then(|| host.hostname.clone());
        if self.wished.get(&secret) != wish.as_ref() {
            dirty.delta.wishes.insert(secret.clone(), wish.clone());
            match wish {
                Some(wish) => drop(self.wished.insert(secret, wish)),
                None => drop(self.wished.remove(&secret)),
            }
        }
        self.emit(&host.tenant, DerivedKind::Certificate, name, value, dirty);
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
        dirty.shards.insert((tenant.clone(), 0));
    }

    fn put(&mut self, tenant: &ObjectName, listener: &str, hostname: &Hostname, shard: usize) {
        let key = (tenant.clone(), shard);
        self.places.insert((tenant.clone(), listener.to_owned()), Place { shard, hostname: hostname.clone() });
        self.shards.entry(key.clone()).or_default().insert(hostname.clone(), listener.to_owned());
        self.refresh_room(&key);
    }

    fn take(&mut self, tenant: &ObjectName, listener: &str, dirty: &mut Dirty) {
        let id = (tenant.clone(), listener.to_owned());
        let Some(place) = self.places.remove(&id) else { return };
        let key = (tenant.clone(), place.shard);
        if let Some(shard) = self.shards.get_mut(&key) {
            shard.remove(&place.hostname);
            if shard.is_empty() {
                self.shards.remove(&key);
            }
        }
        self.refresh_room(&key);
        dirty.shards.insert(key);
        dirty.shards.insert((tenant.clone(), 0));
        for id in [id, (tenant.clone(), String::new())] {
            if let Some(next) = self.waiting.first(&id).cloned() {
                self.waiting.remove(&id, &next);
                dirty.hosts.insert(next);
            }
        }
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

    /// Whether a claimant's route reaches a listener outside of the Gateway.
    pub(super) fn reaches(&self, claimant: &Claimant, tenant: &ObjectName, shard: usize) -> Result<(), ObjectName> {
        let set = ObjectName::new(tenant.namespace.clone(), names::overflow(&tenant.name, shard));
        let own = self.valid.get(tenant).is_some_and(|v| v.object.spec.gateway_class_name == self.settings.own_class);
        if shard == 0 || own || claimant.names_set(&set) { Ok(()) } else { Err(set) }
    }
}

pub(super) fn start(tenant: &ObjectName) -> Host {
    Host { tenant: tenant.clone(), reversed: String::new(), hostname: Hostname::any() }
}
