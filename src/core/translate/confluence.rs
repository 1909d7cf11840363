//! Property tests of the engine: *confluence*, any sequence of events has the same result as one
//! translation of the final objects from scratch; and *locality*, the work for one change does not
//! grow with the number of hosts.

mod access;
mod anew;
mod answers;
mod differences;
mod events;
mod facts;
mod filters;
mod fleets;
mod locality;
mod named;
mod policies;
mod rules;
mod sets;
mod told;

use self::events::*;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::{Value, json};

use access::{attached_policy, users};
use answers::{answer, direct_response};
use differences::differences;
use facts::{definitions, governed, granted, subject, ticket_keys, trust_bundles, withheld};
use filters::{addresses, filters};
use fleets::Seen;
use named::{misled, named, refer};
use policies::policy;
use rules::{with_auth, with_session};
use sets::{group, listener_set, parent_refs};

use super::rule::certificate::issued_secret_name;
use super::{
    Asked, ChallengeAnswer, Change, Delta, DesiredEnvoys, Engine, Fact, ObjectStatus, Resource,
    ResourceKey, ServiceIntent, Settings,
};
use gatewright_objects::channel::Channel;
use gatewright_objects::external_name::{ExternalNames, NamePolicy};
use gatewright_objects::inputs::{Object, ObjectChange, ObjectKey, Secret};
use gatewright_objects::limits::{Limits, NamespaceLimits, ObjectLimits};
use gatewright_objects::model::{
    Certificate, FrontendId, Hostname, ObjectName, PrivateKey, TransportPort,
};
use gatewright_objects::ownership::{Ownable, OwnerRecord};
use gatewright_objects::wanted::WantedCertificate;

const CONTROLLER: &str = "gatewright.io/gateway-controller";

/// The accumulated result of all deltas.
#[derive(Default, Debug, PartialEq)]
struct World {
    resources: BTreeMap<ResourceKey, Resource>,
    statuses: BTreeMap<ObjectKey, ObjectStatus>,
    services: BTreeMap<ObjectName, ServiceIntent>,
    envoys: BTreeMap<ObjectName, DesiredEnvoys>,
    wants: BTreeMap<ObjectName, WantedCertificate>,
    records: BTreeMap<Ownable, OwnerRecord>,
}

impl World {
    fn take(&mut self, delta: Delta) {
        for (key, resource) in delta.resources {
            match resource {
                Some(resource) => self.resources.insert(key, resource),
                None => self.resources.remove(&key),
            };
        }
        for (gateway, intent) in delta.envoys {
            match intent {
                Some(intent) => self.envoys.insert(gateway, intent),
                None => self.envoys.remove(&gateway),
            };
        }
        for (gateway, intent) in delta.services {
            match intent {
                Some(intent) => self.services.insert(gateway, intent),
                None => self.services.remove(&gateway),
            };
        }
        for (what, owner) in delta.records {
            match owner {
                Some(owner) => self.records.insert(what, owner),
                None => self.records.remove(&what),
            };
        }
        for (key, status) in delta.statuses {
            match status {
                Some(status) => self.statuses.insert(key, status),
                None => self.statuses.remove(&key),
            };
        }
        for (secret, want) in delta.wants {
            match want {
                Some(want) => self.wants.insert(secret, want),
                None => self.wants.remove(&secret),
            };
        }
    }

