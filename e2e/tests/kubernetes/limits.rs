//! The known limits and bugs of Cozystack's controller, each as a case that ours handles. Cases
//! without an order of events are stories (`stories`); adoption, foreign objects, write conflicts
//! and modes are in `tenancy`. And bad input of TenantGateways; that of Gateways is in `bad_input`.
//!
//! All cases run in one cluster at the same time, each in namespaces of its own.

mod leftovers;

use self::leftovers::{
    a_namespace_that_goes, deletion, many_lost_hostnames, namespaces_are_watched, stale_entries,
    stale_generations,
};
use std::collections::BTreeSet;

use anyhow::{Context, Result};
use e2e::apiserver::ApiServer;
use e2e::cluster::{ACCOUNT, Cluster, tls_secret};
use futures::stream::{StreamExt, TryStreamExt};
use kube::api::{DeleteParams, Patch, PropagationPolicy};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use e2e::tenants::{
    ATTACHED, CERT_MANAGER, CLAIMS, GATEWAY, OWNER, TENANT, cluster, member, namespace, program,
    ready, route, tenant, until, until_ready,
};

/// Returns our entries among the parents of a route.
fn claims(route: &Value) -> Vec<&Value> {
    let parents = route["status"]["parents"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    parents
        .iter()
        .filter(|parent| parent["controllerName"] == CLAIMS)
        .collect()
}

fn reason(route: &Value) -> Option<&str> {
    claims(route).first()?["conditions"][0]["reason"].as_str()
}

fn hostnames(object: &Value) -> BTreeSet<String> {
    let listeners = object["spec"]["listeners"].as_array().into_iter().flatten();
    listeners
        .filter_map(|listener| listener["hostname"].as_str().map(str::to_owned))
        .collect()
}

/// Makes a namespace with its TenantGateway.
async fn begin(server: &ApiServer, name: &str, mut spec: Value) -> Result<(String, String)> {
    let space = format!("tenant-{name}");
    let apex = format!("{name}.example.org");
    namespace(server, &space, &apex).await?;
    spec["apex"] = json!(apex);
    server.put(tenant(&space, spec)).await?;
    Ok((space, apex))
}

/// More hosts than a Gateway has listeners: all are served, and none is refused.
async fn more_than_64_hosts(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let (space, apex) = begin(server, "many", json!({})).await?;
    let hosts: Vec<String> = (10..90).map(|n| format!("h{n}.{apex}")).collect();
    for (number, chunk) in hosts.chunks(16).enumerate() {
        let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
        server
            .put(route(&space, &format!("r{number}"), &space, &chunk))
            .await?;
    }
    let gateways = server.api(GATEWAY, "Gateway", &space).await?;
    let sets = server.api(GATEWAY, "ListenerSet", &space).await?;
    let wanted: BTreeSet<String> = hosts.into_iter().collect();
    until("every host has a listener", async || {
        let mut all = BTreeSet::new();
        for (api, name) in [(&gateways, "cozystack"), (&sets, "cozystack-overflow-1")] {
            let there = api
                .get_opt(name)
                .await?
                .map(serde_json::to_value)
                .transpose()?
                .unwrap_or_default();
            all.extend(hostnames(&there));
        }
        Ok(all == wanted)
    })
    .await?;
    until_ready(cluster, &space, "GatewayNotAccepted")
        .await
        .map(drop)
}

/// More child apexes than a certificate has names: it has a hundred, and the others are reported.
async fn more_names_than_a_certificate_has(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let block = json!({"provider": "cloudflare", "cloudflare": {"apiTokenSecretRef": {"name": "token", "key": "k"}}});
    let (space, apex) = begin(
        server,
        "names",
        json!({"certMode": "dns01", "dns01": block}),
    )
    .await?;
    let children = (0..55).map(|n| (format!("tenant-names-c{n}"), format!("c{n}.{apex}")));
    futures::stream::iter(children)
        .map(|(name, host)| {
            let space = space.clone();
            async move { member(server, &name, &space, &host).await }
        })
        .buffer_unordered(8)
        .try_collect::<Vec<()>>()
        .await?;
    cluster
        .until(
            CERT_MANAGER,
            "Certificate",
            &space,
            "cozystack-gateway-tls",
            |o| o["spec"]["dnsNames"].as_array().map(Vec::len) == Some(100),
        )
        .await?;
    until_ready(cluster, &space, "TooManyNames").await.map(drop)
}

/// A passthrough service that is named twice.
async fn a_service_named_twice(cluster: &Cluster) -> Result<()> {
    let (space, apex) = begin(
        &cluster.server,
        "twice",
        json!({"tlsPassthroughServices": ["api", "api"]}),
    )
    .await?;
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", |o| {
            let listeners = o["spec"]["listeners"].as_array().into_iter().flatten();
            listeners
                .filter(|listener| listener["hostname"] == format!("api.{apex}"))
                .count()
                == 1
        })
        .await
        .map(drop)
}

