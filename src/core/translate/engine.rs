//! The engine: keeps the state of the translation, and recomputes only what a change affects.
//!
//! A change marks the items that it affects as dirty; dirty items are recomputed stage by stage,
//! each by a pure function, and an item whose outcome is unchanged marks nothing further:
//!
//! ```text
//! object → parents → attachments → owners → claims on ports → resolved rules → units (frontend, hostname) → resources
//!                                                                                          └──────→ statuses
//! ```
//!
//! The signature of a stage, or the fields of its type, show the states that it reads and writes.
//! Each state has private fields, and methods that keep it consistent.

use std::time::{SystemTime, UNIX_EPOCH};

use super::counters::Counters;
use super::delta::{Change, Delta};
use super::rule::settings::Settings;
use super::stage::admission::count_route;
use super::stage::policy_marks::touch_statuses;
use super::stage::settle::settle;
use super::stage::solver::mark_solved;
use super::stage::tls_secrets::show_certificate;
use super::state::attachments::Attachments;
use super::state::backend_clusters::compile_backend;
use super::state::challenge_answers::ChallengeAnswers;
use super::state::dirty::Dirty;
use super::state::emissions::Emissions;
use super::state::endpoints::{ServiceEndpoints, compile_assignment};
use super::state::external_names::WantedNames;
use super::state::frontends::Frontends;
use super::state::gateway_services::GatewayServices;
use super::state::issuance::Issuance;
use super::state::login_secrets::show_login;
use super::state::parents::Parents;
use super::state::policies::Policies;
use super::state::quotas::Quotas;
use super::state::register::Register;
use super::state::resolutions::Resolutions;
use super::state::secret_names::SecretNames;
use super::state::session_tickets::SessionTickets;
use super::state::statuses::Statuses;
use super::state::wanted_index::WantedIndex;
use gatewright_objects::store::Store;

mod intake;
mod marks;
mod queries;
mod stages;

/// The state of the translation.
pub struct Engine {
    settings: Settings,
    /// The objects seen so far.
    store: Store,
    /// The objects of each namespace that are within its quotas.
    quotas: Quotas,
    /// The record of ownership on addresses that namespaces share.
    register: Register,
    parents: Parents,
    attachments: Attachments,
    resolutions: Resolutions,
    /// Evaluated policies.
    policies: Policies,
    frontends: Frontends,
    certificates: Certificates,
    emissions: Emissions,
    /// The endpoints of Service ports.
    service_endpoints: ServiceEndpoints,
    /// The names of Services that are to be resolved.
    names: WantedNames,
    gateway_services: GatewayServices,
    statuses: Statuses,
    counters: Counters,
}

/// States of certificates.
#[derive(Default)]
struct Certificates {
    /// The names under which Envoys request them.
    names: SecretNames,
    /// The answers to challenges, and their places.
    challenges: ChallengeAnswers,
    /// The wanted certificates.
    wanted: WantedIndex,
    /// Why some do not exist yet.
    issuance: Issuance,
    /// The session tickets of hosts.
    tickets: SessionTickets,
}

impl Engine {
    /// An engine without any objects.
    pub fn new(settings: Settings) -> Self {
        Self {
            quotas: Quotas::new(&settings.limits),
            register: Register::new(&settings),
            store: Store::in_cluster(
                settings
                    .envoys
                    .as_ref()
                    .map(|envoys| envoys.namespace.clone()),
                settings.namespaces.clone(),
                settings.channel,
            )
            .naming(settings.external_names.clone()),
            service_endpoints: ServiceEndpoints::new(&settings.installation),
            settings,
            parents: Parents::default(),
            attachments: Attachments::default(),
            resolutions: Resolutions::default(),
            policies: Policies::default(),
            frontends: Frontends::default(),
            certificates: Certificates::default(),
            emissions: Emissions::default(),
            names: WantedNames::default(),
            gateway_services: GatewayServices::default(),
            statuses: Statuses::default(),
            counters: Counters::default(),
        }
    }

