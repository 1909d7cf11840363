//! The dedicated fleet: a Service for each Gateway, whose ports lead to ports of the Envoys that are its alone.
//!
//! Which port of the Envoys stands for which port of a Gateway is recorded in the Service and nowhere else, so that
//! all replicas have their Envoys listen on the same, also after a restart: a wanted certificate names what is recorded, and what is
//! free for what is not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use sha2::{Digest, Sha256};

use super::engine::{Dirty, Engine};
use super::fleet::{Fleet, is_shared, reach};
use super::key::{ParentKey, Verdict};
use super::parent::Parent;
use crate::inputs::{Address, EXPOSES, Exposure, Gateway, MANAGED_BY, MANAGER, ServiceParameters, ServiceType};
use crate::model::{FrontendId, GatewayAddress, ObjectName, Reason};

/// The ports of the Envoys that lead to Gateways of the dedicated fleet, and to nobody else: below those that Kubernetes
/// gives to nodes and Linux to clients.
const INTERNAL: std::ops::Range<u16> = 20_000..30_000;
/// The labels of GEP-1762.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
const CLASS_NAME: &str = "gateway.networking.k8s.io/gateway-class-name";
/// Which labels and annotations the Gateway asked for: without it nobody would see that one is asked for no longer.
const ASKED: &str = "gatewright.io/infrastructure";

/// The Service that a Gateway is to have, and what is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredService {
    /// Its name.
    pub name: ObjectName,
    /// The Gateway.
    pub gateway: ObjectName,
    /// Its type.
    pub kind: ServiceType,
    /// Which load balancer, if one is chosen.
    pub load_balancer_class: Option<String>,
    /// The address that the Gateway asks for.
    pub address: Option<IpAddr>,
    /// The port of the Envoys for each port.
    pub targets: BTreeMap<u16, u16>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The Envoys.
    pub envoys: BTreeSet<IpAddr>,
}

/// What is to become of a Gateway's Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceIntent {
    /// It is to be like this.
    Wanted(Box<DesiredService>),
    /// It stays as it is, with its address: the Gateway is not served now for something that may be put right.
    Left,
}

impl ServiceIntent {
    /// The name of the Service that is wanted.
    pub fn name(&self) -> Option<&ObjectName> {
        match self {
            ServiceIntent::Wanted(desired) => Some(&desired.name),
            ServiceIntent::Left => None,
        }
    }
}

/// A name that fits where a label of DNS has to: itself where it does, else shortened and told apart by a hash.
fn label(text: &str) -> String {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = text.len() <= 63
        && text.bytes().all(|byte| is_letter(byte) || byte == b'-')
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if fits {
        return text.to_owned();
    }
    let hash: String = Sha256::digest(text.as_bytes()).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let plain: String = text.chars().map(|c| if c == '.' { '-' } else { c }).take(45).collect();
    format!("gw-{}-{hash}", plain.trim_end_matches('-'))
}

/// The value of a label: as it is where it fits (63 characters), else as [`label`].
fn value(text: &str) -> String {
    if text.len() <= 63 { text.to_owned() } else { label(text) }
}

/// The name of a Gateway's Service (GEP-1762).
pub(super) fn service_name(gateway: &Gateway) -> ObjectName {
    let name = &gateway.meta.name;
    ObjectName::new(name.namespace.clone(), label(&format!("{}-{}", name.name, gateway.class)))
}

/// Why a listener has no place on a port: it is one at which Envoys serve Gateways of the dedicated fleet, which whoever
/// binds it as well would get the connections of.
pub(super) fn reserved(port: u16) -> Option<(Reason, String)> {
    INTERNAL.contains(&port).then(|| {
        let text = format!(
            "port {port} is not to be had: on ports {} to {} Envoys serve Gateways of fleet Dedicated; use another one",
            INTERNAL.start,
            INTERNAL.end - 1
        );
        (Reason::PortUnavailable, text)
    })
}

/// Whether Envoys serve Gateways of the dedicated fleet on a port: Services record whose it is.
pub(super) fn is_internal(port: u16) -> bool {
    INTERNAL.contains(&port)
}

