//! DirectResponses, the routes that they answer for, and the ConfigMaps with their bodies.

use super::Store;
use super::tables::Indexed;
use crate::inputs::{DirectResponse, RouteKey};
use crate::model::ObjectName;

impl Store {
    /// The routes that a DirectResponse answers for.
    pub fn routes_by_response(&self, name: &ObjectName) -> impl Iterator<Item = &RouteKey> {
        self.indexes.routes_by_response.of(name)
    }

    /// The routes that a DirectResponse answers for whose body is in a ConfigMap.
    pub fn routes_by_body(&self, map: &ObjectName) -> impl Iterator<Item = &RouteKey> {
        let responses = self.indexes.responses_by_body.of(map);
        responses.flat_map(|name| self.indexes.routes_by_response.of(name))
    }
}

impl Indexed for DirectResponse {
    fn index(&self, store: &mut Store, there: bool) {
        if let Some(map) = self.config_map() {
            let name = &self.meta.name;
            store.indexes.responses_by_body.set(&map.name, name, there);
        }
    }
}
