//! A client certificate for each Envoy pod: issued for the pod's token, renewed, and revoked for
//! this pod alone.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::cluster::{Cluster, NAMESPACE};
use e2e::envoy::Envoy;
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::simenvoy::{DeltaClient, LISTENER};
use e2e::xds_ca::{PemPair, XdsCa};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::revoke::{envoys, until_connected};
use super::trust::{FLEET, LIMIT, ask, change_reaches, connect, gateway, keys};

const AUDIENCE: &str = "gatewright-xds";
const ACCOUNT: &str = "gatewright-envoy";

async fn put_pod(cluster: &Cluster, name: &str, account: &str) -> Result<()> {
    let mut pod = e2e::cluster::pod(NAMESPACE, name, "198.18.0.9");
    pod["spec"]["serviceAccountName"] = account.into();
    pod["spec"]["nodeName"] = "node-a".into();
    cluster.server.put(pod).await?;
    Ok(())
}

/// A cluster with a node, the service account of the Envoys and another one, and pods on the node;
/// and a controller.
struct World {
    cluster: Cluster,
    admin: [String; 2],
    identity: SocketAddr,
    _sockets: TempDir,
}

impl World {
    async fn start(pods: &[(&str, &str)]) -> Result<(World, Gatewright, SocketAddr)> {
        let cluster = Cluster::start().await?;
        let labels = json!({"topology.kubernetes.io/zone": "eu-1a"});
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-a", "labels": labels}});
        cluster.server.put(node).await?;
        // As the chart does with envoy.credentials.
        let role = |kind: &str, group: &str, resource: &str, verb: &str| {
            let mut metadata = json!({"name": "identities"});
            if kind == "Role" {
                metadata["namespace"] = NAMESPACE.into();
            }
            let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
            let of = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "identities"});
            let subject = json!({"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "gatewright-controller"});
            let object = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata});
            let mut role = object(kind);
            let mut binding = object(&format!("{kind}Binding"));
            role["rules"] = json!([rule]);
            (binding["roleRef"], binding["subjects"]) = (of, json!([subject]));
            [role, binding]
        };
        let roles = [
            role(
                "ClusterRole",
                "authentication.k8s.io",
                "tokenreviews",
                "create",
            ),
            role("Role", "", "pods", "get"),
        ];
        for object in roles.into_iter().flatten() {
            cluster.server.put(object).await?;
        }
        let account = e2e::cluster::ACCOUNT;
        cluster
            .server
            .until_may(
                account,
                ("create", "authentication.k8s.io", "tokenreviews", ""),
                true,
            )
            .await?;
        cluster
            .server
            .until_may(account, ("get", "", "pods", NAMESPACE), true)
            .await?;
        for name in [ACCOUNT, "other"] {
            let metadata = json!({"name": name, "namespace": NAMESPACE});
            cluster
                .server
                .put(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
                .await?;
        }
        for (name, account) in pods {
            put_pod(&cluster, name, account).await?;
        }
        let sockets = tempfile::tempdir()?;
        let admin =
            ["one.sock", "two.sock"].map(|name| sockets.path().join(name).display().to_string());
        let identity = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let world = World {
            cluster,
            admin,
            identity,
            _sockets: sockets,
        };
        let (mut one, at) = world.replica(0, &world.identity.to_string())?;
        one.line("xDS at").await?;
        Ok((world, one, at))
    }

    /// Starts a replica whose certificates expire within a test.
    fn replica(&self, number: usize, identity: &str) -> Result<(Gatewright, SocketAddr)> {
        let arguments = [
            ["--admin", &self.admin[number]],
            ["--set", "envoys.credentials=Pod"],
            ["--envoy-identity", identity],
            ["--set", "envoys.certificateSeconds=15"],
        ];
        self.cluster
            .replica_with_xds_and(["one", "two"][number], arguments.as_flattened())
    }

    async fn token(&self, account: &str, audience: &str, pod: Option<&str>) -> Result<String> {
        let client = self.cluster.server.client();
        let bound_object_ref = match pod {
            None => None,
            Some(name) => {
                let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
                Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: Some(name.to_owned()),
                    uid: pods.get(name).await?.metadata.uid,
                })
            }
        };
        let audiences = Some(vec![audience.to_owned()]);
        let spec = TokenRequestSpec {
            audiences,
            bound_object_ref,
            expiration_seconds: Some(3600),
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(client, NAMESPACE);
        let request = TokenRequest {
            spec: Some(spec),
            ..TokenRequest::default()
        };
        let made = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await?;
        made.status
            .and_then(|status| status.token)
            .context("a token")
    }

    async fn roots(&self) -> Result<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.server.client(), NAMESPACE);
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(map) = maps.get_opt("gatewright-xds-roots").await? {
                return map
                    .data
                    .and_then(|mut data| data.remove("ca.crt"))
                    .context("roots");
            }
            assert!(
                Instant::now() < deadline,
                "the controller tells nobody whom to trust"
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs the sidecar of an Envoy in its pod, with the files that the kubelet would write. The
    /// files of the Envoy are in `tls` of the directory.
    async fn beside(&self, token: &str, once: bool) -> Result<(Gatewright, TempDir)> {
        let dir = tempfile::Builder::new().prefix("pod").tempdir()?;
        std::fs::write(dir.path().join("token"), token)?;
        std::fs::write(dir.path().join("ca.crt"), self.roots().await?)?;
        let [token, roots, tls] =
            ["token", "ca.crt", "tls"].map(|name| dir.path().join(name).display().to_string());
        let at = self.identity.to_string();
        let mut arguments = vec![
            "envoy-identity",
            "--controller",
            &at,
            "--token",
            &token,
            "--roots",
            &roots,
            "--dir",
            &tls,
        ];
        arguments.extend(once.then_some("--once"));
        Ok((Gatewright::start(&arguments)?, dir))
    }

    /// Starts a pod with an Envoy that reports another node name.
    async fn pod(&self, name: &str, xds: SocketAddr) -> Result<EnvoyInPod> {
        let token = self.token(ACCOUNT, AUDIENCE, Some(name)).await?;
        let (mut beside, dir) = self.beside(&token, false).await?;
        beside.line("certificate from").await?;
        let envoy = self
            .cluster
            .envoy_at(&dir.path().join("tls"), "whatever", xds)
            .await?;
        Ok(EnvoyInPod { envoy, beside, dir })
    }
}

