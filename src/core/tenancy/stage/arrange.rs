//! The listener of a hostname and its certificate: whether it exists, which namespaces it selects,
//! and its shard.

use std::sync::Arc;

use super::other_data_plane::Selection;
use super::placement::Placement;
use crate::delta::{Derived, DerivedKind};
use crate::rule::claim::{Rank, within};
use crate::rule::host::{Host, HostId};
use crate::rule::names;
use crate::rule::selection::Takes;
use crate::state::children::ChildApexes;
use crate::state::derivations::Derivations;
use crate::state::dirty::Dirty;
use crate::state::hosts::HostState;
use crate::state::places::WaitingFor;
use crate::state::provided_secrets::ProvidedSecrets;
use crate::state::tenants::Tenants;
use crate::{Desired, Settings, Source};
use gatewright_objects::inputs::Listener;
use gatewright_objects::model::ObjectName;
use gatewright_objects::wanted::WantedCertificate;

/// The states that the stage reads and writes.
pub(crate) struct Arranging<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) secrets: &'a ProvidedSecrets,
    pub(crate) children: &'a ChildApexes,
    pub(crate) placement: Placement<'a>,
    pub(crate) derivations: &'a mut Derivations,
}

impl<'a> Arranging<'a> {
    fn tenants(&self) -> &'a Tenants {
        self.placement.tenants
    }

    fn selection(&self) -> Selection<'_> {
        Selection {
            tenants: self.placement.tenants,
            hosts: self.placement.hosts,
            children: self.children,
            derivations: self.derivations,
        }
    }

    /// Places the listener of a hostname in a shard, or removes it.
    pub(crate) fn arrange(&mut self, id: HostId, dirty: &mut Dirty) {
        let held = &self.placement.hosts[id];
        let host = held.host().clone();
        let owner = held.owner().map(|owner| owner.rank.namespace().clone());
        // The owner of a hostname, or of a wildcard over it, excludes losing claimants here.
        let sole_namespace = owner
            .clone()
            .or_else(|| self.placement.hosts.owner_elsewhere(&host));
        let under = owner.as_ref().is_some_and(|owner| {
            self.placement
                .hosts
                .covering(&host)
                .any(|over| over.rank.namespace() != owner)
        });
        self.update_wildcards_over(id, dirty);
        let beside = self.tenants().has_other_data_plane(&host.tenant);
        let selected_namespace = beside.then(|| self.selection().selected_namespace(id));
        let needs_own = self
            .tenants()
            .resolved(&host.tenant)
            .is_some_and(|valid| beside && self.selection().needs_own_listener(id, valid));
        let held = &mut self.placement.hosts[id];
        let stood = (held.shard().is_some(), held.sole_namespace().cloned());
        let contested = under
            || held
                .ranks()
                .any(|rank| Some(rank.namespace()) != sole_namespace.as_ref())
            || owner.is_some() && held.has_intruders();
        let sole_namespace =
            selected_namespace.unwrap_or_else(|| sole_namespace.filter(|_| contested));
        // The owner may change while the hostname stays contested; the selector then changes too.
        let changed = held.contest(contested, sole_namespace.clone());
        // A ListenerSet with a plain-HTTP listener leaves TLS to our listener.
        let mut secured = held
            .bids()
            .iter()
            .filter(|bid| bid.secure && of_sets(&&bid.rank));
        let by_set = secured.any(|bid| Some(bid.rank.namespace()) == owner.as_ref());
        let with_set = owner.is_some() && held.ranks().any(|rank| of_sets(&rank));
        let counted = held.set_with_set(with_set);
        let placed = held.shard().is_some();
        // A hostname on plain HTTP alone has no listener for TLS, unless a wildcard of another
        // namespace would cover it.
        let secure = owner
            .as_ref()
            .is_some_and(|owner| under || held.is_secure(owner));
        let names = held.computed_names();
        dirty
            .verdicts
            .extend(held.bids().iter().map(|bid| bid.claim));
        dirty.readiness.insert(host.tenant.clone());
        let mut wanted = false;
        let mut fixed = false;
        let mut listener = None;
        if let Some(valid) = self.tenants().resolved(&host.tenant) {
            let name = host.hostname.as_str();
            let apex = valid.apex.as_str();
            let per_host = valid.mode.per_host();
            let of_apex = name.strip_prefix("*.").unwrap_or(name) == apex;
            fixed = valid.template.passes_through(&host.hostname) || !per_host && of_apex;
            wanted = !fixed
                && !by_set
                && within(&host.hostname, apex)
                && match (per_host, beside) {
                    (true, _) => secure,
                    (false, true) => needs_own || self.children.contains(&host),
                    (false, false) => contested || self.children.contains(&host),
                };
            if wanted {
                let takes = Takes::of(sole_namespace.as_deref(), !beside);
                listener = Some(Arc::new(valid.template.listener(
                    &names,
                    &host.hostname,
                    takes,
                )));
            }
        }
        match (listener, placed) {
            (Some(listener), false) => self.place(id, listener, dirty),
            (Some(listener), true) => self.placement.renew(id, listener, dirty),
            (None, true) if self.tenants().is_unmanaged(&host.tenant) => {}
            (None, true) => self.placement.take(id, dirty),
            (None, false) if fixed && changed => dirty.shards.insert((host.tenant.clone(), 0)),
            (None, false) => {}
        }
        if !wanted && self.placement.places.any_waits() {
            for what in [WaitingFor::Name(names.listener.clone()), WaitingFor::Room] {
                self.placement.places.stop_waiting(&host, what);
            }
        }
        if counted {
            self.placement.places.count_set(&host.tenant, with_set);
            dirty.shards.insert((host.tenant.clone(), 0));
        }
        self.certify(id, names, dirty);
        if beside && host.hostname.is_wildcard() && stands(&self.placement.hosts[id]) != stood {
            // Hostnames below the wildcard that others own begin or cease to need listeners of
            // their own.
            dirty.hosts.extend(self.placement.hosts.below(&host));
        }
        if owner.is_none() && !dirty.hosts.holds(&id) {
            self.placement.hosts.release(id);
        }
    }

    /// Updates the wildcards over a host about claims of other namespaces on it. With such a claim
    /// only the owner may attach to the wildcard: the host then has a listener of its own.
    fn update_wildcards_over(&mut self, id: HostId, dirty: &mut Dirty) {
        if !self.placement.hosts.any_wild() {
            return;
        }
        let held = &self.placement.hosts[id];
        let hostname = held.host().hostname.clone();
        let intrudes = |over: &HostState| {
            let owner = over.owner().map(|owner| owner.rank.namespace());
            owner.is_some_and(|owner| held.ranks().any(|rank| rank.namespace() != owner))
        };
        let over = self.placement.hosts.over(&held.host().tenant, &hostname);
        let over: Vec<(HostId, bool)> = over
            .map(|wildcard| (wildcard, intrudes(&self.placement.hosts[wildcard])))
            .collect();
        for (wildcard, intrudes) in over {
            if self.placement.hosts[wildcard].set_intruder(&hostname, intrudes) {
                dirty.hosts.insert(wildcard);
            }
        }
    }

    /// Updates the certificate of a host with a listener of its own.
    fn certify(&mut self, id: HostId, names: names::OfHost, dirty: &mut Dirty) {
        let tenants = self.tenants();
        let held = &self.placement.hosts[id];
        let Host { tenant, hostname } = held.host().clone();
        let placed = held.shard().is_some();
        if !placed
            && self
                .placement
                .places
                .holder(&tenant, names.listener)
                .is_some()
        {
            // Another hostname has this listener name, and the certificate is that hostname's.
            return;
        }
        let mut certificate = None;
        let mut want = None;
        if let Some(valid) = self
            .tenants()
            .resolved(&tenant)
            .filter(|valid| placed && valid.mode.per_host())
        {
            let ours = valid.source != Source::CertManager;
            let name = names.certificate.clone();
            match &valid.issuer {
                Some(issuer) if ours => {
                    let secret = ObjectName::new(tenant.namespace.clone(), name);
                    want = Some(WantedCertificate {
                        secret,
                        names: vec![hostname],
                        issuer: issuer.clone(),
                    });
                }
                _ => {
                    let key = self
                        .secrets
                        .key_in(ObjectName::new(tenant.namespace.clone(), name.clone()));
                    certificate = Some(Desired::certificate(
                        &valid.template.owner,
                        name,
                        hostname,
                        key,
                    ));
                }
            }
        }
        self.derivations.want(
            ObjectName::new(tenant.namespace.clone(), names.certificate.clone()),
            want,
            dirty,
        );
        self.derivations.emit(
            tenants,
            &tenant,
            (DerivedKind::Certificate, names.certificate),
            certificate,
            dirty,
        );
    }

    fn place(&mut self, id: HostId, listener: Arc<Listener>, dirty: &mut Dirty) {
        let host = self.placement.hosts[id].host().clone();
        let tenant = &host.tenant;
        let name = listener.name.clone();
        let places = &mut *self.placement.places;
        if places.holder(tenant, name.clone()).is_some() {
            return places.wait(host, WaitingFor::Name(name));
        }
        places.refresh_room(&(tenant.clone(), 0), self.placement.tenants);
        let free = places.free(tenant);
        let last = places.last_of(tenant);
        let mut next = last.map_or(1, |number| number + 1)..;
        let next = next
            .find(|number| !self.is_taken(tenant, *number))
            .expect("names do not end");
        let shard = match free {
            Some(shard) => shard,
            None if self.settings.listener_sets => next,
            None => return self.placement.places.wait(host, WaitingFor::Room),
        };
        self.placement.put(id, name, Some(listener), shard);
        dirty.shards.insert((tenant.clone(), shard));
        if shard >= next {
            // The Gateway must admit its first ListenerSet.
            dirty.shards.insert((tenant.clone(), 0));
        }
        self.placement.touch_below(&host, dirty);
    }

    /// True if an object that is not ours has the name of an overflow ListenerSet.
    fn is_taken(&self, tenant: &ObjectName, number: usize) -> bool {
        let name = ObjectName::new(
            tenant.namespace.clone(),
            names::overflow(&tenant.name, number),
        );
        let there = self.derivations.existing(&Derived {
            kind: DerivedKind::ListenerSet,
            name,
        });
        there.is_some_and(|there| !self.tenants().has(there, tenant))
    }
}

fn of_sets(rank: &&Rank) -> bool {
    rank.kind.is_set()
}

fn stands(held: &HostState) -> (bool, Option<Arc<str>>) {
    (held.shard().is_some(), held.sole_namespace().cloned())
}
