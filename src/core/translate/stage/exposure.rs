//! The dedicated fleet: a Service for each Gateway, whose ports lead to Envoy ports of that Gateway
//! alone.
//!
//! The Service is the only record of which Envoy port belongs to which port of a Gateway, so that
//! the Envoys of all replicas listen on the same ports, also after a restart: the intent has the
//! recorded ports, and free ones for ports without a record.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sha2::{Digest, Sha256};

use super::routability;
use crate::key::{ParentKey, Verdict};
use crate::rule::dedicated_envoys;
use crate::rule::gateway_exposure::{Fleet, GatewayExposure};
use crate::rule::internal_ports::{INTERNAL, exhausted, recorded};
use crate::rule::settings::Settings;
use crate::state::dirty::Dirty;
use crate::state::frontends::Frontends;
use crate::state::gateway_services::{GatewayServices, Refusal};
use crate::state::isolated_envoys;
use crate::state::isolated_envoys::{DesiredEnvoys, isolated_name};
use crate::state::named_service::{NamedService, recorded as recorded_behind};
use crate::state::parent::{Parent, ParentListener};
use crate::state::parents::Parents;
use crate::state::service_intent::{DesiredService, DesiredSlices, ServiceIntent};
use gatewright_objects::inputs::{
    Address, EXPOSES, Gateway, MANAGED_BY, MANAGER, MadeService, STANDS_ON, Service,
    ServiceParameters, ServiceType, SliceEndpoint,
};
use gatewright_objects::model::{GatewayAddress, ObjectName, Reason, Routability, TransportPort};
use gatewright_objects::store::Store;

/// The labels of GEP-1762.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
const CLASS_NAME: &str = "gateway.networking.k8s.io/gateway-class-name";
/// The annotation with the keys of the labels and annotations that the Gateway requested: it shows
/// which of them to remove later.
const ASKED: &str = "gatewright.io/infrastructure";

/// A DNS label from a text: the text itself if it is one, else shortened and made unique by a hash.
fn label(text: &str) -> String {
    let fits = text.len() <= 63
        && text.bytes().all(|byte| is_letter(byte) || byte == b'-')
        && text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase());
    if fits {
        return text.to_owned();
    }
    let hash: String = Sha256::digest(text.as_bytes())
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let plain: String = text
        .chars()
        .map(|c| if c == '.' { '-' } else { c })
        .take(45)
        .collect();
    format!("gw-{}-{hash}", plain.trim_end_matches('-'))
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// The value of a label: the text itself if it fits (63 characters), else as [`label`].
fn value(text: &str) -> String {
    if text.len() <= 63 {
        text.to_owned()
    } else {
        label(text)
    }
}

/// The name of a Gateway's Service (GEP-1762).
pub(crate) fn service_name(gateway: &Gateway) -> ObjectName {
    let name = &gateway.meta.name;
    ObjectName::new(
        name.namespace.clone(),
        label(&format!("{}-{}", name.name, gateway.class)),
    )
}

/// The labels and annotations of objects that are made for a Gateway: the requested ones, and ours
/// (GEP-1762).
fn marks(gateway: &Gateway) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let name = &gateway.meta.name.name;
    let asked = gateway
        .infrastructure
        .as_deref()
        .cloned()
        .unwrap_or_default();
    let keys: BTreeSet<&str> = asked
        .labels
        .keys()
        .chain(asked.annotations.keys())
        .map(String::as_str)
        .collect();
    let keys: Vec<&str> = keys.into_iter().collect();
    let mut labels = asked.labels.clone();
    let mut annotations = asked.annotations.clone();
    for (label, text) in [
        (MANAGED_BY, MANAGER),
        (GATEWAY_NAME, &**name),
        (CLASS_NAME, gateway.class.as_str()),
    ] {
        labels.insert(label.to_owned(), value(text));
    }
    annotations.insert(EXPOSES.to_owned(), name.to_string());
    annotations.insert(ASKED.to_owned(), keys.join(","));
    (labels, annotations)
}

/// The record of a Gateway of the dedicated fleet, which is its Service. That of a deleted Gateway
/// of the same name is none.
pub(crate) fn made_service<'a>(gateway: &Gateway, store: &'a Store) -> Option<&'a MadeService> {
    let service = store.service(&service_name(gateway))?;
    service
        .made
        .as_deref()
        .filter(|made| made.gateway == gateway.meta.name && is_owner(made, &gateway.uid))
}