struct EnvoyInPod {
    envoy: Envoy,
    beside: Gatewright,
    dir: TempDir,
}

impl EnvoyInPod {
    fn pair(&self) -> Result<PemPair> {
        pair(self.dir.path())
    }
}

fn pair(dir: &Path) -> Result<PemPair> {
    let read = |name: &str| std::fs::read_to_string(dir.join("tls").join(name));
    Ok(PemPair {
        certificate: read("tls.crt")?,
        key: read("tls.key")?,
    })
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn an_envoy_has_the_certificate_of_its_pod_which_is_renewed() -> Result<()> {
    let (world, one, at) = World::start(&[("envoy-a", ACCOUNT)]).await?;
    gateway(&world.cluster, free_port()?).await?;
    let a = world.pod("envoy-a", at).await?;
    change_reaches(&world.cluster, &[&a.envoy], 0).await?;
    let zone = std::fs::read_to_string(a.dir.path().join("tls/zone"))?;
    assert_eq!(zone, "eu-1a", "the zone of the node lies beside it");

    // The certificate names the pod, whatever the node message says.
    let first = until_connected(&world.admin[0], &["envoy-a"]).await?;
    let pods: Api<Pod> = Api::namespaced(world.cluster.server.client(), NAMESPACE);
    let uid = pods.get("envoy-a").await?.metadata.uid.context("a UID")?;
    assert_eq!(
        first[0]["pod"],
        json!({"namespace": NAMESPACE, "name": "envoy-a", "uid": uid, "node": "node-a"})
    );
    assert_eq!(first[0]["fleet"], "shared");
    let uri = format!("{FLEET}/ns/{NAMESPACE}/pod/envoy-a/{uid}/node/node-a");
    assert_eq!(first[0]["identity"], uri.as_str());
    let table = envoys(&world.admin[0], &[])?.expect("it is told");
    assert!(
        table.contains("NODE") && table.contains("node-a"),
        "{table}"
    );

    // A certificate is renewed, Envoy uses the new one without a restart, and gets changes all the
    // time.
    let deadline = Instant::now() + LIMIT;
    let mut number = 0;
    let mut credentials = BTreeSet::new();
    while credentials.len() < 3 {
        assert!(
            Instant::now() < deadline,
            "it is not renewed: {credentials:?}\n{}",
            a.beside.output()
        );
        number += 1;
        change_reaches(&world.cluster, &[&a.envoy], number).await?;
        let rows = until_connected(&world.admin[0], &["envoy-a"]).await?;
        credentials.insert(rows[0]["credential"].to_string());
        assert_eq!(rows[0]["identity"], first[0]["identity"]);
    }
    assert!(
        one.output().contains("certificate of an Envoy issued"),
        "{}",
        one.output()
    );
    let stats = a.envoy.admin("/stats?filter=server.uptime").await?;
    assert!(
        stats.contains("server.uptime"),
        "it is the same Envoy: {stats}"
    );

    // A certificate with the name of a fleet is useless, and none was issued.
    let roots = world.roots().await?;
    let ours = XdsCa::load(
        &keys(&world.cluster, "gatewright-xds-ca")
            .await?
            .context("an authority")?
            .pair,
    )?;
    let issue = |uri: &str| ours.client(uri, Duration::from_secs(60));
    let fleet = issue(FLEET)?;
    let told = ask(at, &roots, Some(&fleet), "envoy-a").await;
    assert_eq!(told, Err(tonic::Code::PermissionDenied.to_string()));
    assert!(keys(&world.cluster, "gatewright-envoy").await?.is_none());

    // A pod may have a few streams, and others their own.
    let own = connect(at, &roots, Some(&issue(&uri)?))
        .await
        .map_err(anyhow::Error::msg)?;
    let mut held = Vec::new();
    let mut refused = None;
    for number in 0..8 {
        match DeltaClient::open_with(own.clone(), &number.to_string(), LISTENER).await {
            Ok(stream) => held.push(stream),
            Err(status) => refused = Some((number, status)),
        }
    }
    let (_, status) = refused.context("it has as many as it likes")?;
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
    assert_eq!(held.len(), 3, "beside that of the Envoy");
    let other = issue(&uri.replace("envoy-a", "envoy-b"))?;
    assert!(
        matches!(ask(at, &roots, Some(&other), "b").await, Ok(1)),
        "another pod has its own"
    );
    assert_eq!(
        world.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_token_that_proves_no_envoy_gets_no_certificate_and_is_told_why() -> Result<()> {
    let (world, mut one, _) = World::start(&[
        ("envoy-a", ACCOUNT),
        ("other-c", "other"),
        ("envoy-d", ACCOUNT),
    ])
    .await?;
    let of_gone = world.token(ACCOUNT, AUDIENCE, Some("envoy-d")).await?;
    let pods: Api<Pod> = Api::namespaced(world.cluster.server.client(), NAMESPACE);
    pods.delete("envoy-d", &DeleteParams::default().grace_period(0))
        .await?;
    put_pod(&world.cluster, "envoy-d", ACCOUNT).await?;
    let api = world
        .token(ACCOUNT, "https://kubernetes.default.svc", Some("envoy-a"))
        .await?;
    let cases = [
        (
            "of another audience",
            world.token(ACCOUNT, "elsewhere", Some("envoy-a")).await?,
            "401 Unauthorized",
        ),
        ("for the API server", api, "401 Unauthorized"),
        (
            "of another account",
            world.token("other", AUDIENCE, Some("other-c")).await?,
            "the token is of system:",
        ),
        (
            "of no pod",
            world.token(ACCOUNT, AUDIENCE, None).await?,
            "bound to no pod",
        ),
        ("of a pod that is gone", of_gone, "401 Unauthorized"),
        ("forged", "forged".to_owned(), "401 Unauthorized"),
    ];
    for (what, token, expected) in cases {
        let (mut beside, dir) = world.beside(&token, true).await?;
        let line = beside.line("no certificate yet").await?;
        assert!(line.contains(expected), "{what}: {line}");
        let why = line.split("401 Unauthorized: ").nth(1);
        assert!(
            why.is_none_or(|why| why.contains("does not take the token: ")),
            "{what}: {line}"
        );
        assert!(!beside.output().contains(&token), "the token is a secret");
        assert!(!dir.path().join("tls/tls.crt").exists(), "{what}");
    }

    // Another server at the port gets no token: it is authenticated first.
    let (mut beside, dir) = {
        let token = world.token(ACCOUNT, AUDIENCE, Some("envoy-a")).await?;
        let (beside, dir) = world.beside(&token, true).await?;
        drop(beside);
        let _ = std::fs::remove_dir_all(dir.path().join("tls"));
        let foreign = XdsCa::new("gatewright xDS")?;
        std::fs::write(dir.path().join("ca.crt"), foreign.pem)?;
        let [token, roots, tls] =
            ["token", "ca.crt", "tls"].map(|name| dir.path().join(name).display().to_string());
        let at = world.identity.to_string();
        let arguments = [
            "envoy-identity",
            "--once",
            "--controller",
            &at,
            "--token",
            &token,
            "--roots",
            &roots,
            "--dir",
            &tls,
        ];
        (Gatewright::start(&arguments)?, dir)
    };
    let line = beside.line("no certificate yet").await?;
    assert!(line.contains("TLS"), "{line}");
    // The kubelet writes the right roots, and it continues.
    std::fs::write(dir.path().join("ca.crt"), world.roots().await?)?;
    beside.end().await?;
    assert!(pair(dir.path())?.certificate.contains("BEGIN CERTIFICATE"));
    let counted = |text: &str, outcome: &str| {
        let line = format!("gatewright_envoy_certificate_answers_total{{outcome=\"{outcome}\"}} ");
        text.lines()
            .find_map(|told| told.strip_prefix(&line)?.parse::<u64>().ok())
    };
    // Metrics are computed at most once a second.
    let deadline = Instant::now() + LIMIT;
    loop {
        let (_, text) = one.probe("/metrics").await?;
        let of = |outcome| counted(&text, outcome);
        if of("issued") >= Some(1) && of("unauthenticated") >= Some(4) && of("forbidden") >= Some(2)
        {
            break;
        }
        assert!(Instant::now() < deadline, "answers are not counted: {text}");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(
        world.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_revoked_pod_is_cut_off_and_gets_no_other_certificate_and_the_others_do_not_notice()
-> Result<()> {
    let names = ["envoy-a", "envoy-b", "envoy-c"];
    let (world, mut one, at) = World::start(&names.map(|name| (name, ACCOUNT))).await?;
    let (mut two, at_two) = world.replica(1, "127.0.0.1:0")?;
    two.line("xDS at").await?;
    gateway(&world.cluster, free_port()?).await?;
    let mut a = world.pod("envoy-a", at).await?;
    let b = world.pod("envoy-b", at).await?;
    let mut c = world.pod("envoy-c", at_two).await?;
    change_reaches(&world.cluster, &[&a.envoy, &b.envoy, &c.envoy], 0).await?;
    until_connected(&world.admin[0], &["envoy-a", "envoy-b"]).await?;
    let [admin, second] = &world.admin;
    let roots = world.roots().await?;

    let why = envoys(second, &["revoke", "envoy-a"])?.expect_err("another one holds the lease");
    assert!(why.contains("does not hold the lease"), "{why}");
    let why = envoys(admin, &["revoke", "nobody"])?.expect_err("there is none");
    assert!(
        why.contains("there is no pod gatewright-system/nobody"),
        "{why}"
    );

    // Its stream ends at once, it gets no further certificate, and no replica accepts an older one.
    let stolen = a.pair()?;
    let said = envoys(admin, &["revoke", "envoy-a"])?.expect("it is revoked");
    assert!(
        said.contains("pod gatewright-system/envoy-a") && said.contains("delete pod envoy-a"),
        "{said}"
    );
    one.line("trusted no more; closing").await?;
    let rows = until_connected(admin, &["envoy-b"]).await?;
    let line = a.beside.line("no certificate yet").await?;
    assert!(line.contains("envoy-a is revoked: delete it"), "{line}");
    assert_eq!(
        ask(at, &roots, Some(&stolen), "a").await,
        Err("no connection".to_owned())
    );
    // Nor is one accepted that another authority signed for the same pod.
    let uid = |rows: &[Value]| {
        rows[0]["pod"]["uid"]
            .as_str()
            .map(str::to_owned)
            .context("a UID")
    };
    let ours = XdsCa::load(
        &keys(&world.cluster, "gatewright-xds-ca")
            .await?
            .context("an authority")?
            .pair,
    )?;
    let pods: Api<Pod> = Api::namespaced(world.cluster.server.client(), NAMESPACE);
    let of_a = pods.get("envoy-a").await?.metadata.uid.context("a UID")?;
    let issue = |uid: &str| {
        let uri = format!("{FLEET}/ns/{NAMESPACE}/pod/envoy-a/{uid}/node/node-a");
        ours.client(&uri, Duration::from_secs(60))
    };
    assert_eq!(
        ask(at, &roots, Some(&issue(&of_a)?), "a").await,
        Err("no connection".to_owned())
    );
    assert!(
        matches!(
            ask(at, &roots, Some(&issue(&uid(&rows)?)?), "a").await,
            Ok(1)
        ),
        "another UID is another pod"
    );
    let deadline = Instant::now() + LIMIT;
    while ask(at_two, &roots, Some(&issue(&of_a)?), "a").await.is_ok() {
        assert!(Instant::now() < deadline, "the other replica lets it in");
        sleep(Duration::from_millis(50)).await;
    }

    // The others are unaffected.
    change_reaches(&world.cluster, &[&b.envoy, &c.envoy], 1).await?;
    assert!(
        !a.envoy
            .admin("/config_dump")
            .await?
            .contains("h1.example.org"),
        "it is told nothing more"
    );

    // An Envoy that is connected to another replica is known by its name.
    let said = envoys(admin, &["revoke", "envoy-c"])?.expect("it is revoked");
    assert!(said.contains("on node node-a is revoked"), "{said}");
    c.beside.line("envoy-c is revoked: delete it").await?;
    until_connected(second, &[]).await?;

    // After a restart of all replicas it is still refused; a pod in its place is not.
    one.signal("TERM")?;
    one.end().await?;
    two.signal("TERM")?;
    two.end().await?;
    let (mut one, at) = world.replica(0, &world.identity.to_string())?;
    one.line("xDS at").await?;
    assert_eq!(
        ask(at, &roots, Some(&issue(&of_a)?), "a").await,
        Err("no connection".to_owned())
    );
    pods.delete("envoy-a", &DeleteParams::default().grace_period(0))
        .await?;
    put_pod(&world.cluster, "envoy-a", ACCOUNT).await?;
    let new = world.pod("envoy-a", at).await?;
    change_reaches(&world.cluster, &[&new.envoy], 2).await?;
    assert_eq!(
        world.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}
