//! Keeps the indexes of the store up to date with its objects.

use std::sync::Arc;

use super::tables::Indexed;
use super::{Replaced, Store, parent_key, reached, responses, targets};
use crate::inputs::{
    EndpointSlice, Gateway, GatewayClass, GatewayParameters, Kind, ListenerFilter, ListenerSet,
    LocalRef, ObjectKey, ParametersRef, ParentKey, Route, RouteKey, SinkParameters,
};
use crate::model::ObjectName;

/// The names of the Services of collectors that parameters refer to.
fn collectors(parameters: &GatewayParameters) -> impl Iterator<Item = &Arc<str>> {
    let log = parameters
        .spec
        .iter()
        .filter_map(|spec| spec.access_log.as_ref());
    let sinks = log.flat_map(|log| log.sinks.iter().flatten());
    sinks.filter_map(|sink| match sink {
        SinkParameters::OpenTelemetry(collector) => Some(&collector.service),
        SinkParameters::Stdout | SinkParameters::File => None,
    })
}

impl Indexed for GatewayClass {
    fn index(&self, store: &mut Store, there: bool) {
        let parameters = self.parameters.as_ref();
        if let Some(target) = parameters.and_then(ParametersRef::target) {
            let key = ObjectKey::new(Kind::GatewayClass, self.meta.name.clone());
            store.indexes.users_of_parameters.set(&target, &key, there);
        }
    }
}

impl Indexed for GatewayParameters {
    fn index(&self, store: &mut Store, there: bool) {
        let name = &self.meta.name;
        for service in collectors(self) {
            let service = ObjectName::new(name.namespace.clone(), service.clone());
            let indexes = &mut store.indexes;
            indexes.parameters_by_collector.set(&service, name, there);
        }
    }
}

impl Indexed for Gateway {
    fn index(&self, store: &mut Store, there: bool) {
        let name = &self.meta.name;
        let key = ParentKey::Gateway(name.clone());
        let indexes = &mut store.indexes;
        indexes.gateways_by_class.set(&self.class, name, there);
        let parameters = self
            .infrastructure
            .as_ref()
            .and_then(|i| i.parameters.as_ref()?.target());
        if let Some(target) = parameters {
            let indexes = &mut store.indexes;
            indexes
                .users_of_parameters
                .set(&target, &key.object(), there);
        }
        store.index_listeners(&key, &self.listeners, there);
        if let Some(client) = &self.client_certificate {
            store.index_across(&key, client, there);
        }
        for reference in self.frontend_tls.iter().flat_map(|tls| tls.references()) {
            let indexes = &mut store.indexes;
            indexes.gateways_by_roots.set(&reference.name, name, there);
            store.index_across(&key, reference, there);
        }
    }
}

impl Indexed for ListenerSet {
    fn index(&self, store: &mut Store, there: bool) {
        if let Some(parent) = &self.parent {
            store
                .indexes
                .sets_by_gateway
                .set(parent, &self.key(), there);
        }
        store.index_listeners(&ParentKey::ListenerSet(self.key()), &self.listeners, there);
    }
}

impl Indexed for Route {
    fn index(&self, store: &mut Store, there: bool) {
        let key = &RouteKey::of_route(self);
        store.index_parents(key, self, there);
        if self.uses_defaults && there {
            store.defaulted.insert(key.clone());
        } else {
            store.defaulted.remove(key);
        }
        let indexes = &mut store.indexes;
        for hostname in self.hostnames.iter().flatten() {
            indexes
                .objects_by_hostname
                .set(hostname, &key.object(), there);
        }
        for response in responses(self) {
            indexes.routes_by_response.set(response, key, there);
        }
        let namespace = &self.meta.name.namespace;
        for target in targets(self) {
            indexes.routes_by_service.set(target, key, there);
            if target.namespace != *namespace {
                indexes.routes_across.set(&target.namespace, key, there);
            }
        }
    }
}

impl Indexed for EndpointSlice {
    fn index(&self, store: &mut Store, there: bool) {
        if let Some(service) = &self.service {
            let indexes = &mut store.indexes;
            indexes
                .slices_by_service
                .set(service, &self.meta.name, there);
        }
    }

    fn replaced(store: &mut Store, old: Option<&Arc<Self>>, new: Option<&Arc<Self>>) -> Replaced {
        let addresses = store
            .reserved
            .slice(old.map(Arc::as_ref), new.map(Arc::as_ref));
        Replaced {
            service: old.and_then(|old| old.service.clone()),
            made: old.and_then(|old| old.made.clone()),
            addresses,
            ..Replaced::default()
        }
    }
}

impl Store {
    pub(super) fn index_listeners(
        &mut self,
        key: &ParentKey,
        listeners: &[Arc<crate::inputs::Listener>],
        there: bool,
    ) {
        let object = key.object();
        for hostname in listeners.iter().filter_map(|of| of.hostname.as_ref().ok()) {
            let indexes = &mut self.indexes;
            indexes.objects_by_hostname.set(hostname, &object, there);
        }
        let references = listeners
            .iter()
            .filter_map(|l| l.tls.as_ref())
            .flat_map(|tls| &tls.certificates);
        references.for_each(|reference| self.index_across(key, reference, there));
        for auth in listeners
            .iter()
            .flat_map(|l| &l.filters)
            .filter_map(ListenerFilter::auth)
        {
            self.indexes
                .parents_by_service
                .set(&auth.server.name, key, there);
            self.index_across(key, &auth.server, there);
        }
    }

    pub(super) fn index_across(&mut self, key: &ParentKey, reference: &LocalRef, there: bool) {
        if reference.name.namespace != key.name().namespace {
            self.indexes
                .parents_across
                .set(&reference.name.namespace, key, there);
        }
    }

    /// Updates the index of routes by the parents whose listeners they may reach.
    pub(super) fn index_parents(&mut self, key: &RouteKey, route: &Route, there: bool) {
        let grants = self.granted.get(key);
        for parent in route.parents.iter() {
            let Some(mut parent) = parent_key(parent, &route.meta.name.namespace) else {
                continue;
            };
            self.interner.name(parent.name_mut());
            let grant = grants.and_then(|grants| grants.at(&parent));
            if grant.is_some() {
                self.indexes.granted_by_parent.set(&parent, key, there);
            }
            for reached in reached(&parent, grant) {
                self.indexes.routes_by_parent.set(&reached, key, there);
            }
        }
    }
}
