//! Routes by which cert-manager solves challenges: each has one path of a host, and leaves the rest
//! of the host to others.
//!
//! By its hostname alone such a route would get the whole host while the challenge lasts, and
//! requests that a wider hostname serves there, with a redirect to HTTPS above all, would be
//! answered 404.

use super::admission::Admission;
use crate::key::{ListenerId, RouteKey};
use crate::state::attachments::Attachments;
use crate::state::dirty::Dirty;
use crate::state::parents::Parents;
use crate::state::register::Register;
use gatewright_objects::model::Hostname;
use gatewright_objects::store::Store;

/// The stage that determines whether only solvers' routes contribute a hostname to a listener.
pub(crate) fn mark_solved(
    attachments: &mut Attachments,
    store: &Store,
    parents: &Parents,
    register: &Register,
    (listener, hostname): (&ListenerId, &Hostname),
    dirty: &mut Dirty,
) {
    let admission = Admission {
        parents,
        attachments,
        register,
    };
    let routes = || admission.served(hostname, listener);
    // Nearly always the first route is no solver's, and none was before.
    let only = hostname.is_exact()
        && routes().next().is_some()
        && routes().all(|(key, _)| solves(key, store));
    if attachments.is_of_several(listener, hostname) {
        // Routes of other namespaces are told of this one unless it is a solver's.
        dirty.units.extend(
            parents
                .frontend_of(listener)
                .map(|id| (id, hostname.clone())),
        );
    }
    if (only || attachments.has_solved()) && attachments.set_solved(listener, hostname, only) {
        dirty.units.extend(
            parents
                .frontend_of(listener)
                .map(|id| (id, hostname.clone())),
        );
    }
}

/// True if a route answers challenges of cert-manager.
pub(crate) fn solves(key: &RouteKey, store: &Store) -> bool {
    store.route(key).is_some_and(|route| route.challenge)
}
