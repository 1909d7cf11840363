//! A start without an API server: Envoys of every fleet, including isolated ones, get their last
//! good configuration.

use e2e::apiserver::Definitions;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{BACKEND, Cluster, NAMESPACE, service, tls_secret};
use e2e::deploy::with_component;
use e2e::echo::Echo;
use e2e::envoy::Envoy;
use e2e::port::free_port;
use kube::api::{DeleteParams, Patch};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{GATEWAY, LIMIT, class, name_of, of_pod_by, parameters, told};
use crate::edge::until_answers;
use crate::hardening::{LastGoodVolume, bring_key, until_settled};
use crate::trust::{Keys, keys};

pub(super) const DEDICATED: &str = "gatewright-envoy-dedicated";
/// The port at which Envoys serve a Gateway is derived from its namespace, and tests share this
/// machine's ports.
const TENANTS: [(&str, &str); 4] = [
    ("kept-shop", "gatewright"),
    ("kept-coop", "dedicated"),
    ("kept-bank", "isolated"),
    ("kept-gone", "isolated"),
];

pub(super) fn host(namespace: &str) -> String {
    format!("{namespace}.example.org")
}

pub(super) fn route(namespace: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [host(namespace)],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

/// Applies the objects that the controller starts with: classes of all three fleets, and their
/// parameters.
pub(super) async fn prepare(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}))
        .await?;
    for object in with_component("isolated")? {
        let kind = object["kind"].as_str().unwrap_or_default();
        if [
            "Role",
            "RoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
            "PodTemplate",
            "GatewayClass",
        ]
        .contains(&kind)
        {
            server.put(object).await?;
        }
    }
    server
        .until_may(
            e2e::cluster::ACCOUNT,
            ("create", "apps", "deployments", NAMESPACE),
            true,
        )
        .await?;
    for (name, spec) in [
        ("isolated", json!({"fleet": "Isolated"})),
        ("dedicated", json!({"fleet": "Dedicated"})),
    ] {
        server.put(parameters(NAMESPACE, name, spec)).await?;
        server.put(class(name)).await?;
    }
    for object in service(NAMESPACE, DEDICATED, 80) {
        server.put(object).await?;
    }
    Ok(())
}

/// Makes a namespace with a Gateway of a class; returns the address at which its Envoys serve it.
pub(super) async fn tenant(
    cluster: &Cluster,
    namespace: &str,
    class: &str,
    backend: u16,
) -> Result<SocketAddr> {
    let server = &cluster.server;
    let metadata = json!({"name": namespace, "labels": {"gatewright.io/endpoints": "any"}});
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
        .await?;
    server
        .put(tls_secret(namespace, "cert", &[&host(namespace)])?)
        .await?;
    for object in service(namespace, "web", backend) {
        server.put(object).await?;
    }
    server.put(route(namespace)).await?;
    let port = free_port()?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": namespace},
            "spec": {"gatewayClassName": class, "listeners": [{"name": "https", "protocol": "HTTPS", "port": port,
                "hostname": host(namespace), "tls": {"certificateRefs": [{"name": "cert"}]}}]}}))
        .await?;
    if class == "gatewright" {
        return Ok(([127, 0, 0, 1], port).into());
    }
    let target = |o: &Value| {
        o["spec"]["ports"][0]["targetPort"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok())
    };
    let service = format!("edge-{class}");
    let made = cluster
        .until("v1", "Service", namespace, &service, |o| {
            target(o).is_some()
        })
        .await?;
    let services = server.api("v1", "Service", namespace).await?;
    let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": BACKEND}]}}});
    services
        .patch_status(&service, &Default::default(), &Patch::Merge(&given))
        .await?;
    Ok(([127, 0, 0, 1], target(&made).context("a port")?).into())
}

