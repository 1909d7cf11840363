//! Pages of `docs/` on a real API server: their commands are run with the real kubectl and Helm,
//! and their manifests are validated.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::manifests::documents;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::client_ca::ClientCa;
use e2e::cluster::{BACKEND, Cluster, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::kubelet::Kubelet;
use e2e::walkthrough::{Place, follow_part, manifests, yaml};
use serde_json::{Value, json};

use super::pods::programs;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const EXPERIMENTAL: &str = "gateway.networking.x-k8s.io/v1alpha1";

fn root() -> Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?)
}

/// Runs a part of a page as an administrator of the cluster, in a directory, with kubectl, Helm and
/// our program.
pub(super) async fn followed(
    server: &ApiServer,
    page: &str,
    part: &'static str,
    mut place: Place,
) -> Result<()> {
    let root = root()?;
    for tool in ["helm", "kubectl"] {
        ensure!(
            root.join(".tools").join(tool).exists(),
            "no {tool} in .tools; run: e2e/tools install helm kubernetes"
        );
    }
    let home = tempfile::Builder::new().prefix("helm").tempdir()?;
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        place
            .environment
            .push((name, home.path().display().to_string()));
    }
    let kubeconfig = server
        .kubeconfig("admin", &["system:masters"])?
        .display()
        .to_string();
    place.environment.push(("KUBECONFIG", kubeconfig));
    place.path.push(root.join(".tools"));
    place.path.push(
        e2e::gatewright::binary()?
            .parent()
            .context("a directory")?
            .to_owned(),
    );
    let page = root.join("docs").join(page);
    tokio::task::spawn_blocking(move || follow_part(&page, part, &place))
        .await
        .context("following the page")?
}

/// A place with this directory.
fn place(dir: &Path) -> Place {
    Place {
        dir: dir.to_owned(),
        ..Place::default()
    }
}

/// Makes the namespaces of objects.
async fn make_namespaces(server: &ApiServer, objects: &[Value]) -> Result<()> {
    for object in objects {
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            server.put(namespace).await?;
        }
    }
    Ok(())
}

