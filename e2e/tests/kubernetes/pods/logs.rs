//! The access logs of all Envoys, which a tenant follows through the API server.

use super::*;
use e2e::deploy::with_component;
use e2e::gatewright::Gatewright;

const TENANT: &str = "dana";
/// The hostname of another tenant.
const CANARY: &str = "canary.example.net";

/// Requests to each Envoy, for the hosts of both tenants. The backends are missing.
async fn ask(envoys: &[SocketAddr], word: &str) -> Result<()> {
    for (number, envoy) in envoys.iter().enumerate() {
        for host in [HOST, CANARY] {
            let path = format!("/{word}-{number}");
            until_served(&Probe::http(*envoy, host).path(&path), 500).await?;
        }
    }
    Ok(())
}

/// A Gateway on the dedicated Envoys, with a host of each tenant. Returns where Envoys serve it.
async fn hosts_of_two_tenants(server: &ApiServer) -> Result<Vec<SocketAddr>> {
    let reference = json!({"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "default", "name": "own"});
    let gateway = json!({"gatewayClassName": "own", "listeners": [{"name": "http", "protocol": "HTTP",
        "port": 80, "allowedRoutes": {"namespaces": {"from": "All"}}}]});
    for object in [
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"name": "own", "namespace": "default"}, "spec": {"fleet": "Dedicated"}}),
        json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "own"},
            "spec": {"controllerName": "gatewright.io/gateway-controller", "parametersRef": reference}}),
        json!({"apiVersion": GATEWAY, "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "default"}, "spec": gateway}),
    ] {
        server.put(object).await?;
    }
    for (namespace, host) in [("shop", HOST), ("rival", CANARY)] {
        // Their endpoints need no pods.
        let labels = json!({"gatewright.io/endpoints": "any"});
        let metadata = json!({"name": namespace, "labels": labels});
        server
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
            .await?;
        let mut route = route(namespace, "edge", "web", host);
        route["spec"]["parentRefs"][0]["namespace"] = json!("default");
        server.put(route).await?;
    }
    let slices = ("discovery.k8s.io/v1", "EndpointSlice", "default");
    let slice = server
        .until(slices, "edge-own-v4", LIMIT, |slice| {
            let endpoints = slice["endpoints"].as_array();
            endpoints.is_some_and(|all| all.len() == 2) && slice["ports"][0]["port"].is_u64()
        })
        .await?;
    let port = slice["ports"][0]["port"].as_u64().context("a port")?;
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints
        .map(|endpoint| {
            let address = endpoint["addresses"][0].as_str().context("an address")?;
            Ok(SocketAddr::new(address.parse()?, u16::try_from(port)?))
        })
        .collect()
}

/// Gives the tenant the role `edit` in the namespace `shop`.
async fn grant(server: &ApiServer) -> Result<()> {
    let of_routes = include_str!("../../../../deploy/roles-gateway-api/roles.yaml");
    server.apply(of_routes).await?;
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"});
    let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT});
    server
        .put(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "developers", "namespace": "shop"}, "roleRef": role, "subjects": [user]}),
        )
        .await?;
    let create = ("create", "gatewright.io", "reportrequests", "shop");
    server.until_may(TENANT, create, true).await?;
    let lists = ("list", "gateway.networking.k8s.io", "httproutes", "shop");
    server.until_may(TENANT, lists, true).await
}

// The network of pods is carried on while a command is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Envoy, and root for the network of pods: e2e/tools install"]
async fn a_tenant_follows_the_logs_of_all_envoys() -> Result<()> {
    let mut server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    server.start_controllers_of_pods()?;
    let _kubelet = Kubelet::start(&server, &programs()?).await?;
    server.install(Definitions::Ours).await?;
    for object in with_component("dedicated")? {
        if object["kind"] != "CustomResourceDefinition" {
            server.put(object).await?;
        }
    }
    let controllers = until_ready(&server, "controller", 2).await?;
    until_ready(&server, "envoy-dedicated", 2).await?;
    let envoys = hosts_of_two_tenants(&server).await?;
    grant(&server).await?;
    let kubeconfig = server.kubeconfig(TENANT, &[])?.display().to_string();
    let arguments = [
        "logs",
        "--errors",
        "-n",
        "shop",
        "--kubeconfig",
        &kubeconfig,
    ];

    ask(&envoys, "first").await?;
    let mut follower = Gatewright::start(&[&arguments, &["--follow"][..]].concat())?;
    ask(&envoys, "second").await?;
    for line in ["/first-0", "/first-1", "/second-0", "/second-1"] {
        follower.line(line).await?;
    }
    // The lease holder changes, and the follower goes on.
    let pods = server.api("v1", "Pod", NAMESPACE).await?;
    for (name, _) in &controllers {
        pods.delete(name, &Default::default()).await?;
    }
    ask(&envoys, "third").await?;
    for line in ["/third-0", "/third-1"] {
        follower.line(line).await?;
    }
    let lines = follower.output();
    assert!(!lines.contains(CANARY), "a line of another tenant: {lines}");
    let count = |path: &str| lines.lines().filter(|line| line.contains(path)).count();
    for path in ["/second-0", "/third-1"] {
        assert_eq!(count(path), 1, "{path} is there once: {lines}");
    }
    follower.signal("INT")?;
    follower.end().await?;

    // Nothing is left of it.
    let requests = server
        .api("gatewright.io/v1alpha1", "ReportRequest", "shop")
        .await?;
    let left = requests.list(&ListParams::default()).await?.items;
    assert!(left.is_empty(), "{left:?}");
    let once = Gatewright::run(&[&arguments, &["--host", HOST, "-o", "json"][..]].concat())?;
    let printed = String::from_utf8_lossy(&once.stdout).into_owned();
    assert!(printed.contains("/third-1"), "{once:?}");
    assert!(!printed.contains(CANARY), "{once:?}");
    a_backend_that_refuses_is_explained(&server, &envoys, &kubeconfig).await?;
    assert_eq!(
        server.denied(ACCOUNT)?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}

/// `explain` has the failures of a backend from the logs of all Envoys.
async fn a_backend_that_refuses_is_explained(
    server: &ApiServer,
    envoys: &[SocketAddr],
    kubeconfig: &str,
) -> Result<()> {
    // Nothing listens there.
    let refusing = envoys.first().context("an Envoy")?.ip();
    for object in [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"ports": [{"port": 80}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-1", "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [{"addresses": [refusing]}], "ports": [{"port": 1}]}),
    ] {
        server.put(object).await?;
    }
    for envoy in envoys {
        until_served(&Probe::http(*envoy, HOST).path("/refused"), 503).await?;
    }
    let url = format!("http://{HOST}/refused");
    let arguments = ["explain", &url, "-n", "shop", "--kubeconfig", kubeconfig];
    let deadline = Instant::now() + LIMIT;
    loop {
        let told = Gatewright::run(&arguments)?;
        let text = String::from_utf8_lossy(&told.stdout);
        if text.contains("NOTE: 1 of 1 refused the last 2 connections") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{told:?}");
        sleep(Duration::from_millis(500)).await;
    }
}
