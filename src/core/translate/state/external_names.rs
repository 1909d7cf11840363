//! Wanted names: those of Services of type ExternalName to which some cluster leads, as many as
//! each namespace may have.

use std::collections::BTreeMap;

use super::dirty::Dirty;
use super::endpoints::ServiceEndpoints;
use super::quotas::Quotas;
use gatewright_objects::external_name::{ExternalName, NameResolution};
use gatewright_objects::model::ObjectName;
use gatewright_objects::store::Store;

/// The wanted names, by their Services.
#[derive(Default)]
pub(crate) struct WantedNames(BTreeMap<ObjectName, ExternalName>);

impl WantedNames {
    /// Decides whether the name of a Service is wanted.
    pub(crate) fn decide(
        &mut self,
        service: &ObjectName,
        store: &mut Store,
        quotas: &mut Quotas,
        service_endpoints: &ServiceEndpoints,
        dirty: &mut Dirty,
    ) {
        let found = store
            .service(service)
            .filter(|_| service_endpoints.has_targets(service))
            .and_then(|found| Some((found.meta.created, store.external_name(found)?.ok()?)));
        let created = found.as_ref().map(|(created, _)| *created);
        let others = quotas.count_name(service, created);
        dirty.names.extend(others);
        let name = found
            .map(|(_, name)| name)
            .filter(|_| quotas.resolves(service));
        quotas.count_endpoints(service, store, dirty);
        service_endpoints.touch_endpoints(service, dirty);
        if self.0.get(service) == name.as_ref() {
            return;
        }
        // The addresses were those of another name.
        store.set_resolution(service, None);
        match &name {
            Some(name) => self.0.insert(service.clone(), name.clone()),
            None => self.0.remove(service),
        };
        dirty.want_name(service.clone(), name);
    }

    /// Takes in the addresses of a name. A late answer, to an earlier question, is ignored.
    pub(crate) fn take(
        &self,
        service: &ObjectName,
        resolution: NameResolution,
        store: &mut Store,
        service_endpoints: &ServiceEndpoints,
        dirty: &mut Dirty,
    ) {
        if self.0.get(service) == Some(&resolution.name)
            && store.set_resolution(service, Some(resolution))
        {
            service_endpoints.touch_endpoints(service, dirty);
        }
    }

    /// True if a wanted name has not been resolved yet, with or without success.
    pub(crate) fn wait(&self, store: &Store) -> bool {
        self.0
            .keys()
            .any(|service| store.resolution(service).is_none())
    }
}
