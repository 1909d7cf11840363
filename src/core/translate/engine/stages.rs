//! The states that each stage of [`Engine::apply`] reads (`&`) and writes (`&mut`).

use std::time::SystemTime;

use super::super::stage::admission::Admission;
use super::super::stage::assembly::Assembly;
use super::super::stage::attach::Attaching;
use super::super::stage::bind::Binding;
use super::super::stage::challenge::Answering;
use super::super::stage::compile::Units;
use super::super::stage::evaluate::Evaluation;
use super::super::stage::exposure::Exposing;
use super::super::stage::owners::Owners;
use super::super::stage::policing::Policing;
use super::super::stage::report::Report;
use super::super::stage::resolve::Resolving;
use super::super::stage::routes::Routing;
use super::super::stage::tables::Tables;
use super::super::state::emissions::Emissions;
use super::super::state::endpoints::{AllowedEndpoints, ServiceEndpoints};
use super::super::state::frontends::Frontends;
use super::super::state::wanted_index::{ListenerOutcomes, WantedIndex};
use super::Engine;

impl Engine {
    pub(super) fn evaluation(&mut self, now: SystemTime) -> Evaluation<'_> {
        Evaluation {
            now,
            settings: &self.settings,
            store: &self.store,
            attachments: &self.attachments,
            gateway_services: &self.gateway_services,
            policies: &self.policies,
            quotas: &mut self.quotas,
            parents: &mut self.parents,
            register: &mut self.register,
            frontends: &mut self.frontends,
            emissions: &mut self.emissions,
        }
    }

    pub(super) fn attaching(&mut self) -> Attaching<'_> {
        Attaching {
            settings: &self.settings,
            store: &self.store,
            parents: &self.parents,
            policies: &self.policies,
            attachments: &mut self.attachments,
            quotas: &mut self.quotas,
            register: &mut self.register,
        }
    }

    pub(super) fn binding(&mut self) -> Binding<'_> {
        Binding {
            settings: &self.settings,
            store: &self.store,
            quotas: &self.quotas,
            policies: &self.policies,
            service_endpoints: &self.service_endpoints,
            parents: &self.parents,
            gateway_services: &mut self.gateway_services,
            frontends: &mut self.frontends,
            register: &mut self.register,
        }
    }

    pub(super) fn owners(&mut self) -> Owners<'_> {
        Owners {
            store: &self.store,
            parents: &self.parents,
            attachments: &self.attachments,
            names: &self.certificates.names,
            register: &mut self.register,
            frontends: &mut self.frontends,
        }
    }

    pub(super) fn contest(&mut self) -> (&mut Frontends, Admission<'_>) {
        let admission = Admission {
            parents: &self.parents,
            attachments: &self.attachments,
            register: &self.register,
        };
        (&mut self.frontends, admission)
    }

    pub(super) fn policing(&mut self, now: SystemTime) -> Policing<'_> {
        Policing {
            now,
            settings: &self.settings,
            store: &self.store,
            quotas: &self.quotas,
            admission: Admission {
                parents: &self.parents,
                attachments: &self.attachments,
                register: &self.register,
            },
            backends: self.emissions.backends(),
            policies: &mut self.policies,
        }
    }

    pub(super) fn resolving(&mut self) -> Resolving<'_> {
        Resolving {
            settings: &self.settings,
            store: &self.store,
            quotas: &self.quotas,
            admission: Admission {
                parents: &self.parents,
                attachments: &self.attachments,
                register: &self.register,
            },
            resolutions: &mut self.resolutions,
        }
    }

    pub(super) fn units(&mut self) -> Units<'_> {
        let admission = Admission {
            parents: &self.parents,
            attachments: &self.attachments,
            register: &self.register,
        };
        Units {
            routing: Routing {
                settings: &self.settings,
                store: &self.store,
                resolutions: &self.resolutions,
                policies: &self.policies,
                admission,
            },
            names: &mut self.certificates.names,
            challenges: &mut self.certificates.challenges,
            tickets: &mut self.certificates.tickets,
            frontends: &mut self.frontends,
            emissions: &mut self.emissions,
        }
    }

    /// The stage that places answers to challenges.
    pub(super) fn answering(&mut self) -> Answering<'_> {
        Answering::new(
            &self.certificates.names,
            &mut self.certificates.challenges,
            &mut self.frontends,
        )
    }

    pub(super) fn tables(&mut self) -> Tables<'_> {
        Tables {
            parents: &self.parents,
            register: &self.register,
            names: &self.certificates.names,
            frontends: &mut self.frontends,
            emissions: &mut self.emissions,
        }
    }

    pub(super) fn assembling(&mut self) -> (Assembly<'_>, &mut Emissions) {
        let assembly = Assembly {
            frontends: &self.frontends,
            register: &self.register,
            challenges: &self.certificates.challenges,
            service_endpoints: &self.service_endpoints,
        };
        (assembly, &mut self.emissions)
    }

    pub(super) fn reaching(&mut self) -> (&mut ServiceEndpoints, AllowedEndpoints<'_>) {
        let allowed = AllowedEndpoints {
            settings: &self.settings,
            store: &self.store,
            quotas: &self.quotas,
            frontends: &self.frontends,
        };
        (&mut self.service_endpoints, allowed)
    }

    pub(super) fn exposing(&mut self) -> Exposing<'_> {
        Exposing {
            settings: &self.settings,
            store: &self.store,
            parents: &self.parents,
            frontends: &self.frontends,
            gateway_services: &mut self.gateway_services,
        }
    }

    pub(super) fn wanting(&mut self) -> (&mut WantedIndex, ListenerOutcomes<'_>) {
        let Self {
            store,
            parents,
            frontends,
            gateway_services,
            register,
            certificates,
            ..
        } = self;
        (
            &mut certificates.wanted,
            ListenerOutcomes {
                store,
                parents,
                frontends,
                gateway_services,
                register,
            },
        )
    }

    pub(super) fn report(&self) -> Report<'_> {
        Report {
            settings: &self.settings,
            store: &self.store,
            parents: &self.parents,
            attachments: &self.attachments,
            register: &self.register,
            resolutions: &self.resolutions,
            policies: &self.policies,
            frontends: &self.frontends,
            service_endpoints: &self.service_endpoints,
            issuance: &self.certificates.issuance,
            tickets: &self.certificates.tickets,
            gateway_services: &self.gateway_services,
            statuses: &self.statuses,
        }
    }
}