/// Makes a pod of a Gateway's own Envoys, as a kubelet would report it, and requests its
/// credential.
pub(super) async fn pod_of(
    cluster: &Cluster,
    controller: SocketAddr,
    namespace: &str,
) -> Result<Keys> {
    let account = name_of(namespace);
    cluster
        .until("v1", "ServiceAccount", NAMESPACE, &account, |o| {
            !o.is_null()
        })
        .await?;
    let mut pod = e2e::cluster::pod(NAMESPACE, namespace, "198.18.0.9");
    pod["spec"]["serviceAccountName"] = account.as_str().into();
    pod["spec"]["nodeName"] = "node-a".into();
    cluster.server.put(pod).await?;
    of_pod_by(&cluster.server, controller, namespace, &account).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn envoys_of_every_fleet_are_told_what_was_last_good_for_them() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    prepare(&cluster).await?;
    let volume = LastGoodVolume::new()?;
    let identity = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let identity_text = identity.to_string();
    let arguments = [
        ["--set", &format!("envoys.dedicatedService={DEDICATED}")],
        [
            "--set",
            "envoys.isolatedPodTemplate=gatewright-envoy-isolated",
        ],
        ["--set", "envoys.credentials=Both"],
        ["--envoy-identity", &*identity_text],
    ];
    let (file, arguments) = (volume.file(), volume.arguments(arguments.as_flattened()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let arguments = arguments.as_slice();
    let mut controller = cluster.controller_with("one", arguments)?;
    controller.line("holding the lease").await?;
    bring_key(&cluster, &volume.key()).await?;
    let echo = Echo::start_on("web", BACKEND).await?;
    let mut addresses = Vec::new();
    for (namespace, class) in TENANTS {
        addresses.push(tenant(&cluster, namespace, class, echo.address().port()).await?);
    }

    // No controller makes pods of Deployments here.
    let mut own = Vec::new();
    for namespace in ["kept-bank", "kept-gone"] {
        own.push(pod_of(&cluster, identity, namespace).await?);
    }
    let deadline = Instant::now() + LIMIT;
    let of_dedicated = loop {
        if let Some(keys) = keys(&cluster, DEDICATED).await? {
            break keys;
        }
        ensure!(
            Instant::now() < deadline,
            "there are no keys of fleet Dedicated"
        );
        sleep(Duration::from_millis(50)).await;
    };
    let xds = cluster.xds();
    let mut envoys = vec![cluster.envoy("shared-a").await?];
    for (node, keys) in [
        ("dedicated-a", &of_dedicated),
        ("bank-a", &own[0]),
        ("gone-a", &own[1]),
    ] {
        envoys.push(
            cluster
                .envoy_with(node, xds, &keys.pair, &keys.bundle)
                .await?,
        );
    }
    for ((namespace, _), address) in TENANTS.iter().zip(&addresses) {
        until_answers(*address, &host(namespace), 200).await?;
    }
    until_settled(&file).await?;

    // All programs end, and a Gateway is deleted, which nobody notices. The files of the pods stay.
    let pods: Vec<_> = envoys.into_iter().map(|(_, files)| files).collect();
    drop(controller);
    cluster
        .server
        .api(GATEWAY, "Gateway", "kept-gone")
        .await?
        .delete("edge", &DeleteParams::default())
        .await?;
    cluster.server.kill();
    let mut controller = cluster.controller_with("one", arguments)?;
    controller.line("of the last good state are served").await?;
    let mut started = Vec::new();
    for files in &pods {
        started.push(
            Envoy::start(&std::fs::read_to_string(
                files.path().join("bootstrap.json"),
            )?)
            .await?,
        );
    }
    for ((namespace, _), address) in TENANTS.iter().zip(&addresses) {
        until_answers(*address, &host(namespace), 200).await?;
    }
    let hosts = TENANTS.map(|(namespace, _)| host(namespace));
    let names = hosts.each_ref().map(String::as_str);
    for (keys, whose) in [
        (&of_dedicated, "kept-coop"),
        (&own[0], "kept-bank"),
        (&own[1], "kept-gone"),
    ] {
        let (seen, found) = told(xds, keys, &names).await?;
        assert_eq!(found, [host(whose)].into(), "secrets for {whose}");
        assert_eq!(
            seen.iter().find(|name| {
                TENANTS
                    .iter()
                    .any(|(other, _)| name.contains(other) && *other != whose)
            }),
            None,
            "of somebody else, told to {whose}"
        );
        assert!(
            seen.iter().any(|name| name.contains(whose)),
            "{whose} has nothing of its own: {seen:?}"
        );
    }

    // It is back: changes reach every fleet, and the Envoys of the deleted Gateway are not admitted
    // any more.
    cluster.server.resume().await?;
    controller
        .line("the view of the API server is complete")
        .await?;
    for ((namespace, _), address) in TENANTS.iter().zip(&addresses).take(3) {
        until_answers(*address, &host(namespace), 200).await?;
        let routes = cluster.server.api(GATEWAY, "HTTPRoute", namespace).await?;
        routes.delete("web", &DeleteParams::default()).await?;
        until_answers(*address, &host(namespace), 404).await?;
        cluster.server.put(route(namespace)).await?;
        until_answers(*address, &host(namespace), 200).await?;
    }
    let gone = told(xds, &own[1], &names).await;
    assert!(
        gone.is_err(),
        "an Envoy whose Gateway is gone is told {gone:?}"
    );
    let (_, found) = told(xds, &own[0], &names).await?;
    assert_eq!(found, [host("kept-bank")].into());
    Ok(())
}
