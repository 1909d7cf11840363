//! The pipeline: the two pure stages, tenancy and translation, from objects to resources and
//! statuses.
//!
//! ```text
//! objects ==> tenancy ==> desired objects ==> (written, and watched; or taken in at once) ==> translate ==> resources
//!                   +===> grants of hostnames, withheld listeners, as facts ==================^
//! ```
//!
//! In: [`Change`]s of objects. Out: an [`Outcome`]. Nothing here does I/O or reads the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::inputs::{
    Kind, Listener, ListenerSet, Namespace, Object, ObjectChange, ObjectKey, Route, Secret, SetKey,
    SetKind,
};
use crate::model::{HostnameGrant, ObjectName};
use crate::ownership::{Ledger, Ownable, OwnerRecord};
use crate::store::parent_key;
use crate::tenancy::{
    self, ClaimKey, ClaimKind, Claimant, Derived, DerivedKind, Existing, GATEWAY_LABEL, Patch,
    ProvidedSecret, Tenancy, names, tenant_of,
};
use crate::translate::{Change, Delta, Engine, Fact, QuotaUse, RouteGrants, RouteKey, Settings};
use crate::unserved::{Unserved, concerned, unserved};

/// The destination of desired objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Taken in at once, without being written.
    Here,
    /// Written to a cluster. They come back through the watches.
    ToTheCluster,
}

/// The two stages, with the state that joins them.
pub struct Pipeline {
    tenancy: Tenancy,
    engine: Engine,
    written: Written,
    controller: String,
    /// Namespaces as read, without the label that tenancy adds.
    namespaces: BTreeMap<Arc<str>, Namespace>,
    /// Objects that are not ours under names that we derive.
    theirs: BTreeSet<ObjectKey>,
    /// TenantGateways whose Gateway is ours: hostnames there must be granted.
    governed: BTreeSet<ObjectName>,
    /// Changes of the translation's record of ownership for tenancy, to be applied with the next
    /// call.
    owned: Vec<tenancy::Change>,
}

/// The result of changes.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Resources and statuses.
    pub delta: Delta,
    /// Desired objects, wanted certificates, verdicts.
    pub tenancy: tenancy::Delta,
    /// The objects for which [`Pipeline::unserved`] may have another answer than before; empty in a
    /// cluster, where other controllers have objects of their own.
    pub concerned: BTreeSet<ObjectKey>,
}

impl Outcome {
    /// The records of ownership to write or to remove, of both stages.
    pub fn records(&self) -> BTreeMap<Ownable, Option<OwnerRecord>> {
        let both = self.delta.records.iter().chain(&self.tenancy.records);
        both.map(|(what, owner)| (what.clone(), owner.clone()))
            .collect()
    }
}

/// The record of ownership: each stage decides its own items of it.
impl Pipeline {
    /// The ledger of the stage that decides an item.
    fn ledger(&self, what: &Ownable) -> &Ledger {
        match what {
            Ownable::Tenant(_) => self.tenancy.ledger(),
            Ownable::Hostname(_)
            | Ownable::Port(_)
            | Ownable::Socket(..)
            | Ownable::Secret(_)
            | Ownable::Admitted(..) => self.engine.ledger(),
        }
    }

    /// All records.
    pub fn records(&self) -> impl Iterator<Item = (&Ownable, &OwnerRecord)> {
        let tenants = self.tenancy.ledger().records().iter();
        let tenants = tenants.filter(|(what, _)| matches!(what, Ownable::Tenant(_)));
        self.engine.ledger().records().iter().chain(tenants)
    }

    /// The items that are recorded under a name that people use: a hostname at any place.
    pub fn recorded_as(&self, named: &Ownable) -> Vec<Ownable> {
        let all = self.records().map(|(what, _)| what);
        let recorded = all.filter(|what| match named {
            Ownable::Hostname(name) => what.hostname() == Some(name),
            _ => *what == named,
        });
        recorded.cloned().collect()
    }

