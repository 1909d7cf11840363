//! Tracks the Secrets and ConfigMaps that objects refer to, and the objects that wait for a body.

use std::collections::BTreeMap;

use kube::Client;

use super::body::{Bodies, Body};
use super::refs::{BodyAction, BodyRefs};
use gatewright_core::inputs::{Kind, Object, ObjectKey};
use gatewright_core::model::ObjectName;

/// A body to be fetched, or one to be dropped.
pub(crate) enum BodyRequest {
    /// Fetches the body.
    Fetch(ObjectKey),
    /// Drops the body: the object was deleted, or no object refers to it any more.
    Forget(ObjectKey),
}

/// The references to one kind, and the fetches that they cause.
struct Referenced {
    refs: BodyRefs,
    bodies: Bodies,
}

impl Referenced {
    fn new(client: Client, kind: Kind) -> Self {
        Self { refs: BodyRefs::new(kind), bodies: Bodies::new(client, kind) }
    }

    /// Returns whether an object refers to a body that is being fetched.
    fn is_awaited_by(&self, referrer: &ObjectKey) -> bool {
        self.refs.refers(referrer, self.bodies.awaited())
    }
}

/// The references to Secrets and ConfigMaps.
pub(crate) struct References {
    secrets: Referenced,
    config_maps: Referenced,
    /// Objects that refer to a body that is on its way: the listener of a Gateway is not broken by a new version of the Gateway
    /// that comes a moment sooner.
    deferred: BTreeMap<ObjectKey, Object>,
}

impl References {
    /// No references yet.
    pub(crate) fn new(client: Client) -> Self {
        let config_maps = Referenced::new(client.clone(), Kind::ConfigMap);
        Self { secrets: Referenced::new(client, Kind::Secret), config_maps, deferred: BTreeMap::new() }
    }

    fn of(&self, kind: Kind) -> &Referenced {
        if kind == Kind::ConfigMap { &self.config_maps } else { &self.secrets }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Referenced {
        if kind == Kind::ConfigMap { &mut self.config_maps } else { &mut self.secrets }
    }

    /// The same for references to each of the two kinds.
    fn each(&mut self, mut actions: impl FnMut(&mut BodyRefs) -> Vec<BodyAction>) -> Vec<BodyRequest> {
        let kinds = [Kind::Secret, Kind::ConfigMap].into_iter();
        kinds.flat_map(|kind| requests(kind, actions(&mut self.of_mut(kind).refs))).collect()
    }

    /// Takes in an object that may refer to others, or lets others refer to them.
    pub(crate) fn put(&mut self, object: &Object) -> Vec<BodyRequest> {
        self.each(|refs| refs.put(object))
    }

    /// Takes in that such an object is gone.
    pub(crate) fn delete(&mut self, key: &ObjectKey) -> Vec<BodyRequest> {
        self.deferred.remove(key);
        self.each(|refs| refs.delete(key))
    }

    /// Takes in that a Secret or ConfigMap is there in this version; `ours` says whether it has a key of ours.
    pub(crate) fn there(&mut self, key: ObjectKey, version: String, ours: bool) -> Vec<BodyRequest> {
        requests(key.kind, self.of_mut(key.kind).refs.there(key.name, version, ours)).collect()
    }

    /// Takes in that a Secret or ConfigMap is gone.
    pub(crate) fn gone(&mut self, key: &ObjectKey) -> Vec<BodyRequest> {
        requests(key.kind, self.of_mut(key.kind).refs.gone(&key.name)).collect()
    }

    /// Takes in whether the body of a Secret is wanted that no object refers to.
    pub(crate) fn want(&mut self, secret: &ObjectName, is_wanted: bool) -> Vec<BodyRequest> {
        requests(Kind::Secret, self.secrets.refs.want(secret, is_wanted)).collect()
    }

    /// Secrets that have a key of ours since the last call, or have it no longer.
    pub(crate) fn rekeyed(&mut self) -> impl Iterator<Item = (ObjectName, bool)> {
        self.secrets.refs.rekeyed()
    }

    /// Whether the body of a Secret or ConfigMap is referred to, and there.
    pub(crate) fn wants(&self, key: &ObjectKey) -> bool {
        self.of(key.kind).refs.wanted(&key.name)
    }

    /// Whether the body of a Secret or ConfigMap was asked for, and may come any moment.
    pub(crate) fn awaits(&self, key: &ObjectKey) -> bool {
        self.of(key.kind).bodies.awaited().contains(&key.name)
    }

    /// Asks for a body, as it is from now on.
    pub(crate) fn ask(&mut self, key: ObjectKey) {
        self.of_mut(key.kind).bodies.ask(key.name);
    }

    /// Forgets a body.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.of_mut(key.kind).bodies.forget(&key.name);
    }

    /// Has an object wait for the bodies that it refers to, or gives it back where there is nothing to wait for. `asks` says that
    /// one is about to be asked for.
    pub(crate) fn defer(&mut self, object: Object, asks: bool) -> Option<Object> {
        let key = object.key();
        if asks || self.is_waiting(&key) {
            self.deferred.insert(key, object);
            return None;
        }
        self.deferred.remove(&key);
        Some(object)
    }

    fn is_waiting(&self, referrer: &ObjectKey) -> bool {
        self.secrets.is_awaited_by(referrer) || self.config_maps.is_awaited_by(referrer)
    }

    /// The objects that refer to a Secret or ConfigMap and wait for no body any more.
    pub(crate) fn ready(&mut self, key: &ObjectKey) -> Vec<Object> {
        let referrers: Vec<ObjectKey> = self.of(key.kind).refs.referrers(&key.name).cloned().collect();
        let ready = referrers.into_iter().filter(|referrer| !self.is_waiting(referrer)).collect::<Vec<_>>();
        ready.into_iter().filter_map(|referrer| self.deferred.remove(&referrer)).collect()
    }

    /// All objects that wait for no body any more.
    pub(crate) fn all_ready(&mut self) -> Vec<Object> {
        let Self { secrets, config_maps, deferred } = self;
        let is_ready = |key: &ObjectKey, _: &mut Object| !secrets.is_awaited_by(key) && !config_maps.is_awaited_by(key);
        deferred.extract_if(.., is_ready).map(|(_, object)| object).collect()
    }

    /// Waits until a body has come or not; `None` when the next one's turn has come.
    pub(crate) async fn next(&mut self) -> Option<(ObjectKey, Body)> {
        let ((name, body), kind) = tokio::select! {
            fetched = self.secrets.bodies.next() => (fetched?, Kind::Secret),
            fetched = self.config_maps.bodies.next() => (fetched?, Kind::ConfigMap),
        };
        Some((ObjectKey::new(kind, name), body))
    }

    /// Ends; what is being read is of no use any more.
    pub(crate) async fn stop(self) {
        self.secrets.bodies.stop().await;
        self.config_maps.bodies.stop().await;
    }
}

fn requests(kind: Kind, actions: Vec<BodyAction>) -> impl Iterator<Item = BodyRequest> {
    actions.into_iter().map(move |action| match action {
        BodyAction::Fetch(name) => BodyRequest::Fetch(ObjectKey::new(kind, name)),
        BodyAction::Forget(name) => BodyRequest::Forget(ObjectKey::new(kind, name)),
    })
}
