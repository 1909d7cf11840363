//! All recipes in one directory, with ports and backends of the test in place of theirs.

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::bind::{Bind, BindZone};
use e2e::client_ca::ClientCa;
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::issuer::Issuer;
use e2e::oidc::Provider;
use e2e::probe::{Answer, Probe};
use e2e::tls_backend::{TestRoot, TlsBackend};
use e2e::websocket::WebSocketServer;
use e2e_inside::world::free_port;
use tempfile::TempDir;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep};

use super::folder;

/// The longest wait for a state, on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// The ports of the Gateways.
pub(super) struct Ports {
    http: u16,
    https: u16,
    partners: u16,
    dns: u16,
}

/// A program that serves all recipes, and their backends.
pub(super) struct Site {
    _program: Gatewright,
    manifests: TempDir,
    state: TempDir,
    ports: Ports,
    /// The application.
    pub(super) web: Echo,
    /// Its next version.
    pub(super) next: Echo,
    _chat: WebSocketServer,
    _tls: [TlsBackend; 3],
    _names: Bind,
    /// The CA of the backends with TLS.
    pub(super) backends: TestRoot,
    /// The backend of the UDPRoute.
    pub(super) datagrams: UdpSocket,
    /// The CA of partners.
    pub(super) partners: ClientCa,
    /// The issuer of tokens.
    pub(super) issuer: Issuer,
    /// The provider of logins.
    pub(super) provider: Provider,
}

impl Site {
    /// Serves these recipes, and waits until every condition is as desired.
    pub(super) async fn start(recipes: &[String]) -> Result<Self> {
        let ports = Ports {
            http: free_port()?,
            https: free_port()?,
            partners: free_port()?,
            dns: free_port()?,
        };
        let [web, next] = [Echo::start("web").await?, Echo::start("next").await?];
        let chat = WebSocketServer::start(None).await?;
        let backends = TestRoot::new("backends")?;
        let vault = TlsBackend::start(&backends.issue("vault.example.org", None)?, None).await?;
        let named = backends.issue("ledger.shop.internal", None)?;
        let ledger = TlsBackend::start(&named, None).await?;
        let named = backends.issue("api.partner.example", None)?;
        let partner = TlsBackend::start(&named, None).await?;
        let zone = BindZone::new("partner.example").records("api A 127.0.0.1");
        let names = Bind::start(&[], &[zone]).await?;
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let partners = ClientCa::new("partners")?;
        let issuer = Issuer::new()?;
        let provider = Provider::start(&["https://members.example.org/oauth2/callback"]).await?;

        let mut replaced: Vec<(String, String)> = Vec::new();
        for (written, port) in [
            ("protocol: HTTP, port: 80}", ports.http),
            ("port: 443\n", ports.https),
            ("protocol: TLS, port: 443,", ports.https),
            ("port: 8443\n", ports.partners),
            ("protocol: TCP, port: 53}", ports.dns),
            ("protocol: UDP, port: 53}", ports.dns),
            ("{name: http, port: 8000}", web.address().port()),
            ("{name: http, port: 8001}", next.address().port()),
            ("{name: http, port: 8002}", chat.address().port()),
            // Nobody listens there.
            ("{name: http, port: 8003}", free_port()?),
            ("{name: tls, port: 8004}", vault.address().port()),
            ("{name: tcp, port: 8005,", web.address().port()),
            ("{name: udp, port: 8005,", datagrams.local_addr()?.port()),
            ("{name: https, port: 8006}", ledger.address().port()),
            ("{name: https, port: 8007}", provider.address().port()),
        ] {
            let (before, digits) = written.split_once("port: ").context("a port")?;
            let after = digits.trim_start_matches(|letter: char| letter.is_ascii_digit());
            replaced.push((written.to_owned(), format!("{before}port: {port}{after}")));
        }
        let manifests = tempfile::tempdir()?;
        for recipe in recipes {
            let file = format!("{recipe}.yaml");
            let mut text = fs::read_to_string(folder().join(&file))?;
            for (written, ours) in &replaced {
                text = text.replace(written, ours);
            }
            text = match recipe.as_str() {
                "client-certificates" => with_ca(&text, &partners.pem)?,
                "backend-tls" => with_ca(&text, &backends.pem())?,
                "oidc" => with_ca(&text, provider.roots())?,
                "external-name" => leading_to(&text, partner.address().port())?,
                "jwt" => with_key(&text, &issuer)?,
                _ => text,
            };
            fs::write(manifests.path().join(file), text)?;
        }
        let state = private_dir()?;
        let external_names = format!(
            "backends.externalNames={{enabled: true, resolvers: [\"{}\"], allowedNetworks: [127.0.0.1/32]}}",
            names.address()
        );
        let options = ["--set", &external_names];
        let program = Gatewright::standalone(manifests.path(), state.path(), &options)?;
        let site = Self {
            _program: program,
            manifests,
            state,
            ports,
            web,
            next,
            _chat: chat,
            _tls: [vault, ledger, partner],
            _names: names,
            backends,
            datagrams,
            partners,
            issuer,
            provider,
        };
        site.served().await?;
        Ok(site)
    }