    /// The items whose records are to be written or removed by the keeper of the record.
    pub fn proposed(&self) -> impl Iterator<Item = &Ownable> {
        let tenants = self.tenancy.ledger().proposals();
        let all = self.engine.ledger().proposals().chain(tenants);
        all.map(|(what, _)| what)
    }

    /// The proposed change of a record; `None` if the record is right.
    pub fn proposal(&self, what: &Ownable) -> Option<Option<&OwnerRecord>> {
        self.ledger(what).proposal(what)
    }
}

impl Pipeline {
    /// A pipeline without any objects.
    pub fn new(settings: Settings, tenancy: tenancy::Settings, written: Written) -> Self {
        let tenancy = tenancy::Settings {
            limits: settings.limits.clone(),
            ..tenancy
        };
        Self {
            controller: settings.controller.clone(),
            tenancy: Tenancy::new(tenancy),
            engine: Engine::new(settings),
            written,
            namespaces: BTreeMap::new(),
            theirs: BTreeSet::new(),
            governed: BTreeSet::new(),
            owned: Vec::new(),
        }
    }

    /// The tenancy stage, for queries.
    pub fn tenancy(&self) -> &Tenancy {
        &self.tenancy
    }

    /// The translation stage, for queries.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What each namespace takes by the cost model, and what it may have. Of the two records, the
    /// one in which it has more counts.
    pub fn quota_uses(&self) -> Vec<QuotaUse> {
        let mut uses = self.engine.quota_uses();
        for of in &mut uses {
            let among_tenants = self.tenancy.ledger().used_by(&of.namespace);
            of.used.record = of.used.record.max(among_tenants);
        }
        uses
    }

    /// The TenantGateway that an object is derived from.
    pub fn derived_from(&self, key: &ObjectKey) -> Option<ObjectKey> {
        let derived =
            derivable(key).filter(|derived| self.tenancy.objects().contains_key(derived))?;
        Some(ObjectKey::new(
            Kind::TenantGateway,
            self.tenancy.tenant_of(&derived)?.clone(),
        ))
    }

    /// Why an object has no controller here that could serve it and say so in a status. It supposes
    /// that there are no objects but those seen so far.
    pub fn unserved(&self, key: &ObjectKey) -> Vec<Unserved> {
        unserved(key, self.engine.store(), &self.controller, |name| {
            self.tenancy.readiness(name).is_some()
        })
    }

    /// The time at which there is work without a change: see [`Engine::next_deadline`], and the end
    /// of tenancy's reservations.
    pub fn next_deadline(&self) -> Option<SystemTime> {
        let reserved = self
            .tenancy
            .ledger()
            .next_expiry()
            .and_then(|at| UNIX_EPOCH.checked_add(Duration::from_secs(at)));
        self.engine
            .next_deadline()
            .into_iter()
            .chain(reserved)
            .min()
    }

    /// Applies changes of objects.
    pub fn apply(&mut self, changes: Vec<Change>, now: SystemTime) -> Outcome {
        self.apply_with(changes, Vec::new(), now)
    }

