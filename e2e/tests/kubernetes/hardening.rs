//! A stolen token, untrusted clients at the port of probes, and a start without an API server.

mod metrics;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use e2e::cluster::{ACCOUNT, Cluster, NAMESPACE, service, tls_secret};
use e2e::envoy::Envoy;
use e2e::gatewright::Gatewright;
use e2e::probe::{Probe, roots_of};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Secret, Service, ServiceAccount};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::{Instant, sleep};

use crate::edge::{edge, route, until_answers};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const HOST: &str = "web.example.org";
const LIMIT: Duration = Duration::from_secs(180);

fn dry() -> PatchParams {
    PatchParams {
        dry_run: true,
        ..PatchParams::default()
    }
}

/// Returns the message of a refusal by our policy; `None` if it was admitted.
fn refusal<T>(answer: kube::Result<T>) -> Result<Option<String>> {
    match answer {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status))
            if status.code == 403 && status.message.contains("ValidatingAdmissionPolicy") =>
        {
            Ok(Some(status.message.clone()))
        }
        Err(error) => Err(error.into()),
    }
}

async fn create<T>(api: &Api<T>, object: Value) -> Result<Option<String>>
where
    T: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    refusal(api.create(&params, &serde_json::from_value(object)?).await)
}

async fn merge<T>(api: &Api<T>, name: &str, patch: Value) -> Result<Option<String>>
where
    T: Clone + DeserializeOwned + std::fmt::Debug,
{
    refusal(api.patch(name, &dry(), &Patch::Merge(patch)).await)
}

fn secret(kind: &str, annotations: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": kind,
        "metadata": {"name": "made", "annotations": annotations},
        "data": {"tls.crt": "eA==", "tls.key": "eA=="}})
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn the_token_of_the_controller_writes_only_what_the_controller_writes() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server
        .put(tls_secret("default", "theirs", &["a.example.org"])?)
        .await?;
    for object in service("default", "web", 80) {
        server.put(object).await?;
    }
    let gateway = |name: &str| {
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "default"},
            "spec": {"gatewayClassName": "x", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}})
    };
    server.put(gateway("theirs")).await?;
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:gatewright-system",
        "system:authenticated",
    ];
    let thief = server.client_as(ACCOUNT, &groups).await?;

    // Secrets. A policy takes effect some time after it was written.
    let [system, here, default] = ["kube-system", NAMESPACE, "default"]
        .map(|namespace| Api::<Secret>::namespaced(thief.clone(), namespace));
    let account = json!({"kubernetes.io/service-account.name": "namespace-controller"});
    let token = || secret("kubernetes.io/service-account-token", account.clone());
    let deadline = Instant::now() + LIMIT;
    while create(&default, secret("Opaque", json!({})))
        .await?
        .is_none()
    {
        ensure!(Instant::now() < deadline, "the policy does not take effect");
        sleep(Duration::from_millis(100)).await;
    }
    for (api, object, what) in [
        (&system, token(), "a token of another service account"),
        (&here, token(), "one in the controller's namespace"),
        (&here, secret("Opaque", json!({})), "any Secret there"),
        (
            &default,
            secret("kubernetes.io/tls", json!({})),
            "a certificate that is not marked as issued",
        ),
        (
            &system,
            secret("gatewright.io/acme", json!({})),
            "an account elsewhere",
        ),
    ] {
        assert!(create(api, object).await?.is_some(), "{what} was admitted");
    }
    let issued = json!({"gatewright.io/issuer": "acme"});
    let mut theirs: Secret = Api::namespaced(server.client(), "default")
        .get("theirs")
        .await?;
    theirs.metadata.annotations =
        Some([("gatewright.io/issuer".to_owned(), "acme".to_owned())].into());
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let taken = refusal(default.replace("theirs", &params, &theirs).await)?;
    assert!(
        taken.is_some(),
        "a certificate of somebody else was replaced"
    );
    assert_eq!(
        create(&default, secret("kubernetes.io/tls", issued.clone())).await?,
        None
    );
    assert_eq!(
        create(&here, secret("gatewright.io/acme", json!({}))).await?,
        None
    );

    // Namespaces.
    let namespaces: Api<Namespace> = Api::all(thief.clone());
    let labels = |key: &str| json!({"metadata": {"labels": {key: "privileged"}}});
    for key in [
        "pod-security.kubernetes.io/enforce",
        "namespace.cozystack.io/host",
        "gatewright.io/endpoints",
    ] {
        assert!(
            merge(&namespaces, "default", labels(key)).await?.is_some(),
            "label {key} was admitted"
        );
    }
    let finalizers = json!({"metadata": {"finalizers": ["example.org/kept"]}});
    assert!(
        merge(&namespaces, "default", finalizers).await?.is_some(),
        "a finalizer was admitted"
    );
    let both = json!({"metadata": {"labels": {"namespace.cozystack.io/gateway": "a"},
        "annotations": {"cozystack.io/gateway-attached-by": "a"}}});
    assert_eq!(merge(&namespaces, "default", both).await?, None);

    // GatewayClasses.
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let kind = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "GatewayClass");
    let classes: Api<DynamicObject> = Api::all_with(thief.clone(), &ApiResource::from_gvk(&kind));
    let finalizer = |finalizer: &str| json!({"metadata": {"finalizers": [finalizer]}});
    assert_eq!(
        merge(
            &classes,
            "gatewright",
            finalizer("gateway-exists-finalizer.gateway.networking.k8s.io")
        )
        .await?,
        None
    );
    for (change, what) in [
        (finalizer("example.org/kept"), "a finalizer of others"),
        (json!({"metadata": {"labels": {"a": "b"}}}), "a label"),
        (json!({"spec": {"description": "mine"}}), "a specification"),
    ] {
        assert!(
            merge(&classes, "gatewright", change).await?.is_some(),
            "{what} was admitted"
        );
    }

    // Services and other objects of Gateways.
    let services: Api<Service> = Api::namespaced(thief.clone(), "default");
    let delete = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    assert!(
        refusal(services.delete("web", &delete).await)?.is_some(),
        "a foreign Service was deleted"
    );
    let owner = json!([{"apiVersion": GATEWAY, "kind": "Gateway", "name": "theirs", "uid": "u", "controller": true}]);
    let ours =
        json!({"labels": {"app.kubernetes.io/managed-by": "gatewright"}, "ownerReferences": owner});
    let taken = merge(
        &services,
        "web",
        json!({"metadata": ours, "spec": {"selector": {"app": "mine"}}}),
    )
    .await?;
    assert!(taken.is_some(), "a foreign Service was made ours");
    let made = |metadata: Value| {
        let mut made = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}});
        made["metadata"]["name"] = json!("made");
        made
    };
    assert!(
        create(&services, made(json!({}))).await?.is_some(),
        "a Service of nobody was made"
    );
    assert_eq!(create(&services, made(ours)).await?, None);

    // Derived objects of TenantGateways.
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "gateway.networking.k8s.io",
        "v1",
        "Gateway",
    ));
    let gateways: Api<DynamicObject> = Api::namespaced_with(thief.clone(), "default", &kind);
    assert!(
        refusal(gateways.delete("theirs", &delete).await)?.is_some(),
        "a foreign Gateway was deleted"
    );
    assert!(
        create(&gateways, gateway("made")).await?.is_some(),
        "a Gateway of nobody was made"
    );
    let mut derived = gateway("made");
    derived["metadata"]["ownerReferences"] = json!([{"apiVersion": "gateway.cozystack.io/v1alpha1",
        "kind": "TenantGateway", "name": "t", "uid": "u", "controller": true}]);
    assert_eq!(create(&gateways, derived).await?, None);
    Ok(())
}

