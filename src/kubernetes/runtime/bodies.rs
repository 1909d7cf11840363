//! The bodies of Secrets, which are asked for one by one.

use super::KubernetesRuntime;
use crate::lease::Term;
use crate::secrets::body::Body;
use gatewright_core::inputs::{Kind, Object, ObjectKey, Secret, SecretError};
use gatewright_core::model::ObjectName;
use gatewright_core::translate::Change;

impl KubernetesRuntime {
    /// Asks for the body of a Secret.
    pub(super) fn fetch(&mut self, name: ObjectName) {
        self.bodies.ask(name.clone());
        if !self.serving && self.bodies.awaited().contains(&name) {
            self.view.fetching(name.to_string());
        }
    }

    /// Nobody refers to a Secret any more, or it is gone.
    pub(super) fn forget_body(&mut self, name: ObjectName) -> Change {
        self.bodies.forget(&name);
        self.view.fetched(&name.to_string());
        Change::Delete(ObjectKey::new(Kind::Secret, name))
    }

    /// Takes in what came of it.
    pub(super) fn take_body(&mut self, fetched: Option<(ObjectName, Body)>, term: Term) {
        let Some((name, body)) = fetched else { return };
        if !self.bodies.awaited().contains(&name) {
            self.view.fetched(&name.to_string());
        }
        let is_wanted = self.secrets.wanted(&name);
        let change = match body {
            Body::There(object) => Some(Change::Put(*object)),
            // Of a certificate the watch tells; nobody else tells of credentials.
            Body::Gone if !is_wanted => Some(Change::Delete(ObjectKey::new(Kind::Secret, name.clone()))),
            Body::Gone => None,
            // What was read before still serves.
            Body::Refused(_) if self.live.engine().store().secret(&name).is_some() => None,
            Body::Refused(why) => {
                Some(Change::Put(Object::Secret(Secret::without(name.clone(), SecretError::Unread(why)))))
            }
        };
        // It may have gone, or nobody refers to it any more.
        let is_used = is_wanted || self.credentials.contains(&name);
        let change = change.filter(|change| is_used || matches!(change, Change::Delete(_)));
        // It went and came again: who asks whether it was there before is to know.
        let went = self.remembers(&name) && matches!(change, Some(Change::Put(_)));
        let went = went.then(|| Change::Delete(ObjectKey::new(Kind::Secret, name.clone())));
        let waited: Vec<ObjectKey> = self.secrets.referrers(&name).cloned().collect();
        let ready = waited.into_iter().filter_map(|key| self.ready(key));
        let ready: Vec<Change> = ready.collect();
        let changes = went.into_iter().chain(change).chain(ready).collect();
        self.apply(changes, term);
        self.begin(term);
    }

    /// A deferred object, if it waits for no body any more.
    fn ready(&mut self, key: ObjectKey) -> Option<Change> {
        if self.secrets.refers(&key, self.bodies.awaited()) {
            return None;
        }
        self.deferred.remove(&key).map(Change::Put)
    }

    /// Deferred objects that wait for no body any more.
    pub(super) fn all_ready(&mut self) -> Vec<Change> {
        let (secrets, awaited) = (&self.secrets, self.bodies.awaited());
        let wait = |key: &ObjectKey, _: &mut Object| !secrets.refers(key, awaited);
        self.deferred.extract_if(.., wait).map(|(_, object)| Change::Put(object)).collect()
    }
}
