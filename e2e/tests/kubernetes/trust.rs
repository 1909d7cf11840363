//! Access to the xDS port of a running controller, and replacement of its authority: step by step
//! without an interruption, or at once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{Cluster, NAMESPACE};
use e2e::envoy::Envoy;
use e2e::port::free_port;
use e2e::simenvoy::{DeltaClient, LISTENER};
use e2e::xds_ca::{PemPair, XDS_NAME, XdsCa};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
pub(super) const FLEET: &str = "spiffe://gatewright.io/fleet/shared";
pub(super) const LIMIT: Duration = Duration::from_secs(180);
/// The overlap of a rotation; the program accepts no shorter one.
const OVERLAP: [&str; 2] = ["--set", "envoys.caOverlapSeconds=8"];

/// The content of a Secret for xDS connections.
pub(super) struct Keys {
    pub(super) pair: PemPair,
    pub(super) bundle: String,
}

pub(super) async fn keys(cluster: &Cluster, name: &str) -> Result<Option<Keys>> {
    let api: Api<Secret> = Api::namespaced(cluster.server.client(), NAMESPACE);
    let Some(secret) = api.get_opt(name).await? else {
        return Ok(None);
    };
    let data = secret.data.unwrap_or_default();
    let text = |key: &str| Some(String::from_utf8_lossy(&data.get(key)?.0).into_owned());
    let certificate = text("tls.crt").context("a certificate")?;
    let key = text("tls.key").context("a key")?;
    Ok(Some(Keys {
        pair: PemPair { certificate, key },
        bundle: text("ca.crt").unwrap_or_default(),
    }))
}

fn roots(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

/// Connects as a client of ours would.
pub(super) async fn connect(
    at: SocketAddr,
    bundle: &str,
    client: Option<&PemPair>,
) -> Result<Channel, String> {
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(bundle))
        .domain_name(XDS_NAME);
    if let Some(pair) = client {
        tls = tls.identity(Identity::from_pem(&pair.certificate, &pair.key));
    }
    let endpoint = Endpoint::from_shared(format!("https://{at}")).and_then(|to| to.tls_config(tls));
    endpoint
        .map_err(|e| e.to_string())?
        .connect()
        .await
        .map_err(|_| "no connection".to_owned())
}

/// Opens a stream as a client of ours would; returns the number of listeners that it gets, or the
/// error.
pub(super) async fn ask(
    at: SocketAddr,
    bundle: &str,
    client: Option<&PemPair>,
    node: &str,
) -> Result<usize, String> {
    let channel = connect(at, bundle, client).await?;
    let told = |status: tonic::Status| match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => status.code().to_string(),
        _ => "no connection".to_owned(),
    };
    let mut stream = DeltaClient::open_with(channel, node, LISTENER)
        .await
        .map_err(told)?;
    let answer = tokio::time::timeout(LIMIT, stream.receive())
        .await
        .map_err(|_| "no answer".to_owned())?;
    Ok(answer.map_err(told)?.resources.len())
}

pub(super) async fn gateway(cluster: &Cluster, port: u16) -> Result<()> {
    cluster
        .server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    cluster
        .server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright",
                "listeners": [{"name": "http", "protocol": "HTTP", "port": port}]}}))
        .await?;
    Ok(())
}

