//! Tracks the Secrets and ConfigMaps that objects refer to, and the objects that wait for a body.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;

use super::body::{Bodies, Body};
use super::refs::{BodyAction, BodyRefs};
use crate::watch::scope::AccessSecret;
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
        Self {
            refs: BodyRefs::new(kind),
            bodies: Bodies::new(client, kind),
        }
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
    /// The objects that refer to a body which is being fetched. A new version of a Gateway waits
    /// for the bodies of its listeners, so that it breaks none.
    deferred: BTreeMap<ObjectKey, Object>,
    /// Those of them that may wait for no body any more.
    unchecked: BTreeSet<ObjectKey>,
}

impl References {
    /// Creates the state without references.
    pub(crate) fn new(client: Client) -> Self {
        let config_maps = Referenced::new(client.clone(), Kind::ConfigMap);
        Self {
            secrets: Referenced::new(client, Kind::Secret),
            config_maps,
            deferred: BTreeMap::new(),
            unchecked: BTreeSet::new(),
        }
    }

    fn of(&self, kind: Kind) -> &Referenced {
        if kind == Kind::ConfigMap {
            &self.config_maps
        } else {
            &self.secrets
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Referenced {
        if kind == Kind::ConfigMap {
            &mut self.config_maps
        } else {
            &mut self.secrets
        }
    }

    /// Collects the requests of both kinds.
    fn each(
        &mut self,
        mut actions: impl FnMut(&mut BodyRefs) -> Vec<BodyAction>,
    ) -> Vec<BodyRequest> {
        let kinds = [Kind::Secret, Kind::ConfigMap].into_iter();
        kinds
            .flat_map(|kind| requests(kind, actions(&mut self.of_mut(kind).refs)))
            .collect()
    }

    /// Takes in an object that may have references, or a ReferenceGrant.
    pub(crate) fn put(&mut self, object: &Object) -> Vec<BodyRequest> {
        if matches!(object, Object::ReferenceGrant(_)) {
            self.recheck_all();
        }
        self.each(|refs| refs.put(object))
    }

    /// Takes in the deletion of such an object.
    pub(crate) fn delete(&mut self, key: &ObjectKey) -> Vec<BodyRequest> {
        self.deferred.remove(key);
        if key.kind == Kind::ReferenceGrant {
            self.recheck_all();
        }
        self.each(|refs| refs.delete(key))
    }

    /// Takes in a Secret or ConfigMap that was added or changed: its resource version, and whether
    /// we wrote its key.
    pub(crate) fn there(
        &mut self,
        key: ObjectKey,
        version: String,
        ours: bool,
    ) -> Vec<BodyRequest> {
        requests(
            key.kind,
            self.of_mut(key.kind).refs.there(key.name, version, ours),
        )
        .collect()
    }

    /// Takes in a Secret for AccessPolicies that was added or changed: its resource version.
    pub(crate) fn access_secret(
        &mut self,
        kind: AccessSecret,
        name: ObjectName,
        version: String,
    ) -> Vec<BodyRequest> {
        let refs = &mut self.secrets.refs;
        requests(Kind::Secret, refs.access_secret(kind, name, version)).collect()
    }

    /// Takes in the deletion of a Secret for AccessPolicies.
    pub(crate) fn access_secret_gone(
        &mut self,
        kind: AccessSecret,
        name: &ObjectName,
    ) -> Vec<BodyRequest> {
        let refs = &mut self.secrets.refs;
        requests(Kind::Secret, refs.access_secret_gone(kind, name)).collect()
    }

    /// Takes in the deletion of a Secret or ConfigMap.
    pub(crate) fn gone(&mut self, key: &ObjectKey) -> Vec<BodyRequest> {
        requests(key.kind, self.of_mut(key.kind).refs.gone(&key.name)).collect()
    }

    /// Sets whether the body of a Secret is wanted without a reference by an object.
    pub(crate) fn want(&mut self, secret: &ObjectName, is_wanted: bool) -> Vec<BodyRequest> {
        requests(Kind::Secret, self.secrets.refs.want(secret, is_wanted)).collect()
    }

    /// Returns the Secrets whose key became ours since the last call (true), or is not ours any
    /// more (false).
    pub(crate) fn rekeyed(&mut self) -> impl Iterator<Item = (ObjectName, bool)> {
        self.secrets.refs.rekeyed()
    }

    /// Returns whether the body of an existing Secret or ConfigMap is referred to.
    pub(crate) fn wants(&self, key: &ObjectKey) -> bool {
        self.of(key.kind).refs.wanted(&key.name)
    }

    /// Returns whether objects wait for the body of a Secret or ConfigMap.
    pub(crate) fn awaits(&self, key: &ObjectKey) -> bool {
        self.of(key.kind).bodies.awaited().contains(&key.name)
    }

    /// Fetches the current body.
    pub(crate) fn ask(&mut self, key: ObjectKey) {
        self.of_mut(key.kind).bodies.ask(key.name);
    }

    /// Drops a body.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.of_mut(key.kind).bodies.forget(&key.name);
        self.recheck(key);
    }

    /// Notes that a body is not waited for any more.
    pub(crate) fn recheck(&mut self, key: &ObjectKey) {
        let referrers = self.of(key.kind).refs.referrers(&key.name).cloned();
        let referrers: Vec<ObjectKey> = referrers.collect();
        self.unchecked.extend(referrers);
    }

    /// Notes that a ReferenceGrant has changed: an object may refer to less than before.
    fn recheck_all(&mut self) {
        self.unchecked.extend(self.deferred.keys().cloned());
    }

    /// Defers an object until the bodies that it refers to are fetched, or returns it if there is
    /// nothing to wait for. `asks` is true if a fetch is about to start. A policy on Gateways and
    /// routes never waits: until the body is there it closes what it is attached to, which would be
    /// open without it.
    pub(crate) fn defer(&mut self, object: Object, asks: bool) -> Option<Object> {
        let key = object.key();
        let waits = !matches!(&object, Object::Policy(policy) if policy.is_on_requests());
        if waits && (asks || self.is_waiting(&key)) {
            self.unchecked.insert(key.clone());
            self.deferred.insert(key, object);
            return None;
        }
        self.deferred.remove(&key);
        Some(object)
    }

    fn is_waiting(&self, referrer: &ObjectKey) -> bool {
        self.secrets.is_awaited_by(referrer) || self.config_maps.is_awaited_by(referrer)
    }

    /// Returns the deferred objects that wait for no body any more.
    pub(crate) fn take_ready(&mut self) -> Vec<Object> {
        let mut ready = std::mem::take(&mut self.unchecked);
        ready.retain(|key| !self.is_waiting(key));
        let ready = ready.into_iter();
        ready.filter_map(|key| self.deferred.remove(&key)).collect()
    }

    /// Waits for the result of a fetch; `None` when a delayed retry is due.
    pub(crate) async fn next(&mut self) -> Option<(ObjectKey, Body)> {
        let ((name, body), kind) = tokio::select! {
            fetched = self.secrets.bodies.next() => (fetched?, Kind::Secret),
            fetched = self.config_maps.bodies.next() => (fetched?, Kind::ConfigMap),
        };
        Some((ObjectKey::new(kind, name), body))
    }

    /// Aborts the fetches.
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