    /// Applies changes of objects, with inputs of tenancy alone: the owners of existing objects in
    /// a cluster under derived names.
    pub fn apply_with(
        &mut self,
        changes: Vec<Change>,
        known: Vec<tenancy::Change>,
        now: SystemTime,
    ) -> Outcome {
        let mut asked = known;
        let mut batch = Batch::default();
        for change in changes {
            self.ask(&change, &mut asked);
            match &change {
                Change::Object(ObjectChange::Put(Object::TenantGateway(_))) => {}
                Change::Object(ObjectChange::Delete(key)) if key.kind.is_of_tenancy() => {}
                Change::Object(ObjectChange::Put(Object::Namespace(namespace))) => {
                    self.namespaces
                        .insert(namespace.name.clone(), namespace.clone());
                    batch.namespaces.insert(namespace.name.clone());
                }
                Change::Object(ObjectChange::Delete(key)) if key.kind == Kind::Namespace => {
                    self.namespaces.remove(&key.name.name);
                    batch.namespaces.insert(key.name.name.clone());
                }
                Change::Object(ObjectChange::Put(Object::Secret(secret))) => {
                    let secret = self.keep_last_good(secret.clone(), &batch, now);
                    batch.put(Change::put(Object::Secret(secret)));
                }
                Change::Fact(Fact::Recorded(what @ Ownable::Tenant(_), owner)) => {
                    let record = tenancy::Fact::Recorded(what.clone(), owner.clone());
                    asked.push(record.into());
                }
                _ => batch.put(change),
            }
        }
        self.ask_for_secrets(&batch, &mut asked);
        asked.extend(std::mem::take(&mut self.owned));
        asked.push(tenancy::Change::Fact(tenancy::Fact::Time(
            now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        )));
        let decided = self.tenancy.apply(asked);
        if self.written == Written::Here {
            self.take_back(&decided, &mut batch);
        }
        self.tell_who_issues(&decided, &mut batch);
        self.tell_grants(&decided, &mut batch);
        let facts = batch.facts.into_iter();
        let recorded: Vec<Ownable> = facts
            .as_slice()
            .iter()
            .filter_map(recorded)
            .cloned()
            .collect();
        let mut changed: Vec<ObjectKey> = Vec::new();
        if self.written == Written::Here {
            changed.extend(batch.changes.keys().cloned());
            changed.extend(
                decided
                    .tenants
                    .keys()
                    .map(|name| ObjectKey::new(Kind::Gateway, name.clone())),
            );
        }
        let delta = self
            .engine
            .apply(facts.chain(batch.changes.into_values()).collect(), now);
        for what in recorded.iter().chain(delta.records.keys()) {
            self.tell_owner(what);
        }
        let concerned = changed
            .iter()
            .flat_map(|key| concerned(key, self.engine.store()))
            .collect();
        Outcome {
            delta,
            tenancy: decided,
            concerned,
        }
    }

    /// Tells tenancy which namespace owns a hostname on shared addresses: of several TenantGateways
    /// with claimants of the hostname, that namespace's gets it.
    fn tell_owner(&mut self, what: &Ownable) {
        if !matches!(what, Ownable::Hostname(_)) {
            return;
        }
        let owner = self.engine.ledger().owner(what);
        let owner = owner.filter(|owner| owner.released.is_none());
        let record = tenancy::Fact::Recorded(what.clone(), owner.cloned());
        self.owned.push(record.into());
    }

    /// Converts a change of an object into changes for tenancy.
    fn ask(&mut self, change: &Change, asked: &mut Vec<tenancy::Change>) {
        let Some(key) = change.key() else { return };
        let object = match change {
            Change::Object(ObjectChange::Put(object)) => Some(object),
            _ => None,
        };
        if let Some(claim) = ClaimKey::of(&key) {
            let claimant = match object {
                Some(Object::Route(route)) => Some(Claimant::from(route)),
                Some(Object::ListenerSet(set)) => Some(Claimant::from(set)),
                _ => None,
            };
            asked.push(tenancy::Change::Claimant(claim, claimant));
        }
        match (key.kind, object) {
            (Kind::TenantGateway, Some(Object::TenantGateway(tenant))) => {
                asked.push(tenancy::Change::TenantGateway(
                    key.name.clone(),
                    Some((**tenant).clone()),
                ));
            }
            (Kind::TenantGateway, _) => {
                asked.push(tenancy::Change::TenantGateway(key.name.clone(), None))
            }
            (
                Kind::Namespace,
                Some(Object::Namespace(Namespace {
                    name,
                    labels,
                    annotations,
                    uid,
                })),
            ) => {
                let (labels, annotations, uid) = (labels.clone(), annotations.clone(), uid.clone());
                let namespace = tenancy::Namespace {
                    labels,
                    annotations,
                    uid,
                };
                asked.push(tenancy::Change::Namespace(name.clone(), Some(namespace)));
            }
            (Kind::Namespace, _) => {
                asked.push(tenancy::Change::Namespace(key.name.name.clone(), None))
            }
            (Kind::Secret, object) if self.tenancy.refers_to(&key.name) => {
                let secret = object.and_then(|object| match object {
                    Object::Secret(secret) => ProvidedSecret::of(secret),
                    _ => None,
                });
                asked.push(tenancy::Change::Secret(key.name.clone(), secret));
            }
            (Kind::GatewayClass, object) => {
                let ours = matches!(object, Some(Object::GatewayClass(class)) if class.controller == self.controller);
                asked.push(tenancy::Change::Class(key.name.name.clone(), ours));
            }
            _ => {}
        }
        if self.written == Written::Here
            && let Some(derived) = derivable(&key)
        {
            // An object in a file belongs to the user who wrote the file.
            let there = object.map(|_| Existing::default());
            if there.is_some() {
                self.theirs.insert(key);
            } else {
                self.theirs.remove(&key);
            }
            asked.push(tenancy::Change::Existing(derived, there));
        }
    }

