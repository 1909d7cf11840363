//! The program with a directory and a real Envoy, as a user runs it.

mod bundle;
mod files;
mod first;
mod history;
mod links;
mod logs;
mod refused;
mod rivals;
mod secret_files;
mod status;
mod strict;
mod traffic;

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::probe::Probe;
use e2e_inside::world::free_port;
use tempfile::TempDir;

/// A directory of manifests, a private directory, and the program that serves them.
struct Standalone {
    program: Gatewright,
    manifests: TempDir,
    state: TempDir,
    port: u16,
    _echo: Echo,
}

fn envoy() -> Result<String> {
    Ok(e2e::envoy::binary()?.canonicalize()?.display().to_string())
}

fn route(name: &str, host: &str, service: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: edge}}]\n  hostnames: [{host}]\n  rules:\n  \
         - backendRefs: [{{name: {service}, port: 80}}]\n"
    )
}

fn base(port: u16, backend: SocketAddr) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: ours}}\n\
         spec: {{controllerName: gatewright.io/gateway-controller}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\nspec:\n  \
         gatewayClassName: ours\n  listeners:\n  - name: https\n    hostname: \"*.example.org\"\n    \
         protocol: HTTPS\n    port: {port}\n    tls: {{options: {{gatewright.io/issuer: internal-ca}}}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: web, labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\n\
         endpoints: [{{addresses: [127.0.0.1]}}]\nports: [{{port: {}}}]\n",
        backend.port()
    )
}

impl Standalone {
    async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    async fn start_with(args: &[&str]) -> Result<Self> {
        let echo = Echo::start("web").await?;
        let port = free_port()?;
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        fs::write(
            manifests.path().join("base.yaml"),
            base(port, echo.address()),
        )?;
        let mut program = Gatewright::standalone(manifests.path(), state.path(), args)?;
        // The listener has its certificate.
        let line = program.line("secret default/").await?;
        assert!(line.contains("acked 1/1"), "{line}");
        Ok(Self {
            program,
            manifests,
            state,
            port,
            _echo: echo,
        })
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.manifests.path().join(name)
    }

    /// Writes a file atomically.
    fn save(&self, name: &str, text: &str) -> Result<()> {
        let new = self.file(&format!(".{name}.new"));
        fs::write(&new, text)?;
        fs::rename(new, self.file(name)).context("renaming into place")
    }

    fn probe(&self, host: &str) -> Probe {
        Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), host)
    }

    async fn status(&self, host: &str) -> Result<u16> {
        Ok(self.probe(host).send().await?.status)
    }

    /// Waits until a host is answered with this status, or not at all.
    async fn until(&self, host: &str, status: Option<u16>) -> Result<()> {
        let answered = async {
            while self.status(host).await.ok() != status {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(e2e_inside::served::PATIENCE, answered)
            .await
            .with_context(|| format!("{host} was never answered {status:?}"))
    }

    fn ask(&self, args: &[&str]) -> Result<(i32, String)> {
        let private = self.state.path().display().to_string();
        let output = Gatewright::run(&[args, &["--state-dir", &private]].concat())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code().context("it was killed")?, text))
    }
}

/// Each line of the log is a JSON object, and an event has the fields of its object.
/// The Gateway of the site with more lines of its `spec`, and more listeners.
fn with(base: &str, spec: &str, listeners: &str) -> String {
    base.replace(
        "  listeners:\n",
        &format!("{spec}  listeners:\n{listeners}"),
    )
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_log_for_programs_has_an_object_a_line() -> Result<()> {
    let mut site = Standalone::start_with(&["--log-format", "json"]).await?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    let served = site
        .program
        .line("\"object\":\"httproute default/web\"")
        .await?;
    site.save("lost.yaml", &route("lost", "lost.example.org", "nowhere"))?;
    let broken = site.program.line("BackendNotFound").await?;
    let parsed = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).with_context(|| line.to_owned())
    };
    let (served, broken) = (parsed(&served)?, parsed(&broken)?);
    assert_eq!(served["event"], "Acknowledged", "{served}");
    assert_eq!(served["level"], "INFO", "{served}");
    assert_eq!(served["namespace"], "default", "the namespace is a field");
    assert_eq!(served["hosts"], 1, "the number of hosts is a field");
    assert_eq!(served["envoys"], 1, "the number of Envoys is a field");
    assert_eq!(broken["event"], "Condition", "{broken}");
    assert_eq!(broken["level"], "WARN", "{broken}");
    assert_eq!(broken["condition"], "ResolvedRefs");
    for line in site
        .program
        .output()
        .lines()
        .filter(|line| !line.trim().is_empty())
    {
        parsed(line)?;
    }
    Ok(())
}