/// GRPCRoutes attach to no listener, not even to plain HTTP: every listener names the kinds that it
/// admits.
async fn kinds_on_every_listener(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let (space, apex) = begin(server, "kinds", json!({"tlsPassthroughServices": ["api"]})).await?;
    let mut rpc = route(&space, "rpc", &space, &[&format!("rpc.{apex}")]);
    rpc["kind"] = json!("GRPCRoute");
    server.put(rpc).await?;
    cluster
        .until(GATEWAY, "GRPCRoute", &space, "rpc", |o| {
            reason(o) == Some("NotAllowedByListeners")
        })
        .await?;
    let named = |o: &Value| {
        let listeners = o["spec"]["listeners"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let kinds = |listener: &Value| -> Vec<Value> {
            let kinds = listener["allowedRoutes"]["kinds"]
                .as_array()
                .into_iter()
                .flatten();
            kinds.map(|kind| kind["kind"].clone()).collect()
        };
        listeners.len() == 2
            && listeners
                .iter()
                .all(|listener| kinds(listener) == ["HTTPRoute", "TLSRoute"])
    };
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", named)
        .await
        .map(drop)
}

/// A route that names only plain HTTP: its hostname is reserved for it, without a listener or a
/// certificate. The status of a route at both says so, with the fix.
async fn plain_http_alone(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let (space, apex) = begin(server, "plain", json!({})).await?;
    member(server, "tenant-plain-z", &space, &apex).await?;
    let host = |name: &str| format!("{name}.{apex}");
    let at = |space_of: &str, name: &str, parent: Value| {
        let mut route = route(space_of, name, &space, &[&host(name)]);
        for (field, value) in parent.as_object().into_iter().flatten() {
            route["spec"]["parentRefs"][0][field] = value.clone();
        }
        route
    };
    server
        .put(at(&space, "section", json!({"sectionName": "http"})))
        .await?;
    server.put(at(&space, "port", json!({"port": 80}))).await?;
    server.put(at(&space, "both", json!({}))).await?;
    server
        .put(at(
            "tenant-plain-z",
            "outside",
            json!({"sectionName": "http"}),
        ))
        .await?;
    let message = |o: &Value| {
        claims(o)[0]["conditions"][0]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    for (space_of, name, wanted, word) in [
        (space.as_str(), "section", "Accepted", ""),
        (&space, "port", "Accepted", ""),
        (&space, "both", "Accepted", "add port 443 to this parentRef"),
        (
            "tenant-plain-z",
            "outside",
            "NotAllowedByListeners",
            "listener http takes HTTPRoutes of tenant-plain",
        ),
    ] {
        cluster
            .until(GATEWAY, "HTTPRoute", space_of, name, |o| {
                reason(o) == Some(wanted) && message(o).contains(word)
            })
            .await?;
    }
    let only = |o: &Value| hostnames(o) == BTreeSet::from([host("both")]);
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", only)
        .await?;
    let certificates = server.api(CERT_MANAGER, "Certificate", &space).await?;
    until("one is ordered", async || {
        Ok(certificates.list(&Default::default()).await?.items.len() == 1)
    })
    .await?;
    // A change of its parentRef takes effect at once.
    let routes = server.api(GATEWAY, "HTTPRoute", &space).await?;
    let parents = json!({"spec": {"parentRefs": [{"name": "cozystack", "port": 443}]}});
    routes
        .patch("section", &Default::default(), &Patch::Merge(&parents))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", |o| {
            hostnames(o) == BTreeSet::from([host("both"), host("section")])
        })
        .await?;
    let parents = json!({"spec": {"parentRefs": [{"name": "cozystack", "sectionName": "http"}]}});
    routes
        .patch("section", &Default::default(), &Patch::Merge(&parents))
        .await?;
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", only)
        .await
        .map(drop)
}