/// The ports of the Envoys that a Service records, each once. What could be nobody's is not believed: anybody who may
/// write Services can make one that looks like ours.
fn recorded(exposure: &Exposure) -> BTreeMap<u16, u16> {
    let mut targets = BTreeMap::new();
    for (port, target) in exposure.targets.iter().filter(|(_, target)| INTERNAL.contains(target)) {
        if !targets.values().any(|taken| taken == target) {
            targets.insert(*port, *target);
        }
    }
    targets
}

impl Engine {
    /// What is recorded of a Gateway of the dedicated fleet.
    fn exposure(&self, gateway: &Gateway) -> Option<&Exposure> {
        let service = self.store.service(&service_name(gateway))?;
        service.exposure.as_deref().filter(|exposure| exposure.gateway == gateway.meta.name)
    }

    /// Where Envoys are to bind the frontends of a Gateway, or what Gateways share: the age that decides between rivals,
    /// and addresses and port by the port of the API.
    pub(super) fn sockets_of(&self, place: &ObjectName) -> (i64, impl Fn(u16) -> (Vec<IpAddr>, u16)) {
        let gateway = self.store.gateway(place);
        let created = gateway.map_or(0, |gateway| gateway.meta.created);
        let dedicated = gateway
            .filter(|gateway| reach(gateway, &self.store, &self.settings).is_ok_and(|r| r.fleet == Fleet::Dedicated));
        let targets = dedicated.map(|gateway| self.exposure(gateway).map(recorded).unwrap_or_default());
        let everywhere = vec![Ipv4Addr::UNSPECIFIED.into()];
        let reached = match gateway {
            Some(gateway) => self.addresses(&gateway.addresses),
            // Where it is reached may not be known yet, and is no address of theirs.
            None if is_shared(place)
                && self.settings.default_addresses.is_empty()
                && self.settings.envoys.is_some() =>
            {
                everywhere.clone()
            }
            None if is_shared(place) => self.addresses(&[]),
            None => Vec::new(),
        };
        let bind = |reached: Vec<IpAddr>| match self.settings.bind.is_empty() || reached.is_empty() {
            true => reached,
            false => self.settings.bind.clone(),
        };
        let (addresses, everywhere) = (bind(reached), bind(everywhere));
        let may_be_dedicated = self.settings.envoys.is_some();
        let led = self.led().filter(|_| is_shared(place));
        let socket = move |port: u16| match &targets {
            // Nobody comes to a port that the Service does not have: Envoys do not open it.
            None if led.as_ref().is_some_and(|led| !led.contains(&port)) => (Vec::new(), port),
            // Whatever a listener was told: these ports are others'.
            None if may_be_dedicated && INTERNAL.contains(&port) => (Vec::new(), port),
            None => (addresses.clone(), port),
            Some(targets) => match targets.get(&port) {
                Some(target) => (everywhere.clone(), *target),
                None => (Vec::new(), port),
            },
        };
        (created, socket)
    }

    /// A Service that leads to a Gateway came, went or changed: `old` is what it was.
    pub(super) fn touch_exposure(&mut self, name: &ObjectName, old: Option<&Exposure>, dirty: &mut Dirty) {
        let new = self.store.service(name).and_then(|service| service.exposure.clone());
        for (exposure, there) in [(old, false), (new.as_deref(), true)] {
            let Some(exposure) = exposure else { continue };
            for target in recorded(exposure).values() {
                self.taken.set(target, &exposure.gateway, there);
                self.takes.set(&exposure.gateway, target, there);
                dirty.services.extend(self.taken.of(target).cloned());
            }
            dirty.services.insert(exposure.gateway.clone());
        }
        let mut gateways: BTreeSet<ObjectName> =
            old.into_iter().chain(new.as_deref()).map(|e| e.gateway.clone()).collect();
        // Somebody else's may stand in the way.
        gateways.extend(
            self.exposed.iter().filter(|(_, intent)| intent.name() == Some(name)).map(|(gateway, _)| gateway.clone()),
        );
        for gateway in gateways {
            self.bind(&gateway, dirty);
            dirty.statuses.insert(ParentKey::Gateway(gateway.clone()).object());
            dirty.services.insert(gateway);
        }
    }

