//! A certificate being got.

use crate::budget::Exempt;
use crate::issuer::CertificateId;
use crate::names::Names;
use crate::plan::{Order, Wanted};

/// A certificate being got: an [`Order`] that owns what it needs.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) id: CertificateId,
    pub(super) names: Names,
    pub(super) serves: Vec<Wanted>,
    pub(super) replaces: Option<String>,
    pub(super) exempt: Exempt,
}

impl Job {
    pub(super) fn of(order: &Order<'_>) -> Self {
        Self {
            id: order.id.clone(),
            names: order.names.clone(),
            serves: order.serves.iter().map(|w| (*w).clone()).collect(),
            replaces: order.replaces_id(),
            exempt: order.exempt,
        }
    }
}
