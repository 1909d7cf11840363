//! XBackends with a real BIND: each is a name of its namespace, as a Service of type ExternalName
//! is, with a TLS of its own.

use anyhow::{Context, Result, ensure};
use e2e::port::free_port;
use e2e::tls_backend::{TestRoot, TlsBackend};

use crate::external_names::{
    DENIED, FIRST, HOST, NAME, SECOND, ZONE, bind, everywhere, never_inside, site, told,
};
use crate::site::{Site, route};

const EXPERIMENTAL: [&str; 2] = ["--set", "gatewayApi.channel=Experimental"];

/// Rules that forward to the XBackend `partner`.
const FORWARD: &str =
    "[{backendRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: partner}]}]";

/// An XBackend, with more fields of its specification.
fn xbackend(namespace: &str, name: &str, port: u16, more: &str) -> String {
    format!(
        "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackend\n\
         metadata: {{name: partner, namespace: {namespace}}}\n\
         spec: {{type: ExternalHostname, externalHostname: {{hostname: {name}}}, port: {{number: {port}}}{more}}}\n---\n"
    )
}

/// The field `tls` of an XBackend whose certificate is verified for this name.
fn verified_as(hostname: &str) -> String {
    format!(
        ", tls: {{mode: ServerOnly, validation: {{hostname: {hostname}, \
         caCertificateRefs: [{{group: \"\", kind: ConfigMap, name: ca}}]}}}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and BIND"]
async fn an_xbackend_is_verified_by_its_own_tls() -> Result<()> {
    let bind = bind(FIRST).await?;
    let root = TestRoot::new("partner")?;
    let shown = root.issue(NAME, None)?;
    let backend = TlsBackend::start_on(&FIRST.to_string(), &shown, None).await?;
    let port = backend.address().port();
    let site = site(&bind, &EXPERIMENTAL).await?;
    let pem = root.pem().replace('\n', "\n    ");
    let ca = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ca, namespace: mallory}}\ndata:\n  ca.crt: |\n    {pem}\n"
    );
    site.save("ca.yaml", &ca)?;
    site.save(
        "partner.yaml",
        &xbackend("mallory", NAME, port, &verified_as(NAME)),
    )?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    site.answered_with(&site.plain(HOST), 200).await?;
    let seen = site.plain(HOST).send().await?;
    let seen: serde_json::Value = serde_json::from_slice(&seen.body).context("what it saw")?;
    ensure!(seen["sni"] == NAME, "{seen}");
    let (_, explained) = site.ask(&["explain", &format!("http://{HOST}:{}/", site.http)])?;
    for part in [
        "XBackend mallory/partner with weight 1".to_owned(),
        format!("verified as {NAME} (xbackend mallory/partner)"),
        format!("1 of {NAME}: {FIRST}:{port}"),
    ] {
        ensure!(explained.contains(&part), "{part:?} in {explained}");
    }
    // The certificate is for another name.
    let other = xbackend("mallory", NAME, port, &verified_as("other.example"));
    site.save("partner.yaml", &other)?;
    site.answered_with(&site.plain(HOST), 503).await?;
    site.save(
        "partner.yaml",
        &xbackend("mallory", NAME, port, &verified_as(NAME)),
    )?;
    site.answered_with(&site.plain(HOST), 200).await?;
    // Without its CA certificates nothing is sent, and the object says so.
    site.remove("ca.yaml")?;
    site.answered_with(&site.plain(HOST), 503).await?;
    told(&site, "nothing is sent to it").await?;
    site.save("ca.yaml", &ca)?;
    site.answered_with(&site.plain(HOST), 200).await?;
    // A client certificate is not supported: the route is refused, and never served without it.
    let both = verified_as(NAME).replace("ServerOnly", "ClientAndServer");
    site.save("partner.yaml", &xbackend("mallory", NAME, port, &both))?;
    site.answered_with(&site.plain(HOST), 500).await?;
    told(&site, "tls.clientCertificateRef").await?;
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and BIND"]
async fn an_xbackend_leads_nowhere_inside() -> Result<()> {
    let bind = bind(FIRST).await?;
    let (port, echoes) =
        everywhere(&[("outside", FIRST), ("inside", DENIED), ("other", SECOND)]).await?;
    let site = site(&bind, &EXPERIMENTAL).await?;
    site.save("partner.yaml", &xbackend("mallory", NAME, port, ""))?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    site.served_by(HOST, "outside").await?;
    never_inside(&site, &bind, port).await?;
    ensure!(echoes[1].requests() == 0, "a denied address got a request");
    // The port of the Gateway is Envoy itself.
    bind.replace(ZONE, NAME, 1, &[DENIED]).await?;
    site.save("partner.yaml", &xbackend("mallory", NAME, site.http, ""))?;
    told(&site, "(where Envoy listens itself)").await?;
    site.answered_with(&site.plain(HOST), 503).await?;
    // Names of the cluster are not looked up.
    for name in ["web.alice.svc", "localhost.localhost", "web"] {
        site.save("partner.yaml", &xbackend("mallory", name, port, ""))?;
        told(
            &site,
            &format!("spec.externalHostname.hostname {name:?} is not resolved"),
        )
        .await?;
        site.answered_with(&site.plain(HOST), 500).await?;
    }
    site.alice_is_unharmed(1).await
}

