//! Routes by which cert-manager answers challenges: each takes its one path of a host, and nothing else from it.
//!
//! By the hostnames alone such a route would have the whole host for as long as the challenge takes, and what a wider
//! hostname serves there, a redirect to HTTPS above all, would be 404 until it is over.

use super::engine::{Dirty, Engine};
use super::key::{ListenerId, RouteKey};
use crate::model::{FrontendId, Hostname, Route};

impl Engine {
    /// Looks at whether only solvers give a hostname to a listener.
    pub(super) fn note_solvers(&mut self, listener: &ListenerId, hostname: &Hostname, dirty: &mut Dirty) {
        let solves = |key: &RouteKey| self.store.route(key).is_some_and(|route| route.challenge);
        let routes = || self.served(hostname, listener);
        // Nearly always the first is no solver's, and nothing was.
        let only = hostname.is_exact() && routes().next().is_some() && routes().all(|(key, _)| solves(key));
        if (only || !self.solved.is_empty()) && only != self.solved.contains(listener, hostname) {
            self.solved.set(listener, hostname, only);
            if let Some(id) = self.frontend_of(listener) {
                dirty.units.insert((id, hostname.clone()));
            }
        }
    }

    /// Marks the hosts that show what a wider hostname of a listener serves, after that has changed.
    pub(super) fn touch_solved(&self, id: &FrontendId, listener: &ListenerId, wide: &Hostname, dirty: &mut Dirty) {
        if !wide.is_exact() {
            let hosts = self.solved.of(listener).filter(|host| wide.covers(host));
            dirty.units.extend(hosts.map(|host| (id.clone(), host.clone())));
        }
    }

    /// What is to follow the routes of a hostname that only solvers give: the routes of the next wider one.
    pub(super) fn behind_solvers(&self, id: &FrontendId, hostname: &Hostname, listener: &ListenerId) -> Vec<Route> {
        if !self.solved.contains(listener, hostname) {
            return Vec::new();
        }
        self.wider_routes(id, hostname, listener)
    }
}
