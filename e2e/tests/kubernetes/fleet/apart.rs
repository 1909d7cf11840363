//! Envoys of the shared and of the dedicated fleet: each has an identity of its own, and neither
//! gets resources of the other.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{BACKEND, Cluster, is_true, service};
use e2e::echo::Echo;
use e2e::envoy::Envoy;
use e2e::port::free_port;
use e2e::simenvoy::{CLUSTER, DeltaClient, ENDPOINTS, LISTENER, SCOPE, SECRET};
use e2e::xds_ca::XDS_NAME;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use envoy_types::pb::google::rpc::Status;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::{GATEWAY, answer, class, dedicated, give, parameters, target, tenant};
use crate::trust::{Keys, LIMIT, keys};

const NAMESPACE: &str = "gatewright-system";
const SERVICE: &str = "gatewright-envoy-dedicated";
const APART: [&str; 2] = [
    "--set",
    "envoys.dedicatedService=gatewright-envoy-dedicated",
];

/// Returns the keys of a fleet, once the controller has made them.
async fn keys_of(cluster: &Cluster, secret: &str) -> Result<Keys> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(keys) = keys(cluster, secret).await? {
            return Ok(keys);
        }
        ensure!(
            Instant::now() < deadline,
            "the controller made no Secret {secret}"
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// An Envoy of the dedicated fleet.
async fn dedicated_envoy(cluster: &Cluster, node: &str) -> Result<(Envoy, TempDir)> {
    let Keys { pair, bundle } = keys_of(cluster, SERVICE).await?;
    cluster
        .envoy_with(node, cluster.xds(), &pair, &bundle)
        .await
}

/// Connects as an Envoy with these keys.
async fn connect(at: SocketAddr, keys: &Keys) -> Result<Channel> {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&keys.bundle))
        .domain_name(XDS_NAME)
        .identity(Identity::from_pem(&keys.pair.certificate, &keys.pair.key));
    Ok(Endpoint::from_shared(format!("https://{at}"))?
        .tls_config(tls)?
        .connect()
        .await?)
}

/// Connects as an Envoy with these keys. Returns the names of its resources of all kinds, and of
/// the requested secrets those that exist.
pub(crate) async fn told(
    at: SocketAddr,
    keys: &Keys,
    secrets: &[&str],
) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let mut names = BTreeSet::new();
    let mut client = DeltaClient::open_with(connect(at, keys).await?, "curious", LISTENER).await?;
    for kind in [CLUSTER, SCOPE] {
        client.subscribe(kind, &[]).await?;
    }
    // These are requested by name.
    client
        .subscribe(ENDPOINTS, &["shopping/web:80", "banking/web:80"])
        .await?;
    client.subscribe(SECRET, secrets).await?;
    let mut found = BTreeSet::new();
    let mut open: BTreeSet<&str> = secrets.iter().copied().collect();
    // Every requested name of a secret is answered, by the secret or by its removal.
    while !open.is_empty() {
        let response = timeout(LIMIT, client.receive())
            .await
            .context("no answer")??;
        let is_secret = response.type_url == SECRET;
        for name in &response.removed_resources {
            open.remove(name.as_str());
        }
        for resource in &response.resources {
            if is_secret {
                open.remove(resource.name.as_str());
                found.insert(resource.name.clone());
            } else {
                names.insert(resource.name.clone());
            }
        }
        client.answer(response).await?;
    }
    // All other resources were sent before, or are sent at once.
    client.settle(Duration::from_millis(300)).await?;
    for kind in [LISTENER, CLUSTER, SCOPE, ENDPOINTS] {
        names.extend(client.held(kind).versions.keys().map(ToString::to_string));
    }
    Ok((names, found))
}

/// Requests a host continuously until it is stopped, and counts answers and failures.
struct Clients {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    task: JoinHandle<Vec<String>>,
}

impl Clients {
    fn start(address: SocketAddr, host: &'static str, owner: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let until = stop.clone();
        let count = answered.clone();
        let task = tokio::spawn(async move {
            let mut failed = Vec::new();
            while !until.load(Ordering::Relaxed) {
                match answer(address, host).await {
                    Ok(told) if told == owner => drop(count.fetch_add(1, Ordering::Relaxed)),
                    other => failed.push(format!("{other:?}")),
                }
                sleep(Duration::from_millis(20)).await;
            }
            failed
        });
        Self {
            stop,
            answered,
            task,
        }
    }

