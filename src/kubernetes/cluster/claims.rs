//! The cluster's side of who claimed a hostname first.

use super::Cluster;
use crate::kubernetes::claims::{self, Claims};
use crate::kubernetes::lease::Term;
use crate::tenancy;

impl Cluster {
    /// Goes by this record.
    pub fn recording(mut self, claims: Claims) -> Self {
        self.claims = Some(claims);
        self
    }

    /// Takes in what the watch of the record tells.
    pub fn take_claims(&mut self, told: claims::Told, term: Term) {
        let changes = self.claims.as_mut().map(|claims| claims.take_in(told)).unwrap_or_default();
        self.take_records(changes, term);
        self.begin(term);
    }

    /// Takes in what is recorded.
    pub(super) fn take_records(&mut self, changes: Vec<tenancy::Change>, term: Term) {
        if !changes.is_empty() {
            self.known.extend(changes);
            self.apply(Vec::new(), term);
        }
    }

    /// What is waited for.
    pub fn waiting(&self) -> Vec<String> {
        let claims = (!self.knows_claims()).then(|| "who claimed hostnames first: not listed yet".to_owned());
        self.view.waiting().into_iter().chain(claims).collect()
    }

    /// Whether it is known who claimed what first, where that counts.
    pub(super) fn knows_claims(&self) -> bool {
        self.claims.as_ref().is_none_or(Claims::is_complete)
    }

    /// Everything that is not recorded as it should be is looked at.
    pub(super) fn look_at_claims(&mut self) {
        if let Some(claims) = &mut self.claims {
            claims.look_at_everything(self.live.pipeline().tenancy());
        }
    }

    /// Waits until a write of the record has ended, or one's turn has come.
    pub(super) async fn next_claim(claims: Option<&mut Claims>) -> claims::Ended {
        match claims {
            Some(claims) => claims.next().await,
            None => std::future::pending().await,
        }
    }
}
