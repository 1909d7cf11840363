//! The manifests of `deploy/`, applied unchanged to a cluster that runs its pods: controller and
//! Envoys start from their manifests, a Gateway of our class is served, and pods are replaced, and
//! scaled, without a failed request.

mod logs;
mod scaling;
mod traffic;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{ACCOUNT, NAMESPACE, condition, is_true, service, tls_secret};
use e2e::deploy::{folder, kustomized};
use e2e::echo::Echo;
use e2e::helm::Helm;
use e2e::kubelet::{Kubelet, ZONE};
use e2e::probe::{Connection, Failure, Probe};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, LogParams, Patch};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
pub(super) const LIMIT: Duration = Duration::from_secs(180);
/// The address that a load balancer assigns to the Envoys.
const ADDRESS: &str = "203.0.113.7";
const HOST: &str = "web.example.org";

async fn apply_all(server: &ApiServer) -> Result<()> {
    for object in kustomized(&folder())? {
        if object["kind"] == "CustomResourceDefinition" {
            server.install(Definitions::Ours).await?;
        } else {
            server.put(object).await?;
        }
    }
    Ok(())
}

/// Returns the ready pods of a component, with their addresses.
async fn ready(server: &ApiServer, component: &str) -> Result<Vec<(String, String)>> {
    let pods = server.api("v1", "Pod", NAMESPACE).await?;
    let wanted = ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
    let all = pods.list(&wanted).await?.items.into_iter().filter(|pod| {
        pod.metadata.deletion_timestamp.is_none() && is_true(&pod.data["status"], "Ready")
    });
    Ok(all
        .map(|pod| {
            (
                pod.name_any(),
                pod.data["status"]["podIP"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
            )
        })
        .collect())
}

pub(super) async fn until_ready(
    server: &ApiServer,
    component: &str,
    count: usize,
) -> Result<Vec<(String, String)>> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let pods = ready(server, component).await?;
        if pods.len() == count {
            return Ok(pods);
        }
        if Instant::now() > deadline {
            let all = server
                .api("v1", "Pod", NAMESPACE)
                .await?
                .list(&ListParams::default())
                .await?
                .items;
            let statuses: Vec<String> = all
                .iter()
                .map(|pod| format!("{} {}", pod.name_any(), pod.data["status"]))
                .collect();
            panic!(
                "{} of {count} pods of {component} are ready:\n{}",
                pods.len(),
                statuses.join("\n")
            );
        }
        sleep(Duration::from_millis(100)).await;
    }
}

pub(super) async fn until_served(probe: &Probe, status: u16) -> Result<()> {
    probe.until(status, LIMIT).await.map(drop)
}

pub(super) fn programs() -> Result<[(&'static str, PathBuf); 2]> {
    let envoy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/envoy");
    ensure!(
        envoy.exists(),
        "no Envoy at {}; run: e2e/tools install envoy",
        envoy.display()
    );
    Ok([
        ("gatewright", e2e::gatewright::binary()?),
        ("docker.io/envoyproxy/envoy", envoy),
    ])
}

/// Gives the Service of the Envoys an address, as a cloud or MetalLB would.
async fn give_address(server: &ApiServer, namespace: &str, name: &str) -> Result<()> {
    let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}});
    let services = server.api("v1", "Service", namespace).await?;
    services
        .patch_status(name, &Default::default(), &Patch::Merge(&given))
        .await?;
    Ok(())
}

/// Makes a backend, a Gateway for plain HTTP, and a route between them.
async fn site(server: &ApiServer, kubelet: &Kubelet) -> Result<Echo> {
    give_address(server, NAMESPACE, "gatewright-envoy").await?;
    let echo = Echo::start_on("web", &kubelet.host().to_string()).await?;
    // The backend is on the host network of the node.
    let metadata = json!({"name": "default", "labels": {"gatewright.io/endpoints": "any"}});
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
        .await?;
    let [web, mut slice, _] = service("default", "web", echo.address().port());
    slice["endpoints"] = json!([{"addresses": [kubelet.host()]}]);
    for object in [web, slice] {
        server.put(object).await?;
    }
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright",
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}))
        .await?;
    server.put(route("default", "edge", "web", HOST)).await?;
    Ok(echo)
}

