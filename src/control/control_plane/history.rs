//! The history, as whoever asks may see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ControlPlane;
use crate::history::{HistoryAnswer, HistoryEntry, HistoryQuery};
use crate::visibility::Visibility;
use gatewright_core::model::Hostname;

impl ControlPlane {
    /// Returns what changed. Of one namespace, these are the changes of its objects, and those of
    /// others that touched a hostname that it is served for.
    pub fn history(&self, query: &HistoryQuery, visibility: &Visibility) -> HistoryAnswer {
        let history = &self.recorder.history;
        let Visibility::Namespace(namespace) = visibility else {
            return history.answer(query);
        };
        let named = self.hostnames_in(namespace);
        let mut served: BTreeMap<String, bool> = BTreeMap::new();
        // The query is about what is seen: otherwise its answer would say what is not.
        let seen = history.all().into_iter();
        let seen = seen.filter_map(|entry| {
            entry.seen_by(namespace, &mut |host: &str| {
                named.contains(host)
                    && *served.entry(host.to_owned()).or_insert_with(|| {
                        Hostname::parse(host)
                            .is_ok_and(|host| self.engine().is_served_for(&host, namespace))
                    })
            })
        });
        HistoryAnswer {
            changes: seen
                .filter(|entry: &HistoryEntry| query.has(entry))
                .collect(),
            forgotten: history.forgotten(),
        }
    }

    /// Returns the hostnames that routes and listeners of a namespace name.
    fn hostnames_in(&self, namespace: &Arc<str>) -> BTreeSet<String> {
        let store = self.engine().store();
        let routes = store.routes_in(namespace).into_iter();
        let routes = routes.filter_map(|key| store.route(&key));
        let of_routes = routes.flat_map(|route| route.hostnames.iter().flatten().cloned());
        let gateways = store.gateways_in(namespace).into_iter();
        let gateways = gateways.filter_map(|name| store.gateway(&name));
        let of_gateways = gateways.flat_map(|gateway| gateway.listeners.iter());
        let sets = store.sets_in(namespace).into_iter();
        let sets = sets.filter_map(|key| store.listener_set(&key));
        let listeners = of_gateways.chain(sets.flat_map(|set| set.listeners.iter()));
        let of_listeners =
            listeners.filter_map(|listener| listener.hostname.as_ref().ok().cloned());
        of_routes
            .chain(of_listeners)
            .map(|hostname| hostname.to_string())
            .collect()
    }
}
