//! What a replica looks at because it may write from now on, or knows more than before.

use super::KubernetesRuntime;
use crate::lease::{Term, leads};
use gatewright_core::inputs::Kind;

impl KubernetesRuntime {
    /// We hold the Lease from now on, or no longer.
    pub fn lead(&mut self, term: Term) {
        let before = std::mem::replace(&mut self.leading, leads(term));
        if self.leading && !before && self.serving {
            self.look_at_everything();
        }
        self.certificates.issuance.lead();
        self.settle(term);
    }

    /// Whether we may write now. A term that ran out, if only for a moment, may have cost something its turn: everything is
    /// compared again when the next one begins.
    pub(super) fn leads(&mut self, term: Term) -> bool {
        self.leading &= leads(term);
        self.leading
    }

    /// Everything is compared once with what there is: what an earlier run left and nobody wants any more is found so, and
    /// our own entries of routes that left us.
    pub(super) fn look_at_everything(&mut self) {
        self.want(self.objects.seen().keys().cloned().collect());
        self.tenants.look_at_everything(self.live.pipeline().tenancy());
        self.services.look_at_everything();
        self.look_at_isolated();
        self.look_at_claims();
    }

    /// What is known of a kind changed. Where changes of it come again, or for the first time, what waited for them is
    /// looked at.
    pub(super) fn look_at_kind(&mut self, kind: Kind, term: Term) {
        self.tenants.kind_changed(kind, self.live.pipeline().tenancy());
        let is_whole = self.view.is_whole(kind);
        if !is_whole && !self.view.is_missing(kind) || !self.leads(term) {
            return;
        }
        if is_whole {
            self.want(self.objects.seen().keys().filter(|key| key.kind == kind).cloned().collect());
            if matches!(kind, Kind::Gateway | Kind::GatewayClass) {
                self.services.look_at_everything();
                self.look_at_isolated();
            }
        }
        // The record waits for kinds until they are whole, or known not to be served.
        self.look_at_claims();
    }
}
