//! Keeps the indexes of the store up to date with its objects.

use std::sync::Arc;

use super::{Store, parent_key, reached, responses, targets};
use crate::inputs::{
    EndpointSlice, Gateway, GatewayClass, GatewayParameters, Kind, ListenerFilter, ListenerSet,
    LocalRef, ObjectKey, ParentKey, Route, RouteKey, SinkParameters,
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

impl Store {
    pub(super) fn index_class(&mut self, old: Option<&GatewayClass>, new: Option<&GatewayClass>) {
        for (class, there) in [(old, false), (new, true)] {
            let target =
                class.and_then(|class| Some((class, class.parameters.as_ref()?.target()?)));
            if let Some((class, target)) = target {
                let key = ObjectKey::new(Kind::GatewayClass, class.meta.name.clone());
                self.indexes.users_of_parameters.set(&target, &key, there);
            }
        }
    }

    pub(super) fn index_parameters(
        &mut self,
        old: Option<&GatewayParameters>,
        new: Option<&GatewayParameters>,
    ) {
        for (parameters, there) in [(old, false), (new, true)] {
            let Some(parameters) = parameters else {
                continue;
            };
            let name = &parameters.meta.name;
            for service in collectors(parameters) {
                let service = ObjectName::new(name.namespace.clone(), service.clone());
                self.indexes
                    .parameters_by_collector
                    .set(&service, name, there);
            }
        }
    }

    pub(super) fn index_gateway(&mut self, old: Option<&Gateway>, new: Option<&Gateway>) {
        for (gateway, there) in [(old, false), (new, true)] {
            let Some(gateway) = gateway else { continue };
            let name = &gateway.meta.name;
            let key = ParentKey::Gateway(name.clone());
            if there {
                self.indexes
                    .gateways_by_class
                    .insert(gateway.class.clone(), name.clone());
            } else {
                self.indexes.gateways_by_class.remove(&gateway.class, name);
            }
            let parameters = gateway
                .infrastructure
                .as_ref()
                .and_then(|i| i.parameters.as_ref()?.target());
            if let Some(target) = parameters {
                self.indexes
                    .users_of_parameters
                    .set(&target, &key.object(), there);
            }
            self.index_listeners(&key, &gateway.listeners, there);
            if let Some(client) = &gateway.client_certificate {
                self.index_across(&key, client, there);
            }
            for reference in gateway.frontend_tls.iter().flat_map(|tls| tls.references()) {
                self.indexes
                    .gateways_by_roots
                    .set(&reference.name, name, there);
                self.index_across(&key, reference, there);
            }
        }
    }

    pub(super) fn index_listener_set(
        &mut self,
        old: Option<&ListenerSet>,
        new: Option<&ListenerSet>,
    ) {
        for (set, there) in [(old, false), (new, true)] {
            let Some(set) = set else { continue };
            if let Some(parent) = &set.parent {
                self.indexes.sets_by_gateway.set(parent, &set.key(), there);
            }
            self.index_listeners(&ParentKey::ListenerSet(set.key()), &set.listeners, there);
        }
    }

    pub(super) fn index_listeners(
        &mut self,
        key: &ParentKey,
        listeners: &[Arc<crate::inputs::Listener>],
        there: bool,
    ) {
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

    pub(super) fn index_route(&mut self, key: &RouteKey, old: Option<&Route>, new: Option<&Route>) {
        for (route, there) in [(old, false), (new, true)] {
            let Some(route) = route else { continue };
            self.index_parents(key, route, there);
            if route.uses_defaults && there {
                self.defaulted.insert(key.clone());
            } else {
                self.defaulted.remove(key);
            }
            for response in responses(route) {
                self.indexes.routes_by_response.set(response, key, there);
            }
            let namespace = &route.meta.name.namespace;
            for target in targets(route) {
                let across = target.namespace != *namespace;
                if there {
                    self.indexes
                        .routes_by_service
                        .insert(target.clone(), key.clone());
                    across.then(|| {
                        self.indexes
                            .routes_across
                            .insert(target.namespace.clone(), key.clone())
                    });
                } else {
                    self.indexes.routes_by_service.remove(target, key);
                    across.then(|| self.indexes.routes_across.remove(&target.namespace, key));
                }
            }
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

    pub(super) fn index_slice(&mut self, old: Option<&EndpointSlice>, new: Option<&EndpointSlice>) {
        if let Some((slice, service)) = old.and_then(|slice| Some((slice, slice.service.as_ref()?)))
        {
            self.indexes
                .slices_by_service
                .remove(service, &slice.meta.name);
        }
        if let Some((slice, service)) = new.and_then(|slice| Some((slice, slice.service.as_ref()?)))
        {
            self.indexes
                .slices_by_service
                .insert(service.clone(), slice.meta.name.clone());
        }
    }
}
