//! The exposure of a Gateway: at addresses of its own, at those that all Gateways of a fleet share,
//! or by a Service.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::key::{ListenerId, ParentKey};
use crate::rule::access_logs::{access_log, default_log};
use crate::rule::gateway_exposure::{Fleet, GatewayExposure, PolicyAllowance, SHARED, is_shared};
use crate::rule::gateway_parameters::{class_parameters, parameters};
use crate::rule::settings::Settings;
use crate::state::dirty::Dirty;
use crate::state::parent::Parent;
use crate::state::parents::Parents;
use gatewright_objects::inputs::{
    Address, FleetKind, Gateway, GatewayClass, IsolatedParameters, Kind, NamedServices, ObjectKey,
    Parameters, PlainHttp, ServiceParameters, ServiceType,
};
use gatewright_objects::model::{GatewayAddress, ObjectName, Reason, TransportPort};
use gatewright_objects::store::Store;

/// Determines a Gateway's exposure by its own parameters, its class's and the installation's, in
/// this order of precedence (Gateway API, `GatewayInfrastructure.parametersRef`).
pub(crate) fn gateway_exposure(
    gateway: &Gateway,
    store: &Store,
    settings: &Settings,
) -> Result<GatewayExposure, (Reason, String)> {
    let class = store.class(&gateway.class);
    let wide = class
        .map(|class| class_parameters(class, store))
        .transpose();
    let wide = wide
        .map_err(|text| invalid(format!("GatewayClass {}: {text}", gateway.class)))?
        .flatten();
    let own = gateway
        .infrastructure
        .as_ref()
        .and_then(|infrastructure| infrastructure.parameters.as_ref());
    let own = own
        .map(|r| parameters(r, "spec.infrastructure.parametersRef", store))
        .transpose()
        .map_err(invalid)?;
    let of_classes = [
        (
            "allowedHostnames",
            own.as_ref()
                .is_some_and(|own| own.allowed_hostnames.is_some()),
        ),
        ("ports", own.as_ref().is_some_and(|own| own.ports.is_some())),
        (
            "namedServices",
            own.as_ref().is_some_and(|own| own.named_services.is_some()),
        ),
        (
            "defaultGateways",
            own.as_ref()
                .is_some_and(|own| own.default_gateways.is_some()),
        ),
        (
            "policies",
            own.as_ref().is_some_and(|own| own.policies.is_some()),
        ),
    ];
    if let Some((field, _)) = of_classes.iter().find(|(_, said)| *said) {
        let path = "spec.infrastructure.parametersRef";
        return Err(invalid(format!(
            "{path}: spec.{field} belongs to the parameters of a GatewayClass: leave it out"
        )));
    }
    let allowed_hostnames = wide
        .as_ref()
        .and_then(|wide| wide.allowed_hostnames.clone());
    let ports = wide.as_ref().and_then(|wide| wide.ports.clone());
    let policies = wide.as_ref().and_then(|wide| {
        let parameters = class?.parameters.as_ref()?.target()?;
        Some(Arc::new(PolicyAllowance {
            parameters,
            policies: wide.policies.clone()?,
        }))
    });
    let named = wide
        .as_ref()
        .and_then(|wide| wide.named_services)
        .unwrap_or_default();
    let said = [own, wide].map(Option::unwrap_or_default);
    let [own_said, wide_said] = &said;
    let fleet = said.iter().find_map(|parameters| parameters.fleet);
    let fleet = offered(fleet, settings).map_err(invalid)?;
    if fleet == Fleet::Shared && own_said.clients.is_some() {
        return Err(invalid(
            "spec.infrastructure.parametersRef: spec.clients: all Gateways of fleet Shared have their ports in common: \
             leave it out, or have the operator set it in the parameters of the GatewayClass"
                .to_owned(),
        ));
    }
    let isolated = isolated(own_said, wide_said).map_err(invalid)?;
    let isolated = if fleet == Fleet::Isolated {
        isolated
    } else {
        IsolatedParameters::default()
    };
    if fleet == Fleet::Shared && own_said.access_log.is_some() {
        return Err(invalid(
            "spec.infrastructure.parametersRef: spec.accessLog: the ports of the shared fleet have the log that the \
             GatewayParameters of a GatewayClass ask for: leave it out, or ask for fleet Dedicated or Isolated"
                .to_owned(),
        ));
    }
    let wide_namespace = class
        .and_then(|class| class.parameters.as_ref()?.namespace.as_ref())
        .unwrap_or(&gateway.meta.name.namespace);
    let access_log = said
        .iter()
        .zip([&gateway.meta.name.namespace, wide_namespace])
        .find_map(|(parameters, namespace)| Some((parameters.access_log.as_ref()?, namespace)))
        .map_or_else(
            || Ok(default_log(settings)),
            |(asked, namespace)| access_log(asked, namespace, &settings.envoy_logs),
        )
        .map_err(invalid)?;
    let escaped_slashes = said
        .iter()
        .find_map(|parameters| parameters.escaped_slashes)
        .unwrap_or_default();
    let path_parameters = said
        .iter()
        .find_map(|parameters| parameters.path_parameters)
        .unwrap_or_default();
    let identity_headers = said
        .iter()
        .find_map(|parameters| parameters.identity_headers)
        .unwrap_or_default();
    // A Gateway that was made for a TenantGateway and has none now: a restore brings the
    // TenantGateway last, and routes must not be served in clear where its redirect was.
    let is_orphan =
        settings.tenants && gateway.is_derived && !store.is_governed(&gateway.meta.name);
    let plain_http = said
        .iter()
        .find_map(|parameters| parameters.plain_http)
        .or_else(|| is_orphan.then_some(PlainHttp::Redirect));
    let route_hostnames = said
        .iter()
        .find_map(|parameters| parameters.route_hostnames);
    let clients = said.iter().find_map(|said| said.clients.clone());
    let clients = clients.unwrap_or_default();
    let [own, wide] = said.map(|parameters| parameters.service);
    if own.name.is_some() {
        named_allowed(&own, fleet, named, &gateway.class).map_err(invalid)?;
    }
    let service = ServiceParameters {
        r#type: own.r#type.or(wide.r#type),
        load_balancer_class: own.load_balancer_class.or(wide.load_balancer_class),
        external_traffic_policy: own.external_traffic_policy.or(wide.external_traffic_policy),
        name: own.name,
    };
    Ok(GatewayExposure {
        fleet,
        service,
        access_log,
        escaped_slashes,
        path_parameters,
        identity_headers,
        plain_http,
        route_hostnames,
        allowed_hostnames,
        policies,
        ports,
        clients,
        isolated,
    })
}

