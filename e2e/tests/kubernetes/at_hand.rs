//! Commands with the rights of a person, by a kubeconfig: a developer with the role `edit` in a
//! namespace, the platform, and a user without rights. No command is run in a pod.

use std::process::{Command, Output};

use anyhow::{Context, Result};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{BACKEND, Cluster, NAMESPACE, is_true, service};
use e2e::echo::Echo;
use e2e::gatewright::{Gatewright, binary};
use e2e::port::free_port;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const OURS: &str = "gatewright.io/v1alpha1";
const HOST: &str = "shop.example.org";
/// The developer, with the role `edit` in the namespace `shop`.
const DEVELOPER: &str = "dana";

/// A cluster with Gateway `platform/edge` and the application `shop/web`.
struct Site {
    cluster: Cluster,
    url: String,
}

impl Site {
    async fn start() -> Result<Self> {
        let mut server = ApiServer::with(&[Definitions::GatewayApi, Definitions::Ours]).await?;
        // They add the rights of people to the roles of Kubernetes.
        server.start_controllers()?;
        for manifest in [
            include_str!("../../../deploy/roles.yaml"),
            include_str!("../../../deploy/roles-gateway-api/roles.yaml"),
            include_str!("../../../deploy/gatewayclass.yaml"),
        ] {
            server.apply(manifest).await?;
        }
        for namespace in ["platform", "shop", "other"] {
            let metadata = json!({"name": namespace});
            server
                .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
                .await?;
        }
        let edit =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"});
        let user =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": DEVELOPER});
        server
            .put(
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "developers", "namespace": "shop"}, "roleRef": edit, "subjects": [user]}),
            )
            .await?;
        let port = free_port()?;
        let listener = json!({"name": "http", "protocol": "HTTP", "port": port,
            "allowedRoutes": {"namespaces": {"from": "All"}}});
        server
            .put(
                json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "platform"},
                "spec": {"gatewayClassName": "gatewright", "listeners": [listener]}}),
            )
            .await?;
        server.put(route("web")).await?;
        let cluster = Cluster::over(server).await?;
        // What the arguments of the controller of tests say, for those who may read it.
        let configuration = "apiVersion: config.gatewright.io/v1alpha1\nkind: Configuration\n\
            envoys: {addresses: ['127.0.0.1']}\n";
        cluster
            .server
            .put(json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "gatewright-configuration", "namespace": NAMESPACE},
                "data": {"configuration.yaml": configuration}}))
            .await?;
        Ok(Self {
            cluster,
            url: format!("http://{HOST}:{port}/cart"),
        })
    }

    /// Waits until the route is accepted, and the developer has the rights of the role.
    async fn is_ready(&self) -> Result<()> {
        self.cluster
            .until(GATEWAY, "HTTPRoute", "shop", "web", |route| {
                is_true(&route["status"]["parents"][0], "Accepted")
            })
            .await?;
        let lists = ("list", "gateway.networking.k8s.io", "httproutes", "shop");
        self.cluster
            .server
            .until_may(DEVELOPER, lists, true)
            .await?;
        Ok(())
    }

    /// Runs a command with the rights of a user.
    fn run(&self, user: &str, groups: &[&str], arguments: &[&str]) -> Result<Output> {
        let kubeconfig = self.cluster.server.kubeconfig(user, groups)?;
        let kubeconfig = kubeconfig.display().to_string();
        Gatewright::run(&[arguments, &["--kubeconfig", &kubeconfig]].concat())
    }

    /// What `explain` says to a user: the steps, and whether it succeeds.
    fn explain(&self, user: &str, groups: &[&str]) -> Result<(Vec<Value>, bool)> {
        let arguments = ["explain", &self.url, "-n", "shop", "-o", "json"];
        links(&self.run(user, groups, &arguments)?)
    }
}

/// The route of the host to a Service of its namespace.
fn route(service: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"parentRefs": [{"name": "edge", "namespace": "platform"}], "hostnames": [HOST],
            "rules": [{"backendRefs": [{"name": service, "port": 80}]}]}})
}

