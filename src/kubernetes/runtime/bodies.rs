//! The bodies of Secrets and ConfigMaps, which are asked for one by one.

use super::KubernetesRuntime;
use crate::lease::Term;
use crate::secrets::body::Body;
use gatewright_core::inputs::{CaBundleError, ConfigMap, Kind, Object, ObjectChange, ObjectKey, Secret, SecretError};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;

impl KubernetesRuntime {
    /// Asks for the body of a Secret.
    pub(super) fn fetch(&mut self, name: ObjectName) {
        self.bodies.ask(name.clone());
        if !self.serving && self.bodies.awaited().contains(&name) {
            self.view.fetching(ObjectKey::new(Kind::Secret, name).to_string());
        }
    }

    /// Asks for the body of a ConfigMap.
    pub(super) fn fetch_config_map(&mut self, name: ObjectName) {
        self.config_map_bodies.ask(name.clone());
        if !self.serving && self.config_map_bodies.awaited().contains(&name) {
            self.view.fetching(ObjectKey::new(Kind::ConfigMap, name).to_string());
        }
    }

    /// Nobody refers to a Secret or ConfigMap any more, or it is gone.
    pub(super) fn forget_object(&mut self, key: &ObjectKey) {
        match key.kind {
            Kind::ConfigMap => self.config_map_bodies.forget(&key.name),
            _ => self.bodies.forget(&key.name),
        }
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
        if !self.config_map_bodies.awaited().contains(&name) {
            self.view.fetched(&key.to_string());
        }
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
        let ready: Vec<Change> = waited.into_iter().filter_map(|key| self.ready(key)).collect();
        self.apply(change.filter(|_| is_wanted).into_iter().chain(ready).collect(), term);
        self.begin(term);
    }

    /// Takes in what came of it.
    pub(super) fn take_body(&mut self, fetched: Option<(ObjectName, Body)>, term: Term) {
        let Some((name, body)) = fetched else { return };
        if !self.bodies.awaited().contains(&name) {
            self.view.fetched(&ObjectKey::new(Kind::Secret, name.clone()).to_string());
        }
        let is_wanted = self.secrets.wanted(&name);
        let change = match body {
            Body::There(object) => Some(Change::put(*object)),
            // Of a certificate the watch tells; nobody else tells of credentials.
            Body::Gone if !is_wanted => Some(Change::delete(ObjectKey::new(Kind::Secret, name.clone()))),
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
        let key = ObjectKey::new(Kind::Secret, name.clone());
        let went = self.remembers(&key) && matches!(change, Some(Change::Object(ObjectChange::Put(_))));
        let went = went.then(|| Change::delete(key));
        let waited: Vec<ObjectKey> = self.secrets.referrers(&name).cloned().collect();
        let ready = waited.into_iter().filter_map(|key| self.ready(key));
        let ready: Vec<Change> = ready.collect();
        let changes = went.into_iter().chain(change).chain(ready).collect();
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
