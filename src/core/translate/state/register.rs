//! Claims of namespaces, and the record that decides between them.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use super::granted_names::GrantedNames;
use super::item_claims::ItemClaims;
use crate::rule::ownership::{By, Claimant, well_known};
use crate::rule::settings::Settings;
use gatewright_objects::inputs::ObjectKey;
use gatewright_objects::model::{Family, Hostname, TransportPort};
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::ownership::{Ledger, ListenersOf, Ownable, OwnerRecord, is_same_owner};

/// True if the owner of a wildcard, or the platform, lets a claimant have a name below it: the
/// claimant, the name, the wildcard, its owner.
pub(crate) type Consents<'a> = dyn Fn(&Claimant, &Ownable, &Hostname, &Arc<str>) -> bool + 'a;

/// What decides claims beside the record.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) consents: &'a Consents<'a>,
    /// True if the claim of a listener is in vain, since another one precedes.
    pub(crate) is_in_vain: &'a dyn Fn(&Claimant, &Ownable) -> bool,
}

/// All claims, and the record, which is read as [`Ledger`] and changed here alone.
pub(crate) struct Register {
    ledger: Ledger,
    claims: ItemClaims,
    /// Claims of namespaces on items that others own.
    denied: MultiMap<Arc<str>, Ownable>,
    /// The hostnames that the platform granted.
    granted: GrantedNames,
}

impl Deref for Register {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        &self.ledger
    }
}

impl Register {
    pub(crate) fn new(settings: &Settings) -> Self {
        let bytes = settings.limits.namespace.record_bytes();
        Self {
            ledger: Ledger::new(settings.recording, settings.hold, bytes),
            claims: ItemClaims::default(),
            denied: MultiMap::default(),
            granted: GrantedNames::default(),
        }
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

    /// The items that a namespace claims and others own.
    pub(crate) fn denied<'a>(
        &'a self,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = &'a Ownable> + use<'a> {
        self.denied.of(namespace)
    }

    /// Adds or removes a claim.
    pub(crate) fn claim(&mut self, what: &Ownable, claimant: &Claimant, there: bool) {
        let namespace = &claimant.namespace;
        self.claims.set(what, claimant, there);
        let created = self.claims.first_of(what, namespace);
        let is_denied = created.is_some() && self.decided_namespace(what) != Some(namespace);
        self.denied.set(namespace, what, is_denied);
        self.ledger.count(what, namespace, created);
    }

    /// The namespace of the owner of an item, recorded or proposed.
    fn decided_namespace(&self, what: &Ownable) -> Option<&Arc<str>> {
        Some(&self.ledger.decided(what)?.namespace)
    }

    /// Changes the ledger, and with it to whom an item is denied.
    fn redecide<T>(&mut self, what: &Ownable, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let before = self.decided_namespace(what).cloned();
        let changed = change(&mut self.ledger);
        let after = self.decided_namespace(what).cloned();
        if before != after {
            if let Some(before) = before
                && self.claims.first_of(what, &before).is_some()
            {
                self.denied.insert(before, what.clone());
            }
            if let Some(after) = after {
                self.denied.remove(&after, what);
            }
        }
        changed
    }

    /// True if a namespace claims an item through a Gateway of another namespace.
    pub(crate) fn reaches(&self, what: &Ownable, namespace: &str, through: &str) -> bool {
        self.claims
            .of(what)
            .any(|claimant| *claimant.namespace == *namespace && *claimant.through == *through)
    }

    /// Applies a change of the record. Returns whether the owner changed.
    pub(crate) fn take(&mut self, what: &Ownable, owner: Option<OwnerRecord>) -> bool {
        let before = self.redecide(what, |ledger| ledger.take(what, owner));
        !is_same_owner(before.as_ref(), self.ledger.owner(what))
    }

    /// Sets how many bytes of the record a namespace may have.
    pub(crate) fn allow(&mut self, namespace: &Arc<str>, bytes: u64) {
        self.ledger.allow(namespace, bytes);
    }

    /// The items for which a quota decides otherwise than when this was last asked.
    pub(crate) fn take_turned(&mut self) -> BTreeSet<Ownable> {
        self.ledger.take_turned()
    }

