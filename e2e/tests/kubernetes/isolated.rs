//! Gateways of fleet Isolated: each has Envoys of its own, which the controller makes, and which
//! get its configuration and nothing else.

mod admission;
mod autoscaling;
mod last_good;
mod late;
mod rights;
mod rolling;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::{ApiServer, Definitions, Request, is_write};
use e2e::cluster::{ACCOUNT, Cluster, NAMESPACE, condition, is_true, service, tls_secret};
use e2e::deploy::{folder, with_component};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::hex::hex;
use e2e::kubelet::Kubelet;
use e2e::probe::Probe;
use e2e::walkthrough::Place;
use e2e::xds_ca::PemPair;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};

use super::fleet::apart::told;
use super::pages::followed;
use super::pods::{programs, until_ready, until_served};
use super::trust::Keys;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const LIMIT: Duration = Duration::from_secs(180);
const DEPLOYMENT: (&str, &str, &str) = ("apps/v1", "Deployment", NAMESPACE);
/// The objects of a Gateway's Envoys.
const PARTS: [(&str, &str); 5] = [
    ("v1", "ServiceAccount"),
    ("v1", "Service"),
    ("policy/v1", "PodDisruptionBudget"),
    ("apps/v1", "Deployment"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
];

/// Returns the name of the objects of Gateway `edge`'s Envoys.
fn name_of(namespace: &str) -> String {
    let hash = Sha256::digest(format!("{namespace}/edge").as_bytes());
    format!("gatewright-isolated-edge-{}", hex(&hash[..10]))
}

pub(crate) fn parameters(namespace: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

pub(crate) fn class(parameters: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": parameters},
        "spec": {"controllerName": "gatewright.io/gateway-controller", "parametersRef":
            {"group": "gatewright.io", "kind": "GatewayParameters", "name": parameters, "namespace": NAMESPACE}}})
}

/// A Gateway for plain HTTP and HTTPS, with optional parameters of its own.
pub(crate) fn gateway(namespace: &str, class: &str, own: Option<&str>) -> Value {
    let mut gateway = json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": namespace},
        "spec": {"gatewayClassName": class, "listeners": [
            {"name": "http", "protocol": "HTTP", "port": 80},
            {"name": "https", "protocol": "HTTPS", "port": 443, "hostname": format!("{namespace}.example.org"),
                "tls": {"certificateRefs": [{"name": "cert"}]}}]}});
    if let Some(own) = own {
        let reference = json!({"group": "gatewright.io", "kind": "GatewayParameters", "name": own});
        gateway["spec"]["infrastructure"] = json!({"parametersRef": reference});
    }
    gateway
}

/// Makes a namespace with a backend, a certificate and a route to a Gateway that does not exist
/// yet.
pub(crate) async fn tenant(
    server: &ApiServer,
    kubelet: &Kubelet,
    namespace: &str,
    echo: &Echo,
) -> Result<()> {
    let labels = json!({"gatewright.io/endpoints": "any"});
    let metadata = json!({"name": namespace, "labels": labels});
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
        .await?;
    let host = format!("{namespace}.example.org");
    server.put(tls_secret(namespace, "cert", &[&host])?).await?;
    let [web, mut slice, _] = service(namespace, "web", echo.address().port());
    slice["endpoints"] = json!([{"addresses": [kubelet.host()]}]);
    let route = json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [host],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}});
    for object in [web, slice, route] {
        server.put(object).await?;
    }
    Ok(())
}

/// Waits until a Gateway is programmed, and returns its address.
pub(crate) async fn until_programmed(server: &ApiServer, namespace: &str) -> Result<IpAddr> {
    let there = server
        .until((GATEWAY, "Gateway", namespace), "edge", LIMIT, |o| {
            is_true(&o["status"], "Programmed") && o["status"]["addresses"][0]["value"].is_string()
        })
        .await?;
    Ok(there["status"]["addresses"][0]["value"]
        .as_str()
        .context("an address")?
        .parse()?)
}

/// Waits until a condition of a Gateway has this word.
async fn until_said(server: &ApiServer, namespace: &str, kind: &str, word: &str) -> Result<Value> {
    server
        .until((GATEWAY, "Gateway", namespace), "edge", LIMIT, |o| {
            let text =
                condition(&o["status"], kind).and_then(|condition| condition["message"].as_str());
            text.is_some_and(|text| text.contains(word))
        })
        .await
}

