//! Failures of a writing controller: it is killed in the middle of a burst, kinds are installed
//! late. The result is that of a run without failures, and nothing is deleted wrongly.

use std::collections::BTreeMap;

use anyhow::Result;
use e2e::apiserver::{ApiServer, Definitions};
use e2e::cluster::Cluster;
use serde_json::{Value, json};

use e2e::tenants::{
    certificate_name, cluster, id, namespace, objects, owned, quiet, route, tenant, until,
    until_owned, until_ready,
};

const HOSTS: usize = 70;

/// Returns objects without fields of others or that differ between two namespaces of the same
/// story.
pub(crate) fn compared(objects: Vec<Value>, apex: &str, space: &str) -> BTreeMap<String, String> {
    let strip = |mut object: Value| {
        let listeners = object["spec"]["listeners"].as_array_mut();
        if let Some(listeners) = listeners {
            listeners.sort_by_key(|listener| listener["hostname"].to_string());
            for listener in listeners {
                listener["name"] = json!("");
                listener["tls"] = json!({});
            }
        }
        let spec = json!({"labels": object["metadata"]["labels"], "listeners": object["spec"]["listeners"],
            "names": object["spec"]["dnsNames"]});
        spec.to_string()
            .replace(apex, "APEX")
            .replace(space, "SPACE")
    };
    objects
        .into_iter()
        .map(|object| {
            // Hashes of names differ with the apex.
            let name = id(&object);
            let name = match name.split_once("-tls") {
                Some((head, _)) => head
                    .rsplit_once('-')
                    .map_or(head, |(label, _)| label)
                    .to_owned(),
                None => name,
            };
            (name, strip(object))
        })
        .collect()
}