/// A new host does not make `Ready` False while others are served: the message mentions it. While
/// none is served it counts.
async fn a_host_more(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let (space, apex) = begin(server, "more", json!({})).await?;
    let add = async |name: &str| {
        let host = format!("{name}.{apex}");
        server.put(route(&space, name, &space, &[&host])).await?;
        cluster
            .until(GATEWAY, "Gateway", &space, "cozystack", |o| {
                hostnames(o).contains(&host)
            })
            .await
            .map(drop)
    };
    // The data plane reports that a listener lacks its certificate.
    let unresolved = async |listener: usize| {
        program(server, "Gateway", &space, "cozystack").await?;
        let gateways = server.api(GATEWAY, "Gateway", &space).await?;
        let there = gateways.get("cozystack").await?;
        let mut status = there.data["status"].clone();
        let conditions = &mut status["listeners"][listener]["conditions"];
        let mut refs = conditions[0].clone();
        refs["type"] = json!("ResolvedRefs");
        refs["status"] = json!("False");
        refs["reason"] = json!("InvalidCertificateRef");
        conditions.as_array_mut().context("conditions")?.push(refs);
        let patch = Patch::Merge(json!({"status": status}));
        gateways
            .patch_status("cozystack", &Default::default(), &patch)
            .await
            .map(drop)
            .map_err(anyhow::Error::from)
    };
    add("first").await?;
    unresolved(1).await?;
    let told = until_ready(cluster, &space, "ListenersNotReady").await?;
    assert!(
        told["message"]
            .as_str()
            .is_some_and(|text| text.contains("https-first-")),
        "{told}"
    );
    program(server, "Gateway", &space, "cozystack").await?;
    let before = until_ready(cluster, &space, "Reconciled").await?;
    // Times have a resolution of a second.
    sleep(Duration::from_millis(1100)).await;
    add("second").await?;
    let waits = |o: &Value, why: &str| {
        let listeners = o["status"]["listeners"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let waiting: Vec<&Value> = listeners
            .iter()
            .filter(|listener| listener["ready"] == false)
            .collect();
        waiting.len() == 1
            && waiting[0]["hostname"] == format!("second.{apex}")
            && waiting[0]["reason"] == why
    };
    for why in ["Pending", "RefsNotResolved"] {
        let there = cluster
            .until(TENANT, "TenantGateway", &space, "cozystack", |o| {
                waits(o, why)
            })
            .await?;
        let ready = ready(&there).context("it has one")?;
        assert_eq!(
            ready["lastTransitionTime"], before["lastTransitionTime"],
            "{ready}"
        );
        let text = ready["message"].as_str().unwrap_or_default();
        assert!(
            ready["status"] == "True" && text.starts_with("1 of 3 listeners are not ready"),
            "{ready}"
        );
        unresolved(2).await?;
    }
    program(server, "Gateway", &space, "cozystack").await?;
    let there = cluster
        .until(TENANT, "TenantGateway", &space, "cozystack", |o| {
            ready(o).is_some_and(|ready| ready["message"] == "all 3 listeners are ready")
        })
        .await?;
    assert_eq!(
        ready(&there).context("it has one")?["lastTransitionTime"],
        before["lastTransitionTime"]
    );
    Ok(())
}

/// A Secret that a user provides: the status reports that it is missing or lacks names, and the
/// Gateway is written all the same.
async fn a_secret_that_is_brought(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let spec = json!({"certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"}});
    let (space, apex) = begin(server, "brought", spec).await?;
    let wild = |apex: &str| format!("*.{apex}");
    let told = async |reason: &str, words: &[&str]| {
        let told = until_ready(cluster, &space, reason).await?;
        let text = told["message"].as_str().unwrap_or_default();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        anyhow::Ok(())
    };
    let secret = format!("Secret {space}/wildcard");
    told(
        "WildcardSecretNotFound",
        &["spec.wildcardSecretRef", &secret, "create it"],
    )
    .await?;
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", |o| {
            hostnames(o) == BTreeSet::from([apex.clone(), wild(&apex)])
        })
        .await?;
    server
        .put(tls_secret(&space, "wildcard", &[&apex, &wild(&apex)])?)
        .await?;
    until_ready(cluster, &space, "GatewayNotAccepted").await?;
    let child = format!("child.{apex}");
    member(server, "tenant-brought-c", &space, &child).await?;
    told(
        "WildcardSecretIncomplete",
        &[&secret, &format!("not valid for {}:", wild(&child))],
    )
    .await?;
    server
        .put(tls_secret(
            &space,
            "wildcard",
            &[&apex, &wild(&apex), &wild(&child)],
        )?)
        .await?;
    until_ready(cluster, &space, "GatewayNotAccepted").await?;
    server
        .api("v1", "Secret", &space)
        .await?
        .delete("wildcard", &Default::default())
        .await?;
    told("WildcardSecretNotFound", &[&secret]).await
}