/// Renders the chart with values, which its schema has to allow.
fn chart_takes(values: &Value) -> Result<()> {
    let (root, file) = (root()?, tempfile::NamedTempFile::new()?);
    std::fs::write(file.path(), values.to_string())?;
    let mut helm = Command::new(root.join(".tools/helm"));
    let ended = helm
        .args(["template", "gatewright", "deploy/chart"])
        .args(["--set", "image.repository=gatewright", "--values"])
        .arg(file.path())
        .current_dir(root)
        .output()?;
    ensure!(
        ended.status.success(),
        "the chart refuses {values}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    Ok(())
}

/// Returns the objects of a block, around whose parts the page leaves out the rest. Settings of
/// other programs and of files are none.
fn completed(documents: Vec<Value>) -> Result<Vec<Value>> {
    let object = |api: &str, kind: &str, spec: Value| json!({"apiVersion": api, "kind": kind, "metadata": {"name": "part", "namespace": "default"}, "spec": spec});
    let gateway = |more: &Value| {
        let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
        let mut spec = json!({"gatewayClassName": "gatewright", "listeners": listeners});
        spec.as_object_mut()
            .into_iter()
            .for_each(|spec| spec.extend(more.as_object().cloned().unwrap_or_default()));
        object(GATEWAY, "Gateway", spec)
    };
    if documents
        .iter()
        .all(|document| document.get("apiVersion").is_some())
    {
        // Configurations are read by the program, and Secrets with files by standalone alone;
        // `tests/pages.rs` has the former.
        let is_of_a_cluster = |document: &Value| {
            document["kind"] != "Configuration"
                && document["metadata"]["annotations"]["gatewright.io/files"].is_null()
        };
        return Ok(documents.into_iter().filter(is_of_a_cluster).collect());
    }
    if documents
        .iter()
        .all(|document| document.get("kind").is_some())
    {
        return Ok(documents
            .iter()
            .map(|part| match part["kind"].as_str() {
                Some("Gateway") => gateway(&part["spec"]),
                kind => object(GATEWAY, kind.unwrap_or_default(), part["spec"].clone()),
            })
            .collect());
    }
    let [part] = &documents[..] else {
        anyhow::bail!("some of the documents have a kind")
    };
    let listeners = |listener: &Value| {
        let mut listener = listener.clone();
        for (field, value) in [
            ("name", json!("https")),
            ("protocol", json!("HTTPS")),
            ("port", json!(443)),
        ] {
            listener[field] = value;
        }
        json!({"listeners": [listener]})
    };
    let first = match part {
        Value::Array(_) => return Ok(vec![gateway(&json!({"listeners": part}))]),
        Value::Object(fields) => fields.keys().cloned().collect::<Vec<_>>(),
        other => anyhow::bail!("expected an object, found {other}"),
    };
    let has = |name: &str| first.iter().any(|field| field == name);
    Ok(match () {
        () if has("listeners") => vec![gateway(part)],
        () if has("spec") => vec![gateway(&part["spec"])],
        () if has("tls") => vec![gateway(&listeners(part))],
        () if has("rules") => vec![object(GATEWAY, "HTTPRoute", part.clone())],
        () if has("isolated") => vec![object(
            "gatewright.io/v1alpha1",
            "GatewayParameters",
            part.clone(),
        )],
        () if has("validation") => {
            let mut spec = part.clone();
            spec["targetRefs"] = json!([{"group": "", "kind": "Service", "name": "cart"}]);
            vec![object(GATEWAY, "BackendTLSPolicy", spec)]
        }
        () if ["loadBalancer", "proxyProtocol", "timeout"]
            .into_iter()
            .any(has) =>
        {
            let mut spec = part.clone();
            spec["targetRefs"] = json!([{"group": "", "kind": "Service", "name": "cart"}]);
            vec![object("gatewright.io/v1alpha1", "TrafficPolicy", spec)]
        }
        () if has("rewrite") => {
            let mut spec = part.clone();
            spec["targetRefs"] = json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop"}]);
            vec![object("gatewright.io/v1alpha1", "TrafficPolicy", spec)]
        }
        () if has("attributes") || has("provider") => {
            let target =
                json!([{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}]);
            let mut tracing = part.clone();
            tracing["mode"] = json!("Enabled");
            if !has("provider") {
                tracing["provider"] = json!({"backendRef": {"name": "collector", "port": 4317}});
            }
            let spec = json!({"targetRefs": target, "tracing": tracing});
            vec![object(EXPERIMENTAL, "XTelemetryPolicy", spec)]
        }
        () if ["networkPolicy", "metrics", "monitoring", "envoy"]
            .into_iter()
            .any(has) =>
        {
            chart_takes(part)?;
            Vec::new()
        }
        // A kustomization, a configuration or a section of it, that of Prometheus, providers of an
        // issuer, and jobs of GitHub and GitLab.
        () if [
            "resources",
            "manifests",
            "jobs",
            "plan",
            "cloudflare",
            "issuers",
            "limits",
            "tenancy",
            "connections",
            "envoys",
            "scrape_configs",
        ]
        .into_iter()
        .any(has) =>
        {
            Vec::new()
        }
        () => anyhow::bail!("which object has the fields {first:?}?"),
    })
}

/// Strict validation: no unknown field, and every rule of the schema.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn manifests_of_all_pages_are_valid() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi, Definitions::Ours]).await?;
    let mut pages: BTreeMap<bool, Vec<PathBuf>> = BTreeMap::new();
    for entry in std::fs::read_dir(root()?.join("docs"))? {
        let page = entry?.path();
        if page.extension().is_some_and(|extension| extension == "md") {
            let name = page.file_stem();
            let is_experimental =
                name.is_some_and(|name| name == "experimental" || name == "backends");
            pages.entry(is_experimental).or_default().push(page);
        }
    }
    let mut count = 0;
    let mut refused = Vec::new();
    for (is_experimental, pages) in pages {
        if is_experimental {
            server.install(Definitions::ExperimentalGatewayApi).await?;
            // The last bundle that has XListenerSets is an older one.
            let name = "gateway.networking.x-k8s.io_xlistenersets.yaml";
            let only = tempfile::tempdir()?;
            let older = root()?
                .join(".tools/gateway-api-older/config/crd/experimental")
                .join(name);
            std::fs::copy(older, only.path().join(name))?;
            server.install_crds(only.path()).await?;
        }
        for page in pages {
            for (line, text) in yaml(&std::fs::read_to_string(&page)?) {
                let at = format!("{}:{line}", page.display());
                let objects = completed(documents(&text).with_context(|| at.clone())?)
                    .with_context(|| at.clone())?;
                make_namespaces(&server, &objects).await?;
                for object in objects {
                    count += 1;
                    if let Err(error) = server.dry_run(object).await {
                        refused.push(format!("{at}: {}", error.root_cause()));
                    }
                }
            }
        }
    }
    ensure!(
        refused.is_empty() && count > 20,
        "of {count} objects are refused:\n{}",
        refused.join("\n")
    );
    Ok(())
}

