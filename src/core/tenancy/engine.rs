//! The engine: keeps what has been decided, and redoes only what a change touches.
//!
//! ```text
//! TenantGateway, namespace, claimant → bids → owner of each name → place in a shard → shard, certificate, verdict
//! ```
//!
//! Where a host stands (Gateway or which ListenerSet) is remembered, and after a restart read back from the objects
//! that are there: a host that carries traffic is not moved.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::claim::Rank;
use super::claims::{ClaimId, Claims};
use super::delta::{Change, Delta, Derived, Existing, Namespace, Patch, Record, Settings};
use super::groups::Map;
use super::hosts::{Host, HostId, Hosts, Name};
use super::render::{ATTACHED_BY, GATEWAY_LABEL, GatewayTemplate};
use super::work_list::{Todo, WorkList};
use super::{ClaimKey, Claimant, Desired, Mode, ProvidedSecret, Readiness, Source, TenantGateway, Verdict};
use crate::inputs::Listener;
use crate::model::{Hostname, ObjectName, Reason};
use crate::multimap::MultiMap;
use crate::reservations::Reservations;
use crate::wanted::{Issuer, WantedCertificate};

/// A TenantGateway that can be carried out.
#[derive(PartialEq)]
pub(super) struct ResolvedTenant {
    pub(super) object: TenantGateway,
    pub(super) apex: Hostname,
    pub(super) mode: Mode,
    pub(super) source: Source,
    /// Who issues its certificates, if not somebody brings them.
    pub(super) issuer: Option<Issuer>,
    pub(super) frame: GatewayTemplate,
}

/// How a claimant stands among others: who was first, where that counts, then the rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Priority {
    pub(super) since: u64,
    pub(super) rank: Rank,
}

/// A shard of a TenantGateway's listeners.
pub(super) type Shard = (ObjectName, usize);

/// How much work was done since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// TenantGateways evaluated.
    pub tenants: usize,
    /// Claimants admitted or refused.
    pub claimants: usize,
    /// Hostnames whose owner was decided.
    pub hosts: usize,
    /// Listeners of hostnames given a place, or looked at.
    pub places: usize,
    /// Gateways and ListenerSets rendered.
    pub shards: usize,
    /// Verdicts made.
    pub verdicts: usize,
}

impl Counters {
    /// The work done since an earlier reading.
    pub fn since(&self, before: &Counters) -> Counters {
        Counters {
            tenants: self.tenants - before.tenants,
            claimants: self.claimants - before.claimants,
            hosts: self.hosts - before.hosts,
            places: self.places - before.places,
            shards: self.shards - before.shards,
            verdicts: self.verdicts - before.verdicts,
        }
    }
}

