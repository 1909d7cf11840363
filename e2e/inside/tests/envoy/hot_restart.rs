//! Envoy outlives the program: the program is killed, restarted and replaced while clients send
//! requests continuously.

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::envoys::Envoys;
use e2e::gatewright::Gatewright;
use e2e::load::Load;
use e2e::probe::Probe;
use e2e::tenants::until;
use e2e_inside::world::free_port;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const LIMIT: Duration = Duration::from_secs(120);
/// Answers that every client must get in each state.
pub(super) const ANSWERS: u64 = 20;
pub(super) const TOOK_OVER: &str = "took over process";

/// A directory of manifests and a private directory, without a program yet.
pub(super) struct Site {
    pub(super) manifests: TempDir,
    pub(super) state: TempDir,
    http: SocketAddr,
    pub(super) https: SocketAddr,
    // Last: it kills the Envoys that programs have left running.
    envoys: Envoys,
    echo: Echo,
}

pub(super) fn route(name: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}}}\nspec:\n  \
         parentRefs: [{{name: edge}}]\n  hostnames: [{name}.example.org]\n  rules:\n  \
         - backendRefs: [{{name: web, port: 80}}]\n"
    )
}

fn base(http: u16, https: u16, backend: u16) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: ours}}\n\
         spec: {{controllerName: gatewright.io/gateway-controller}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\nspec:\n  \
         gatewayClassName: ours\n  listeners:\n  - {{name: http, protocol: HTTP, port: {http}}}\n  \
         - name: https\n    hostname: \"*.example.org\"\n    protocol: HTTPS\n    port: {https}\n    \
         tls: {{options: {{gatewright.io/issuer: internal-ca}}}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: web, labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\n\
         endpoints: [{{addresses: [127.0.0.1]}}]\nports: [{{port: {backend}}}]\n"
    )
}

fn envoy() -> Result<PathBuf> {
    Ok(e2e::envoy::binary()?.canonicalize()?)
}

impl Site {
    pub(super) async fn new() -> Result<Self> {
        let echo = Echo::start("web").await?;
        let http = free_port()?;
        let https = free_port()?;
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        fs::write(
            manifests.path().join("base.yaml"),
            base(http, https, echo.address().port()),
        )?;
        fs::write(manifests.path().join("web.yaml"), route("web"))?;
        fs::write(manifests.path().join("early.yaml"), route("early"))?;
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let envoys = Envoys::of(state.path())?;
        Ok(Self {
            manifests,
            state,
            http: address(http),
            https: address(https),
            envoys,
            echo,
        })
    }

    /// Adds a listener for one host, with an option of TLS, beside the wildcard of the Gateway.
    pub(super) fn add_listener_with(&self, option: &str) -> Result<()> {
        let base = self.manifests.path().join("base.yaml");
        let port = self.https.port();
        let listener = format!(
            "  listeners:\n  - name: one\n    hostname: web.example.org\n    protocol: HTTPS\n    port: {port}\n    \
             tls: {{options: {{gatewright.io/issuer: internal-ca, {option}: Enabled}}}}\n"
        );
        let written = fs::read_to_string(&base)?;
        fs::write(&base, written.replacen("  listeners:\n", &listener, 1))?;
        Ok(())
    }

    /// Starts the program on it.
    pub(super) fn start(&self, args: &[&str]) -> Result<Gatewright> {
        self.start_with(&envoy()?, args)
    }

    fn start_with(&self, envoy: &Path, args: &[&str]) -> Result<Gatewright> {
        let dir = self.manifests.path().display().to_string();
        let private = self.state.path().display().to_string();
        let envoy = envoy.display().to_string();
        let all = [
            "standalone",
            &dir,
            "--state-dir",
            &private,
            "--envoy",
            &envoy,
            "--envoy-patience",
            "6",
        ];
        let lifetime: &[&str] = if args.contains(&"--envoy-lifetime") {
            &[]
        } else {
            &["--envoy-lifetime", "independent"]
        };
        Gatewright::start(&[&all, lifetime, args].concat())
    }

    /// Starts the program, waits until its Envoy is configured, and starts clients.
    pub(super) async fn serving(&self) -> Result<(Gatewright, u32, Load)> {
        let mut program = self.start(&[])?;
        configured(&mut program).await?;
        // A listener for one host has another certificate than that of the Gateway.
        until("the host is served", async || {
            Ok(self.status("web.example.org").await.is_ok())
        })
        .await?;
        Ok((program, self.one().await?, self.load()))
    }

    fn load(&self) -> Load {
        Load::start(self.http, self.https, "web.example.org")
    }