/// Waits until so many pods of a Gateway are ready, and returns their names.
async fn until_pods(server: &ApiServer, namespace: &str, count: usize) -> Result<Vec<String>> {
    let pods = server.api("v1", "Pod", NAMESPACE).await?;
    let wanted =
        ListParams::default().labels(&format!("gatewright.io/isolated={}", name_of(namespace)));
    let deadline = Instant::now() + LIMIT;
    loop {
        let all = pods.list(&wanted).await?.items;
        let ready = all
            .iter()
            .filter(|pod| is_true(&pod.data["status"], "Ready"));
        if all.len() == count && ready.count() == count {
            return Ok(all.iter().map(ResourceExt::name_any).collect());
        }
        let statuses: Vec<String> = all
            .iter()
            .map(|pod| format!("{} {}", pod.name_any(), pod.data["status"]))
            .collect();
        ensure!(
            Instant::now() < deadline,
            "{count} pods of {namespace} are to be ready: {}",
            statuses.join("\n")
        );
        sleep(Duration::from_millis(100)).await;
    }
}

/// Returns the address of a controller's pod.
async fn controller(server: &ApiServer) -> Result<IpAddr> {
    Ok(until_ready(server, "controller", 2).await?[0].1.parse()?)
}

/// Starts a cluster with the chart installed for fleet Isolated, its programs in pods.
pub(crate) async fn deployed() -> Result<(ApiServer, Kubelet)> {
    let mut server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    server.start_controllers_of_pods()?;
    let kubelet = Kubelet::start_with_balancer(&server, &programs()?).await?;
    for object in with_component("isolated")? {
        if object["kind"] == "CustomResourceDefinition" {
            server.install(Definitions::Ours).await?
        } else {
            drop(server.put(object).await?)
        }
    }
    Ok((server, kubelet))
}

/// Requests the credential of a pod, as the pod itself does.
async fn of_pod(server: &ApiServer, pod: &str, account: &str) -> Result<Keys> {
    of_pod_by(
        server,
        SocketAddr::new(controller(server).await?, 18001),
        pod,
        account,
    )
    .await
}

/// Requests it from the replica at this address.
async fn of_pod_by(
    server: &ApiServer,
    controller: SocketAddr,
    pod: &str,
    account: &str,
) -> Result<Keys> {
    let client = server.client();
    let uid = Api::<Pod>::namespaced(client.clone(), NAMESPACE)
        .get(pod)
        .await?
        .metadata
        .uid;
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.to_owned()),
        uid,
    };
    let audiences = Some(vec!["gatewright-xds".to_owned()]);
    let spec = TokenRequestSpec {
        audiences,
        bound_object_ref: Some(bound),
        expiration_seconds: Some(3600),
    };
    let request = TokenRequest {
        spec: Some(spec),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let made = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    let token = made
        .status
        .and_then(|status| status.token)
        .context("a token")?;
    let roots = Api::<ConfigMap>::namespaced(client, NAMESPACE)
        .get("gatewright-xds-roots")
        .await?;
    let roots = roots
        .data
        .and_then(|mut data| data.remove("ca.crt"))
        .context("roots")?;
    let dir = tempfile::Builder::new().prefix("pod").tempdir()?;
    std::fs::write(dir.path().join("token"), token)?;
    std::fs::write(dir.path().join("ca.crt"), &roots)?;
    let [token, ca, tls] =
        ["token", "ca.crt", "tls"].map(|name| dir.path().join(name).display().to_string());
    let at = controller.to_string();
    let arguments = [
        "envoy-identity",
        "--once",
        "--controller",
        &at,
        "--token",
        &token,
        "--roots",
        &ca,
        "--dir",
        &tls,
    ];
    let mut beside = Gatewright::start(&arguments)?;
    beside.line("certificate from").await?;
    beside.end().await?;
    let read = |name: &str| std::fs::read_to_string(dir.path().join("tls").join(name));
    Ok(Keys {
        pair: PemPair {
            certificate: read("tls.crt")?,
            key: read("tls.key")?,
        },
        bundle: roots,
    })
}

