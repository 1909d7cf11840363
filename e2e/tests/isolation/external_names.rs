//! Services of type ExternalName with a real BIND: changes of the name are followed, nothing that
//! is denied is ever connected to, and the names of two tenants are apart.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use e2e::bind::{Bind, BindZone};
use e2e::echo::Echo;
use e2e::port::free_port;
use e2e::probe::Answer;
use e2e::tls_backend::{TestRoot, TlsBackend};
use tokio::time::{Duration, Instant, sleep};

use crate::site::{LIMIT, Site, named, route};

pub(crate) const ZONE: &str = "partner.example";
pub(crate) const NAME: &str = "api.partner.example";
pub(crate) const HOST: &str = "mallory.example.org";
/// Addresses that names may have in these tests.
pub(crate) const FIRST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub(crate) const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// An address that they may not have.
pub(crate) const DENIED: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Rules that forward to the Service `partner`.
const FORWARD: &str = "[{backendRefs: [{name: partner, port: 80}]}]";

/// A policy by which backends outside of the cluster get their own names as the host.
const OWN_HOST: &str = "apiVersion: gatewright.io/v1alpha1\nkind: TrafficPolicy\n\
    metadata: {name: host, namespace: mallory}\n\
    spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web}], \
    rewrite: {hostname: {type: Backend}}}\n";

/// A program that asks this BIND, and lets names have two addresses of this machine.
pub(crate) async fn site(bind: &Bind, more: &[&str]) -> Result<Site> {
    let settings = format!(
        "backends.externalNames={{enabled: true, resolvers: [\"{}\"], allowedNetworks: [{FIRST}/32, {SECOND}/32]}}",
        bind.address()
    );
    Site::start(&[&["--set", &settings], more].concat()).await
}

pub(crate) async fn bind(address: Ipv4Addr) -> Result<Bind> {
    let zone = BindZone::new(ZONE)
        .open()
        .records(&format!("api 1 A {address}"));
    Bind::start(&[], &[zone]).await
}

/// A Service of type ExternalName.
fn external(namespace: &str, name: &str, target: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: partner, namespace: {namespace}}}\n\
         spec: {{type: ExternalName, externalName: {name}, ports: [{{port: 80, targetPort: {target}}}]}}\n---\n"
    )
}

/// The same program at several addresses, on one port.
pub(crate) async fn everywhere(addresses: &[(&str, Ipv4Addr)]) -> Result<(u16, Vec<Echo>)> {
    let port = free_port()?;
    let mut echoes = Vec::new();
    for (name, address) in addresses {
        echoes.push(Echo::start_at(name, &address.to_string(), port).await?);
    }
    Ok((port, echoes))
}

/// Waits until a condition of mallory's route has this text, and none of others has the name.
pub(crate) async fn told(site: &Site, text: &str) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let (_, told) = site.ask(&["status"])?;
        let conditions = told.split("\n\n").nth(1).unwrap_or_default();
        let (hers, others): (Vec<&str>, Vec<&str>) = conditions
            .lines()
            .partition(|line| line.contains("mallory/"));
        ensure!(
            !others.iter().any(|line| line.contains(NAME)),
            "it is told to others: {others:#?}"
        );
        if hers.iter().any(|line| line.contains(text)) {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{text:?} is not told: {told}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and BIND"]
async fn changes_of_a_name_are_followed_until_it_ends() -> Result<()> {
    let bind = bind(FIRST).await?;
    let (port, _echoes) = everywhere(&[("first", FIRST), ("second", SECOND)]).await?;
    let site = site(&bind, &[]).await?;
    site.save("names.yaml", &external("mallory", NAME, port))?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    site.served_by(HOST, "first").await?;
    let (_, explained) = site.ask(&["explain", &format!("http://{HOST}:{}/", site.http)])?;
    ensure!(
        explained.contains(&format!("1 of {NAME}: {FIRST}:{port}")),
        "{explained}"
    );
    // It gets the host of the client, or its own name where a policy says so.
    let host_is = |host: &'static str| {
        move |answer: &Answer| {
            let found = answer.echoed("host").unwrap_or_default();
            found.as_str().is_some_and(|found| found.starts_with(host))
        }
    };
    site.answered_so(&site.plain(HOST), "of the client", host_is(HOST))
        .await?;
    site.save("host.yaml", OWN_HOST)?;
    site.answered_so(&site.plain(HOST), "its own", host_is(NAME))
        .await?;
    bind.replace(ZONE, NAME, 1, &[SECOND]).await?;
    site.served_by(HOST, "second").await?;
    site.answered_so(&site.plain(HOST), "its own", host_is(NAME))
        .await?;
    // The last address is used for a while, and then no more.
    bind.replace(ZONE, NAME, 1, &[]).await?;
    site.answered_with(&site.plain(HOST), 503).await?;
    told(&site, "NXDOMAIN").await?;
    bind.replace(ZONE, NAME, 1, &[FIRST]).await?;
    site.served_by(HOST, "first").await?;
    site.alice_is_unharmed(1).await
}