    pub(super) async fn status(&self, host: &str) -> Result<u16> {
        Ok(Probe::https(self.https, host).send().await?.status)
    }

    /// Waits until so many Envoys run, and returns them.
    async fn envoys(&self, count: usize) -> Result<Vec<u32>> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let running = self.envoys.running()?;
            if running.len() == count {
                return Ok(running);
            }
            ensure!(
                Instant::now() < deadline,
                "{count} Envoys are wanted, there are {running:?}"
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until one Envoy runs, and returns its process id.
    pub(super) async fn one(&self) -> Result<u32> {
        Ok(self.envoys(1).await?[0])
    }

    /// Ends the program and its Envoy regularly, and checks that nothing is left.
    pub(super) async fn end(&self, mut program: Gatewright) -> Result<()> {
        program.signal("TERM")?;
        let said = program.end().await?;
        assert!(
            said.contains("shutting down") && !said.contains("WARN envoy"),
            "{said}"
        );
        assert_eq!(self.envoys.running()?, Vec::<u32>::new());
        let left: Vec<String> = fs::read_dir(self.state.path())?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with("hot") || name.starts_with("bootstrap"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        Ok(())
    }
}

/// Waits until Envoy has the complete configuration.
pub(super) async fn configured(program: &mut Gatewright) -> Result<()> {
    let line = program.line("secret default/").await?;
    ensure!(line.contains("acked 1/1"), "{line}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_killed_program_leaves_envoy_serving_and_the_next_one_takes_it_over() -> Result<()> {
    let site = Site::new().await?;
    let (mut program, pid, load) = site.serving().await?;
    for _ in 0..3 {
        load.more(ANSWERS).await?;
        // Killed as by kill -9.
        drop(program);
        load.more(ANSWERS).await?;
        assert_eq!(site.one().await?, pid);
        program = site.start(&[])?;
        let line = program.line(TOOK_OVER).await?;
        assert!(line.contains(&format!("process {pid},")), "{line}");
        assert!(
            !program.output().contains("another program listens"),
            "{}",
            program.output()
        );
        // Changes right after a restart are served.
        fs::write(site.manifests.path().join("late.yaml"), route("late"))?;
        let line = program
            .line("httproute default/late: 1 host changed")
            .await?;
        assert!(line.contains("acked 1/1"), "{line}");
        assert_eq!(site.status("late.example.org").await?, 200);
        fs::remove_file(site.manifests.path().join("late.yaml"))?;
        program
            .line("httproute default/late deleted: 1 host changed, acked 1/1")
            .await?;
        load.more(ANSWERS).await?;
    }
    // Changes made before the next start reach Envoy, too.
    drop(program);
    assert_eq!(
        site.status("early.example.org").await?,
        200,
        "the old host is served still"
    );
    assert_eq!(
        site.status("new.example.org").await?,
        404,
        "the new host is not known yet"
    );
    fs::remove_file(site.manifests.path().join("early.yaml"))?;
    fs::write(site.manifests.path().join("new.yaml"), route("new"))?;
    let mut program = site.start(&[])?;
    program.line(TOOK_OVER).await?;
    configured(&mut program).await?;
    assert_eq!(
        site.status("early.example.org").await?,
        404,
        "the deleted host is gone"
    );
    assert_eq!(
        site.status("new.example.org").await?,
        200,
        "the new host is served"
    );
    load.more(ANSWERS).await?;
    assert_eq!(site.one().await?, pid);
    load.failures()?;
    drop(load);
    site.end(program).await
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn an_upgrade_costs_no_request_whether_envoy_stays_or_is_replaced() -> Result<()> {
    let site = Site::new().await?;
    let (mut old, pid, load) = site.serving().await?;
    load.more(ANSWERS).await?;

    // A private directory has one program only.
    let mut refused = site.start(&[])?;
    let said = refused.end().await?;
    assert!(
        said.contains("in use by another gatewright") && said.contains("--take-over"),
        "{said}"
    );

    // The same bootstrap: Envoy stays.
    let mut new = site.start(&["--take-over"])?;
    let line = new.line(TOOK_OVER).await?;
    assert!(line.contains(&format!("process {pid},")), "{line}");
    let said = old.end().await?;
    assert!(said.contains(&format!("process {pid} serves on")), "{said}");
    configured(&mut new).await?;
    load.more(ANSWERS).await?;

    // The same by a signal, for service managers.
    new.signal("USR2")?;
    let said = new.end().await?;
    assert!(said.contains(&format!("process {pid} serves on")), "{said}");
    load.more(ANSWERS).await?;
    let mut new = site.start(&[])?;
    new.line(TOOK_OVER).await?;
    configured(&mut new).await?;
    assert_eq!(site.one().await?, pid);

    // Another bootstrap: another Envoy takes over the sockets.
    let admin = site
        .state
        .path()
        .join("admin-of-envoy.sock")
        .display()
        .to_string();
    let mut newer = site.start(&["--take-over", "--envoy-admin", &admin])?;
    let line = newer.line("replacing it by a hot restart").await?;
    assert!(
        line.contains(&format!("process {pid} has another bootstrap")),
        "{line}"
    );
    let line = newer.line("serves in place of").await?;
    assert!(
        line.contains(&format!(
            "in place of process {pid}, whose connections have 6 s"
        )),
        "{line}"
    );
    load.more(ANSWERS).await?;
    let successor = site.one().await?;
    assert!(successor != pid, "{successor} is the one before");
    load.more(ANSWERS).await?;
    fs::write(site.manifests.path().join("late.yaml"), route("late"))?;
    newer
        .line("httproute default/late: 1 host changed, acked 1/1")
        .await?;
    assert_eq!(site.status("late.example.org").await?, 200);
    load.failures()?;
    drop(load);
    site.end(newer).await
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_program_that_is_killed_in_the_middle_of_a_hot_restart_leaves_one_envoy_in_the_end()
-> Result<()> {
    let site = Site::new().await?;
    let (program, first, load) = site.serving().await?;
    drop(program);
    let admin = site
        .state
        .path()
        .join("admin-of-envoy.sock")
        .display()
        .to_string();
    for round in 0..4 {
        // Another bootstrap each time, and a little more time each time.
        let args = ["--envoy-admin", &*admin];
        let mut program = site.start(if round % 2 == 0 { &args } else { &[] })?;
        program.line("replacing it by a hot restart").await?;
        program.line("envoy: started, process").await?;
        sleep(Duration::from_millis(40 * round)).await;
        drop(program);
        load.more(ANSWERS).await?;
        let mut program = site.start(if round % 2 == 0 { &args } else { &[] })?;
        configured(&mut program).await?;
        load.more(ANSWERS).await?;
        let one = site.one().await?;
        assert!(one != first, "the first one was replaced");
        load.more(ANSWERS).await?;
        drop(program);
    }
    load.failures()?;
    drop(load);
    let program = site.start(&[])?;
    let mut program = program;
    program.line(TOOK_OVER).await?;
    site.end(program).await
}

/// A wrapper of Envoy that reports another version.
fn other_version(dir: &Path, hot_restart: &str) -> Result<PathBuf> {
    let path = dir.join("envoy");
    let real = envoy()?;
    let text = format!(
        "#!/bin/sh\ncase \"$1\" in\n--version) echo 'envoy  version: abc/1.41.0/Clean/RELEASE/BoringSSL';;\n\
         --hot-restart-version) echo '{hot_restart}' >&2;;\n*) exec {} \"$@\";;\nesac\n",
        real.display()
    );
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn an_envoy_of_another_version_is_replaced() -> Result<()> {
    let site = Site::new().await?;
    let (program, pid, load) = site.serving().await?;
    let programs = tempfile::tempdir()?;
    let compatible = Command::new(envoy()?)
        .arg("--hot-restart-version")
        .output()?;
    let compatible = String::from_utf8(compatible.stderr)?.trim().to_owned();
    let wrapper = other_version(programs.path(), &compatible)?;
    drop(program);
    let mut program = site.start_with(&wrapper, &[])?;
    let line = program.line("replacing it by a hot restart").await?;
    assert!(
        line.contains(&format!("process {pid} is version 1.40.0")),
        "{line}"
    );
    program.line("serves in place of").await?;
    load.more(ANSWERS).await?;
    let second = site.one().await?;
    assert!(second != pid);
    load.failures()?;
    drop(load);

    // A version that cannot take over sockets is started beside it, on the same ports.
    other_version(programs.path(), "99.1")?;
    drop(program);
    let mut program = site.start_with(&wrapper, &[])?;
    let line = program.line("starting another beside it").await?;
    assert!(
        line.contains(&format!("process {second} is version 1.40.0, from which")),
        "{line}"
    );
    program
        .line(&format!("process {second} was replaced and has ended"))
        .await?;
    let third = site.one().await?;
    assert!(third != second);
    assert_eq!(site.status("web.example.org").await?, 200);
    program.signal("TERM")?;
    program.end().await?;
    assert_eq!(site.envoys.running()?, Vec::<u32>::new());
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn an_envoy_that_hangs_is_replaced_and_one_that_crashes_is_started_again() -> Result<()> {
    let site = Site::new().await?;
    let mut program = site.start(&[])?;
    configured(&mut program).await?;
    let pid = site.one().await?;
    drop(program);
    kill("-STOP", pid)?;
    let mut program = site.start(&[])?;
    let line = program.line("starting another beside it").await?;
    assert!(
        line.contains(&format!(
            "process {pid} does not answer at its admin socket"
        )),
        "{line}"
    );
    program
        .line(&format!("process {pid} was replaced and has ended"))
        .await?;
    let second = site.one().await?;
    assert!(second != pid);
    configured(&mut program).await?;
    assert_eq!(site.status("web.example.org").await?, 200);

    kill("-KILL", second)?;
    program.line(&format!("process {second} ended")).await?;
    program.line("starting again").await?;
    let deadline = Instant::now() + LIMIT;
    while site.status("web.example.org").await.ok() != Some(200) {
        ensure!(
            Instant::now() < deadline,
            "nobody serves: {}",
            program.output()
        );
        sleep(Duration::from_millis(20)).await;
    }

    // The same for an Envoy that was adopted.
    drop(program);
    let third = site.one().await?;
    let mut program = site.start(&[])?;
    program.line(TOOK_OVER).await?;
    kill("-KILL", third)?;
    program.line(&format!("process {third} ended")).await?;
    while site.status("web.example.org").await.ok() != Some(200) {
        ensure!(
            Instant::now() < deadline,
            "nobody serves: {}",
            program.output()
        );
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn kill(signal: &str, pid: u32) -> Result<()> {
    ensure!(
        Command::new("kill")
            .args([signal, &pid.to_string()])
            .status()?
            .success(),
        "kill {signal} {pid}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_process_that_only_resembles_our_envoy_is_left_alone() -> Result<()> {
    let site = Site::new().await?;
    let sockets = site.state.path().canonicalize()?.join("hot");
    let mut command = Command::new("setpriv");
    // Its command line contains that of Envoy.
    command.args([
        "--pdeathsig",
        "KILL",
        "--",
        "sh",
        "-c",
        "read line",
        "envoy",
        "--base-id",
        "7",
        "--restart-epoch",
        "0",
    ]);
    command
        .arg("--socket-path")
        .arg(&sockets)
        .arg("--config-path")
        .arg(site.state.path().join("bootstrap-aa.json"));
    let mut stranger = command.stdin(Stdio::piped()).spawn()?;
    let mut program = site.start(&[])?;
    configured(&mut program).await?;
    let said = program.output();
    assert!(
        said.contains("envoy: started") && !said.contains("WARN envoy"),
        "{said}"
    );
    program.signal("TERM")?;
    program.end().await?;
    assert_eq!(site.envoys.running()?, [stranger.id()]);
    assert!(stranger.try_wait()?.is_none(), "it was ended");
    stranger.kill()?;
    stranger.wait()?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn an_envoy_that_is_to_end_with_its_program_does() -> Result<()> {
    let site = Site::new().await?;
    let lifetime = ["--envoy-lifetime", "with-program"];
    let mut program = site.start(&lifetime)?;
    configured(&mut program).await?;
    site.one().await?;

    // Such an Envoy cannot be taken over.
    let mut other = site.start(&[&lifetime[..], &["--take-over"]].concat())?;
    let said = other.end().await?;
    assert!(
        said.contains("--take-over: Envoy ends with that program"),
        "{said}"
    );
    program.signal("USR2")?;
    program
        .line("SIGUSR2: Envoy ends with this program")
        .await?;
    assert_eq!(site.status("web.example.org").await?, 200);

    drop(program);
    site.envoys(0).await?;

    // An independent Envoy is bound to the program by a hot restart.
    let (program, pid, load) = site.serving().await?;
    drop(program);
    let mut program = site.start(&lifetime)?;
    program.line("serves in place of").await?;
    let bound = site.one().await?;
    load.more(ANSWERS).await?;
    assert!(bound != pid);
    load.failures()?;
    drop(load);
    drop(program);
    site.envoys(0).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn requests_under_way_are_answered_when_the_program_is_told_to_end() -> Result<()> {
    let site = Site::new().await?;
    let mut program = site.start(&[])?;
    configured(&mut program).await?;
    let probe = Probe::http(site.http, "web.example.org").path("/delay/1500");
    let mut connection = probe.connect().await?;
    let slow = tokio::spawn(async move { connection.ask(&probe).await });
    let deadline = Instant::now() + LIMIT;
    while site.echo.requests() == 0 {
        ensure!(Instant::now() < deadline, "the request did not arrive");
        sleep(Duration::from_millis(10)).await;
    }
    site.end(program).await?;
    assert_eq!(slow.await?.context("the request under way")?.status, 200);
    Ok(())
}
