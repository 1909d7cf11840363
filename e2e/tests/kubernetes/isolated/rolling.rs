//! Replicas of the controller are replaced while Envoys of the shared fleet and isolated ones
//! serve: clients of neither notice.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::apiserver::ApiServer;
use e2e::cluster::{ACCOUNT, NAMESPACE};
use e2e::echo::Echo;
use e2e::load::Load;
use e2e::probe::Probe;
use kube::api::Patch;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    GATEWAY, LIMIT, class, deployed, gateway, parameters, tenant, until_programmed, until_ready,
    until_served,
};

const LEASE: (&str, &str, &str) = ("coordination.k8s.io/v1", "Lease", NAMESPACE);

async fn leader(server: &ApiServer) -> Result<String> {
    let lease = server
        .until(LEASE, "gatewright-controller", LIMIT, |o| {
            holder(o).is_some()
        })
        .await?;
    holder(&lease)
        .map(str::to_owned)
        .context("somebody holds it")
}

fn holder(lease: &Value) -> Option<&str> {
    lease["spec"]["holderIdentity"]
        .as_str()
        .filter(|holder| !holder.is_empty())
}

async fn names(server: &ApiServer) -> Result<BTreeSet<String>> {
    Ok(until_ready(server, "controller", 2)
        .await?
        .into_iter()
        .map(|(name, _)| name)
        .collect())
}

/// Has the Deployment of the controller replace its pods one after the other, and waits for the
/// end.
async fn roll(server: &ApiServer, number: usize) -> Result<()> {
    let old = names(server).await?;
    let deployments = server.api("apps/v1", "Deployment", NAMESPACE).await?;
    let changed =
        json!({"spec": {"template": {"metadata": {"annotations": {"roll": number.to_string()}}}}});
    deployments
        .patch(
            "gatewright-controller",
            &Default::default(),
            &Patch::Merge(&changed),
        )
        .await?;
    let deadline = Instant::now() + LIMIT;
    let pods = server.api("v1", "Pod", NAMESPACE).await?;
    loop {
        let mut left = 0;
        for name in &old {
            left += usize::from(pods.get_opt(name).await?.is_some());
        }
        if left == 0 && names(server).await?.is_disjoint(&old) {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{left} of {old:?} are still there"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

fn route(namespace: &str, number: usize) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "more", "namespace": namespace},
        "spec": {"parentRefs": [{"name": "edge", "sectionName": "http"}], "hostnames": [format!("r{number}.{namespace}.example.org")],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Envoy, and root for the network of pods: e2e/tools install"]
async fn replicas_are_replaced_under_load_and_clients_of_no_view_notice() -> Result<()> {
    let (server, kubelet) = deployed().await?;
    server
        .put(parameters(
            NAMESPACE,
            "isolated",
            json!({"fleet": "Isolated", "isolated": {"replicas": 1}}),
        ))
        .await?;
    server.put(class("isolated")).await?;
    let echo = Echo::start_on("web", &kubelet.host().to_string()).await?;
    let mut served = Vec::new();
    for (namespace, class) in [("shop", "gatewright"), ("bank", "isolated")] {
        tenant(&server, &kubelet, namespace, &echo).await?;
        server.put(gateway(namespace, class, None)).await?;
        let address = until_programmed(&server, namespace).await?;
        let host = format!("{namespace}.example.org");
        until_served(&Probe::http((address, 80).into(), &host), 200).await?;
        until_served(&Probe::https((address, 443).into(), &host), 200).await?;
        served.push((
            namespace,
            address,
            Load::start((address, 80).into(), (address, 443).into(), &host),
        ));
    }
    for (.., load) in &served {
        load.more(5).await?;
    }
    for number in 0..2 {
        let before = leader(&server).await?;
        roll(&server, number).await?;
        server
            .until(LEASE, "gatewright-controller", LIMIT, |o| {
                holder(o).is_some_and(|now| now != before)
            })
            .await?;
        // The new replicas send a new route to the Envoys of both Gateways, and report it as
        // programmed.
        for (namespace, address, load) in &served {
            server.put(route(namespace, number)).await?;
            let host = format!("r{number}.{namespace}.example.org");
            until_served(&Probe::http((*address, 80).into(), &host), 200).await?;
            until_programmed(&server, namespace).await?;
            load.more(5).await?;
        }
    }
    for (namespace, _, load) in &served {
        load.failures().with_context(|| (*namespace).to_owned())?;
        assert!(
            load.opened().len() == 2 && load.opened().values().all(|count| *count == 1),
            "{:?}",
            load.opened()
        );
    }
    assert_eq!(
        server.denied(ACCOUNT)?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}