    /// Sockets to which two frontends of the same Envoys are bound: Envoy would give connections to
    /// either. `0.0.0.0` is every address, except in the ports of the dedicated fleet, which no
    /// other frontend may have at all.
    fn contested(&self) -> String {
        let mut taken: BTreeMap<(Option<&ObjectName>, IpAddr, TransportPort), &FrontendId> =
            BTreeMap::new();
        let mut told = String::new();
        for resource in self.resources.values() {
            let Resource::Frontend(frontend) = resource else {
                continue;
            };
            let internal = (20_000..30_000).contains(&frontend.port);
            if internal && frontend.id.port == frontend.port {
                told += &format!(
                    "{} is bound to a port of the dedicated fleet\n",
                    frontend.id
                );
            }
            for ip in &frontend.addresses {
                let all = if internal {
                    IpAddr::from([0, 0, 0, 0])
                } else {
                    *ip
                };
                let port = TransportPort {
                    number: frontend.port,
                    transport: frontend.id.transport,
                };
                let own = frontend.id.isolated.then_some(&frontend.id.gateway);
                if let Some(other) = taken.insert((own, all, port), &frontend.id) {
                    told += &format!(
                        "{other} and {} are both bound to {ip} port {port}\n",
                        frontend.id
                    );
                }
            }
        }
        told
    }
}

/// A hostname; the empty text is the hostname that matches every name.
pub(crate) fn hostname(text: &str) -> Hostname {
    if text.is_empty() {
        Hostname::any()
    } else {
        Hostname::parse(text).expect("a hostname")
    }
}

fn engine() -> Engine {
    Engine::new(settings("reached"))
}

/// Settings of installations: the addresses of Gateways, and whether Envoys are bound to these or
/// to others.
fn settings(how: &str) -> Settings {
    let addresses = if how == "by a Service" {
        vec![]
    } else {
        vec![IpAddr::from([127, 0, 0, 1])]
    };
    let bind = if how == "bound elsewhere" {
        vec![IpAddr::from([0, 0, 0, 0])]
    } else {
        vec![]
    };
    let limits = match how {
        "limited" => Limits {
            namespace: NamespaceLimits {
                routes: 2,
                envoy_mib: 1,
                clusters: 2,
                filter_chains: 1,
                policies: 1,
                external_names: 1,
                default_gateways: 1,
                isolated_gateways: 1,
                http3_hosts: 1,
                session_ticket_hosts: 1,
                ..Limits::default().namespace
            },
            object: ObjectLimits {
                service_endpoints: 1,
                ..Limits::default().object
            },
            ..Limits::default()
        },
        _ => Limits::NONE,
    };
    let envoys = Some(ObjectName::new("a", "web"));
    let channel = if how == "bound elsewhere" {
        Channel::Standard
    } else {
        Channel::Experimental
    };
    Settings {
        envoys,
        isolated: Some("a".into()),
        bind,
        limits,
        channel,
        external_names: ExternalNames::On(NamePolicy::default()),
        ..Settings::new(CONTROLLER, addresses)
    }
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)
}