fn invalid(text: String) -> (Reason, String) {
    (Reason::InvalidParameters, text)
}

/// The parameters of a Gateway's Envoys of fleet Isolated, from its own parameters and its class's.
/// These Envoys run in the installation's namespace, so a Gateway gets no more of them, and no
/// others, than its class permits.
fn isolated(own: &Parameters, wide: &Parameters) -> Result<IsolatedParameters, String> {
    let path = "spec.infrastructure.parametersRef";
    let of_class = wide.isolated.clone();
    let is_offered = wide.fleet == Some(FleetKind::Isolated) || of_class.is_some();
    if own.fleet == Some(FleetKind::Isolated) && !is_offered {
        return Err(format!(
            "{path}: spec.fleet: Isolated is not offered by the GatewayClass: its GatewayParameters offer it by spec.isolated \
             or by that fleet; use one of them, or another fleet"
        ));
    }
    let of_class = of_class.unwrap_or_default();
    let Some(own) = &own.isolated else {
        return Ok(of_class);
    };
    if let Some(field) = own.of_classes() {
        return Err(format!(
            "{path}: spec.isolated.{field} belongs to the parameters of a GatewayClass: leave it out"
        ));
    }
    let (field, asked) = match (&own.replicas, &own.autoscaling) {
        (None, None) => return Ok(of_class),
        (Some(replicas), _) => ("replicas", *replicas),
        (None, Some(autoscaling)) => ("autoscaling.maxReplicas", autoscaling.max_replicas),
    };
    let most = of_class.most();
    if asked > most {
        return Err(format!(
            "{path}: spec.isolated.{field} is {asked}, and the GatewayClass admits {most} (spec.isolated.maxReplicas of its \
             GatewayParameters)"
        ));
    }
    Ok(IsolatedParameters {
        replicas: own.replicas,
        autoscaling: own.autoscaling.clone(),
        ..of_class
    })
}

