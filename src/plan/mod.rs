//! What a change of objects does, before it is made: hostname by hostname, then object by object.
//!
//! ```text
//! pipeline ==> World before ==+
//!    + changes                +==> Plan ==> text, JSON, exit status
//! pipeline ==> World after ===+
//! ```
//!
//! Pure: two [`World`]s in, a [`Plan`] out. The text and the JSON are views of it.

mod certificates;
mod change;
mod drain;
mod hosts;
mod objects;
mod quotas;
mod resources;
mod text;
mod world;

pub use certificates::{CertificateChange, Issuance, IssuerTerms, OrderCount, Step};
pub use change::Change;
pub use drain::Drain;
pub use hosts::{Effect, HostChange, Place, PlaceChange};
pub use objects::ObjectChange;
pub use quotas::QuotaChange;
pub use resources::{ResourceChanges, TypeChanges};
pub use world::{Emitted, Sight, World};

use serde::Serialize;

/// What a change does.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The hostnames that are served otherwise, sorted.
    pub hosts: Vec<HostChange>,
    /// The conditions of objects that differ.
    pub objects: Vec<ObjectChange>,
    /// The certificates that are ordered or no longer wanted.
    pub certificates: Vec<CertificateChange>,
    /// The orders at CAs that count certificates of a registered domain.
    pub orders: Vec<OrderCount>,
    /// What Envoys get.
    pub resources: ResourceChanges,
    /// The amounts of quotas that differ.
    pub quotas: Vec<QuotaChange>,
}

impl Plan {
    /// Compares two worlds.
    pub fn new(before: &World, after: &World, issuance: &Issuance) -> Self {
        let certificates = certificates::changes(before, after, issuance);
        Self {
            hosts: hosts::changes(before, after, issuance),
            objects: objects::changes(before, after),
            orders: certificates::orders(&certificates, issuance),
            certificates,
            resources: resources::changes(before, after),
            quotas: quotas::changes(before, after),
        }
    }

    /// Returns whether something that is served would stop, change hands, or lose TLS.
    pub fn loses(&self) -> bool {
        self.hosts.iter().any(|host| host.is_lost)
    }

    /// Returns whether a hostname appears of which it cannot be said who gets it: its Gateway may
    /// not be read.
    pub fn guesses(&self) -> bool {
        self.hosts
            .iter()
            .any(|host| host.is_unread && host.effects.contains(&Effect::Appears))
    }
}
