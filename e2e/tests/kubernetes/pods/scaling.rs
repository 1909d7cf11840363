//! Envoys are as many as their use of the processor asks for.

use e2e::metrics_api::MetricsApi;

use super::traffic::Traffic;
use super::*;

const VALUES: &str = "namespace.create=true,envoy.kind=Deployment,envoy.autoscaling.enabled=true,\
    envoy.autoscaling.minReplicas=1,envoy.autoscaling.maxReplicas=3,\
    envoy.autoscaling.behavior.scaleDown.stabilizationWindowSeconds=0,\
    envoy.drain.serveSeconds=5,envoy.drain.drainSeconds=5";

#[tokio::test]
#[ignore = "needs Kubernetes, Helm and Envoy, and root for the network of pods: e2e/tools install"]
async fn envoys_come_and_go_with_their_load_and_no_request_fails() -> Result<()> {
    let Installed {
        server,
        name: first,
        ..
    } = &installed(&VALUES.replace(' ', "")).await?;
    let metrics = MetricsApi::start(server).await?;
    let traffic = Traffic::start(server).await?;

    // More than 80 percent of what an Envoy requests, which is 100 thousandths of a processor.
    metrics.set(400);
    let busy = until_ready(server, "envoy", 3).await?;
    assert!(busy.iter().any(|(name, _)| name == first), "{busy:?}");
    for (_, address) in &busy {
        let envoy = SocketAddr::new(address.parse()?, 80);
        until_served(&Probe::http(envoy, HOST), 200).await?;
    }
    metrics.set(1);
    until_ready(server, "envoy", 1).await?;
    until_pods(server, 1).await?;
    traffic.end_without_failure().await;
    Ok(())
}

/// Waits until pods of Envoys that were deleted have ended.
async fn until_pods(server: &ApiServer, count: usize) -> Result<()> {
    let pods = server.api("v1", "Pod", NAMESPACE).await?;
    let listed = ListParams::default().labels("app.kubernetes.io/component=envoy");
    let deadline = Instant::now() + LIMIT;
    while pods.list(&listed).await?.items.len() != count {
        ensure!(Instant::now() < deadline, "pods of Envoys do not end");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
