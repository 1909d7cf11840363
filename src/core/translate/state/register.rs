//! Claims of namespaces, and the record that decides between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::granted_names::GrantedNames;
use crate::rule::ownership::{
    By, Claimant, ListenersOf, Ownable, OwnerRecord, Recording, well_known,
};
use crate::rule::protocol::Family;
use crate::rule::settings::Settings;
use gatewright_objects::inputs::ObjectKey;
use gatewright_objects::model::{Hostname, TransportPort};
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::record_quota::{RecordClaim, RecordQuota};
use gatewright_objects::reservations::Reservations;

/// True if the owner of a wildcard, or the platform, lets a claimant have a name below it: the
/// claimant, the name, the wildcard, its owner.
pub(crate) type Consents<'a> = dyn Fn(&Claimant, &Ownable, &Hostname, &Arc<str>) -> bool + 'a;

/// All claims, and the record.
pub(crate) struct Register {
    recording: Recording,
    claims: MultiMap<Ownable, Claimant>,
    records: BTreeMap<Ownable, OwnerRecord>,
    /// Proposals, if another process writes the record.
    proposed: BTreeMap<Ownable, Option<OwnerRecord>>,
    /// Claims of namespaces on items that others own.
    denied: MultiMap<Arc<str>, Ownable>,
    /// Reservations for namespaces that released an item.
    reserved: Reservations<Ownable>,
    /// The hostnames that the platform granted.
    granted: GrantedNames,
    /// The hostnames that each namespace claims, of which it may own as many as fit its quota.
    quota: RecordQuota<Ownable>,
    latest: u64,
}