    /// Waits until every condition is as desired.
    async fn served(&self) -> Result<()> {
        let private = self.state.path().display().to_string();
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = Gatewright::run(&["status", "--state-dir", &private])?;
            if status.status.success() {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{}{}",
                String::from_utf8_lossy(&status.stdout),
                String::from_utf8_lossy(&status.stderr)
            );
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// A request on plain HTTP.
    pub(super) fn http(&self, host: &str) -> Probe {
        Probe::http(local(self.ports.http), host)
    }

    /// The address of most HTTPS listeners.
    pub(super) fn https_address(&self) -> SocketAddr {
        local(self.ports.https)
    }

    /// A request on HTTPS.
    pub(super) fn https(&self, host: &str) -> Probe {
        Probe::https(self.https_address(), host)
    }

    /// A request at the port for partners.
    pub(super) fn partner(&self, host: &str) -> Probe {
        Probe::https(local(self.ports.partners), host)
    }

    /// The address for TCP and UDP.
    pub(super) fn dns(&self) -> SocketAddr {
        local(self.ports.dns)
    }

    /// Changes a recipe, as whoever uses it does.
    pub(super) fn edit(&self, recipe: &str, changes: &[(&str, &str)]) -> Result<()> {
        let file = self.manifests.path().join(format!("{recipe}.yaml"));
        let mut text = fs::read_to_string(&file)?;
        for (from, to) in changes {
            ensure!(text.contains(from), "{from} is not in {text}");
            text = text.replace(from, to);
        }
        let new = self.manifests.path().join(".new");
        fs::write(&new, text)?;
        fs::rename(new, file).context("renaming into place")
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The Service by name with another port than 443, and a CA of the test in place of the system's.
fn leading_to(text: &str, port: u16) -> Result<String> {
    let [written, roots] = ["port: 443}]\n---", "wellKnownCACertificates: System"];
    ensure!(
        text.contains(written) && text.contains(roots),
        "the recipe has another Service or policy"
    );
    // The first one is the Service's.
    let text = text.replacen(
        written,
        &format!("port: 443, targetPort: {port}}}]\n---"),
        1,
    );
    let ours = "caCertificateRefs: [{group: \"\", kind: ConfigMap, name: internal-ca}]";
    Ok(text.replace(roots, ours))
}

/// The recipe with another CA in its last object, a ConfigMap.
fn with_ca(text: &str, pem: &str) -> Result<String> {
    const KEY: &str = "\n  ca.crt: |\n";
    let (before, _) = text.split_once(KEY).context("a ConfigMap with a CA")?;
    let lines: String = pem.lines().map(|line| format!("    {line}\n")).collect();
    Ok(format!("{before}{KEY}{lines}"))
}

/// The recipe with the key of this issuer.
fn with_key(text: &str, issuer: &Issuer) -> Result<String> {
    const KEY: &str = "\n  jwks.json: |\n";
    let (before, _) = text.split_once(KEY).context("a ConfigMap with keys")?;
    let keys = serde_json::json!({"keys": [issuer.jwk()]});
    Ok(format!("{before}{KEY}    {keys}\n"))
}

/// Sends a request, and expects an answer by the backend of this name.
pub(super) async fn answered_by(probe: &Probe, name: &str) -> Result<Answer> {
    let answer = probe.answered(200).await?;
    let by = answer.echoed("name")?;
    ensure!(by == name, "{probe:?} was answered by {by}, not {name}");
    Ok(answer)
}

/// Sends a request until it is answered with this status by the backend of this name.
pub(super) async fn until_by(probe: &Probe, name: &str) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while let Err(other) = answered_by(probe, name).await {
        ensure!(Instant::now() < deadline, "{other:#}");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
