//! DirectResponses, the routes that they answer for, and the ConfigMaps with their bodies.

use std::sync::Arc;

use super::tables::Stored;
use super::{Replaced, Store};
use crate::inputs::{DirectResponse, ObjectKey, RouteKey};
use crate::model::ObjectName;

impl Store {
    /// A DirectResponse by name.
    pub fn direct_response(&self, name: &ObjectName) -> Option<&Arc<DirectResponse>> {
        self.responses.get(name)
    }

    /// The routes that a DirectResponse answers for.
    pub fn routes_by_response(&self, name: &ObjectName) -> impl Iterator<Item = &RouteKey> {
        self.indexes.routes_by_response.of(name)
    }

    /// The routes that a DirectResponse answers for whose body is in a ConfigMap.
    pub fn routes_by_body(&self, map: &ObjectName) -> impl Iterator<Item = &RouteKey> {
        let responses = self.indexes.responses_by_body.of(map);
        responses.flat_map(|name| self.indexes.routes_by_response.of(name))
    }

    fn index_response(&mut self, old: Option<&DirectResponse>, new: Option<&DirectResponse>) {
        for (response, there) in [(old, false), (new, true)] {
            let Some(response) = response else { continue };
            if let Some(map) = response.config_map() {
                let name = &response.meta.name;
                self.indexes.responses_by_body.set(&map.name, name, there);
            }
        }
    }
}

impl Stored for DirectResponse {
    fn put(self, key: &ObjectKey, store: &mut Store) -> Option<Replaced> {
        let new = Arc::new(self);
        let old = store.responses.insert(key.name.clone(), new.clone());
        if old.as_ref() == Some(&new) {
            return None;
        }
        store.index_response(old.as_deref(), Some(&new));
        Some(Replaced::default())
    }

    fn delete(key: &ObjectKey, store: &mut Store) -> Option<Replaced> {
        let old = store.responses.remove(&key.name)?;
        store.index_response(Some(&old), None);
        Some(Replaced::default())
    }

    fn is_held(&self, key: &ObjectKey, store: &Store) -> bool {
        let stored = store.responses.get(&key.name);
        stored.is_some_and(|stored| **stored == *self)
    }
}