fn route(namespace: &str, gateway: &str, name: &str, host: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [{"name": gateway}], "hostnames": [host],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy, and root for the network of pods: e2e/tools install"]
async fn the_deployment_runs_and_serves() -> Result<()> {
    let mut server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    server.start_controllers_of_pods()?;
    let kubelet = Kubelet::start(&server, &programs()?).await?;
    apply_all(&server).await?;
    let controllers = until_ready(&server, "controller", 2).await?;
    let envoys = until_ready(&server, "envoy", 1).await?;
    let echo = site(&server, &kubelet).await?;
    let address: IpAddr = envoys[0].1.parse()?;
    let envoy = SocketAddr::new(address, 80);
    until_served(&Probe::http(envoy, HOST), 200).await?;
    let programmed = |gateway: &Value| {
        is_true(&gateway["status"], "Programmed")
            && gateway["status"]["addresses"][0]["value"] == ADDRESS
    };
    let gateway = server
        .until((GATEWAY, "Gateway", "default"), "edge", LIMIT, programmed)
        .await?;
    assert!(condition(&gateway["status"], "Accepted").is_some());
    further(&server, &kubelet, address, &echo).await?;

    // Every replica of the controller is replaced; Envoy serves meanwhile, and gets changes
    // afterwards.
    let pods = server.api("v1", "Pod", NAMESPACE).await?;
    for (name, _) in &controllers {
        pods.delete(name, &Default::default()).await?;
        assert_eq!(Probe::http(envoy, HOST).send().await?.status, 200);
    }
    let replaced = Instant::now() + LIMIT;
    loop {
        assert_eq!(Probe::http(envoy, HOST).send().await?.status, 200);
        let now = until_ready(&server, "controller", 2).await?;
        if now
            .iter()
            .all(|(name, _)| controllers.iter().all(|(old, _)| old != name))
        {
            break;
        }
        assert!(Instant::now() < replaced, "{now:?} are of old");
        sleep(Duration::from_millis(100)).await;
    }

    assert_eq!(
        server.denied(ACCOUNT)?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}

/// An installation of the chart, in pods, and a host that is served.
struct Installed {
    server: ApiServer,
    /// The pod of the Envoy.
    name: String,
    /// Its cleartext listener.
    envoy: SocketAddr,
    _kubelet: Kubelet,
    _echo: Echo,
}

/// Installs the chart with these values.
async fn installed(values: &str) -> Result<Installed> {
    let mut server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    server.start_controllers_of_pods()?;
    let kubelet = Kubelet::start(&server, &programs()?).await?;
    server.install(Definitions::Ours).await?;
    for object in
        Helm::new(None)?.template(&["--set", &format!("namespace.create=true,{values}")])?
    {
        server.put(object).await?;
    }
    until_ready(&server, "controller", 2).await?;
    let (name, address) = until_ready(&server, "envoy", 1)
        .await?
        .pop()
        .context("one")?;
    let echo = site(&server, &kubelet).await?;
    let envoy = SocketAddr::new(address.parse()?, 80);
    until_served(&Probe::http(envoy, HOST), 200).await?;
    knows_its_zone(&server, &name).await?;
    Ok(Installed {
        server,
        name,
        envoy,
        _kubelet: kubelet,
        _echo: echo,
    })
}

/// Checks that the bootstrap of a pod's Envoy has the zone of its node, whichever way it was told.
async fn knows_its_zone(server: &ApiServer, pod: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(server.client(), NAMESPACE);
    let of_container = LogParams {
        container: Some("bootstrap".to_owned()),
        ..LogParams::default()
    };
    let log = pods.logs(pod, &of_container).await?;
    ensure!(log.contains(ZONE), "the bootstrap has no zone: {log}");
    Ok(())
}

/// Replaces the authority of xDS at once, as when its key leaked.
async fn replace_authority(server: &ApiServer) -> Result<()> {
    let at_once = json!({"metadata": {"annotations": {"gatewright.io/replace": "at-once"}}});
    let secrets = server.api("v1", "Secret", NAMESPACE).await?;
    secrets
        .patch(
            "gatewright-xds-ca",
            &Default::default(),
            &Patch::Merge(&at_once),
        )
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes, Helm and Envoy, and root for the network of pods: e2e/tools install"]
async fn pods_of_envoys_may_share_the_certificate_of_their_fleet() -> Result<()> {
    let Installed { server, envoy, .. } = &installed("envoy.credentials=Secret").await?;

    // The key of their authority leaked: Envoys get changes once the kubelet has written new ones.
    let secrets = ("v1", "Secret", NAMESPACE);
    let of_old = server
        .until(secrets, "gatewright-envoy", LIMIT, |o| {
            o["data"].is_object()
        })
        .await?["data"]
        .clone();
    replace_authority(server).await?;
    server
        .until(secrets, "gatewright-envoy", LIMIT, |o| o["data"] != of_old)
        .await?;
    server
        .api(GATEWAY, "HTTPRoute", "default")
        .await?
        .delete("web", &Default::default())
        .await?;
    until_served(&Probe::http(*envoy, HOST), 404).await?;
    assert_eq!(
        server.denied(ACCOUNT)?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes, Helm and Envoy, and root for the network of pods: e2e/tools install"]
async fn pods_of_envoys_get_certificates_of_their_own_and_renew_them() -> Result<()> {
    // Certificates that expire within a test.
    let Installed {
        server,
        name,
        envoy,
        ..
    } = &installed("configuration.envoys.certificateSeconds=15").await?;
    let issued = async |name: &str| -> Result<usize> {
        let pods: Api<Pod> = Api::namespaced(server.client(), NAMESPACE);
        let of_container = LogParams {
            container: Some("identity".to_owned()),
            ..LogParams::default()
        };
        Ok(pods
            .logs(name, &of_container)
            .await?
            .matches("certificate from")
            .count())
    };
    let deadline = Instant::now() + LIMIT;
    while issued(name).await? < 3 {
        assert!(
            Instant::now() < deadline,
            "the certificate of {name} is not renewed"
        );
        sleep(Duration::from_millis(200)).await;
    }
    // The first one has expired, and Envoy gets changes.
    server
        .api(GATEWAY, "HTTPRoute", "default")
        .await?
        .delete("web", &Default::default())
        .await?;
    until_served(&Probe::http(*envoy, HOST), 404).await?;

    // The key of their authority leaked: another one signs, and pods get new certificates.
    let secrets = ("v1", "Secret", NAMESPACE);
    let of_old = server
        .until(secrets, "gatewright-xds-ca", LIMIT, |o| {
            o["data"].is_object()
        })
        .await?["data"]
        .clone();
    replace_authority(server).await?;
    server
        .until(secrets, "gatewright-xds-ca", LIMIT, |o| {
            o["data"]["tls.crt"] != of_old["tls.crt"]
        })
        .await?;
    server.put(route("default", "edge", "web", HOST)).await?;
    until_served(&Probe::http(*envoy, HOST), 200).await?;

    // A pod in its place is a different instance.
    server
        .api("v1", "Pod", NAMESPACE)
        .await?
        .delete(name, &Default::default())
        .await?;
    let deadline = Instant::now() + LIMIT;
    let (_, address) = loop {
        match ready(server, "envoy")
            .await?
            .pop()
            .filter(|(new, _)| new != name)
        {
            Some(new) => break new,
            None => assert!(Instant::now() < deadline, "no other pod is ready"),
        }
        sleep(Duration::from_millis(100)).await;
    };
    until_served(
        &Probe::http(SocketAddr::new(address.parse()?, 80), HOST),
        200,
    )
    .await?;
    let secrets = server.api("v1", "Secret", NAMESPACE).await?;
    assert!(
        secrets.get_opt("gatewright-envoy").await?.is_none(),
        "nobody needs the certificate of the fleet"
    );
    assert_eq!(
        server.denied(ACCOUNT)?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}

/// Checks what else works with the deployed manifests alone: HTTPS with a Secret, a Gateway with a
/// Service of its own, and a TenantGateway with certificates of the internal CA.
async fn further(server: &ApiServer, kubelet: &Kubelet, envoy: IpAddr, echo: &Echo) -> Result<()> {
    server
        .put(tls_secret("default", "cert", &["secure.example.org"])?)
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "secure", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "listeners": [{"name": "https", "protocol": "HTTPS", "port": 443,
                "hostname": "secure.example.org", "tls": {"certificateRefs": [{"name": "cert"}]}}]}}))
        .await?;
    server
        .put(route("default", "secure", "secure", "secure.example.org"))
        .await?;
    until_served(
        &Probe::https((envoy, 443).into(), "secure.example.org"),
        200,
    )
    .await?;

    // Its ports lead to ports of the ready Envoys.
    server
        .put(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"name": "own", "namespace": "default"}, "spec": {"fleet": "Dedicated"}}),
        )
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "own", "namespace": "default"},
            "spec": {"gatewayClassName": "gatewright", "infrastructure": {"parametersRef":
                {"group": "gatewright.io", "kind": "GatewayParameters", "name": "own"}},
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 8080}]}}))
        .await?;
    server
        .put(route("default", "own", "own", "own.example.org"))
        .await?;
    let target = |o: &Value| {
        o["spec"]["ports"][0]["targetPort"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok())
    };
    let made = server
        .until(("v1", "Service", "default"), "own-gatewright", LIMIT, |o| {
            target(o).is_some()
        })
        .await?;
    let slices = ("discovery.k8s.io/v1", "EndpointSlice", "default");
    server
        .until(slices, "own-gatewright-v4", LIMIT, |o| {
            o["endpoints"][0]["addresses"][0] == envoy.to_string()
        })
        .await?;
    let port = target(&made).context("a port")?;
    until_served(&Probe::http((envoy, port).into(), "own.example.org"), 200).await?;
    give_address(server, "default", "own-gatewright").await?;
    server
        .until((GATEWAY, "Gateway", "default"), "own", LIMIT, |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;

    // The controller itself issues for this one, which needs one more right.
    for object in kustomized(&folder().join("certificates"))? {
        server.put(object).await?;
    }
    let labels = json!({"namespace.cozystack.io/gateway": "tenant-a", "namespace.cozystack.io/host": "a.example.net",
        "gatewright.io/endpoints": "any"});
    let namespace = json!({"name": "tenant-a", "labels": labels});
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace}))
        .await?;
    let [web, mut slice, _] = service("tenant-a", "web", echo.address().port());
    slice["endpoints"] = json!([{"addresses": [kubelet.host()]}]);
    for object in [web, slice] {
        server.put(object).await?;
    }
    server
        .put(
            json!({"apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway",
            "metadata": {"name": "cozystack", "namespace": "tenant-a",
                "annotations": {"gatewright.io/issuer": "internal-ca"}},
            "spec": {"apex": "a.example.net", "gatewayClassName": "gatewright"}}),
        )
        .await?;
    server
        .put(route("tenant-a", "cozystack", "web", "shop.a.example.net"))
        .await?;
    let maps = server
        .until(
            ("v1", "ConfigMap", NAMESPACE),
            "gatewright-internal-ca",
            LIMIT,
            |o| o["data"]["ca.crt"].is_string(),
        )
        .await?;
    let mut roots = rustls::RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(
        maps["data"]["ca.crt"]
            .as_str()
            .unwrap_or_default()
            .as_bytes(),
    ) {
        roots.add(root?)?;
    }
    until_served(
        &Probe::https((envoy, 443).into(), "shop.a.example.net").roots(roots),
        200,
    )
    .await?;
    let tenants = ("gateway.cozystack.io/v1alpha1", "TenantGateway", "tenant-a");
    server
        .until(tenants, "cozystack", LIMIT, |o| {
            is_true(&o["status"], "Ready")
        })
        .await?;
    Ok(())
}