fn object(value: Value) -> Object {
    let text = value.to_string();
    Object::parse(value).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn secret(namespace: &str, name: &str, serial: &str) -> Object {
    let certificate = Certificate {
        leaf: format!("chain {serial}").as_bytes().into(),
        issuers: Arc::from(""),
        key: PrivateKey::new(b"key"),
        names: vec![Hostname::any()],
        not_before: SystemTime::UNIX_EPOCH,
        not_after: now() + Duration::from_secs(if serial == "expired" { 0 } else { 1000 }),
        issuer: Arc::from("test"),
    };
    Object::Secret(Secret::with_certificate(
        ObjectName::new(namespace, name),
        Arc::new(certificate),
    ))
}

fn gateway_object(kind: &str, namespace: &str, name: &str, created: u32, spec: Value) -> Object {
    let version = if kind == "XListenerSet" {
        "v1alpha1"
    } else {
        "v1"
    };
    object(json!({
        "apiVersion": format!("{}/{version}", group(kind)), "kind": kind,
        "metadata": {"namespace": namespace, "name": name,
                     "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
        "spec": spec
    }))
}

fn pick(options: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(options)
}

const NAMESPACES: &[&str] = &["a", "b"];
/// Two of them are sometimes recorded as Envoy ports of a Gateway of the dedicated fleet.
const PORTS: &[u16] = &[80, 80, 80, 443, 443, 443, 25_225, 25_226];
const HOSTS: &[&str] = &[
    "",
    "*.x.org",
    "h.x.org",
    "g.x.org",
    "*.h.x.org",
    "k.h.x.org",
    "y.org",
];

/// CA certificates, in PEM.
static ROOTS: LazyLock<[String; 2]> = LazyLock::new(|| {
    ["one", "two"].map(|name| {
        rcgen::generate_simple_self_signed([name.to_owned()])
            .expect("a certificate")
            .cert
            .pem()
    })
});

fn parameters(fleet: &str) -> Object {
    let spec = match fleet {
        "" => {
            json!({"escapedSlashes": "Reject", "pathParameters": "Reject", "identityHeaders": "Keep", "plainHttp": "Redirect",
            "accessLog": {"mode": "Off"}, "clients": [
            {"ports": [80], "forwardedFor": {"hops": 1}},
            {"ports": [443], "proxyProtocol": {"mode": "Required", "from": ["192.0.2.0/24"]}}]})
        }
        "Shared, open" => json!({"fleet": "Shared", "plainHttp": "Redirect", "ports": [
            {"port": 25_225, "protocol": "TCP"}, {"port": 80, "protocol": "UDP"},
            {"port": 443, "protocol": "UDP", "namespaces": {"matchLabels": {"team": "blue"}}}],
            "clients": [{"ports": [80, 443], "forwardedFor": {"hops": 2}}]}),
        "Dedicated, named" => {
            json!({"fleet": "Dedicated", "namedServices": "Allow", "defaultGateways": "Allow",
                "policies": {"limits": {"networks": 1, "rateLimitClients": 50}},
                "clients": [{"ports": [80, 443], "forwardedFor": {"hops": 3}}]})
        }
        "Shared" => json!({"fleet": "Shared", "defaultGateways": "Allow",
            "policies": {"allow": ["ClientAddress", "JWT", "Compression"]}, "accessLog": {"mode": "Off"}}),
        fleet => json!({"fleet": fleet}),
    };
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"namespace": "a", "name": "p"}, "spec": spec}),
    )
}

/// A Service that we made for a Gateway, with an address or without. Of the Envoy ports that are
/// generated for it, one is the first choice for port 80 of Gateway a/g.
fn exposure(namespace: &str, gateway: &str, ip: &str, target: i32) -> Object {
    fn port(port: i32, target: &i32) -> Value {
        json!({"name": format!("p{port}"), "port": port, "targetPort": target + port / 443})
    }
    let datagrams =
        json!({"name": "p80-udp", "port": 80, "targetPort": target + 2, "protocol": "UDP"});
    let http3 =
        json!({"name": "p443-udp", "port": 443, "targetPort": target + 3, "protocol": "UDP"});
    let ingress = if ip.is_empty() {
        json!([])
    } else {
        json!([{"ip": ip}])
    };
    object(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": namespace, "name": format!("{gateway}-common"), "uid": "u",
            "labels": {"app.kubernetes.io/managed-by": "gatewright"}, "annotations": {"gatewright.io/gateway": gateway},
            "ownerReferences": [{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "name": gateway,
                "uid": "g", "controller": true}]},
        "spec": {"type": "LoadBalancer", "clusterIPs": [format!("10.96.0.{}", target - 25_200)], "ports": [port(80, &target), port(443, &target), datagrams, http3]},
        "status": {"loadBalancer": {"ingress": ingress}}}))
}