fn is_owner(made: &MadeService, gateway_uid: &str) -> bool {
    gateway_uid.is_empty() || *made.owner == *gateway_uid
}

/// The ports of a Gateway and of the ListenerSets that extend it.
pub(crate) fn ports_of(parent: &Parent, frontends: &Frontends) -> BTreeSet<TransportPort> {
    let of_listeners = parent.listeners.iter().map(ParentListener::transport_port);
    let used = frontends
        .of_gateway(&parent.placement.gateway)
        .filter(|(_, frontend)| !frontend.is_idle());
    of_listeners
        .chain(used.map(|(id, _)| id.transport_port()))
        .collect()
}

/// The Service at which a Gateway is reached: the one that was made for it, or the one that it
/// stands on.
pub(crate) fn service<'a>(
    exposure: &GatewayExposure,
    gateway: &Gateway,
    store: &'a Store,
) -> Option<&'a Service> {
    match &exposure.service.name {
        Some(name) => store.service(&ObjectName::new(
            gateway.meta.name.namespace.clone(),
            name.clone(),
        )),
        None => made_service(gateway, store).and_then(|_| store.service(&service_name(gateway))),
    }
    .map(|service| &**service)
}

/// The stage that determines the intents for Services of Gateways.
pub(crate) struct Exposing<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) parents: &'a Parents,
    pub(crate) frontends: &'a Frontends,
    pub(crate) gateway_services: &'a mut GatewayServices,
}