/// Keeps what has been decided.
pub struct Tenancy {
    pub(super) settings: Settings,
    pub(super) given: BTreeMap<ObjectName, TenantGateway>,
    pub(super) valid: BTreeMap<ObjectName, ResolvedTenant>,
    pub(super) tenants_in: MultiMap<Arc<str>, ObjectName>,
    pub(super) by_class: MultiMap<String, ObjectName>,
    /// TenantGateways by the Secret that they are to be served with, and what is in it.
    pub(super) by_secret: MultiMap<ObjectName, ObjectName>,
    pub(super) brought: BTreeMap<ObjectName, ProvidedSecret>,
    /// Secrets with a key of ours.
    pub(super) keyed: BTreeSet<ObjectName>,
    /// GatewayClasses that are ours.
    pub(super) own: BTreeSet<Arc<str>>,
    pub(super) namespaces: BTreeMap<Arc<str>, Namespace>,
    /// TenantGateways by the namespaces that they take in, as far as they are carried out.
    pub(super) expecting: MultiMap<Arc<str>, ObjectName>,
    /// The gateway of each namespace, and back.
    pub(super) members: BTreeMap<Arc<str>, Arc<str>>,
    pub(super) children: MultiMap<Arc<str>, Arc<str>>,
    /// The wildcards of child apexes that are on a wildcard certificate, and those that it has no room for.
    pub(super) child_hosts: BTreeSet<Host>,
    /// The namespace whose apex the wildcard of a child apex is of, at Gateways that somebody else serves.
    pub(super) homes: BTreeMap<Host, Arc<str>>,
    pub(super) beyond: BTreeMap<ObjectName, BTreeSet<Host>>,
    pub(super) claims: Claims,
    /// What is known of every hostname that is asked for, or has a listener.
    pub(super) hosts: Hosts,
    pub(super) records: BTreeMap<Hostname, Record>,
    /// Of these, what was given up and stays reserved.
    pub(super) reserved: Reservations<Hostname>,
    /// The time, in seconds since the epoch.
    pub(super) clock: u64,
    /// Which namespace owns a hostname on the addresses that Gateways share.
    pub(super) owned: BTreeMap<Hostname, Arc<str>>,
    /// What is to be recorded, where somebody else keeps the record.
    pub(super) proposed: BTreeMap<Hostname, Option<Record>>,
    /// Counts calls, for the order of records.
    pub(super) now: u64,
    /// How many hosts of a TenantGateway ListenerSets of others than us have.
    pub(super) with_sets: BTreeMap<ObjectName, usize>,
    /// Who has the name of a listener.
    pub(super) listeners: Map<(ObjectName, Arc<str>), HostId>,
    /// What stands where; a listener is made when its host is first looked at.
    pub(super) shards: BTreeMap<Shard, BTreeMap<Hostname, Option<Arc<Listener>>>>,
    /// Shards with room, so that finding one costs the same however many there are.
    pub(super) room: BTreeSet<Shard>,
    /// Hosts that have no place, by the name they wait for; the empty name is room.
    pub(super) waiting: MultiMap<(ObjectName, Arc<str>), Host>,
    pub(super) existing: BTreeMap<Derived, Existing>,
    pub(super) desired: BTreeMap<Derived, Desired>,
    pub(super) wanted: BTreeMap<ObjectName, WantedCertificate>,
    pub(super) foreign: MultiMap<ObjectName, Derived>,
    pub(super) patches: BTreeMap<Arc<str>, Patch>,
    pub(super) readiness: BTreeMap<ObjectName, Readiness>,
    pub(super) counters: Counters,
}

/// Something that is wrong with a claim.
pub(super) type Finding = (Reason, String);

/// What has to be redone.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) existing: Vec<(Derived, Option<Existing>)>,
    pub(super) namespaces: Todo<Arc<str>>,
    pub(super) tenants: Todo<ObjectName>,
    /// TenantGateways that are checked.
    pub(super) checked: Todo<ObjectName>,
    pub(super) claims: WorkList<ClaimId>,
    pub(super) names: Todo<Name>,
    pub(super) hosts: WorkList<HostId>,
    pub(super) shards: Todo<Shard>,
    pub(super) verdicts: WorkList<ClaimId>,
    pub(super) readiness: Todo<ObjectName>,
    pub(super) delta: Delta,
    /// What `delta` gets at the end, the latest last: there may be as many as hosts.
    pub(super) emitted: Vec<(Derived, Option<Desired>)>,
    pub(super) judged: Vec<((ClaimKey, ObjectName), Option<Verdict>)>,
}