/// Checks whether a Gateway may stand on a Service that its parameters name.
fn named_allowed(
    own: &ServiceParameters,
    fleet: Fleet,
    named: NamedServices,
    class: &str,
) -> Result<(), String> {
    let path = "spec.infrastructure.parametersRef: spec.service.name";
    if fleet != Fleet::Dedicated {
        return Err(format!(
            "{path} belongs to fleet Dedicated: leave it out, or ask for that fleet"
        ));
    }
    if named == NamedServices::Refuse {
        return Err(format!(
            "{path}: Gateways of GatewayClass {class} have Services that are made for them: leave it out, or have the operator \
             set spec.namedServices to Allow in the GatewayParameters of the class"
        ));
    }
    let ServiceParameters {
        r#type,
        load_balancer_class,
        external_traffic_policy,
        name: _,
    } = own;
    if r#type.is_some() || load_balancer_class.is_some() || external_traffic_policy.is_some() {
        return Err(format!(
            "{path}: that Service has a type and a load balancer of its own: leave out the other fields"
        ));
    }
    Ok(())
}

/// The fleet of Gateways of a class whose own parameters choose none.
pub(crate) fn of_class(
    class: &GatewayClass,
    store: &Store,
    settings: &Settings,
) -> Result<Fleet, (Reason, String)> {
    let parameters = class_parameters(class, store).map(Option::unwrap_or_default);
    let fleet = parameters.and_then(|parameters| offered(parameters.fleet, settings));
    fleet.map_err(|text| (Reason::InvalidParameters, text))
}

/// Our classes of the shared fleet that have parameters, the oldest first, then by name: where they
/// differ about ports that all have in common, the first one decides.
pub(crate) fn shared_classes<'a>(
    store: &'a Store,
    settings: &Settings,
) -> Vec<(&'a GatewayClass, Parameters)> {
    let mut classes: Vec<_> = store
        .classes()
        .filter(|class| class.controller == settings.controller)
        .filter_map(|class| {
            let parameters = class_parameters(class, store).ok()??;
            let fleet = offered(parameters.fleet, settings).ok()?;
            (fleet == Fleet::Shared).then_some((class, parameters))
        })
        .collect();
    classes.sort_by_key(|(class, _)| (class.meta.created, &class.meta.name));
    classes
}

/// The fleet of a choice in parameters, if the installation offers it.
fn offered(fleet: Option<FleetKind>, settings: &Settings) -> Result<Fleet, String> {
    match fleet {
        None => Ok(settings.fleet),
        Some(FleetKind::Shared) => Ok(Fleet::Shared),
        Some(FleetKind::Dedicated) if settings.envoys.is_some() => Ok(Fleet::Dedicated),
        Some(FleetKind::Dedicated) => Err(
            "spec.fleet: Dedicated is offered in a cluster only: use Shared, or leave it out"
                .to_owned(),
        ),
        Some(FleetKind::Isolated) if settings.isolated.is_some() => Ok(Fleet::Isolated),
        Some(FleetKind::Isolated) => Err(
            "spec.fleet: Isolated is switched off: whoever runs the controller switches it on by \
             envoys.isolatedPodTemplate (isolated.enabled of the chart); or use another fleet"
                .to_owned(),
        ),
    }
}

/// The addresses of the shared fleet: those of the installation's settings, else those of the
/// Service of its Envoys.
pub(crate) fn addresses(store: &Store, settings: &Settings) -> Vec<GatewayAddress> {
    if !settings.default_addresses.is_empty() {
        return settings
            .default_addresses
            .iter()
            .copied()
            .map(GatewayAddress::Ip)
            .collect();
    }
    let service = settings
        .envoys
        .as_ref()
        .and_then(|name| store.service(name));
    service
        .map(|service| service.reached.clone())
        .unwrap_or_default()
}