impl Exposing<'_> {
    /// Updates the intent for a Gateway's Service, and for Envoys of its own.
    pub(crate) fn desire(&mut self, gateway: &ObjectName, dirty: &mut Dirty) {
        let intent = self.intent(gateway);
        self.note_choice(gateway, intent.as_ref(), dirty);
        // The API server refuses a Service without ports.
        let intent = intent.map(|intent| match intent {
            ServiceIntent::Wanted(desired) if desired.targets.is_empty() => ServiceIntent::Left,
            other => other,
        });
        if self.gateway_services.set_intent(gateway, intent.clone()) {
            dirty.want_service(gateway.clone(), intent);
        }
        let envoys = self.desired_envoys(gateway);
        if self.gateway_services.set_envoys(gateway, envoys.clone()) {
            dirty.want_envoys(gateway.clone(), envoys);
        }
    }

    /// Notes whether a Gateway has ports for which no Envoy port is recorded, and for which none is
    /// free.
    fn note_choice(
        &mut self,
        name: &ObjectName,
        intent: Option<&ServiceIntent>,
        dirty: &mut Dirty,
    ) {
        let mut is_choosing = false;
        let mut without = BTreeSet::new();
        let parent = self.parents.get(&ParentKey::Gateway(name.clone()));
        if let (Some(ServiceIntent::Wanted(desired)), Some(parent)) = (intent, parent) {
            let recorded = self
                .store
                .gateway(name)
                .and_then(|gateway| made_service(gateway, self.store))
                .map(recorded);
            let recorded = recorded.unwrap_or_default();
            without = ports_of(parent, self.frontends);
            is_choosing = without.iter().any(|port| {
                recorded
                    .get(port)
                    .is_none_or(|target| desired.targets.get(port) != Some(target))
            });
            without.retain(|port| !desired.targets.contains_key(port));
        }
        self.gateway_services
            .set_choice(name, is_choosing, without, self.store, dirty);
    }

    /// The Envoys that a Gateway is to have of its own; `None` if it is to have none. A refused one
    /// has none: it does not count for the quota of its namespace, which limits pods.
    fn desired_envoys(&self, name: &ObjectName) -> Option<DesiredEnvoys> {
        let namespace = self.settings.isolated.as_ref()?;
        let parent = self.parents.get(&ParentKey::Gateway(name.clone()))?;
        let is_isolated =
            parent.accepted.is_ok() && parent.placement.exposure.fleet == Fleet::Isolated;
        is_isolated.then(|| DesiredEnvoys {
            name: ObjectName::new(namespace.clone(), isolated_name(name)),
            gateway: name.clone(),
            parameters: parent.placement.exposure.isolated.clone(),
        })
    }

    /// The intent for a Gateway's Service; `None` if it is to have none.
    fn intent(&self, name: &ObjectName) -> Option<ServiceIntent> {
        let gateway = self.store.gateway(name)?;
        // Without a Service for the Envoys, the installation never made one for a Gateway.
        self.settings.envoys.as_ref()?;
        let Some(parent) = self.parents.get(&ParentKey::Gateway(name.clone())) else {
            return self
                .store
                .class(&gateway.class)
                .is_none()
                .then_some(ServiceIntent::Left);
        };
        if let (Ok(()), Some(service)) = (&parent.accepted, &parent.placement.service) {
            return Some(ServiceIntent::Slices(Box::new(
                self.desired_slices(service, gateway),
            )));
        }
        if parent.accepted.is_err() || parent.placement.unusable.is_some() {
            return Some(ServiceIntent::Left);
        }
        parent
            .placement
            .exposure
            .fleet
            .has_services()
            .then(|| ServiceIntent::Wanted(Box::new(self.desired_service(parent, gateway))))
    }

    fn desired_service(&self, parent: &Parent, gateway: &Gateway) -> DesiredService {
        let name = &gateway.meta.name;
        let (labels, annotations) = marks(gateway);
        let ServiceParameters {
            r#type,
            load_balancer_class,
            external_traffic_policy,
            name: _,
        } = parent.placement.exposure.service.clone();
        // A Gateway that is reached from within the cluster alone has no address outside, whatever
        // the parameters say.
        let kind = if routability::is_internal(gateway) {
            ServiceType::ClusterIP
        } else {
            r#type.unwrap_or(ServiceType::LoadBalancer)
        };
        let within = gateway
            .requests
            .iter()
            .filter(|request| request.routability == Routability::Cluster);
        DesiredService {
            name: service_name(gateway),
            gateway: name.clone(),
            kind,
            load_balancer_class: load_balancer_class.filter(|_| kind == ServiceType::LoadBalancer),
            external_traffic_policy: kind
                .external_traffic_policy()
                .map(|usual| external_traffic_policy.unwrap_or(usual)),
            address: gateway.addresses.iter().find_map(Address::ip).copied(),
            cluster_ip: within
                .filter_map(|request| request.address.ip())
                .next()
                .copied(),
            targets: self.targets(parent, gateway),
            labels,
            annotations,
            envoys: self.envoys(parent, name),
        }
    }

    /// The Envoys that serve a Gateway.
    fn envoys(&self, parent: &Parent, gateway: &ObjectName) -> BTreeMap<IpAddr, SliceEndpoint> {
        if parent.placement.exposure.fleet == Fleet::Isolated {
            return isolated_envoys::endpoints(gateway, self.settings, self.store);
        }
        dedicated_envoys::endpoints(self.settings, self.store)
    }

    /// The lent slices of a Gateway that stands on a Service: they lead to the ports that the
    /// Gateway has, and to no others.
    fn desired_slices(&self, service: &NamedService, gateway: &Gateway) -> DesiredSlices {
        let name = &gateway.meta.name;
        let led = |(port, share): (&TransportPort, &Result<u16, Refusal>)| {
            let target = *share.as_ref().ok()?;
            let named = service.ports.get(port)?;
            Some((
                named.name.to_string(),
                TransportPort {
                    number: target,
                    transport: port.transport,
                },
            ))
        };
        let ports = self
            .gateway_services
            .port_outcomes(name)
            .iter()
            .filter_map(led)
            .collect();
        let (labels, mut annotations) = marks(gateway);
        annotations.insert(STANDS_ON.to_owned(), service.name.name.to_string());
        DesiredSlices {
            prefix: label(&format!("{}-{}", name.name, service.name.name)),
            service: service.name.clone(),
            gateway: name.clone(),
            ports,
            labels,
            annotations,
            envoys: dedicated_envoys::endpoints(self.settings, self.store),
        }
    }

    /// The Envoy port for each port of a Gateway: the recorded one, unless an older Gateway has it
    /// as well; else the first free one, starting from a hash of the name. Envoys of its own have
    /// no ports of others.
    fn targets(&self, parent: &Parent, gateway: &Gateway) -> BTreeMap<TransportPort, u16> {
        let name = &gateway.meta.name;
        let service = service_name(gateway);
        let ports = ports_of(parent, self.frontends);
        let taken = self.gateway_services.ports();
        let shares_envoys = parent.placement.exposure.fleet != Fleet::Isolated;
        let mut targets = made_service(gateway, self.store)
            .map(recorded)
            .unwrap_or_default();
        targets.retain(|port, target| {
            ports.contains(port) && (!shares_envoys || self.keeps(gateway, *target))
        });
        let mut used: BTreeSet<u16> = targets.values().copied().collect();
        for port in ports {
            if targets.contains_key(&port) {
                continue;
            }
            let hash = Sha256::digest(format!("{name}:{port}").as_bytes());
            let start = u16::from_be_bytes([hash[0], hash[1]]) % (INTERNAL.end - INTERNAL.start);
            let candidates = || {
                (start..INTERNAL.end - INTERNAL.start)
                    .chain(0..start)
                    .map(|n| INTERNAL.start + n)
            };
            let may_have = |target: &u16| {
                !used.contains(target)
                    && (!shares_envoys || taken.is_free(*target, name, self.store))
            };
            let unwritten =
                |target: &u16| may_have(target) && taken.is_unwritten(*target, name, &service);
            if let Some(target) = candidates()
                .find(unwritten)
                .or_else(|| candidates().find(may_have))
            {
                used.insert(target);
                targets.insert(port, target);
            }
        }
        targets
    }

    /// True if a Gateway keeps a recorded port.
    fn keeps(&self, gateway: &Gateway, target: u16) -> bool {
        let name = &gateway.meta.name;
        let own = (gateway.meta.created, name.clone());
        let taken = self.gateway_services.ports();
        taken
            .made
            .of(target)
            .all(|other| other == name || age(other, self.store) > own)
            && taken
                .holder(target, self.store)
                .is_none_or(|other| other == name)
    }
}

