//! Certificates of users that end, or that clients refuse: they are told wherever an operator
//! looks, and an expired one stays in service, before and after a restart.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::probe::{Probe, roots_of};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use crate::site::{FORWARD, LIMIT, Site, named, route};

const HOST: &str = "own.example.net";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A CA of alice's, and the certificates that it signs.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// A Secret of alice's with a certificate for a name that ends after this time.
    fn secret(&self, secret: &str, name: &str, ends_after: Duration) -> Result<String> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.not_before = OffsetDateTime::now_utc() - 60 * DAY;
        params.not_after = OffsetDateTime::now_utc() + ends_after;
        let chain = params.signed_by(&key, &self.issuer)?.pem();
        let indent = |pem: &str| {
            pem.lines()
                .map(|line| format!("    {line}\n"))
                .collect::<String>()
        };
        Ok(format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {secret}, namespace: alice}}\ntype: kubernetes.io/tls\n\
             stringData:\n  tls.crt: |\n{}  tls.key: |\n{}---\n",
            indent(&chain),
            indent(&key.serialize_pem())
        ))
    }
}

/// A Gateway of alice's with one listener, and an HTTPRoute of a host there.
fn gateway(port: u16, hostname: &str, host: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: own, namespace: alice}}\n\
         spec:\n  gatewayClassName: ours\n  listeners:\n  - {{name: own, hostname: \"{hostname}\", protocol: HTTPS, port: {port}, \
         tls: {{certificateRefs: [{{name: own}}]}}}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: own, namespace: alice}}\n\
         spec:\n  parentRefs: [{{name: own}}]\n  hostnames: [{host}]\n  rules: [{{backendRefs: [{{name: web, port: 80}}]}}]\n"
    )
}

fn at(port: u16, host: &str) -> Probe {
    Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), host)
}

