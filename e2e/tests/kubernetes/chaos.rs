//! Random faults from a seed, while hosts are added, changed and removed and clients send requests:
//! the result has the objects, statuses, answers and number of orders of a run without faults.
//!
//! `GATEWRIGHT_CHAOS_STEPS` sets the number of faults, and `GATEWRIGHT_CHAOS_SEED` the seed
//! (`make chaos`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::proxy::Proxy;
use e2e::clock::Clock;
use e2e::cluster::{ACCOUNT, condition};
use e2e::disk::Disk;
use e2e::envoy::Envoy;
use e2e::gatewright::Gatewright;
use e2e::link::Link;
use e2e::port::free_port;
use e2e::probe::{Answer, Probe, roots_of};
use e2e::setting::setting;
use e2e::tenants::{GATEWAY, TENANT, route, until, until_ready};
use kube::api::{ListParams, Patch, PatchParams};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use rustls::RootCertStore;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::certificates::place::{APEX, Place, SPACE};
use crate::hardening::bring_key;
use crate::serving::Traffic;
use crate::tenancy::troubles::compared;

/// Default number of faults, for a run of about a minute.
const STEPS: u64 = 12;
/// Time limit of a recovery on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// Default seed.
const SEED: u64 = 1;
/// A host that never changes, and that clients request continuously.
const STEADY: &str = "steady.cert.example.org";

/// A fault of one step; numbers are those of replicas.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The API server is killed, and restarted at the end of the step.
    ApiServer,
    /// etcd is killed, and restarted at the end of the step.
    Etcd,
    /// The CA accepts connections and does not answer.
    Ca,
    /// The network between Envoy and its replica is partitioned.
    LinkCut,
    /// That network is slow.
    LinkSlow,
    /// A replica is killed, and restarted.
    Kill(usize),
    /// A replica is stopped for longer than a Lease lasts, and continues with outdated state.
    Freeze(usize),
    /// One in four of a replica's requests is answered 429.
    Throttle(usize),
    /// A replica's watches are cut in the middle of an object.
    Cut(usize),
    /// A replica's renewals of the Lease are too late.
    LateLease(usize),
    /// A replica's writes are delayed.
    SlowWrites(usize),
    /// The API server does not answer a replica.
    Silence(usize),
    /// The wall clock of a replica is so many hours ahead, or behind.
    Clock(usize, i64),
    /// The disk is full on which a replica keeps the last good state.
    Disk(usize),
    /// Envoy is killed, and restarted without state.
    Envoy,
    /// Somebody deletes the Gateway, which is written again.
    GatewayDeleted,
    /// Somebody assigns the Gateway to another class, which is reverted.
    GatewayEdited,
}

impl Fault {
    fn drawn(rng: &mut TestRng) -> Self {
        let replica = below(rng, 2);
        let all = [
            Self::ApiServer,
            Self::Etcd,
            Self::Ca,
            Self::LinkCut,
            Self::LinkSlow,
            Self::Kill(replica),
            Self::Freeze(replica),
            Self::Throttle(replica),
            Self::Cut(replica),
            Self::LateLease(replica),
            Self::SlowWrites(replica),
            Self::Silence(replica),
            Self::Clock(replica, [-24, -1, 1, 24][below(rng, 4)]),
            Self::Disk(replica),
            Self::Envoy,
            Self::GatewayDeleted,
            Self::GatewayEdited,
        ];
        all[below(rng, all.len() as u32)]
    }
}

fn below(rng: &mut TestRng, limit: u32) -> usize {
    (rng.next_u32() % limit) as usize
}

/// A replica, and its proxy to the API server.
struct Replica {
    identity: &'static str,
    xds: SocketAddr,
    proxy: Proxy,
    clock: Clock,
    /// The directory of the last good state, with the key.
    disk: Disk,
    volume: TempDir,
    program: Option<Gatewright>,
}

/// An installation under faults.
struct Site {
    place: Place,
    replicas: [Replica; 2],
    /// The link between Envoy and the first replica.
    link: Link,
    envoy: Option<(Envoy, TempDir)>,
    traffic: Option<Traffic>,
    roots: RootCertStore,
    /// Versions of the current hosts, by number.
    hosts: BTreeMap<usize, usize>,
    /// Number of hosts that were ever made.
    made: usize,
    /// True if the API server or etcd was restarted.
    restarted: bool,
    /// UID and generation of the Gateway as somebody else left it.
    spoiled: (Value, i64),
}