/// Changes the configuration, and waits until every one of these Envoys has it.
pub(super) async fn change_reaches(
    cluster: &Cluster,
    envoys: &[&Envoy],
    number: usize,
) -> Result<()> {
    let host = format!("h{number}.example.org");
    cluster
        .server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [host], "rules": [{"filters": [
                {"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]}]}}))
        .await?;
    let deadline = Instant::now() + LIMIT;
    for envoy in envoys {
        while !envoy.admin("/config_dump").await?.contains(&host) {
            let state = envoy.admin("/stats?filter=control_plane").await?;
            assert!(
                Instant::now() < deadline,
                "{host} does not reach an Envoy: {state}\n{}",
                envoy.log()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn only_an_envoy_of_the_fleet_is_told_anything() -> Result<()> {
    let cluster = Cluster::start().await?;
    let (mut controller, xds) = cluster.replica_with_xds("one")?;
    controller.line("xDS at").await?;
    gateway(&cluster, free_port()?).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", |o| {
            e2e::cluster::is_true(&o["status"], "Accepted")
        })
        .await?;
    let deadline = Instant::now() + LIMIT;
    let envoy = loop {
        if let Some(keys) = keys(&cluster, "gatewright-envoy").await? {
            break keys;
        }
        ensure!(Instant::now() < deadline, "no keys for Envoys");
        sleep(Duration::from_millis(50)).await;
    };
    let ours = XdsCa::load(
        &keys(&cluster, "gatewright-xds-ca")
            .await?
            .context("an authority")?
            .pair,
    )?;
    let hour = Duration::from_secs(3600);
    let foreign = XdsCa::new("gatewright xDS")?;
    let of = |ca: &XdsCa, identity: &str| ca.client(identity, hour);
    let denied = |code: Code| Err(code.to_string());
    let cases = [
        (
            "its own certificate",
            Some(envoy.pair.clone()),
            "envoy",
            Ok(1),
        ),
        (
            "another of the same identity",
            Some(of(&ours, FLEET)?),
            "envoy",
            Ok(1),
        ),
        (
            "what it calls itself does not matter",
            Some(of(&ours, FLEET)?),
            "fleet/other",
            Ok(1),
        ),
        (
            "no certificate",
            None,
            "envoy",
            Err("no connection".to_owned()),
        ),
        (
            "another authority's",
            Some(of(&foreign, FLEET)?),
            "envoy",
            Err("no connection".to_owned()),
        ),
        (
            "another identity",
            Some(of(&ours, "spiffe://gatewright.io/fleet/other")?),
            "shared",
            denied(Code::PermissionDenied),
        ),
        (
            "an identity that begins alike",
            Some(of(&ours, &format!("{FLEET}/x"))?),
            "shared",
            denied(Code::PermissionDenied),
        ),
        (
            "our own server's",
            Some(ours.server(XDS_NAME, hour)?),
            "envoy",
            Err("no connection".to_owned()),
        ),
    ];
    for (what, client, node, expected) in cases {
        let deadline = Instant::now() + LIMIT;
        loop {
            let told = ask(xds, &envoy.bundle, client.as_ref(), node).await;
            // Its Gateway may not be published yet, and an idle connection is closed after a while,
            // which on a busy machine precedes the answer.
            let on_its_way = told == Ok(0) && expected == Ok(1);
            let late = told == Err("no connection".to_owned()) && expected != told;
            if (on_its_way || late) && Instant::now() < deadline {
                sleep(Duration::from_millis(50)).await;
                continue;
            }
            assert_eq!(told, expected, "{what}");
            break;
        }
    }

    // The Envoys' keys are back within moments after a deletion.
    cluster.forget_keys().await?;
    let deadline = Instant::now() + LIMIT;
    while keys(&cluster, "gatewright-envoy").await?.is_none() {
        assert!(
            Instant::now() < deadline,
            "the keys of Envoys do not come back"
        );
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Keeps directories up to date with the Secret of Envoys, until dropped.
struct Bringing(tokio::task::JoinHandle<()>);

impl Drop for Bringing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Bundle and certificate of all keys that were written.
type Brought = Arc<Mutex<BTreeSet<(String, String)>>>;

impl Bringing {
    fn to(cluster: &Cluster, dirs: Vec<std::path::PathBuf>, brought: Brought) -> Self {
        let api: Api<Secret> = Api::namespaced(cluster.server.client(), NAMESPACE);
        Self(tokio::spawn(async move {
            loop {
                if let Ok(secret) = api.get("gatewright-envoy").await {
                    let files: BTreeMap<String, Vec<u8>> = secret
                        .data
                        .unwrap_or_default()
                        .into_iter()
                        .map(|(name, value)| (name, value.0))
                        .collect();
                    let text = |name: &str| {
                        String::from_utf8_lossy(files.get(name).map_or(&[], Vec::as_slice))
                            .into_owned()
                    };
                    brought
                        .lock()
                        .expect("nobody panics while holding it")
                        .insert((text("ca.crt"), text("tls.crt")));
                    for dir in &dirs {
                        e2e::kubelet::mount(dir, &files, None).expect("the directory is ours");
                    }
                }
                sleep(Duration::from_millis(200)).await;
            }
        }))
    }
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn an_authority_is_replaced_and_no_envoy_is_cut_off() -> Result<()> {
    let cluster = Cluster::start().await?;
    let (mut one, at_one) = cluster.replica_with_xds_and("one", &OVERLAP)?;
    one.line("xDS at").await?;
    let (mut two, at_two) = cluster.replica_with_xds_and("two", &OVERLAP)?;
    two.line("xDS at").await?;
    let (a, tls_a) = cluster.envoy_of("a", at_one).await?;
    let (b, tls_b) = cluster.envoy_of("b", at_two).await?;
    let brought = Brought::default();
    let _bringing = Bringing::to(
        &cluster,
        vec![tls_a.path().to_owned(), tls_b.path().to_owned()],
        brought.clone(),
    );
    let envoys = [&a, &b];
    gateway(&cluster, free_port()?).await?;
    change_reaches(&cluster, &envoys, 0).await?;
    let old = keys(&cluster, "gatewright-envoy")
        .await?
        .context("keys of Envoys")?;
    assert_eq!(roots(&old.bundle), 1);
    let connected = |told: &Result<usize, String>| matches!(told, Ok(1));

    // The authority is deleted. Every change still reaches both Envoys, through both replicas.
    let secrets: Api<Secret> = Api::namespaced(cluster.server.client(), NAMESPACE);
    secrets
        .delete("gatewright-xds-ca", &Default::default())
        .await?;
    let mut number = 0;
    let deadline = Instant::now() + 2 * LIMIT;
    let new = loop {
        number += 1;
        change_reaches(&cluster, &envoys, number).await?;
        let now = keys(&cluster, "gatewright-envoy")
            .await?
            .context("keys of Envoys")?;
        if roots(&now.bundle) == 1 && now.bundle != old.bundle {
            break now;
        }
        assert!(Instant::now() < deadline, "the authority is not replaced");
        sleep(Duration::from_millis(200)).await;
    };
    let overlapped = brought
        .lock()
        .expect("nobody panics while holding it")
        .iter()
        .any(|(bundle, certificate)| roots(bundle) == 2 && *certificate != old.pair.certificate);
    assert!(
        overlapped,
        "both are trusted while a certificate of the new one is brought"
    );
    assert!(
        !new.bundle.contains(old.bundle.trim()),
        "the old one is trusted no more"
    );
    for at in [at_one, at_two] {
        let deadline = Instant::now() + LIMIT;
        // The replica that is not the lease holder sees it a moment later.
        while connected(&ask(at, &new.bundle, Some(&old.pair), "old").await) {
            assert!(
                Instant::now() < deadline,
                "a certificate of the old authority is let in"
            );
            sleep(Duration::from_millis(100)).await;
        }
        let told = ask(at, &new.bundle, Some(&new.pair), "new").await;
        assert!(
            connected(&told),
            "a certificate of the new authority is let in: {told:?}"
        );
    }
    change_reaches(&cluster, &envoys, number + 1).await?;

    // A leaked key: nobody may use it from now on, not even on an open connection.
    let at_once = json!({"metadata": {"annotations": {"gatewright.io/replace": "at-once"}}});
    secrets
        .patch(
            "gatewright-xds-ca",
            &Default::default(),
            &Patch::Merge(&at_once),
        )
        .await?;
    let deadline = Instant::now() + LIMIT;
    let last = loop {
        let now = keys(&cluster, "gatewright-envoy")
            .await?
            .context("keys of Envoys")?;
        assert_eq!(roots(&now.bundle), 1, "there is no overlap");
        if now.bundle != new.bundle {
            break now;
        }
        assert!(Instant::now() < deadline, "the authority is not replaced");
        sleep(Duration::from_millis(50)).await;
    };
    let deadline = Instant::now() + LIMIT;
    for at in [at_one, at_two] {
        while connected(&ask(at, &new.bundle, Some(&new.pair), "leaked").await)
            || !connected(&ask(at, &last.bundle, Some(&last.pair), "new").await)
        {
            assert!(
                Instant::now() < deadline,
                "{at}: the old certificate is let in, or the new one is not"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }
    change_reaches(&cluster, &envoys, number + 2).await?;
    for program in [&one, &two] {
        assert!(
            program.output().contains("trusted no more; closing"),
            "streams of old certificates are ended"
        );
    }
    let secret = secrets.get("gatewright-xds-ca").await?;
    assert!(
        !secret
            .metadata
            .annotations
            .unwrap_or_default()
            .contains_key("gatewright.io/replace")
    );
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
