//! The fixture of these tests: two tenants on one Gateway in standalone mode, `alice`, who is
//! served, and `mallory`, who attacks.

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::probe::{Answer, Probe};
use e2e::usage;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::{Instant, sleep};

/// Time limit of a wait on a busy machine; no assertion depends on durations.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// Time within which a change of alice's must be live, whatever mallory does: harm to her costs
/// tens of seconds, and on an idle machine a change takes milliseconds (`benches/delay.rs`); tests
/// run in parallel with others.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// Separates tests that use the whole machine from those that measure how soon alice is served.
static MACHINE: RwLock<()> = RwLock::const_new(());

/// A test's share of the machine.
enum Turn {
    Shared {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

/// A running program with its Envoy, and a directory with manifests of two tenants.
pub(crate) struct Site {
    pub(crate) program: Gatewright,
    pub(crate) manifests: TempDir,
    pub(crate) state: TempDir,
    /// Port of the Gateway's HTTP listener, which every namespace may use.
    pub(crate) http: u16,
    /// Port of the Gateway's HTTPS listener for `*.example.org`, which every namespace may use.
    pub(crate) https: u16,
    /// Backend of alice's Service `web`.
    pub(crate) alice: Echo,
    /// Backend of mallory's Service `web`.
    pub(crate) mallory: Echo,
    options: Vec<String>,
    files: Option<u32>,
    turn: Turn,
}

/// A Service `web` of a namespace, whose only endpoint is at this address.
pub(crate) fn service(namespace: &str, address: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: {namespace}}}\n\
         spec: {{ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web, namespace: {namespace}, \
         labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nendpoints: [{{addresses: [{}]}}]\n\
         ports: [{{port: {}}}]\n---\n",
        address.ip(),
        address.port()
    )
}

/// An HTTPRoute of a namespace for one host at the shared Gateway; `rules` is the YAML flow
/// sequence of its rules.
pub(crate) fn route(namespace: &str, name: &str, host: &str, rules: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  parentRefs: [{{name: edge, namespace: infra}}]\n  hostnames: [\"{host}\"]\n  rules: {rules}\n---\n"
    )
}

/// Rules that forward everything to the namespace's Service `web`.
pub(crate) const FORWARD: &str = "[{backendRefs: [{name: web, port: 80}]}]";

impl Site {
    /// Starts with alice's host `alice.example.org` served over HTTP and HTTPS; `options` are
    /// options of the program.
    pub(crate) async fn start(options: &[&str]) -> Result<Self> {
        Self::start_in(
            Turn::Shared {
                _guard: MACHINE.read().await,
            },
            options,
            None,
        )
        .await
    }

    /// Starts with a limit of open files.
    pub(crate) async fn start_within_files(files: u32) -> Result<Self> {
        Self::start_in(
            Turn::Shared {
                _guard: MACHINE.read().await,
            },
            &[],
            Some(files),
        )
        .await
    }

    /// Like [`Self::start`], while no other site runs.
    pub(crate) async fn start_alone(options: &[&str]) -> Result<Self> {
        Self::start_in(
            Turn::Alone {
                _guard: MACHINE.write().await,
            },
            options,
            None,
        )
        .await
    }

