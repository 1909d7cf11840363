//! Authorization servers of mallory: they are asked about none of alice's requests, and mallory's
//! policies have a Service of alice's by a grant alone.

use anyhow::{Result, ensure};
use e2e::auth::AuthServer;

use crate::access::{POLICY, answered, everything, grant, listeners, target};
use crate::site::{FORWARD, Site, route};

const HOST: &str = "mallory.example.org";

/// A policy of mallory's on these targets that asks Service `web` of a namespace.
fn policy(targets: &str, namespace: &str) -> String {
    format!(
        "{POLICY}metadata: {{name: asking, namespace: mallory}}\n\
         spec: {{targetRefs: [{targets}], externalAuth: {{protocol: HTTP, \
         backendRef: {{name: web, namespace: {namespace}, port: 80}}}}}}\n---\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_stranger_is_asked_about_requests_of_her_own_hosts_alone() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    let before = listeners(&site).await?;
    // Her server refuses everybody.
    let server = AuthServer::start().await?;
    let refusing =
        crate::site::service("mallory", server.address()).replace("name: web", "name: refusing");
    let own = policy(&everything(), "mallory").replace("name: web", "name: refusing");
    site.save("mallory.yaml", &(refusing + &own))?;
    answered(&site, HOST, 401).await?;
    server.asked();
    answered(&site, "alice.example.org", 200).await?;
    ensure!(server.asked().is_empty(), "her server was asked");
    // Alice's Service is hers: a policy that names it closes mallory's own host, whether it is
    // there or not, and sends it nothing.
    let requests = site.alice.requests();
    site.save(
        "mallory.yaml",
        &policy(&target("HTTPRoute", "own"), "alice"),
    )?;
    answered(&site, HOST, 500).await?;
    ensure!(site.alice.requests() == requests, "alice's was asked");
    site.save("grant.yaml", &grant("Service", "web"))?;
    answered(&site, HOST, 200).await?;
    ensure!(site.alice.requests() > requests, "alice permits it");
    ensure!(listeners(&site).await? == before, "listeners changed");
    site.alice_is_unharmed(1).await
}
