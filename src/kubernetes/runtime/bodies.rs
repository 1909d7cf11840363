//! Fetches the bodies of Secrets and ConfigMaps one by one.

use super::KubernetesRuntime;
use crate::lease::Term;
use crate::secrets::body::Body;
use crate::secrets::references::BodyRequest;
use gatewright_core::inputs::{
    CaBundleError, ConfigMap, Kind, Object, ObjectChange, ObjectKey, Secret, SecretError,
};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;

impl KubernetesRuntime {
    /// Fetches bodies, or drops them, in this order. Returns the objects whose bodies are dropped.
    pub(super) fn request_bodies(&mut self, requests: Vec<BodyRequest>) -> Vec<ObjectKey> {
        let mut forgotten = Vec::new();
        for request in requests {
            match request {
                BodyRequest::Fetch(key) => self.fetch(key),
                BodyRequest::Forget(key) => {
                    self.forget_body(&key);
                    forgotten.push(key);
                }
            }
        }
        forgotten
    }

    /// Fetches the body of a Secret or ConfigMap.
    pub(super) fn fetch(&mut self, key: ObjectKey) {
        self.references.ask(key.clone());
        if !self.serving && self.references.awaits(&key) {
            self.view.fetching(key.to_string());
        }
    }

    /// Drops the body of a Secret or ConfigMap that was deleted, or that no object refers to any
    /// more.
    pub(super) fn forget_body(&mut self, key: &ObjectKey) {
        self.references.forget(key);
        self.view.fetched(&key.to_string());
    }

    /// Takes in the result of a fetch.
    pub(super) fn take_body(&mut self, fetched: Option<(ObjectKey, Body)>, term: Term) {
        let Some((key, body)) = fetched else { return };
        if !self.references.awaits(&key) {
            self.view.fetched(&key.to_string());
        }
        let mut changes = match key.kind {
            Kind::ConfigMap => self.change_of_config_map(&key, body).into_iter().collect(),
            _ => self.changes_of_secret(&key, body),
        };
        self.references.recheck(&key);
        changes.extend(self.references.take_ready().into_iter().map(Change::put));
        self.apply(changes, term);
        self.begin(term);
    }

    /// Returns the change that the body of a ConfigMap makes.
    fn change_of_config_map(&mut self, key: &ObjectKey, body: Body) -> Option<Change> {
        if !self.references.wants(key) {
            return None;
        }
        let was_dropped = self.queued.remembers(key);
        let is_held = !was_dropped && self.live.engine().store().config_map(&key.name).is_some();
        match body {
            Body::There(mut object) => {
                // Before it waits for others, together with all that were read.
                object.drop_over_limit(self.live.engine().object_limits());
                Some(Change::put(*object))
            }
            // The watch reports the deletion.
            Body::Gone => None,
            // The body that was read before stays valid.
            Body::Refused(_) if is_held => None,
            Body::Refused(why) => {
                let unread = ConfigMap::without(key.name.clone(), CaBundleError::Unread(why));
                Some(Change::put(Object::ConfigMap(unread)))
            }
        }
    }

    /// Returns the changes that the body of a Secret makes.
    fn changes_of_secret(&mut self, key: &ObjectKey, body: Body) -> Vec<Change> {
        let is_wanted = self.references.wants(key);
        let was_dropped = self.queued.remembers(key);
        let is_held = !was_dropped && self.live.engine().store().secret(&key.name).is_some();
        let change = match body {
            Body::There(object) => Some(Change::put(*object)),
            // The watch reports the deletion of a Secret with a certificate, but not of one with
            // credentials.
            Body::Gone if !is_wanted => Some(Change::delete(key.clone())),
            Body::Gone => None,
            // The body that was read before stays in use.
            Body::Refused(_) if is_held => None,
            Body::Refused(why) => Some(Change::put(Object::Secret(Secret::without(
                key.name.clone(),
                SecretError::Unread(why),
            )))),
        };
        // The Secret may have been deleted, or no object refers to it any more.
        let is_used = is_wanted || self.certificates.uses(&key.name);
        let change = change
            .filter(|change| is_used || matches!(change, Change::Object(ObjectChange::Delete(_))));
        // The Secret was deleted and created again: its deletion has to be applied too, for those
        // who ask whether it existed before.
        let went = was_dropped && matches!(change, Some(Change::Object(ObjectChange::Put(_))));
        let went = went.then(|| Change::delete(key.clone()));
        went.into_iter().chain(change).collect()
    }

    /// Returns the deletion of a Secret that no object refers to any more.
    pub(super) fn drop_secret(&mut self, name: ObjectName) -> Change {
        let key = ObjectKey::new(Kind::Secret, name);
        self.forget_body(&key);
        Change::delete(key)
    }
}
