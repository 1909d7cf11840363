//! Reports by an object of the kind ReportRequest, for users of three kinds: a tenant with the role
//! `edit` in a namespace, the platform with ClusterRole `gatewright-reports` in that of the
//! installation, and a user without rights. Nobody runs a command in a pod.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::apiserver::{ApiServer, Request};
use e2e::cluster::{ACCOUNT, BACKEND, NAMESPACE, condition, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::at_hand::{DEVELOPER, HOST, Site};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const OURS: &str = "gatewright.io/v1alpha1";
const KIND: &str = "ReportRequest";
/// Another tenant, and its hostname, which nobody else may see.
const RIVAL: &str = "rival";
const CANARY: &str = "canary.example.net";
/// A user of the platform.
const PLATFORM: &str = "paula";
const LIMIT: Duration = Duration::from_secs(180);

/// Adds another tenant, certificates of both, and a claim of the first on a hostname of the second.
async fn two_tenants(site: &Site) -> Result<()> {
    let server = &site.cluster.server;
    let metadata = json!({"name": RIVAL});
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
        .await?;
    let listener = json!({"name": "http", "protocol": "HTTP", "port": site.port,
        "allowedRoutes": {"namespaces": {"from": "All"}}});
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "platform"},
            "spec": {"gatewayClassName": "gatewright", "listeners": [listener],
                "allowedListeners": {"namespaces": {"from": "All"}}}}))
        .await?;
    server.put(route(RIVAL, "secret-route", CANARY)).await?;
    site.cluster
        .until(GATEWAY, "HTTPRoute", RIVAL, "secret-route", |route| {
            is_true(&route["status"]["parents"][0], "Accepted")
        })
        .await?;
    let tls = e2e::port::free_port()?;
    for (namespace, host) in [("shop", HOST), (RIVAL, CANARY)] {
        server.put(tls_secret(namespace, "tls", &[host])?).await?;
        let listener = json!({"name": "https", "protocol": "HTTPS", "port": tls, "hostname": host,
            "tls": {"certificateRefs": [{"name": "tls"}]}});
        server
            .put(json!({"apiVersion": GATEWAY, "kind": "ListenerSet",
                "metadata": {"name": "own", "namespace": namespace},
                "spec": {"parentRef": {"name": "edge", "namespace": "platform"}, "listeners": [listener]}}))
            .await?;
        site.cluster
            .until(GATEWAY, "ListenerSet", namespace, "own", |set| {
                is_true(&set["status"], "Accepted")
            })
            .await?;
    }
    server.put(route("shop", "greedy", CANARY)).await?;
    site.cluster
        .until(GATEWAY, "HTTPRoute", "shop", "greedy", |route| {
            let accepted = condition(&route["status"]["parents"][0], "Accepted");
            accepted.is_some_and(|accepted| accepted["reason"] == "HostnameConflict")
        })
        .await?;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gatewright-reports"});
    let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PLATFORM});
    server
        .put(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "reports", "namespace": NAMESPACE}, "roleRef": role, "subjects": [user]}),
        )
        .await?;
    for (user, namespace) in [(DEVELOPER, "shop"), (PLATFORM, NAMESPACE)] {
        let create = ("create", "gatewright.io", "reportrequests", namespace);
        server.until_may(user, create, true).await?;
    }
    Ok(())
}

fn route(namespace: &str, name: &str, host: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [{"name": "edge", "namespace": "platform"}], "hostnames": [host],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

/// The document that a command printed.
fn document(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
}

/// The texts of a field of all items.
fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(|item| item[field].as_str()).collect()
}

/// A request that nobody waits for.
fn request(report: &str) -> Result<DynamicObject> {
    let request = json!({"apiVersion": OURS, "kind": KIND, "metadata": {"generateName": "left-"},
        "spec": {"report": report}});
    Ok(serde_json::from_value(request)?)
}

async fn requests_in(server: &ApiServer, namespace: &str) -> Result<Vec<DynamicObject>> {
    let api = server.api(OURS, KIND, namespace).await?;
    Ok(api.list(&ListParams::default()).await?.items)
}