    /// A Gateway came, went or changed: with its age those change who have a port of the Envoys that it has as well.
    pub(super) fn touch_rivals(&self, name: &ObjectName, dirty: &mut Dirty) {
        dirty.services.insert(name.clone());
        // Those recorded of it count, also where it is of another class now, or gone.
        for target in self.takes.of(name) {
            dirty.services.extend(self.taken.of(target).cloned());
        }
    }

    /// The Envoys came or went.
    pub(super) fn touch_envoys(&self, service: &ObjectName, dirty: &mut Dirty) {
        if self.settings.envoys.as_ref() == Some(service) {
            dirty.services.extend(self.exposed.keys().cloned());
        }
    }

    /// Says what Service a Gateway is to have, where that is different from before.
    pub(super) fn desire_service(&mut self, gateway: &ObjectName, dirty: &mut Dirty) {
        let intent = self.service_intent(gateway);
        let before = match &intent {
            Some(intent) => self.exposed.insert(gateway.clone(), intent.clone()),
            None => self.exposed.remove(gateway),
        };
        if before != intent {
            dirty.delta.services.insert(gateway.clone(), intent);
        }
    }

    /// Says why a Gateway's Service cannot be as it is to be.
    pub(super) fn set_unexposed(&mut self, gateway: ObjectName, text: Option<String>, dirty: &mut Dirty) {
        dirty.statuses.insert(ParentKey::Gateway(gateway.clone()).object());
        match text {
            Some(text) => self.unexposed.insert(gateway, text),
            None => self.unexposed.remove(&gateway),
        };
    }

    /// The Services that Gateways are to have.
    pub fn services(&self) -> &BTreeMap<ObjectName, ServiceIntent> {
        &self.exposed
    }

    /// What is to become of a Gateway's Service; `None` when it is to have none.
    fn service_intent(&self, name: &ObjectName) -> Option<ServiceIntent> {
        let gateway = self.store.gateway(name)?;
        // An installation without Envoys behind a Service never made one.
        self.settings.envoys.as_ref()?;
        let Some(parent) = self.parents.get(&ParentKey::Gateway(name.clone())) else {
            return self.store.class(&gateway.class).is_none().then_some(ServiceIntent::Left);
        };
        if parent.accepted.is_err() || parent.stand.unusable.is_some() {
            return Some(ServiceIntent::Left);
        }
        let dedicated = parent.stand.reach.fleet == Fleet::Dedicated;
        dedicated.then(|| ServiceIntent::Wanted(Box::new(self.desired_service(parent, gateway))))
    }

