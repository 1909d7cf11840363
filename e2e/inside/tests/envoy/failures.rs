//! `explain` past the configuration: what a real Envoy met at real backends that refuse, are
//! silent, show the wrong certificate or speak another protocol, and that they answer again.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::issuer::{ISSUER, Issuer};
use e2e::oidc::{Browser, CLIENT_SECRET, ISSUER_HOST, Provider, client_secret, login};
use e2e::private_dir::private_dir;
use e2e::probe::{Probe, roots_of};
use e2e::tls_backend::{TestRoot, TlsBackend};
use e2e_inside::served::PATIENCE;
use e2e_inside::world::free_port;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

const HOST: &str = "shop.example.org";
/// The name that policies ask certificates for.
const NAME: &str = "web.internal";

/// A program with a port, and a route for each backend by path.
struct Site {
    program: Gatewright,
    manifests: TempDir,
    state: TempDir,
    http: u16,
    tcp: u16,
    https: Option<u16>,
    objects: Vec<Value>,
    rules: Vec<Value>,
}

impl Site {
    fn start() -> Result<Self> {
        Self::start_with(&[])
    }

    fn start_with(flags: &[&str]) -> Result<Self> {
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        let program = Gatewright::standalone(manifests.path(), state.path(), flags)?;
        Ok(Self {
            program,
            manifests,
            state,
            http: free_port()?,
            tcp: free_port()?,
            https: None,
            objects: Vec::new(),
            rules: Vec::new(),
        })
    }

