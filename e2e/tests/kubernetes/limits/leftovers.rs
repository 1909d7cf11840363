//! Objects and states that others left behind.

use super::*;

/// Forty-five hostnames lost by three routes: reported once, and then the controller is quiet.
pub(super) async fn many_lost_hostnames(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let (space, apex) = begin(server, "lost", json!({})).await?;
    member(server, "tenant-lost-z", &space, &apex).await?;
    for number in 0..3 {
        let hosts: Vec<String> = (0..15).map(|n| format!("h{number}-{n}.{apex}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        for space_of in [space.as_str(), "tenant-lost-z"] {
            server
                .put(route(space_of, &format!("r{number}"), &space, &hosts))
                .await?;
        }
    }
    for number in 0..3 {
        let lost = |o: &Value| reason(o) == Some("HostnameConflict");
        let lost = cluster
            .until(
                GATEWAY,
                "HTTPRoute",
                "tenant-lost-z",
                &format!("r{number}"),
                lost,
            )
            .await?;
        let text = claims(&lost)[0]["conditions"][0]["message"]
            .as_str()
            .context("a message")?
            .to_owned();
        let told: Vec<&str> = text
            .split(' ')
            .take_while(|word| *word != "already")
            .collect();
        assert!(told.len() == 15 && told.is_sorted(), "{text}");
    }
    Ok(())
}

/// Outdated entries are removed: of a route that left, and of a namespace that may not attach any
/// more.
pub(super) async fn stale_entries(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let (space, apex) = begin(server, "stale", json!({})).await?;
    member(server, "tenant-stale-z", &space, &apex).await?;
    let theirs = json!({"controllerName": "theirs.org/controller", "parentRef": {"name": "cozystack", "namespace": space},
        "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let routes = server.api(GATEWAY, "HTTPRoute", "tenant-stale-z").await?;
    for name in ["left", "detached"] {
        server
            .put(route(
                "tenant-stale-z",
                name,
                &space,
                &[&format!("{name}.{apex}")],
            ))
            .await?;
        let status = json!({"status": {"parents": [theirs]}});
        routes
            .patch_status(name, &Default::default(), &Patch::Merge(&status))
            .await?;
        cluster
            .until(GATEWAY, "HTTPRoute", "tenant-stale-z", name, |o| {
                reason(o) == Some("Accepted")
                    && claims(o)[0]["conditions"][0]["observedGeneration"] == 1
            })
            .await?;
    }
    let elsewhere = json!({"spec": {"parentRefs": [{"name": "elsewhere", "namespace": space}]}});
    routes
        .patch("left", &Default::default(), &Patch::Merge(&elsewhere))
        .await?;
    let only_theirs = |o: &Value| {
        claims(o).is_empty() && o["status"]["parents"].as_array().map(Vec::len) == Some(1)
    };
    cluster
        .until(GATEWAY, "HTTPRoute", "tenant-stale-z", "left", only_theirs)
        .await?;
    let namespaces = server.api("v1", "Namespace", "").await?;
    let stripped = json!({"metadata": {"labels": {OWNER: null}}});
    namespaces
        .patch(
            "tenant-stale-z",
            &Default::default(),
            &Patch::Merge(&stripped),
        )
        .await?;
    cluster
        .until(
            GATEWAY,
            "HTTPRoute",
            "tenant-stale-z",
            "detached",
            only_theirs,
        )
        .await
        .map(drop)
}

/// Late namespaces and changed labels take effect at once.
pub(super) async fn namespaces_are_watched(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let mut spec = json!({"certMode": "dns01", "attachedNamespaces": ["cozy-late"]});
    spec["dns01"] = json!({"provider": "cloudflare", "cloudflare": {"apiTokenSecretRef": {"name": "t", "key": "k"}}});
    let (space, apex) = begin(server, "late", spec).await?;
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", |o| {
            o["spec"].is_object()
        })
        .await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cozy-late"}}))
        .await?;
    cluster
        .until("v1", "Namespace", "", "cozy-late", |o| {
            o["metadata"]["labels"][OWNER] == *space
                && o["metadata"]["annotations"][ATTACHED] == *space
        })
        .await?;
    let names = |o: &Value, child: &str| {
        o["spec"]["dnsNames"]
            .to_string()
            .contains(&format!("*.{child}.{apex}"))
    };
    member(server, "tenant-late-c", &space, &format!("first.{apex}")).await?;
    let tls = "cozystack-gateway-tls";
    cluster
        .until(CERT_MANAGER, "Certificate", &space, tls, |o| {
            names(o, "first")
        })
        .await?;
    member(server, "tenant-late-c", &space, &format!("second.{apex}")).await?;
    cluster
        .until(CERT_MANAGER, "Certificate", &space, tls, |o| {
            names(o, "second") && !names(o, "first")
        })
        .await
        .map(drop)
}

/// A TenantGateway that is being deleted, with a finalizer of others: nothing is made again.
/// Entries in other objects are removed, and objects of cert-manager or people stay.
pub(super) async fn deletion(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let (space, apex) = begin(server, "gone", json!({"attachedNamespaces": ["cozy-gone"]})).await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cozy-gone"}}))
        .await?;
    server
        .put(route("cozy-gone", "web", &space, &[&format!("web.{apex}")]))
        .await?;
    server
        .put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cozystack-acme-account", "namespace": space}}))
        .await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "cozy-gone", "web", |o| {
            reason(o) == Some("Accepted")
        })
        .await?;
    let tenants = server.api(TENANT, "TenantGateway", &space).await?;
    let held = json!({"metadata": {"finalizers": ["theirs.org/held"]}});
    tenants
        .patch("cozystack", &Default::default(), &Patch::Merge(&held))
        .await?;
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    tenants.delete("cozystack", &params).await?;
    // It still exists; its derived objects do not.
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", Value::is_null)
        .await?;
    cluster
        .until("v1", "Namespace", "", "cozy-gone", |o| {
            o["metadata"]["labels"][OWNER].is_null()
                && o["metadata"]["annotations"][ATTACHED].is_null()
        })
        .await?;
    cluster
        .until(GATEWAY, "HTTPRoute", "cozy-gone", "web", |o| {
            claims(o).is_empty()
        })
        .await?;
    sleep(Duration::from_secs(1)).await;
    let gateways = server.api(GATEWAY, "Gateway", &space).await?;
    assert!(
        gateways.get_opt("cozystack").await?.is_none(),
        "nothing is made again while it is held"
    );
    assert!(tenants.get_opt("cozystack").await?.is_some(), "it is held");
    assert!(
        server
            .api("v1", "Secret", &space)
            .await?
            .get_opt("cozystack-acme-account")
            .await?
            .is_some()
    );
    tenants
        .patch(
            "cozystack",
            &Default::default(),
            &Patch::Merge(json!({"metadata": {"finalizers": null}})),
        )
        .await?;
    cluster
        .until(TENANT, "TenantGateway", &space, "cozystack", Value::is_null)
        .await
        .map(drop)
}

