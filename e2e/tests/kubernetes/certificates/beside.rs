//! HTTP-01 with another data plane: challenges reach our replicas through routes. The data plane is
//! another installation of ours, which does not process TenantGateways; Cilium's handling of the
//! same routes is in `cilium`.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use e2e::apiserver::manifests::documents;
use e2e::cluster::{BACKEND, NAMESPACE, is_true, service};
use e2e::envoy::Envoy;
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::probe::Probe;
use kube::ResourceExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::place::{APEX, HOST, Place, SPACE};
use e2e::tenants::{GATEWAY, TENANT, member, quiet, route, tenant, until, until_ready};

const EDGE: &str = "edge-system";
const EDGE_CONTROLLER: &str = "example.org/edge";
/// A namespace that inherits the Gateway, and its host.
const CHILD: &str = "tenant-cert-child";
const CHILD_HOST: &str = "app.child.cert.example.org";
const SOLVER: &str = "tenant-cert.cozystack.acme-challenges";
const QUESTION: &str = "/.well-known/acme-challenge/evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ";

/// The other installation, with its Envoy.
struct Edge {
    _controller: Gatewright,
    _envoy: (Envoy, TempDir),
}

impl Edge {
    async fn start(place: &Place) -> Result<Self> {
        let server = &place.cluster.server;
        server
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": EDGE}}))
            .await?;
        // Like other data planes, it serves the rules of all namespaces that listeners admit, under
        // any hostname.
        server
            .put(json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
                "metadata": {"namespace": EDGE, "name": "edge"}, "spec": {"routeHostnames": "Shared"}}))
            .await?;
        server
            .put(json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "cilium"},
                "spec": {"controllerName": EDGE_CONTROLLER, "parametersRef": {"group": "gatewright.io",
                    "kind": "GatewayParameters", "namespace": EDGE, "name": "edge"}}}))
            .await?;
        let kubeconfig = server
            .kubeconfig("edge", &["system:masters"])?
            .display()
            .to_string();
        let xds = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let at = xds.to_string();
        let address = format!("envoys.addresses=['{}']", place.address);
        let mut controller = Gatewright::start(&[
            "controller",
            "--kubeconfig",
            &kubeconfig,
            "--namespace",
            EDGE,
            "--identity",
            "edge",
            "--set",
            "tenancy.enabled=false",
            "--set",
            &format!("gatewayApi.controllerName={EDGE_CONTROLLER}"),
            "--set",
            &address,
            "--xds",
            &at,
            "--probes",
            "127.0.0.1:0",
        ])?;
        controller.line("xDS at").await?;
        let mut envoy = place.cluster.envoy_in(EDGE, "edge-a", xds).await?;
        envoy.0.ready().await?;
        Ok(Self {
            _controller: controller,
            _envoy: envoy,
        })
    }
}

/// The Service of `deploy/`, with endpoints at these ports in place of pods.
async fn challenges(place: &Place, ports: [u16; 2]) -> Result<()> {
    let server = &place.cluster.server;
    let made = documents(include_str!("../../../../deploy/controller.yaml"))?.into_iter();
    let mut services =
        made.filter(|o| o["kind"] == "Service" && o["metadata"]["name"] == "gatewright-challenges");
    server
        .put(services.next().context("deploy/ has it")?)
        .await?;
    for port in ports {
        let [_, mut slice, pod] = service(NAMESPACE, "gatewright-challenges", port);
        server.put(pod).await?;
        slice["metadata"]["name"] = json!(format!("gatewright-challenges-{port}"));
        server.put(slice).await?;
    }
    Ok(())
}

async fn tenant_gateway(place: &Place, annotations: Value) -> Result<()> {
    let mut object = tenant(SPACE, json!({"apex": APEX}));
    object["metadata"]["annotations"] = annotations;
    place.cluster.server.put(object).await.map(drop)
}

/// Returns status and body of an answer over plain HTTP.
async fn plain(address: IpAddr, port: u16, host: &str, path: &str) -> Result<(u16, String)> {
    let answer = Probe::http(SocketAddr::new(address, port), host)
        .path(path)
        .send()
        .await?;
    Ok((
        answer.status,
        String::from_utf8_lossy(&answer.body).into_owned(),
    ))
}

