//! `gatewright serve`: hostnames and backends on the command line.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::pebble::{Options, Pebble};
use e2e::private_dir::private_dir;
use e2e::probe::{Answer, Probe, roots_of};
use e2e::tls_backend::{Pair, TestRoot};
use e2e_inside::world::free_port;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const LIMIT: Duration = Duration::from_secs(120);

/// Ports that are free, a private directory, and two backends.
pub(super) struct Place {
    state: TempDir,
    https: u16,
    http: u16,
    pub(super) web: Echo,
    api: Echo,
}

impl Place {
    pub(super) async fn new(http: u16) -> Result<Self> {
        Ok(Self {
            state: private_dir()?,
            https: free_port()?,
            http,
            web: Echo::start("web").await?,
            api: Echo::start("api").await?,
        })
    }

    /// The command line, with sites and more options.
    fn command(&self, sites: &[String], more: &[&str]) -> Result<Vec<String>> {
        let envoy = e2e::envoy::binary()?.canonicalize()?;
        let options = [
            ("--state-dir", self.state.path().display().to_string()),
            ("--envoy", envoy.display().to_string()),
            ("--https-port", self.https.to_string()),
            ("--http-port", self.http.to_string()),
            ("--address", Ipv4Addr::LOCALHOST.to_string()),
        ];
        let options = options
            .into_iter()
            .flat_map(|(name, value)| [name.to_owned(), value]);
        Ok(["serve".to_owned()]
            .into_iter()
            .chain(sites.iter().cloned())
            .chain(options)
            .chain(more.iter().map(|one| (*one).to_owned()))
            .collect())
    }