/// Checks the addresses that a Gateway requests: a Gateway is never served on an address that it
/// does not request. `shared` are the addresses of the shared fleet.
pub(crate) fn unusable(
    gateway: &Gateway,
    exposure: &GatewayExposure,
    shared: &[GatewayAddress],
) -> Option<String> {
    let GatewayExposure { fleet, service, .. } = exposure;
    let fleet = *fleet;
    let malformed = gateway.addresses.iter().find_map(|address| match address {
        Address::Malformed(text) => Some(format!("spec.addresses: {text:?} is no IP address")),
        _ => None,
    });
    let ips = gateway.addresses.iter().filter_map(Address::ip).count();
    // Addresses with a named Service are checked elsewhere.
    let is_made = fleet.has_services() && service.name.is_none();
    if is_made && ips > 1 {
        return Some(
            "spec.addresses: a Service has one address at most: name one, or none".to_owned(),
        );
    }
    let balanced = service
        .r#type
        .is_none_or(|kind| kind == ServiceType::LoadBalancer);
    if is_made && ips > 0 && !balanced {
        return Some(
            "spec.addresses: an address can be asked for with a Service of type LoadBalancer only"
                .to_owned(),
        );
    }
    // With addresses of its own, a Gateway is served on the well-formed ones.
    malformed.filter(|_| fleet != Fleet::Own).or_else(|| {
        let named: BTreeSet<GatewayAddress> = gateway
            .addresses
            .iter()
            .filter_map(Address::ip)
            .copied()
            .map(GatewayAddress::Ip)
            .collect();
        let all: BTreeSet<GatewayAddress> = shared.iter().cloned().collect();
        let partial = fleet == Fleet::Shared && !named.is_empty() && named != all;
        partial.then(|| {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            if all.is_empty() {
                return "spec.addresses: the shared fleet has no address yet: name none".to_owned();
            }
            format!(
                "spec.addresses: the shared fleet serves on all its addresses: name {}, or none",
                all.join(" and ")
            )
        })
    })
}

/// Marks what depends on changed GatewayParameters.
pub(crate) fn touch_parameters(store: &Store, name: &ObjectName, dirty: &mut Dirty) {
    for key in store.indexes().users_of_parameters(name) {
        dirty.statuses.insert(key.clone());
        match key.kind {
            Kind::GatewayClass => touch_class(store, &key.name, dirty),
            _ => dirty.parents.insert(ParentKey::Gateway(key.name.clone())),
        }
    }
}

/// Marks what depends on the addresses of the shared fleet, if a changed Service determines them.
pub(crate) fn touch_fleet(
    settings: &Settings,
    parents: &Parents,
    service: &ObjectName,
    dirty: &mut Dirty,
) {
    if settings.envoys.as_ref() != Some(service) || !settings.default_addresses.is_empty() {
        return;
    }
    dirty.bindings.insert(SHARED.clone());
    for key in parents.keys() {
        dirty.statuses.insert(key.object());
        if matches!(key, ParentKey::Gateway(_)) {
            dirty.parents.insert(key.clone());
        }
    }
}

/// The ports of a Gateway or ListenerSet that the Service of the shared fleet does not have, as a
/// message with the fix; `None` if it has all, or if another address leads to the fleet.
pub(crate) fn missing_shared_ports(
    parent: &Parent,
    ports: impl Iterator<Item = TransportPort>,
    store: &Store,
    settings: &Settings,
) -> Option<String> {
    let shared_service_ports = shared_service_ports(store, settings)
        .filter(|_| parent.placement.exposure.fleet == Fleet::Shared)?;
    let name = settings.envoys.as_ref()?;
    let missing: BTreeSet<TransportPort> = ports
        .filter(|port| !shared_service_ports.contains(port))
        .collect();
    let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
    match &missing[..] {
        [] => None,
        [port] => Some(format!(
            "Service {name} has no port {port}: add it, or use one that it has"
        )),
        all => Some(format!(
            "Service {name} has no ports {}: add them, or use those that it has",
            all.join(", ")
        )),
    }
}