fn texts(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// Returns the routes in our namespace.
async fn solvers(place: &Place) -> Result<Vec<Value>> {
    let api = place
        .cluster
        .server
        .api(GATEWAY, "HTTPRoute", NAMESPACE)
        .await?;
    let mut all = api.list(&Default::default()).await?.items;
    all.sort_by_key(ResourceExt::name_any);
    all.iter()
        .map(|route| Ok(serde_json::to_value(route)?))
        .collect()
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy and Pebble: e2e/tools install"]
async fn challenges_come_to_the_replicas_where_another_serves_the_gateway() -> Result<()> {
    let place = Place::start().await?;
    let server = &place.cluster.server;
    let _edge = Edge::start(&place).await?;
    let here: IpAddr = BACKEND.parse()?;
    let ports = [free_port()?, free_port()?];
    challenges(&place, ports).await?;
    let [one, two] = ports.map(|port| {
        let mut all = place.arguments();
        all.extend(["--challenges".to_owned(), format!("{BACKEND}:{port}")]);
        all
    });
    let mut leader = place.cluster.controller_with("one", &texts(&one))?;
    leader.line("holding the lease").await?;
    let (mut other, _) = place.cluster.replica_with_xds_and("two", &texts(&two))?;
    other.line("challenges are answered at").await?;

    // A host of the Gateway's own namespace, whose route is on port 80 too, and one of another
    // namespace, whose route is not.
    tenant_gateway(
        &place,
        json!({"gatewright.io/acme-directory": place.pebble.directory()}),
    )
    .await?;
    place.route("web", HOST).await?;
    member(server, CHILD, SPACE, "child.cert.example.org").await?;
    server
        .put(route(CHILD, "app", SPACE, &[CHILD_HOST]))
        .await?;
    let [web, mut slice, pod] = service(CHILD, "web", 80);
    for object in [web, pod] {
        server.put(object).await?;
    }
    let backend = server
        .api("discovery.k8s.io/v1", "EndpointSlice", SPACE)
        .await?
        .get("web-1")
        .await?;
    slice["ports"] = backend.data["ports"].clone();
    server.put(slice).await?;
    let root = place.pebble.issuing_root(0).await?;
    place.until_served(HOST, &root).await?;
    place.until_served(CHILD_HOST, &root).await?;
    until_ready(&place.cluster, SPACE, "Reconciled").await?;
    assert_eq!(place.pebble.issued(), 2, "both certificates are issued");
    assert_eq!(place.installs()?.len(), 2, "both are installed");

    // Two routes of ours, and neither displaced anything: the redirect is served, and so are the
    // routes on port 80.
    let all = solvers(&place).await?;
    assert!(
        all.len() == 2
            && all
                .iter()
                .all(|route| is_true(&route["status"]["parents"][0], "Accepted")),
        "{all:#?}"
    );
    assert_eq!(
        all[0]["metadata"]["name"],
        json!(SOLVER),
        "the first route is the solver's"
    );
    assert_eq!(
        all[1]["spec"]["hostnames"],
        json!([HOST]),
        "the other one is the host's"
    );
    assert_eq!(plain(place.address, 80, CHILD_HOST, "/").await?.0, 301);
    assert_eq!(plain(place.address, 80, HOST, "/").await?.0, 200);
    // Every replica answers challenges, for wanted hosts only, and so does the data plane.
    let (status, text) = plain(here, ports[0], CHILD_HOST, QUESTION).await?;
    assert!(
        status == 200 && text.starts_with("evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ."),
        "{status} {text}"
    );
    for (address, port) in [(here, ports[1]), (place.address, 80), (place.address, 80)] {
        assert_eq!(
            plain(address, port, CHILD_HOST, QUESTION).await?,
            (200, text.clone())
        );
        assert_eq!(
            plain(address, port, "nobody.cert.example.org", QUESTION)
                .await?
                .0,
            404
        );
    }
    // No route lost a hostname to a route of ours, and nothing is written any more.
    let web = server
        .api(GATEWAY, "HTTPRoute", SPACE)
        .await?
        .get("web")
        .await?;
    let parents = web.data["status"]["parents"]
        .as_array()
        .context("it has parents")?;
    assert!(
        parents.iter().all(|parent| is_true(parent, "Accepted")),
        "{parents:#?}"
    );
    // The last listener's part of `Ready` follows a moment after the listener is served.
    place
        .cluster
        .until(TENANT, "TenantGateway", SPACE, "cozystack", |object| {
            object["status"]["conditions"]
                .to_string()
                .contains("\"message\":\"all ")
        })
        .await?;
    let before = place.cluster.writes()?.len();
    assert_eq!(quiet(&place.cluster, before).await?, []);

    // The next host needs no further route of ours, and another leader continues.
    drop(leader);
    let slices = server
        .api("discovery.k8s.io/v1", "EndpointSlice", NAMESPACE)
        .await?;
    slices
        .delete(
            &format!("gatewright-challenges-{}", ports[0]),
            &Default::default(),
        )
        .await?;
    other.line("this replica issues certificates now").await?;
    server
        .put(route(
            CHILD,
            "more",
            SPACE,
            &["more.child.cert.example.org"],
        ))
        .await?;
    place
        .until_served("more.child.cert.example.org", &root)
        .await?;
    assert_eq!(solvers(&place).await?.len(), 2);

    // When no certificate is wanted any more they are deleted, and a foreign object with such a
    // name stays.
    let mut foreign = route(NAMESPACE, "tenant-cert.other.acme-challenges", SPACE, &[]);
    foreign["metadata"]["ownerReferences"] = all[1]["metadata"]["ownerReferences"].clone();
    server.put(foreign).await?;
    tenant_gateway(&place, json!({"gatewright.io/issuer": "internal-ca"})).await?;
    let names = || async {
        let all = solvers(&place).await?;
        anyhow::Ok(
            all.iter()
                .map(|route| {
                    route["metadata"]["name"]
                        .as_str()
                        .unwrap_or_default()
                        .to_owned()
                })
                .collect::<Vec<_>>(),
        )
    };
    until("our routes are gone", async || {
        Ok(names().await? == ["tenant-cert.other.acme-challenges"])
    })
    .await?;
    assert_eq!(
        place.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}
