//! The resources that the Envoys of each fleet see after all deltas: together everything that is
//! served, and of other fleets nothing but backends and certificates that both have frontends for.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::state::emissions::backends;
use super::super::{Delta, Engine, Resource, ResourceKey};
use super::World;
use gatewright_objects::model::{ClusterId, EnvoyFleet, SecretName};

/// The resources that each fleet sees.
#[derive(Default, Debug, PartialEq)]
pub(super) struct Seen(BTreeMap<EnvoyFleet, BTreeMap<ResourceKey, Resource>>);

impl Seen {
    /// Applies a delta as the publication does; `before` is the accumulated result of earlier
    /// deltas.
    pub(super) fn take(&mut self, delta: &Delta, before: &World, engine: &Engine) {
        let keys: BTreeSet<&ResourceKey> =
            delta.resources.keys().chain(&delta.fleet_changes).collect();
        for key in keys {
            let now = delta
                .resources
                .get(key)
                .map_or_else(|| before.resources.get(key), Option::as_ref);
            let fleets = engine.fleets(key);
            let isolated = fleets.isolated.iter().cloned().map(EnvoyFleet::Isolated);
            for fleet in isolated.chain(EnvoyFleet::OF_MANY) {
                self.0.entry(fleet).or_default();
            }
            for (fleet, seen) in &mut self.0 {
                match now.filter(|_| fleets.has(fleet)) {
                    Some(resource) => seen.insert(key.clone(), resource.clone()),
                    None => seen.remove(key),
                };
            }
            self.0.retain(|_, seen| !seen.is_empty());
        }
    }

    pub(super) fn check(&self, world: &World, engine: &Engine) -> Result<(), TestCaseError> {
        let of_all: BTreeSet<&ResourceKey> = self.0.values().flat_map(BTreeMap::keys).collect();
        prop_assert_eq!(
            of_all,
            world.resources.keys().collect(),
            "together all that is served"
        );
        for (fleet, seen) in &self.0 {
            for (key, resource) in seen {
                prop_assert_eq!(Some(resource), world.resources.get(key), "as it is served");
                if let Some(frontend) = key.frontend() {
                    prop_assert_eq!(&frontend.fleet(), fleet, "{:?}", key);
                }
            }
            let used: BTreeSet<ResourceKey> = seen
                .values()
                .flat_map(backends)
                .map(ResourceKey::Backend)
                .collect();
            let clusters = seen
                .keys()
                .filter(|key| matches!(key, ResourceKey::Backend(_)))
                .cloned()
                .collect();
            prop_assert_eq!(
                &used,
                &clusters,
                "the backends that it refers to, and no others"
            );
            for key in seen.keys() {
                if let ResourceKey::Endpoints(ClusterId::Backend(id)) = key {
                    prop_assert!(
                        used.contains(&ResourceKey::Backend(id.clone())),
                        "{:?}",
                        key
                    );
                }
            }
            let asked = engine
                .asked_by_sni(fleet)
                .into_iter()
                .map(ResourceKey::Secret);
            let asked: BTreeSet<ResourceKey> = asked
                .filter(|key| world.resources.contains_key(key))
                .collect();
            prop_assert_eq!(
                asked,
                seen.keys()
                    .filter(|key| matches!(key, ResourceKey::Secret(SecretName::Sni(_))))
                    .cloned()
                    .collect(),
                "certificates that clients ask it for"
            );
        }
        Ok(())
    }
}
