//! Certificates and CA bundles as large as a Secret or ConfigMap can be, and many chains as large
//! as they are served: the memory of the controller.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cluster::{Cluster, condition, service, tls_secret};
use e2e::envoy::Envoy;
use e2e::gatewright::Gatewright;
use e2e::usage::memory;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::edge::{edge, until_answers};
use crate::hardening::{LastGoodVolume, bring_key};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const MIB: u64 = 1 << 20;
/// The number of ConfigMaps of an object: the most that a BackendTLSPolicy may refer to.
const REFERENCES: usize = 8;
const POLICIES: usize = 12;
/// Words of the condition of a policy whose ConfigMap is too large.
const OVER: &str = "KiB of certificates, limits.object.caKib is";
/// The listeners of a ListenerSet.
const LISTENERS: usize = 64;
const HOSTS: usize = 512;
/// The size of a chain that is nearly as large as one may be, in bytes.
const CHAIN: Range<usize> = 28 << 10..32 << 10;

/// A self-signed certificate for a host, with so many further names of 80 characters, and its key.
fn certificate(host: &str, more: usize) -> Result<(String, String)> {
    let names = (0..more).map(|number| format!("{number:040}.{:039}", 0));
    let key = KeyPair::generate()?;
    let made = CertificateParams::new(
        std::iter::once(host.to_owned())
            .chain(names)
            .collect::<Vec<_>>(),
    )?;
    Ok((made.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Puts policies that each refer to ConfigMaps with this bundle.
async fn put_policies(cluster: &Cluster, bundle: &str) -> Result<()> {
    for policy in 0..POLICIES {
        let name = |number: usize| format!("ca-{policy}-{number}");
        for number in 0..REFERENCES {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name(number), "namespace": "default"}, "data": {"ca.crt": bundle}});
            cluster.server.put(map).await?;
        }
        let references: Vec<Value> = (0..REFERENCES)
            .map(|number| json!({"group": "", "kind": "ConfigMap", "name": name(number)}))
            .collect();
        let target = json!({"group": "", "kind": "Service", "name": format!("s{policy}")});
        cluster
            .server
            .put(json!({"apiVersion": GATEWAY, "kind": "BackendTLSPolicy",
                "metadata": {"name": format!("p{policy}"), "namespace": "default"},
                "spec": {"targetRefs": [target],
                    "validation": {"hostname": "web.internal", "caCertificateRefs": references}}}))
            .await?;
    }
    Ok(())
}

