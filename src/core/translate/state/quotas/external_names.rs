//! Names of Services of type ExternalName and of XBackends: how many are resolved, and their
//! addresses, which count as endpoints do.

use super::super::dirty::Dirty;
use super::{Quotas, one_too_many};
use gatewright_objects::external_name::ADDRESSES;
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::quota::Member;
use gatewright_objects::store::Store;

impl Quotas {
    /// Counts the name of a Service that was created then, or no longer. Returns the other Services
    /// whose verdict changes.
    pub(crate) fn count_name(
        &mut self,
        service: &ObjectName,
        created: Option<i64>,
    ) -> Vec<ObjectName> {
        let member = created.map(|created| Member::one(service.namespace.clone(), created));
        self.external_names.set(service, member)
    }

    /// True if the name of a Service is among those of its namespace that are resolved.
    pub(crate) fn resolves(&self, service: &ObjectName) -> bool {
        self.external_names.has(service)
    }

    /// Why the name of a Service is not resolved, if it is one too many.
    pub(crate) fn name_beyond(&self, service: &ObjectName) -> Option<(Reason, String)> {
        let namespace = &service.namespace;
        let most = self.limits_of(namespace).external_names;
        let limit = format!("externalNames {most}");
        let text = || {
            one_too_many(
                "Services of type ExternalName and XBackends",
                namespace,
                &limit,
            )
        };
        (!self.resolves(service)).then(text)
    }

    /// Takes down how many endpoints a Service has by its name.
    pub(crate) fn count_endpoints(
        &mut self,
        service: &ObjectName,
        store: &Store,
        dirty: &mut Dirty,
    ) {
        self.round(service, store, dirty);
    }

    /// The endpoints with which a Service is counted for its name: the most that it may have, times
    /// ports. Replicas may know other addresses of a name, and count the same.
    pub(super) fn named_endpoints(&self, service: &ObjectName, store: &Store) -> u64 {
        let ports = store.service(service).map_or(0, |found| found.ports.len());
        if self.resolves(service) && self.external_names.member(service).is_some() {
            (ADDRESSES as u64).saturating_mul(ports as u64)
        } else {
            0
        }
    }
}
