//! Certificates by ACME in the program: Pebble asks our Envoy, and what it issues is served.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use acme::client::Roots;
use anyhow::{Context, Result, bail, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::pebble::{Options, Pebble};
use e2e::probe::{Answer, Failure, Probe};
use e2e::world::free_port;
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const LIMIT: Duration = Duration::from_secs(60);

/// A CA, an echo, a directory of manifests, a private directory, and the program over them.
struct Site {
    pebble: Pebble,
    program: Option<Gatewright>,
    manifests: TempDir,
    state: TempDir,
    port: u16,
    echo: Echo,
}

fn listener(name: &str, host: &str, port: u16, issuer: &str) -> String {
    format!(
        "  - {{name: {name}, hostname: \"{host}\", protocol: HTTPS, port: {port}, \
         tls: {{options: {{gatewright.io/issuer: {issuer}}}}}}}\n"
    )
}

impl Site {
    async fn new() -> Result<Self> {
        let pebble = Pebble::start(&Options::default()).await?;
        let (manifests, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
        fs::set_permissions(state.path(), fs::Permissions::from_mode(0o700))?;
        let Roots::Pem(ca) = pebble.roots() else { bail!("Pebble's roots are in PEM") };
        fs::write(state.path().join("pebble.pem"), ca)?;
        let site =
            Self { pebble, program: None, manifests, state, port: free_port()?, echo: Echo::start("web").await? };
        site.save(
            "backend.yaml",
            &format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{ports: [{{port: 80}}]}}\n---\n\
                 apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                 metadata: {{name: web, labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\n\
                 endpoints: [{{addresses: [127.0.0.1]}}]\nports: [{{port: {}}}]\n---\n\
                 apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: ours}}\n\
                 spec: {{controllerName: gatewright.io/gateway-controller}}\n---\n\
                 apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: web}}\nspec:\n  \
                 parentRefs: [{{name: edge}}]\n  rules:\n  - backendRefs: [{{name: web, port: 80}}]\n",
                site.echo.address().port()
            ),
        )?;
        Ok(site)
    }

    /// Puts a file in its place, complete.
    fn save(&self, name: &str, text: &str) -> Result<()> {
        let new = self.manifests.path().join(format!(".{name}.new"));
        fs::write(&new, text)?;
        fs::rename(new, self.manifests.path().join(name)).context("renaming into place")
    }

    /// The Gateway with these listeners, as (host, issuer), and no listener on port 80.
    fn publish(&self, hosts: &[(&str, &str)]) -> Result<()> {
        let listeners: String = hosts
            .iter()
            .enumerate()
            .map(|(i, (host, issuer))| listener(&format!("l{i}"), host, self.port, issuer))
            .collect();
        self.save(
            "gateway.yaml",
            &format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\nspec:\n  \
                 gatewayClassName: ours\n  listeners:\n{listeners}"
            ),
        )
    }

    fn start(&mut self, more: &[&str]) -> Result<()> {
        let directory = self.pebble.directory();
        self.start_at(&directory, more)
    }

    fn start_at(&mut self, directory: &str, more: &[&str]) -> Result<()> {
        let text = |path: &Path| path.display().to_string();
        let (dir, private) = (text(self.manifests.path()), text(self.state.path()));
        let (ca, port) = (text(&self.state.path().join("pebble.pem")), self.pebble.http_port.to_string());
        let envoy = text(&e2e::envoy::binary()?.canonicalize()?);
        let own = [
            "standalone",
            &dir,
            "--state-dir",
            &private,
            "--envoy",
            &envoy,
            "--acme-directory",
            directory,
            "--acme-ca-bundle",
            &ca,
            "--acme-agree-to-terms",
            "--acme-http-port",
            &port,
        ];
        self.program = Some(Gatewright::start(&[&own[..], more].concat())?);
        Ok(())
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    async fn get(&self, host: &str) -> Result<Answer, Failure> {
        Probe::https(self.address(), host).send().await
    }

    /// Waits until a host is served over TLS, with a certificate that Pebble vouches for.
    async fn served(&self, host: &str) -> Result<Answer> {
        let mut roots = RootCertStore::empty();
        let pem = self.pebble.issuing_root(0).await?;
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes())?)?;
        let probe = Probe::https(self.address(), host).roots(roots);
        let until = Instant::now() + LIMIT;
        loop {
            match probe.send().await {
                Ok(answer) => return Ok(answer),
                Err(error) if Instant::now() > until => {
                    let log = self.program.as_ref().map(Gatewright::output).unwrap_or_default();
                    let (_, certs) = self.ask(&["certs"])?;
                    bail!("{host}: {error}\n{certs}\n{log}");
                }
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn ask(&self, args: &[&str]) -> Result<(i32, String)> {
        let private = self.state.path().display().to_string();
        let output = Gatewright::run(&[args, &["--state-dir", &private]].concat())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code().context("it was killed")?, text))
    }

    /// The row of a host in `certs`, once it is as it should be.
    async fn row(&self, host: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let until = Instant::now() + LIMIT;
        loop {
            let (_, text) = self.ask(&["certs", "-o", "json"])?;
            // At the very start nobody answers.
            let report: Value = serde_json::from_str(&text).unwrap_or_default();
            let rows = report["certificates"].as_array().map(Vec::as_slice).unwrap_or_default();
            match rows.iter().find(|row| row["hosts"][0] == host) {
                Some(row) if is_so(row) => return Ok(row.clone()),
                _ if Instant::now() > until => bail!("{host}: {text}"),
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

fn serial(answer: &Answer) -> Result<String> {
    Ok(format!("{:?}", answer.peer.as_ref().context("over TLS")?.serial))
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn a_host_that_is_published_is_served_renewed_and_survives_a_new_account_key() -> Result<()> {
    let mut site = Site::new().await?;
    site.start(&[])?;
    site.publish(&[("a.example.com", "acme"), ("*.example.com", "internal-ca")])?;
    let first = site.served("a.example.com").await?;
    ensure!(first.status == 200, "{first:?}");
    let row = site.row("a.example.com", |row| row["next"] == "renewal").await?;
    ensure!(row["expires"].is_string() && row["lastError"].is_null(), "{row}");
    let (code, text) = site.ask(&["certs"])?;
    ensure!(code == 0 && text.contains("a.example.com") && text.contains(" renewal  in "), "{code} {text}");
    let (code, text) = site.ask(&["certs", "check", "a.example.com"])?;
    ensure!(code == 0 && text.contains("nothing is in the way"), "{code} {text}");

    // Port 80 answers for the host it knows, and for no other, though there is no listener.
    let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, site.pebble.http_port));
    let path = "/.well-known/acme-challenge/0123456789abcdefghij";
    ensure!(Probe::http(plain, "a.example.com").path(path).send().await?.status == 200);
    ensure!(Probe::http(plain, "b.example.com").path(path).send().await?.status == 404);
    ensure!(Probe::http(plain, "a.example.com").send().await?.status == 404);

    // A new certificate without a request lost: an open connection goes on, new ones get the new one.
    let held = Probe::https(site.address(), "a.example.com");
    let mut open = held.connect().await?;
    let (code, text) = site.ask(&["certs", "renew", "a.example.com"])?;
    ensure!(code == 0, "{text}");
    let until = Instant::now() + LIMIT;
    while serial(&site.get("a.example.com").await?)? == serial(&first)? {
        ensure!(Instant::now() < until, "not renewed: {}", site.program.as_ref().context("it runs")?.output());
        sleep(Duration::from_millis(20)).await;
    }
    ensure!(open.ask(&held).await?.status == 200);
    ensure!(site.pebble.issued() == 2 && site.pebble.orders() == 2);

    // The account gets another key: the next challenge is answered with it at the first attempt.
    let thumbprint = || async {
        let answer = Probe::http(plain, "a.example.com").path(path).send().await?;
        Ok::<_, anyhow::Error>(String::from_utf8_lossy(&answer.body).into_owned())
    };
    let before = thumbprint().await?;
    let (code, text) = site.ask(&["certs", "change-key"])?;
    ensure!(code == 0, "{text}");
    site.publish(&[("a.example.com", "acme"), ("c.example.com", "acme"), ("*.example.com", "internal-ca")])?;
    ensure!(site.served("c.example.com").await?.status == 200);
    ensure!(thumbprint().await? != before, "it is the new key");
    let log = site.program.as_ref().map(Gatewright::output).unwrap_or_default();
    ensure!(site.pebble.orders() == 3, "{} orders\n{log}", site.pebble.orders());
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn a_new_host_is_refused_until_its_own_certificate_is_there() -> Result<()> {
    let mut site = Site::new().await?;
    // Nobody listens there.
    let nowhere = format!("https://127.0.0.1:{}/dir", free_port()?);
    site.start_at(&nowhere, &[])?;
    site.publish(&[("*.example.com", "internal-ca"), ("new.example.com", "acme"), ("odd.example.com", "nobody")])?;
    site.row("*.example.com", |row| row["next"] == "renewal").await?;
    let until = Instant::now() + LIMIT;
    while let Err(error) = site.get("other.example.com").await {
        ensure!(Instant::now() < until, "the wildcard is served: {error}");
        sleep(Duration::from_millis(50)).await;
    }
    let row = site.row("new.example.com", |row| row["lastError"].is_string()).await?;
    ensure!(row["lastError"].as_str().is_some_and(|text| text.contains("cannot be reached")), "{row}");
    let row = site.row("odd.example.com", |row| row["lastError"].is_string()).await?;
    ensure!(row["lastError"].as_str().is_some_and(|text| text.contains("there are internal-ca, acme")), "{row}");
    for host in ["new.example.com", "odd.example.com"] {
        let refused = site.get(host).await;
        ensure!(refused.is_err(), "{host} is served with another's certificate: {refused:?}");
    }
    let (_, text) = site.ask(&["status"])?;
    ensure!(text.contains("the certificate for new.example.com is being issued by acme: "), "{text}");
    let (code, text) = site.ask(&["certs", "check", "new.example.com"])?;
    ensure!(code == 1 && text.contains("cannot be reached"), "{code} {text}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn killed_in_the_middle_it_takes_the_same_order_up() -> Result<()> {
    let mut site = Site::new().await?;
    site.publish(&[("a.example.com", "acme")])?;
    site.start(&[])?;
    let orders = site.state.path().join("acme/orders");
    let until = Instant::now() + LIMIT;
    let is_placed = || -> Result<bool> {
        let files = fs::read_dir(&orders).into_iter().flatten().flatten();
        let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        Ok(texts.filter_map(|text| serde_json::from_str::<Value>(&text).ok()).any(|order| order["url"].is_string()))
    };
    while !is_placed()? {
        ensure!(Instant::now() < until, "no order: {}", site.program.as_ref().context("it runs")?.output());
        sleep(Duration::from_millis(2)).await;
    }
    let pid = site.program.as_ref().context("it runs")?.pid().to_string();
    ensure!(Command::new("kill").args(["-KILL", &pid]).status()?.success());
    site.program = None;
    site.start(&[])?;
    ensure!(site.served("a.example.com").await?.status == 200);
    ensure!((site.pebble.orders(), site.pebble.issued()) == (1, 1), "{} orders", site.pebble.orders());
    Ok(())
}

/// Runs the program to its end, which must be a refusal, and returns what it said.
fn refused(args: &[&str]) -> Result<String> {
    let state = tempfile::tempdir()?;
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o700))?;
    let empty = tempfile::tempdir()?;
    let (dir, private) = (empty.path().display().to_string(), state.path().display().to_string());
    let output = Gatewright::run(&[&["standalone", &dir, "--no-envoy", "--state-dir", &private], args].concat())?;
    ensure!(!output.status.success(), "{args:?} was taken");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
#[ignore = "builds the program"]
fn what_makes_no_sense_is_refused_at_the_start_with_a_sentence() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = dir.path().join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let le = ["--acme-directory", "letsencrypt"];
    let empty = file("empty", "")?;
    let nonsense = file("nonsense.pem", "no certificate")?;
    let two = file("two.yaml", "{cloudflare: {tokenFile: /t}, exec: {program: /bin/true}}")?;
    let unknown = file("unknown.yaml", "cloudfare: {tokenFile: /t}")?;
    let missing = file("missing.yaml", "cloudflare: {tokenFile: /nowhere/token}")?;
    let tsig = file("tsig.yaml", "rfc2136: {nameserver: 127.0.0.1, keyName: k, algorithm: hmac-md5, keyFile: /t}")?;
    let cases: &[(&[&str], &str)] = &[
        (&["--acme-directory", "lets-encrypt"], "--acme-directory: \"lets-encrypt\": expected letsencrypt"),
        (&["--acme-directory", "http://ca.example.com/dir"], "it must begin with https://"),
        (&["--acme-directory", "letsencrypt", "--acme-ca-bundle", "/nowhere"], "caBundle: /nowhere: No such file"),
        (&["--acme-directory", "letsencrypt", "--acme-ca-bundle", &nonsense], "expected certificates in PEM"),
        (&["--acme-directory", "letsencrypt", "--acme-contact", "me"], "--acme-contact: \"me\": expected mailto:"),
        (
            &["--acme-directory", "letsencrypt", "--acme-eab-key-id", "k", "--acme-eab-key-file", &empty],
            "externalAccount.keyFile: it is empty",
        ),
        (
            &["--acme-directory", "letsencrypt", "--acme-eab-key-id", "k", "--acme-eab-key-file", &nonsense],
            "the MAC key is not base64url",
        ),
        (&[le[0], le[1], "--acme-dns", &two], "--acme-dns: 2 providers: expected one of cloudflare"),
        (&[le[0], le[1], "--acme-dns", &unknown], "unknown field `cloudfare`"),
        (&[le[0], le[1], "--acme-dns", &missing], "dns.cloudflare.tokenFile: /nowhere/token: No such file"),
        (&[le[0], le[1], "--acme-dns", &tsig], "dns.rfc2136.algorithm: \"hmac-md5\": expected hmac-sha256"),
        (&["--acme-ca-bundle", &nonsense], "--acme-directory"),
    ];
    for (args, word) in cases {
        let said = refused(args)?;
        ensure!(said.contains(word), "{args:?}: {said}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn names_no_ca_could_certify_cost_no_order() -> Result<()> {
    let mut site = Site::new().await?;
    fs::write(site.state.path().join("pebble.pem"), site.pebble.issuing_root(0).await?)?;
    site.publish(&[("co.uk", "acme"), ("*.example.com", "acme"), ("a.example.com", "acme")])?;
    site.start(&[])?;
    for (host, word) in [
        ("co.uk", "co.uk is a public suffix"),
        ("*.example.com", "a wildcard needs a DNS-01 provider"),
        // It is another CA's bundle: nothing is sent to a server that cannot show who it is.
        ("a.example.com", "check the CA bundle of the issuer"),
    ] {
        let row = site.row(host, |row| row["lastError"].is_string()).await?;
        ensure!(row["lastError"].as_str().is_some_and(|text| text.contains(word)), "{host}: {row}");
    }
    ensure!(site.pebble.orders() == 0);
    Ok(())
}
