//! What depends on objects: for each type of objects, what is marked when one changes.

use super::super::key::{ParentKey, RouteKey};
use super::super::stage::fleet::{touch_class, touch_fleet, touch_parameters};
use super::super::state::answers;
use super::super::state::dirty::Dirty;
use super::super::state::log_collectors;
use super::Engine;
use super::intake::{touch_parent, touch_route};
use gatewright_objects::inputs::{
    ClusterTrustBundle, ConfigMap, DirectResponse, EndpointSlice, Gateway, GatewayClass,
    GatewayParameters, Kind, ListenerSet, Namespace, Node, ObjectKey, Pod, Policy, ReferenceGrant,
    Route, Secret, Service, TenantGateway,
};
use gatewright_objects::kinds;
use gatewright_objects::model::{ObjectName, xbackend_service};
use gatewright_objects::store::Replaced;

/// A type of objects that others depend on.
trait Marks {
    /// Marks what depends on an object that was put or deleted.
    fn mark(engine: &mut Engine, key: &ObjectKey, replaced: &Replaced, dirty: &mut Dirty);
}

macro_rules! marks_of_kinds {
    (
        $($type:ident($of:ty) |$o:ident| $key:tt $(in $table:ident by $by:ty $(as $get:ident)?)? {
            $($(#[$doc:meta])* $kind:ident $(: $how:ident($read:path) $(else $salvage:path)?)?, $row:expr;)*
        })*
        _ { $($(#[$other_doc:meta])* $other_kind:ident, $other_row:expr;)* }
    ) => {
        impl Engine {
            /// Marks what depends on an object that was put or deleted.
            pub(super) fn mark(&mut self, key: &ObjectKey, replaced: &Replaced, dirty: &mut Dirty) {
                match key.kind {
                    $($(Kind::$kind => <$of as Marks>::mark(self, key, replaced, dirty),)*)*
                    $(Kind::$other_kind => {})*
                }
            }
        }
    };
}

kinds!(marks_of_kinds);

impl Marks for Namespace {
    fn mark(engine: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        let namespace = &key.name.name;
        let store = &engine.store;
        let gateways = store.gateways_in(namespace).into_iter();
        dirty.parents.extend(gateways.map(ParentKey::Gateway));
        let sets = store.sets_in(namespace).into_iter();
        dirty.parents.extend(sets.map(ParentKey::ListenerSet));
        dirty.attachments.extend(store.routes_in(namespace));
        // A label may entitle it to names below another namespace's wildcard, and keeps them from
        // others.
        dirty
            .owned
            .extend(engine.register.denied(namespace).cloned());
        engine.owners().take_label(namespace, dirty);
        engine
            .register
            .allow(namespace, engine.quotas.allowed(namespace).record);
        engine.service_endpoints.touch_namespace(
            namespace,
            &engine.store,
            &engine.frontends,
            dirty,
        );
    }
}

impl Marks for GatewayClass {
    fn mark(engine: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        touch_class(&engine.store, &key.name, dirty);
        engine.touch_classes(dirty);
        engine.take_grants_of_classes(dirty);
    }
}

impl Marks for GatewayParameters {
    fn mark(engine: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        touch_parameters(&engine.store, &key.name, dirty);
        engine.touch_classes(dirty);
        engine.take_grants_of_classes(dirty);
    }
}

impl Marks for Gateway {
    fn mark(_: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        touch_parent(ParentKey::Gateway(key.name.clone()), dirty);
    }
}

impl Marks for ListenerSet {
    fn mark(_: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        dirty.parents.extend(ParentKey::of(key));
    }
}

impl Marks for Route {
    fn mark(_: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        touch_route(
            &RouteKey::of(key).expect("these are kinds of routes"),
            dirty,
        );
    }
}

impl Marks for ReferenceGrant {
    fn mark(engine: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        let namespace = &key.name.namespace;
        let indexes = engine.store.indexes();
        for parent in indexes.parents_across(namespace) {
            dirty.parents.insert(parent.clone());
            dirty.uses.insert(parent.object());
        }
        dirty
            .policies
            .extend(indexes.policies_across(namespace).cloned());
        for route in indexes.routes_across(namespace) {
            dirty.routes.insert(route.clone());
            dirty.charged.insert(route.clone());
            dirty.uses.insert(route.object());
        }
    }
}

impl Marks for Service {
    fn mark(engine: &mut Engine, key: &ObjectKey, replaced: &Replaced, dirty: &mut Dirty) {
        let name = &key.name;
        let store = &engine.store;
        let indexes = store.indexes();
        dirty
            .policies
            .extend(indexes.policies_by_reference(name).cloned());
        for route in indexes.routes_by_service(name) {
            dirty.routes.insert(route.clone());
            // A backend that leads nowhere has a route of its own.
            dirty.charged.insert(route.clone());
        }
        dirty
            .parents
            .extend(indexes.parents_by_service(name).cloned());
        if indexes.policies_by_service(name).next().is_some()
            || engine.policies.prefers_zone(name)
            || store
                .service(name)
                .is_some_and(|service| service.prefers_zone())
        {
            dirty.policed.insert(name.clone());
        }
        engine.service_endpoints.touch_endpoints(name, dirty);
        dirty.names.insert(name.clone());
        engine.gateway_services.take_service(
            name,
            replaced.made_service.as_deref(),
            &engine.store,
            dirty,
        );
        for gateway in engine.parents.standing_on(name) {
            touch_parent(ParentKey::Gateway(gateway.clone()), dirty);
        }
        touch_fleet(&engine.settings, &engine.parents, name, dirty);
        log_collectors::touch_collector(name, &engine.store, dirty);
    }
}

impl Marks for EndpointSlice {
    fn mark(engine: &mut Engine, key: &ObjectKey, replaced: &Replaced, dirty: &mut Dirty) {
        let name = &key.name;
        let services = replaced.service.iter().cloned();
        for service in services.chain(engine.store.service_of_slice(name)) {
            engine.service_endpoints.touch_endpoints(&service, dirty);
            let settings = &engine.settings;
            let envoys = [settings.envoys.as_ref(), settings.dedicated.service()];
            if envoys.contains(&Some(&service)) {
                engine.gateway_services.touch_all(dirty);
                let standing = engine.parents.standing_by_names().cloned();
                dirty.parents.extend(standing.map(ParentKey::Gateway));
            }
            dirty
                .services
                .extend(engine.gateway_services.gateway_behind(&service).cloned());
        }
        engine
            .gateway_services
            .take_slice(name, replaced.made.as_deref(), &engine.store, dirty);
    }
}

impl Marks for Secret {
    fn mark(engine: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        let parents = engine.parents.of_secret(&key.name);
        dirty.parents.extend(parents.cloned());
        let policies = engine.store.indexes().policies_by_reference(&key.name);
        dirty.policies.extend(policies.cloned());
    }
}

impl Marks for ConfigMap {
    fn mark(engine: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        let name = &key.name;
        answers::touch(engine.store.routes_by_body(name), &engine.store, dirty);
        mark_references(engine, name, dirty);
    }
}

impl Marks for ClusterTrustBundle {
    fn mark(engine: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        mark_references(engine, &key.name, dirty);
    }
}

/// Marks the policies and Gateways that refer to a ConfigMap or ClusterTrustBundle.
fn mark_references(engine: &Engine, name: &ObjectName, dirty: &mut Dirty) {
    let indexes = engine.store.indexes();
    dirty
        .policies
        .extend(indexes.policies_by_reference(name).cloned());
    let gateways = indexes.gateways_by_roots(name).cloned();
    dirty.parents.extend(gateways.map(ParentKey::Gateway));
}

impl Marks for Policy {
    fn mark(engine: &mut Engine, key: &ObjectKey, replaced: &Replaced, dirty: &mut Dirty) {
        let store = &engine.store;
        let policies = [replaced.policy.as_ref(), store.policy(key)];
        let services = policies.into_iter().flatten();
        dirty.policed.extend(
            services
                .flat_map(|policy| policy.services())
                .filter(|service| engine.begins_or_ends(service))
                .cloned(),
        );
        if key.kind == Kind::XBackend {
            // Routes say why it cannot be served.
            let service = xbackend_service(&key.name);
            for route in store.indexes().routes_by_service(&service) {
                dirty.routes.insert(route.clone());
                dirty.charged.insert(route.clone());
            }
        }
        dirty.policies.insert(key.clone());
    }
}

impl Marks for DirectResponse {
    fn mark(engine: &mut Engine, key: &ObjectKey, _: &Replaced, dirty: &mut Dirty) {
        let routes = engine.store.routes_by_response(&key.name);
        answers::touch(routes, &engine.store, dirty);
    }
}

/// Services with its addresses are marked by these.
impl Marks for Pod {
    fn mark(_: &mut Engine, _: &ObjectKey, _: &Replaced, _: &mut Dirty) {}
}

/// Services with its addresses are marked by these.
impl Marks for Node {
    fn mark(_: &mut Engine, _: &ObjectKey, _: &Replaced, _: &mut Dirty) {}
}

/// It is an input of tenancy alone.
impl Marks for Box<TenantGateway> {
    fn mark(_: &mut Engine, _: &ObjectKey, _: &Replaced, _: &mut Dirty) {}
}