/// Writes the key of a Secret into a file, as a kubelet does.
pub(crate) async fn bring_key(cluster: &Cluster, to: &Path) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(cluster.server.client(), NAMESPACE);
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(held) = secrets.get_opt("gatewright-last-good").await? {
            let key = held.data.context("data")?.remove("key").context("a key")?;
            std::fs::write(to, key.0)?;
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the controller made no key");
        sleep(Duration::from_millis(50)).await;
    }
}

/// A volume for the last good state, as the pod of a controller has one, with the key that the
/// kubelet would mount.
pub(crate) struct LastGoodVolume {
    volume: TempDir,
}

impl LastGoodVolume {
    /// Creates an empty volume.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            volume: tempfile::Builder::new().prefix("volume").tempdir()?,
        })
    }

    /// The path of the file with the state.
    pub(crate) fn file(&self) -> PathBuf {
        self.volume.path().join("last-good")
    }

    /// The path of the key, which is there after [`bring_key`].
    pub(crate) fn key(&self) -> PathBuf {
        self.volume.path().join("key")
    }

    /// The arguments of a controller with this volume, and further ones.
    pub(crate) fn arguments(&self, more: &[&str]) -> Vec<String> {
        let file = self.file().display().to_string();
        let key = self.key().display().to_string();
        let own = ["--last-good", &file, "--last-good-key", &key];
        own.iter().chain(more).map(ToString::to_string).collect()
    }
}

/// Waits until a file exists and does not change any more: the program found no further change.
pub(crate) async fn until_settled(file: &Path) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let age = std::fs::metadata(file).and_then(|meta| meta.modified());
        let age = age
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age > Duration::from_secs(7)) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{} is not there, or changes all the time",
            file.display()
        );
        sleep(Duration::from_millis(100)).await;
    }
}