impl Register {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            recording: settings.recording,
            claims: MultiMap::default(),
            records: BTreeMap::new(),
            proposed: BTreeMap::new(),
            denied: MultiMap::default(),
            reserved: Reservations::new(settings.hold),
            granted: GrantedNames::default(),
            quota: RecordQuota::new(settings.limits.namespace.record_bytes()),
            latest: 0,
        }
    }

    /// The writer of the record.
    pub(crate) fn recording(&self) -> Recording {
        self.recording
    }

    /// The protocol family of a port of the shared fleet, if it is known.
    pub(crate) fn family(&self, port: TransportPort) -> Option<Family> {
        well_known(port).or_else(|| {
            self.owner(&Ownable::Port(port))
                .and_then(|owner| owner.protocol)
        })
    }

    /// The hostnames that the platform granted.
    pub(crate) fn granted(&self) -> &GrantedNames {
        &self.granted
    }

    /// The same, for changes.
    pub(crate) fn granted_mut(&mut self) -> &mut GrantedNames {
        &mut self.granted
    }

    /// The recorded owner of an item.
    pub(crate) fn owner(&self, what: &Ownable) -> Option<&OwnerRecord> {
        self.records.get(what)
    }

    /// The owner of an item, recorded or proposed.
    pub(crate) fn decided(&self, what: &Ownable) -> Option<&OwnerRecord> {
        match self.proposed.get(what) {
            Some(proposed) => proposed.as_ref(),
            None => self.records.get(what),
        }
    }

    /// The record.
    pub(crate) fn records(&self) -> &BTreeMap<Ownable, OwnerRecord> {
        &self.records
    }

    /// Proposals for the keeper of the record.
    pub(crate) fn proposed(&self) -> &BTreeMap<Ownable, Option<OwnerRecord>> {
        &self.proposed
    }

    /// The items that a namespace claims and others own.
    pub(crate) fn denied<'a>(
        &'a self,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = &'a Ownable> + use<'a> {
        self.denied.of(namespace)
    }

    /// Adds or removes a claim.
    pub(crate) fn claim(&mut self, what: &Ownable, claimant: &Claimant, there: bool) {
        self.claims.set(what, claimant, there);
        if !there
            && !self
                .claims
                .of(what)
                .any(|other| other.namespace == claimant.namespace)
        {
            self.denied.remove(&claimant.namespace, what);
        }
        self.count(what, &claimant.namespace);
    }

    /// Counts an item for a namespace as it claims it and owns it now.
    fn count(&mut self, what: &Ownable, namespace: &Arc<str>) {
        let bytes = what.record_bytes(namespace);
        if bytes == 0 {
            return;
        }
        let mut claims = self.claims.of(what);
        let first = claims.find(|claimant| claimant.namespace == *namespace);
        let own = self.records.get(what);
        let since = own
            .filter(|owner| owner.namespace == *namespace)
            .map(|owner| owner.since);
        let claim = first.map(|claimant| RecordClaim {
            bytes,
            since,
            created: claimant.created,
        });
        self.quota.set(what, namespace, claim);
    }

    /// True if a namespace claims an item through a Gateway of another namespace.
    pub(crate) fn reaches(&self, what: &Ownable, namespace: &str, through: &str) -> bool {
        self.claims
            .of(what)
            .any(|claimant| *claimant.namespace == *namespace && *claimant.through == *through)
    }

    /// Applies a change of the record. Returns whether the owner changed.
    pub(crate) fn take(&mut self, what: Ownable, owner: Option<OwnerRecord>) -> bool {
        let before = self.records.get(&what).cloned();
        self.set(what, owner.clone());
        !same_owner(before.as_ref(), owner.as_ref())
    }

    fn set(&mut self, what: Ownable, owner: Option<OwnerRecord>) {
        let before = match &owner {
            Some(owner) => {
                self.latest = self.latest.max(owner.since);
                self.records.insert(what.clone(), owner.clone())
            }
            None => self.records.remove(&what),
        };
        for owner in before.iter().chain(&owner) {
            self.count(&what, &owner.namespace);
        }
        if let Some(OwnerRecord {
            namespace,
            released: Some(released),
            ..
        }) = before
        {
            self.reserved.remove(&what, &namespace, released);
        }
        if let Some(OwnerRecord {
            namespace,
            released: Some(released),
            ..
        }) = owner
        {
            self.reserved.add(&what, &namespace, released);
        }
    }

    /// Sets how many bytes of the record a namespace may have.
    pub(crate) fn allow(&mut self, namespace: &Arc<str>, bytes: u64) {
        self.quota.allow(namespace, bytes);
    }

    /// The bytes of the record that a namespace claims within its quota.
    pub(crate) fn used_by(&self, namespace: &Arc<str>) -> u64 {
        self.quota.used(namespace)
    }

    /// The objects of a namespace that claim hostnames, with the bytes of each.
    pub(crate) fn costs(&self, namespace: &str) -> impl Iterator<Item = (ObjectKey, u64)> {
        let items = self.claims.keys();
        let claims = items.flat_map(|what| self.claims.of(what).map(move |by| (what, by)));
        let own = claims.filter(move |(_, claimant)| *claimant.namespace == *namespace);
        own.filter_map(|(what, claimant)| {
            let object = match &claimant.by {
                By::Listener(listener) => listener.parent.object(),
                By::Route(_, route) => route.object(),
                By::Frontend(_) => return None,
            };
            Some((object, what.record_bytes(&claimant.namespace)))
        })
    }

    /// Why a namespace may not own an item that it claims and nobody else owns: it is beyond its
    /// quota of the record.
    pub(crate) fn beyond_quota(&self, what: &Ownable, namespace: &Arc<str>) -> Option<String> {
        let owner = self.records.get(what);
        let is_of_another = owner.is_some_and(|owner| owner.namespace != *namespace);
        (!is_of_another && !self.quota.has(what, namespace)).then(|| self.quota.exceeded(namespace))
    }

    /// The items for which a quota decides otherwise than when this was last asked.
    pub(crate) fn take_turned(&mut self) -> BTreeSet<Ownable> {
        self.quota.take_turned()
    }

    /// The items whose reservation has ended.
    pub(crate) fn expired(&self, now: u64) -> impl Iterator<Item = &Ownable> {
        self.reserved.expired(now)
    }

    /// The end of the next reservation, in seconds since the epoch.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        self.reserved.next_expiry()
    }

    /// The sort key of items whose owners are decided together: their first claim.
    pub(crate) fn order(&self, what: &Ownable) -> (i64, Arc<str>) {
        match self.claims.of(what).next() {
            Some(first) => (first.created, first.namespace.clone()),
            None => (i64::MAX, Arc::from("")),
        }
    }

    /// The claimed hostnames below a wildcard, or below the catch-all.
    pub(crate) fn below<'a>(&'a self, wide: &'a Ownable) -> impl Iterator<Item = &'a Ownable> {
        let all = wide
            .with(Hostname::any())
            .into_iter()
            .flat_map(|first| self.claims.from(first));
        all.map(|(what, _)| what)
            .take_while(|what| what.is_beside(wide))
            .filter(|what| is_below(wide, what))
    }

    /// The claimed items whose hostname is covered by a granted one.
    pub(crate) fn claimed_within<'a>(
        &'a self,
        name: &'a Hostname,
    ) -> impl Iterator<Item = &'a Ownable> {
        self.claims
            .keys()
            .filter(move |what| what.hostname().is_some_and(|claimed| name.covers(claimed)))
    }

    /// The owned and granted hostnames below a wildcard, or below the catch-all.
    pub(crate) fn kept_below<'a>(
        &'a self,
        wide: &'a Ownable,
    ) -> impl Iterator<Item = &'a Hostname> {
        let granted = wide
            .hostname()
            .into_iter()
            .flat_map(|wide| self.granted.below(wide));
        self.owned_below(wide).chain(granted)
    }

    fn owned_below<'a>(&'a self, wide: &'a Ownable) -> impl Iterator<Item = &'a Hostname> {
        let all = wide
            .with(Hostname::any())
            .into_iter()
            .flat_map(|first| self.records.range(first..));
        let all = all
            .map(|(what, _)| what)
            .take_while(|what| what.is_beside(wide));
        all.filter(|what| is_below(wide, what))
            .filter_map(Ownable::hostname)
    }

    /// True if an admitted namespace owns a wildcard at some listeners, or the catch-all.
    pub(crate) fn has_wide(&self, at: &Arc<ListenersOf>) -> bool {
        // These sort before all exact hostnames.
        let mut records = self
            .records
            .range(Ownable::Admitted(at.clone(), Hostname::any())..);
        let first = records.next().map(|(what, _)| what);
        first.is_some_and(|what| matches!(what, Ownable::Admitted(other, name) if other == at && !name.is_exact()))
    }

    /// The claimants of an item.
    pub(crate) fn claimants<'a>(
        &'a self,
        what: &Ownable,
    ) -> impl Iterator<Item = &'a Claimant> + use<'a> {
        self.claims.of(what)
    }

    /// Decides the owner of an item.
    pub(crate) fn decide(
        &self,
        what: &Ownable,
        now: u64,
        consents: &Consents<'_>,
    ) -> Option<OwnerRecord> {
        let held = self.records.get(what);
        if let Some(held) = held {
            let mut own = self.claims.of(what).filter(|claimant| match what {
                // Another namespace may have claimed it first: a port stays as long as its protocol
                // is used.
                Ownable::Port(_) if claimant.protocol.has_hostnames() => {
                    Some(claimant.protocol) == held.protocol
                }
                Ownable::Port(_) => {
                    Some(claimant.protocol) == held.protocol && claimant.namespace == held.namespace
                }
                _ => {
                    claimant.namespace == held.namespace
                        && self.quota.has(what, &held.namespace)
                        && !self.is_withheld_wide(what, [&claimant.namespace, &claimant.through])
                }
            });
            if own.next().is_some() {
                return Some(OwnerRecord {
                    released: None,
                    ..held.clone()
                });
            }
            let is_withheld = self.is_withheld_wide(what, [&held.namespace, &held.namespace])
                || !self.quota.has(what, &held.namespace);
            let is_reserved = !is_withheld && (what.hostname().is_some() || held.has_whole_port());
            let released = is_reserved
                .then(|| self.reserved.since(&held.namespace, held.released, now))
                .flatten();
            if released.is_some() {
                return Some(OwnerRecord {
                    released,
                    ..held.clone()
                });
            }
        }
        let mut candidates = self.claims.of(what);
        let first = match what {
            Ownable::Hostname(_) | Ownable::Admitted(..) => {
                candidates.find(|claimant| self.may_own(claimant, what, consents))
            }
            Ownable::Socket(..) | Ownable::Secret(_) => candidates.next(),
            // A parent whose listeners contradict each other does not decide the protocol.
            Ownable::Port(_) => candidates.find(|claimant| {
                let mut others = self
                    .claims
                    .of(what)
                    .filter(|other| parent(other) == parent(claimant));
                others.all(|other| other.protocol == claimant.protocol)
            }),
        };
        first.map(|first| OwnerRecord {
            namespace: first.namespace.clone(),
            since: self.latest + 1,
            protocol: matches!(what, Ownable::Port(_)).then_some(first.protocol),
            released: None,
        })
    }

    /// True if no other namespace owns a wildcard over a name, or its owner consents.
    fn may_own(&self, claimant: &Claimant, what: &Ownable, consents: &Consents<'_>) -> bool {
        if self.is_withheld(what, [&claimant.namespace, &claimant.through])
            || !self.quota.has(what, &claimant.namespace)
        {
            return false;
        }
        // The most specific wildcard decides: its owner owns the names below it.
        let over = what
            .hostname()
            .into_iter()
            .flat_map(Hostname::covering)
            .find_map(|wide| {
                let over = what.with(wide.clone())?;
                Some((wide, self.decided(&over)?.namespace.clone()))
            });
        over.is_none_or(|(wide, owner)| {
            owner == claimant.namespace
                || is_public(&wide)
                || consents(claimant, what, &wide, &owner)
        })
    }

    /// True if the platform granted a hostname to others than a claimant and the owner of the
    /// Gateway there.
    fn is_withheld(&self, what: &Ownable, namespaces: [&str; 2]) -> bool {
        what.hostname()
            .is_some_and(|name| self.granted.withholds(name, namespaces))
    }

    /// The same of a wildcard: a namespace keeps the names that it had before a grant, and no
    /// wildcard.
    fn is_withheld_wide(&self, what: &Ownable, namespaces: [&str; 2]) -> bool {
        what.hostname().is_some_and(Hostname::is_wildcard) && self.is_withheld(what, namespaces)
    }

    /// Records the new owner of an item, or proposes it. Returns the change for the writer of the
    /// record, if any.
    pub(crate) fn record(
        &mut self,
        what: &Ownable,
        owner: Option<OwnerRecord>,
        now_ms: u64,
    ) -> Option<Option<OwnerRecord>> {
        let namespaces: BTreeSet<Arc<str>> = self
            .claims
            .of(what)
            .map(|claimant| claimant.namespace.clone())
            .collect();
        for namespace in namespaces {
            let denied = owner
                .as_ref()
                .is_none_or(|owner| owner.namespace != namespace);
            self.denied.set(&namespace, what, denied);
        }
        let held = self.records.get(what);
        let same = same_owner(held, owner.as_ref())
            && held.and_then(|held| held.released)
                == owner.as_ref().and_then(|owner| owner.released);
        if same {
            self.proposed.remove(what);
            return None;
        }
        let anew = !same_owner(held, owner.as_ref());
        let owner = owner.map(|owner| {
            let since = if anew {
                now_ms.max(self.latest + 1)
            } else {
                owner.since
            };
            OwnerRecord { since, ..owner }
        });
        match self.recording {
            Recording::ThisProcess => self.set(what.clone(), owner.clone()),
            Recording::OtherProcess => {
                let there = self.proposed.get(what);
                let known = there.is_some_and(|there| {
                    same_owner(there.as_ref(), owner.as_ref())
                        && there.as_ref().and_then(|o| o.released).is_some()
                            == owner.as_ref().and_then(|o| o.released).is_some()
                });
                if known {
                    return None;
                }
                self.proposed.insert(what.clone(), owner.clone());
            }
        }
        Some(owner)
    }

    /// True if a namespace is the proposed owner of an item.
    pub(crate) fn is_about_to_own(&self, what: &Ownable, namespace: &str) -> bool {
        let proposed = self.proposed.get(what).and_then(Option::as_ref);
        proposed.is_some_and(|owner| *owner.namespace == *namespace)
    }
}

fn parent(claimant: &Claimant) -> Option<gatewright_objects::inputs::ParentKey> {
    match &claimant.by {
        By::Listener(listener) => Some(listener.parent.clone()),
        By::Frontend(_) | By::Route(..) => None,
    }
}

/// True if an item is a hostname below a wildcard, or below the catch-all, among the same
/// namespaces.
fn is_below(wide: &Ownable, what: &Ownable) -> bool {
    let names = wide.hostname().zip(what.hostname());
    names.is_some_and(|(wide, name)| name != wide && wide.covers(name))
}

/// True if a wildcard covers all domains below a public suffix, such as `*.co.uk`: its owner does
/// not own these domains.
fn is_public(wide: &Hostname) -> bool {
    wide.as_str()
        .strip_prefix("*.")
        .is_some_and(public_suffix::is_public_suffix)
}

fn same_owner(a: Option<&OwnerRecord>, b: Option<&OwnerRecord>) -> bool {
    a.map(seen) == b.map(seen)
}

fn seen(owner: &OwnerRecord) -> (Arc<str>, Option<Family>) {
    (owner.namespace.clone(), owner.protocol)
}