impl Tenancy {
    /// An engine that has seen nothing.
    pub fn new(settings: Settings) -> Self {
        Self {
            reserved: Reservations::new(settings.hold),
            settings,
            given: BTreeMap::new(),
            valid: BTreeMap::new(),
            tenants_in: MultiMap::default(),
            by_class: MultiMap::default(),
            by_secret: MultiMap::default(),
            brought: BTreeMap::new(),
            keyed: BTreeSet::new(),
            own: BTreeSet::new(),
            namespaces: BTreeMap::new(),
            expecting: MultiMap::default(),
            members: BTreeMap::new(),
            children: MultiMap::default(),
            child_hosts: BTreeSet::new(),
            homes: BTreeMap::new(),
            beyond: BTreeMap::new(),
            claims: Claims::default(),
            hosts: Hosts::default(),
            records: BTreeMap::new(),
            clock: 0,
            owned: BTreeMap::new(),
            proposed: BTreeMap::new(),
            now: 0,
            with_sets: BTreeMap::new(),
            listeners: Map::default(),
            shards: BTreeMap::new(),
            room: BTreeSet::new(),
            waiting: MultiMap::default(),
            existing: BTreeMap::new(),
            desired: BTreeMap::new(),
            wanted: BTreeMap::new(),
            foreign: MultiMap::default(),
            patches: BTreeMap::new(),
            readiness: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    /// Takes in changes and says what they lead to. After a restart everything there is comes in one call.
    pub fn apply(&mut self, changes: Vec<Change>) -> Delta {
        let mut dirty = Dirty::default();
        self.now += 1;
        // Where hosts stand can only be read back once the TenantGateways are known.
        changes.into_iter().for_each(|change| self.take_in(change, &mut dirty));
        for (key, existing) in std::mem::take(&mut dirty.existing) {
            self.observe(key, existing, &mut dirty);
        }
        while let Some(tenant) = dirty.tenants.pop() {
            self.evaluate(&tenant, &mut dirty);
        }
        while let Some(namespace) = dirty.namespaces.pop() {
            self.label(&namespace, &mut dirty);
        }
        while let Some(tenant) = dirty.checked.pop() {
            self.carry_out(&tenant, &mut dirty);
        }
        while let Some(claim) = dirty.claims.pop(|_, _| Ordering::Equal) {
            self.admit(claim, &mut dirty);
        }
        while let Some(name) = dirty.names.pop() {
            self.settle(&name, &mut dirty);
        }
        // In the order of their names: it is what decides which of several new ones gets the last place.
        while let Some(host) = dirty.hosts.pop(|a, b| self.hosts[*a].host.cmp(&self.hosts[*b].host)) {
            self.arrange(host, &mut dirty);
        }
        while let Some(shard) = dirty.shards.pop() {
            self.compile(&shard, &mut dirty);
        }
        while let Some(claim) = dirty.verdicts.pop(|_, _| Ordering::Equal) {
            self.judge(claim, &mut dirty);
        }
        while let Some(tenant) = dirty.readiness.pop() {
            self.report(&tenant, &mut dirty);
        }
        let (objects, verdicts) = (dirty.emitted.into_iter().collect(), dirty.judged.into_iter().collect());
        Delta { objects, verdicts, ..dirty.delta }
    }

    /// How much work was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// All desired objects.
    pub fn objects(&self) -> &BTreeMap<Derived, Desired> {
        &self.desired
    }

    /// The verdict on a claim under a TenantGateway.
    pub fn verdict(&self, claim: &ClaimKey, tenant: &ObjectName) -> Option<&Verdict> {
        self.verdicts_of(claim).find(|(of, _)| *of == tenant).map(|(_, verdict)| verdict)
    }

    /// Who owns a hostname of a TenantGateway.
    pub fn owner(&self, tenant: &ObjectName, hostname: &Hostname) -> Option<ClaimKey> {
        self.standing(tenant, hostname).map(|standing| standing.rank.key())
    }

    /// What is to be done to a namespace's label.
    pub fn patch(&self, namespace: &Arc<str>) -> Option<&Patch> {
        self.patches.get(namespace)
    }

    /// Whether a TenantGateway has a Gateway, made by us: now, or by an earlier run when it could be carried out.
    pub fn governs(&self, tenant: &ObjectName) -> bool {
        self.is_made(tenant, &Derived { kind: super::DerivedKind::Gateway, name: tenant.clone() })
    }

    /// Whether an object is made by us for a TenantGateway, now or by an earlier run.
    pub fn is_made(&self, tenant: &ObjectName, derived: &Derived) -> bool {
        let found = || self.existing.get(derived).is_some_and(|there| self.is_uid_of(&there.owner, tenant));
        self.desired.contains_key(derived) || self.is_as_found(tenant) && found()
    }

    /// Whether a controlling owner's UID is that of a TenantGateway as it is given now.
    pub(super) fn is_uid_of(&self, uid: &str, tenant: &ObjectName) -> bool {
        !uid.is_empty() && self.given.get(tenant).is_some_and(|given| given.uid == uid)
    }

    /// Whether a TenantGateway was found not to be fit to be carried out when it was last checked.
    pub(super) fn is_stopped(&self, tenant: &ObjectName) -> bool {
        self.readiness.get(tenant).is_some_and(|readiness| readiness.frozen)
    }

    /// Whether a TenantGateway cannot be carried out and never could since we began: what stands of it stays as it was
    /// found, and nothing comes to it.
    pub(super) fn is_as_found(&self, tenant: &ObjectName) -> bool {
        !self.valid.contains_key(tenant) && self.given.contains_key(tenant)
    }

    /// Everything that names a TenantGateway as parent, in no order.
    pub fn claimants_of(&self, tenant: &ObjectName) -> impl Iterator<Item = &ClaimKey> {
        self.claims.on(tenant).map(|id| &self.claims[id].key)
    }

    /// How ready a TenantGateway is.
    pub fn readiness(&self, tenant: &ObjectName) -> Option<&Readiness> {
        self.readiness.get(tenant)
    }

    fn take_in(&mut self, change: Change, dirty: &mut Dirty) {
        match change {
            Change::Secret(name, brought) => self.take_secret(name, brought, dirty),
            Change::Keyed(name, ours) => self.take_key(name, ours, dirty),
            Change::Recorded(hostname, record) => self.take_record(hostname, record, dirty),
            Change::Time(now) => self.take_time(now, dirty),
            Change::Owned(hostname, owner) => self.take_owner(hostname, owner, dirty),
            Change::ListenerSets(can) => {
                self.settings.listener_sets = can;
                // Whoever waits for room may have it now.
                let full = |tenant: &ObjectName| (tenant.clone(), Arc::from(""));
                let waiting = self.given.keys().flat_map(|tenant| self.waiting.of(&full(tenant)));
                dirty.hosts.extend(waiting.filter_map(|host| self.hosts.find(&host.tenant, &host.hostname)));
            }
            Change::Class(class, ours) => {
                let changed = if ours { self.own.insert(class.clone()) } else { self.own.remove(&class) };
                if changed {
                    dirty.tenants.extend(self.by_class.of(&*class).cloned());
                }
            }
            Change::TenantGateway(name, new) => {
                let old = self.given.get(&name).cloned();
                if old == new {
                    return;
                }
                for (tenant, there) in [(&old, false), (&new, true)] {
                    let Some(tenant) = tenant else { continue };
                    self.refer(tenant, there);
                    let class = super::render::class(tenant, &self.settings).to_owned();
                    if there {
                        self.by_class.insert(class, name.clone());
                    } else {
                        self.by_class.remove(&class, &name);
                    }
                }
                match new {
                    Some(new) => {
                        self.tenants_in.insert(name.namespace.clone(), name.clone());
                        self.given.insert(name.clone(), new);
                    }
                    None => {
                        self.tenants_in.remove(&name.namespace, &name);
                        self.given.remove(&name);
                    }
                }
                dirty.tenants.extend(self.tenants_in.of(&name.namespace).cloned());
                dirty.tenants.insert(name);
            }
            Change::Namespace(name, new) => {
                if self.namespaces.get(&name) == new.as_ref() {
                    return;
                }
                match new {
                    Some(new) => self.namespaces.insert(name.clone(), new),
                    None => self.namespaces.remove(&name),
                };
                dirty.tenants.extend(self.tenants_in.of(&name).cloned());
                self.touch_claims(&name, dirty);
                self.touch_family(&name, dirty);
                dirty.namespaces.insert(name);
            }
            Change::Claimant(key, new) => {
                if self.claims.claimant(&key) == new.as_ref() {
                    return;
                }
                if let Some(old) = self.claims.claimant(&key) {
                    self.touch_records(&old.hostnames, dirty);
                }
                // Under the names that are shared by all who name them.
                let known =
                    |tenant: ObjectName| self.given.get_key_value(&tenant).map_or(tenant, |(known, _)| known.clone());
                let tenants = new.as_ref().map(Claimant::tenants).unwrap_or_default().into_iter().map(known).collect();
                dirty.claims.extend(self.claims.set(&key, new, tenants));
            }
            Change::Existing(key, new) => dirty.existing.push((key, new)),
        }
    }

    /// Marks a hostname: who owns it, and its listener.
    pub(super) fn touch(&self, id: HostId, dirty: &mut Dirty) {
        dirty.names.insert(self.hosts[id].host.name());
        dirty.hosts.insert(id);
    }

    /// Marks the claims of a namespace's objects.
    pub(super) fn touch_claims(&self, namespace: &Arc<str>, dirty: &mut Dirty) {
        dirty.claims.extend(self.claims.within(namespace));
    }

    /// Marks the TenantGateways that a namespace inherits from: its apex is part of their wildcards.
    fn touch_family(&self, namespace: &Arc<str>, dirty: &mut Dirty) {
        if let Some(gateway) = self.gateway_of(namespace) {
            for tenant in
                self.tenants_in.of(&gateway).filter(|t| self.valid.get(*t).is_some_and(|v| !v.mode.per_host()))
            {
                dirty.tenants.insert(tenant.clone());
            }
        }
    }

    /// The namespace whose Gateway a namespace may attach to: its label, or what we are about to write.
    pub(super) fn gateway_of(&self, namespace: &str) -> Option<Arc<str>> {
        match self.patches.get(namespace) {
            Some(Patch::Set(gateway)) => Some(gateway.clone()),
            Some(Patch::Strip) => None,
            Some(Patch::Leave | Patch::Disown) | None => {
                let label = self.namespaces.get(namespace)?.labels.get(GATEWAY_LABEL)?;
                Some(Arc::from(label.as_str()))
            }
        }
    }

    /// Decides a namespace's label. A label that others wrote is never touched; of two owners the first keeps it.
    fn label(&mut self, name: &Arc<str>, dirty: &mut Dirty) {
        let before = self.gateway_of(name);
        let patch = match self.namespaces.get(name) {
            None => Patch::Leave,
            Some(namespace) => {
                let label = namespace.labels.get(GATEWAY_LABEL);
                let by = namespace.annotations.get(ATTACHED_BY);
                let kept = by.filter(|by| self.expecting.of(name).any(|tenant| *tenant.namespace == **by));
                // Of one that was never carried out nobody knows which namespaces it takes in.
                let unknown = by.is_some_and(|by| self.tenants_in.of(&**by).any(|tenant| self.is_as_found(tenant)));
                match (label, by, kept) {
                    (Some(label), Some(_), Some(kept)) if label == kept => Patch::Leave,
                    (_, Some(_), None) if unknown => Patch::Leave,
                    (_, Some(_), Some(kept)) => Patch::Set(Arc::from(kept.as_str())),
                    (Some(label), Some(by), None) if label != by => Patch::Disown,
                    (None, ..) | (Some(_), Some(_), None) => match self.expecting.first(name) {
                        Some(first) => Patch::Set(first.namespace.clone()),
                        None if by.is_some() => Patch::Strip,
                        None => Patch::Leave,
                    },
                    (Some(_), None, _) => Patch::Leave,
                }
            }
        };
        let there = self.patches.get(name).unwrap_or(&Patch::Leave);
        if *there != patch {
            dirty.delta.namespaces.insert(name.clone(), patch.clone());
            if patch == Patch::Leave {
                self.patches.remove(name);
            } else {
                self.patches.insert(name.clone(), patch);
            }
        }
        let after = self.gateway_of(name);
        let member = self.members.get(name).cloned();
        for gateway in before.iter().chain(&member).chain(&after) {
            let wildcard = |t: &&ObjectName| self.valid.get(*t).is_none_or(|v| !v.mode.per_host());
            dirty.checked.extend(self.tenants_in.of(gateway).filter(wildcard).cloned());
        }
        if member != after {
            if let Some(gateway) = &member {
                self.children.remove(gateway, name);
                self.members.remove(name);
            }
            if let Some(gateway) = after {
                self.children.insert(gateway.clone(), name.clone());
                self.members.insert(name.clone(), gateway);
            }
            self.touch_claims(name, dirty);
        }
        dirty.readiness.extend(self.expecting.of(name).cloned());
    }
}