/// The ports of the Service of the shared fleet; `None` if another address leads to the fleet.
pub(crate) fn shared_service_ports(
    store: &Store,
    settings: &Settings,
) -> Option<BTreeSet<TransportPort>> {
    if !settings.default_addresses.is_empty() {
        return None;
    }
    let service = store.service(settings.envoys.as_ref()?)?;
    Some(
        service
            .ports
            .iter()
            .map(|there| TransportPort {
                number: there.port,
                transport: there.transport,
            })
            .collect(),
    )
}

/// Marks what depends on a changed GatewayClass.
pub(crate) fn touch_class(store: &Store, name: &ObjectName, dirty: &mut Dirty) {
    // Classes decide about clients and access logs at ports of the shared fleet.
    dirty.bindings.insert(SHARED.clone());
    let class = name.name.to_string();
    dirty.parents.extend(
        store
            .indexes()
            .gateways_by_class(&class)
            .cloned()
            .map(ParentKey::Gateway),
    );
    dirty
        .statuses
        .insert(ObjectKey::new(Kind::GatewayClass, name.clone()));
}

/// Adds the Gateway of a listener on shared frontends to the result as affected.
pub(crate) fn note_gateway(
    parents: &Parents,
    place: &ObjectName,
    listener: &ListenerId,
    dirty: &mut Dirty,
) {
    if is_shared(place)
        && let Some(parent) = parents.get(&listener.parent)
    {
        dirty.note_gateway(parent.placement.gateway.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::{Change, Engine, StatusBody};
    use gatewright_objects::inputs::Object;
    use gatewright_objects::model::{Condition, ConditionType, Status};

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    fn service(ingress: Value) -> Change {
        service_with(&[80], ingress)
    }

    fn service_with(ports: &[u16], ingress: Value) -> Change {
        let ports: Vec<Value> = ports
            .iter()
            .map(|port| json!({"name": format!("p{port}"), "port": port}))
            .collect();
        put(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "envoy", "namespace": "ours"},
            "spec": {"type": "LoadBalancer", "ports": ports}, "status": {"loadBalancer": {"ingress": ingress}}}),
        )
    }

    /// An engine whose shared fleet has the addresses of its Service, with a class of that fleet.
    fn shared() -> Engine {
        let settings = Settings {
            fleet: Fleet::Shared,
            envoys: Some(ObjectName::new("ours", "envoy")),
            ..Settings::new("c", Vec::new())
        };
        let mut engine = Engine::new(settings);
        let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "g"}, "spec": {"controllerName": "c"}});
        engine.apply(vec![put(class)], SystemTime::UNIX_EPOCH);
        engine
    }

    /// `Programmed` of an object and of each of its listeners; with reason and message if it is
    /// False.
    fn programmed(engine: &Engine, kind: Kind, name: &str) -> (String, Vec<String>) {
        fn of(conditions: &[Condition]) -> String {
            let found = conditions
                .iter()
                .find(|condition| condition.kind == ConditionType::Programmed)
                .expect("it has one");
            match found.status {
                Status::True => "True".to_owned(),
                _ => format!("{:?}: {}", found.reason, found.message),
            }
        }
        let status = engine
            .status(&ObjectKey::new(kind, ObjectName::new("a", name)))
            .expect("it has a status");
        let (conditions, listeners) = match &status.body {
            StatusBody::Gateway(status) => (&status.conditions, &status.listeners),
            StatusBody::ListenerSet(status) => (&status.conditions, &status.listeners),
            other => panic!("{other:?}"),
        };
        (
            of(conditions),
            listeners
                .iter()
                .map(|listener| of(&listener.conditions))
                .collect(),
        )
    }

    #[test]
    fn a_port_that_the_service_of_the_fleet_does_not_have_is_told() {
        let mut engine = shared();
        let now = SystemTime::UNIX_EPOCH;
        fn listener(port: u16) -> Value {
            json!({"name": format!("l{port}"), "protocol": "HTTP", "port": port})
        }
        fn gateway(name: &str, ports: &[u16]) -> Change {
            put(
                json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": name, "namespace": "a"}, "spec": {"gatewayClassName": "g",
                    "allowedListeners": {"namespaces": {"from": "Same"}},
                    "listeners": ports.iter().map(|port| listener(*port)).collect::<Vec<_>>()}}),
            )
        }
        let set = put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
            "metadata": {"name": "more", "namespace": "a"}, "spec": {"parentRef": {"name": "edge"},
                "listeners": [listener(8082)]}}),
        );
        fn at() -> Value {
            json!([{"ip": "192.0.2.7"}])
        }
        engine.apply(
            vec![
                service_with(&[80], at()),
                gateway("edge", &[80, 8080]),
                gateway("odd", &[8083, 8081]),
                set,
            ],
            now,
        );
        fn lacks(port: u16) -> String {
            format!(
                "Pending: Service ours/envoy has no port {port}: add it, or use one that it has"
            )
        }
        assert_eq!(
            programmed(&engine, Kind::Gateway, "edge"),
            ("True".to_owned(), vec!["True".to_owned(), lacks(8080)]),
            "something of it is served"
        );
        let both = "Pending: Service ours/envoy has no ports 8081, 8083: add them, or use those that it has".to_owned();
        assert_eq!(
            programmed(&engine, Kind::Gateway, "odd"),
            (both, vec![lacks(8083), lacks(8081)])
        );
        assert_eq!(
            programmed(&engine, Kind::ListenerSet, "more"),
            (lacks(8082), vec![lacks(8082)])
        );

        // They are added, one by one, and one is removed.
        engine.apply(vec![service_with(&[80, 8080, 8082, 8083], at())], now);
        assert_eq!(
            programmed(&engine, Kind::Gateway, "edge").1,
            ["True", "True"]
        );
        assert_eq!(
            programmed(&engine, Kind::Gateway, "odd"),
            ("True".to_owned(), vec!["True".to_owned(), lacks(8081)])
        );
        assert_eq!(programmed(&engine, Kind::ListenerSet, "more").0, "True");
        engine.apply(vec![service_with(&[8080, 8082], at())], now);
        assert_eq!(
            programmed(&engine, Kind::Gateway, "edge").1,
            [lacks(80), "True".to_owned()]
        );
    }

    fn told(engine: &Engine) -> (Vec<String>, String) {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge"));
        let Some(StatusBody::Gateway(status)) = engine.status(&key).map(|status| status.body)
        else {
            panic!("a Gateway has a status")
        };
        let programmed = status
            .conditions
            .iter()
            .find(|condition| condition.kind == ConditionType::Programmed)
            .expect("it has one");
        (
            status
                .addresses
                .iter()
                .map(|at| at.address.to_string())
                .collect(),
            format!("{:?}", programmed.reason),
        )
    }

    #[test]
    fn the_shared_fleet_is_reached_where_its_service_is() {
        let mut engine = shared();
        let now = SystemTime::UNIX_EPOCH;
        engine.apply(
            vec![
                put(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                    "metadata": {"name": "edge", "namespace": "a"}, "spec": {"gatewayClassName": "g",
                        "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}})),
                service(json!([])),
            ],
            now,
        );
        assert_eq!(told(&engine), (vec![], "AddressNotAssigned".to_owned()));
        engine.apply(
            vec![service(
                json!([{"ip": "192.0.2.7"}, {"hostname": "lb.example.net"}]),
            )],
            now,
        );
        assert_eq!(
            told(&engine),
            (
                vec!["192.0.2.7".to_owned(), "lb.example.net".to_owned()],
                "Programmed".to_owned()
            )
        );
        engine.apply(vec![service(json!([{"ip": "192.0.2.8"}]))], now);
        assert_eq!(told(&engine).0, ["192.0.2.8"]);
    }
}