/// Waits until every policy says this of its references.
async fn policies_say(cluster: &Cluster, status: &str, text: &str) -> Result<()> {
    for policy in 0..POLICIES {
        cluster
            .until(
                GATEWAY,
                "BackendTLSPolicy",
                "default",
                &format!("p{policy}"),
                |object| {
                    let condition = condition(&object["status"]["ancestors"][0], "ResolvedRefs")
                        .cloned()
                        .unwrap_or_default();
                    condition["status"] == status
                        && condition["message"]
                            .as_str()
                            .is_some_and(|told| told.contains(text))
                },
            )
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn config_maps_over_the_limit_are_not_kept() -> Result<()> {
    let cluster = Cluster::start().await?;
    let (_echo, _) = edge(&cluster).await?;
    for number in 0..POLICIES {
        let [service, ..] = service("default", &format!("s{number}"), 80);
        cluster.server.put(service).await?;
        cluster
            .server
            .put(json!({"apiVersion": GATEWAY, "kind": "HTTPRoute",
                "metadata": {"name": format!("r{number}"), "namespace": "default"},
                "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [format!("h{number}.example.org")],
                    "rules": [{"backendRefs": [{"name": format!("s{number}"), "port": 80}]}]}}))
            .await?;
    }
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    let one = certificate("ca.example.org", 0)?.0;
    // A tenth of the limits of count and size: used.
    put_policies(&cluster, &one).await?;
    policies_say(&cluster, "True", "").await?;
    cluster.quiet().await?;
    let before = memory(controller.pid(), "VmRSS")?;

    let mut large = String::new();
    while large.len() < 1_020_000 {
        large += &certificate("ca.example.org", 100)?.0;
    }
    put_policies(&cluster, &large).await?;
    policies_say(&cluster, "False", OVER).await?;
    cluster.quiet().await?;
    let grown = memory(controller.pid(), "VmRSS")?.saturating_sub(before);
    // Sixteen are read at once; the allocator keeps what that takes.
    assert!(
        grown < 32 * MIB,
        "{} MiB for {} ConfigMaps of 1 MiB",
        grown / MIB,
        POLICIES * REFERENCES
    );

    // The same at a start, when everything is read before anything is translated.
    drop(controller);
    let mut controller = cluster.controller("two")?;
    controller.line("holding the lease").await?;
    cluster.quiet().await?;
    let started = memory(controller.pid(), "VmRSS")?.saturating_sub(before);
    assert!(
        started < 60 * MIB,
        "{} MiB more after a start",
        started / MIB
    );
    policies_say(&cluster, "False", OVER).await?;
    Ok(())
}

fn host(number: usize) -> String {
    format!("h{number}.large.example.net")
}

/// Puts hosts with a Secret of its own each, whose chain is nearly as large as one may be. Returns
/// the bytes of all chains.
async fn put_large_hosts(cluster: &Cluster, port: u16) -> Result<u64> {
    let mut all = 0;
    let allowed = json!({"spec": {"allowedListeners": {"namespaces": {"from": "Same"}}}});
    let gateways = cluster.server.api(GATEWAY, "Gateway", "default").await?;
    gateways
        .patch(
            "edge",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(allowed),
        )
        .await?;
    for first in (0..HOSTS).step_by(LISTENERS) {
        let mut listeners = Vec::new();
        for number in first..HOSTS.min(first + LISTENERS) {
            let (host, name) = (host(number), format!("large-{number}"));
            let (chain, key) = certificate(&host, 270)?;
            ensure!(
                CHAIN.contains(&chain.len()),
                "the chain has {} bytes",
                chain.len()
            );
            all += chain.len() as u64;
            let mut secret = tls_secret("default", &name, &[])?;
            secret["stringData"] = json!({"tls.crt": chain, "tls.key": key});
            cluster.server.put(secret).await?;
            listeners.push(
                json!({"name": name, "protocol": "HTTPS", "port": port, "hostname": host,
                "tls": {"certificateRefs": [{"name": name}]}}),
            );
        }
        cluster
            .server
            .put(json!({"apiVersion": GATEWAY, "kind": "ListenerSet",
                "metadata": {"name": format!("set-{first}"), "namespace": "default"},
                "spec": {"parentRef": {"name": "edge"}, "listeners": listeners}}))
            .await?;
    }
    Ok(all)
}

/// Waits until the file of the last good state has the chains of all hosts. Returns its size.
async fn until_all_are_kept(file: &Path, all: u64) -> Result<u64> {
    let deadline = Instant::now() + Duration::from_secs(240);
    loop {
        // It does not exist at first, and is replaced as a whole.
        let size = std::fs::metadata(file).map_or(0, |metadata| metadata.len());
        if size >= all {
            return Ok(size);
        }
        ensure!(
            Instant::now() < deadline,
            "the file has {size} bytes, and the chains {all}"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

/// Checks the largest memory that the controller, a debug build, had.
fn has_stayed_small(controller: &Gatewright, when: &str) -> Result<()> {
    let most = memory(controller.pid(), "VmHWM")?;
    assert!(most < 192 * MIB, "{} MiB {when}", most / MIB);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_controller_starts_in_bounded_memory_beside_many_large_chains() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let (_echo, address) = edge(&cluster).await?;
    let volume = LastGoodVolume::new()?;
    // A busy machine must not lose the Lease over hundreds of records of owners.
    let file = volume.file();
    let kept = volume.arguments(&["--set", "lease.seconds=30"]);
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    let mut controller = cluster.controller_with("one", &kept)?;
    controller.line("holding the lease").await?;
    bring_key(&cluster, &volume.key()).await?;
    let all = put_large_hosts(&cluster, address.port()).await?;
    let (mut envoy, tls) = cluster.envoy("envoy-a").await?;
    envoy.ready().await?;
    for number in 0..HOSTS {
        until_answers(address, &host(number), 404).await?;
    }
    let size = until_all_are_kept(&file, all).await?;
    has_stayed_small(&controller, "at the first start")?;
    assert!(
        size < 28 * MIB,
        "each chain is in the file once: {} MiB",
        size / MIB
    );

    // A start with the API server, which does not need the file.
    drop(controller);
    let mut controller = cluster.controller_with("one", &kept)?;
    controller.line("holding the lease").await?;
    let deadline = Instant::now() + Duration::from_secs(120);
    while controller.probe("/readyz").await?.0 != 200 {
        ensure!(
            Instant::now() < deadline,
            "it is not ready:\n{}",
            controller.output()
        );
        sleep(Duration::from_millis(100)).await;
    }
    until_all_are_kept(&file, all).await?;
    has_stayed_small(&controller, "at a start with the API server")?;

    // A start without it.
    drop(envoy);
    drop(controller);
    cluster.server.kill();
    let mut controller = cluster.controller_with("one", &kept)?;
    controller.line("of the last good state are served").await?;
    let mut envoy =
        Envoy::start(&std::fs::read_to_string(tls.path().join("bootstrap.json"))?).await?;
    envoy.ready().await?;
    for number in 0..HOSTS {
        until_answers(address, &host(number), 404).await?;
    }
    has_stayed_small(&controller, "at a start without the API server")?;
    let (_, metrics) = controller.probe("/metrics").await?;
    assert!(
        metrics.contains("gatewright_last_good_too_large 0"),
        "{metrics}"
    );
    Ok(())
}
