//! Faults between the controller and the API server: throttled requests, interrupted watches, a
//! Lease that cannot be renewed, two writers, a restored backup. The result is that of a run
//! without faults.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use e2e::apiserver::ApiServer;
use e2e::apiserver::proxy::Proxy;
use e2e::cluster::{ACCOUNT, Cluster, NAMESPACE};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::others::{is_told_of_its_own_alone, told_of_another};
use super::troubles::{burst, compared, placed};
use e2e::tenants::{
    GATEWAY, cluster, id, namespace, objects, owned, program, quiet, route, tenant, until,
    until_ready,
};

/// A TenantGateway with so many hosts, named after its story.
async fn story(server: &ApiServer, name: &str, hosts: usize) -> Result<()> {
    let space = format!("tenant-{name}");
    let apex = format!("{name}.example.org");
    namespace(server, &space, &apex).await?;
    server.put(tenant(&space, json!({"apex": apex}))).await?;
    burst(server, &space, &apex, 0..hosts).await
}

/// Waits for Gateway, redirect, Issuer, and a Certificate for each host.
async fn until_hosts(server: &ApiServer, name: &str, hosts: usize) -> Result<()> {
    let space = format!("tenant-{name}");
    until(&format!("{name} has {hosts} hosts"), async || {
        Ok(owned(server, &space).await?.len() == hosts + 3)
    })
    .await?;
    until(&format!("{name} has {hosts} listeners"), async || {
        Ok(placed(server, &space, name).await?.len() == hosts)
    })
    .await
}

async fn same(server: &ApiServer, one: &str, other: &str) -> Result<()> {
    let all = async |name: &str| {
        let space = format!("tenant-{name}");
        anyhow::Ok(compared(
            objects(server, &space).await?,
            &format!("{name}.example.org"),
            &space,
        ))
    };
    let (one, other) = (all(one).await?, all(other).await?);
    let keys = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&one), keys(&other));
    assert_eq!(one, other);
    Ok(())
}