    async fn start_in(turn: Turn, options: &[&str], files: Option<u32>) -> Result<Self> {
        let http = free_port()?;
        let https = free_port()?;
        let alice = Echo::start("alice").await?;
        let mallory = Echo::start("mallory").await?;
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        let base = format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: ours}}\n\
             spec: {{controllerName: gatewright.io/gateway-controller}}\n---\n\
             apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge, namespace: infra}}\n\
             spec:\n  gatewayClassName: ours\n  listeners:\n  \
             - {{name: http, protocol: HTTP, port: {http}, allowedRoutes: {{namespaces: {{from: All}}}}}}\n  \
             - {{name: https, hostname: \"*.example.org\", protocol: HTTPS, port: {https}, \
             allowedRoutes: {{namespaces: {{from: All}}}}, tls: {{options: {{gatewright.io/issuer: internal-ca}}}}}}\n---\n"
        );
        fs::write(manifests.path().join("base.yaml"), base)?;
        fs::write(
            manifests.path().join("alice-service.yaml"),
            service("alice", alice.address()),
        )?;
        fs::write(
            manifests.path().join("mallory-service.yaml"),
            service("mallory", mallory.address()),
        )?;
        fs::write(
            manifests.path().join("alice.yaml"),
            route("alice", "web", "alice.example.org", FORWARD),
        )?;
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let program = run(&manifests, &state, &options, files)?;
        let site = Self {
            program,
            manifests,
            state,
            http,
            https,
            alice,
            mallory,
            options,
            files,
            turn,
        };
        site.served_by("alice.example.org", "alice").await?;
        Ok(site)
    }

    /// Ends the program with its Envoy and starts both again over the same directories.
    pub(crate) fn restart(self) -> Result<Self> {
        let Self {
            program,
            manifests,
            state,
            http,
            https,
            alice,
            mallory,
            options,
            files,
            turn,
        } = self;
        drop(program);
        // The old Envoy ends with the program, and must not answer the next request.
        let began = Instant::now();
        while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, http)).is_ok() {
            ensure!(began.elapsed() < LIMIT, "Envoy outlives its program");
            std::thread::sleep(Duration::from_millis(5));
        }
        let program = run(&manifests, &state, &options, files)?;
        Ok(Self {
            program,
            manifests,
            state,
            http,
            https,
            alice,
            mallory,
            options,
            files,
            turn,
        })
    }

    /// Writes a manifest file atomically.
    pub(crate) fn save(&self, name: &str, text: &str) -> Result<()> {
        let new = self.manifests.path().join(format!(".{name}.new"));
        fs::write(&new, text)?;
        fs::rename(new, self.manifests.path().join(name)).context("renaming into place")
    }

    /// Allows routes of several namespaces to share hostnames at the Gateway.
    pub(crate) fn share_names(&self) -> Result<()> {
        let refers = "gatewayClassName: ours\n  infrastructure: {parametersRef: {group: gatewright.io, \
            kind: GatewayParameters, name: shared-names}}\n";
        let base = fs::read_to_string(self.manifests.path().join("base.yaml"))?;
        let parameters = "apiVersion: gatewright.io/v1alpha1\nkind: GatewayParameters\n\
            metadata: {name: shared-names, namespace: infra}\nspec: {routeHostnames: Shared}\n---\n";
        self.save(
            "base.yaml",
            &(parameters.to_owned() + &base.replace("gatewayClassName: ours\n", refers)),
        )
    }

    /// Deletes a manifest file.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        fs::remove_file(self.manifests.path().join(name)).context("removing")
    }

    /// `GET http://host/`.
    pub(crate) fn plain(&self, host: &str) -> Probe {
        Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, self.http)), host)
    }

    /// `GET https://host/`.
    pub(crate) fn tls(&self, host: &str) -> Probe {
        Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.https)), host)
    }

    /// Waits until this backend answers for a host, over HTTP and HTTPS.
    pub(crate) async fn served_by(&self, host: &str, backend: &str) -> Result<()> {
        for probe in [self.plain(host), self.tls(host)] {
            self.answered_by(&probe, backend, Duration::from_millis(20))
                .await?;
        }
        Ok(())
    }

    /// Waits until this backend answers a probe, which is repeated after each pause.
    pub(crate) async fn answered_by(
        &self,
        probe: &Probe,
        backend: &str,
        pause: Duration,
    ) -> Result<()> {
        let until = Instant::now() + LIMIT;
        while !named(probe).await.is_ok_and(|found| found == backend) {
            if Instant::now() > until {
                let last = named(probe).await;
                bail!(
                    "{probe:?} is not answered by {backend}: {last:?}\n{}",
                    self.program.output()
                );
            }
            sleep(pause).await;
        }
        Ok(())
    }

    /// Waits until a probe is answered with a status, and returns that answer.
    pub(crate) async fn answered_with(&self, probe: &Probe, status: u16) -> Result<Answer> {
        let what = format!("answered {status}");
        self.answered_so(probe, &what, |answer| answer.status == status)
            .await
    }

    /// Waits until a probe is answered in a certain way, and returns that answer.
    pub(crate) async fn answered_so(
        &self,
        probe: &Probe,
        what: &str,
        is_so: impl Fn(&Answer) -> bool,
    ) -> Result<Answer> {
        let until = Instant::now() + LIMIT;
        loop {
            let last = probe.send().await;
            if last.as_ref().is_ok_and(&is_so) {
                return Ok(last?);
            }
            ensure!(
                Instant::now() < until,
                "{probe:?} is not {what}: {last:?}\n{}",
                self.program.output()
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The configuration of the Envoy, as the program shows it.
    pub(crate) fn envoy_config(&self) -> Result<String> {
        let admin = self.state.path().join("envoy-admin.sock");
        let admin = admin.to_string_lossy();
        let shown = Gatewright::run(&["envoy", "config", "--envoy-admin", &admin])?;
        Ok(String::from_utf8_lossy(&shown.stdout).into_owned())
    }

    /// Alice adds a host: checks that her backend serves it over HTTP and HTTPS within [`SOON`].
    pub(crate) async fn alice_is_unharmed(&self, step: usize) -> Result<()> {
        let took = self.alice_is_served(step).await?;
        ensure!(
            took < SOON,
            "her new host took {took:?}\n{}",
            self.program.output()
        );
        self.served_by("alice.example.org", "alice").await
    }

    /// Alice adds a host; returns the time until her backend serves it over HTTP and HTTPS.
    pub(crate) async fn alice_is_served(&self, step: usize) -> Result<Duration> {
        let name = format!("alice-{step}");
        let host = format!("alice-{step}.example.org");
        self.save(
            &format!("{name}.yaml"),
            &route("alice", &name, &host, FORWARD),
        )?;
        let began = Instant::now();
        self.served_by(&host, "alice").await?;
        Ok(began.elapsed())
    }

    /// Returns the answer of the program's admin socket, with its headers.
    pub(crate) async fn admin(&self, path: &str) -> Result<String> {
        get(&self.state.path().join("admin.sock"), path).await
    }

    /// Returns the process id of the Envoy.
    pub(crate) fn envoy(&self) -> Result<u32> {
        usage::child(self.program.pid(), "envoy")
    }

    /// Runs a subcommand against the running program; returns its exit code, and its stdout and
    /// stderr.
    pub(crate) fn ask(&self, args: &[&str]) -> Result<(i32, String)> {
        let private = self.state.path().display().to_string();
        let output = Gatewright::run(&[args, &["--state-dir", &private]].concat())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code().context("it was killed")?, text))
    }
}