    /// Returns a Secret with its last good certificate, if it has none now that can be served. A
    /// Secret that was deleted meanwhile has no last good certificate.
    fn keep_last_good(&self, secret: Secret, batch: &Batch, now: SystemTime) -> Secret {
        let before = match batch
            .changes
            .get(&ObjectKey::new(Kind::Secret, secret.name.clone()))
        {
            Some(Change::Object(ObjectChange::Put(Object::Secret(before)))) => Some(before),
            Some(_) => None,
            None => self.engine.store().secret(&secret.name).map(Arc::as_ref),
        };
        secret.following(before, now)
    }

    /// Adds the contents of Secrets that TenantGateways begin to refer to, whenever the Secrets
    /// came.
    fn ask_for_secrets(&self, batch: &Batch, asked: &mut Vec<tenancy::Change>) {
        let named = asked.iter().filter_map(|change| match change {
            tenancy::Change::TenantGateway(_, Some(tenant)) => tenancy::secret_of(tenant),
            _ => None,
        });
        let brought = |name: ObjectName| {
            let there = match batch
                .changes
                .get(&ObjectKey::new(Kind::Secret, name.clone()))
            {
                Some(Change::Object(ObjectChange::Put(Object::Secret(secret)))) => {
                    ProvidedSecret::of(secret)
                }
                Some(_) => None,
                None => self
                    .engine
                    .store()
                    .secret(&name)
                    .and_then(|secret| ProvidedSecret::of(secret)),
            };
            tenancy::Change::Secret(name, there)
        };
        let brought: Vec<_> = named.map(brought).collect();
        asked.extend(brought);
    }

    /// Takes in desired objects and labels of namespaces, which nothing writes to a cluster.
    fn take_back(&mut self, decided: &tenancy::Delta, batch: &mut Batch) {
        for (derived, value) in &decided.objects {
            let Some(key) = served(derived) else { continue };
            match value {
                Some(desired) => {
                    batch.put(Change::put(desired.object().expect(
                        "what tenancy makes are valid objects; its tests read every one",
                    )))
                }
                None if self.theirs.contains(&key) => {}
                None => batch.put(Change::delete(key)),
            }
        }
        batch.namespaces.extend(decided.namespaces.keys().cloned());
        for name in std::mem::take(&mut batch.namespaces) {
            batch.put(match self.namespaces.get(&name) {
                Some(namespace) => Change::put(Object::Namespace(self.labelled(namespace))),
                None => Change::delete(ObjectKey::new(Kind::Namespace, ObjectName::new("", name))),
            });
        }
    }

    /// Tells the translation which Secrets an issuer is about to fill.
    fn tell_who_issues(&self, decided: &tenancy::Delta, batch: &mut Batch) {
        let certificates = decided
            .objects
            .keys()
            .filter(|derived| derived.kind == DerivedKind::Certificate);
        for secret in decided
            .wants
            .keys()
            .chain(certificates.map(|derived| &derived.name))
        {
            let certificate = Derived {
                kind: DerivedKind::Certificate,
                name: secret.clone(),
            };
            let by = match self.tenancy.wants().get(secret) {
                Some(want) => Some(Arc::from(want.issuer.to_string())),
                None => self
                    .tenancy
                    .objects()
                    .get(&certificate)
                    .map(|_| Arc::from("cert-manager")),
            };
            batch
                .facts
                .push(Change::Fact(Fact::ExpectedIssuer(secret.clone(), by)));
        }
    }