/// Requests the credential of a pod of the shared fleet.
async fn of_shared(server: &ApiServer) -> Result<Keys> {
    let (pod, _) = until_ready(server, "envoy", 1)
        .await?
        .pop()
        .context("an Envoy of the shared fleet")?;
    of_pod(server, &pod, "gatewright-envoy").await
}

/// Returns the controller's writes so far for the Envoys of a namespace's Gateway.
fn writes(server: &ApiServer, namespace: &str) -> Result<Vec<Request>> {
    let mut all = server.requests()?;
    let object = format!("{NAMESPACE}/{}", name_of(namespace));
    all.retain(|request| request.user == ACCOUNT && is_write(request) && request.object == object);
    Ok(all)
}

async fn until_gone(server: &ApiServer, namespace: &str) -> Result<()> {
    for (version, kind) in PARTS {
        server
            .until(
                (version, kind, NAMESPACE),
                &name_of(namespace),
                LIMIT,
                Value::is_null,
            )
            .await?;
    }
    until_pods(server, namespace, 0).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes, Helm and Envoy, and root for the network of pods: e2e/tools install"]
async fn gateways_with_envoys_of_their_own_are_served_apart() -> Result<()> {
    let (server, kubelet) = deployed().await?;
    // A leftover of an earlier run, which is not wanted: it is deleted.
    let left = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name_of("left"), "namespace": NAMESPACE,
        "labels": {"app.kubernetes.io/managed-by": "gatewright", "gatewright.io/isolated": name_of("left")},
        "annotations": {"gatewright.io/isolated-gateway": "left/edge"}}});
    server.put(left).await?;
    server
        .put(parameters(
            NAMESPACE,
            "isolated",
            json!({"fleet": "Isolated", "isolated": {"replicas": 1, "maxReplicas": 2}}),
        ))
        .await?;
    server.put(class("isolated")).await?;
    let echo = Echo::start_on("web", &kubelet.host().to_string()).await?;
    for namespace in ["shop", "bank", "coop", "late"] {
        tenant(&server, &kubelet, namespace, &echo).await?;
    }
    server.put(gateway("shop", "gatewright", None)).await?;
    for namespace in ["bank", "coop"] {
        server.put(gateway(namespace, "isolated", None)).await?;
    }
    for namespace in ["bank", "coop"] {
        let address = until_programmed(&server, namespace).await?;
        let host = format!("{namespace}.example.org");
        until_served(&Probe::http((address, 80).into(), &host), 200).await?;
        until_served(&Probe::https((address, 443).into(), &host), 200).await?;
        until_pods(&server, namespace, 1).await?;
    }
    server
        .until(
            ("v1", "ServiceAccount", NAMESPACE),
            &name_of("left"),
            LIMIT,
            Value::is_null,
        )
        .await?;

    // The credential of one Envoy gets no other Gateway's configuration, whatever name it requests.
    let xds = SocketAddr::new(controller(&server).await?, 18000);
    let hosts = ["shop.example.org", "bank.example.org", "coop.example.org"];
    let [pod] = &until_pods(&server, "bank", 1).await?[..] else {
        unreachable!("one")
    };
    let bank = of_pod(&server, pod, &name_of("bank")).await?;
    let deadline = Instant::now() + LIMIT;
    for (keys, own) in [(&bank, "bank"), (&of_shared(&server).await?, "shop")] {
        loop {
            let (names, found) = told(xds, keys, &hosts).await?;
            let alone = names.iter().all(|name| {
                hosts
                    .iter()
                    .all(|host| !name.contains(&host[..4]) || host.starts_with(own))
            });
            if found == BTreeSet::from([format!("{own}.example.org")]) && alone && !names.is_empty()
            {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "{own} is told of {names:?} and has {found:?}"
            );
            sleep(Duration::from_millis(200)).await;
        }
    }

    // One requests more, within the limits of its class; nothing is written for the other.
    let before = writes(&server, "coop")?.len();
    server
        .put(parameters(
            "bank",
            "more",
            json!({"isolated": {"replicas": 3}}),
        ))
        .await?;
    server
        .put(gateway("bank", "isolated", Some("more")))
        .await?;
    until_said(&server, "bank", "Accepted", "the GatewayClass admits 2").await?;
    server
        .put(parameters(
            "bank",
            "more",
            json!({"isolated": {"replicas": 2}}),
        ))
        .await?;
    until_pods(&server, "bank", 2).await?;
    until_said(
        &server,
        "bank",
        "Programmed",
        "acknowledged by 2 of 2 Envoys",
    )
    .await?;
    followed(
        &server,
        "fleets.md",
        "",
        Place {
            dir: folder(),
            ..Place::default()
        },
    )
    .await?;
    assert_eq!(
        writes(&server, "coop")?.len(),
        before,
        "{:#?}",
        writes(&server, "coop")?.last()
    );
    // A manual change of the scale is reverted.
    let scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name_of("bank"), "namespace": NAMESPACE},
        "spec": {"replicas": 1}});
    server.put(scaled).await?;
    server
        .until(DEPLOYMENT, &name_of("bank"), LIMIT, |o| {
            o["spec"]["replicas"] == 2
        })
        .await?;

    // A foreign Deployment of this name stays unchanged, and the status reports it; once it is
    // deleted, the Gateway gets its own.
    let pod = json!({"containers": [{"name": "theirs", "image": "theirs"}]});
    let theirs = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name_of("late"), "namespace": NAMESPACE},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}});
    let uid = server.put(theirs).await?.metadata.uid;
    server.put(gateway("late", "isolated", None)).await?;
    until_said(&server, "late", "Programmed", "belongs to another owner").await?;
    let deployments = server.api("apps/v1", "Deployment", NAMESPACE).await?;
    let there = deployments.get(&name_of("late")).await?;
    assert_eq!(
        there.metadata.uid.clone(),
        uid,
        "the foreign Deployment is the same object"
    );
    assert_eq!(
        there.data["spec"]["selector"]["matchLabels"],
        json!({"a": "b"}),
        "its selector is unchanged"
    );
    assert_eq!(writes(&server, "late")?, [], "nothing is written beside it");
    deployments
        .delete(&name_of("late"), &Default::default())
        .await?;
    until_programmed(&server, "late").await?;

    // One is deleted, another leaves the fleet: nothing is left of either.
    server
        .api(GATEWAY, "Gateway", "bank")
        .await?
        .delete("edge", &Default::default())
        .await?;
    server.put(gateway("late", "gatewright", None)).await?;
    for namespace in ["bank", "late"] {
        until_gone(&server, namespace).await?;
    }
    let told = told(xds, &bank, &hosts).await;
    assert!(
        told.is_err(),
        "an Envoy whose Gateway is gone is told {told:?}"
    );
    let address = until_programmed(&server, "coop").await?;
    until_served(
        &Probe::https((address, 443).into(), "coop.example.org"),
        200,
    )
    .await?;
    assert_eq!(writes(&server, "coop")?.len(), before);
    assert_eq!(
        server.denied(ACCOUNT)?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}

/// Fails closed: neither class nor Gateway is accepted, and both name the missing option.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn without_the_switch_a_class_says_which_one_it_takes() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    server.install(Definitions::Ours).await?;
    server
        .put(parameters(
            NAMESPACE,
            "isolated",
            json!({"fleet": "Isolated"}),
        ))
        .await?;
    server.put(class("isolated")).await?;
    server.put(gateway("default", "isolated", None)).await?;
    let _one = cluster.controller("one")?;
    let refused = |o: &Value| {
        condition(&o["status"], "Accepted").is_some_and(|condition| {
            let text = condition["message"].as_str().unwrap_or_default();
            condition["status"] == "False"
                && condition["reason"] == "InvalidParameters"
                && text.contains("envoys.isolatedPodTemplate")
                && text.contains("isolated.enabled")
        })
    };
    cluster
        .until(GATEWAY, "GatewayClass", "", "isolated", refused)
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "edge", refused)
        .await?;
    cluster.quiet().await?;
    assert!(
        !cluster
            .writes()?
            .iter()
            .any(|request| matches!(&*request.resource, "deployments" | "serviceaccounts"))
    );
    Ok(())
}