/// A Gateway or route without a controller has no status: only the log can say why it is not
/// served.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn classes_and_parents_that_do_not_exist_are_in_the_log() -> Result<()> {
    let mut site = Standalone::start().await?;
    site.save(
        "lost.yaml",
        &route("lost", "lost.example.org", "web").replace("name: edge", "name: edgy"),
    )?;
    let line = site.program.line("httproute default/lost: parent").await?;
    assert!(
        line.contains("WARN") && line.contains("parent Gateway default/edgy does not exist"),
        "{line}"
    );
    let base = fs::read_to_string(site.file("base.yaml"))?;
    site.save(
        "base.yaml",
        &base.replace("gatewayClassName: ours", "gatewayClassName: yours"),
    )?;
    let line = site.program.line("gateway default/edge: class").await?;
    assert!(
        line.contains("WARN") && line.contains("class yours does not exist (there is: ours)"),
        "{line}"
    );
    Ok(())
}

/// Reading ends, and each link is told once.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn links_that_lead_back_are_told_and_what_is_beside_them_is_served() -> Result<()> {
    let mut site = Standalone::start().await?;
    for name in ["a", "b"] {
        std::os::unix::fs::symlink(".", site.file(name))?;
        let line = site.program.line(&format!("/{name}: is a link to")).await?;
        assert!(
            line.contains("WARN") && line.contains("read already"),
            "{line}"
        );
    }
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program.line("httproute default/web: ").await?;
    assert_eq!(site.status("web.example.org").await?, 200);
    ensure!(
        !site.program.output().contains("already defined"),
        "{}",
        site.program.output()
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn status_and_explain_tell_the_truth() -> Result<()> {
    let mut site = Standalone::start().await?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program
        .line("httproute default/web: 1 host changed")
        .await?;
    let (code, text) = site.ask(&["status"])?;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("acknowledged by 1 of 1 Envoys"), "{text}");
    let url = format!("https://web.example.org:{}/", site.port);
    let (code, text) = site.ask(&["explain", &url])?;
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("certificate") && text.contains("acknowledged by 1 of 1 Envoys"),
        "{text}"
    );

    site.save("web.yaml", &route("web", "web.example.org", "nobody"))?;
    let line = site.program.line("BackendNotFound").await?;
    assert!(
        line.contains("httproute default/web: ResolvedRefs=False"),
        "{line}"
    );
    let (code, text) = site.ask(&["explain", &url])?;
    assert_eq!(code, 1, "{text}");
    assert!(
        text.lines()
            .last()
            .is_some_and(|line| line.starts_with("FAILS")),
        "{text}"
    );
    let (code, text) = site.ask(&["status", "-o", "json"])?;
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("lastTransitionTime") && text.contains("BackendNotFound"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_backend_that_cannot_be_verified_is_explained_as_it_is_answered() -> Result<()> {
    let site = Standalone::start().await?;
    let policy = |section: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {{name: web}}\nspec:\n  \
             targetRefs: [{{group: \"\", kind: Service, name: web{section}}}]\n  \
             validation: {{hostname: web.internal, caCertificateRefs: [{{group: \"\", kind: ConfigMap, name: none}}]}}\n"
        )
    };
    site.save("policy.yaml", &policy(""))?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    until(&site, Some(503)).await?;
    let url = format!("https://web.example.org:{}/", site.port);
    let (code, text) = site.ask(&["explain", &url])?;
    let last = text.lines().last().unwrap_or_default();
    assert!(
        code == 1 && last.starts_with("FAILS") && last.contains("backend TLS"),
        "{text}"
    );
    assert!(
        last.contains("NoValidCACertificate") && last.contains("answered 503"),
        "{text}"
    );
    let (_, text) = site.ask(&["status"])?;
    assert!(
        text.lines()
            .any(|line| line.starts_with("backendtlspolicy default/web at edge")),
        "{text}"
    );

    // A port that the Service does not have: the policy has no effect.
    site.save("policy.yaml", &policy(", sectionName: https"))?;
    until(&site, Some(200)).await?;
    let (_, text) = site.ask(&["explain", &url])?;
    assert!(
        text.contains("plain text is sent; NOTE: backendtlspolicy default/web"),
        "{text}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_port_that_lets_no_client_in_is_explained_as_it_answers() -> Result<()> {
    let mut site = Standalone::start().await?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program
        .line("httproute default/web: 1 host changed, acked 1/1")
        .await?;
    let base = fs::read_to_string(site.file("base.yaml"))?;
    let tls = "  tls: {frontend: {default: {validation: {caCertificateRefs: [{group: \"\", kind: ConfigMap, \
               name: clients}]}}}}\n";
    site.save("base.yaml", &with(&base, tls, ""))?;
    site.program.line("NoValidCACertificate").await?;
    until(&site, None).await?;
    let url = format!("https://web.example.org:{}/", site.port);
    let (code, text) = site.ask(&["explain", &url])?;
    let last = text.lines().last().unwrap_or_default();
    assert!(
        code == 1 && last.starts_with("FAILS") && last.contains("client certificate"),
        "{text}"
    );
    assert!(last.contains("default/clients"), "{text}");

    let ca = e2e::client_ca::ClientCa::new("clients")?;
    let config_map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "clients"},
        "data": {"ca.crt": ca.pem}});
    site.save("clients.yaml", &config_map.to_string())?;
    site.program.line("configmap default/clients: ").await?;
    let (code, text) = site.ask(&["explain", &url])?;
    assert!(
        code == 0 && text.contains("requires one that a CA"),
        "{text}"
    );
    Ok(())
}