fn links(output: &Output) -> Result<(Vec<Value>, bool)> {
    let reply: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    let links = reply["links"].as_array().cloned().unwrap_or_default();
    Ok((links, output.status.success()))
}

fn step<'a>(links: &'a [Value], what: &str) -> Result<&'a Value> {
    let step = links.iter().find(|link| link["what"] == what);
    step.with_context(|| format!("no step {what} in {links:?}"))
}

fn text(value: &Value) -> &str {
    value["text"].as_str().unwrap_or_default()
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn explain_tells_each_user_what_they_may_read() -> Result<()> {
    let site = Site::start().await?;
    let server = &site.cluster.server;
    let web = Echo::start_on("web", BACKEND).await?;
    for object in service("shop", "web", web.address().port()) {
        server.put(object).await?;
    }
    let admin = tempfile::tempdir()?;
    let socket = admin.path().join("admin.sock").display().to_string();
    let mut controller = site.cluster.controller_with("one", &["--admin", &socket])?;
    controller.line("xDS at").await?;
    let (mut envoy, _tls) = site.cluster.envoy("envoy-a").await?;
    envoy.ready().await?;
    site.cluster
        .until(GATEWAY, "Gateway", "platform", "edge", |gateway| {
            is_true(&gateway["status"], "Programmed")
        })
        .await?;
    site.is_ready().await?;

    // The platform, who may read everything, gets the controller's own answer.
    let own = Gatewright::run(&["explain", &site.url, "--admin", &socket, "-o", "json"])?;
    let own = links(&own)?;
    let platform = site.explain("platform", &["system:masters"])?;
    assert!(own.1, "{own:?}");
    assert_eq!(platform, own, "the platform");

    // A developer gets what is of their namespace, and a mark for the Gateway.
    let (steps, ok) = site.explain(DEVELOPER, &[])?;
    assert!(ok, "{steps:?}");
    let gateway = step(&steps, "gateway")?;
    assert_eq!(gateway["unread"], true, "{gateway}");
    let words = "gateway platform/edge: you may not read it; the status of httproute shop/web says that it accepted it";
    assert!(text(gateway).starts_with(words), "{gateway}");
    let endpoints = step(&steps, "endpoints")?;
    assert_eq!(endpoints, step(&own.0, "endpoints")?, "its endpoints");
    assert_eq!(step(&steps, "route")?, step(&own.0, "route")?, "its route");

    // A user without rights gets no answer, and no name.
    let (steps, ok) = site.explain("nobody", &[])?;
    assert!(!ok, "{steps:?}");
    let last = steps.last().context("a step")?;
    assert_eq!(last["unread"], true, "{last}");
    assert!(!format!("{steps:?}").contains("platform"), "{steps:?}");

    // The plugin of kubectl takes the current context.
    let folder = tempfile::tempdir()?;
    let plugin = folder.path().join("kubectl-gatewright");
    std::os::unix::fs::symlink(binary()?.canonicalize()?, &plugin)?;
    let output = Command::new(&plugin)
        .args(["explain", &site.url, "-n", "shop", "-o", "json"])
        .env("KUBECONFIG", server.kubeconfig(DEVELOPER, &[])?)
        .output()?;
    assert!(links(&output)?.1, "{output:?}");

    // What fails in the developer's namespace fails for the developer, with the controller's words.
    server.put(route("missing")).await?;
    site.cluster
        .until(GATEWAY, "HTTPRoute", "shop", "web", |route| {
            !is_true(&route["status"]["parents"][0], "ResolvedRefs")
        })
        .await?;
    let (steps, ok) = site.explain(DEVELOPER, &[])?;
    let own = Gatewright::run(&["explain", &site.url, "--admin", &socket, "-o", "json"])?;
    let (own, _) = links(&own)?;
    assert!(!ok, "{steps:?}");
    assert_eq!(steps.last(), own.last(), "the step that fails");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn files_are_judged_beside_the_cluster() -> Result<()> {
    let site = Site::start().await?;
    let server = &site.cluster.server;
    for object in service("shop", "web", 80) {
        server.put(object).await?;
    }
    let mut controller = site.cluster.controller("one")?;
    controller.line("xDS at").await?;
    site.is_ready().await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("route.yaml");
    let write = |route: Value| std::fs::write(&file, route.to_string());
    let path = file.display().to_string();
    let arguments = ["lint", &path, "-n", "shop"];

    write(route("web"))?;
    let alone = Gatewright::run(&["lint", &path])?;
    assert!(
        String::from_utf8_lossy(&alone.stdout).contains("ParentNotFound"),
        "{alone:?}"
    );
    for (user, groups, mark) in [
        (
            DEVELOPER,
            &[][..],
            "? gateway platform/edge: you may not read it; the status of",
        ),
        ("platform", &["system:masters"][..], ""),
    ] {
        let output = site.run(user, groups, &arguments)?;
        assert!(output.status.success(), "{user}: {output:?}");
        let marks = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(marks.contains(mark), "{user}: {marks}");
        assert_eq!(marks.is_empty(), mark.is_empty(), "{user}: {marks}");
    }
    write(route("missing"))?;
    let output = site.run(DEVELOPER, &[], &arguments)?;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("BackendNotFound"),
        "{output:?}"
    );

    // Statuses are those of the API server, of what the user may read.
    let output = site.run(DEVELOPER, &[], &["status", "-n", "shop", "-o", "json"])?;
    let list: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    assert_eq!(items.len(), 1, "{list:#}");
    assert!(
        is_true(&items[0]["status"]["parents"][0], "Accepted"),
        "{list:#}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn edit_of_a_namespace_writes_policies_there_and_nothing_else() -> Result<()> {
    let site = Site::start().await?;
    let server = &site.cluster.server;
    let may = async |what, may| server.until_may(DEVELOPER, what, may).await;
    may(("create", "gatewright.io", "trafficpolicies", "shop"), true).await?;
    for (verb, group, resource, namespace, allowed) in [
        ("create", "gatewright.io", "accesspolicies", "shop", true),
        ("delete", "gatewright.io", "directresponses", "shop", true),
        (
            "create",
            "gateway.networking.k8s.io",
            "httproutes",
            "shop",
            true,
        ),
        ("get", "gatewright.io", "gatewayparameters", "shop", true),
        (
            "create",
            "gatewright.io",
            "gatewayparameters",
            "shop",
            false,
        ),
        (
            "create",
            "gateway.cozystack.io",
            "tenantgateways",
            "shop",
            false,
        ),
        (
            "create",
            "gateway.networking.k8s.io",
            "gateways",
            "shop",
            false,
        ),
        ("create", "gatewright.io", "trafficpolicies", "other", false),
        (
            "list",
            "gateway.networking.k8s.io",
            "gateways",
            "platform",
            false,
        ),
        ("list", "gatewright.io", "trafficpolicies", "", false),
    ] {
        may((verb, group, resource, namespace), allowed).await?;
    }
    let client = server.client_as(DEVELOPER, &[]).await?;
    let kind = GroupVersionKind::gvk("gatewright.io", "v1alpha1", "TrafficPolicy");
    let resource = ApiResource::from_gvk_with_plural(&kind, "trafficpolicies");
    for (namespace, allowed) in [("shop", true), ("other", false)] {
        let target =
            json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web"});
        let policy = json!({"apiVersion": OURS, "kind": "TrafficPolicy",
            "metadata": {"name": "limits", "namespace": namespace},
            "spec": {"targetRefs": [target], "requestBody": {"maxBytes": 1_048_576}}});
        let policy: DynamicObject = serde_json::from_value(policy)?;
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let written = api.create(&PostParams::default(), &policy).await;
        assert_eq!(written.is_ok(), allowed, "{namespace}: {written:?}");
    }
    Ok(())
}