    /// Returns a namespace with the label that tenancy gives it.
    fn labelled(&self, namespace: &Namespace) -> Namespace {
        let mut namespace = namespace.clone();
        match self.tenancy.patch(&namespace.name) {
            Some(Patch::Set(gateway)) => {
                namespace
                    .labels
                    .insert(GATEWAY_LABEL.to_owned(), gateway.to_string());
            }
            Some(Patch::Strip) => {
                namespace.labels.remove(GATEWAY_LABEL);
            }
            Some(Patch::Leave | Patch::Disown) | None => {}
        }
        namespace
    }

    /// Tells the translation the grants of the affected routes, and the withheld listeners of
    /// ListenerSets.
    fn tell_grants(&mut self, decided: &tenancy::Delta, batch: &mut Batch) {
        for name in std::mem::take(&mut batch.namespaces) {
            batch.put(match self.namespaces.get(&name) {
                Some(namespace) => Change::put(Object::Namespace(namespace.clone())),
                None => Change::delete(ObjectKey::new(Kind::Namespace, ObjectName::new("", name))),
            });
        }
        let mut claims: BTreeSet<ObjectKey> = decided
            .verdicts
            .keys()
            .map(|(claim, _)| claim.object())
            .collect();
        claims.extend(
            batch
                .changes
                .keys()
                .filter(|key| ClaimKey::of(key).is_some())
                .cloned(),
        );
        // A Gateway of ours that is new or deleted changes whether hostnames must be granted.
        let made = decided
            .objects
            .keys()
            .filter(|derived| derived.kind == DerivedKind::Gateway)
            .map(|made| &made.name);
        let there = batch
            .changes
            .keys()
            .filter(|key| key.kind == Kind::Gateway)
            .map(|key| &key.name);
        let concerned: BTreeSet<&ObjectName> =
            made.chain(decided.tenants.keys()).chain(there).collect();
        for tenant in concerned {
            let governs = self.tenancy.governs(tenant);
            let changed = if governs {
                self.governed.insert(tenant.clone())
            } else {
                self.governed.remove(tenant)
            };
            if changed {
                batch
                    .facts
                    .push(Change::Fact(Fact::Governed(tenant.clone(), governs)));
                claims.extend(self.tenancy.claimants_of(tenant).map(ClaimKey::object));
            }
        }
        for key in claims {
            match RouteKey::of(&key) {
                Some(route) => self.grant(route, batch),
                None => self.withhold(key, batch),
            }
        }
    }

    /// Tells the translation the grants of a route.
    fn grant(&self, key: RouteKey, batch: &mut Batch) {
        let grants = match batch.changes.get(&key.object()) {
            Some(Change::Object(ObjectChange::Put(Object::Route(route)))) => self.grants(route),
            Some(_) => RouteGrants::default(),
            None => self
                .engine
                .store()
                .route(&key)
                .map(|route| self.grants(route))
                .unwrap_or_default(),
        };
        batch.facts.push(Change::Fact(Fact::Granted(key, grants)));
    }

    /// Tells the translation the withheld listeners of a ListenerSet.
    fn withhold(&self, key: ObjectKey, batch: &mut Batch) {
        let Some(set) = SetKey::of(&key) else { return };
        let withheld = match batch.changes.get(&key) {
            Some(Change::Object(ObjectChange::Put(Object::ListenerSet(set)))) => self.withheld(set),
            Some(_) => BTreeSet::new(),
            None => self
                .engine
                .store()
                .listener_set(&set)
                .map(|set| self.withheld(set))
                .unwrap_or_default(),
        };
        batch
            .facts
            .push(Change::Fact(Fact::Withheld(set, withheld)));
    }

