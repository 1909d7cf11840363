//! Namespaces with other quotas than all: `limits.overrides` selects them by their labels.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::dirty::Dirty;
use super::super::endpoints::ServiceEndpoints;
use super::{Quotas, touch_endpoints};
use crate::rule::allowance::allowance;
use gatewright_objects::limits::NamespaceLimits;
use gatewright_objects::store::Store;

impl Quotas {
    /// Takes down the limits of a namespace, which its labels may select.
    pub(super) fn note_namespace(
        &mut self,
        namespace: &Arc<str>,
        store: &Store,
        service_endpoints: &ServiceEndpoints,
        dirty: &mut Dirty,
    ) {
        let limits = self.limits.of_namespace(namespace, store.labels(namespace));
        if limits == *self.limits_of(namespace) {
            return;
        }
        if limits == self.limits.namespace {
            self.overridden.remove(namespace);
        } else {
            self.overridden.insert(namespace.clone(), limits);
        }
        self.allow(namespace, &limits, dirty);
        self.leave_to_routes(namespace, dirty);
        let cut = self.of_namespace.allow(namespace, limits.endpoints);
        let services = cut.iter().filter_map(|slice| store.service_of_slice(slice));
        for service in services.collect::<BTreeSet<_>>() {
            touch_endpoints(&service, store, service_endpoints, dirty);
        }
        // Messages name what is allowed, and so does what is too large.
        dirty.parents.extend(
            self.parent_charges
                .keys()
                .filter(|key| key.name().namespace == *namespace)
                .cloned(),
        );
        dirty.charged.extend(store.routes_in(namespace));
        dirty.routes.extend(store.routes_in(namespace));
    }

    /// Sets what the objects of a namespace may have, and marks those whose verdict changes.
    fn allow(&mut self, namespace: &Arc<str>, limits: &NamespaceLimits, dirty: &mut Dirty) {
        let parents = [
            self.parents.allow(namespace, allowance(limits)),
            self.ports.allow(namespace, limits.ports),
            self.isolated.allow(namespace, limits.isolated_gateways),
            self.defaults.allow(namespace, limits.default_gateways),
            self.udp_ports.allow(namespace, limits.udp_ports),
            self.http3.allow(namespace, limits.http3_hosts),
            self.tickets.allow(namespace, limits.session_ticket_hosts),
        ];
        dirty.parents.extend(parents.into_iter().flatten());
        let counted = self.counted_routes.allow(namespace, limits.counted_routes);
        dirty.routes.extend(counted);
        let routes = [
            self.number_of_routes.allow(namespace, limits.routes),
            self.regexes.allow(namespace, limits.regexes),
            self.allow_matching(namespace, limits.matching_micros),
        ];
        self.settle(routes.into_iter().flatten(), dirty);
        self.allow_policies(namespace, limits, dirty);
        let names = self.external_names.allow(namespace, limits.external_names);
        dirty.names.extend(names);
    }

    /// Leaves to the routes of a namespace what its Gateways and ListenerSets do not take.
    pub(super) fn leave_to_routes(&mut self, namespace: &Arc<str>, dirty: &mut Dirty) {
        let left = self.allowed(namespace).less(self.parents.used(namespace));
        dirty.routes.extend(self.routes.allow(namespace, left));
    }
}