fn age(name: &ObjectName, store: &Store) -> (i64, ObjectName) {
    (
        store.gateway(name).map_or(i64::MAX, |g| g.meta.created),
        name.clone(),
    )
}

/// The addresses of a Gateway of the dedicated fleet, and why it has none, or not all.
pub(crate) fn reached(
    parent: &Parent,
    gateway: &Gateway,
    gateway_services: &GatewayServices,
    store: &Store,
) -> (Vec<GatewayAddress>, Verdict) {
    let (all, verdict) = match &parent.placement.service {
        Some(service) => reached_by_named(service, gateway, store),
        None => reached_by_service(parent, gateway, gateway_services, store),
    };
    let Some(text) = gateway_services.failure(&gateway.meta.name) else {
        return (all, verdict);
    };
    let reason = verdict.err().map_or(Reason::Pending, |(reason, _)| reason);
    (all, Err((reason, text.to_owned())))
}

/// The addresses of a Gateway that stands on a Service, and why it has none, or not all.
fn reached_by_named(
    service: &NamedService,
    gateway: &Gateway,
    store: &Store,
) -> (Vec<GatewayAddress>, Verdict) {
    let NamedService { name, .. } = service;
    let all = store
        .service(name)
        .map(|service| service.reached.clone())
        .unwrap_or_default();
    let verdict = if all.is_empty() {
        let text = format!(
            "Service {name} has no address yet: check the load-balancer controller of the cluster"
        );
        Err((Reason::AddressNotAssigned, text))
    } else if recorded_behind(service, &gateway.meta.name, store).is_empty() {
        Err((
            Reason::Pending,
            format!("Service {name} does not lead to Envoys yet"),
        ))
    } else {
        Ok(())
    };
    (all, verdict)
}