    /// The grants of a route, one for each parent that it refers to and where hostnames must be
    /// granted.
    fn grants(&self, route: &Route) -> RouteGrants {
        let claim = Claimant::from(route).key;
        let namespace = &route.meta.name.namespace;
        route
            .parents
            .iter()
            .filter_map(|parent| {
                let tenant =
                    tenant_of(parent, namespace).filter(|tenant| self.governed.contains(tenant))?;
                let nothing = HostnameGrant {
                    granted: Vec::new(),
                    sets: Vec::new(),
                    on_gateway: true,
                    refusal: None,
                };
                let grant = self
                    .tenancy
                    .verdict(&claim, &tenant)
                    .map_or(nothing, tenancy::Verdict::grant);
                Some((parent_key(parent, namespace)?, grant))
            })
            .collect()
    }

    /// The listeners of a ListenerSet whose hostnames tenancy does not grant; empty if hostnames
    /// need no grant there.
    fn withheld(&self, set: &ListenerSet) -> BTreeSet<Arc<str>> {
        let Some(tenant) = set
            .parent
            .as_ref()
            .filter(|parent| self.governed.contains(*parent))
        else {
            return BTreeSet::new();
        };
        let name = &set.meta.name;
        let is_overflow = set.kind == SetKind::Stable
            && names::overflow_of(&name.name).is_some_and(|(of, _)| *of == *tenant.name);
        if is_overflow && !self.is_theirs(name) {
            return BTreeSet::new();
        }
        let verdict = self.tenancy.verdict(
            &ClaimKey {
                kind: ClaimKind::ListenerSet(set.kind),
                name: name.clone(),
            },
            tenant,
        );
        let withheld = set
            .listeners
            .iter()
            .filter(|listener| !is_granted(listener, &verdict));
        withheld.map(|listener| listener.name.clone()).collect()
    }

    fn is_theirs(&self, set: &ObjectName) -> bool {
        match self.written {
            Written::Here => self
                .theirs
                .contains(&ObjectKey::new(Kind::ListenerSet, set.clone())),
            // In a cluster a tenant may create an object with such a name.
            Written::ToTheCluster => {
                let derived = Derived {
                    kind: DerivedKind::ListenerSet,
                    name: set.clone(),
                };
                let tenant = self.tenancy.tenant_of(&derived);
                !tenant.is_some_and(|tenant| self.tenancy.is_made(tenant, &derived))
            }
        }
    }
}

fn is_granted(listener: &Listener, verdict: &Option<&tenancy::Verdict>) -> bool {
    let hostname = listener.hostname.as_ref();
    hostname.is_ok_and(|hostname| verdict.is_some_and(|verdict| verdict.granted.contains(hostname)))
}

/// Changes for the translation, one for each object, and the namespaces whose label may have
/// changed.
#[derive(Default)]
struct Batch {
    changes: BTreeMap<ObjectKey, Change>,
    /// Changes of facts.
    facts: Vec<Change>,
    namespaces: BTreeSet<Arc<str>>,
}

impl Batch {
    fn put(&mut self, change: Change) {
        match change.key() {
            Some(key) => {
                self.changes.insert(key, change);
            }
            None => self.facts.push(change),
        }
    }
}

/// The item that a change of the record of ownership is about.
fn recorded(change: &Change) -> Option<&Ownable> {
    match change {
        Change::Fact(Fact::Recorded(what, _)) => Some(what),
        _ => None,
    }
}

/// The key of the object that a derived object becomes in translation.
fn served(derived: &Derived) -> Option<ObjectKey> {
    let kind = match derived.kind {
        DerivedKind::Gateway => Kind::Gateway,
        DerivedKind::ListenerSet => Kind::ListenerSet,
        DerivedKind::HttpRoute => Kind::HTTPRoute,
        DerivedKind::Issuer | DerivedKind::Certificate => return None,
    };
    Some(ObjectKey::new(kind, derived.name.clone()))
}

/// The derived object that an object could be, by its name.
fn derivable(key: &ObjectKey) -> Option<Derived> {
    let kind = match key.kind {
        Kind::Gateway => DerivedKind::Gateway,
        Kind::ListenerSet if names::overflow_of(&key.name.name).is_some() => {
            DerivedKind::ListenerSet
        }
        Kind::HTTPRoute if key.name.name.ends_with(names::REDIRECT) => DerivedKind::HttpRoute,
        _ => return None,
    };
    Some(Derived {
        kind,
        name: key.name.clone(),
    })
}