    /// Applies changes and returns the result. `now` decides which certificates have expired.
    ///
    /// This is the list of stages. `engine/stages.rs` has what each reads and writes.
    pub fn apply(&mut self, changes: Vec<Change>, now: SystemTime) -> Delta {
        let millis = now
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let mut dirty = Dirty::at(u64::try_from(millis).unwrap_or(u64::MAX));
        for change in changes {
            self.take_in(change, &mut dirty);
        }
        while let Some(key) = self.parents.pop_due(now) {
            dirty.parents.insert(key);
        }
        while let Some(key) = self.policies.pop_due(now) {
            dirty.policies.insert(key);
        }
        // Gateways count traces, and default Gateways whom routes admit.
        while let Some(policy) = dirty.policies.pop_first() {
            self.counters.policies += 1;
            self.policing(now).judge(&policy, &mut dirty);
        }
        // Gateways sort before ListenerSets, which depend on them.
        while let Some(key) = dirty.parents.pop_first() {
            self.counters.parents += 1;
            self.evaluation(now).evaluate(&key, &mut dirty);
        }
        while let Some(key) = dirty.attachments.pop_first() {
            self.counters.attachments += 1;
            self.attaching().attach(&key, &mut dirty);
        }
        self.bind(&mut dirty);
        self.counters.owned += self.owners().settle(now, &mut dirty);
        while let Some((frontend, hostnames)) = dirty.pop_claims() {
            for hostname in &hostnames {
                self.counters.claims += 1;
                let (frontends, admission) = self.contest();
                settle(frontends, admission, &frontend, hostname, &mut dirty);
            }
        }
        while let Some(gateway) = dirty.clients.pop_first() {
            show_certificate(&gateway, &self.parents, &mut self.emissions, &mut dirty);
        }
        while let Some(service) = dirty.policed.pop_first() {
            self.policing(now).rank(&service, &mut dirty);
        }
        while let Some(route) = dirty.uses.pop_first() {
            self.policing(now).note_uses(&route, &mut dirty);
            touch_statuses(&route, &self.store, &mut dirty);
        }
        while let Some(key) = dirty.charged.pop_first() {
            let Self {
                quotas,
                attachments,
                parents,
                store,
                policies,
                ..
            } = self;
            let attached_to = (&*parents, &*attachments);
            quotas.charge(&key, attached_to, store, policies, &mut dirty);
        }
        while let Some(key) = dirty.routes.pop_first() {
            self.counters.routes += 1;
            self.resolving().resolve(&key, &mut dirty);
        }
        while let Some((listener, key)) = dirty.counted.pop_first() {
            let Self {
                attachments,
                parents,
                register,
                resolutions,
                ..
            } = self;
            count_route(
                attachments,
                parents,
                register,
                resolutions,
                (&listener, &key),
                &mut dirty,
            );
        }
        while let Some((listener, hostname)) = dirty.solved.pop_first() {
            let Self {
                attachments,
                store,
                parents,
                register,
                ..
            } = self;
            mark_solved(
                attachments,
                store,
                parents,
                register,
                (&listener, &hostname),
                &mut dirty,
            );
        }
        // Binding again: a challenge may have opened or closed a port.
        self.compile_units(&mut dirty);
        self.bind(&mut dirty);
        while let Some(frontend) = dirty.represented.pop_first() {
            self.frontends
                .represent(&frontend, &self.register, &mut dirty);
        }
        self.compile_units(&mut dirty);
        while let Some((frontend, listener)) = dirty.tables.pop_first() {
            self.counters.tables += 1;
            self.tables().compile(&frontend, &listener, &mut dirty);
        }
        while let Some(frontend) = dirty.wide_hosts.pop_first() {
            self.counters.tables += 1;
            self.tables().list_wide_hosts(&frontend, &mut dirty);
        }
        while let Some(frontend) = dirty.frontends.pop_first() {
            self.counters.frontends += 1;
            let (assembly, emissions) = self.assembling();
            assembly.compile(&frontend, emissions, &mut dirty);
            self.frontends.forget_idle(&frontend);
        }
        while let Some(id) = dirty.backends.pop_first() {
            compile_backend(id, &self.policies, &mut self.emissions, &mut dirty);
        }
        while let Some(policy) = dirty.logins.pop_first() {
            show_login(&policy, &self.policies, &mut self.emissions, &mut dirty);
        }
        while let Some((cluster, port)) = dirty.pop_cluster_targets() {
            self.service_endpoints
                .set_targets(cluster, port, &self.store, &mut dirty);
        }
        while let Some(service) = dirty.names.pop_first() {
            self.names.decide(
                &service,
                &mut self.store,
                &mut self.quotas,
                &self.service_endpoints,
                &mut dirty,
            );
        }
        while let Some(port) = dirty.endpoints.pop_first() {
            let (service_endpoints, allowed) = self.reaching();
            service_endpoints.compile(&port, allowed, &mut dirty);
        }
        while let Some(cluster) = dirty.assignments.pop_first() {
            compile_assignment(
                cluster,
                &self.service_endpoints,
                &mut self.emissions,
                &mut dirty,
            );
        }
        while let Some(gateway) = dirty.services.pop_first() {
            self.exposing().desire(&gateway, &mut dirty);
        }
        while let Some(key) = dirty.wanting.pop_first() {
            let (wanted, grants) = self.wanting();
            wanted.set_parent(&key, grants, &mut dirty);
        }
        while let Some(key) = dirty.statuses.pop_first() {
            self.counters.statuses += 1;
            let status = self.report().status(&key);
            self.statuses.set(&key, status, &self.parents, &mut dirty);
        }
        dirty.done()
    }

    fn compile_units(&mut self, dirty: &mut Dirty) {
        while dirty.has_units() {
            while let Some((frontend, hostname)) = dirty.units.pop_first() {
                self.counters.units += 1;
                self.units().compile(&frontend, &hostname, dirty);
            }
            self.certificates.names.settle(&mut self.register, dirty);
        }
    }

    fn bind(&mut self, dirty: &mut Dirty) {
        while let Some(gateway) = dirty.bindings.pop_first() {
            self.binding().bind(&gateway, dirty);
        }
    }
}