fn host(number: usize) -> String {
    format!("h{number}.{APEX}")
}

/// A route whose answers contain its version.
fn versioned(number: usize, version: usize) -> Value {
    let mut object = route(SPACE, &format!("r{number}"), SPACE, &[&host(number)]);
    object["spec"]["rules"][0]["filters"] = json!([{"type": "ResponseHeaderModifier",
        "responseHeaderModifier": {"set": [{"name": "x-version", "value": version.to_string()}]}}]);
    object
}

impl Site {
    async fn start() -> Result<Self> {
        let place = Place::start().await?;
        let replica = async |identity| {
            let proxy = Proxy::start(&place.cluster.server, ACCOUNT).await?;
            let xds = SocketAddr::from(([127, 0, 0, 1], free_port()?));
            let volume = tempfile::Builder::new().prefix("volume").tempdir()?;
            std::fs::create_dir(volume.path().join("disk"))?;
            let disk = Disk::mount(&volume.path().join("disk"))?;
            anyhow::Ok(Replica {
                identity,
                xds,
                proxy,
                clock: Clock::new()?,
                disk,
                volume,
                program: None,
            })
        };
        let replicas = [replica("one").await?, replica("two").await?];
        let link = Link::start(replicas[0].xds).await?;
        let roots = roots_of(&place.pebble.issuing_root(0).await?)?;
        let hosts = BTreeMap::new();
        let spoiled = (Value::Null, 0);
        let mut site = Self {
            place,
            replicas,
            link,
            envoy: None,
            traffic: None,
            roots,
            hosts,
            made: 0,
            restarted: false,
            spoiled,
        };
        for number in 0..2 {
            site.start_replica(number).await?;
        }
        // Mounted Secrets, as the kubelet brings them.
        for replica in &site.replicas {
            bring_key(&site.place.cluster, &replica.volume.path().join("key")).await?;
        }
        site.place.by_acme().await?;
        site.place.route("steady", STEADY).await?;
        site.start_envoy().await?;
        Ok(site)
    }

    fn https(&self) -> SocketAddr {
        SocketAddr::new(self.place.address, 443)
    }

