//! Isolated Envoys that do not accept updates: metrics and `/readyz` name their Gateway, and the
//! replica stays ready for others.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{BACKEND, Cluster};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use kube::api::DeleteParams;
use tokio::time::{Duration, Instant, sleep};

use super::last_good::{host, pod_of, prepare, route, tenant};
use super::{GATEWAY, LIMIT};
use crate::edge::until_answers;

/// Returns the time for which Envoys of a view have lacked an update, by the metric.
async fn age(controller: &mut Gatewright, view: &str) -> Result<u64> {
    let (_, metrics) = controller.probe("/metrics").await?;
    let name = format!("gatewright_xds_view_age_seconds{{view=\"{view}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    Ok(line
        .with_context(|| format!("{name} is not among\n{metrics}"))?
        .parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes and Envoy: e2e/tools install"]
async fn a_view_whose_envoys_hang_is_named_and_the_replica_is_ready_for_the_others() -> Result<()> {
    const VIEW: &str = "isolated/late-bank/edge";
    let cluster = Cluster::start().await?;
    prepare(&cluster).await?;
    let identity = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let identity_text = identity.to_string();
    let arguments = [
        [
            "--set",
            "envoys.isolatedPodTemplate=gatewright-envoy-isolated",
        ],
        ["--set", "envoys.credentials=Both"],
        ["--envoy-identity", &*identity_text],
    ];
    let mut controller = cluster.controller_with("one", arguments.as_flattened())?;
    controller.line("xDS at").await?;
    let echo = Echo::start_on("web", BACKEND).await?;
    let shop = tenant(&cluster, "late-shop", "gatewright", echo.address().port()).await?;
    let bank = tenant(&cluster, "late-bank", "isolated", echo.address().port()).await?;
    let keys = pod_of(&cluster, identity, "late-bank").await?;
    let (_shared, _tls) = cluster.envoy("shared-a").await?;
    let (own, _tls) = cluster
        .envoy_with("bank-a", cluster.xds(), &keys.pair, &keys.bundle)
        .await?;
    for (address, namespace) in [(shop, "late-shop"), (bank, "late-bank")] {
        until_answers(address, &host(namespace), 200).await?;
    }
    assert_eq!(controller.probe("/readyz").await?, (200, "ok\n".to_owned()));

    own.freeze()?;
    for namespace in ["late-shop", "late-bank"] {
        let routes = cluster.server.api(GATEWAY, "HTTPRoute", namespace).await?;
        routes.delete("web", &DeleteParams::default()).await?;
    }
    until_answers(shop, &host("late-shop"), 404).await?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let (code, text) = controller.probe("/readyz").await?;
        assert_eq!(code, 200, "it is ready for everybody else: {text}");
        assert_eq!(
            text.lines().next(),
            Some("ok"),
            "it is ready for everybody else: {text}"
        );
        assert!(!text.contains("view shared"), "{text}");
        if text.contains(&format!(
            "view {VIEW}: an Envoy has been behind the published configuration for "
        )) {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "nobody is told of {VIEW}: {text}"
        );
        sleep(Duration::from_millis(200)).await;
    }
    assert!(age(&mut controller, VIEW).await? >= 20);
    assert_eq!(age(&mut controller, "shared").await?, 0);
    // The others stay served.
    cluster.server.put(route("late-shop")).await?;
    until_answers(shop, &host("late-shop"), 200).await?;

    own.thaw()?;
    until_answers(bank, &host("late-bank"), 404).await?;
    let deadline = Instant::now() + LIMIT;
    while age(&mut controller, VIEW).await? > 0 || controller.probe("/readyz").await?.1 != "ok\n" {
        ensure!(
            Instant::now() < deadline,
            "{:?}",
            controller.probe("/readyz").await?
        );
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
