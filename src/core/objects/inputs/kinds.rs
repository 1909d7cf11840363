//! The list of kinds: one row for each, from which come [`Kind`](super::Kind) and
//! [`Object`](super::Object), how a manifest is read, the tables of the store, what is watched, and
//! who writes statuses.

/// Passes the list to a macro, which picks the columns that it needs.
///
/// ```text
/// TYPE |o| [KIND, NAME] in TABLE by KEY as GETTER {
///     KIND: HOW(READER) else SALVAGE, ROW;
/// }
/// ```
///
/// - The type of objects, and of one of them the kind and the name. Several kinds may be read as
///   one type.
/// - The table of the store, its key, and how objects are asked for. A type without a table is kept
///   in another way, or not at all.
/// - For each kind: the method of `Manifest` by which a manifest is read, and the reader; what reads
///   the rest of an object that cannot be read as a whole; and the `KindRow`.
///
/// A kind without a reader is not read from manifests. Kinds that stand last have no objects here.
#[macro_export]
macro_rules! kinds {
    ($pick:ident) => { $pick! {
        Namespace(Namespace) |o| [Kind::Namespace, ObjectName::new("", o.name.clone())] in namespaces by Arc<str> {
            Namespace: whole(Namespace::read),
                KindRow { namespaced: false, content: Content::Metadata, change: ChangeKind::Tenant, ..CORE };
        }
        GatewayClass(GatewayClass) |o| [Kind::GatewayClass, o.meta.name] in classes by ObjectName {
            GatewayClass: spec(GatewayClass::read),
                KindRow { versions: V1_BETA, namespaced: false, status: Some(StatusList::Conditions), ..GATEWAY_API };
        }
        Gateway(Gateway) |o| [Kind::Gateway, o.meta.name] in gateways by ObjectName as gateway {
            Gateway: whole(Gateway::read) else admitted::gateway,
                KindRow { versions: V1_BETA, status: Some(StatusList::Conditions), ..GATEWAY_API };
        }
        ListenerSet(ListenerSet) |o| [o.kind.kind(), o.meta.name] in listener_sets by SetKey as listener_set {
            ListenerSet: spec(ListenerSet::read) else admitted::listener_set,
                KindRow { status: Some(StatusList::Conditions), ..GATEWAY_API };
            /// ListenerSet of Gateway API bundles up to v1.4.
            XListenerSet: by(xlistenerset::read) else admitted::listener_set,
                KindRow { status: Some(StatusList::Conditions), ..EXPERIMENTAL };
        }
        Route(Route) |o| [o.kind.kind(), o.meta.name] in routes by RouteKey as route {
            HTTPRoute: whole(Route::read_http) else admitted::route, KindRow { versions: V1_BETA, ..ROUTE };
            GRPCRoute: whole(Route::read_grpc) else admitted::route, ROUTE;
            // The parts that we read have the same shape in all versions.
            TLSRoute: spec(Route::read_tls) else admitted::route,
                KindRow { versions: &["v1", "v1alpha3", "v1alpha2"], ..ROUTE };
            TCPRoute: spec(Route::read_tcp) else admitted::route, KindRow { versions: &["v1", "v1alpha2"], ..ROUTE };
            UDPRoute: spec(Route::read_udp) else admitted::route, KindRow { versions: &["v1", "v1alpha2"], ..ROUTE };
        }
        ReferenceGrant(ReferenceGrant) |o| [Kind::ReferenceGrant, o.meta.name] in grants by ObjectName {
            ReferenceGrant: spec(ReferenceGrant::read),
                KindRow { versions: V1_BETA, change: ChangeKind::Policy, ..GATEWAY_API };
        }
        Policy(Policy) |o| [o.kind(), o.meta.name] in policies by ObjectKey as policy {
            BackendTLSPolicy: spec(Validation::policy) else Policy::salvage,
                KindRow { versions: &["v1", "v1alpha3"], ..GATEWAY_API }.policy();
            XBackend: spec(Destination::policy) else Policy::salvage,
                KindRow { change: ChangeKind::Service, ..EXPERIMENTAL.policy() };
            XBackendTrafficPolicy: spec(BackendTrafficRules::policy) else Policy::salvage, EXPERIMENTAL.policy();
            TrafficPolicy: spec(TrafficPolicySpec::policy) else Policy::salvage, OWN.policy();
            AccessPolicy: spec(AccessPolicySpec::policy) else Policy::salvage, OWN.policy();
            // A header of the requests to the collector may be a credential.
            XTelemetryPolicy: spec(telemetry_policy::policy) else Policy::salvage,
                KindRow { has_credentials: true, ..EXPERIMENTAL }.policy();
        }
        DirectResponse(DirectResponse) |o| [Kind::DirectResponse, o.meta.name]
            in responses by ObjectName as direct_response {
            DirectResponse: spec(DirectResponse::read) else DirectResponse::salvage,
                KindRow { change: ChangeKind::Route, ..OWN };
        }
        TenantGateway(Box<TenantGateway>) |o| [Kind::TenantGateway, o.name] {
            TenantGateway: by(TenantGateway::read),
                KindRow { group: TENANCY_GROUP, is_of_tenancy: true, status: Some(StatusList::Conditions),
                    change: ChangeKind::Tenant, ..OWN };
        }
        GatewayParameters(GatewayParameters) |o| [Kind::GatewayParameters, o.meta.name]
            in parameters by ObjectName as parameters {
            GatewayParameters: by(GatewayParameters::read), OWN;
        }
        Service(Service) |o| [Kind::Service, o.meta.name] in services by ObjectName as service {
            Service: whole(Service::read), CORE;
        }
        EndpointSlice(EndpointSlice) |o| [Kind::EndpointSlice, o.meta.name] in slices by ObjectName as slice {
            EndpointSlice: whole(EndpointSlice::read) else admitted::endpoint_slice,
                KindRow { group: "discovery.k8s.io", change: ChangeKind::Endpoints, ..CORE };
        }
        Secret(Secret) |o| [Kind::Secret, o.name] in secrets by ObjectName as secret {
            Secret: whole(Secret::read),
                KindRow { has_credentials: true, content: Content::Metadata, change: ChangeKind::Certificate, ..CORE };
        }
        ConfigMap(ConfigMap) |o| [Kind::ConfigMap, o.name] in config_maps by ObjectName as config_map {
            ConfigMap: whole(ConfigMap::read),
                KindRow { content: Content::Metadata, change: ChangeKind::Certificate, ..CORE };
        }
        ClusterTrustBundle(ClusterTrustBundle) |o| [Kind::ClusterTrustBundle, o.name]
            in trust_bundles by ObjectName as trust_bundle {
            ClusterTrustBundle: spec(ClusterTrustBundle::read),
                KindRow { group: "certificates.k8s.io", versions: V1_BETA, namespaced: false,
                    channel: Channel::Experimental, change: ChangeKind::Certificate, ..CORE };
        }
        Pod(Pod) |o| [Kind::Pod, o.0.name] {
            /// Watched in a cluster, and not read from files.
            Pod, KindRow { content: Content::Addresses, change: ChangeKind::Endpoints, ..CORE };
        }
        Node(Node) |o| [Kind::Node, o.0.name] {
            /// Watched in a cluster, and not read from files.
            Node, KindRow { namespaced: false, content: Content::Addresses, change: ChangeKind::Endpoints, ..CORE };
        }
        _ {
            /// cert-manager's Issuer, which we write and do not read from files.
            Issuer, CERT_MANAGER;
            /// cert-manager's Certificate, which we write and do not read from files.
            Certificate, CERT_MANAGER;
        }
    } };
}