/// Returns the answer of an admin socket, with its headers.
async fn get(socket: &Path, path: &str) -> Result<String> {
    let mut admin = UnixStream::connect(socket).await?;
    let question = format!("GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
    admin.write_all(question.as_bytes()).await?;
    let mut answer = String::new();
    admin.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Returns the answer of the admin interface of the Envoy with the socket in this directory.
pub(crate) async fn ask_envoy(state: &Path, path: &str) -> Result<String> {
    get(&state.join("envoy-admin.sock"), path).await
}

/// Returns a statistic of the Envoy with the admin socket in this directory; 0 if Envoy has not
/// created it yet.
pub(crate) async fn envoy_stat(state: &Path, name: &str) -> Result<u64> {
    let answer = ask_envoy(state, &format!("/stats?filter=^{name}$")).await?;
    let value = answer
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Ok(value.map_or(Ok(0), str::parse)?)
}

/// Returns the name of the backend that answers with 200.
pub(crate) async fn named(probe: &Probe) -> Result<String> {
    let answer = probe.send().await?;
    ensure!(answer.status == 200, "answered {}", answer.status);
    let said: Value = serde_json::from_slice(&answer.body)?;
    Ok(said["name"].as_str().context("a name")?.to_owned())
}

fn run(
    manifests: &TempDir,
    state: &TempDir,
    options: &[String],
    files: Option<u32>,
) -> Result<Gatewright> {
    let dir = manifests.path().display().to_string();
    let private = state.path().display().to_string();
    let envoy = e2e::envoy::binary()?.canonicalize()?.display().to_string();
    let mut args = vec!["standalone", &dir, "--state-dir", &private];
    if !options.iter().any(|option| option == "--envoy") {
        args.extend(["--envoy", &envoy]);
    }
    args.extend(options.iter().map(String::as_str));
    match files {
        Some(files) => Gatewright::start_within_files(files, &args),
        None => Gatewright::start(&args),
    }
}
