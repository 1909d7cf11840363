//! `trafficDistribution` of a Service on real Envoys: two in different zones, and one without a
//! zone. All of them get the same endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Error, Result, ensure};
use e2e::probe::Probe;
use e2e::switched::Switched;
use e2e_inside::served::PATIENCE;
use e2e_inside::world::{World, api, class, edge, free_port, object};
use gatewright_core::inputs::{Kind, ObjectKey};
use gatewright_core::model::{ObjectName, Zone};
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::time::Instant;

const HOST: &str = "app.example.org";

/// Service `web` with this `trafficDistribution`.
fn web(distribution: Option<&str>) -> Change {
    let mut spec = json!({"ports": [{"name": "p", "port": 80}]});
    if let Some(distribution) = distribution {
        spec["trafficDistribution"] = json!(distribution);
    }
    object(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "default", "name": "web"}, "spec": spec}))
}

/// A policy of Service `web`.
fn policy(mut spec: Value) -> Change {
    spec["targetRefs"] = json!([{"group": "", "kind": "Service", "name": "web"}]);
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "TrafficPolicy",
        "metadata": {"namespace": "default", "name": "web"}, "spec": spec}),
    )
}

/// The slice of an endpoint of Service `web`.
fn slice(name: &str) -> ObjectName {
    ObjectName::new("default", format!("web-{name}").as_str())
}

/// Adds an endpoint of Service `web`.
fn endpoint(name: &str, address: SocketAddr, place: Value) -> Change {
    let mut endpoint = json!({"addresses": [address.ip().to_string()]});
    for (field, value) in place.as_object().into_iter().flatten() {
        endpoint[field] = value.clone();
    }
    object(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "default", "name": slice(name).name.as_ref(),
            "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "p", "port": address.port()}], "endpoints": [endpoint]}),
    )
}

fn without(name: &str) -> Change {
    Change::delete(ObjectKey::new(Kind::EndpointSlice, slice(name)))
}

/// An Envoy with a Gateway of its own, in a zone or in none.
struct Placed {
    world: World,
    http: u16,
    tcp: u16,
}

impl Placed {
    async fn start(zone: Option<&str>, backends: &[Change]) -> Result<Self> {
        let (http, tcp) = (free_port()?, free_port()?);
        let listeners = json!([{"name": "http", "port": http, "protocol": "HTTP"},
            {"name": "tcp", "port": tcp, "protocol": "TCP"}]);
        let mut changes = vec![class(), edge(listeners)];
        let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
        for (kind, name) in [("HTTPRoute", "http"), ("TCPRoute", "tcp")] {
            let parents = json!([{"name": "edge", "sectionName": name}]);
            changes.push(api(
                kind,
                name,
                json!({"parentRefs": parents, "rules": rules}),
            ));
        }
        changes.extend(backends.iter().cloned());
        let world = match zone {
            Some(zone) => World::start_in(changes, Zone::parse(zone).map_err(Error::msg)?).await?,
            None => World::start(changes).await?,
        };
        Ok(Self { world, http, tcp })
    }

    /// Waits until exactly these answer 30 requests in a row, over HTTP and over TCP.
    async fn until_by(&self, expected: &[&str]) -> Result<()> {
        for port in [self.http, self.tcp] {
            let probe = Probe::http((Ipv4Addr::LOCALHOST, port).into(), HOST);
            let deadline = Instant::now() + PATIENCE;
            loop {
                let mut names = BTreeSet::new();
                for _ in 0..30 {
                    let body = probe
                        .send()
                        .await
                        .map(|answer| answer.body)
                        .unwrap_or_default();
                    names.insert(String::from_utf8_lossy(&body).into_owned());
                }
                if names
                    .iter()
                    .map(String::as_str)
                    .eq(expected.iter().copied())
                {
                    break;
                }
                ensure!(
                    Instant::now() < deadline,
                    "answered by {names:?}, expected {expected:?}:\n{}",
                    self.world.envoy.log()
                );
            }
        }
        Ok(())
    }
}

/// The Envoys of zone `a`, of zone `b`, and of none.
struct Fleet(Vec<Placed>);

impl Fleet {
    async fn start(backends: &[Change]) -> Result<Self> {
        let mut all = Vec::new();
        for zone in [Some("a"), Some("b"), None] {
            all.push(Placed::start(zone, backends).await?);
        }
        Ok(Self(all))
    }

    async fn settle(&self, changes: Vec<Change>) -> Result<()> {
        for Placed { world, .. } in &self.0 {
            world.settle(changes.clone()).await?;
        }
        Ok(())
    }

