//! The states that each stage of [`Tenancy::apply`] reads (`&`) and writes (`&mut`).

use super::super::stage::admit::Admitting;
use super::super::stage::arrange::Arranging;
use super::super::stage::carry_out::CarryingOut;
use super::super::stage::compile::Rendering;
use super::super::stage::evaluate::Evaluation;
use super::super::stage::judge::Judging;
use super::super::stage::label::Labelling;
use super::super::stage::observe::Observing;
use super::super::stage::ownership::Settling;
use super::super::stage::placement::Placement;
use super::super::stage::report::Reporting;
use super::Tenancy;

impl Tenancy {
    pub(super) fn observing(&mut self) -> Observing<'_> {
        Observing {
            claims: &self.claims,
            placement: Placement {
                tenants: &self.tenants,
                hosts: &mut self.hosts,
                places: &mut self.places,
            },
            derivations: &mut self.derivations,
        }
    }

    pub(super) fn evaluation(&mut self) -> Evaluation<'_> {
        Evaluation {
            settings: &self.settings,
            claims: &self.claims,
            hosts: &self.hosts,
            derivations: &self.derivations,
            namespaces: &mut self.namespaces,
            tenants: &mut self.tenants,
        }
    }

    pub(super) fn labelling(&mut self) -> Labelling<'_> {
        Labelling {
            tenants: &self.tenants,
            claims: &self.claims,
            namespaces: &mut self.namespaces,
        }
    }

    pub(super) fn carrying_out(&mut self) -> CarryingOut<'_> {
        CarryingOut {
            settings: &self.settings,
            tenants: &self.tenants,
            namespaces: &self.namespaces,
            claims: &self.claims,
            secrets: &self.secrets,
            children: &mut self.children,
            placement: Placement {
                tenants: &self.tenants,
                hosts: &mut self.hosts,
                places: &mut self.places,
            },
            derivations: &mut self.derivations,
        }
    }

    pub(super) fn admitting(&mut self) -> Admitting<'_> {
        Admitting {
            settings: &self.settings,
            tenants: &self.tenants,
            namespaces: &self.namespaces,
            records: &mut self.records,
            claims: &mut self.claims,
            hosts: &mut self.hosts,
            derivations: &mut self.derivations,
        }
    }

    pub(super) fn settling(&mut self) -> Settling<'_> {
        Settling {
            tenants: &self.tenants,
            namespaces: &self.namespaces,
            claims: &self.claims,
            hosts: &mut self.hosts,
            records: &mut self.records,
        }
    }

    pub(super) fn arranging(&mut self) -> Arranging<'_> {
        Arranging {
            settings: &self.settings,
            secrets: &self.secrets,
            children: &self.children,
            placement: Placement {
                tenants: &self.tenants,
                hosts: &mut self.hosts,
                places: &mut self.places,
            },
            derivations: &mut self.derivations,
        }
    }

    pub(super) fn rendering(&mut self) -> Rendering<'_> {
        Rendering {
            tenants: &self.tenants,
            hosts: &self.hosts,
            places: &self.places,
            children: &self.children,
            derivations: &mut self.derivations,
        }
    }

    pub(super) fn judging(&mut self) -> Judging<'_> {
        Judging {
            settings: &self.settings,
            tenants: &self.tenants,
            hosts: &self.hosts,
            places: &self.places,
            children: &self.children,
            records: &self.records,
            derivations: &self.derivations,
            claims: &mut self.claims,
        }
    }

    pub(super) fn reporting(&mut self) -> Reporting<'_> {
        Reporting {
            settings: &self.settings,
            namespaces: &self.namespaces,
            children: &self.children,
            secrets: &self.secrets,
            derivations: &self.derivations,
            tenants: &mut self.tenants,
        }
    }
}