    /// The objects of a namespace that claim hostnames, with the bytes of each.
    pub(crate) fn costs(&self, namespace: &str) -> impl Iterator<Item = (ObjectKey, u64)> {
        let items = self.claims.items();
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
    pub(crate) fn exceeds_quota(&self, what: &Ownable, namespace: &Arc<str>) -> Option<String> {
        let owner = self.owner(what);
        let is_of_another = owner.is_some_and(|owner| owner.namespace != *namespace);
        self.beyond_quota(what, namespace)
            .filter(|_| !is_of_another)
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
            .flat_map(|first| self.claims.items_from(first));
        all.take_while(|what| what.is_beside(wide))
            .filter(|what| what.is_below(wide))
    }

    /// The claimed items whose hostname is covered by a granted one.
    pub(crate) fn claimed_within<'a>(
        &'a self,
        name: &'a Hostname,
    ) -> impl Iterator<Item = &'a Ownable> {
        self.claims
            .items()
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

    /// True if an admitted namespace owns a wildcard at some listeners, or the catch-all.
    pub(crate) fn has_wide(&self, at: &Arc<ListenersOf>) -> bool {
        // These sort before all exact hostnames.
        let mut records = self
            .records()
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
    pub(crate) fn decide(&self, what: &Ownable, now: u64, rules: Rules<'_>) -> Option<OwnerRecord> {
        if let Some(held) = self.owner(what) {
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
                        && !(rules.is_in_vain)(claimant, what)
                        && self.is_within_quota(what, &held.namespace)
                        && !self.is_withheld_wide(what, [&claimant.namespace, &claimant.through])
                }
            });
            if own.next().is_some() {
                return Some(OwnerRecord {
                    released: None,
                    ..held.clone()
                });
            }
            let mut own = self.claims.of(what);
            let is_withheld = self.is_withheld_wide(what, [&held.namespace, &held.namespace])
                || own.any(|claimant| {
                    claimant.namespace == held.namespace && (rules.is_in_vain)(claimant, what)
                })
                || !self.is_within_quota(what, &held.namespace);
            let is_reserved = !is_withheld && (what.hostname().is_some() || held.has_whole_port());
            let reserved = self.reservation(what, now).filter(|_| is_reserved);
            if reserved.is_some() {
                return reserved;
            }
        }
        let mut candidates = self.claims.of(what);
        let first = match what {
            Ownable::Hostname(_) | Ownable::Admitted(..) => candidates.find(|claimant| {
                !(rules.is_in_vain)(claimant, what) && self.may_own(claimant, what, rules.consents)
            }),
            Ownable::Socket(..) | Ownable::Secret(_) | Ownable::Tenant(_) => candidates.next(),
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
            protocol: matches!(what, Ownable::Port(_)).then_some(first.protocol),
            ..OwnerRecord::new(first.namespace.clone())
        })
    }

    /// True if no other namespace owns a wildcard over a name, or its owner consents.
    fn may_own(&self, claimant: &Claimant, what: &Ownable, consents: &Consents<'_>) -> bool {
        if self.is_withheld(what, [&claimant.namespace, &claimant.through])
            || self.is_over_names_of_owner(claimant, what)
            || !self.is_within_quota(what, &claimant.namespace)
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

    /// True if an admitted namespace claims a wildcard by a listener, which would take names that
    /// the Gateway's own namespace has first.
    fn is_over_names_of_owner(&self, claimant: &Claimant, what: &Ownable) -> bool {
        let (Ownable::Admitted(at, name), By::Listener(_)) = (what, &claimant.by) else {
            return false;
        };
        name.is_wildcard()
            && claimant.namespace != at.namespace
            && self.owned_below(what).any(|name| {
                let owner = self.owner(&Ownable::Admitted(at.clone(), name.clone()));
                owner.is_some_and(|owner| owner.namespace == at.namespace)
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
        let start = self.ledger.next_start(now_ms);
        self.redecide(what, |ledger| ledger.record(what, owner, start))
    }
}

fn parent(claimant: &Claimant) -> Option<gatewright_objects::inputs::ParentKey> {
    match &claimant.by {
        By::Listener(listener) => Some(listener.parent.clone()),
        By::Frontend(_) | By::Route(..) => None,
    }
}

/// True if a wildcard covers all domains below a public suffix, such as `*.co.uk`: its owner does
/// not own these domains.
fn is_public(wide: &Hostname) -> bool {
    wide.as_str()
        .strip_prefix("*.")
        .is_some_and(public_suffix::is_public_suffix)
}
