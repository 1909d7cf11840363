//! The first owner of a hostname on the addresses of the shared fleet keeps it, whatever another
//! namespace writes later: an older Gateway with a new listener, a name below a wildcard, a Gateway
//! without hostnames, another protocol for the port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use e2e::cluster::{BACKEND, Cluster, NAMESPACE, is_true, service, tls_secret};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Probe;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::{GATEWAY, change, told};

const EXACT: &str = "app.alice.example";
const BELOW: &str = "new.wide.alice.example";

fn listener(name: &str, protocol: &str, port: u16, host: &str) -> Value {
    let mut listener = json!({"name": name, "protocol": protocol, "port": port});
    if !host.is_empty() {
        listener["hostname"] = json!(host);
    }
    if protocol == "HTTPS" {
        listener["tls"] = json!({"certificateRefs": [{"name": "cert"}]});
    }
    listener
}

/// Makes a namespace with a backend, a certificate for all names, a Gateway with these listeners
/// and a route for all of them.
async fn tenant(cluster: &Cluster, name: &str, listeners: Value) -> Result<Echo> {
    let server = &cluster.server;
    let echo = Echo::start_on(name, BACKEND).await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .await?;
    server
        .put(tls_secret(
            name,
            "cert",
            &[EXACT, "*.wide.alice.example", "mallory.example"],
        )?)
        .await?;
    for object in service(name, "web", echo.address().port()) {
        server.put(object).await?;
    }
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": name},
            "spec": {"gatewayClassName": "gatewright", "listeners": listeners}}))
        .await?;
    server
        .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "web", "namespace": name},
            "spec": {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}))
        .await?;
    Ok(echo)
}

/// Returns the backend that answers with 200.
async fn answer(probe: Probe) -> Result<String> {
    let answer = probe.send().await?;
    ensure!(answer.status == 200, "{}", answer.status);
    let told: Value = serde_json::from_slice(&answer.body)?;
    Ok(told["name"]
        .as_str()
        .context("an echo names itself")?
        .to_owned())
}

