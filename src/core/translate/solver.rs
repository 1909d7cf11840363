//! Routes by which cert-manager answers challenges: each takes its one path of a host, and nothing else from it.
//!
//! By the hostnames alone such a route would have the whole host for as long as the challenge takes, and what a wider
//! hostname serves there, a redirect to HTTPS above all, would be 404 until it is over.

use super::admission::Admission;
use super::attachments::Attachments;
use super::dirty::Dirty;
use super::key::{ListenerId, RouteKey};
use super::parents::Parents;
use super::register::Register;
use crate::model::Hostname;
use crate::store::Store;

/// The stage that looks at whether only solvers give a hostname to a listener.
pub(super) fn settle_solved(
    attachments: &mut Attachments,
    store: &Store,
    parents: &Parents,
    register: &Register,
    (listener, hostname): (&ListenerId, &Hostname),
    dirty: &mut Dirty,
) {
    let admission = Admission { parents, attachments, register };
    let solves = |key: &RouteKey| store.route(key).is_some_and(|route| route.challenge);
    let routes = || admission.served(hostname, listener);
    // Nearly always the first is no solver's, and nothing was.
    let only = hostname.is_exact() && routes().next().is_some() && routes().all(|(key, _)| solves(key));
    if (only || attachments.has_solved()) && attachments.set_solved(listener, hostname, only) {
        dirty.units.extend(parents.frontend_of(listener).map(|id| (id, hostname.clone())));
    }
}
