//! Rendering what was decided, and saying so.

use serde_json::Value;

use super::claim::Rank;
use super::delta::{Derived, DerivedKind, Verdict};
use super::engine::{Dirty, Host, Shard, Tenancy};
use super::render::{self, Item};
use super::settle::{NAMES, start};
use super::{ClaimKey, Mode, Readiness, names};
use crate::model::ObjectName;

impl Tenancy {
    /// Renders a Gateway (shard 0) or a ListenerSet.
    pub(super) fn compile(&mut self, shard: &Shard, dirty: &mut Dirty) {
        self.counters.shards += 1;
        let (tenant, number) = shard;
        let Some(valid) = self.valid.get(tenant) else {
            let (kind, name) = place_of(tenant, *number);
            return self.emit(tenant, kind, name, None, dirty);
        };
        let wildcard = render::wildcard_secret(&valid.object, valid.mode);
        let held = self.shards.get(shard);
        let items = held.into_iter().flatten().map(|(hostname, listener)| {
            let host = Host::new(tenant, hostname);
            let over = || hostname.covering().find_map(|w| self.owners.get(&Host::new(tenant, &w)));
            let only = self.contested.contains(&host).then(|| self.owners.get(&host).or_else(over)).flatten();
            let secret = if valid.mode.per_host() {
                names::host_certificate(&tenant.name, hostname.as_str())
            } else {
                wildcard.clone()
            };
            let only = only.map(|rank: &Rank| &**rank.namespace());
            render::item(&valid.object, &Item { name: listener.clone(), hostname: hostname.as_str(), secret, only })
        });
        let items: Vec<Value> = items.collect();
        let value = if *number == 0 {
            let last = self.shards.range(..=(tenant.clone(), usize::MAX)).next_back();
            let overflows = last.is_some_and(|((of, number), _)| of == tenant && *number > 0);
            Some(render::gateway(&valid.object, valid.mode, items, overflows))
        } else {
            (!items.is_empty()).then(|| render::overflow(&valid.object, *number, items))
        };
        let (kind, name) = place_of(tenant, *number);
        self.emit(tenant, kind, name, value, dirty);
    }

    /// Wants an object, or not any more. One of somebody else under that name is left alone and told.
    pub(super) fn emit(
        &mut self,
        tenant: &ObjectName,
        kind: DerivedKind,
        name: String,
        value: Option<Value>,
        dirty: &mut Dirty,
    ) {
        let key = Derived { kind, name: ObjectName::new(tenant.namespace.clone(), name) };
        let uid = self.given.get(tenant).map(|given| given.uid.as_str());
        let foreign = self.existing.get(&key).is_some_and(|there| uid.is_some_and(|uid| there.owner != uid));
        let blocked = foreign && value.is_some();
        if blocked != self.foreign.contains(tenant, &key) {
            if blocked {
                self.foreign.insert(tenant.clone(), key.clone());
            } else {
                self.foreign.remove(tenant, &key);
            }
            dirty.readiness.insert(tenant.clone());
        }
        let value = value.filter(|_| !foreign);
        if self.desired.get(&key) == value.as_ref() {
            return;
        }
        dirty.delta.objects.insert(key.clone(), value.clone());
        match value {
            Some(value) => drop(self.desired.insert(key, value)),
            None => drop(self.desired.remove(&key)),
        }
    }

    /// The verdict on a claim. It names what the claimant asked for, and nothing of others.
    pub(super) fn judge(&mut self, key: &ClaimKey, tenant: &ObjectName, dirty: &mut Dirty) {
        self.counters.verdicts += 1;
        let id = (key.clone(), tenant.clone());
        let mut findings = self.refused.get(&id).cloned().unwrap_or_default();
        let (mut granted, mut lost) = (Vec::new(), Vec::new());
        for host in self.bids_of.of(&id) {
            let name = &host.hostname;
            match self.owners.get(host) {
                Some(owner) if *owner.namespace() == key.name.namespace => match self.obstacle(key, host) {
                    Some(obstacle) => findings.push(obstacle),
                    None => granted.push(name.clone()),
                },
                _ => lost.push(name.to_string()),
            }
        }
        if !lost.is_empty() {
            let text = format!("{} already claimed by another route on TenantGateway {tenant}", lost.join(", "));
            findings.push(("HostnameConflict", text));
        }
        // The conflict goes first: it is what the page promises to say.
        findings.sort_by(|a, b| (a.0 != "HostnameConflict", a).cmp(&(b.0 != "HostnameConflict", b)));
        let message = findings.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("; ");
        let seen = self.bids_of.of(&id).next().is_some() || !findings.is_empty();
        let reason = findings.first().map_or("Accepted", |(reason, _)| reason);
        let verdict = seen.then_some(Verdict { reason, message, granted });
        if self.verdicts.get(&id) != verdict.as_ref() {
            dirty.delta.verdicts.insert(id.clone(), verdict.clone());
            match verdict {
                Some(verdict) => drop(self.verdicts.insert(id, verdict)),
                None => drop(self.verdicts.remove(&id)),
            }
        }
    }