fn deleted(cluster: &Cluster) -> Result<usize> {
    Ok(cluster
        .writes()?
        .iter()
        .filter(|request| request.verb.starts_with("delete"))
        .count())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn requests_that_are_throttled_and_watches_that_are_cut_lose_nothing() -> Result<()> {
    const HOSTS: usize = 30;
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("calm")?;
    controller.line("holding the lease").await?;
    story(server, "calm", HOSTS).await?;
    until_hosts(server, "calm", HOSTS).await?;
    drop(controller);

    let proxy = Proxy::start(server, ACCOUNT).await?;
    proxy.weather.throttled.store(4, Ordering::Relaxed);
    proxy.weather.cut.store(613, Ordering::Relaxed);
    let mut controller = cluster.replica_through("rough", &proxy)?;
    controller.line("holding the lease").await?;
    story(server, "rough", HOSTS).await?;
    until_hosts(server, "rough", HOSTS).await?;
    let routes = server.api(GATEWAY, "HTTPRoute", "tenant-rough").await?;
    assert_eq!(deleted(&cluster)?, 0);
    for number in 0..HOSTS / 2 {
        routes
            .delete(&format!("r{number:03}"), &Default::default())
            .await?;
    }
    until_hosts(server, "rough", HOSTS - HOSTS / 2).await?;
    burst(server, "tenant-rough", "rough.example.org", 0..HOSTS / 2).await?;
    until_hosts(server, "rough", HOSTS).await?;
    // The Lease alone causes requests.
    until("many requests were throttled", async || {
        Ok(proxy.weather.throttles() > 20)
    })
    .await?;
    assert!(
        proxy.weather.cuts() > 20,
        "{} watches were cut",
        proxy.weather.cuts()
    );

    // The Lease cannot be renewed for longer than its holder may write, in the middle of a burst.
    proxy.weather.throttled.store(0, Ordering::Relaxed);
    proxy.weather.cut.store(0, Ordering::Relaxed);
    proxy.weather.late.store(1500, Ordering::Relaxed);
    sleep(Duration::from_secs(3)).await;
    burst(
        server,
        "tenant-rough",
        "rough.example.org",
        HOSTS..HOSTS + 10,
    )
    .await?;
    sleep(Duration::from_secs(1)).await;
    proxy.weather.late.store(0, Ordering::Relaxed);
    until_hosts(server, "rough", HOSTS + 10).await?;
    burst(server, "tenant-calm", "calm.example.org", HOSTS..HOSTS + 10).await?;
    until_hosts(server, "calm", HOSTS + 10).await?;
    until("the same is told of the same", async || {
        quiet(&cluster, 0).await?;
        Ok(true)
    })
    .await?;
    same(server, "calm", "rough").await?;
    assert_eq!(cluster.denied()?, []);
    Ok(())
}

/// The answer to a write is taken in at once, and the later event of the watch brings nothing new:
/// nothing may wait for it.
#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn watches_that_lag_lose_nothing_of_what_is_told_step_by_step() -> Result<()> {
    const HOSTS: usize = 5;
    let cluster = cluster().await?;
    let server = &cluster.server;
    let proxy = Proxy::start(server, ACCOUNT).await?;
    proxy.weather.lag.store(300, Ordering::Relaxed);
    let mut controller = cluster.replica_through("late", &proxy)?;
    controller.line("holding the lease").await?;
    story(server, "late", HOSTS).await?;
    until_hosts(server, "late", HOSTS).await?;
    program(server, "Gateway", "tenant-late", "cozystack").await?;
    until_ready(&cluster, "tenant-late", "Reconciled").await?;
    cluster
        .until(
            GATEWAY,
            "HTTPRoute",
            "tenant-late",
            "r000",
            is_told_of_its_own_alone,
        )
        .await?;

    // Entries of another parent are removed at once; the entry of this one is written when earlier
    // claimants had their time.
    let routes = server.api(GATEWAY, "HTTPRoute", "tenant-late").await?;
    for _ in 0..3 {
        routes
            .patch_status(
                "r000",
                &PatchParams::default(),
                &Patch::Merge(told_of_another()),
            )
            .await?;
        cluster
            .until(
                GATEWAY,
                "HTTPRoute",
                "tenant-late",
                "r000",
                is_told_of_its_own_alone,
            )
            .await?;
    }
    quiet(&cluster, 0).await?;
    let before = cluster.writes()?.len();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(cluster.writes()?[before..], [], "it comes to rest");
    assert_eq!(deleted(&cluster)?, 0);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn two_that_both_write_write_the_same_and_come_to_rest() -> Result<()> {
    const HOSTS: usize = 12;
    let cluster = cluster().await?;
    let server = &cluster.server;
    // The second one has a Lease of its own, and takes it for the controller's.
    let proxy = Proxy::start(server, ACCOUNT).await?;
    *proxy.weather.lease.lock().expect("nobody panicked") = Some("second".to_owned());
    let rights =
        json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}]);
    let meta = json!({"name": "second", "namespace": NAMESPACE});
    let group = "rbac.authorization.k8s.io";
    server.put(json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": meta, "rules": rights})).await?;
    server
        .put(
            json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "second"},
            "subjects": [{"kind": "User", "apiGroup": group, "name": ACCOUNT}]}),
        )
        .await?;
    let mut one = cluster.controller("one")?;
    let mut two = cluster.replica_through("two", &proxy)?;
    one.line("holding the lease").await?;
    two.line("holding the lease").await?;
    story(server, "both", HOSTS).await?;
    until_hosts(server, "both", HOSTS).await?;
    program(server, "Gateway", "tenant-both", "cozystack").await?;
    until_ready(&cluster, "tenant-both", "Reconciled").await?;
    // Both revert an edit.
    let gateways = server.api(GATEWAY, "Gateway", "tenant-both").await?;
    let theirs = PatchParams {
        field_manager: Some("kubectl-edit".to_owned()),
        ..PatchParams::default()
    };
    let edit = json!({"spec": {"gatewayClassName": "theirs"}});
    gateways
        .patch("cozystack", &theirs, &Patch::Merge(&edit))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", "tenant-both", "cozystack", |o| {
            o["spec"]["gatewayClassName"] == "cilium"
        })
        .await?;
    program(server, "Gateway", "tenant-both", "cozystack").await?;
    until_ready(&cluster, "tenant-both", "Reconciled").await?;
    assert!(
        proxy.weather.writes() > 0,
        "the second one wrote {} times",
        proxy.weather.writes()
    );
    // They agree.
    cluster.quiet().await?;
    for controller in [&one, &two] {
        let output = controller.output();
        assert!(
            !output.contains("keeps changing") && !output.contains("keeps reverting"),
            "{output}"
        );
    }
    assert_eq!(deleted(&cluster)?, 0);
    drop(two);
    story(server, "alone", HOSTS).await?;
    until_hosts(server, "alone", HOSTS).await?;
    quiet(&cluster, 0).await?;
    same(server, "alone", "both").await
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn a_state_of_yesterday_is_carried_out_anew_and_nothing_of_it_is_deleted() -> Result<()> {
    let mut cluster = cluster().await?;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    story(&cluster.server, "restored", 4).await?;
    until_hosts(&cluster.server, "restored", 4).await?;
    quiet(&cluster, 0).await?;
    cluster.server.back_up().await?;
    let identities = async |server: &ApiServer| {
        let all = objects(server, "tenant-restored").await?.into_iter();
        anyhow::Ok(
            all.map(|o| (id(&o), o["metadata"]["uid"].clone()))
                .collect::<BTreeMap<_, _>>(),
        )
    };
    let before = identities(&cluster.server).await?;

    // Changes after the backup: a host is removed, others are added, and a whole tenant.
    let routes = cluster
        .server
        .api(GATEWAY, "HTTPRoute", "tenant-restored")
        .await?;
    routes.delete("r001", &Default::default()).await?;
    burst(
        &cluster.server,
        "tenant-restored",
        "restored.example.org",
        4..7,
    )
    .await?;
    until_hosts(&cluster.server, "restored", 6).await?;
    story(&cluster.server, "newer", 2).await?;
    until_hosts(&cluster.server, "newer", 2).await?;
    quiet(&cluster, 0).await?;

    cluster.server.restore().await?;
    let restored = cluster.writes()?.len();
    // State from after the backup cannot be told from the current one: the kubelet restarts the
    // controller.
    let told = controller.end().await?;
    assert!(told.contains("older than what was seen"), "{told}");
    controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    until_hosts(&cluster.server, "restored", 4).await?;
    quiet(&cluster, 0).await?;
    assert_eq!(
        identities(&cluster.server).await?,
        before,
        "nothing was made anew"
    );
    let since = cluster.writes()?[restored..].to_vec();
    assert!(
        since
            .iter()
            .all(|request| !request.verb.starts_with("delete")),
        "{since:#?}"
    );

    // It continues from there.
    let server = &cluster.server;
    server
        .put(route(
            "tenant-restored",
            "late",
            "tenant-restored",
            &["late.restored.example.org"],
        ))
        .await?;
    until_hosts(server, "restored", 5).await
}