/// Returns probes of all alice's names on all ports.
fn probes(ports: [u16; 3]) -> Vec<Probe> {
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let paths = ["/", "/.well-known/acme-challenge/token"];
    let of_port = |port: u16| {
        [EXACT, BELOW].into_iter().flat_map(move |host| {
            paths.into_iter().flat_map(move |path| {
                [
                    Probe::http(at(port), host).path(path),
                    Probe::https(at(port), host).path(path),
                ]
            })
        })
    };
    ports.into_iter().flat_map(of_port).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_listener_for_all_names_answers_for_none_that_the_platform_granted_to_another_namespace()
-> Result<()> {
    let cluster = Cluster::start().await?;
    cluster
        .server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let http = free_port()?;
    let https = free_port()?;
    let all = json!([
        listener("http", "HTTP", http, ""),
        listener("https", "HTTPS", https, "*.example")
    ]);
    let _mallory = tenant(&cluster, "mallory", all).await?;
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let probes = |host: &str| [Probe::http(at(http), host), Probe::https(at(https), host)];
    // Free names, before and after the domain is granted.
    let answered = async |host: &str| {
        for probe in probes(host) {
            while answer(probe.clone()).await.ok().as_deref() != Some("mallory") {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    };
    let limit = std::time::Duration::from_secs(120);
    tokio::time::timeout(limit, answered("x.team.example"))
        .await
        .context("a name that nobody has")?;
    let label = json!({"namespace.cozystack.io/host": "team.example"});
    cluster
        .server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "alice", "labels": label}}))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "mallory", "edge", |o| {
            o["status"]
                .to_string()
                .contains("serves no names that the platform granted")
        })
        .await?;
    let kept = async |host: &str| {
        for probe in probes(host) {
            while answer(probe.clone()).await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    };
    for host in ["team.example", "x.team.example", "a.b.team.example"] {
        tokio::time::timeout(limit, kept(host))
            .await
            .with_context(|| format!("{host} is alice's"))?;
    }
    let plain = Probe::http(at(http), "x.team.example").send().await?;
    ensure!(plain.status == 404, "answered {}", plain.status);
    tokio::time::timeout(limit, answered("free.example"))
        .await
        .context("another name")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn no_namespace_takes_a_name_or_a_port_that_another_had_first() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster
        .server
        .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut controller = cluster.controller("one")?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let http = free_port()?;
    let https = free_port()?;
    let other = free_port()?;
    // Mallory's Gateway is older; her names are added later.
    let mallory = tenant(
        &cluster,
        "mallory",
        json!([listener("mine", "HTTPS", https, "mallory.example")]),
    )
    .await?;
    cluster
        .until(GATEWAY, "Gateway", "mallory", "edge", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    let names = json!([
        listener("http", "HTTP", http, EXACT),
        listener("https", "HTTPS", https, EXACT),
        listener("wide-http", "HTTP", http, "*.wide.alice.example"),
        listener("wide-https", "HTTPS", https, "*.wide.alice.example"),
    ]);
    let _alice = tenant(&cluster, "alice", names).await?;
    let all_programmed = |o: &Value| {
        let listeners = o["status"]["listeners"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        listeners.len() == 4
            && listeners
                .iter()
                .all(|listener| is_true(listener, "Programmed"))
    };
    let before = cluster
        .until(GATEWAY, "Gateway", "alice", "edge", all_programmed)
        .await?;

    let over = Arc::new(AtomicBool::new(false));
    let asking = {
        let over = over.clone();
        tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                for probe in probes([http, https, other]) {
                    if let Ok(backend) = answer(probe).await {
                        ensure!(
                            backend == "alice",
                            "{backend} answered for a name of alice's"
                        );
                    }
                }
            }
            Ok(())
        })
    };
    let lost = "HostnameConflict";
    for (what, listeners, reason) in [
        (
            "exact",
            json!([listener("one", "HTTPS", https, EXACT)]),
            lost,
        ),
        ("plain", json!([listener("one", "HTTP", http, EXACT)]), lost),
        (
            "another port",
            json!([listener("one", "HTTP", other, EXACT)]),
            lost,
        ),
        (
            "below",
            json!([listener("one", "HTTPS", https, BELOW)]),
            lost,
        ),
        (
            "wide",
            json!([listener("one", "HTTPS", https, "*.wide.alice.example")]),
            lost,
        ),
        (
            "protocol",
            json!([listener("one", "HTTP", https, "flip.example")]),
            "ProtocolConflict",
        ),
        (
            "any",
            json!([listener("one", "HTTP", http, "")]),
            "Accepted",
        ),
        (
            "any elsewhere",
            json!([listener("one", "HTTP", other, "")]),
            "Accepted",
        ),
        (
            "around",
            json!([listener("one", "HTTPS", https, "*.alice.example")]),
            "Accepted",
        ),
    ] {
        change(
            &cluster,
            "mallory",
            json!({"spec": {"listeners": listeners}}),
        )
        .await?;
        cluster
            .until(GATEWAY, "Gateway", "mallory", "edge", |o| {
                let listener = &o["status"]["listeners"][0];
                listener["conditions"][0]["observedGeneration"] == o["metadata"]["generation"]
                    && told(listener, "Accepted").0 == reason
                    && (reason != "Accepted" || is_true(listener, "Programmed"))
            })
            .await
            .context(what)?;
        for probe in [
            Probe::http(SocketAddr::from(([127, 0, 0, 1], http)), EXACT),
            Probe::https(SocketAddr::from(([127, 0, 0, 1], https)), BELOW),
        ] {
            assert_eq!(answer(probe).await.context(what)?, "alice");
        }
    }
    over.store(true, Ordering::SeqCst);
    asking.await??;
    assert_eq!(
        mallory.requests(),
        0,
        "nobody came to mallory for a name of alice's"
    );
    let after = cluster
        .until(GATEWAY, "Gateway", "alice", "edge", all_programmed)
        .await?;
    assert_eq!(
        after["metadata"]["generation"],
        before["metadata"]["generation"]
    );
    assert!(
        !after["status"].to_string().contains("Conflicted"),
        "{:#}",
        after["status"]
    );

    // The record has it, also for the next holder of the Lease.
    let maps: Api<ConfigMap> = Api::namespaced(cluster.server.client(), NAMESPACE);
    let all = maps
        .list(&ListParams::default().labels("gatewright.io/keeps=hostname-claims"))
        .await?
        .items;
    let value = all
        .iter()
        .flat_map(|map| map.data.iter().flatten())
        .find(|(key, _)| *key == EXACT);
    assert!(
        value.is_some_and(|(_, value)| value.contains("\"alice\"")),
        "{value:?}"
    );
    drop(controller);
    change(
        &cluster,
        "mallory",
        json!({"spec": {"listeners": [listener("one", "HTTPS", https, EXACT)]}}),
    )
    .await?;
    let mut controller = cluster.controller("two")?;
    controller.line("xDS at").await?;
    cluster
        .until(GATEWAY, "Gateway", "mallory", "edge", |o| {
            told(&o["status"]["listeners"][0], "Accepted").0 == lost
        })
        .await?;
    let https = SocketAddr::from(([127, 0, 0, 1], https));
    assert_eq!(answer(Probe::https(https, EXACT)).await?, "alice");
    assert_eq!(mallory.requests(), 0);
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(())
}
