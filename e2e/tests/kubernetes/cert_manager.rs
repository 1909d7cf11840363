//! cert-manager's real controllers with our own class: an Issuer and a Certificate are issued by
//! Pebble, and the HTTP-01 challenge arrives through our Envoy, despite the redirect to HTTPS.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use e2e::apiserver::ApiServer;
use e2e::certmanager::{CertManager, SOLVER, solver};
use e2e::cluster::{BACKEND, Cluster, condition, is_true, service};
use e2e::echo::Echo;
use e2e::kubelet::Kubelet;
use e2e::pebble::{Options, Pebble};
use e2e::probe::{Probe, roots_of};
use futures::StreamExt;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use e2e::tenants::{GATEWAY, TENANT, cluster_with_pods as cluster};

const HOST: &str = "shop.example.org";
/// The address of the Gateway for all clients. The ports are those that cert-manager and browsers
/// use.
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 80, 0, 1));

fn route(name: &str, spec: Value) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

/// Makes a Gateway with HTTPS, a redirect to it, a backend, and the objects that cert-manager
/// processes.
async fn site(cluster: &Cluster, pebble: &Pebble, backend: SocketAddr) -> Result<()> {
    let server = &cluster.server;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
        .await?;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    for object in service("shop", "web", backend.port()) {
        server.put(object).await?;
    }
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "shop"},
            "spec": {"gatewayClassName": "gatewright", "listeners": [
                {"name": "http", "protocol": "HTTP", "port": 80},
                {"name": "https", "protocol": "HTTPS", "port": 443, "hostname": HOST,
                    "tls": {"certificateRefs": [{"name": "shop-tls"}]}}]}}))
        .await?;
    let to_https =
        json!([{"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]}]);
    server
        .put(route(
            "redirect",
            json!({"parentRefs": [{"name": "edge", "sectionName": "http"}], "rules": to_https}),
        ))
        .await?;
    server
        .put(route(
            "web",
            json!({"parentRefs": [{"name": "edge", "sectionName": "https"}], "hostnames": [HOST],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}),
        ))
        .await?;
    let ca = pebble.ca_pem();
    server
        .put(json!({"apiVersion": "cert-manager.io/v1", "kind": "Issuer",
            "metadata": {"name": "pebble", "namespace": "shop"},
            "spec": {"acme": {"server": pebble.directory(), "caBundle": STANDARD.encode(ca),
                "privateKeySecretRef": {"name": "pebble-account"},
                "solvers": [{"http01": {"gatewayHTTPRoute": {
                    "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge",
                        "sectionName": "http"}]}}}]}}}))
        .await?;
    server
        .put(
            json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": "shop", "namespace": "shop"},
            "spec": {"secretName": "shop-tls", "dnsNames": [HOST],
                "issuerRef": {"name": "pebble", "kind": "Issuer", "group": "cert-manager.io"}}}),
        )
        .await?;
    Ok(())
}

