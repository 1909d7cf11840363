//! Commands with the rights of a person, by a kubeconfig: a developer with the role `edit` in a
//! namespace, the platform, and a user without rights. No command is run in a pod.

mod crowd;
mod page;

use std::process::{Command, Output};

use anyhow::{Context, Result};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{BACKEND, Cluster, NAMESPACE, is_true, service};
use e2e::echo::Echo;
use e2e::gatewright::{Gatewright, binary};
use e2e::port::free_port;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const OURS: &str = "gatewright.io/v1alpha1";
pub(super) const HOST: &str = "shop.example.org";
/// A host of the owner of the Gateway.
const BETA: &str = "beta.example.org";
/// The developer, with the role `edit` in the namespace `shop`.
pub(super) const DEVELOPER: &str = "dana";

/// A cluster with Gateway `platform/edge` and the application `shop/web`.
pub(super) struct Site {
    pub(super) cluster: Cluster,
    pub(super) port: u16,
    url: String,
}

impl Site {
    pub(super) async fn start() -> Result<Self> {
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
            port,
            url: format!("http://{HOST}:{port}/cart"),
        })
    }

    /// Waits until the route is accepted, and the developer has the rights of the role.
    pub(super) async fn is_ready(&self) -> Result<()> {
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
    pub(super) fn run(&self, user: &str, groups: &[&str], arguments: &[&str]) -> Result<Output> {
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

/// A ListenerSet of the namespace `other` for a host, with a route.
fn thief(port: u16, host: &str) -> String {
    let listener = json!({"name": "a", "protocol": "HTTP", "port": port, "hostname": host});
    let set = json!({"apiVersion": GATEWAY, "kind": "ListenerSet",
        "metadata": {"name": "thief", "namespace": "other"},
        "spec": {"parentRef": {"name": "edge", "namespace": "platform"}, "listeners": [listener]}});
    let parent = json!({"kind": "ListenerSet", "name": "thief"});
    let route = json!({"apiVersion": GATEWAY, "kind": "HTTPRoute",
        "metadata": {"name": "thief", "namespace": "other"},
        "spec": {"parentRefs": [parent], "hostnames": [host],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}});
    format!("{set}\n---\n{route}\n")
}

/// The plan that a command printed, and its exit status.
fn plan(output: &Output) -> Result<(Value, Option<i32>)> {
    let plan: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    Ok((plan, output.status.code()))
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_plan_says_who_takes_a_host_from_whom() -> Result<()> {
    let site = Site::start().await?;
    let server = &site.cluster.server;
    for namespace in ["platform", "shop", "other"] {
        for object in service(namespace, "web", 80) {
            server.put(object).await?;
        }
    }
    // The Gateway lets all namespaces attach listeners, and its owner serves a host there.
    let listener = json!({"name": "http", "protocol": "HTTP", "port": site.port,
        "allowedRoutes": {"namespaces": {"from": "All"}}});
    let gateway = json!({"apiVersion": GATEWAY, "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "platform"},
        "spec": {"gatewayClassName": "gatewright", "listeners": [listener],
            "allowedListeners": {"namespaces": {"from": "All"}}}});
    server.put(gateway).await?;
    let beta = json!({"apiVersion": GATEWAY, "kind": "HTTPRoute",
        "metadata": {"name": "beta", "namespace": "platform"},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [BETA],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}});
    server.put(beta.clone()).await?;
    // A host that is given up is reserved for nobody.
    let folder = tempfile::tempdir()?;
    let configuration = folder.path().join("configuration.yaml");
    std::fs::write(
        &configuration,
        "apiVersion: config.gatewright.io/v1alpha1\nkind: Configuration\ntenancy: {hostnameHoldHours: 0}\n",
    )?;
    let configuration = configuration.display().to_string();
    let configured = ["--config", &configuration];
    let mut controller = site.cluster.controller_with("one", &configured)?;
    controller.line("xDS at").await?;
    site.is_ready().await?;
    site.cluster
        .until(GATEWAY, "HTTPRoute", "platform", "beta", |route| {
            is_true(&route["status"]["parents"][0], "Accepted")
        })
        .await?;
    let file = folder.path().join("change.yaml");
    let path = file.display().to_string();
    let arguments = ["plan", "-f", &path, "-n", "shop", "-o", "json"];
    let arguments = [&arguments[..], &configured].concat();
    let given_up = folder.path().join("beta.yaml");
    std::fs::write(&given_up, beta.to_string())?;
    let given_up = given_up.display().to_string();
    let masters = &["system:masters"][..];

    // The record keeps the host of a tenant, and that of the owner of the Gateway.
    for host in [HOST, BETA] {
        std::fs::write(&file, thief(site.port, host))?;
        let (kept, status) = plan(&site.run("platform", masters, &arguments)?)?;
        assert_eq!(status, Some(0), "{kept:#}");
        assert_eq!(kept["hosts"], json!([]), "{kept:#}");
        let conflicts = kept["objects"].as_array().into_iter().flatten();
        let conflicts = conflicts.filter(|change| change["after"]["reason"] == "HostnameConflict");
        assert!(conflicts.count() > 0, "{kept:#}");
    }

    // A host that its owner gives up is taken, and nothing is written.
    let giving_up = [&arguments[..], &["--delete", &given_up]].concat();
    let (taken, status) = plan(&site.run("platform", masters, &giving_up)?)?;
    assert_eq!(status, Some(2), "{taken:#}");
    let host = &taken["hosts"][0];
    assert_eq!(host["hostname"], BETA, "{taken:#}");
    assert_eq!(host["effects"][0], "changesHands", "{taken:#}");
    let place = &host["places"][0];
    assert_eq!(
        place["before"]["routes"],
        json!(["httproute platform/beta"])
    );
    assert_eq!(place["after"]["routes"], json!(["httproute other/thief"]));
    let list = ["status", "-n", "other", "-o", "json"];
    let list: Value = serde_json::from_slice(&site.run("platform", masters, &list)?.stdout)?;
    assert_eq!(list["items"], json!([]), "nothing was written");
    let url = format!("http://{BETA}:{}/", site.port);
    let mut next = beta.clone();
    next["spec"]["rules"][0]["backendRefs"][0]["name"] = json!("next");
    std::fs::write(&given_up, next.to_string())?;
    let both = [
        "explain", &url, "-n", "shop", "-o", "json", "--with", &given_up,
    ];
    let both = site.run("platform", masters, &both)?;
    let both: Value = serde_json::from_slice(&both.stdout).with_context(|| format!("{both:?}"))?;
    let is_told = |when: &str| both[when].to_string().contains("platform/next");
    assert!(!is_told("before"), "{both:#}");
    assert!(is_told("after"), "{both:#}");

    // The effects that were announced happen.
    for document in thief(site.port, BETA).split("\n---\n") {
        server.put(serde_json::from_str(document)?).await?;
    }
    let routes = server.api(GATEWAY, "HTTPRoute", "platform").await?;
    routes.delete("beta", &DeleteParams::default()).await?;
    site.cluster
        .until(GATEWAY, "HTTPRoute", "other", "thief", |route| {
            is_true(&route["status"]["parents"][0], "Accepted")
        })
        .await?;
    let (again, status) = plan(&site.run("platform", masters, &arguments)?)?;
    assert_eq!(status, Some(0), "it is there: {again:#}");
    assert_eq!(again["hosts"], json!([]), "it is there: {again:#}");
    let explained = site.run(
        "platform",
        masters,
        &["explain", &url, "-n", "shop", "-o", "json"],
    )?;
    let (steps, _) = links(&explained)?;
    assert!(
        text(step(&steps, "route")?).contains("other/thief"),
        "{steps:?}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_developer_plans_beside_a_gateway_that_may_not_be_read() -> Result<()> {
    let site = Site::start().await?;
    let server = &site.cluster.server;
    for name in ["web", "next"] {
        for object in service("shop", name, 80) {
            server.put(object).await?;
        }
    }
    let mut controller = site.cluster.controller("one")?;
    controller.line("xDS at").await?;
    site.is_ready().await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("change.yaml");
    let path = file.display().to_string();
    let arguments = ["plan", "-f", &path, "-n", "shop", "-o", "json"];
    for (document, status, effect) in [
        // Another application of their own.
        (route("next"), 0, "changesApplication"),
        (route("missing"), 2, "fails"),
    ] {
        std::fs::write(&file, document.to_string())?;
        let output = site.run(DEVELOPER, &[], &arguments)?;
        let (answer, code) = plan(&output)?;
        assert_eq!(code, Some(status), "{answer:#}");
        assert_eq!(answer["hosts"][0]["effects"][0], effect, "{answer:#}");
        let mark = "? gateway platform/edge: you may not read it; the status of httproute shop/web says that it accepted it";
        let marks = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(marks.contains(mark), "{marks}");
        // The platform is told the same of the host.
        let of_all = site.run("platform", &["system:masters"], &arguments)?;
        let (of_all, code) = plan(&of_all)?;
        assert_eq!(code, Some(status), "{of_all:#}");
        assert_eq!(
            answer["hosts"][0]["effects"], of_all["hosts"][0]["effects"],
            "{of_all:#}"
        );
    }
    // Who owns a new hostname is known to the controller alone.
    let new = route("web").to_string();
    let new = new.replace(HOST, "new.example.org");
    std::fs::write(
        &file,
        new.replace(
            r#""name":"web","namespace":"shop""#,
            r#""name":"new","namespace":"shop""#,
        ),
    )?;
    let (answer, code) = plan(&site.run(DEVELOPER, &[], &arguments)?)?;
    assert_eq!(code, Some(1), "{answer:#}");
    assert_eq!(answer["hosts"][0]["isUnread"], true, "{answer:#}");
    // A user without rights is told nothing of others, and that nothing is known.
    let output = site.run("nobody", &[], &arguments)?;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
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