    pub(super) fn start(&self, sites: &[String], more: &[&str]) -> Result<Gatewright> {
        let command = self.command(sites, more)?;
        Gatewright::start(&command.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn https(&self, host: &str, path: &str, roots: &str) -> Result<Probe> {
        Ok(self.unverified(host).path(path).roots(roots_of(roots)?))
    }

    /// A request that is answered with any certificate.
    pub(super) fn unverified(&self, host: &str) -> Probe {
        Probe::https((Ipv4Addr::LOCALHOST, self.https).into(), host)
    }

    /// The roots of the internal CA, as soon as there is one.
    async fn internal_roots(&self, program: &Gatewright) -> Result<String> {
        let file = self.state.path().join("ca.crt");
        let until = Instant::now() + LIMIT;
        loop {
            match std::fs::read_to_string(&file) {
                Ok(text) => return Ok(text),
                Err(error) if Instant::now() > until => {
                    return Err(error).with_context(|| program.output());
                }
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// Waits until a request is answered by this backend.
pub(super) async fn answered_by(
    probe: &Probe,
    backend: &str,
    program: &Gatewright,
) -> Result<Answer> {
    let until = Instant::now() + LIMIT;
    loop {
        let told = match probe.send().await {
            Ok(answer) if answer.status == 200 && answer.echoed("name")? == backend => {
                return Ok(answer);
            }
            Ok(answer) => answer.status.to_string(),
            Err(failure) => failure.to_string(),
        };
        ensure!(
            Instant::now() < until,
            "not by {backend}: {told}\n{}",
            program.output()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn one_line_serves_a_public_host_and_a_local_one() -> Result<()> {
    let pebble = Pebble::start(&Options::default()).await?;
    let place = Place::new(pebble.http_port).await?;
    let roots = place.state.path().join("pebble.pem");
    std::fs::write(&roots, pebble.ca_pem())?;
    let sites = [
        format!("shop.example.com={}", place.web.address()),
        format!("shop.example.com/api=http://{}", place.api.address()),
        format!("shop.localhost=localhost:{}", place.api.address().port()),
    ];
    let directory = format!("issuers.acme.directory={}", pebble.directory());
    let bundle = format!("issuers.acme.caBundle={}", roots.display());
    // Pebble's names lead to loopback.
    let program = place.start(
        &sites,
        &[
            "--email",
            "admin@example.com",
            "--set",
            &directory,
            "--set",
            &bundle,
            "--set",
            "issuers.acme.allowedNetworks=[127.0.0.0/8]",
        ],
    )?;
    let public = pebble.issuing_root(0).await?;
    let page = place.https("shop.example.com", "/", &public)?;
    answered_by(&page, "web", &program).await?;
    let api = place.https("shop.example.com", "/api/v1", &public)?;
    let answer = answered_by(&api, "api", &program).await?;
    let alternative = answer.header("alt-svc").unwrap_or_default().to_owned();
    ensure!(
        alternative.contains(&format!("h3=\":{}\"", place.https)),
        "HTTP/3 is offered: {alternative:?}"
    );
    let local = place.https(
        "shop.localhost",
        "/",
        &place.internal_roots(&program).await?,
    )?;
    answered_by(&local, "api", &program).await?;

    let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, place.http));
    let answer = Probe::http(plain, "shop.example.com")
        .path("/cart")
        .send()
        .await?;
    let location = answer.header("location").unwrap_or_default().to_owned();
    let wanted = format!("https://shop.example.com:{}/cart", place.https);
    ensure!(
        answer.status == 301 && location == wanted,
        "{}: {location}",
        answer.status
    );
    let told = program.output();
    for line in [
        format!(
            "https://shop.example.com:{}/api -> http://{}",
            place.https,
            place.api.address()
        ),
        "certificate of Let's Encrypt".to_owned(),
    ] {
        ensure!(told.contains(&line), "no {line:?} in:\n{told}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn what_is_missing_is_told_first_and_a_line_becomes_a_directory() -> Result<()> {
    let place = Place::new(free_port()?).await?;
    let dead = free_port()?;
    let sites = [
        format!("localhost={}", place.web.address()),
        format!("localhost/dead=127.0.0.1:{dead}"),
    ];
    // A port that another program has.
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, place.https))?;
    let command = place.command(&sites, &[])?;
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let refused = Gatewright::run(&words)?;
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        refused.status.code() == Some(1)
            && told.contains(&format!("ss -ltnp 'sport = :{}'", place.https))
            && told.contains("--https-port"),
        "{told}"
    );
    drop(taken);

    // The same as manifests, which the program serves as well.
    let parent = private_dir()?;
    let dir = parent.path().join("site");
    let into = dir.display().to_string();
    let written = Gatewright::run(&[&words[..], &["--into", &into]].concat())?;
    ensure!(written.status.success(), "{written:?}");
    let next = String::from_utf8(written.stdout)?;
    let printed = Gatewright::run(&[&words[..], &["--print"]].concat())?;
    ensure!(
        std::fs::read(dir.join("site.yaml"))? == printed.stdout,
        "the manifests are those that are printed"
    );
    let again = Gatewright::run(&[&words[..], &["--into", &into]].concat())?;
    ensure!(
        again.status.code() == Some(1),
        "nothing is overwritten: {again:?}"
    );
    let configuration = next.split_whitespace().last().context("a file")?;
    let program = Gatewright::standalone(&dir, place.state.path(), &["--config", configuration])?;
    is_served(&place, &program).await?;
    drop(program);

    // The Envoy of the first program may have its ports a while longer.
    let other = Place {
        state: private_dir()?,
        https: free_port()?,
        http: free_port()?,
        ..place
    };
    let program = other.start(&sites, &[])?;
    is_served(&other, &program).await?;
    let told = program.output();
    ensure!(
        told.starts_with(&format!("! backend 127.0.0.1:{dead}: connection refused")),
        "{told}"
    );
    ensure!(Path::new(&into).is_dir(), "it is left alone");
    Ok(())
}

async fn is_served(place: &Place, program: &Gatewright) -> Result<()> {
    let roots = place.internal_roots(program).await?;
    answered_by(&place.https("localhost", "/", &roots)?, "web", program).await?;
    let dead = place.https("localhost", "/dead", &roots)?.send().await?;
    ensure!(dead.status == 503, "{}", dead.status);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_certificate_of_files_is_served_for_its_hostname_and_renewed() -> Result<()> {
    let place = Place::new(free_port()?).await?;
    let root = TestRoot::new("brought")?;
    let dir = tempfile::tempdir()?;
    let [chain, key] = ["shop.crt", "shop.key"].map(|name| dir.path().join(name));
    let write = |pair: &Pair| {
        std::fs::write(&chain, pair.certificate.pem())?;
        std::fs::write(&key, pair.key.serialize_pem())
    };
    let sites = [
        format!("shop.example.com={}", place.web.address()),
        format!("wiki.localhost={}", place.api.address()),
    ];
    let [chain_path, key_path] = [&chain, &key].map(|file| file.display().to_string());
    let files = ["--cert", &chain_path, "--key", &key_path];

    // A certificate for another name is of no use.
    write(&root.issue("other.example.com", None)?)?;
    let command = place.command(&sites, &files)?;
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let refused = Gatewright::run(&command)?;
    let told = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        !refused.status.success() && told.contains("it is for other.example.com"),
        "{told}"
    );

    write(&root.issue("shop.example.com", None)?)?;
    let program = place.start(&sites, &files)?;
    let shop = place.https("shop.example.com", "/", &root.pem())?;
    let first = answered_by(&shop, "web", &program).await?;
    let internal = place.internal_roots(&program).await?;
    let wiki = place.https("wiki.localhost", "/", &internal)?;
    answered_by(&wiki, "api", &program).await?;
    write(&root.issue("shop.example.com", None)?)?;
    let serial = |answer: &Answer| answer.peer.as_ref().map(|peer| peer.serial.clone());
    let until = Instant::now() + LIMIT;
    while serial(&answered_by(&shop, "web", &program).await?) == serial(&first) {
        ensure!(
            Instant::now() < until,
            "never renewed: {}",
            program.output()
        );
    }
    Ok(())
}
