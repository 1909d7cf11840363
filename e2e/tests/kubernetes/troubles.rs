//! Failures around a controller: the API server is down, kinds are installed late, rights are
//! missing, replicas are killed, another controller keeps reverting a status. The result is that
//! without failures.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::{ACCOUNT, Cluster, condition, is_true};
use e2e::gatewright::Gatewright;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::sleep;

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

fn gateway(name: &str, port: u16) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "default"},
        "spec": {"gatewayClassName": "gatewright", "listeners": [{"name": "http", "protocol": "HTTP", "port": port}]}})
}

/// Returns true if the status has a condition of the current generation.
fn told(object: &Value) -> bool {
    let generation = &object["metadata"]["generation"];
    condition(&object["status"], "Accepted")
        .is_some_and(|c| c["observedGeneration"] == *generation && c["status"] == "True")
}

/// Waits until the program reports these states of kinds.
async fn until_states<const N: usize>(
    program: &mut Gatewright,
    wanted: [(&str, &str); N],
) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    for (kind, wanted) in wanted {
        loop {
            let state = program.state(kind).await?;
            if state == wanted {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "{kind} is {state} instead of {wanted}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn kinds_that_come_late_are_waited_for_and_named() -> Result<()> {
    let server = ApiServer::start().await?;
    let cluster = Cluster::over(server).await?;
    // The Gateway API is not installed, and one right is missing.
    let roles = cluster
        .server
        .api("rbac.authorization.k8s.io/v1", "ClusterRole", "")
        .await?;
    let narrow = json!({"rules": [{"apiGroups": [""], "resources": ["namespaces", "services"], "verbs": ["list", "watch"]}]});
    let full = roles.get("gatewright-controller").await?;
    roles
        .patch(
            "gatewright-controller",
            &PatchParams::default(),
            &Patch::Merge(&narrow),
        )
        .await?;
    cluster
        .server
        .until_may(ACCOUNT, ("list", "", "secrets", ""), false)
        .await?;
    let mut controller = cluster.controller("one")?;
    controller
        .line("Gateway: not served by this API server; waiting for its definition")
        .await?;
    let line = controller.line("Secret: not allowed").await?;
    assert!(line.contains("list and watch on secrets"), "{line}");
    assert!(!controller.output().contains("the view is complete"));
    let (code, waiting) = controller.probe("/readyz").await?;
    assert_eq!(code, 503);
    assert!(
        waiting.contains("Secret: not allowed: give the service account the verbs list and watch"),
        "{waiting}"
    );
    until_states(
        &mut controller,
        [
            ("Secret", "unreadable"),
            ("Gateway", "missing"),
            ("Service", "complete"),
        ],
    )
    .await?;

    let rules = json!({"rules": full.data["rules"]});
    roles
        .patch(
            "gatewright-controller",
            &PatchParams::default(),
            &Patch::Merge(&rules),
        )
        .await?;
    controller.line("the view is complete").await?;
    cluster.server.install(Definitions::GatewayApi).await?;
    cluster
        .server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    cluster.server.put(gateway("late", 8081)).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "late", told)
        .await?;
    until_states(
        &mut controller,
        [("Gateway", "complete"), ("Secret", "complete")],
    )
    .await?;
    // It names kinds whose list is not complete.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = controller.probe("/readyz").await?;
        if answer == (200, "ok\n".to_owned()) {
            return Ok(());
        }
        assert!(Instant::now() < deadline, "{answer:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api"]
async fn servers_and_replicas_die_and_nothing_is_lost_or_written_twice() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    cluster
        .server
        .apply(include_str!("../../../deploy/gatewayclass.yaml"))
        .await?;
    let mut one = cluster.controller("one")?;
    one.line("holding the lease").await?;
    let mut two = cluster.replica("two")?;
    two.line("the view is complete").await?;
    cluster.server.put(gateway("a", 8081)).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "a", told)
        .await?;

    // The API server is down for a while and comes back.
    cluster.server.kill();
    one.line("Gateway: watch interrupted").await?;
    // Hosts stay served.
    until_states(&mut one, [("Gateway", "stale")]).await?;
    assert_eq!(one.probe("/readyz").await?.0, 200);
    cluster.server.resume().await?;
    cluster.server.put(gateway("b", 8082)).await?;
    cluster
        .until(GATEWAY, "Gateway", "default", "b", told)
        .await?;
    // The other replica may have noticed it first.
    until_states(&mut one, [("Gateway", "complete")]).await?;

    // The lease holder is killed in the middle of a burst; the other replica writes the rest.
    for number in 0..20 {
        cluster
            .server
            .put(gateway(&format!("burst-{number}"), 9000 + number))
            .await?;
        if number == 10 {
            drop(std::mem::replace(&mut one, two));
            break;
        }
    }
    for number in 11..20 {
        cluster
            .server
            .put(gateway(&format!("burst-{number}"), 9000 + number))
            .await?;
    }
    for number in 0..20 {
        cluster
            .until(
                GATEWAY,
                "Gateway",
                "default",
                &format!("burst-{number}"),
                told,
            )
            .await?;
    }
    one.line("holding the lease").await?;

    // The remaining replica does not repeat writes.
    let before = cluster.quiet().await?;
    drop(one);
    let mut again = cluster.replica("two")?;
    again.line("holding the lease").await?;
    tokio::time::sleep(Duration::from_secs(13)).await;
    assert_eq!(cluster.writes()?[before..], []);

    // A writer that overwrites our status is reverted, with back-off.
    let api = cluster.server.api(GATEWAY, "Gateway", "default").await?;
    let theirs = json!({"status": {"conditions": [{"type": "Accepted", "status": "False", "reason": "Theirs", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut edits = 0;
    while !again.output().contains("keeps changing the status") {
        assert!(
            Instant::now() < deadline,
            "{edits} edits, and nothing is told: {}",
            again.output()
        );
        api.patch_status("a", &PatchParams::default(), &Patch::Merge(&theirs))
            .await?;
        edits += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let fought = cluster.writes()?[before..]
        .iter()
        .filter(|r| r.object == "default/a")
        .count();
    assert!(
        (1..=6).contains(&fought),
        "{fought} writes against {edits} edits"
    );
    cluster
        .until(GATEWAY, "Gateway", "default", "a", |o| {
            is_true(&o["status"], "Accepted")
        })
        .await?;

    condition(&api.get("a").await?.data["status"], "Programmed").context("it is still there")?;
    Ok(())
}
