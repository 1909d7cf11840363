//! Logins of alice: mallory's policies ask for none at alice's hosts and have her client secret by
//! a grant alone, and no session of one opens a host of the other, even by the same client.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::gatewright::Gatewright;
use e2e::oidc::{Browser, CLIENT_SECRET, ISSUER_HOST, Provider, client_secret, login};
use e2e::probe::Probe;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::access::{everything, grant, listeners};
use crate::site::{FORWARD, Site, route};

/// Time limit of a wait on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
const HOST: &str = "mallory.example.org";
const GUARDED: &str = "guarded.example.org";

/// The policy `login` of a namespace on these targets, with the client secret of a namespace.
fn policy(namespace: &str, targets: &str, secret_of: &str) -> String {
    let mut oidc = login();
    oidc["clientSecret"]["namespace"] = json!(secret_of);
    format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: AccessPolicy\n\
         metadata: {{name: login, namespace: {namespace}}}\n\
         spec: {{targetRefs: [{targets}], oidc: {oidc}}}\n---\n"
    )
}

fn on(route: &str) -> String {
    crate::access::target("HTTPRoute", route)
}

/// The provider and the client secret in a namespace.
fn client(provider: &Provider, namespace: &str) -> String {
    let mut objects = provider.objects(namespace);
    objects.push(client_secret(namespace, "login", CLIENT_SECRET));
    objects
        .iter()
        .map(|object| format!("{object}\n---\n"))
        .collect()
}

fn page(probe: Probe) -> Probe {
    probe.header("accept", "text/html")
}

/// Waits until cookies of mallory's host are for the domain.
async fn until_shared(site: &Site) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = page(site.tls(HOST)).send().await?;
        let cookies = answer.headers.get_all("set-cookie").iter();
        let mut texts = cookies.filter_map(|cookie| cookie.to_str().ok());
        if texts.any(|text| text.to_ascii_lowercase().contains("domain=example.org")) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{answer:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_session_of_one_tenant_opens_no_host_of_another() -> Result<()> {
    let back = [HOST, GUARDED].map(|host| format!("https://{host}/oauth2/callback"));
    let provider = Provider::start(&back.each_ref().map(String::as_str)).await?;
    let site = Site::start(&[]).await?;
    site.save("mallory-host.yaml", &route("mallory", "own", HOST, FORWARD))?;
    site.served_by(HOST, "mallory").await?;
    let own = route("alice", "guarded", GUARDED, FORWARD)
        + &client(&provider, "alice")
        + &policy("alice", &on("guarded"), "alice");
    site.save("guarded.yaml", &own)?;
    site.answered_with(&page(site.tls(GUARDED)), 302).await?;
    site.answered_with(&page(site.plain(GUARDED)), 500).await?;
    let before = listeners(&site).await?;
    // The same client in mallory's namespace; her policy names alice's routes and the Gateway.
    let hers = client(&provider, "mallory");
    site.save("mallory-id.yaml", &hers)?;
    site.save("mallory.yaml", &policy("mallory", &everything(), "mallory"))?;
    // A login is for routes: the whole policy is refused, and closes what is hers.
    site.answered_with(&page(site.tls(HOST)), 500).await?;
    site.served_by("alice.example.org", "alice").await?;
    let routes = [on("web"), on("guarded"), on("own")].join(", ");
    site.save("mallory.yaml", &policy("mallory", &routes, "mallory"))?;
    site.answered_with(&page(site.tls(HOST)), 302).await?;
    site.served_by("alice.example.org", "alice").await?;
    // Sessions: hers is hers alone.
    let own = SocketAddr::from((Ipv4Addr::LOCALHOST, site.https));
    let hosts = [
        (HOST, own),
        (GUARDED, own),
        (ISSUER_HOST, provider.address()),
    ];
    let mut browser = Browser::new(&hosts);
    let start = format!("https://{HOST}/a");
    let back = browser.log_in(&start).await?;
    let (url, answer) = browser.follow(&back).await?;
    ensure!((&url, answer.status) == (&start, 200), "{answer:?}");
    let mut thief = Browser::new(&hosts);
    for (name, value) in browser.cookies(HOST) {
        thief.set_cookie(GUARDED, &name, &value);
        thief.set_cookie(GUARDED, &name.replace(".mallory.", ".alice."), &value);
    }
    ensure!(!thief.cookies(GUARDED).is_empty(), "she has cookies");
    let guarded = format!("https://{GUARDED}/a");
    let answer = thief.open(&guarded).await?;
    ensure!(answer.status == 302, "alice's host opens: {answer:?}");
    let name = "x-forwarded-host";
    let pretends = browser.cookies(HOST);
    let pretends = pretends
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let pretends = pretends.collect::<Vec<_>>().join("; ");
    let probe = page(site.tls(GUARDED)).header("cookie", &pretends);
    probe.header(name, HOST).answered(302).await?;
    // A way back to her host is none to alice's.
    let mut other = Browser::new(&hosts);
    let back = other.log_in(&format!("https://{HOST}/b")).await?;
    let answer = thief.open(&back.replace(HOST, GUARDED)).await?;
    ensure!(answer.status == 401, "{answer:?}");
    // In a domain that both hosts are in: alice's host gets the cookies, and they open nothing.
    let shared = policy("mallory", &routes, "mallory");
    let shared = shared.replace("oidc: {", "oidc: {\"cookieDomain\": \"example.org\", ");
    site.save("mallory.yaml", &shared)?;
    until_shared(&site).await?;
    let mut both = Browser::new(&hosts);
    let back = both.log_in(&start).await?;
    let (_, answer) = both.follow(&back).await?;
    ensure!(answer.status == 200, "{answer:?}");
    ensure!(!both.cookies(GUARDED).is_empty(), "alice's host gets them");
    let answer = both.open(&guarded).await?;
    ensure!(answer.status == 302, "alice's host opens: {answer:?}");
    let back = both.log_in(&guarded).await?;
    let (url, answer) = both.follow(&back).await?;
    ensure!((&url, answer.status) == (&guarded, 200), "beside hers");
    // Alice's secret is not hers to name.
    site.save("mallory.yaml", &policy("mallory", &routes, "alice"))?;
    site.answered_with(&page(site.tls(HOST)), 500).await?;
    site.save("grant.yaml", &grant("Secret", "login"))?;
    site.answered_with(&page(site.tls(HOST)), 302).await?;
    site.remove("grant.yaml")?;
    site.answered_with(&page(site.tls(HOST)), 500).await?;
    site.answered_with(&page(site.tls(GUARDED)), 302).await?;
    ensure!(
        listeners(&site).await? == before,
        "no listener changes for logins"
    );
    // No output has a secret.
    let shown = site.envoy_config()?;
    ensure!(shown.contains("sds/oidc-client@alice/login"), "it is there");
    ensure!(!shown.contains(CLIENT_SECRET), "the configuration of Envoy");
    let output = site.program.output();
    ensure!(!output.contains(CLIENT_SECRET), "the log");
    for (name, value) in browser.cookies(HOST) {
        ensure!(
            !output.contains(&value) || name.contains("expires"),
            "{name}"
        );
    }
    let files = site.manifests.path().display().to_string();
    for command in ["lint", "translate"] {
        let told = Gatewright::run(&[command, &files])?;
        for stream in [told.stdout, told.stderr] {
            let text = String::from_utf8_lossy(&stream).into_owned();
            ensure!(!text.contains(CLIENT_SECRET), "{command}: {text}");
        }
    }
    site.alice_is_unharmed(1).await
}
