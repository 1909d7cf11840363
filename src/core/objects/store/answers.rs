//! DirectResponses, the routes that they answer for, and the ConfigMaps with their bodies.

use std::sync::Arc;

use super::Store;
use crate::inputs::{DirectResponse, RouteKey};
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

    pub(super) fn index_response(
        &mut self,
        old: Option<&DirectResponse>,
        new: Option<&DirectResponse>,
    ) {
        for (response, there) in [(old, false), (new, true)] {
            let Some(response) = response else { continue };
            if let Some(map) = response.config_map() {
                let name = &response.meta.name;
                self.indexes.responses_by_body.set(&map.name, name, there);
            }
        }
    }
}