/// A Gateway's status of an earlier generation does not count for `Ready`.
pub(super) async fn stale_generations(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let (space, apex) = begin(server, "early", json!({})).await?;
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", |o| {
            o["spec"].is_object()
        })
        .await?;
    program(server, "Gateway", &space, "cozystack").await?;
    until_ready(cluster, &space, "Reconciled").await?;
    // An edit leads to a new generation of the Gateway; conditions of the previous one are void.
    let edit = json!({"spec": {"tlsPassthroughServices": ["api"]}});
    let tenants = server.api(TENANT, "TenantGateway", &space).await?;
    tenants
        .patch("cozystack", &Default::default(), &Patch::Merge(&edit))
        .await?;
    cluster
        .until(TENANT, "TenantGateway", &space, "cozystack", |o| {
            ready(o).is_some_and(|ready| ready["status"] == "False")
        })
        .await?;
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", |o| {
            hostnames(o).contains(&format!("api.{apex}"))
        })
        .await?;
    program(server, "Gateway", &space, "cozystack").await?;
    until_ready(cluster, &space, "Reconciled").await.map(drop)
}

/// A namespace that is being deleted, with a finalizer: nothing is made in it, and attempts back
/// off.
pub(super) async fn a_namespace_that_goes(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let (space, apex) = begin(server, "going", json!({})).await?;
    let mut held = route(&space, "web", &space, &[&format!("web.{apex}")]);
    held["metadata"]["finalizers"] = json!(["theirs.org/held"]);
    server.put(held).await?;
    cluster
        .until(GATEWAY, "HTTPRoute", &space, "web", |o| {
            reason(o) == Some("Accepted")
        })
        .await?;
    let namespaces = server.api("v1", "Namespace", "").await?;
    namespaces.delete(&space, &Default::default()).await?;
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", Value::is_null)
        .await?;
    sleep(Duration::from_secs(2)).await;
    let failed = server.requests()?.into_iter();
    let failed = failed.filter(|r| {
        r.user == ACCOUNT && r.object.starts_with(&format!("{space}/")) && r.code >= 400
    });
    let failed: Vec<_> = failed.collect();
    assert!(failed.len() <= 8, "{failed:#?}");
    let routes = server.api(GATEWAY, "HTTPRoute", &space).await?;
    routes
        .patch(
            "web",
            &Default::default(),
            &Patch::Merge(json!({"metadata": {"finalizers": null}})),
        )
        .await?;
    cluster
        .until("v1", "Namespace", "", &space, Value::is_null)
        .await
        .map(drop)
}