fn reached_by_service(
    parent: &Parent,
    gateway: &Gateway,
    gateway_services: &GatewayServices,
    store: &Store,
) -> (Vec<GatewayAddress>, Verdict) {
    let name = service_name(gateway);
    let ports = || parent.listeners.iter().map(ParentListener::transport_port);
    let exhausted = ports()
        .find(|port| gateway_services.lacks(&gateway.meta.name, *port))
        .map(exhausted);
    let Some(exposure) = made_service(gateway, store) else {
        let text = match store.service(&name) {
            Some(_) => format!(
                "Service {name} belongs to another owner: remove it, or give the Gateway another name"
            ),
            None => exhausted.unwrap_or_else(|| format!("Service {name} is not there yet")),
        };
        return (Vec::new(), Err((Reason::AddressNotAssigned, text)));
    };
    let all = store
        .service(&name)
        .map(|service| service.reached.clone())
        .unwrap_or_default();
    let wanted = &parent.placement.exposure.service;
    if let (Some(class), true) = (&wanted.load_balancer_class, exposure.is_balanced())
        && wanted
            .r#type
            .is_none_or(|kind| kind == ServiceType::LoadBalancer)
        && exposure.load_balancer_class.as_ref() != Some(class)
    {
        let has = exposure
            .load_balancer_class
            .as_deref()
            .map_or("none".to_owned(), |has| format!("{has:?}"));
        let text = format!(
            "Service {name} has loadBalancerClass {has} instead of {class:?}, which Kubernetes cannot change: delete \
             the Service, and the controller creates it again, with another address"
        );
        return (all, Err((Reason::Invalid, text)));
    }
    let asked = gateway.addresses.iter().find_map(Address::ip);
    if let (Some(ip), true) = (asked, all.is_empty()) {
        let text = format!(
            "spec.addresses: Service {name} did not get the address {ip}: it is outside of the load balancer's ranges, or \
             in use, or not assigned yet"
        );
        return (all, Err((Reason::AddressNotUsable, text)));
    }
    if all.is_empty() {
        let text = format!(
            "Service {name} has no address yet: check the load-balancer controller of the cluster"
        );
        return (all, Err((Reason::AddressNotAssigned, text)));
    }
    if let Some(ip) = asked {
        if !all.contains(&GatewayAddress::Ip(*ip)) {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            let text = format!(
                "spec.addresses: Service {name} got {} instead of {ip}",
                all.join(", ")
            );
            return (Vec::new(), Err((Reason::AddressNotUsable, text)));
        }
        return (vec![GatewayAddress::Ip(*ip)], Ok(()));
    }
    let targets = recorded(exposure);
    if ports().all(|port| !targets.contains_key(&port)) {
        let text =
            exhausted.unwrap_or_else(|| format!("Service {name} does not lead to Envoys yet"));
        return (all, Err((Reason::Pending, text)));
    }
    (all, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::rule::settings::DedicatedEnvoys;
    use crate::{Change, Engine, Fact, Settings, StatusBody};
    use gatewright_objects::inputs::{Kind, Object, ObjectKey};
    use gatewright_objects::model::{ConditionType, Status};

    /// `Programmed` of the Gateway, and the number of its addresses.
    fn programmed(engine: &Engine) -> (Status, String, usize) {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge"));
        let Some(StatusBody::Gateway(status)) = engine.status(&key).map(|status| status.body)
        else {
            panic!("a Gateway has a status")
        };
        let found = status
            .conditions
            .iter()
            .find(|condition| condition.kind == ConditionType::Programmed)
            .expect("it has one");
        (
            found.status,
            format!("{:?}: {}", found.reason, found.message),
            status.addresses.len(),
        )
    }

    #[test]
    fn a_service_that_the_server_refuses_is_reported_until_it_is_accepted() {
        let envoys = Some(ObjectName::new("ours", "envoy"));
        let mut engine = Engine::new(Settings {
            fleet: Fleet::Dedicated,
            envoys,
            ..Settings::new("c", vec![])
        });
        fn apply(change: Change, engine: &mut Engine) -> Option<(Status, String, usize)> {
            engine.apply(vec![change], SystemTime::UNIX_EPOCH);
            engine
                .status(&ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge")))
                .is_some()
                .then(|| programmed(engine))
        }
        fn put(value: Value, engine: &mut Engine) -> Option<(Status, String, usize)> {
            apply(
                Change::put(Object::parse(value).expect("an object")),
                engine,
            )
        }
        put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "g"}, "spec": {"controllerName": "c"}}),
            &mut engine,
        );
        put(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "a"}, "spec": {"gatewayClassName": "g",
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}),
            &mut engine,
        );
        fn refused(text: &str) -> Change {
            Change::Fact(Fact::ServiceProblem(
                ObjectName::new("a", "edge"),
                (!text.is_empty()).then(|| text.into()),
            ))
        }
        let told =
            apply(refused("Service a/edge-g: exceeded quota"), &mut engine).expect("a status");
        assert_eq!(
            told,
            (
                Status::False,
                "AddressNotAssigned: Service a/edge-g: exceeded quota".to_owned(),
                0
            )
        );
        let told = apply(refused(""), &mut engine).expect("a status");
        assert_eq!(
            told,
            (
                Status::False,
                "AddressNotAssigned: Service a/edge-g is not there yet".to_owned(),
                0
            )
        );

        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "edge-g",
            "uid": "u", "labels": {MANAGED_BY: MANAGER}, "annotations": {EXPOSES: "edge"}, "ownerReferences": [{
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "edge", "uid": "g", "controller": true}]},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "p80", "port": 80, "targetPort": 20_001}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}});
        let service = Change::put(Object::parse(service).expect("an object"));
        assert_eq!(
            apply(service, &mut engine).expect("a status").0,
            Status::True
        );
        let told =
            apply(refused("Service a/edge-g: no more ports"), &mut engine).expect("a status");
        assert_eq!(
            told,
            (
                Status::False,
                "Pending: Service a/edge-g: no more ports".to_owned(),
                1
            ),
            "it is served on"
        );
        assert_eq!(
            apply(refused(""), &mut engine).expect("a status").0,
            Status::True
        );
    }

    #[test]
    fn services_lead_to_the_envoys_that_serve_the_dedicated_fleet() {
        let shared = ObjectName::new("ours", "envoy");
        let own = ObjectName::new("ours", "own");
        fn slice(service: &str, ips: &[&str]) -> Value {
            let labels = json!({"kubernetes.io/service-name": service});
            let endpoints: Vec<Value> = ips.iter().map(|ip| json!({"addresses": [ip]})).collect();
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"namespace": "ours", "name": service, "labels": labels}, "endpoints": endpoints,
                "ports": [{"name": "http", "port": 80}]})
        }
        for (dedicated, before, with_own) in [
            (
                DedicatedEnvoys::OfSharedFleet,
                vec!["10.0.0.1"],
                vec!["10.0.0.1"],
            ),
            (DedicatedEnvoys::Apart(own), vec![], vec!["10.0.0.2"]),
        ] {
            let settings = Settings {
                fleet: Fleet::Dedicated,
                envoys: Some(shared.clone()),
                ..Settings::new("c", vec![])
            };
            let mut engine = Engine::new(Settings {
                dedicated: dedicated.clone(),
                ..settings
            });
            fn put(value: Value, engine: &mut Engine) -> Vec<String> {
                engine.apply(
                    vec![Change::put(Object::parse(value).expect("an object"))],
                    SystemTime::UNIX_EPOCH,
                );
                match engine.services().get(&ObjectName::new("a", "edge")) {
                    Some(ServiceIntent::Wanted(desired)) => {
                        desired.envoys.keys().map(ToString::to_string).collect()
                    }
                    _ => Vec::new(),
                }
            }
            put(
                json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
                "metadata": {"name": "g"}, "spec": {"controllerName": "c"}}),
                &mut engine,
            );
            put(
                json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": "edge", "namespace": "a"}, "spec": {"gatewayClassName": "g",
                    "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}),
                &mut engine,
            );
            assert_eq!(
                put(slice("envoy", &["10.0.0.1"]), &mut engine),
                before,
                "{dedicated:?}"
            );
            assert_eq!(
                put(slice("own", &["10.0.0.2"]), &mut engine),
                with_own,
                "{dedicated:?}"
            );
            assert_eq!(put(slice("own", &[]), &mut engine), before, "{dedicated:?}");
        }
    }

    #[test]
    fn names_fit_a_label_and_stay_apart() {
        assert_eq!(label("edge-gatewright"), "edge-gatewright");
        let long = "a".repeat(253);
        for odd in ["a.b-c", "1st-c", long.as_str(), &format!("{long}b")] {
            let made = label(odd);
            assert!(
                made.len() <= 63 && made.starts_with("gw-") && !made.contains('.'),
                "{made}"
            );
        }
        assert_ne!(label("a.b-c"), label("a-b.c"));
        assert_ne!(label(&long), label(&format!("{long}b")));
    }
}