/// Waits until `web.example.org` is answered with this status, or not at all.
async fn until(site: &Standalone, status: Option<u16>) -> Result<()> {
    site.until("web.example.org", status).await
}

/// A Gateway of one HTTPS listener, and its route.
fn second(port: u16) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: late}}\nspec:\n  \
         gatewayClassName: ours\n  listeners:\n  - name: https\n    hostname: late.example.net\n    \
         protocol: HTTPS\n    port: {port}\n    tls: {{options: {{gatewright.io/issuer: internal-ca}}}}\n---\n"
    ) + &route("late", "late.example.net", "web").replace("name: edge", "name: late")
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_port_that_becomes_free_is_served_without_an_edit() -> Result<()> {
    let mut site = Standalone::start().await?;
    let port = free_port()?;
    // The standard library does not set SO_REUSEPORT: Envoy cannot bind the port.
    let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    site.save("late.yaml", &second(port))?;
    let line = site.program.line("refused Listener default/late").await?;
    let advice = format!("ss -antup 'sport = :{port}'");
    assert!(
        line.contains("Address already in use") && line.contains(&advice),
        "{line}"
    );
    site.program.line("secret default/late-").await?;
    let (_, text) = site.ask(&["status"])?;
    let programmed = |text: &str| {
        let line = text
            .lines()
            .find(|line| line.contains("gateway default/late ") && line.contains("Programmed"));
        line.unwrap_or_default().to_owned()
    };
    let line = programmed(&text);
    assert!(
        line.contains("False") && line.contains("in use") && line.contains(&advice),
        "{text}"
    );

    // Envoy is asked again, and each refusal is in its own log.
    let log = site.state.path().join("envoy.log");
    let refusals = || -> Result<usize> {
        let text = fs::read_to_string(&log)?;
        Ok(text
            .lines()
            .filter(|line| line.contains("failed to bind"))
            .count())
    };
    let until = Instant::now() + e2e_inside::served::PATIENCE;
    while refusals()? < 2 {
        ensure!(Instant::now() < until, "it was asked once");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(holder);
    site.program
        .line("has bound the address of Listener default/late")
        .await?;
    let probe = Probe::https(
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        "late.example.net",
    );
    assert_eq!(probe.send().await?.status, 200);
    let (_, text) = site.ask(&["status"])?;
    assert!(programmed(&text).contains("True"), "{text}");
    let log = site.program.output();
    assert_eq!(
        log.lines()
            .filter(|line| line.contains("already in use"))
            .count(),
        1,
        "{log}"
    );
    Ok(())
}

/// An Envoy that is started by others, from our bootstrap, with a program that starts none.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn an_envoy_started_elsewhere_is_served() -> Result<()> {
    let echo = Echo::start("web").await?;
    let port = free_port()?;
    let manifests = tempfile::tempdir()?;
    let state = private_dir()?;
    fs::write(
        manifests.path().join("base.yaml"),
        base(port, echo.address()),
    )?;
    fs::write(
        manifests.path().join("web.yaml"),
        route("web", "web.example.org", "web"),
    )?;
    let dir = manifests.path().display().to_string();
    let private = state.path().display().to_string();
    let mut program =
        Gatewright::start(&["standalone", &dir, "--state-dir", &private, "--no-envoy"])?;
    program.line("admin socket").await?;
    let bootstrap = Gatewright::run(&["bootstrap", "--node", "mine", "--state-dir", &private])?;
    assert!(bootstrap.status.success(), "{bootstrap:?}");
    let mut envoy = e2e::envoy::Envoy::start(&String::from_utf8(bootstrap.stdout)?).await?;
    // The gateway's line can precede the certificate; without it nothing listens.
    let line = program.line("secret default/").await?;
    assert!(line.contains("acked 1/1"), "{line}");
    envoy.ready().await?;
    let probe = Probe::https(
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        "web.example.org",
    );
    assert_eq!(probe.send().await?.status, 200);
    for (socket, mode) in [("admin.sock", 0o600), ("xds.sock", 0o600)] {
        let found = fs::metadata(state.path().join(socket))?
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(found, mode, "{socket} is ours alone");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn an_empty_directory_is_reported_and_served_once_it_has_objects() -> Result<()> {
    let echo = Echo::start("web").await?;
    let port = free_port()?;
    let manifests = tempfile::tempdir()?;
    let state = private_dir()?;
    let dir = manifests.path().display().to_string();
    let mut program = Gatewright::standalone(manifests.path(), state.path(), &[])?;
    let line = program.line("has no object").await?;
    assert!(line.contains("WARN") && line.contains(&dir), "{line}");
    fs::write(
        manifests.path().join("base.yaml"),
        base(port, echo.address()),
    )?;
    program.line("secret default/").await?;
    Ok(())
}

/// Two Envoys of one user can bind one port, and the kernel divides the connections between them.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_port_of_another_program_is_reported() -> Result<()> {
    let mut first = Standalone::start().await?;
    let state = private_dir()?;
    let mut second = Gatewright::standalone(first.manifests.path(), state.path(), &[])?;
    let port = first.port;
    let line = second.line("another program listens").await?;
    assert!(
        line.contains("WARN") && line.contains("gateway default/edge"),
        "{line}"
    );
    assert!(
        line.contains(&format!("ss -ltnp 'sport = :{port}'")),
        "{line}"
    );
    second.line("secret default/").await?;
    first.save("web.yaml", &route("web", "web.example.org", "web"))?;
    second.line("httproute default/web").await?;
    first.program.line("httproute default/web").await?;
    let told = |program: &Gatewright| program.output().matches("another program listens").count();
    assert_eq!(told(&first.program), 0, "the first program has its port");
    assert_eq!(told(&second), 1, "the second one reports the port");
    Ok(())
}

fn children(pid: u32) -> Result<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let mut all: Vec<String> = text?.split_whitespace().map(str::to_owned).collect();
    // Envoy's parent is the thread that started it.
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may have ended meanwhile.
        let own = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        all.extend(own.split_whitespace().map(str::to_owned));
    }
    all.sort();
    all.dedup();
    Ok(all)
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn envoy_is_started_again_and_ends_with_the_program() -> Result<()> {
    let mut site = Standalone::start().await?;
    let first = children(site.program.pid())?;
    assert_eq!(first.len(), 1);
    assert!(
        Command::new("kill")
            .args(["-KILL", &first[0]])
            .status()?
            .success()
    );
    site.program.line("envoy: starting again").await?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program
        .line("httproute default/web: 1 host changed, acked 1/1")
        .await?;
    assert_eq!(site.status("web.example.org").await?, 200);
    let second = children(site.program.pid())?;
    assert_ne!(first, second);
    assert!(
        Command::new("kill")
            .args(["-TERM", &site.program.pid().to_string()])
            .status()?
            .success()
    );
    // The program has ended when waiting for a line that never comes reports it.
    let ended = site
        .program
        .line("a line that is never printed")
        .await
        .expect_err("it ends");
    assert!(
        ended.to_string().contains("ended (exit status: 0)"),
        "{ended:#}"
    );
    assert!(
        !Path::new("/proc").join(&second[0]).exists(),
        "Envoy ended as well"
    );
    Ok(())
}

#[test]
#[ignore = "needs Envoy"]
fn the_built_in_example_is_served_and_ends_by_itself() -> Result<()> {
    let state = private_dir()?;
    let private = state.path().display().to_string();
    let output = Gatewright::run(&[
        "standalone",
        "--once",
        "--state-dir",
        &private,
        "--envoy",
        &envoy()?,
    ])?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for host in [
        "shop.alice.demo.localhost",
        "blog.bob.demo.localhost",
        "vault.alice.demo.localhost",
        "wiki.team.alice.demo.localhost",
        "tenant-alice-team under tenant-alice",
        "httproute tenant-alice-mallory/web: HostnameConflict: shop.alice.demo.localhost",
        "curl --resolve",
    ] {
        assert!(text.contains(host), "{text}");
    }
    Ok(())
}
