//! The engine: keeps the state of tenancy, and recomputes only what a change affects.
//!
//! ```text
//! TenantGateway, namespace, claimant → bids → owner of each name → place in a shard → shard, certificate, verdict
//! ```
//!
//! The place of a host (Gateway, or one of its ListenerSets) is kept, and after a restart read back
//! from the existing objects: a host with traffic is not moved.
//!
//! The signature of a stage, or the fields of its type, show the states that it reads and writes.
//! Each state has private fields, and methods that keep it consistent.

use std::cmp::Ordering;

use super::Settings;
use super::delta::{Change, Delta};
use super::state::children::ChildApexes;
use super::state::claims::Claims;
use super::state::derivations::Derivations;
use super::state::dirty::Dirty;
use super::state::hosts::Hosts;
use super::state::namespaces::Namespaces;
use super::state::places::Places;
use super::state::provided_secrets::ProvidedSecrets;
use super::state::record::Records;
use super::state::tenants::Tenants;
use gatewright_objects::counters;

mod intake;
mod queries;
mod stages;

counters! {
    /// The amount of work since the engine was created.
    pub struct Counters {
        /// TenantGateways evaluated.
        tenants,
        /// Claimants admitted or refused.
        claimants,
        /// Hostnames whose owner was decided.
        hosts,
        /// Listeners of hostnames evaluated.
        places,
        /// Gateways and ListenerSets rendered.
        shards,
        /// Verdicts computed.
        verdicts,
    }
}

/// The state of tenancy.
pub struct Tenancy {
    settings: Settings,
    /// TenantGateways: as given, as carried out, and their readiness.
    tenants: Tenants,
    namespaces: Namespaces,
    /// Secrets that TenantGateways refer to, and Secrets with keys of ours.
    secrets: ProvidedSecrets,
    claims: Claims,
    /// All hostnames with bids or a listener.
    hosts: Hosts,
    /// The record of the first claimants of each hostname.
    records: Records,
    /// The child apexes of wildcard certificates.
    children: ChildApexes,
    /// Shards, and the listeners of hostnames in them.
    places: Places,
    /// Derived objects.
    derivations: Derivations,
    counters: Counters,
}

impl Tenancy {
    /// An engine without any objects.
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

    /// Applies changes and returns the result. After a restart all existing objects come in one
    /// call.
    ///
    /// This is the list of stages. `engine/stages.rs` has what each reads and writes.
    pub fn apply(&mut self, changes: Vec<Change>) -> Delta {
        let mut dirty = Dirty::default();
        self.records.begin();
        // Places of hosts can be read back only once the TenantGateways are known.
        changes
            .into_iter()
            .for_each(|change| self.take_in(change, &mut dirty));
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
        while let Some(tenant) = dirty.reconciled.pop() {
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
        // In the order of their names, which decides which of several new hosts gets the last
        // place.
        while let Some(host) = dirty
            .hosts
            .pop(|a, b| self.hosts[*a].host().cmp(self.hosts[*b].host()))
        {
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