pub(crate) async fn burst(
    server: &ApiServer,
    space: &str,
    apex: &str,
    hosts: std::ops::Range<usize>,
) -> Result<()> {
    for number in hosts {
        let host = format!("h{number:03}.{apex}");
        server
            .put(route(space, &format!("r{number:03}"), space, &[&host]))
            .await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn a_writer_killed_in_a_burst_leaves_what_a_whole_run_leaves() -> Result<()> {
    let cluster = cluster().await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("holding the lease").await?;
    for space in ["whole", "killed"] {
        namespace(
            server,
            &format!("tenant-{space}"),
            &format!("{space}.example.org"),
        )
        .await?;
        server
            .put(tenant(
                &format!("tenant-{space}"),
                json!({"apex": format!("{space}.example.org")}),
            ))
            .await?;
    }
    // More hosts than the listeners of a Gateway.
    let count = async |space: &str| Ok::<_, anyhow::Error>(owned(server, space).await?.len());
    let start = cluster.writes()?.len();
    burst(server, "tenant-whole", "whole.example.org", 0..HOSTS).await?;
    // A busy API server takes seconds for a Gateway, whose last write may be on its way.
    until("a whole run is done", async || {
        let placed = placed(server, "tenant-whole", "whole").await?;
        let hosts = placed.iter().filter(|host| host.starts_with('h'));
        Ok(count("tenant-whole").await? == HOSTS + 4 && hosts.count() == HOSTS)
    })
    .await?;
    let written = quiet(&cluster, start).await?;
    let gateways = written
        .iter()
        .filter(|request| request.resource == "gateways")
        .count();
    assert!(
        gateways < HOSTS,
        "a burst is coalesced: {gateways} writes of a Gateway for {HOSTS} hosts"
    );

    burst(server, "tenant-killed", "killed.example.org", 0..HOSTS / 3).await?;
    // SIGKILL.
    drop(controller);
    burst(
        server,
        "tenant-killed",
        "killed.example.org",
        HOSTS / 3..HOSTS / 2,
    )
    .await?;
    let mut controller = cluster.controller("two")?;
    controller.line("holding the lease").await?;
    burst(
        server,
        "tenant-killed",
        "killed.example.org",
        HOSTS / 2..HOSTS,
    )
    .await?;
    until("the other run is done", async || {
        Ok(count("tenant-killed").await? == HOSTS + 4)
    })
    .await?;
    let expected = placed(server, "tenant-whole", "whole").await?;
    until("all hosts have a listener", async || {
        Ok(placed(server, "tenant-killed", "killed").await? == expected)
    })
    .await?;
    quiet(&cluster, 0).await?;
    let all = async |space: &str| {
        let apex = format!("{space}.example.org");
        anyhow::Ok(compared(
            objects(server, &format!("tenant-{space}")).await?,
            &apex,
            &format!("tenant-{space}"),
        ))
    };
    let hosts = |objects: &BTreeMap<String, String>| objects.keys().cloned().collect::<Vec<_>>();
    let whole = all("whole").await?;
    let killed = all("killed").await?;
    assert_eq!(hosts(&whole), hosts(&killed));
    assert_eq!(
        cluster
            .writes()?
            .iter()
            .filter(|request| request.verb == "delete")
            .count(),
        0
    );

    // A restart finds everything in order.
    drop(controller);
    let before = cluster.writes()?.len();
    let mut controller = cluster.controller("three")?;
    controller.line("holding the lease").await?;
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert_eq!(cluster.writes()?[before..], []);

    // Unclaimed hosts are removed, and only these; also if the controller was down.
    let routes = server
        .api(e2e::tenants::GATEWAY, "HTTPRoute", "tenant-killed")
        .await?;
    drop(controller);
    routes.delete("r000", &Default::default()).await?;
    let mut controller = cluster.controller("four")?;
    controller.line("holding the lease").await?;
    until("what is not wanted is gone", async || {
        Ok(count("tenant-killed").await? == HOSTS + 3)
    })
    .await?;
    for number in 1..HOSTS - 2 {
        routes
            .delete(&format!("r{number:03}"), &Default::default())
            .await?;
    }
    until("what is not wanted is gone", async || {
        Ok(count("tenant-killed").await? <= 6)
    })
    .await?;
    assert_eq!(count("tenant-whole").await?, HOSTS + 4);
    Ok(())
}

/// Returns every hostname that has a listener; duplicates are kept.
pub(crate) async fn placed(server: &ApiServer, space: &str, name: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for object in objects(server, space).await? {
        let listeners = object["spec"]["listeners"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.extend(
            listeners
                .iter()
                .filter_map(|listener| Some(listener["hostname"].as_str()?.replace(name, ""))),
        );
    }
    all.sort();
    Ok(all)
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn kinds_that_come_late_are_written_when_they_come() -> Result<()> {
    let server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    let cluster = Cluster::over(server).await?;
    let server = &cluster.server;
    let mut controller = cluster.controller("one")?;
    controller.line("the view is complete").await?;
    controller.line("holding the lease").await?;
    assert!(
        controller
            .output()
            .contains("TenantGateway: not served by this API server")
    );
    namespace(server, "tenant-late", "late.example.org").await?;
    server
        .put(route(
            "tenant-late",
            "web",
            "tenant-late",
            &["web.late.example.org"],
        ))
        .await?;

    server.install(Definitions::Ours).await?;
    server
        .put(tenant("tenant-late", json!({"apex": "late.example.org"})))
        .await?;
    until_owned_of_gateway_api(server).await?;
    let told = until_ready(&cluster, "tenant-late", "KindNotServed").await?;
    assert!(
        told["message"]
            .as_str()
            .unwrap_or_default()
            .contains("Issuer"),
        "{told}"
    );

    server.install(Definitions::CertManager).await?;
    let hash = certificate_name("web.late.example.org");
    let certificate = format!("Certificate {hash}");
    let all = [
        &certificate,
        "Gateway cozystack",
        "HTTPRoute cozystack-http-redirect",
        "Issuer cozystack-gateway",
    ];
    until_owned(server, "tenant-late", &all).await?;
    until_ready(&cluster, "tenant-late", "GatewayNotAccepted").await?;

    // cert-manager is uninstalled with all its objects, and installed again.
    let definitions = server
        .api("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")
        .await?;
    let uid = async || {
        let gateways = server
            .api(e2e::tenants::GATEWAY, "Gateway", "tenant-late")
            .await?;
        anyhow::Ok(gateways.get("cozystack").await?.metadata.uid)
    };
    let before = uid().await?;
    for kind in ["certificates", "issuers"] {
        definitions
            .delete(&format!("{kind}.cert-manager.io"), &Default::default())
            .await?;
    }
    until_ready(&cluster, "tenant-late", "KindNotServed").await?;
    server.install(Definitions::CertManager).await?;
    until_owned(server, "tenant-late", &all).await?;
    until_ready(&cluster, "tenant-late", "GatewayNotAccepted").await?;
    assert_eq!(
        uid().await?,
        before,
        "what was served all the time is untouched"
    );

    // A controller that is told to leave them to another one does so.
    drop(controller);
    server
        .api(e2e::tenants::GATEWAY, "Gateway", "tenant-late")
        .await?
        .delete("cozystack", &Default::default())
        .await?;
    let before = cluster.writes()?.len();
    let mut controller = cluster.controller_with("two", &["--set", "tenancy.enabled=false"])?;
    controller.line("holding the lease").await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let written = cluster.writes()?[before..].to_vec();
    assert!(
        written.iter().all(|request| request.resource == "secrets"),
        "{written:?}"
    );
    Ok(())
}

/// The Gateway and the redirect do not wait for cert-manager.
async fn until_owned_of_gateway_api(server: &ApiServer) -> Result<()> {
    until("the Gateway is written", async || {
        let gateways = server
            .api(e2e::tenants::GATEWAY, "Gateway", "tenant-late")
            .await?;
        Ok(gateways.get_opt("cozystack").await?.is_some())
    })
    .await
}