    /// Adds a Service with these endpoints, and a rule for the path of its name.
    fn add(&mut self, name: &str, port: &Value, addresses: &[SocketAddr]) {
        let slices = addresses.iter().enumerate().map(|(index, address)| {
            let labels = json!({"kubernetes.io/service-name": name});
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": format!("{name}-{index}"), "labels": labels},
                "endpoints": [{"addresses": [address.ip()]}], "ports": [{"port": address.port()}]})
        });
        self.objects.extend(slices);
        let mut ports = json!({"port": 80});
        ports
            .as_object_mut()
            .expect("an object")
            .extend(port.as_object().expect("fields").clone());
        self.objects.push(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [ports]}}),
        );
        self.rules.push(json!({
            "matches": [{"path": {"value": format!("/{name}")}}],
            "backendRefs": [{"name": name, "port": 80}],
            "timeouts": {"request": "500ms"},
        }));
    }

    /// Adds a backend that is verified by the CA of this name.
    fn add_verified(&mut self, name: &str, address: SocketAddr) {
        self.add(name, &json!({}), &[address]);
        let targets = json!([{"group": "", "kind": "Service", "name": name}]);
        let roots = json!([{"group": "", "kind": "ConfigMap", "name": "roots"}]);
        self.objects.push(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy", "metadata": {"name": name},
            "spec": {"targetRefs": targets, "validation": {"hostname": NAME, "caCertificateRefs": roots}}}),
        );
    }

    fn write(&self) -> Result<()> {
        let api = "gateway.networking.k8s.io/v1";
        let mut listeners = vec![
            json!({"name": "http", "port": self.http, "protocol": "HTTP"}),
            json!({"name": "tcp", "port": self.tcp, "protocol": "TCP"}),
        ];
        let mut parents = vec![json!({"name": "edge", "sectionName": "http"})];
        if let Some(port) = self.https {
            let tls = json!({"options": {"gatewright.io/issuer": "internal-ca"}});
            listeners.push(
                json!({"name": "https", "port": port, "protocol": "HTTPS", "hostname": HOST, "tls": tls}),
            );
            parents.push(json!({"name": "edge", "sectionName": "https"}));
        }
        let mut all = vec![
            json!({"apiVersion": api, "kind": "GatewayClass", "metadata": {"name": "ours"},
                "spec": {"controllerName": "gatewright.io/gateway-controller"}}),
            json!({"apiVersion": api, "kind": "Gateway", "metadata": {"name": "edge"},
                "spec": {"gatewayClassName": "ours", "listeners": listeners}}),
            json!({"apiVersion": api, "kind": "HTTPRoute", "metadata": {"name": "app"},
                "spec": {"parentRefs": parents, "hostnames": [HOST], "rules": self.rules}}),
        ];
        all.extend(self.objects.clone());
        let text: Vec<String> = all.iter().map(Value::to_string).collect();
        let new = self.manifests.path().join(".all.yaml.new");
        fs::write(&new, text.join("\n---\n"))?;
        fs::rename(new, self.manifests.path().join("all.yaml"))?;
        Ok(())
    }

    fn probe(&self, path: &str) -> Probe {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.http));
        Probe::http(address, HOST).path(path)
    }

    /// Waits until a path is answered with a status.
    async fn answered(&self, path: &str, status: u16) -> Result<()> {
        let answer = self.probe(path).until(status, PATIENCE).await;
        answer.with_context(|| self.program.output()).map(drop)
    }

    /// Sends requests until `explain` has a reason; returns its exit code and its text.
    async fn until_told(
        &self,
        url: &str,
        reason: &str,
        send: impl AsyncFn() -> Result<()>,
    ) -> Result<(Option<i32>, String)> {
        let until = Instant::now() + PATIENCE;
        loop {
            send().await?;
            let (code, reply, text) = self.explain(url)?;
            if reply.to_string().contains(&format!("\"{reason}\"")) {
                return Ok((code, text));
            }
            ensure!(Instant::now() < until, "{text}");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// The answer of `explain` for a path or a URL, with its exit code.
    fn explain(&self, path: &str) -> Result<(Option<i32>, Value, String)> {
        let private = self.state.path().display().to_string();
        let url = if path.starts_with('/') {
            format!("http://{HOST}:{}{path}", self.http)
        } else {
            path.to_owned()
        };
        let args = ["explain", &url, "--state-dir", &private];
        let read = Gatewright::run(&[&args[..], &["-o", "json"]].concat())?;
        let text = Gatewright::run(&args)?;
        let reply = serde_json::from_slice(&read.stdout)
            .with_context(|| String::from_utf8_lossy(&read.stderr).into_owned())?;
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        Ok((read.status.code(), reply, text))
    }

    /// Waits until the last step of a path is as wanted; returns it, and the text.
    async fn until(
        &self,
        path: &str,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<(Value, Option<i32>, String)> {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.explain(path);
            let Ok((code, reply, text)) = answer else {
                // The program is starting.
                ensure!(Instant::now() < until, "{path}: {answer:?}");
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let last = reply["links"].as_array().and_then(|links| links.last());
            let last = last.cloned().unwrap_or_default();
            if is_wanted(&last) {
                return Ok((last, code, text));
            }
            ensure!(Instant::now() < until, "{path}:\n{text}{reply:#}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sends requests, and waits until a step fails with a reason.
    async fn fails(&self, path: &str, status: u16, step: &str, reason: &str) -> Result<String> {
        self.answered(path, status).await?;
        let (last, code, text) = self
            .until(path, |last| last["ok"] == false && last["what"] != "envoys")
            .await?;
        assert_eq!(last["what"], step, "{text}");
        assert_eq!(last["reason"], reason, "{text}");
        assert_eq!(last["met"][0]["reason"], reason, "{last:#}");
        assert_eq!(code, Some(1), "{text}");
        Ok(text)
    }
}

/// A policy of the gateway's own group.
fn policy(kind: &str, name: &str, target: &Value, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["targetRefs"] = json!([target]);
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A server that speaks HTTP/1 alone; gone on drop.
struct HttpServer {
    address: SocketAddr,
    process: Child,
}

impl HttpServer {
    fn start() -> Result<Self> {
        let address = refusing()?;
        let process = Command::new("python3")
            .args(["-m", "http.server", "--bind", "127.0.0.1"])
            .arg(address.port().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("python3")?;
        Ok(Self { address, process })
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address at which nothing listens.
fn refusing() -> Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_backend_that_refuses_is_told_until_it_answers() -> Result<()> {
    let mut site = Site::start()?;
    let (gone, other) = (refusing()?, refusing()?);
    let echo = Echo::start("web").await?;
    site.add("gone", &json!({}), &[gone]);
    site.add("half", &json!({}), &[other, echo.address()]);
    site.write()?;
    let text = site
        .fails("/gone", 503, "endpoints", "BackendRefused")
        .await?;
    assert!(text.contains("1 of 1 refused the last"), "{text}");

    // One of two: the other one answers.
    site.answered("/half", 503).await?;
    let is_noted = |last: &Value| last["what"] == "envoys";
    let (_, code, text) = site.until("/half", is_noted).await?;
    let until = Instant::now() + PATIENCE;
    let mut noted = text;
    while !noted.contains("NOTE: 1 of 2 refused the last") {
        ensure!(Instant::now() < until, "{noted}");
        site.answered("/half", 503).await?;
        noted = site.explain("/half")?.2;
    }
    assert_eq!(code, Some(0), "{noted}");

    let back = Echo::start_at("web", "127.0.0.1", gone.port()).await?;
    let until = Instant::now() + PATIENCE;
    loop {
        site.answered("/gone", 200).await?;
        let (code, reply, text) = site.explain("/gone")?;
        if code == Some(0) {
            assert!(!reply.to_string().contains("\"met\""), "{text}");
            break;
        }
        ensure!(Instant::now() < until, "{text}");
        sleep(Duration::from_millis(100)).await;
    }
    drop(back);
    site.fails("/gone", 503, "endpoints", "BackendRefused")
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_certificate_that_is_not_accepted_is_told_with_its_fault() -> Result<()> {
    let mut site = Site::start()?;
    let (root, stranger) = (TestRoot::new("one")?, TestRoot::new("two")?);
    let named = TlsBackend::start(&root.issue("other.internal", None)?, None).await?;
    let ended = TlsBackend::start(&root.issue_ended(NAME)?, None).await?;
    let unknown = TlsBackend::start(&stranger.issue(NAME, None)?, None).await?;
    let asking = TlsBackend::start(&root.issue(NAME, None)?, Some(&root)).await?;
    let plain = Echo::start("web").await?;
    site.objects.push(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "roots"}, "data": {"ca.crt": root.pem()}}),
    );
    site.add_verified("named", named.address());
    site.add_verified("ended", ended.address());
    site.add_verified("unknown", unknown.address());
    site.add_verified("plain", plain.address());
    site.add_verified("asking", asking.address());
    site.write()?;
    for (path, reason, words) in [
        (
            "/named",
            "BackendNotVerified",
            "its certificate is for [other.internal]",
        ),
        (
            "/ended",
            "BackendNotVerified",
            "its certificate has expired",
        ),
        (
            "/unknown",
            "BackendNotVerified",
            "its certificate is of a CA that the policy does not name",
        ),
        ("/plain", "BackendTlsFailed", "it does not speak TLS"),
    ] {
        let text = site.fails(path, 503, "backend TLS", reason).await?;
        assert!(text.contains(words), "{path}: {text}");
    }
    // The handshake is over for Envoy before the server asks for its certificate.
    site.answered("/asking", 503).await?;
    let (_, code, text) = site.until("/asking", |last| last["ok"] == false).await?;
    assert_eq!(code, Some(1), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn another_protocol_and_silence_are_told() -> Result<()> {
    let mut site = Site::start()?;
    let root = TestRoot::new("one")?;
    let secured = TlsBackend::start(&root.issue(NAME, None)?, None).await?;
    let old = HttpServer::start()?;
    // The kernel accepts connections, and nobody reads them.
    let deaf = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    site.add(
        "h2c",
        &json!({"appProtocol": "kubernetes.io/h2c"}),
        &[old.address],
    );
    site.add("secured", &json!({}), &[secured.address()]);
    site.add("silent", &json!({}), &[deaf.local_addr()?]);
    site.write()?;
    let text = site.fails("/silent", 504, "endpoints", "TimedOut").await?;
    assert!(text.contains("1 of 1 did not answer the last"), "{text}");
    let text = site
        .fails("/h2c", 502, "protocol", "InvalidResponse")
        .await?;
    assert!(text.contains("kubernetes.io/h2c"), "{text}");
    site.probe("/secured").send().await?;
    let (_, code, text) = site.until("/secured", |last| last["ok"] == false).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("BackendTLSPolicy"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_client_that_gave_up_tells_of_a_backend_that_hangs() -> Result<()> {
    let mut site = Site::start()?;
    let deaf = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let echo = Echo::start("web").await?;
    site.add("deaf", &json!({}), &[deaf.local_addr()?]);
    site.add("web", &json!({}), &[echo.address()]);
    site.rules[0]["timeouts"] = json!({"request": "60s"});
    site.write()?;
    site.answered("/web", 200).await?;
    let gave_up = site
        .probe("/deaf")
        .limit(Duration::from_millis(5500))
        .send()
        .await;
    ensure!(gave_up.is_err(), "{gave_up:?}");
    let (last, code, text) = site.until("/deaf", |last| last["ok"] == false).await?;
    assert_eq!(last["reason"], "ClientLeft", "{text}");
    assert_eq!(code, Some(1), "{text}");
    let log = site.state.path().join("access.log");
    let until = Instant::now() + PATIENCE;
    while !fs::read_to_string(&log)
        .unwrap_or_default()
        .contains("/deaf")
    {
        ensure!(Instant::now() < until, "no line of mode Errors");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn endpoints_that_checks_refuse_and_connections_are_told() -> Result<()> {
    let mut site = Site::start_with(&["--set", "limits.namespace.healthChecks=1"])?;
    site.add("checked", &json!({}), &[refusing()?]);
    site.add("db", &json!({}), &[refusing()?]);
    let service = json!({"group": "", "kind": "Service", "name": "checked"});
    let active = json!({"active": {"type": "TCP", "interval": "2s", "unhealthyThreshold": 1}, "panicThreshold": 0});
    site.objects.push(policy(
        "TrafficPolicy",
        "checked",
        &service,
        &json!({"healthCheck": active}),
    ));
    let parents = json!([{"name": "edge", "sectionName": "tcp"}]);
    let rules = json!([{"backendRefs": [{"name": "db", "port": 80}]}]);
    site.objects.push(
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "TCPRoute", "metadata": {"name": "db"},
        "spec": {"parentRefs": parents, "rules": rules}}),
    );
    site.write()?;
    let asked = async || site.answered("/checked", 503).await;
    let (code, text) = site.until_told("/checked", "NoEndpoints", asked).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("none were thought healthy for"), "{text}");

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, site.tcp));
    let url = format!("tcp://{address}");
    // Envoy accepts it, and closes it once the backend refuses.
    let connected = async || {
        drop(TcpStream::connect(address).await);
        Ok(())
    };
    let (code, text) = site.until_told(&url, "BackendRefused", connected).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("1 of 1 refused the last"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_key_server_that_is_not_there_is_told() -> Result<()> {
    let mut site = Site::start()?;
    let echo = Echo::start("web").await?;
    site.add("web", &json!({}), &[echo.address()]);
    site.add("keys", &json!({}), &[refusing()?]);
    site.rules[0]["name"] = json!("guarded");
    let remote =
        json!({"uri": "https://id.example.org/keys", "backendRef": {"name": "keys", "port": 80}});
    let group = "gateway.networking.k8s.io";
    let rule =
        json!({"group": group, "kind": "HTTPRoute", "name": "app", "sectionName": "guarded"});
    let jwt = json!({"jwt": {"issuer": ISSUER, "jwks": {"remote": remote}}});
    site.objects
        .push(policy("AccessPolicy", "guarded", &rule, &jwt));
    site.write()?;
    site.answered("/web", 401).await?;
    let bearer = format!("Bearer {}", Issuer::new()?.token(json!({}))?);
    let probe = site.probe("/web").header("authorization", &bearer);
    let asked = async || probe.answered(401).await.map(drop);
    let (code, text) = site.until_told("/web", "Unauthenticated", asked).await?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("it gave no keys for the last"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_provider_that_refuses_the_client_of_a_login_is_told() -> Result<()> {
    let mut site = Site::start()?;
    let echo = Echo::start("web").await?;
    let port = free_port()?;
    let back = format!("https://{HOST}/oauth2/callback");
    let lifetime = Duration::from_secs(300);
    let provider = Provider::with_secret(CLIENT_SECRET, lifetime, &[&back]).await?;
    site.https = Some(port);
    site.add("web", &json!({}), &[echo.address()]);
    // The way back is a path of the route.
    site.rules[0]["matches"] = json!([{"path": {"value": "/"}}]);
    let route = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app"});
    site.objects.extend(provider.objects("default"));
    site.objects
        .push(client_secret("default", "login", "a-secret-of-nobody"));
    site.objects.push(policy(
        "AccessPolicy",
        "guarded",
        &route,
        &json!({"oidc": login()}),
    ));
    site.write()?;
    let url = format!("https://{HOST}:{port}/web");
    let (_, code, text) = site
        .until(&url, |last| last["what"] == "envoys" && last["ok"] == true)
        .await?;
    assert_eq!(code, Some(0), "nobody has logged in: {text}");
    let own = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut browser = Browser::new(&[(HOST, own), (ISSUER_HOST, provider.address())]);
    let back = browser.log_in(&format!("https://{HOST}/web")).await?;
    let refused = browser.open(&back).await?;
    ensure!(refused.status == 401, "{refused:?}");
    let (last, code, text) = site.until(&url, |last| last["ok"] == false).await?;
    assert_eq!(last["what"], "server", "{text}");
    assert_eq!(last["reason"], "LoginFailed", "{text}");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("it failed the last login"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_envoy_goes_on_without_the_program() -> Result<()> {
    let mut site = Site::start()?;
    let echo = Echo::start("web").await?;
    site.add("web", &json!({}), &[echo.address()]);
    site.add("gone", &json!({}), &[refusing()?]);
    site.write()?;
    site.answered("/web", 200).await?;
    site.program.freeze()?;
    for _ in 0..2_000 {
        site.probe("/gone").answered(503).await?;
    }
    site.probe("/web").answered(200).await?;
    site.program.thaw()?;
    site.fails("/gone", 503, "endpoints", "BackendRefused")
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn handshakes_that_fail_are_told_by_host_with_the_reason() -> Result<()> {
    let mut site = Site::start()?;
    let echo = Echo::start("web").await?;
    let port = free_port()?;
    site.https = Some(port);
    site.add("web", &json!({}), &[echo.address()]);
    site.write()?;
    site.answered("/web", 200).await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let url = format!("https://{HOST}:{port}/web");
    site.until(&url, |last| last["what"] == "envoys" && last["ok"] == true)
        .await?;
    let (_, _, text) = site.explain(&url)?;
    assert!(!text.contains("handshake"), "none failed: {text}");

    // A client that knows other CAs, and one that speaks no TLS.
    let stranger = roots_of(&TestRoot::new("two")?.pem())?;
    let distrusts = Probe::https(address, HOST).roots(stranger);
    let until = Instant::now() + PATIENCE;
    loop {
        let refused = distrusts.send().await;
        ensure!(refused.is_err(), "{refused:?}");
        let (code, _, text) = site.explain(&url)?;
        if text.contains("CertificateRefused") {
            assert_eq!(code, Some(0), "the client did so: {text}");
            assert!(
                text.contains("NOTE: 1 handshake failed") || text.contains("handshakes failed"),
                "{text}"
            );
            break;
        }
        ensure!(Instant::now() < until, "{text}");
        sleep(Duration::from_millis(200)).await;
    }
    let plain = Probe::http(address, HOST).send().await;
    ensure!(plain.is_err(), "{plain:?}");

    let private = site.state.path().display().to_string();
    let args = ["status", HOST, "--state-dir", &private];
    let status = Gatewright::run(&args)?;
    let text = String::from_utf8_lossy(&status.stdout);
    assert!(text.contains("FAILED HANDSHAKES"), "{text}");
    assert!(text.contains("CertificateRefused"), "{text}");
    let other = Gatewright::run(&["status", "other.example.org", "--state-dir", &private])?;
    let other = String::from_utf8_lossy(&other.stdout);
    assert!(!other.contains("FAILED HANDSHAKES"), "{other}");

    let until = Instant::now() + PATIENCE;
    loop {
        let read = Gatewright::run(&["logs", "--errors", "--state-dir", &private])?;
        let text = String::from_utf8_lossy(&read.stdout);
        let has_all = ["CertificateRefused", "NotTls"]
            .iter()
            .all(|reason| text.contains(reason));
        if has_all {
            let line = format!(" TLS {HOST} at default/edge:{port} by 127.0.0.1:");
            assert!(text.contains(&line), "{text}");
            return Ok(());
        }
        ensure!(Instant::now() < until, "{text}");
        sleep(Duration::from_millis(500)).await;
    }
}
