//! Clusters of backends.

use super::dirty::Dirty;
use super::emissions::Emissions;
use super::policies::Policies;
use crate::delta::{Resource, ResourceKey};
use gatewright_objects::model::{Backend, BackendId, Cluster};

/// Compiles a backend, or removes it if no resource refers to it any more.
pub(crate) fn compile_backend(
    id: BackendId,
    policies: &Policies,
    emissions: &mut Emissions,
    dirty: &mut Dirty,
) {
    let is_used = emissions.backends().is_used(&id);
    let resource = is_used
        .then(|| Backend {
            transport: policies.transport(&id),
            retries: policies.retries(&id),
            settings: policies.settings_at(&id.port),
            id: id.clone(),
        })
        .map(|backend| Resource::Cluster(Cluster::Backend(backend)));
    emissions.emit(ResourceKey::Backend(id), resource, dirty);
}