/// An edit that cannot be carried out leaves the live state unchanged.
async fn a_broken_switch(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let (space, apex) = begin(server, "switch", json!({})).await?;
    server
        .put(route(&space, "web", &space, &[&format!("web.{apex}")]))
        .await?;
    let before = cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", |o| {
            hostnames(o).contains(&format!("web.{apex}"))
        })
        .await?;
    // The API server would reject most errors; this one is found only when it is carried out.
    let annotations = json!({"metadata": {"annotations": {"gatewright.io/issuer": "magic"}}});
    let tenants = server.api(TENANT, "TenantGateway", &space).await?;
    tenants
        .patch(
            "cozystack",
            &Default::default(),
            &Patch::Merge(&annotations),
        )
        .await?;
    let told = until_ready(cluster, &space, "InvalidSpec").await?;
    assert!(
        told["message"]
            .as_str()
            .is_some_and(|text| text.contains("gatewright.io/issuer")),
        "{told}"
    );
    let after = cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", |o| {
            o["spec"].is_object()
        })
        .await?;
    assert_eq!(before["spec"], after["spec"]);
    Ok(())
}

/// cert-manager may run in any namespace.
async fn cert_manager_elsewhere(cluster: &Cluster) -> Result<()> {
    let (space, _) = begin(&cluster.server, "elsewhere", json!({})).await?;
    cluster
        .until(GATEWAY, "Gateway", &space, "cozystack", |o| {
            let selector = &o["spec"]["listeners"][0]["allowedRoutes"]["namespaces"]["selector"];
            selector["matchExpressions"][0]["values"] == json!([space, "elsewhere-cm"])
        })
        .await
        .map(drop)
}

/// Names of the greatest length lead to names that the API server accepts; longer ones are refused
/// with the reason.
async fn names_at_their_limits(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let space = "tenant-long";
    let apex = "long.example.org";
    namespace(server, space, apex).await?;
    let named = |name: &str| {
        let mut object = tenant(space, json!({"apex": apex}));
        object["metadata"]["name"] = json!(name);
        object
    };
    let whole = format!(
        "{}.{}.{}.{}",
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(61)
    );
    let refused = format!(
        "{:#}",
        server.put(named(&whole)).await.expect_err("253 characters")
    );
    assert!(refused.contains("63"), "{refused}");
    let name = "n".repeat(63);
    server.put(named(&name)).await?;
    // 253 characters, and a label of 63.
    let rest = 253 - 64 - apex.len() - 1;
    let middle = format!(
        "{}.{}.{}",
        "y".repeat(63),
        "z".repeat(63),
        "w".repeat(rest - 128)
    );
    let host = format!("{}.{middle}.{apex}", "x".repeat(63));
    assert_eq!(host.len(), 253);
    let mut claim = route(space, "web", space, &[&host]);
    claim["spec"]["parentRefs"] = json!([{"name": name}]);
    server.put(claim).await?;
    cluster
        .until(GATEWAY, "HTTPRoute", space, "web", |o| {
            reason(o) == Some("Accepted")
        })
        .await?;
    cluster
        .until(GATEWAY, "Gateway", space, &name, |o| {
            hostnames(o).contains(&host)
        })
        .await?;
    let certificates = server.api(CERT_MANAGER, "Certificate", space).await?;
    until("the Certificate is taken", async || {
        Ok(certificates.list(&Default::default()).await?.items.len() == 1)
    })
    .await
}