    /// Why a host that is owned is not served.
    fn obstacle(&self, key: &ClaimKey, host: &Host) -> Option<(&'static str, String)> {
        let (tenant, name) = (&host.tenant, host.hostname.as_str());
        let listener = names::host_listener(name);
        let id = (tenant.clone(), listener);
        if self.waiting.contains(&id, host) {
            return Some(("NameCollision", format!("{name}: another hostname has listener name {} already", id.1)));
        }
        if self.waiting.contains(&(tenant.clone(), String::new()), host) {
            return Some(("ListenerLimitReached", format!("{name}: the Gateway has 64 listeners, and takes no more")));
        }
        let secret = ObjectName::new(tenant.namespace.clone(), names::host_certificate(&tenant.name, name));
        if self.foreign.contains(tenant, &Derived { kind: DerivedKind::Certificate, name: secret.clone() }) {
            let text = format!("{name}: Certificate {} is not owned by TenantGateway {tenant}", secret.name);
            return Some(("ForeignObject", text));
        }
        let place = self.places.get(&id).filter(|place| place.hostname == host.hostname)?;
        let set = self.reaches(self.claimants.get(key)?, tenant, place.shard).err()?;
        let text =
            format!("{name}: add a parentRef with kind ListenerSet, name {} and namespace {}", set.name, set.namespace);
        Some(("ListenerSetParentRequired", text))
    }

    /// `Ready` of a TenantGateway.
    pub(super) fn report(&mut self, tenant: &ObjectName, dirty: &mut Dirty) {
        if self.readiness.get(tenant).is_some_and(|readiness| readiness.frozen) && self.given.contains_key(tenant) {
            return;
        }
        let new = self.given.get(tenant).and(self.valid.get(tenant)).map(|valid| {
            let mut findings: Vec<(&'static str, String)> = Vec::new();
            for key in self.foreign.of(tenant).take(10) {
                findings.push((
                    "ForeignObject",
                    format!("{:?} {} is not owned by TenantGateway {tenant}", key.kind, key.name),
                ));
            }
            for namespace in
                valid.object.spec.attached_namespaces.iter().filter(|ns| self.namespaces.contains_key(ns.as_str()))
            {
                let namespace = std::sync::Arc::from(namespace.as_str());
                if self.gateway_of(&namespace).is_some_and(|of| of != tenant.namespace) {
                    let text =
                        format!("spec.attachedNamespaces: {namespace} is attached elsewhere; its label is left alone");
                    findings.push(("NamespaceAttachedElsewhere", text));
                }
            }
            let children = self.child_hosts.range(start(tenant)..).take_while(|host| host.tenant == *tenant);
            if valid.mode == Mode::Dns01 && children.count() > NAMES / 2 - 1 {
                let text =
                    format!("more than {} child apexes: a certificate has room for {NAMES} names", NAMES / 2 - 1);
                findings.push(("TooManyNames", text));
            }
            let reason = findings.first().map_or("Reconciled", |(reason, _)| *reason);
            let message = findings.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("; ");
            Readiness { reason, message, frozen: false }
        });
        if self.readiness.get(tenant) != new.as_ref() {
            dirty.delta.tenants.insert(tenant.clone(), new.clone());
            match new {
                Some(new) => drop(self.readiness.insert(tenant.clone(), new)),
                None => drop(self.readiness.remove(tenant)),
            }
        }
    }
}

fn place_of(tenant: &ObjectName, number: usize) -> (DerivedKind, String) {
    match number {
        0 => (DerivedKind::Gateway, tenant.name.to_string()),
        number => (DerivedKind::ListenerSet, names::overflow(&tenant.name, number)),
    }
}
