//! The indexes of the store: from referenced objects to the objects that refer to them.

use std::sync::Arc;

use crate::inputs::{Kind, ObjectKey, ParentKey, RouteKey, SetKey};
use crate::model::{Hostname, ObjectName};
use crate::multimap::MultiMap;

/// The indexes. The store updates them with each object; others look up.
#[derive(Default)]
pub struct Indexes {
    /// Gateways by GatewayClass.
    pub(super) gateways_by_class: MultiMap<String, ObjectName>,
    /// Gateways and GatewayClasses by the GatewayParameters that they refer to.
    pub(super) users_of_parameters: MultiMap<ObjectName, ObjectKey>,
    /// GatewayParameters by the Services of collectors that they refer to.
    pub(super) parameters_by_collector: MultiMap<ObjectName, ObjectName>,
    /// Gateways by the ConfigMaps and ClusterTrustBundles that they refer to.
    pub(super) gateways_by_roots: MultiMap<ObjectName, ObjectName>,
    /// ListenerSets by the Gateway that they extend.
    pub(super) sets_by_gateway: MultiMap<ObjectName, SetKey>,
    /// Routes by the parents whose listeners they may reach.
    pub(super) routes_by_parent: MultiMap<ParentKey, RouteKey>,
    /// Gateways, ListenerSets and routes by the hostnames that they name.
    pub(super) objects_by_hostname: MultiMap<Hostname, ObjectKey>,
    /// Routes whose hostnames tenancy decides, by the parents that they refer to.
    pub(super) granted_by_parent: MultiMap<ParentKey, RouteKey>,
    /// Routes by the Services that they refer to.
    pub(super) routes_by_service: MultiMap<ObjectName, RouteKey>,
    /// Routes by the DirectResponses that they refer to.
    pub(super) routes_by_response: MultiMap<ObjectName, RouteKey>,
    /// DirectResponses by the ConfigMaps with their bodies.
    pub(super) responses_by_body: MultiMap<ObjectName, ObjectName>,
    /// Parents by the Services that filters of their listeners name.
    pub(super) parents_by_service: MultiMap<ObjectName, ParentKey>,
    /// EndpointSlices by Service.
    pub(super) slices_by_service: MultiMap<ObjectName, ObjectName>,
    /// Policies by their targets.
    pub(super) policies_by_target: MultiMap<ObjectKey, ObjectKey>,
    /// Policies by the objects of any kind that they refer to.
    pub(super) policies_by_reference: MultiMap<ObjectName, ObjectKey>,
    /// Policies that refer into another namespace, by that namespace.
    pub(super) policies_across: MultiMap<Arc<str>, ObjectKey>,
    /// Routes that refer into another namespace, by that namespace.
    pub(super) routes_across: MultiMap<Arc<str>, RouteKey>,
    /// Parents that refer into another namespace, by that namespace.
    pub(super) parents_across: MultiMap<Arc<str>, ParentKey>,
}

impl Indexes {
    /// The Gateways of a GatewayClass.
    pub fn gateways_by_class<'a>(
        &'a self,
        class: &str,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.gateways_by_class.of(class)
    }

    /// The Gateways and GatewayClasses that refer to GatewayParameters.
    pub fn users_of_parameters<'a>(
        &'a self,
        parameters: &ObjectName,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.users_of_parameters.of(parameters)
    }

    /// The GatewayParameters with a log sink that is a Service.
    pub fn parameters_by_collector<'a>(
        &'a self,
        service: &ObjectName,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.parameters_by_collector.of(service)
    }

    /// The Gateways that refer to a ConfigMap or ClusterTrustBundle.
    pub fn gateways_by_roots<'a>(
        &'a self,
        roots: &ObjectName,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.gateways_by_roots.of(roots)
    }

    /// The ListenerSets that extend a Gateway.
    pub fn sets_by_gateway<'a>(
        &'a self,
        gateway: &ObjectName,
    ) -> impl Iterator<Item = &'a SetKey> + use<'a> {
        self.sets_by_gateway.of(gateway)
    }

    /// The Gateways, ListenerSets and routes that name a hostname.
    pub fn objects_by_hostname<'a>(
        &'a self,
        hostname: &Hostname,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.objects_by_hostname.of(hostname)
    }

    /// The routes whose hostnames tenancy decides at a parent that they refer to.
    pub fn granted_by_parent<'a>(
        &'a self,
        parent: &ParentKey,
    ) -> impl Iterator<Item = &'a RouteKey> + use<'a> {
        self.granted_by_parent.of(parent)
    }

    /// The routes that refer to a Service.
    pub fn routes_by_service<'a>(
        &'a self,
        service: &ObjectName,
    ) -> impl Iterator<Item = &'a RouteKey> + use<'a> {
        self.routes_by_service.of(service)
    }

    /// The parents with a filter of a listener that names a Service.
    pub fn parents_by_service<'a>(
        &'a self,
        service: &ObjectName,
    ) -> impl Iterator<Item = &'a ParentKey> + use<'a> {
        self.parents_by_service.of(service)
    }

    /// The policies that target an object.
    pub fn policies_by_target<'a>(
        &'a self,
        target: &ObjectKey,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.policies_by_target.of(target)
    }

    /// The policies that target a Service.
    pub fn policies_by_service<'a>(
        &'a self,
        service: &ObjectName,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.policies_by_target(&ObjectKey::new(Kind::Service, service.clone()))
    }

    /// The policies that refer to a Secret, ConfigMap, ClusterTrustBundle or Service of this name.
    pub fn policies_by_reference<'a>(
        &'a self,
        name: &ObjectName,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.policies_by_reference.of(name)
    }

    /// The policies of other namespaces that refer into a namespace: a ReferenceGrant there affects
    /// them.
    pub fn policies_across<'a>(
        &'a self,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.policies_across.of(namespace)
    }

    /// The routes of other namespaces that refer into a namespace: a ReferenceGrant there affects
    /// them.
    pub fn routes_across<'a>(
        &'a self,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = &'a RouteKey> + use<'a> {
        self.routes_across.of(namespace)
    }

    /// The parents of other namespaces that refer into a namespace: a ReferenceGrant there affects
    /// them.
    pub fn parents_across<'a>(
        &'a self,
        namespace: &Arc<str>,
    ) -> impl Iterator<Item = &'a ParentKey> + use<'a> {
        self.parents_across.of(namespace)
    }
}
