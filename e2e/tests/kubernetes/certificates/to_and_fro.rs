//! The real cert-manager and our controller alternate on the same Secrets: nothing is ordered
//! again, and hosts are served throughout.

use anyhow::Result;
use e2e::certmanager::{CertManager, solver};
use e2e::cluster::is_true;
use e2e::kubelet::Kubelet;
use e2e::pebble::Options;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::place::{HOST, Place, SPACE};
use e2e::tenants::{
    CERT_MANAGER, GATEWAY, TENANT, certificate_name, cluster_with_pods, quiet, tenant, until,
    until_owned,
};

const FIXED: [&str; 2] = ["Gateway cozystack", "HTTPRoute cozystack-http-redirect"];

/// Returns certificate and key as text, the issuer that cert-manager reads from the Secret, and the
/// one that we do.
async fn held(place: &Place, host: &str) -> Result<(Value, Option<String>, Option<String>)> {
    let secrets = place.cluster.server.api("v1", "Secret", SPACE).await?;
    let secret = secrets.get(&certificate_name(host)).await?;
    let says = |key: &str| secret.annotations().get(key).cloned();
    Ok((
        secret.data["data"].clone(),
        says("cert-manager.io/issuer-name"),
        says("gatewright.io/issuer"),
    ))
}

/// Waits until cert-manager's Certificates of these hosts are ready.
async fn until_cert_manager_is_content(place: &Place, hosts: &[&str]) -> Result<()> {
    for host in hosts {
        place
            .cluster
            .until(
                CERT_MANAGER,
                "Certificate",
                SPACE,
                &certificate_name(host),
                |certificate| is_true(&certificate["status"], "Ready"),
            )
            .await?;
    }
    Ok(())
}

/// Waits until cert-manager's objects are deleted.
async fn until_taken_back(place: &Place) -> Result<()> {
    until_owned(&place.cluster.server, SPACE, &FIXED).await
}

/// Returns the number of cert-manager's CertificateRequests.
async fn requests(place: &Place) -> Result<usize> {
    let api = place
        .cluster
        .server
        .api(CERT_MANAGER, "CertificateRequest", SPACE)
        .await?;
    Ok(api.list(&ListParams::default()).await?.items.len())
}

/// Applies the TenantGateway, with the issuer of this annotation.
async fn issued_by(place: &Place, issuer: Option<&str>) -> Result<()> {
    let mut object = tenant(
        SPACE,
        json!({"apex": super::place::APEX, "gatewayClassName": "gatewright"}),
    );
    object["metadata"]["annotations"] =
        json!({"gatewright.io/acme-directory": place.pebble.directory()});
    if let Some(issuer) = issuer {
        object["metadata"]["annotations"]["gatewright.io/issuer"] = json!(issuer);
    }
    place.cluster.server.put(object).await.map(drop)
}