/// Has the name lead to addresses that are denied, alone and beside a good one: nothing is sent to
/// them, and the good one, at [`SECOND`] with the backend `other`, is used.
pub(crate) async fn never_inside(site: &Site, bind: &Bind, port: u16) -> Result<()> {
    for (address, network) in [
        (DENIED, "127.0.0.0/8"),
        (Ipv4Addr::new(10, 0, 0, 1), "10.0.0.0/8"),
        (Ipv4Addr::new(169, 254, 169, 254), "link-local"),
    ] {
        bind.replace(ZONE, NAME, 1, &[address]).await?;
        told(site, &format!("{address}:{port} (")).await?;
        told(site, network).await?;
        site.answered_with(&site.plain(HOST), 503).await?;
        let (_, explained) = site.ask(&["explain", &format!("http://{HOST}:{}/", site.http)])?;
        ensure!(
            explained.contains(&address.to_string()) && explained.contains(network),
            "{explained}"
        );
        // Good ones beside it are used.
        bind.replace(ZONE, NAME, 1, &[address, SECOND]).await?;
        site.served_by(HOST, "other").await?;
        for _ in 0..20 {
            let found = named(&site.plain(HOST)).await?;
            ensure!(found == "other", "answered by {found}");
        }
        told(site, &address.to_string()).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and BIND"]
async fn a_name_that_comes_to_lead_inside_is_not_followed() -> Result<()> {
    let bind = bind(FIRST).await?;
    let (port, echoes) =
        everywhere(&[("outside", FIRST), ("inside", DENIED), ("other", SECOND)]).await?;
    let site = site(&bind, &[]).await?;
    site.save("names.yaml", &external("mallory", NAME, port))?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    site.served_by(HOST, "outside").await?;
    never_inside(&site, &bind, port).await?;
    ensure!(echoes[1].requests() == 0, "a denied address got a request");
    // The port of the Gateway is Envoy itself.
    bind.replace(ZONE, NAME, 1, &[DENIED]).await?;
    site.save("names.yaml", &external("mallory", NAME, site.http))?;
    let endpoint = format!("{DENIED}:{}", site.http);
    told(&site, &format!("{endpoint} (where Envoy listens itself)")).await?;
    site.answered_with(&site.plain(HOST), 503).await?;
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and BIND"]
async fn names_of_the_cluster_and_numbers_of_names_have_limits() -> Result<()> {
    let bind = bind(FIRST).await?;
    let (port, _echoes) = everywhere(&[("first", FIRST)]).await?;
    let site = site(&bind, &["--set", "limits.namespace.externalNames=1"]).await?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    for name in [
        "web.alice.svc.cluster.local",
        "web.alice.svc",
        "localhost",
        "10.0.0.1",
    ] {
        site.save("names.yaml", &external("mallory", name, port))?;
        told(
            &site,
            &format!("spec.externalName {name:?} is not resolved"),
        )
        .await?;
        site.answered_with(&site.plain(HOST), 500).await?;
    }
    site.save("names.yaml", &external("mallory", NAME, port))?;
    site.served_by(HOST, "first").await?;
    // Of equal age, the first by name is within the limit.
    let second = external("mallory", NAME, port).replace("name: partner", "name: second");
    site.save("second.yaml", &second)?;
    let host = "second.example.org";
    let rules = FORWARD.replace("partner", "second");
    site.save(
        "second-route.yaml",
        &route("mallory", "second", host, &rules),
    )?;
    told(&site, "limits.namespace.externalNames 1").await?;
    site.answered_with(&site.plain(host), 503).await?;
    // Another namespace has its own.
    site.save("alice-names.yaml", &external("alice", NAME, port))?;
    let theirs = "partner-of-alice.example.org";
    site.save(
        "alice-route.yaml",
        &route("alice", "partner", theirs, FORWARD),
    )?;
    site.served_by(theirs, "first").await?;
    site.served_by(HOST, "first").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and BIND"]
async fn tenants_with_one_name_are_apart() -> Result<()> {
    let bind = bind(FIRST).await?;
    let (port, _echoes) = everywhere(&[("first", FIRST), ("second", SECOND)]).await?;
    let site = site(&bind, &[]).await?;
    let theirs = "partner-of-alice.example.org";
    site.save("alice-names.yaml", &external("alice", NAME, port))?;
    site.save(
        "alice-route.yaml",
        &route("alice", "partner", theirs, FORWARD),
    )?;
    site.served_by(theirs, "first").await?;
    // Nobody listens at the port of hers; alice's is served meanwhile.
    site.save("names.yaml", &external("mallory", NAME, free_port()?))?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    site.answered_with(&site.plain(HOST), 503).await?;
    site.served_by(theirs, "first").await?;
    // Without a grant she has no part in alice's.
    let across = "[{backendRefs: [{name: partner, namespace: alice, port: 80}]}]";
    site.save("mallory.yaml", &route("mallory", "web", HOST, across))?;
    told(&site, "RefNotPermitted").await?;
    site.answered_with(&site.plain(HOST), 500).await?;
    // Her other names do not answer, as many as she may have; alice's is followed all the same.
    let mut many = String::new();
    for number in 0..15 {
        let service = external("mallory", &format!("n{number}.partner.invalid"), port);
        many.push_str(&service.replace("name: partner", &format!("name: n{number}")));
        let rules = FORWARD.replace("partner", &format!("n{number}"));
        let host = format!("n{number}.mallory.example.org");
        write!(
            many,
            "{}",
            route("mallory", &format!("n{number}"), &host, &rules)
        )?;
    }
    site.save("many.yaml", &many)?;
    bind.replace(ZONE, NAME, 1, &[SECOND]).await?;
    site.served_by(theirs, "second").await?;
    site.save("mallory.yaml", &route("mallory", "web", HOST, FORWARD))?;
    site.save("names.yaml", &external("mallory", NAME, port))?;
    site.served_by(HOST, "second").await?;
    site.remove("alice-names.yaml")?;
    site.answered_with(&site.plain(theirs), 500).await?;
    site.served_by(HOST, "second").await
}

/// A BackendTLSPolicy for the Service.
fn policy(hostname: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\n\
         metadata: {{name: partner, namespace: mallory}}\nspec:\n  \
         targetRefs: [{{group: \"\", kind: Service, name: partner}}]\n  \
         validation: {{hostname: {hostname}, caCertificateRefs: [{{group: \"\", kind: ConfigMap, name: ca}}]}}\n---\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and BIND"]
async fn a_backend_by_name_is_verified_by_its_policy() -> Result<()> {
    let bind = bind(FIRST).await?;
    let root = TestRoot::new("partner")?;
    let shown = root.issue(NAME, None)?;
    let backend = TlsBackend::start_on(&FIRST.to_string(), &shown, None).await?;
    let site = site(&bind, &[]).await?;
    let pem = root.pem().replace('\n', "\n    ");
    site.save(
        "ca.yaml",
        &format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ca, namespace: mallory}}\ndata:\n  ca.crt: |\n    {pem}\n"
        ),
    )?;
    site.save("policy.yaml", &policy(NAME))?;
    site.save(
        "names.yaml",
        &external("mallory", NAME, backend.address().port()),
    )?;
    let rules = format!(
        "[{{filters: [{{type: URLRewrite, urlRewrite: {{hostname: {NAME}}}}}], {}",
        FORWARD.trim_start_matches("[{")
    );
    site.save("mallory.yaml", &route("mallory", "web", HOST, &rules))?;
    site.answered_with(&site.plain(HOST), 200).await?;
    let seen = site.plain(HOST).send().await?;
    let seen: serde_json::Value = serde_json::from_slice(&seen.body).context("what it saw")?;
    ensure!(seen["sni"] == NAME, "{seen}");
    site.save("policy.yaml", &policy("other.example"))?;
    site.answered_with(&site.plain(HOST), 503).await?;
    Ok(())
}