/// The requests of the controller about reports, by verb.
fn of_controller(server: &ApiServer, verb: &str) -> Result<Vec<Request>> {
    let mut all = server.requests()?;
    all.retain(|request| {
        request.user == ACCOUNT
            && request.resource.starts_with("reportrequests")
            && request.verb == verb
    });
    Ok(all)
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn each_user_gets_what_is_theirs_and_no_name_of_others() -> Result<()> {
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
    site.is_ready().await?;
    two_tenants(&site).await?;

    let ask = |user: &str, arguments: &[&str]| site.run(user, &[], arguments);
    let tenant = |command: &str| -> Result<Value> {
        let output = ask(DEVELOPER, &[command, "-n", "shop", "-o", "json"])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // A hostname that it claims itself is in the words of its own status.
        let foreign = text.replace(&format!("{CANARY} belongs"), "");
        for name in [RIVAL, "secret-route", "envoy-a"] {
            assert!(!foreign.contains(name), "{command} has {name}: {text}");
        }
        document(&output)
    };
    let everything = |command: &str| -> Result<Value> {
        document(&ask(PLATFORM, &[command, "-A", "-o", "json"])?)
    };
    let own = |command: &str| -> Result<Value> {
        document(&Gatewright::run(&[
            command, "--admin", &socket, "-o", "json",
        ])?)
    };

    // The tenant: its changes and hosts.
    let history = tenant("history")?;
    let changes = history["changes"].as_array().context("changes")?;
    let hosts: Vec<&str> = changes
        .iter()
        .flat_map(|change| change["hosts"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    assert!(hosts.contains(&HOST), "{history:#}");
    assert!(!hosts.contains(&CANARY), "{history:#}");
    let greedy = changes
        .iter()
        .find(|change| change["objects"][0]["object"] == "httproute shop/greedy");
    assert!(greedy.is_some(), "its change: {history:#}");
    let about = ask(DEVELOPER, &["history", CANARY, "-n", "shop", "-o", "json"])?;
    let about = document(&about)?;
    assert!(
        texts(&about["changes"], "namespace")
            .iter()
            .all(|of| *of == "shop"),
        "a guess finds nothing of others: {about:#}"
    );

    // Its certificates.
    let certificates = tenant("certs")?;
    assert_eq!(
        texts(&certificates["certificates"], "secret"),
        ["shop/tls"],
        "{certificates:#}"
    );

    // What it owns, and what it does not get.
    let claims = tenant("claims")?;
    let lost: Vec<&Value> = claims
        .as_array()
        .into_iter()
        .flatten()
        .filter(|row| row["reason"] == "HostnameConflict")
        .collect();
    assert_eq!(lost.len(), 1, "{claims:#}");
    assert_eq!(lost[0]["what"], "httproute shop/greedy", "{claims:#}");
    assert!(
        texts(&claims, "namespace").iter().all(|of| *of == "shop"),
        "{claims:#}"
    );
    assert_eq!(tenant("envoys")?, json!([]), "none is its own");

    // The platform sees everything, as the program itself tells it.
    let all = everything("history")?;
    assert!(all.to_string().contains(CANARY), "{all:#}");
    assert_eq!(everything("claims")?, own("claims")?, "the same answer");
    assert_eq!(everything("certs")?, own("certs")?, "the same answer");
    assert_eq!(
        texts(&everything("envoys")?, "name"),
        ["envoy-a"],
        "the Envoy"
    );
    let of_rival = document(&ask(PLATFORM, &["certs", "-A", "-n", RIVAL, "-o", "json"])?)?;
    assert_eq!(texts(&of_rival["certificates"], "secret"), ["rival/tls"]);

    // A bundle has the same of each.
    let folder = tempfile::tempdir()?;
    for (user, file, has_rival) in [(PLATFORM, "platform", true), (DEVELOPER, "shop", false)] {
        let path = folder.path().join(file).display().to_string();
        let written = ask(user, &["support-bundle", "-n", "shop", "-o", &path])?;
        assert!(written.status.success(), "{written:?}");
        let history = Gatewright::run(&["history", "--bundle", &path, "-o", "json"])?;
        let history = document(&history)?;
        let changes = history["changes"].as_array().context("changes")?;
        assert!(!changes.is_empty(), "{history:#}");
        assert_eq!(
            history.to_string().contains(RIVAL),
            has_rival,
            "{history:#}"
        );
    }

    // Who may not create a request gets none.
    for (user, namespace) in [
        ("nobody", "shop"),
        (DEVELOPER, RIVAL),
        (DEVELOPER, NAMESPACE),
    ] {
        let output = ask(user, &["history", "-n", namespace])?;
        assert_eq!(output.status.code(), Some(1), "{user}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("you may not create reportrequests"), "{text}");
    }

    // Nothing is left, and the rights of the role are enough.
    for namespace in ["shop", NAMESPACE] {
        let left = requests_in(server, namespace).await?;
        assert!(left.is_empty(), "{namespace}: {left:?}");
    }
    assert_eq!(site.cluster.denied()?, [], "the controller has its rights");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn a_flood_of_requests_is_removed_and_others_are_answered() -> Result<()> {
    const FLOOD: usize = 400;
    let site = Site::start().await?;
    let server = &site.cluster.server;
    let mut controller = site.cluster.controller("one")?;
    controller.line("xDS at").await?;
    site.is_ready().await?;
    two_tenants(&site).await?;
    let client = server.client_as(DEVELOPER, &[]).await?;
    let resource = server
        .api(OURS, KIND, "shop")
        .await?
        .resource_url()
        .to_owned();
    assert!(resource.contains("reportrequests"), "{resource}");
    let kind = kube::core::GroupVersionKind::gvk("gatewright.io", "v1alpha1", KIND);
    let api: Api<DynamicObject> =
        Api::namespaced_with(client, "shop", &kube::api::ApiResource::from_gvk(&kind));
    let flood = async {
        for _ in 0..FLOOD {
            api.create(&PostParams::default(), &request("History")?)
                .await?;
        }
        anyhow::Ok(())
    };
    let meanwhile = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..5 {
            let asked = Instant::now();
            let kubeconfig = server.kubeconfig(PLATFORM, &[])?.display().to_string();
            let output = tokio::process::Command::new(e2e::gatewright::binary()?)
                .args(["history", "-A", "-o", "json", "--kubeconfig", &kubeconfig])
                .output()
                .await?;
            document(&output)?;
            slowest = slowest.max(asked.elapsed());
        }
        anyhow::Ok(slowest)
    };
    let (flooded, slowest) = tokio::join!(flood, meanwhile);
    flooded?;
    assert!(slowest? < Duration::from_secs(20), "others are answered");

    // All of them are removed, by few requests of the controller.
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = requests_in(server, "shop").await?.len();
        if left == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{left} are left");
        sleep(Duration::from_millis(200)).await;
    }
    let sweeps = of_controller(server, "deletecollection")?.len();
    assert!((1..20).contains(&sweeps), "{sweeps} removals of all");
    let answers = of_controller(server, "patch")?.len();
    assert!(answers < FLOOD, "{answers} statuses for {FLOOD} objects");

    // The namespace is answered again.
    let output = site.run(DEVELOPER, &[], &["history", "-n", "shop", "-o", "json"])?;
    document(&output)?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn the_next_lease_holder_answers_and_removes_what_is_left() -> Result<()> {
    let site = Site::start().await?;
    let server = &site.cluster.server;
    let mut one = site.cluster.controller("one")?;
    one.line("holding the lease").await?;
    site.is_ready().await?;
    two_tenants(&site).await?;
    let mut two = site.cluster.replica("two")?;
    two.line("xDS at").await?;
    let api = server.api(OURS, KIND, "shop").await?;
    let answered_by = async |name: &str| -> Result<String> {
        let answered = site
            .cluster
            .until(OURS, KIND, "shop", name, |request| {
                request["status"]["outcome"] == "Answered"
            })
            .await?;
        Ok(answered["status"]["answeredBy"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    };
    let name = |object: &DynamicObject| object.metadata.name.clone().unwrap_or_default();
    let first = api
        .create(&PostParams::default(), &request("Certificates")?)
        .await?;
    assert_eq!(answered_by(&name(&first)).await?, "one");

    // The holder is gone before it answers.
    drop(one);
    let second = api
        .create(&PostParams::default(), &request("Certificates")?)
        .await?;
    assert_eq!(answered_by(&name(&second)).await?, "two");
    let output = site.run(DEVELOPER, &[], &["certs", "-n", "shop", "-o", "json"])?;
    assert_eq!(
        texts(&document(&output)?["certificates"], "secret"),
        ["shop/tls"]
    );

    // Whoever asked is gone as well: the controller removes what is left a minute later.
    let deadline = Instant::now() + LIMIT;
    while !requests_in(server, "shop").await?.is_empty() {
        assert!(Instant::now() < deadline, "they are left");
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}