    /// Waits until exactly these answer at each of them.
    async fn until_by(&self, expected: [&[&str]; 3]) -> Result<()> {
        for (placed, expected) in self.0.iter().zip(expected) {
            placed.until_by(expected).await?;
        }
        Ok(())
    }

    /// The versions of the endpoints that are published for each Envoy.
    fn published(&self) -> Vec<BTreeMap<String, String>> {
        self.0
            .iter()
            .map(|placed| versions(&placed.world))
            .collect()
    }
}

/// The versions of published endpoints.
fn versions(world: &World) -> BTreeMap<String, String> {
    let all = world.resources().into_iter();
    all.filter(|resource| resource.kind() == xds::Kind::Endpoints)
        .map(|resource| (resource.name().to_owned(), resource.version().to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn endpoints_of_an_envoys_own_zone_come_first() -> Result<()> {
    let in_a = Switched::start_on("in-a", "198.18.61.1").await?;
    let in_b = Switched::start_on("in-b", "198.18.61.2").await?;
    let nowhere = Switched::start_on("nowhere", "198.18.61.3").await?;
    let all: &[&str] = &["in-a", "in-b", "nowhere"];
    let backends = [
        web(None),
        endpoint("a", in_a.address(), json!({"zone": "a"})),
        endpoint("b", in_b.address(), json!({"zone": "b"})),
        endpoint("n", nowhere.address(), json!({})),
    ];
    let fleet = Fleet::start(&backends).await?;
    fleet.until_by([all, all, all]).await?;
    for distribution in ["PreferSameZone", "PreferClose", "PreferSameNode"] {
        fleet.settle(vec![web(Some(distribution))]).await?;
        fleet.until_by([&["in-a"], &["in-b"], all]).await?;
    }
    let published = fleet.published();
    ensure!(
        published.iter().all(|one| *one == published[0]) && !published[0].is_empty(),
        "the endpoints are the same whatever the zone: {published:?}"
    );

    // The endpoints of a zone go and come: the rest serves it meanwhile, and nothing but endpoints
    // is sent.
    for Placed { world, .. } in &fleet.0 {
        let (delta, generation) = world.apply(vec![without("a")]);
        let sent: Vec<String> = delta
            .resources
            .keys()
            .map(|key| format!("{key:?}"))
            .collect();
        ensure!(
            !sent.is_empty() && sent.iter().all(|key| key.starts_with("Endpoints")),
            "{sent:?}"
        );
        world.acknowledged(generation).await?;
    }
    fleet
        .until_by([&["in-b", "nowhere"], &["in-b"], &["in-b", "nowhere"]])
        .await?;
    // A hint of one zone counts in place of the endpoint's own.
    let hinted = json!({"zone": "b", "hints": {"forZones": [{"name": "a"}]}});
    fleet
        .settle(vec![endpoint("a", in_a.address(), hinted)])
        .await?;
    fleet.until_by([&["in-a"], &["in-b"], all]).await?;

    // A policy is combined with it, and a check that fails is as an endpoint that is not there.
    for kind in ["RoundRobin", "Random", "LeastRequest"] {
        let balanced = policy(json!({"loadBalancer": {"type": kind}}));
        fleet.settle(vec![balanced]).await?;
        fleet.until_by([&["in-a"], &["in-b"], all]).await?;
    }
    let active = json!({"type": "HTTP", "interval": "2s", "unhealthyThreshold": 1,
        "http": {"path": "/healthz"}});
    let checked = json!({"healthCheck": {"active": active, "panicThreshold": 0}});
    fleet.settle(vec![policy(checked)]).await?;
    fleet.until_by([&["in-a"], &["in-b"], all]).await?;
    in_a.health(503);
    fleet
        .until_by([&["in-b", "nowhere"], &["in-b"], &["in-b", "nowhere"]])
        .await?;
    in_a.health(200);
    fleet.until_by([&["in-a"], &["in-b"], all]).await?;

    // A hash goes by no zone, and without the field nothing is preferred.
    let key = json!({"type": "Header", "header": {"name": "x-user"}});
    let hash = json!({"loadBalancer": {"type": "ConsistentHash", "consistentHash": key}});
    fleet.settle(vec![policy(hash)]).await?;
    fleet.until_by([all, all, all]).await?;
    let name = ObjectName::new("default", "web");
    let unpoliced = Change::delete(ObjectKey::new(Kind::TrafficPolicy, name));
    fleet.settle(vec![unpoliced]).await?;
    fleet.until_by([&["in-a"], &["in-b"], all]).await?;
    for refused in [None, Some("Somewhere")] {
        fleet.settle(vec![web(Some("PreferSameZone"))]).await?;
        fleet.settle(vec![web(refused)]).await?;
        fleet.until_by([all, all, all]).await?;
    }
    Ok(())
}