    async fn start_replica(&mut self, number: usize) -> Result<()> {
        let mut arguments = self.place.arguments();
        let Replica {
            identity,
            xds,
            proxy,
            clock,
            disk: _,
            volume,
            program,
        } = &mut self.replicas[number];
        for (option, file) in [
            ("--last-good", "disk/last-good"),
            ("--last-good-key", "key"),
        ] {
            arguments.extend([
                option.to_owned(),
                volume.path().join(file).display().to_string(),
            ]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let started = self
            .place
            .cluster
            .replica_through_at(identity, proxy, *xds, &arguments, clock)?;
        let started = program.insert(started);
        started.line("xDS at").await.map(drop)
    }

    /// Starts an Envoy and, once it serves, clients of the steady host.
    async fn start_envoy(&mut self) -> Result<()> {
        let (mut envoy, tls) = self
            .place
            .cluster
            .envoy_of("envoy-a", self.link.address())
            .await?;
        envoy.ready().await?;
        self.envoy = Some((envoy, tls));
        self.start_traffic().await
    }

    /// Starts clients of the steady host, once it is served.
    async fn start_traffic(&mut self) -> Result<()> {
        self.until_served(STEADY, None).await?;
        self.traffic = Some(Traffic::start(self.https(), STEADY));
        Ok(())
    }

    /// Stops the clients, before a fault that interrupts their service. None of their requests may
    /// have failed.
    async fn stop_traffic(&mut self) -> Result<()> {
        if let Some(traffic) = self.traffic.take() {
            traffic.some_more().await?;
            let failed = traffic.end().await?;
            let shown = &failed[..failed.len().min(5)];
            ensure!(
                failed.is_empty(),
                "{} requests for {STEADY} failed: {shown:#?}",
                failed.len()
            );
        }
        Ok(())
    }

    /// Waits until a host is served with its certificate, by this version of its route.
    async fn until_served(&self, host: &str, version: Option<usize>) -> Result<()> {
        let probe = Probe::https(self.https(), host).roots(self.roots.clone());
        let deadline = Instant::now() + LIMIT;
        loop {
            let answer = probe.send().await;
            let told = |answer: &Answer| {
                let told = answer
                    .headers
                    .get("x-version")
                    .and_then(|value| value.to_str().ok()?.parse().ok());
                answer.status == 200 && (version.is_none() || told == version)
            };
            if answer.as_ref().is_ok_and(told) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let status = answer.map(|answer| answer.status);
                // A panic makes the programs print their output.
                panic!(
                    "{host} is not served by version {version:?}: {status:?}\n{}",
                    self.known_of(host).await?
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the state of a host in objects and Envoy, for messages.
    async fn known_of(&self, host: &str) -> Result<String> {
        let routes = self
            .place
            .cluster
            .server
            .api(GATEWAY, "HTTPRoute", SPACE)
            .await?
            .list(&ListParams::default())
            .await?;
        let of_host = routes
            .iter()
            .filter(|route| route.data["spec"]["hostnames"][0] == host);
        let mut known: String = of_host
            .map(|route| format!("{}\n", route.data["status"]))
            .collect();
        if let Some((envoy, _)) = &self.envoy {
            let dump: Value = serde_json::from_str(&envoy.admin("/config_dump").await?)?;
            for part in dump["configs"].as_array().into_iter().flatten() {
                for (field, items) in part.as_object().into_iter().flatten() {
                    let items = items
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(ToString::to_string);
                    known.extend(
                        items
                            .filter(|item| item.contains(host))
                            .map(|item| format!("{field}: {item:.1500}\n")),
                    );
                }
            }
        }
        Ok(known)
    }

    async fn until_all_served(&self) -> Result<()> {
        for (number, version) in &self.hosts {
            self.until_served(&host(*number), Some(*version)).await?;
        }
        Ok(())
    }

    /// Adds, changes or removes a host.
    async fn change(&mut self, rng: &mut TestRng) -> Result<()> {
        let any = self
            .hosts
            .keys()
            .nth(below(rng, self.hosts.len().max(1) as u32))
            .copied();
        match (below(rng, 4), any) {
            (0, Some(number)) => {
                let version = self.hosts[&number] + 1;
                self.place
                    .cluster
                    .server
                    .put(versioned(number, version))
                    .await?;
                self.hosts.insert(number, version);
            }
            // A host that never had its certificate would hide how often it was ordered.
            (1, Some(number)) if self.is_served(number).await => {
                let routes = self
                    .place
                    .cluster
                    .server
                    .api(GATEWAY, "HTTPRoute", SPACE)
                    .await?;
                routes
                    .delete(&format!("r{number}"), &Default::default())
                    .await?;
                self.hosts.remove(&number);
            }
            _ => {
                self.place
                    .cluster
                    .server
                    .put(versioned(self.made, 0))
                    .await?;
                self.hosts.insert(self.made, 0);
                self.made += 1;
            }
        }
        Ok(())
    }

    async fn is_served(&self, number: usize) -> bool {
        let answer = Probe::https(self.https(), &host(number))
            .roots(self.roots.clone())
            .send()
            .await;
        answer.is_ok_and(|answer| answer.status == 200)
    }

    /// Starts a fault.
    async fn begin(&mut self, fault: Fault) -> Result<()> {
        let weather = |number: usize| self.replicas[number].proxy.weather.clone();
        match fault {
            Fault::ApiServer => self.place.cluster.server.kill(),
            Fault::Etcd => self.place.cluster.server.kill_etcd(),
            Fault::Ca => self.place.pebble.freeze()?,
            Fault::LinkCut => self.link.cut(true),
            Fault::LinkSlow => self.link.slow(Duration::from_millis(200)),
            Fault::Kill(number) => self.replicas[number].program = None,
            Fault::Freeze(number) => self.replicas[number]
                .program
                .as_ref()
                .context("it runs")?
                .freeze()?,
            Fault::Throttle(number) => weather(number).throttled.store(4, Ordering::Relaxed),
            Fault::Cut(number) => weather(number).cut.store(613, Ordering::Relaxed),
            Fault::LateLease(number) => weather(number).late.store(2_500, Ordering::Relaxed),
            Fault::SlowWrites(number) => weather(number).slow.store(700, Ordering::Relaxed),
            Fault::Silence(number) => weather(number).silent.store(true, Ordering::Relaxed),
            Fault::Clock(number, hours) => self.replicas[number].clock.set(hours * 3600)?,
            Fault::Disk(number) => self.replicas[number].disk.fill()?,
            Fault::Envoy => {
                // A CA that cannot reach the host would delay its order for a minute, which is not
                // the subject here.
                self.until_all_served().await?;
                self.stop_traffic().await?;
                self.envoy = None;
            }
            Fault::GatewayDeleted => {
                self.stop_traffic().await?;
                let gateways = self
                    .place
                    .cluster
                    .server
                    .api(GATEWAY, "Gateway", SPACE)
                    .await?;
                let gateway = serde_json::to_value(gateways.get("cozystack").await?)?;
                gateways.delete("cozystack", &Default::default()).await?;
                self.spoiled = (gateway["metadata"]["uid"].clone(), i64::MAX);
            }
            Fault::GatewayEdited => {
                self.stop_traffic().await?;
                let gateways = self
                    .place
                    .cluster
                    .server
                    .api(GATEWAY, "Gateway", SPACE)
                    .await?;
                let theirs = PatchParams {
                    field_manager: Some("kubectl-edit".to_owned()),
                    ..PatchParams::default()
                };
                let edit = json!({"spec": {"gatewayClassName": "theirs"}});
                let gateway = gateways
                    .patch("cozystack", &theirs, &Patch::Merge(&edit))
                    .await?;
                self.spoiled = (
                    json!(gateway.metadata.uid),
                    gateway.metadata.generation.context("it has one")?,
                );
            }
        }
        Ok(())
    }

    /// Ends a fault.
    async fn end(&mut self, fault: Fault) -> Result<()> {
        let weather = |number: usize| self.replicas[number].proxy.weather.clone();
        match fault {
            Fault::ApiServer => {
                self.restarted = true;
                self.place.cluster.server.resume().await?;
            }
            Fault::Etcd => {
                self.restarted = true;
                self.place.cluster.server.resume_etcd().await?;
            }
            Fault::Ca => self.place.pebble.thaw()?,
            Fault::LinkCut => self.link.cut(false),
            Fault::LinkSlow => self.link.slow(Duration::ZERO),
            Fault::Kill(number) => self.start_replica(number).await?,
            Fault::Freeze(number) => self.replicas[number]
                .program
                .as_ref()
                .context("it runs")?
                .thaw()?,
            Fault::Throttle(number) => weather(number).throttled.store(0, Ordering::Relaxed),
            Fault::Cut(number) => weather(number).cut.store(0, Ordering::Relaxed),
            Fault::LateLease(number) => weather(number).late.store(0, Ordering::Relaxed),
            Fault::SlowWrites(number) => weather(number).slow.store(0, Ordering::Relaxed),
            Fault::Silence(number) => weather(number).silent.store(false, Ordering::Relaxed),
            Fault::Clock(number, _) => self.replicas[number].clock.set(0)?,
            Fault::Disk(number) => self.replicas[number].disk.free()?,
            Fault::Envoy => self.start_envoy().await?,
            Fault::GatewayDeleted | Fault::GatewayEdited => {
                let (uid, generation) = &self.spoiled;
                self.place
                    .cluster
                    .until(GATEWAY, "Gateway", SPACE, "cozystack", |o| {
                        let meta = &o["metadata"];
                        (meta["uid"] != *uid || meta["generation"].as_i64() > Some(*generation))
                            && o["spec"]["gatewayClassName"] == "gatewright"
                            && condition(&o["status"], "Programmed").is_some_and(|c| {
                                c["status"] == "True"
                                    && c["observedGeneration"] == meta["generation"]
                            })
                    })
                    .await?;
                self.start_traffic().await?;
            }
        }
        Ok(())
    }

    /// Restarts programs that ended by themselves, as the kubelet does: a program that cannot write
    /// any more exits.
    async fn restart_ended(&mut self) -> Result<()> {
        for number in 0..2 {
            if self.replicas[number]
                .program
                .as_mut()
                .context("it was started")?
                .has_ended()?
            {
                self.start_replica(number).await?;
            }
        }
        Ok(())
    }
}

/// Returns objects of the tenant, with every status without fields that differ between two runs.
async fn outcome(place: &Place) -> Result<BTreeMap<String, String>> {
    let server = &place.cluster.server;
    let mut all = compared(e2e::tenants::objects(server, SPACE).await?, APEX, SPACE);
    for (version, kind) in [
        (GATEWAY, "Gateway"),
        (GATEWAY, "HTTPRoute"),
        (TENANT, "TenantGateway"),
    ] {
        for object in server
            .api(version, kind, SPACE)
            .await?
            .list(&ListParams::default())
            .await?
        {
            let name = object.metadata.name.clone().context("a name")?;
            let generation = object.metadata.generation;
            let mut status = object.data["status"].clone();
            strip(&mut status, generation);
            let status = status
                .to_string()
                .replace(&place.address.to_string(), "ADDRESS");
            all.insert(format!("status of {kind} {name}"), status);
        }
    }
    Ok(all)
}

/// Removes times from a status, and replaces generations by whether they are current.
fn strip(value: &mut Value, generation: Option<i64>) {
    match value {
        Value::Object(fields) => {
            fields.remove("lastTransitionTime");
            if let Some(observed) = fields.get_mut("observedGeneration") {
                *observed = json!(observed.as_i64() == generation);
            }
            for field in fields.values_mut() {
                strip(field, generation);
            }
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                strip(item, generation);
            }
            items.sort_by_key(ToString::to_string);
        }
        _ => {}
    }
}

/// Returns the outcome for the same hosts in a cluster of their own, without faults.
async fn undisturbed(hosts: &BTreeMap<usize, usize>) -> Result<BTreeMap<String, String>> {
    let place = Place::start().await?;
    let _controller = place.controller("one").await?;
    place.by_acme().await?;
    place.route("steady", STEADY).await?;
    let _envoy = place.envoy().await?;
    for (number, version) in hosts {
        place
            .cluster
            .server
            .put(versioned(*number, *version))
            .await?;
    }
    let roots = place.pebble.issuing_root(0).await?;
    for number in hosts.keys() {
        place.until_served(&host(*number), &roots).await?;
    }
    place.until_served(STEADY, &roots).await?;
    until_ready(&place.cluster, SPACE, "Reconciled").await?;
    place.cluster.quiet().await?;
    place.until_programmed().await?;
    outcome(&place).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes, Envoy, Pebble and libfaketime, and root for disks: e2e/tools install"]
#[allow(
    clippy::print_stderr,
    reason = "the seed is what a failure is repeated by"
)]
async fn faults_while_hosts_come_and_go_leave_what_a_run_without_leaves() -> Result<()> {
    let steps = setting("GATEWRIGHT_CHAOS_STEPS", STEPS)?;
    let seed = setting("GATEWRIGHT_CHAOS_SEED", SEED)?;
    eprintln!("GATEWRIGHT_CHAOS_SEED={seed} GATEWRIGHT_CHAOS_STEPS={steps}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut site = Site::start().await?;
    for step in 0..steps {
        let fault = Fault::drawn(&mut rng);
        eprintln!("step {step}: {fault:?}, {} hosts", site.hosts.len());
        site.begin(fault).await?;
        for _ in 0..below(&mut rng, 4) {
            if !matches!(fault, Fault::ApiServer | Fault::Etcd) {
                site.change(&mut rng).await?;
            }
        }
        // Duration of a fault: shorter and longer than a Lease.
        sleep(Duration::from_millis(u64::from(rng.next_u32() % 4_500))).await;
        site.end(fault).await?;
        site.restart_ended().await?;
        site.change(&mut rng).await?;
    }

    site.until_all_served().await?;
    until_ready(&site.place.cluster, SPACE, "Reconciled").await?;
    for number in (0..site.made).filter(|number| !site.hosts.contains_key(number)) {
        until("what is gone is not served", async || {
            Ok(!site.is_served(number).await)
        })
        .await?;
    }
    site.place.cluster.quiet().await?;
    // On a busy machine Envoy needs some time.
    site.place.until_programmed().await?;
    let found = outcome(&site.place).await?;
    site.stop_traffic().await?;
    assert_eq!(
        site.place.pebble.issued(),
        site.made + 1,
        "each host has had one certificate"
    );
    // A server that has just started does not apply RBAC for a moment.
    if !site.restarted {
        assert_eq!(
            site.place.cluster.denied()?,
            [],
            "every right that is needed is given"
        );
    }
    let hosts = site.hosts.clone();
    drop(site);
    let expected = undisturbed(&hosts).await?;
    assert!(
        found.keys().eq(expected.keys()),
        "{:?}\ninstead of {:?}",
        found.keys(),
        expected.keys()
    );
    for (what, found) in found {
        assert_eq!(found, expected[&what], "{what}");
    }
    Ok(())
}
