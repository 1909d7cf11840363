//! The engine: keeps what has been decided, and redoes only what a change touches.
//!
//! ```text
//! TenantGateway, namespace, claimant → bids → owner of each name → place in a shard → shard, certificate, verdict
//! ```
//!
//! The place of a host (Gateway, or one of its ListenerSets) is remembered, and after a restart read back from the objects
//! that are there: a host that carries traffic is not moved.
//!
//! A stage shows what it reads and writes in its signature, or in the fields of the type that it is a method of. Each state has
//! private fields, and methods that keep what belongs together in line.

use std::cmp::Ordering;

use super::Settings;
use super::children::ChildApexes;
use super::claims::Claims;
use super::delta::{Change, Delta};
use super::derivations::Derivations;
use super::dirty::Dirty;
use super::hosts::Hosts;
use super::namespaces::Namespaces;
use super::places::Places;
use super::provided_secrets::ProvidedSecrets;
use super::record::Records;
use super::tenants::Tenants;
use crate::counters::counters;

mod intake;
mod queries;
mod stages;

counters! {
    /// How much work was done since the engine was made.
    pub struct Counters {
        /// TenantGateways evaluated.
        tenants,
        /// Claimants admitted or refused.
        claimants,
        /// Hostnames whose owner was decided.
        hosts,
        /// Listeners of hostnames given a place, or looked at.
        places,
        /// Gateways and ListenerSets rendered.
        shards,
        /// Verdicts made.
        verdicts,
    }
}

/// Keeps what has been decided.
pub struct Tenancy {
    settings: Settings,
    /// TenantGateways: as given, as carried out, and how ready they are.
    tenants: Tenants,
    namespaces: Namespaces,
    /// Secrets that TenantGateways are to be served with, and whose keys are ours.
    secrets: ProvidedSecrets,
    claims: Claims,
    /// Every hostname that is asked for, or has a listener.
    hosts: Hosts,
    /// Claimants of each hostname, in the order in which they came.
    records: Records,
    /// Which child apexes are on wildcard certificates.
    children: ChildApexes,
    /// Shards, and the listeners of hostnames in them.
    places: Places,
    /// Derived objects.
    derivations: Derivations,
    counters: Counters,
}

impl Tenancy {
    /// An engine that has seen nothing.
    pub fn new(settings: Settings) -> Self {
        Self {
            records: Records::new(&settings),
            settings,
            tenants: Tenants::default(),
            namespaces: Namespaces::default(),
            secrets: ProvidedSecrets::default(),
            claims: Claims::default(),
            hosts: Hosts::default(),
            children: ChildApexes::default(),
            places: Places::default(),
            derivations: Derivations::default(),
            counters: Counters::default(),
        }
    }

    /// Takes in changes and says what they lead to. After a restart everything there is comes in one call.
    ///
    /// This is the list of stages. What each reads and writes is in `engine/stages.rs`.
    pub fn apply(&mut self, changes: Vec<Change>) -> Delta {
        let mut dirty = Dirty::default();
        self.records.begin();
        // Where hosts stand can only be read back once the TenantGateways are known.
        changes.into_iter().for_each(|change| self.take_in(change, &mut dirty));
        for (key, existing) in dirty.take_existing() {
            self.observing().observe(key, existing, &mut dirty);
        }
        while let Some(tenant) = dirty.tenants.pop() {
            self.counters.tenants += 1;
            self.evaluation().evaluate(&tenant, &mut dirty);
        }
        while let Some(namespace) = dirty.namespaces.pop() {
            self.labelling().label(&namespace, &mut dirty);
        }
        while let Some(tenant) = dirty.checked.pop() {
            self.carrying_out().carry_out(&tenant, &mut dirty);
        }
        while let Some(claim) = dirty.claims.pop(|_, _| Ordering::Equal) {
            self.counters.claimants += 1;
            self.admitting().admit(claim, &mut dirty);
        }
        while let Some(name) = dirty.names.pop() {
            self.counters.hosts += 1;
            self.settling().settle(&name, &mut dirty);
        }
        // In the order of their names: it is what decides which of several new ones gets the last place.
        while let Some(host) = dirty.hosts.pop(|a, b| self.hosts[*a].host().cmp(self.hosts[*b].host())) {
            self.counters.places += 1;
            self.arranging().arrange(host, &mut dirty);
        }
        while let Some(shard) = dirty.shards.pop() {
            self.counters.shards += 1;
            self.rendering().compile(&shard, &mut dirty);
        }
        while let Some(claim) = dirty.verdicts.pop(|_, _| Ordering::Equal) {
            self.counters.verdicts += 1;
            self.judging().judge(claim, &mut dirty);
        }
        while let Some(tenant) = dirty.readiness.pop() {
            self.reporting().report(&tenant, &mut dirty);
        }
        dirty.done()
    }
}