/// One namespace has so many names, of Services and XBackends together.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and BIND"]
async fn an_xbackend_of_another_namespace_needs_a_grant_and_counts_there() -> Result<()> {
    let bind = bind(FIRST).await?;
    let (port, _echoes) = everywhere(&[("first", FIRST), ("second", SECOND)]).await?;
    let limit = ["--set", "limits.namespace.externalNames=1"];
    let site = site(&bind, &[EXPERIMENTAL, limit].concat()).await?;
    let theirs = "partner-of-alice.example.org";
    site.save("alice-partner.yaml", &xbackend("alice", NAME, port, ""))?;
    site.save(
        "alice-route.yaml",
        &route("alice", "partner", theirs, FORWARD),
    )?;
    site.served_by(theirs, "first").await?;

    let across = FORWARD.replace("name: partner", "name: partner, namespace: alice");
    site.save("mallory.yaml", &route("mallory", "web", HOST, &across))?;
    told(&site, "RefNotPermitted").await?;
    site.answered_with(&site.plain(HOST), 500).await?;
    // A grant to Services is none, by whatever name she asks.
    let grant = "apiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\n\
         metadata: {name: partner, namespace: alice}\nspec:\n  \
         from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: mallory}]\n  \
         to: [{group: \"\", kind: Service}]\n---\n";
    site.save("grant.yaml", grant)?;
    let named_so = "[{backendRefs: [{name: \"xbackend:partner\", namespace: alice, port: 80}]}]";
    site.save("mallory.yaml", &route("mallory", "web", HOST, named_so))?;
    told(&site, "InvalidKind").await?;
    site.answered_with(&site.plain(HOST), 500).await?;
    let to = "group: gateway.networking.x-k8s.io, kind: XBackend";
    site.save("mallory.yaml", &route("mallory", "web", HOST, &across))?;
    told(&site, "RefNotPermitted").await?;
    site.save(
        "grant.yaml",
        &grant.replace("group: \"\", kind: Service", to),
    )?;
    site.served_by(HOST, "first").await?;
    site.remove("grant.yaml")?;
    site.answered_with(&site.plain(HOST), 500).await?;

    // Hers are counted for her, Services and XBackends together, and alice's go on.
    let second = "second.example.org";
    site.save(
        "names.yaml",
        &xbackend("mallory", NAME, port, "").replace("name: partner", "name: z"),
    )?;
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: partner, namespace: mallory}}\n\
         spec: {{type: ExternalName, externalName: {NAME}, ports: [{{port: {port}}}]}}\n---\n"
    );
    site.save("service.yaml", &service)?;
    let own = format!("[{{backendRefs: [{{name: partner, port: {port}}}]}}]");
    site.save("mallory.yaml", &route("mallory", "web", HOST, &own))?;
    site.served_by(HOST, "first").await?;
    let rules = FORWARD.replace("name: partner", "name: z");
    site.save("second.yaml", &route("mallory", "second", second, &rules))?;
    told(&site, "limits.namespace.externalNames 1").await?;
    site.answered_with(&site.plain(second), 503).await?;
    site.served_by(HOST, "first").await?;
    // Nobody listens where hers leads; alice's name is followed meanwhile.
    site.remove("service.yaml")?;
    site.save(
        "names.yaml",
        &xbackend("mallory", NAME, free_port()?, "").replace("name: partner", "name: z"),
    )?;
    site.answered_with(&site.plain(second), 503).await?;
    bind.replace(ZONE, NAME, 1, &[SECOND]).await?;
    site.served_by(theirs, "second").await?;
    // It goes with its object.
    site.remove("alice-partner.yaml")?;
    site.answered_with(&site.plain(theirs), 500).await?;
    absent_on_the_standard_channel(&bind).await
}

async fn absent_on_the_standard_channel(bind: &e2e::bind::Bind) -> Result<()> {
    let site: Site = site(bind, &[]).await?;
    site.save("partner.yaml", &xbackend("mallory", NAME, free_port()?, ""))?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    told(&site, "gatewayApi.channel is standard").await?;
    site.answered_with(&site.plain(HOST), 500).await?;
    Ok(())
}
