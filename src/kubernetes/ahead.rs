//! Holds back EndpointSlices that arrive before the pods that they name. Pure.
//!
//! Pods and slices are watched separately, and an endpoint counts only if its pod is known. Using a
//! slice before its pods would remove endpoints for a moment: the slice is held back, and the
//! version before it is used meanwhile. A slice whose pods never arrive is held back for at most
//! [`MAX_WAIT`], or longer while pods are not watched, since then their absence is not known.
//!
//! `is_current` is true if the view of pods is complete and current.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use gatewright_core::inputs::EndpointSlice;
use gatewright_core::model::ObjectName;
use gatewright_core::store::Store;

/// The maximum time that a slice is held back while pods are watched.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The slices that are held back, each with the time at which it is used without its pods.
#[derive(Default)]
pub(super) struct Ahead(BTreeMap<ObjectName, (Instant, EndpointSlice)>);

impl Ahead {
    /// Takes in a slice. Returns it unless it must be held back.
    pub(super) fn take(
        &mut self,
        slice: EndpointSlice,
        store: &Store,
        is_current: bool,
        now: Instant,
    ) -> Option<EndpointSlice> {
        let name = slice.meta.name.clone();
        // A slice that is rewritten again and again keeps its first deadline.
        let until = self
            .0
            .remove(&name)
            .map_or(now + MAX_WAIT, |(until, _)| until);
        if is_current && until <= now || are_known(&slice, store) {
            return Some(slice);
        }
        self.0.insert(name, (until, slice));
        None
    }

    /// Drops a slice that was deleted.
    pub(super) fn forget(&mut self, name: &ObjectName) {
        self.0.remove(name);
    }

    /// Removes and returns the slices that need not be held back any longer.
    pub(super) fn release(
        &mut self,
        store: &Store,
        is_current: bool,
        now: Instant,
    ) -> Vec<EndpointSlice> {
        self.0
            .extract_if(.., |_, (until, slice)| {
                is_current && *until <= now || are_known(slice, store)
            })
            .map(|(_, (_, slice))| slice)
            .collect()
    }

    /// Returns the earliest deadline of the slices that are held back.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|(until, _)| *until).min()
    }
}

/// Returns whether each pod that a slice names is known with that address, except the endpoints
/// that the version before had already.
fn are_known(slice: &EndpointSlice, store: &Store) -> bool {
    let before = store.slice(&slice.meta.name);
    slice
        .pods
        .iter()
        .all(|endpoint| was_there(endpoint, &before) || store.is_of_its_pod(slice, endpoint.0))
}

fn was_there(
    endpoint: &(std::net::IpAddr, std::sync::Arc<str>),
    before: &Option<&std::sync::Arc<EndpointSlice>>,
) -> bool {
    before.is_some_and(|before| before.pods.binary_search(endpoint).is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::json;

    use super::*;
    use gatewright_core::inputs::{Located, Object, Pod};
    use gatewright_core::translate::{Change, Engine, Settings};

    fn slice(endpoints: &[(&str, &str)]) -> EndpointSlice {
        fn endpoint((address, pod): &(&str, &str)) -> serde_json::Value {
            json!({"addresses": [address],
            "targetRef": {"kind": "Pod", "namespace": "a", "name": pod}})
        }
        let object = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-1", "namespace": "a"}, "ports": [{"port": 80}],
            "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()});
        match Object::parse(object).expect("a slice") {
            Object::EndpointSlice(slice) => slice,
            other => panic!("{other:?}"),
        }
    }

    /// The store of an engine, as the view of a cluster.
    struct Known(Engine);

    impl Known {
        fn new() -> Self {
            Self(Engine::new(Settings {
                envoys: Some(ObjectName::new("ours", "envoy")),
                ..Settings::new("c", vec![])
            }))
        }

        fn put(&mut self, object: Object) {
            self.0
                .apply(vec![Change::put(object)], SystemTime::UNIX_EPOCH);
        }

        fn pod(&mut self, name: &str, address: &str) {
            let addresses = [address.parse().expect("an address")].into();
            self.put(Object::Pod(Pod(Located {
                name: ObjectName::new("a", name),
                addresses,
            })));
        }
    }

    #[test]
    fn a_slice_waits_for_its_pods_and_not_for_ever() {
        let mut known = Known::new();
        let mut ahead = Ahead::default();
        let now = Instant::now();
        let first = slice(&[("10.0.0.1", "one")]);
        let both = slice(&[("10.0.0.1", "one"), ("10.0.0.2", "two")]);
        assert_eq!(ahead.take(first.clone(), known.0.store(), true, now), None);
        assert_eq!(ahead.release(known.0.store(), true, now), []);
        known.pod("one", "10.0.0.2");
        assert_eq!(
            ahead.release(known.0.store(), true, now),
            [],
            "it is elsewhere"
        );
        known.pod("one", "10.0.0.1");
        assert_eq!(
            ahead.release(known.0.store(), true, now),
            std::slice::from_ref(&first)
        );
        assert_eq!(
            ahead.take(first.clone(), known.0.store(), true, now),
            Some(first.clone()),
            "all is known"
        );
        known.put(Object::EndpointSlice(first.clone()));

        assert_eq!(ahead.take(both.clone(), known.0.store(), true, now), None);
        let late = ahead.next().expect("it waits");
        // Rewriting a slice does not extend its deadline.
        assert_eq!(
            ahead.take(both.clone(), known.0.store(), true, now + MAX_WAIT / 2),
            None
        );
        assert_eq!(ahead.next(), Some(late));
        assert_eq!(
            ahead.release(known.0.store(), false, late),
            [],
            "nobody knows whether there are more pods"
        );
        assert_eq!(
            ahead.release(known.0.store(), true, late),
            std::slice::from_ref(&both)
        );
        known.put(Object::EndpointSlice(both.clone()));
        assert_eq!(
            ahead.take(first.clone(), known.0.store(), true, late),
            Some(first),
            "nothing is new in it"
        );
        assert_eq!(
            ahead.take(both.clone(), known.0.store(), true, late),
            Some(both),
            "it passes after its time"
        );
        assert_eq!(ahead.next(), None, "nothing waits");
    }

    #[test]
    fn a_newer_slice_without_the_pod_ends_the_wait_and_a_deleted_one_as_well() {
        let known = Known::new();
        let mut ahead = Ahead::default();
        let now = Instant::now();
        let store = known.0.store();
        let waits = slice(&[("10.0.0.1", "one")]);
        let empty = slice(&[]);
        assert_eq!(ahead.take(waits.clone(), store, true, now), None);
        assert_eq!(
            ahead.take(empty.clone(), store, true, now),
            Some(empty),
            "the newer slice passes"
        );
        assert_eq!(ahead.next(), None, "nothing waits");
        assert_eq!(ahead.take(waits.clone(), store, true, now), None);
        ahead.forget(&waits.meta.name);
        assert_eq!(ahead.release(store, true, now + MAX_WAIT), []);
    }
}