/// The objects before any other: a class whose Gateways have addresses of their own, and one whose
/// Gateways share them.
fn classes() -> [Object; 3] {
    fn class(name: &str, spec: Value) -> Object {
        object(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": name}, "spec": spec}),
        )
    }
    let parameters_ref = json!({"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "a", "name": "p"});
    let common = json!({"controllerName": CONTROLLER, "parametersRef": parameters_ref});
    [
        class("ours", json!({"controllerName": CONTROLLER})),
        class("common", common),
        parameters("Shared"),
    ]
}

/// The number of generated sequences. Failures are stored beside this file:
/// `confluence.regressions`.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: ProptestConfig::default().cases.max(400),
        max_shrink_iters: 4000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_sequence_of_events_ends_as_one_translation_from_nothing(
        how in pick(&["reached", "limited", "bound elsewhere", "by a Service", "few hashes"]),
        batches in proptest::collection::vec(proptest::collection::vec(event(), 1..5), 1..14)
    ) {
        check(how, batches)?;
    }

    #[test]
    fn a_wildcard_listener_and_what_lies_beneath_it_change_together(
        batches in proptest::collection::vec(proptest::collection::vec(beneath(), 1..3), 1..14)
    ) {
        check("reached", batches)?;
    }
}

/// An engine with these settings; with "few hashes" many scopes have the hash of another.
fn engine_of(how: &str) -> Engine {
    let mut engine = Engine::new(settings(how));
    if how == "few hashes" {
        engine.hash_scopes_by(|id, name| u64::from(id.port) + name.to_string().len() as u64 % 4);
    }
    engine
}

/// Applies batches of changes one by one, and compares with one translation of the final objects.
fn check(how: &str, batches: Vec<Vec<Change>>) -> Result<(), TestCaseError> {
    let mut engine = engine_of(how);
    let mut world = World::default();
    let mut last: BTreeMap<ObjectKey, Option<Object>> = BTreeMap::new();
    let mut told: BTreeMap<String, Change> = BTreeMap::new();
    let mut seen = Seen::default();
    world.take(engine.apply(classes().map(Change::put).to_vec(), now()));
    for batch in batches {
        for change in &batch {
            match change {
                Change::Object(ObjectChange::Put(object)) => {
                    last.insert(object.key(), Some(object.clone()));
                }
                Change::Object(ObjectChange::Delete(key)) => {
                    last.insert(key.clone(), None);
                }
                fact => {
                    told.insert(subject(fact), fact.clone());
                }
            }
        }
        let delta = engine.apply(batch, now());
        seen.take(&delta, &world, &engine);
        world.take(delta);
        prop_assert_eq!(world.contested() + &misled(&world), "");
        seen.check(&world, &engine)?;
    }
    for object in classes() {
        last.entry(object.key()).or_insert(Some(object));
    }
    let mut fresh = World::default();
    let mut anew = engine_of(how);
    // Earlier decisions are an input.
    let recorded = world
        .records
        .iter()
        .map(|(what, owner)| Change::Fact(Fact::Recorded(what.clone(), Some(owner.clone()))));
    let all = last
        .into_values()
        .flatten()
        .map(Change::put)
        .chain(told.into_values())
        .chain(recorded)
        .collect();
    fresh.take(anew.apply(all, now()));
    prop_assert_eq!(
        &fresh.records,
        &BTreeMap::new(),
        "the record is right as it is"
    );
    prop_assert_eq!(
        engine.ledger().records().keys().collect::<Vec<_>>(),
        world.records.keys().collect::<Vec<_>>()
    );
    prop_assert_eq!(differences(&world.resources, &fresh.resources), "");
    prop_assert_eq!(differences(&world.statuses, &fresh.statuses), "");
    prop_assert_eq!(told::silences(&engine), "");
    prop_assert_eq!(engine.digest(), anew.digest());
    prop_assert_eq!(&world.services, &fresh.services);
    prop_assert_eq!(&world.envoys, &fresh.envoys);
    let wanted: BTreeMap<ObjectName, WantedCertificate> = engine
        .wants()
        .into_iter()
        .map(|(want, _)| (want.secret.clone(), want))
        .collect();
    prop_assert_eq!(&world.wants, &wanted);
    prop_assert_eq!(&world.wants, &fresh.wants);
    let now = engine
        .statuses()
        .map(|(key, status)| (key.clone(), status))
        .collect();
    prop_assert_eq!(&world.statuses, &now);
    Ok(())
}