    fn desired_service(&self, parent: &Parent, gateway: &Gateway) -> DesiredService {
        let name = &gateway.meta.name;
        let mut ports: BTreeSet<u16> = parent.listeners.iter().map(|listener| listener.port).collect();
        let start = FrontendId { gateway: name.clone(), port: 0 };
        let frontends = self.frontends.range(start..).take_while(|(id, _)| id.gateway == *name);
        ports.extend(frontends.filter(|(_, frontend)| !frontend.is_idle()).map(|(id, _)| id.port));
        let asked = gateway.infrastructure.as_deref().cloned().unwrap_or_default();
        let keys: BTreeSet<&str> = asked.labels.keys().chain(asked.annotations.keys()).map(String::as_str).collect();
        let keys: Vec<&str> = keys.into_iter().collect();
        let mut labels = asked.labels.clone();
        for (name, text) in [(MANAGED_BY, MANAGER), (GATEWAY_NAME, &*name.name), (CLASS_NAME, gateway.class.as_str())] {
            labels.insert(name.to_owned(), value(text));
        }
        let mut annotations = asked.annotations.clone();
        annotations.insert(EXPOSES.to_owned(), name.name.to_string());
        annotations.insert(ASKED.to_owned(), keys.join(","));
        let ServiceParameters { r#type, load_balancer_class } = parent.stand.reach.service.clone();
        let kind = r#type.unwrap_or(ServiceType::LoadBalancer);
        DesiredService {
            name: service_name(gateway),
            gateway: name.clone(),
            kind,
            load_balancer_class: load_balancer_class.filter(|_| kind == ServiceType::LoadBalancer),
            address: gateway.addresses.iter().find_map(Address::ip).copied(),
            targets: self.targets(gateway, &ports),
            labels,
            annotations,
            envoys: self.envoys(),
        }
    }

    fn envoys(&self) -> BTreeSet<IpAddr> {
        let slices = self.settings.envoys.iter().flat_map(|service| self.store.slices(service));
        slices.flat_map(|slice| slice.addresses.iter().copied()).collect()
    }

    /// The port of the Envoys for each port of a Gateway: the recorded one, unless an older Gateway has it as well; else
    /// the first free one from a place on that the name gives.
    fn targets(&self, gateway: &Gateway, ports: &BTreeSet<u16>) -> BTreeMap<u16, u16> {
        let name = &gateway.meta.name;
        let age = |name: &ObjectName| (self.store.gateway(name).map_or(i64::MAX, |g| g.meta.created), name.clone());
        let own = (gateway.meta.created, name.clone());
        let is_ours = |target: u16| self.taken.of(&target).all(|other| other == name || age(other) > own);
        let mut targets = BTreeMap::new();
        for (port, target) in self.exposure(gateway).map(recorded).unwrap_or_default() {
            if ports.contains(&port) && is_ours(target) {
                targets.insert(port, target);
            }
        }
        for port in ports.iter().filter(|port| !targets.contains_key(port)).copied().collect::<Vec<_>>() {
            let hash = Sha256::digest(format!("{name}:{port}").as_bytes());
            let start = u16::from_be_bytes([hash[0], hash[1]]) % (INTERNAL.end - INTERNAL.start);
            let mut candidates = (start..INTERNAL.end - INTERNAL.start).chain(0..start).map(|n| INTERNAL.start + n);
            let is_free = |target: &u16| {
                self.taken.of(target).all(|other| other == name) && !targets.values().any(|used| used == target)
            };
            if let Some(target) = candidates.find(is_free) {
                targets.insert(port, target);
            }
        }
        targets
    }

    /// Where a Gateway of the dedicated fleet is reached, and why nowhere or not as it is to be.
    pub(super) fn exposed(&self, parent: &Parent, gateway: &Gateway) -> (Vec<GatewayAddress>, Verdict) {
        let (all, verdict) = self.reached_by_service(parent, gateway);
        let Some(text) = self.unexposed.get(&gateway.meta.name) else { return (all, verdict) };
        let reason = verdict.err().map_or(Reason::Pending, |(reason, _)| reason);
        (all, Err((reason, text.clone())))
    }

    fn reached_by_service(&self, parent: &Parent, gateway: &Gateway) -> (Vec<GatewayAddress>, Verdict) {
        let name = service_name(gateway);
        let Some(exposure) = self.exposure(gateway) else {
            let text = match self.store.service(&name) {
                Some(_) => format!("Service {name} is somebody else's: remove it, or give the Gateway another name"),
                None => format!("Service {name} is not there yet"),
            };
            return (Vec::new(), Err((Reason::AddressNotAssigned, text)));
        };
        let all = self.store.service(&name).map(|service| service.reached.clone()).unwrap_or_default();
        let wanted = &parent.stand.reach.service;
        if let (Some(class), true) = (&wanted.load_balancer_class, exposure.is_balanced())
            && wanted.r#type.is_none_or(|kind| kind == ServiceType::LoadBalancer)
            && exposure.load_balancer_class.as_ref() != Some(class)
        {
            let has = exposure.load_balancer_class.as_deref().map_or("none".to_owned(), |has| format!("{has:?}"));
            let text = format!(
                "Service {name} is to have loadBalancerClass {class:?} and has {has}, which Kubernetes does not change: \
                 delete the Service, and it is made anew, with another address"
            );
            return (all, Err((Reason::Invalid, text)));
        }
        let asked = gateway.addresses.iter().find_map(Address::ip);
        if let (Some(ip), true) = (asked, all.is_empty()) {
            let text = format!(
                "spec.addresses: nobody gave Service {name} the address {ip}: it is not one of the load balancer's, or \
                 in use, or the load balancer has not come to it yet"
            );
            return (all, Err((Reason::AddressNotUsable, text)));
        }
        if all.is_empty() {
            let text = format!("Service {name} has no address yet: whatever gives addresses to load balancers does it");
            return (all, Err((Reason::AddressNotAssigned, text)));
        }
        if let Some(ip) = asked {
            if !all.contains(&GatewayAddress::Ip(*ip)) {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                let text = format!("spec.addresses: Service {name} got {} instead of {ip}", all.join(", "));
                return (Vec::new(), Err((Reason::AddressNotUsable, text)));
            }
            return (vec![GatewayAddress::Ip(*ip)], Ok(()));
        }
        let targets = recorded(exposure);
        if parent.listeners.iter().all(|listener| !targets.contains_key(&listener.port)) {
            return (all, Err((Reason::Pending, format!("Service {name} does not lead here yet"))));
        }
        (all, Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{Kind, Object, ObjectKey};
    use crate::model::{ConditionType, Status};
    use crate::translate::{Change, Settings, StatusBody};

    /// `Programmed` of the Gateway, and its addresses.
    fn programmed(engine: &Engine) -> (Status, String, usize) {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge"));
        let Some(StatusBody::Gateway(status)) = engine.status(&key).map(|status| status.body) else {
            panic!("a Gateway has a status")
        };
        let found =
            status.conditions.iter().find(|condition| condition.kind == ConditionType::Programmed).expect("it has one");
        (found.status, format!("{:?}: {}", found.reason, found.message), status.addresses.len())
    }

    #[test]
    fn what_the_server_refuses_is_told_until_it_is_taken() {
        let envoys = Some(ObjectName::new("ours", "envoy"));
        let mut engine = Engine::new(Settings { fleet: Fleet::Dedicated, envoys, ..Settings::new("c", vec![]) });
        let mut apply = |change: Change| {
            engine.apply(vec![change], SystemTime::UNIX_EPOCH);
            engine
                .status(&ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge")))
                .is_some()
                .then(|| programmed(&engine))
        };
        let mut put = |value: Value| apply(Change::Put(Object::parse(value).expect("an object")));
        put(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "g"}, "spec": {"controllerName": "c"}}));
        put(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "a"}, "spec": {"gatewayClassName": "g",
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}));
        let refused =
            |text: &str| Change::Unexposed(ObjectName::new("a", "edge"), (!text.is_empty()).then(|| text.into()));
        let told = apply(refused("Service a/edge-g: exceeded quota")).expect("a status");
        assert_eq!(told, (Status::False, "AddressNotAssigned: Service a/edge-g: exceeded quota".to_owned(), 0));
        let told = apply(refused("")).expect("a status");
        assert_eq!(told, (Status::False, "AddressNotAssigned: Service a/edge-g is not there yet".to_owned(), 0));

        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "a", "name": "edge-g",
            "uid": "u", "labels": {MANAGED_BY: MANAGER}, "annotations": {EXPOSES: "edge"}, "ownerReferences": [{
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": "edge", "uid": "g", "controller": true}]},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "p80", "port": 80, "targetPort": 20_001}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}});
        let service = Change::Put(Object::parse(service).expect("an object"));
        assert_eq!(apply(service).expect("a status").0, Status::True);
        let told = apply(refused("Service a/edge-g: no more ports")).expect("a status");
        assert_eq!(told, (Status::False, "Pending: Service a/edge-g: no more ports".to_owned(), 1), "it is served on");
        assert_eq!(apply(refused("")).expect("a status").0, Status::True);
    }

    #[test]
    fn names_fit_a_label_and_stay_apart() {
        assert_eq!(label("edge-gatewright"), "edge-gatewright");
        let long = "a".repeat(253);
        for odd in ["a.b-c", "1st-c", long.as_str(), &format!("{long}b")] {
            let made = label(odd);
            assert!(made.len() <= 63 && made.starts_with("gw-") && !made.contains('.'), "{made}");
        }
        assert_ne!(label("a.b-c"), label("a-b.c"));
        assert_ne!(label(&long), label(&format!("{long}b")));
    }
}