/// A missing right is named in the status, affects nothing else, and requests back off.
async fn a_missing_right(cluster: &Cluster) -> Result<()> {
    let server = &cluster.server;
    let roles = server
        .api("rbac.authorization.k8s.io/v1", "ClusterRole", "")
        .await?;
    let full = serde_json::to_value(roles.get("gatewright-controller").await?)?["rules"].clone();
    let mut narrow = full.clone();
    for rule in narrow.as_array_mut().into_iter().flatten() {
        if rule["apiGroups"] == json!(["cert-manager.io"]) {
            rule["verbs"] = json!(["list", "watch"]);
        }
    }
    let give = async |rules: &Value| {
        let patch = json!({"rules": rules});
        roles
            .patch(
                "gatewright-controller",
                &Default::default(),
                &Patch::Merge(&patch),
            )
            .await
    };
    give(&narrow).await?;
    server
        .until_may(
            ACCOUNT,
            ("patch", "cert-manager.io", "issuers", "tenant-poor"),
            false,
        )
        .await?;
    let began = Instant::now();
    let (space, _) = begin(server, "poor", json!({})).await?;
    let told = until_ready(cluster, &space, "ReconcileError").await?;
    let text = told["message"].as_str().unwrap_or_default();
    assert!(
        text.contains("cannot patch resource")
            && text.contains("issuers")
            && text.contains("cert-manager.io"),
        "{text}"
    );
    cluster
        .until(
            GATEWAY,
            "HTTPRoute",
            &space,
            "cozystack-http-redirect",
            |o| o["spec"].is_object(),
        )
        .await?;
    sleep(Duration::from_secs(3)).await;
    let denied = cluster
        .denied()?
        .into_iter()
        .filter(|request| request.object.starts_with(&space))
        .count();
    // The pauses double, starting at a second.
    let took = began.elapsed().as_secs();
    assert!(
        denied as u64 <= 3 + took / 4,
        "{denied} requests in {took} s"
    );
    give(&full).await?;
    cluster
        .until(CERT_MANAGER, "Issuer", &space, "cozystack-gateway", |o| {
            o["spec"].is_object()
        })
        .await?;
    until_ready(cluster, &space, "GatewayNotAccepted")
        .await
        .map(drop)
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn known_faults_of_other_controllers_do_not_occur() -> Result<()> {
    let cluster = cluster().await?;
    let mut controller = cluster.controller_with(
        "one",
        &["--set", "tenancy.certManagerNamespace=elsewhere-cm"],
    )?;
    controller.line("holding the lease").await?;
    tokio::try_join!(
        more_than_64_hosts(&cluster),
        more_names_than_a_certificate_has(&cluster),
        a_service_named_twice(&cluster),
        kinds_on_every_listener(&cluster),
        plain_http_alone(&cluster),
        many_lost_hostnames(&cluster),
        stale_entries(&cluster),
        namespaces_are_watched(&cluster),
        deletion(&cluster),
        stale_generations(&cluster),
        a_host_more(&cluster),
        a_secret_that_is_brought(&cluster),
        a_broken_switch(&cluster),
        cert_manager_elsewhere(&cluster),
        names_at_their_limits(&cluster),
        a_namespace_that_goes(&cluster),
    )?;
    // Each error is reported, and nothing is retried without back-off.
    cluster.quiet().await?;
    // A terminating namespace refuses with the same code.
    let denied = cluster
        .denied()?
        .into_iter()
        .filter(|request| !request.object.starts_with("tenant-going"));
    assert_eq!(
        denied.collect::<Vec<_>>(),
        [],
        "every right that is needed is given"
    );
    a_missing_right(&cluster).await
}