async fn place() -> Result<(Place, Kubelet, CertManager)> {
    let place = Place::over(cluster_with_pods().await?, Options::default()).await?;
    let server = &place.cluster.server;
    let kubelet = Kubelet::start(server, &[solver()?]).await?;
    let roots = std::fs::read(place.bundle())?;
    let cert_manager =
        CertManager::start_trusting(server, place.pebble.nameserver(), &roots).await?;
    Ok((place, kubelet, cert_manager))
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy, Pebble and cert-manager, and root for the network of pods: e2e/tools install"]
async fn an_installation_goes_from_cert_manager_to_us_and_back_and_nothing_is_ordered_for_it()
-> Result<()> {
    let (place, _kubelet, _cert_manager) = place().await?;
    let before = place.beside_cert_manager("one").await?;
    let _envoy = place.envoy().await?;
    issued_by(&place, None).await?;
    place.route("web", HOST).await?;
    let root = place.pebble.issuing_root(0).await?;
    place.until_served(HOST, &root).await?;
    until_cert_manager_is_content(&place, &[HOST]).await?;
    let (first, issuer, ours) = held(&place, HOST).await?;
    assert_eq!(place.pebble.orders(), 1, "cert-manager ordered it");
    assert_eq!(
        issuer.as_deref(),
        Some("cozystack-gateway"),
        "the issuer is that of the chart"
    );
    assert_eq!(ours, None, "nothing of it is ours");

    // We take over: cert-manager's certificate is kept. A further host is ours from the start, and
    // then both are renewed.
    drop(before);
    let admin = tempfile::tempdir()?;
    let socket = admin.path().join("admin.sock").display().to_string();
    let mut arguments = place.arguments();
    arguments.extend(["--admin".to_owned(), socket.clone()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut during = place.cluster.controller_with("two", &arguments)?;
    during.line("xDS at").await?;
    until_taken_back(&place).await?;
    place.until_served(HOST, &root).await?;
    let more = "more.cert.example.org";
    place.route("more", more).await?;
    place.until_served(more, &root).await?;
    assert_eq!(place.pebble.orders(), 2, "nothing was ordered for it");
    assert_eq!(
        held(&place, HOST).await?.0,
        first.clone(),
        "the certificate is the same"
    );
    for (host, orders) in [(HOST, 3), (more, 4)] {
        let (old, _, _) = held(&place, host).await?;
        let told = e2e::gatewright::Gatewright::run(&["certs", "renew", host, "--admin", &socket])?;
        assert!(
            told.status.success(),
            "{}",
            String::from_utf8_lossy(&told.stderr)
        );
        until("it is renewed", async || {
            Ok(held(&place, host).await?.0 != old)
        })
        .await?;
        assert_eq!(place.pebble.orders(), orders);
    }
    let hosts = [HOST, more];
    let ours = [held(&place, HOST).await?, held(&place, more).await?];
    assert!(
        ours.iter()
            .all(|(_, issuer, by)| issuer.as_deref() == Some("cozystack-gateway") && by.is_some())
    );

    // Back again: cert-manager adopts both.
    drop(during);
    let _after = place.beside_cert_manager("three").await?;
    until_cert_manager_is_content(&place, &hosts).await?;
    quiet(&place.cluster, 0).await?;
    for (host, ours) in hosts.iter().zip(&ours) {
        place.until_served(host, &root).await?;
        assert_eq!(held(&place, host).await?.0, ours.0);
    }
    assert_eq!(place.pebble.orders(), 4, "both hosts are renewed");
    assert_eq!(
        requests(&place).await?,
        0,
        "no request of cert-manager is left"
    );
    assert_eq!(
        place.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes, Envoy, Pebble and cert-manager, and root for the network of pods: e2e/tools install"]
async fn one_tenant_gateway_is_moved_and_served_throughout() -> Result<()> {
    let (place, _kubelet, _cert_manager) = place().await?;
    // The installation stays with cert-manager; its settings for Pebble apply to tenants with the
    // same directory.
    let _controller = place.beside_cert_manager("one").await?;
    let _envoy = place.envoy().await?;
    issued_by(&place, Some("acme")).await?;
    place.route("web", HOST).await?;
    let root = place.pebble.issuing_root(0).await?;
    place.until_served(HOST, &root).await?;
    until_taken_back(&place).await?;
    let (first, _, by) = held(&place, HOST).await?;
    assert!(by.is_some_and(|by| by.contains("cozystack")));

    // To cert-manager, which keeps it; an unknown issuer, which changes nothing; and back.
    let name = certificate_name(HOST);
    let certificate = format!("Certificate {name}");
    let all = [FIXED[0], FIXED[1], "Issuer cozystack-gateway", &certificate];
    for issuer in [None, Some("magic"), Some("cert-manager")] {
        issued_by(&place, issuer).await?;
        if issuer == Some("magic") {
            place
                .cluster
                .until(TENANT, "TenantGateway", SPACE, "cozystack", |o| {
                    o["status"]
                        .to_string()
                        .contains("use cert-manager, acme or internal-ca")
                })
                .await?;
        }
        until_cert_manager_is_content(&place, &[HOST]).await?;
        until_owned(&place.cluster.server, SPACE, &all).await?;
        place.until_served(HOST, &root).await?;
    }
    issued_by(&place, Some("acme")).await?;
    until_taken_back(&place).await?;
    place.until_served(HOST, &root).await?;
    assert_eq!(place.pebble.orders(), 1, "nothing was ordered for it");
    assert_eq!(
        held(&place, HOST).await?.0,
        first,
        "the certificate is the same"
    );

    // Another CA is different: ours issues anew, and when cert-manager takes over again, so does
    // its CA.
    issued_by(&place, Some("internal-ca")).await?;
    until("our CA has signed", async || {
        Ok(held(&place, HOST).await?.1.as_deref() == Some("internal-ca"))
    })
    .await?;
    assert_eq!(place.pebble.orders(), 1);
    issued_by(&place, None).await?;
    until("cert-manager has issued", async || {
        Ok(held(&place, HOST).await?.1.as_deref() == Some(all[2].trim_start_matches("Issuer ")))
    })
    .await?;
    place.until_served(HOST, &root).await?;
    assert_eq!(place.pebble.orders(), 2);
    // A record about the previous one does not apply to it: our CA issues on request.
    issued_by(&place, Some("internal-ca")).await?;
    until("our CA has signed", async || {
        Ok(held(&place, HOST).await?.1.as_deref() == Some("internal-ca"))
    })
    .await?;
    place
        .cluster
        .until(GATEWAY, "Gateway", SPACE, "cozystack", |o| {
            is_true(&o["status"], "Programmed")
        })
        .await?;
    assert_eq!(
        place.cluster.denied()?,
        [],
        "every right that is needed is given"
    );
    Ok(())
}
