//! The bodies of Secrets and ConfigMaps, which are asked for one by one.

use super::KubernetesRuntime;
use crate::lease::Term;
use crate::secrets::body::{Bodies, Body};
use gatewright_core::inputs::{CaBundleError, ConfigMap, Kind, Object, ObjectChange, ObjectKey, Secret, SecretError};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;

impl KubernetesRuntime {
    /// The bodies of ConfigMaps, or of Secrets.
    fn bodies_of(&mut self, kind: Kind) -> &mut Bodies {
        if kind == Kind::ConfigMap { &mut self.config_map_bodies } else { &mut self.bodies }
    }

    /// Asks for the body of a Secret or ConfigMap.
    pub(super) fn fetch(&mut self, key: ObjectKey) {
        let bodies = self.bodies_of(key.kind);
        bodies.ask(key.name.clone());
        let is_awaited = bodies.awaited().contains(&key.name);
        if !self.serving && is_awaited {
            self.view.fetching(key.to_string());
        }
    }

    /// Takes down that the body of a Secret or ConfigMap came, unless it was asked for again meanwhile.
    fn arrived(&mut self, key: &ObjectKey) {
        if !self.bodies_of(key.kind).awaited().contains(&key.name) {
            self.view.fetched(&key.to_string());
        }
    }

    /// Nobody refers to a Secret or ConfigMap any more, or it is gone.
    pub(super) fn forget_object(&mut self, key: &ObjectKey) {
        self.bodies_of(key.kind).forget(&key.name);
        self.view.fetched(&key.to_string());
    }

    /// Nobody refers to a Secret any more, or it is gone.
    pub(super) fn forget_body(&mut self, name: ObjectName) -> Change {
        let key = ObjectKey::new(Kind::Secret, name);
        self.forget_object(&key);
        Change::delete(key)
    }

    /// Takes in what came of asking for the body of a ConfigMap.
    pub(super) fn take_config_map(&mut self, fetched: Option<(ObjectName, Body)>, term: Term) {
        let Some((name, body)) = fetched else { return };
        let key = ObjectKey::new(Kind::ConfigMap, name.clone());
        self.arrived(&key);
        let is_wanted = self.config_maps.wanted(&name);
        let change = match body {
            Body::There(object) => Some(Change::put(*object)),
            // The watch tells of it.
            Body::Gone => None,
            // What was read before still holds.
            Body::Refused(_) if self.live.engine().store().config_map(&name).is_some() => None,
            Body::Refused(why) => {
                Some(Change::put(Object::ConfigMap(ConfigMap::without(name.clone(), CaBundleError::Unread(why)))))
            }
        };
        if is_wanted {
            self.remembers(&key);
        }
        let waited: Vec<ObjectKey> = self.config_maps.referrers(&name).cloned().collect();
        self.take_change(change.filter(|_| is_wanted).into_iter().collect(), waited, term);
    }

    /// Takes in what came of asking for the body of a Secret.
    pub(super) fn take_body(&mut self, fetched: Option<(ObjectName, Body)>, term: Term) {
        let Some((name, body)) = fetched else { return };
        let key = ObjectKey::new(Kind::Secret, name.clone());
        self.arrived(&key);
        let is_wanted = self.secrets.wanted(&name);
        let change = match body {
            Body::There(object) => Some(Change::put(*object)),
            // Of a certificate the watch tells; nobody else tells of credentials.
            Body::Gone if !is_wanted => Some(Change::delete(key.clone())),
            Body::Gone => None,
            // What was read before still serves.
            Body::Refused(_) if self.live.engine().store().secret(&name).is_some() => None,
            Body::Refused(why) => {
                Some(Change::put(Object::Secret(Secret::without(name.clone(), SecretError::Unread(why)))))
            }
        };
        // It may have gone, or nobody refers to it any more.
        let is_used = is_wanted || self.credentials.contains(&name);
        let change = change.filter(|change| is_used || matches!(change, Change::Object(ObjectChange::Delete(_))));
        // It went and came again: who asks whether it was there before is to know.
        let went = self.remembers(&key) && matches!(change, Some(Change::Object(ObjectChange::Put(_))));
        let went = went.then(|| Change::delete(key));
        let waited: Vec<ObjectKey> = self.secrets.referrers(&name).cloned().collect();
        self.take_change(went.into_iter().chain(change).collect(), waited, term);
    }

    /// Applies what came of a body, and the objects that waited for it and wait for no other one.
    fn take_change(&mut self, mut changes: Vec<Change>, waited: Vec<ObjectKey>, term: Term) {
        changes.extend(waited.into_iter().filter_map(|key| self.ready(key)));
        self.apply(changes, term);
        self.begin(term);
    }

    /// A deferred object, if it waits for no body any more.
    fn ready(&mut self, key: ObjectKey) -> Option<Change> {
        if self.waits_for_bodies(&key) {
            return None;
        }
        self.deferred.remove(&key).map(Change::put)
    }

    /// Deferred objects that wait for no body any more.
    pub(super) fn all_ready(&mut self) -> Vec<Change> {
        let Self { secrets, bodies, config_maps, config_map_bodies, deferred, .. } = self;
        let is_ready = |key: &ObjectKey, _: &mut Object| {
            !secrets.refers(key, bodies.awaited()) && !config_maps.refers(key, config_map_bodies.awaited())
        };
        deferred.extract_if(.., is_ready).map(|(_, object)| Change::put(object)).collect()
    }

    /// Whether an object refers to a body that is on its way.
    pub(super) fn waits_for_bodies(&self, key: &ObjectKey) -> bool {
        self.secrets.refers(key, self.bodies.awaited())
            || self.config_maps.refers(key, self.config_map_bodies.awaited())
    }
}
