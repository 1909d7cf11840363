//! Queues comparisons when a replica gets the Lease, or when the view of a kind becomes complete.

use super::KubernetesRuntime;
use crate::lease::{Term, leads};
use gatewright_core::inputs::Kind;

impl KubernetesRuntime {
    /// Takes in that we hold the Lease from now on, or no longer.
    pub fn lead(&mut self, term: Term) {
        let before = std::mem::replace(&mut self.leading, leads(term));
        if self.leading && !before && self.serving {
            self.enqueue_all();
        }
        self.certificates.issuance.lead();
        self.take_acknowledgements(term);
    }

    /// Returns whether we may write now. When a term has run out, even for a moment, queued writes
    /// may have been dropped: everything is compared again when the next one begins.
    pub(super) fn leads(&mut self, term: Term) -> bool {
        self.leading &= leads(term);
        self.leading
    }

    /// Queues everything for one comparison with the observed objects. It finds unwanted objects of
    /// an earlier run, and our entries in statuses of routes that left us.
    pub(super) fn enqueue_all(&mut self) {
        self.want(self.objects.seen().keys().cloned().collect());
        self.tenants.enqueue_all(self.live.pipeline().tenancy());
        self.services.enqueue_all();
        self.classes.enqueue_all();
        self.enqueue_isolated();
        self.enqueue_claims();
    }

    /// Takes in that the state of a kind has changed. Where its changes arrive again, or for the
    /// first time, objects that wait for them are queued.
    pub(super) fn enqueue_kind(&mut self, kind: Kind, term: Term) {
        self.tenants
            .kind_changed(kind, self.live.pipeline().tenancy());
        let is_current = self.view.is_current(kind);
        if !is_current && !self.view.is_missing(kind) || !self.leads(term) {
            return;
        }
        if is_current {
            self.want_kind(kind);
            if matches!(
                kind,
                Kind::Gateway | Kind::GatewayClass | Kind::GatewayParameters
            ) {
                self.services.enqueue_all();
                self.classes.enqueue_all();
                self.enqueue_isolated();
            }
        }
        // The record waits until kinds are complete or known not to be served.
        self.enqueue_claims();
    }

    /// Queues the statuses of all objects of a kind.
    pub(super) fn want_kind(&mut self, kind: Kind) {
        self.want(
            self.objects
                .seen()
                .keys()
                .filter(|key| key.kind == kind)
                .cloned()
                .collect(),
        );
    }
}