    async fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.task.await?;
        let answered = self.answered.load(Ordering::Relaxed);
        ensure!(
            failed.is_empty() && answered > 0,
            "{answered} answered, {} not: {:?}",
            failed.len(),
            failed.first()
        );
        Ok(())
    }
}

async fn until_answered(address: SocketAddr, host: &str, owner: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let told = answer(address, host).await;
        if told.as_ref().is_ok_and(|told| told == owner) {
            return;
        }
        assert!(Instant::now() < deadline, "{host} at {address}: {told:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until Envoys with these keys get the existing secrets, and checks their other resources.
async fn until_told(
    cluster: &Cluster,
    keys: &Keys,
    there: &[&str],
    not: &[&str],
    foreign: &[&str],
) -> Result<()> {
    let asked = [there, not].concat();
    let expected: BTreeSet<String> = there.iter().map(ToString::to_string).collect();
    let deadline = Instant::now() + LIMIT;
    loop {
        let (names, found) = told(cluster.xds(), keys, &asked).await?;
        let strange: Vec<_> = names
            .iter()
            .filter(|name| foreign.iter().any(|part| name.contains(part)))
            .collect();
        if found == expected && strange.is_empty() {
            return Ok(());
        }
        assert!(
            Instant::now() < deadline,
            "secrets {found:?}, and not {expected:?}; of others {strange:?}"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn envoys_of_a_fleet_see_that_fleet_alone() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    dedicated(&cluster).await?;
    for object in service(NAMESPACE, SERVICE, 80) {
        server.put(object).await?;
    }
    server.put(class("shared", None)).await?;
    let mut controller = cluster.controller_with("one", &APART)?;
    controller.line("xDS at").await?;
    let (shared_envoy, _tls) = cluster.envoy("shared-a").await?;
    let (own_envoy, _tls) = dedicated_envoy(&cluster, "dedicated-a").await?;

    // A Gateway of each fleet. Clients of both are served from here on, whatever happens to the
    // control plane.
    let shop = "shop.example.org";
    let bank = "bank.example.org";
    let ports = [free_port()?, free_port()?];
    let mut echos = Vec::new();
    for (name, class, port, host) in [
        ("shopping", "shared", ports[0], shop),
        ("banking", "own", ports[1], bank),
    ] {
        let echo = Echo::start_on(name, BACKEND).await?;
        tenant(&cluster, name, class, port, &[host]).await?;
        for object in service(name, "web", echo.address().port()) {
            server.put(object).await?;
        }
        echos.push(echo);
    }
    let made = cluster
        .until("v1", "Service", "banking", "edge-own", |o| {
            target(o).is_some()
        })
        .await?;
    give(&cluster, "banking", "edge-own", BACKEND).await?;
    for namespace in ["shopping", "banking"] {
        let gateway = cluster
            .until(GATEWAY, "Gateway", namespace, "edge", |o| {
                is_true(&o["status"], "Programmed")
            })
            .await?;
        let text = gateway["status"]["conditions"].to_string();
        assert!(
            text.contains("acknowledged by 1 of 1 Envoys"),
            "the other fleet's do not count: {text}"
        );
    }
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let own_port = target(&made).context("a port")?;
    until_answered(at(ports[0]), shop, "shopping").await;
    until_answered(at(own_port), bank, "banking").await;

    // A request over ADS for a secret of the other fleet's Gateway is answered like one for a
    // missing name.
    let of_shared = keys_of(&cluster, "gatewright-envoy").await?;
    let of_own = keys_of(&cluster, SERVICE).await?;
    until_told(
        &cluster,
        &of_shared,
        &[shop],
        &[bank, "nobody.example.org"],
        &["bank"],
    )
    .await?;
    until_told(
        &cluster,
        &of_own,
        &[bank],
        &[shop, "nobody.example.org"],
        &["shop", "shared"],
    )
    .await?;
    for (envoy, foreign) in [(&shared_envoy, "bank"), (&own_envoy, "shop")] {
        let held = envoy.admin("/config_dump?include_eds").await?;
        assert!(
            !held.contains(foreign),
            "an Envoy holds something of {foreign}"
        );
    }

    // A restart of the controller, and a second replica: the same, and no client is interrupted.
    let clients = [
        Clients::start(at(ports[0]), shop, "shopping"),
        Clients::start(at(own_port), bank, "banking"),
    ];
    drop(controller);
    let mut controller = cluster.controller_with("one", &APART)?;
    controller.line("xDS at").await?;
    until_told(&cluster, &of_shared, &[shop], &[bank], &["bank"]).await?;
    until_told(&cluster, &of_own, &[bank], &[shop], &["shop", "shared"]).await?;
    let [of_shop, of_bank] = clients;
    of_bank.end().await?;

    // A Gateway that moves is served by the other fleet, including its certificate. The shop is
    // served all the time.
    let slice = |kind: &'static str| ("discovery.k8s.io/v1", "EndpointSlice", kind);
    server
        .put(parameters("own", json!({"fleet": "Shared"})))
        .await?;
    until_answered(at(ports[1]), bank, "banking").await;
    until_told(&cluster, &of_shared, &[shop, bank], &[], &[]).await?;
    until_told(
        &cluster,
        &of_own,
        &[],
        &[shop, bank],
        &["shop", "bank", "shared"],
    )
    .await?;
    let (version, kind, name) = slice("edge-own-v4");
    cluster
        .until(version, kind, "banking", name, Value::is_null)
        .await?;
    server
        .put(parameters("own", json!({"fleet": "Dedicated"})))
        .await?;
    let made = cluster
        .until("v1", "Service", "banking", "edge-own", |o| {
            target(o).is_some()
        })
        .await?;
    give(&cluster, "banking", "edge-own", BACKEND).await?;
    until_answered(at(target(&made).context("a port")?), bank, "banking").await;
    until_told(&cluster, &of_shared, &[shop], &[bank], &["bank"]).await?;
    until_told(&cluster, &of_own, &[bank], &[shop], &["shop", "shared"]).await?;
    of_shop.end().await?;
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// Subscribes to clusters, and refuses whatever is answered.
async fn refuse(client: &mut DeltaClient, clusters: &[&str], text: &str) -> Result<()> {
    client.subscribe(CLUSTER, clusters).await?;
    loop {
        let response = client.receive().await?;
        let error_detail = Some(Status {
            code: 3,
            message: text.to_owned(),
            details: Vec::new(),
        });
        let type_url = response.type_url;
        let response_nonce = response.nonce;
        client
            .request(DeltaDiscoveryRequest {
                type_url,
                response_nonce,
                error_detail,
                ..Default::default()
            })
            .await?;
    }
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn an_envoy_reports_about_objects_of_its_own_fleet_alone() -> Result<()> {
    const LIE: &str = "so says the liar";
    let cluster = Cluster::start().await?;
    dedicated(&cluster).await?;
    for object in service(NAMESPACE, SERVICE, 80) {
        cluster.server.put(object).await?;
    }
    cluster.server.put(class("shared", None)).await?;
    let mut controller = cluster.controller_with("one", &APART)?;
    controller.line("xDS at").await?;
    for (name, class) in [("shopping", "shared"), ("banking", "own")] {
        tenant(
            &cluster,
            name,
            class,
            free_port()?,
            &[&format!("{name}.example.org")],
        )
        .await?;
        for object in service(name, "web", 80) {
            cluster.server.put(object).await?;
        }
    }
    let keys = keys_of(&cluster, SERVICE).await?;
    until_told(
        &cluster,
        &keys,
        &["banking.example.org"],
        &[],
        &["shop", "shared"],
    )
    .await?;
    let mut liar = DeltaClient::open(connect(cluster.xds(), &keys).await?, "liar").await?;
    let is_told = |object: &Value| object["status"].to_string().contains(LIE);
    tokio::select! {
        ended = refuse(&mut liar, &["banking/web:80", "shopping/web:80"], LIE) => ended?,
        _ = cluster.until(GATEWAY, "HTTPRoute", "banking", "web", is_told) => {}
    }
    for (kind, name) in [("HTTPRoute", "web"), ("Gateway", "edge")] {
        let object = cluster
            .until(GATEWAY, kind, "shopping", name, |object| {
                object["status"].is_object()
            })
            .await?;
        assert!(!is_told(&object), "{object}");
    }
    Ok(())
}