/// Returns the same route under another name.
fn twin(route: &DynamicObject) -> Result<Value> {
    let mut twin = self::route("cm-acme-http-solver-twin", route.data["spec"].clone());
    twin["metadata"]["labels"] = serde_json::to_value(&route.metadata.labels)?;
    twin["metadata"]["ownerReferences"] = serde_json::to_value(&route.metadata.owner_references)?;
    Ok(twin)
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy, Pebble and cert-manager: e2e/tools install"]
async fn a_certificate_is_issued_through_our_envoy() -> Result<()> {
    let pebble = Pebble::start(&Options {
        http_port: Some(80),
        hosts: Some(ADDRESS),
        ..Options::default()
    })
    .await?;
    let cluster = cluster().await?.reached_at(ADDRESS);
    let _kubelet = Kubelet::start(&cluster.server, &[solver()?]).await?;
    let echo = Echo::start_on("shop", BACKEND).await?;
    let _cert_manager = CertManager::start(&cluster.server, pebble.nameserver()).await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    site(&cluster, &pebble, echo.address()).await?;

    let routes = cluster.server.api(GATEWAY, "HTTPRoute", "shop").await?;
    let certificates = cluster
        .server
        .api("cert-manager.io/v1", "Certificate", "shop")
        .await?;
    let gateways = cluster.server.api(GATEWAY, "Gateway", "shop").await?;
    // Every status of a solver's route, without repetitions.
    let mut told: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let deadline = Instant::now() + Duration::from_secs(240);
    loop {
        for route in routes.list(&ListParams::default().labels(SOLVER)).await? {
            let name = route.metadata.name.clone().context("a route has a name")?;
            if told.is_empty() {
                // cert-manager sometimes makes two for one challenge; here there are always two.
                cluster.server.put(twin(&route)?).await?;
            }
            let status = condition(&route.data["status"]["parents"][0], "Accepted")
                .cloned()
                .unwrap_or_default();
            let statuses = told.entry(name).or_default();
            if !status.is_null() && statuses.last() != Some(&status) {
                statuses.push(status);
            }
        }
        let gateway = serde_json::to_value(gateways.get("edge").await?)?;
        for listener in gateway["status"]["listeners"]
            .as_array()
            .into_iter()
            .flatten()
        {
            assert!(!is_true(listener, "Conflicted"), "{listener:#}");
        }
        // During the challenge, other paths are redirected as before.
        if is_true(&gateway["status"]["listeners"][0], "Programmed") && !told.is_empty() {
            assert_eq!(
                Probe::http(SocketAddr::new(ADDRESS, 80), HOST)
                    .send()
                    .await?
                    .status,
                302
            );
        }
        let certificate = serde_json::to_value(certificates.get("shop").await?)?;
        if is_true(&certificate["status"], "Ready") {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{certificate:#}\n{gateway:#}\n{told:#?}"
        );
        sleep(Duration::from_millis(50)).await;
    }
    // Each route of a challenge was accepted once, and had no other status: the second one, where
    // cert-manager makes two for one challenge, as well as the first.
    assert!(!told.is_empty(), "the challenge came in by a route");
    for (name, statuses) in &told {
        let said: Vec<&Value> = statuses.iter().map(|status| &status["status"]).collect();
        assert!(
            said.len() <= 1 && said.iter().all(|status| **status == "True"),
            "{name}: {statuses:#?}"
        );
    }
    cluster
        .until(GATEWAY, "Gateway", "shop", "edge", |o| {
            is_true(&o["status"]["listeners"][1], "Programmed")
        })
        .await?;
    let roots = roots_of(&pebble.issuing_root(0).await?)?;
    let answer = Probe::https(SocketAddr::new(ADDRESS, 443), HOST)
        .roots(roots)
        .send()
        .await?;
    assert_eq!(answer.status, 200);
    // Other paths are still redirected.
    assert_eq!(
        Probe::http(SocketAddr::new(ADDRESS, 80), HOST)
            .send()
            .await?
            .status,
        302
    );

    // The challenge is over, and its routes are deleted, as Kubernetes' garbage collector would do;
    // then nothing is written any more.
    for route in routes.list(&ListParams::default().labels(SOLVER)).await? {
        match routes
            .delete(
                &route.metadata.name.context("a route has a name")?,
                &Default::default(),
            )
            .await
        {
            // cert-manager deleted it already.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
    }
    cluster.quiet().await?;
    let solver = |object: &str| object.contains("cm-acme-http-solver");
    let writes = cluster
        .writes()?
        .into_iter()
        .filter(|w| w.resource == "httproutes/status" && solver(&w.object))
        .count();
    assert!(
        writes <= 4 * told.len(),
        "{writes} statuses for {} routes",
        told.len()
    );
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}

/// The messages of a condition without repetitions: by object and parent, in order.
type Said = BTreeMap<String, Vec<(String, String)>>;

/// Watches the routes of a namespace and its TenantGateway, and adds a twin of the first route of a
/// challenge.
async fn watch(server: &ApiServer, space: &str) -> Result<(JoinHandle<()>, Arc<Mutex<Said>>)> {
    let routes = server.api(GATEWAY, "HTTPRoute", space).await?;
    let tenants = server.api(TENANT, "TenantGateway", space).await?;
    let said = Arc::new(Mutex::new(Said::new()));
    let of_routes = watcher(routes.clone(), watcher::Config::default());
    let of_tenants = watcher(tenants, watcher::Config::default());
    let noted = said.clone();
    let watching = tokio::spawn(async move {
        let mut all = std::pin::pin!(futures::stream::select(
            of_routes.touched_objects(),
            of_tenants.touched_objects()
        ));
        let mut doubled = false;
        while let Some(told) = all.next().await {
            let Ok(object) = told else { continue };
            let name = object.metadata.name.clone().unwrap_or_default();
            if name.starts_with("cm-acme-http-solver") && !std::mem::replace(&mut doubled, true) {
                let mut twin = twin(&object).expect("a route");
                twin["metadata"]["namespace"] = json!(object.metadata.namespace);
                let twin: DynamicObject = serde_json::from_value(twin).expect("a route");
                routes
                    .create(&PostParams::default(), &twin)
                    .await
                    .expect("it is taken");
            }
            let status = &object.data["status"];
            let parents = status["parents"].as_array().cloned().unwrap_or_default();
            let about = parents
                .iter()
                .map(|parent| ("Accepted", parent))
                .chain([("Ready", status)]);
            let mut said = noted.lock().expect("nobody panics while holding it");
            // cert-manager deletes a second route of a challenge, sometimes before it has any
            // status.
            said.entry(name.clone()).or_default();
            for (kind, of) in about {
                let Some(condition) = condition(of, kind) else {
                    continue;
                };
                let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
                let now = (text("status"), text("reason"));
                let before = said
                    .entry(format!("{name} {}", of["controllerName"]))
                    .or_default();
                if before.last() != Some(&now) {
                    before.push(now);
                }
            }
        }
    });
    Ok((watching, said))
}

/// The same with the derived objects of a TenantGateway.
#[tokio::test]
#[ignore = "needs Kubernetes, Envoy, Pebble and cert-manager: e2e/tools install"]
async fn a_tenant_gateway_comes_to_its_certificate_by_cert_manager() -> Result<()> {
    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 80, 0, 2));
    const SPACE: &str = "tenant-shop";
    let pebble = Pebble::start(&Options {
        http_port: Some(80),
        hosts: Some(ADDRESS),
        ..Options::default()
    })
    .await?;
    let cluster = cluster().await?.reached_at(ADDRESS);
    let _kubelet = Kubelet::start(&cluster.server, &[solver()?]).await?;
    let server = &cluster.server;
    let ca = pebble.ca_pem();
    let _cert_manager =
        CertManager::start_trusting(server, pebble.nameserver(), ca.as_ref()).await?;
    let echo = Echo::start_on("shop", BACKEND).await?;
    let mut controller =
        cluster.controller_with("one", &["--set", "tenancy.acmeDirectories=Any"])?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let labels = json!({"namespace.cozystack.io/gateway": SPACE, "namespace.cozystack.io/host": "example.org"});
    server.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": labels}})).await?;
    for object in service(SPACE, "web", echo.address().port()) {
        server.put(object).await?;
    }
    server
        .put(json!({"apiVersion": TENANT, "kind": "TenantGateway",
            "metadata": {"name": "cozystack", "namespace": SPACE,
                "annotations": {"gatewright.io/acme-directory": pebble.directory()}},
            "spec": {"apex": "example.org", "gatewayClassName": "gatewright"}}))
        .await?;
    let (watching, said) = watch(server, SPACE).await?;
    let mut web = route(
        "web",
        json!({"parentRefs": [{"name": "cozystack"}], "hostnames": [HOST],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}),
    );
    web["metadata"]["namespace"] = json!(SPACE);
    server.put(web).await?;

    let tenants = server.api(TENANT, "TenantGateway", SPACE).await?;
    let deadline = Instant::now() + Duration::from_secs(240);
    let ready = |tenant: &Value| is_true(&tenant["status"], "Ready");
    loop {
        let tenant = serde_json::to_value(tenants.get("cozystack").await?)?;
        if ready(&tenant) {
            break;
        }
        assert!(Instant::now() < deadline, "{tenant:#}");
        sleep(Duration::from_millis(50)).await;
    }
    let roots = roots_of(&pebble.issuing_root(0).await?)?;
    let answer = Probe::https(SocketAddr::new(ADDRESS, 443), HOST)
        .roots(roots)
        .send()
        .await?;
    assert_eq!(answer.status, 200);
    assert_eq!(
        Probe::http(SocketAddr::new(ADDRESS, 80), HOST)
            .send()
            .await?
            .status,
        301
    );
    // Routes of challenges claim no hostname, not even two of one challenge: the host belongs to
    // its route, and no status said otherwise at any time. Accepted routes stayed accepted, and
    // `Ready` stayed True.
    cluster.quiet().await?;
    watching.abort();
    let said = said.lock().expect("nobody panics while holding it").clone();
    let names = said
        .keys()
        .filter(|name| name.starts_with("cm-acme-http-solver"));
    let solvers: BTreeSet<&str> = names.filter_map(|name| name.split(' ').next()).collect();
    assert!(
        solvers
            .iter()
            .any(|name| name.starts_with("cm-acme-http-solver-twin"))
            && solvers.len() > 1,
        "{said:#?}"
    );
    for (name, statuses) in &said {
        assert!(
            statuses
                .iter()
                .all(|(_, reason)| reason != "HostnameConflict"),
            "{name}: {statuses:?}"
        );
        let turned = statuses
            .iter()
            .skip_while(|(status, _)| status != "True")
            .any(|(status, _)| status != "True");
        assert!(!turned, "{name}: {statuses:?}");
        // The other routes exist before their Gateway does.
        let known = !name.starts_with("cm-acme-http-solver")
            || statuses.iter().all(|(status, _)| status == "True");
        assert!(known, "{name}: {statuses:?}");
    }
    let writes = |resource: &str, object: &str| -> Result<usize> {
        let all = cluster.writes()?.into_iter();
        Ok(all
            .filter(|w| w.resource == resource && w.object.contains(object) && w.code < 400)
            .count())
    };
    let routes = writes("httproutes/status", "cm-acme-http-solver")?;
    let tenants = writes("tenantgateways/status", SPACE)?;
    assert!(
        routes <= 2 * solvers.len() && tenants <= 16,
        "{routes} statuses of {solvers:?}, {tenants} of the TenantGateway"
    );
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