/// Adds a Gateway with a certificate that ends after a while.
async fn brief(cluster: &Cluster, lasts: Duration) -> Result<()> {
    let host = "brief.example.net";
    let mut params = rcgen::CertificateParams::new(vec![host.to_owned()])?;
    params.not_after = time::OffsetDateTime::now_utc() + lasts;
    let key = rcgen::KeyPair::generate()?;
    let mut secret = tls_secret("default", "brief", &[host])?;
    secret["stringData"] =
        json!({"tls.crt": params.self_signed(&key)?.pem(), "tls.key": key.serialize_pem()});
    cluster.server.put(secret).await?;
    cluster
        .server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "brief", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "listeners": [{
                "name": "https", "protocol": "HTTPS", "port": e2e::port::free_port()?, "hostname": host,
                "tls": {"certificateRefs": [{"name": "brief"}]}}]}}))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_controller_that_starts_without_an_api_server_serves_the_last_good_state() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let (_echo, address) = edge(&cluster).await?;
    cluster.server.put(route("web", HOST)).await?;
    cluster.server.put(route("old", "old.example.org")).await?;
    brief(&cluster, Duration::from_secs(90)).await?;
    let volume = LastGoodVolume::new()?;
    let file = volume.file();
    let kept = volume.arguments(&[]);
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    let mut controller = cluster.controller_with("one", &kept)?;
    controller.line("holding the lease").await?;
    bring_key(&cluster, &volume.key()).await?;
    let (mut envoy, tls) = cluster.envoy("envoy-a").await?;
    envoy.ready().await?;
    for host in [HOST, "old.example.org"] {
        until_answers(address, host, 200).await?;
    }
    until_settled(&file).await?;
    let bytes = std::fs::read(&file)?;
    for text in ["PRIVATE KEY", "CERTIFICATE", "example.org", "127.0.0.1"] {
        assert!(
            !bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes()),
            "{text} is in clear text"
        );
    }

    // All of them end, and the API server stays down.
    drop(envoy);
    drop(controller);
    cluster.server.kill();
    let begun = Instant::now();
    let mut controller = cluster.controller_with("one", &kept)?;
    let line = controller.line("of the last good state are served").await?;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}: {line}",
        begun.elapsed()
    );
    let mut envoy =
        Envoy::start(&std::fs::read_to_string(tls.path().join("bootstrap.json"))?).await?;
    envoy.ready().await?;
    for host in [HOST, "old.example.org"] {
        until_answers(address, host, 200).await?;
    }
    let (code, told) = controller.probe("/readyz").await?;
    assert!(
        code == 200
            && told.contains("serving the last good state, of ")
            && told.contains("seconds old"),
        "{told}"
    );
    let (_, metrics) = controller.probe("/metrics").await?;
    assert!(
        metrics.contains("gatewright_last_good_served 1"),
        "{metrics}"
    );
    let age = metrics
        .lines()
        .find_map(|line| line.strip_prefix("gatewright_last_good_age_seconds "));
    let age: u64 = age.context("an age")?.parse()?;
    assert!((1..3600).contains(&age), "{age}");
    // A certificate that ends meanwhile is said to have ended.
    let deadline = Instant::now() + LIMIT;
    loop {
        let (code, told) = controller.probe("/readyz").await?;
        assert_eq!(code, 200, "{told}");
        if told.contains("expired certificates in it: 1 (brief.example.net)") {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "an expired certificate is not told: {told}"
        );
        sleep(Duration::from_millis(200)).await;
    }

    // It is back, and changes made meanwhile replace the last good configuration.
    cluster.server.resume().await?;
    cluster.server.put(route("new", "new.example.org")).await?;
    let routes = cluster.server.api(GATEWAY, "HTTPRoute", "default").await?;
    routes.delete("old", &DeleteParams::default()).await?;
    controller
        .line("the view of the API server is complete")
        .await?;
    until_answers(address, "new.example.org", 200).await?;
    until_answers(address, "old.example.org", 404).await?;
    until_answers(address, HOST, 200).await?;
    let (code, told) = controller.probe("/readyz").await?;
    assert_eq!(code, 200, "it is ready");
    assert_eq!(&*told, "ok\n", "the answer says so");
    let deadline = Instant::now() + LIMIT;
    while !controller
        .probe("/metrics")
        .await?
        .1
        .contains("gatewright_last_good_served 0")
    {
        ensure!(
            Instant::now() < deadline,
            "the last good state is still served"
        );
        sleep(Duration::from_millis(100)).await;
    }
    cluster.quiet().await?;
    Ok(())
}