/// Waits until `gatewright status` has a line with these words, and returns it.
async fn told(site: &Site, words: &[&str]) -> Result<String> {
    let until = Instant::now() + LIMIT;
    loop {
        let (_, text) = site.ask(&["status"])?;
        if let Some(line) = text
            .lines()
            .find(|line| words.iter().all(|word| line.contains(word)))
        {
            return Ok(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        ensure!(
            Instant::now() < until,
            "nothing says {words:?}:\n{text}\n{}",
            site.program.output()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the host is served, by any certificate.
async fn served(site: &Site, probe: &Probe) -> Result<()> {
    let until = Instant::now() + LIMIT;
    while named(probe).await.is_err() {
        ensure!(
            Instant::now() < until,
            "{:?}\n{}",
            named(probe).await,
            site.program.output()
        );
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Returns the rows of `gatewright certs` about alice's Secret, and its exit status.
fn rows(site: &Site) -> Result<(i32, Vec<Value>)> {
    let (code, text) = site.ask(&["certs", "-o", "json"])?;
    let report: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let all = report["certificates"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    Ok((
        code,
        all.into_iter()
            .filter(|row| row["secret"] == "alice/own")
            .collect(),
    ))
}

/// Returns the value of a metric about certificates.
async fn metric(site: &Site, name: &str) -> Result<i64> {
    let text = site.admin("/metrics").await?;
    let line = text.lines().find_map(|line| {
        line.strip_prefix("gatewright_certificates_")?
            .strip_prefix(name)
    });
    Ok(line
        .with_context(|| format!("no metric {name} in {text}"))?
        .trim()
        .parse()?)
}

/// Returns what `lint` finds about alice's objects.
fn linted(site: &Site) -> Result<Vec<String>> {
    let dir = site.manifests.path().display().to_string();
    let output = Gatewright::run(&["lint", &dir])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text
        .lines()
        .filter(|line| line.contains("alice/own"))
        .map(str::to_owned)
        .collect())
}

/// Asserts what clients see of an expired certificate: those that do not check it are served, the
/// others learn why not.
async fn is_expired_for_clients(site: &Site, port: u16, ca: &Ca) -> Result<String> {
    let served = at(port, HOST).send().await?;
    ensure!(
        served.status == 200,
        "a client that does not check: {}",
        served.status
    );
    let refused = at(port, HOST)
        .roots(roots_of(&ca.pem)?)
        .send()
        .await
        .expect_err("it has expired");
    ensure!(
        format!("{refused:?}").to_lowercase().contains("expired"),
        "{refused:?}"
    );
    ensure!(
        site.admin("/readyz").await?.contains("200 OK"),
        "the program is ready"
    );
    Ok(format!("{:?}", served.peer.context("over TLS")?.serial))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_expired_certificate_stays_in_service_and_a_restart_changes_nothing() -> Result<()> {
    let site = Site::start(&[]).await?;
    let port = free_port()?;
    let ca = Ca::new()?;
    site.save(
        "own-secret.yaml",
        &ca.secret("own", HOST, Duration::from_secs(20))?,
    )?;
    site.save("own.yaml", &gateway(port, HOST, HOST))?;
    served(&site, &at(port, HOST)).await?;
    let ended = [
        "gateway alice/own listener own",
        "ResolvedRefs",
        "False",
        "expired at",
    ];
    let before = (
        told(&site, &ended).await?,
        is_expired_for_clients(&site, port, &ca).await?,
    );
    let programmed = [
        "gateway alice/own listener own",
        "Programmed",
        "True",
        "acknowledged by 1 of 1",
    ];
    told(&site, &programmed).await?;
    ensure!(
        metric(&site, "ended ").await? == 1,
        "for the alert of ended ones"
    );
    ensure!(
        metric(&site, "ending ").await? == 0,
        "it hides none that ends"
    );
    let (code, found) = rows(&site)?;
    ensure!(code == 1, "`certs` succeeds with an expired certificate");
    ensure!(
        found[0]["lastError"]
            .as_str()
            .is_some_and(|text| text.contains("expired at")),
        "{found:?}"
    );
    let url = format!("https://{HOST}:{port}/");
    let (code, text) = site.ask(&["explain", &url])?;
    ensure!(code == 1 && text.contains("expired at"), "{code}: {text}");

    let site = site.restart()?;
    served(&site, &at(port, HOST)).await?;
    told(&site, &programmed).await?;
    let after = (
        told(&site, &ended).await?,
        is_expired_for_clients(&site, port, &ca).await?,
    );
    ensure!(before == after, "before: {before:?}\nafter: {after:?}");

    // A new certificate ends all of it.
    site.save("own-secret.yaml", &ca.secret("own", HOST, 90 * DAY)?)?;
    told(
        &site,
        &["gateway alice/own listener own", "ResolvedRefs", "True"],
    )
    .await?;
    let until = Instant::now() + LIMIT;
    while at(port, HOST)
        .roots(roots_of(&ca.pem)?)
        .send()
        .await
        .is_err()
    {
        ensure!(Instant::now() < until, "the new certificate is not served");
        sleep(Duration::from_millis(50)).await;
    }
    let (_, text) = site.ask(&["status"])?;
    ensure!(!text.contains("CertificateWarning"), "{text}");
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_certificate_that_ends_soon_is_seen_wherever_an_operator_looks() -> Result<()> {
    let mut site = Site::start(&[]).await?;
    let port = free_port()?;
    let ca = Ca::new()?;
    let listener = "gateway alice/own listener own";
    site.save("own-secret.yaml", &ca.secret("own", HOST, 90 * DAY)?)?;
    site.save("own.yaml", &gateway(port, HOST, HOST))?;
    served(&site, &at(port, HOST)).await?;
    told(&site, &[listener, "Programmed", "True"]).await?;
    // One that lives long gives no finding.
    let (_, text) = site.ask(&["status"])?;
    ensure!(!text.contains("CertificateWarning"), "{text}");
    ensure!(linted(&site)?.is_empty(), "{:?}", linted(&site)?);
    let (code, found) = rows(&site)?;
    ensure!(code == 0 && found.len() == 1, "{code}: {found:?}");
    ensure!(
        found[0]["issuer"] == "certificateRefs" && found[0]["lastError"].is_null(),
        "{found:?}"
    );

    for (days, notice) in [(10, "within 14 days"), (2, "within 3 days")] {
        site.save("own-secret.yaml", &ca.secret("own", HOST, days * DAY)?)?;
        told(
            &site,
            &[
                listener,
                "gatewright.io/CertificateWarning",
                "CertificateExpiring",
                notice,
            ],
        )
        .await?;
        site.program
            .line("CertificateExpiring: the certificate in Secret alice/own expires")
            .await?;
        let found = linted(&site)?;
        ensure!(found.len() == 1 && found[0].contains(notice), "{found:?}");
        let (_, found) = rows(&site)?;
        ensure!(
            found[0]["lastError"]
                .as_str()
                .is_some_and(|text| text.contains(notice)),
            "{found:?}"
        );
        let soon = metric(&site, "ending ").await?;
        ensure!(
            soon == i64::from(days < 7),
            "{soon} certificates end within a week, and this one in {days} days"
        );
        let end = metric(&site, "next_end_timestamp_seconds ").await?
            - OffsetDateTime::now_utc().unix_timestamp();
        ensure!(
            (i64::from(days) * 86_400 - end).abs() < 3600,
            "the metric says {end}"
        );
        let (code, text) = site.ask(&["explain", &format!("https://{HOST}:{port}/")])?;
        ensure!(code == 0 && text.contains(notice), "{code}: {text}");
        ensure!(
            at(port, HOST)
                .roots(roots_of(&ca.pem)?)
                .send()
                .await
                .is_ok(),
            "clients accept it"
        );
    }
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_wildcard_certificate_counts_for_one_label() -> Result<()> {
    let site = Site::start(&[]).await?;
    let port = free_port()?;
    let ca = Ca::new()?;
    let deep = "a.b.foo.example.net";
    site.save(
        "own-secret.yaml",
        &ca.secret("own", "*.foo.example.net", 90 * DAY)?,
    )?;
    site.save(
        "own.yaml",
        &gateway(
            port,
            "*.foo.example.net",
            &format!("c.foo.example.net, {deep}"),
        ),
    )?;
    let probe = |host: &str| Ok::<_, anyhow::Error>(at(port, host).roots(roots_of(&ca.pem)?));
    served(&site, &probe("c.foo.example.net")?).await?;
    let refused = probe(deep)?
        .send()
        .await
        .expect_err("a wildcard stands for one label");
    ensure!(
        format!("{refused:?}").contains("NotValidForName"),
        "{refused:?}"
    );
    told(
        &site,
        &[
            "httproute alice/own",
            "gatewright.io/CertificateWarning",
            "CertificateNotForHostname",
            deep,
        ],
    )
    .await?;
    let found = linted(&site)?;
    ensure!(
        found.len() == 1 && found[0].contains(deep) && !found[0].contains("c.foo"),
        "{found:?}"
    );
    let ask = |host: &str| site.ask(&["explain", &format!("https://{host}:{port}/")]);
    let (code, text) = ask("c.foo.example.net")?;
    ensure!(code == 0, "{text}");
    let (code, text) = ask(deep)?;
    ensure!(
        code == 1 && text.contains(&format!("not valid for {deep}")),
        "{code}: {text}"
    );

    // The same under a certificate of an issuer of ours.
    site.save(
        "deep.yaml",
        &route("alice", "own-deep", "x.y.example.org", FORWARD),
    )?;
    let words = [
        "httproute alice/own-deep at edge",
        "CertificateNotForHostname",
        "it names *.example.org",
    ];
    told(&site, &words).await?;
    ensure!(
        linted(&site)?
            .iter()
            .any(|line| line.contains("alice/own-deep")),
        "{:?}",
        linted(&site)?
    );
    let (code, text) = site.ask(&[
        "explain",
        &format!("https://x.y.example.org:{}/", site.https),
    ])?;
    ensure!(
        code == 1 && text.contains("not valid for x.y.example.org"),
        "{code}: {text}"
    );
    site.alice_is_unharmed(1).await
}