/// Applies the manifests of a page.
async fn apply_manifests(server: &ApiServer, page: &str) -> Result<()> {
    for (_, yaml) in manifests(&std::fs::read_to_string(root()?.join("docs").join(page))?) {
        server.apply(&yaml).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes, Envoy, curl, and root for port 443: e2e/tools install"]
async fn clients_are_asked_for_certificates_as_the_page_says() -> Result<()> {
    const HOST: &str = "app.example.org";
    // An address of this run: ports of the page are fixed.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 77, high, low.max(1));
    let cluster = Cluster::start().await?.reached_at(IpAddr::V4(address));
    let server = &cluster.server;
    let echo = Echo::start_on("web", BACKEND).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (mut envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    for name in ["infra", "shop"] {
        server
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await?;
    }
    let ca = ClientCa::new("clients")?;
    let mut edge = tls_secret("infra", "edge", &[HOST])?;
    server.put(edge.clone()).await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "partners", "namespace": "infra"},
            "data": {"ca.crt": ca.pem}}))
        .await?;
    for object in service("infra", "web", echo.address().port()) {
        server.put(object).await?;
    }
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": "infra"},
            "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [HOST], "rules": rules}}))
        .await?;
    apply_manifests(server, "client-certificates.md").await?;

    let dir = tempfile::Builder::new().prefix("page").tempdir()?;
    let (certificate, key) = ca.client_pem()?;
    let roots = edge["stringData"]["tls.crt"].take();
    // The reader's machine looks up the host in DNS, and trusts its certificate.
    let curl = format!("resolve = {HOST}:443:{address}\ncacert = roots.pem\nsilent\nshow-error\n");
    for (name, text) in [
        ("ca.crt", &*ca.pem),
        ("me.pem", &certificate),
        ("me.key", &key),
        ("roots.pem", roots.as_str().context("a certificate")?),
        (".curlrc", &curl),
    ] {
        std::fs::write(dir.path().join(name), text)?;
    }
    let curl_home = vec![("CURL_HOME", dir.path().display().to_string())];
    // curl of the page begins when the change is live, which a reader sees in the Gateway's status.
    let wait = "kubectl() { command kubectl \"$@\"; command kubectl -n infra wait gateway/edge --timeout=2m \
                --for=jsonpath='{.status.listeners[0].conditions[?(@.type==\"Programmed\")].status}'=True; }";
    envoy.ready().await?;
    let place = Place {
        environment: curl_home,
        before: wait.to_owned(),
        ..place(dir.path())
    };
    followed(server, "client-certificates.md", "", place).await?;
    cluster
        .until(GATEWAY, "Gateway", "infra", "edge", |gateway| {
            is_true(&gateway["status"], "Programmed")
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn objects_of_a_cluster_are_linted_as_the_pages_say() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi, Definitions::Ours]).await?;
    let dir = tempfile::Builder::new().prefix("page").tempdir()?;
    for (page, part) in [("migrate.md", "cluster"), ("hostnames.md", "cluster")] {
        followed(&server, page, part, place(dir.path())).await?;
    }
    // What is read is what is there.
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "lost", "namespace": "default"},
            "spec": {"parentRefs": [{"name": "none"}], "rules": [{"backendRefs": [{"name": "none", "port": 80}]}]}}))
        .await?;
    let refused = followed(&server, "hostnames.md", "cluster", place(dir.path()))
        .await
        .expect_err("a route without a Gateway");
    ensure!(
        format!("{refused:#}").contains("httproute default/lost"),
        "{refused:#}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes, Helm and Envoy, and root for the network of pods: e2e/tools install"]
async fn the_chart_is_installed_and_tested_as_its_page_says() -> Result<()> {
    let mut server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    server.start_controllers_of_pods()?;
    let _kubelet = Kubelet::start(&server, &programs()?).await?;
    for page in ["chart.md", "security.md"] {
        followed(&server, page, "", place(&root()?)).await?;
    }
    Ok(())
}
