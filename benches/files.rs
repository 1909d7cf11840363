//! Many hosts in a directory, as `gatewright standalone` with its Envoy serves them: a start, one
//! more host, and the memory of both programs.
//!
//! `cargo bench -p e2e --bench files [64 1000 10000] [siblings own mixed]`. Each host has a
//! certificate, a ListenerSet and an HTTPRoute in a namespace of fifty hosts; hosts that are there
//! at the start are in one file for each namespace, and each added host is in a file of its own,
//! which comes by a rename.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

mod names;

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::probe::Probe;
use e2e::usage::{main_thread_time, memory, processor_time, threads_time};
use names::Names;
use tempfile::TempDir;

/// Hosts of a namespace.
const OF_ONE_NAMESPACE: usize = 50;
/// Hosts that are added, one after the other.
const ROUNDS: usize = 30;
/// The last hosts of a start whose answers are waited for.
const LAST: usize = 200;
const LIMIT: Duration = Duration::from_secs(300);

/// The objects of a host.
fn host(n: usize, names: Names, port: u16) -> Result<String> {
    let space = n / OF_ONE_NAMESPACE;
    let name = names.of(n);
    let made = rcgen::generate_simple_self_signed([name.clone()])?;
    let certificate = indented(&made.cert.pem());
    let key = indented(&made.signing_key.serialize_pem());
    Ok(format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: c{n}, namespace: t{space}}}\ntype: kubernetes.io/tls\n\
         stringData:\n  tls.crt: |\n{certificate}  tls.key: |\n{key}---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {{name: s{n}, namespace: t{space}}}\n\
         spec:\n  parentRef: {{name: edge, namespace: infra}}\n  listeners:\n  - name: https\n    port: {port}\n    \
         protocol: HTTPS\n    hostname: {name}\n    tls: {{certificateRefs: [{{name: c{n}}}]}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r{n}, namespace: t{space}}}\n\
         spec:\n  parentRefs: [{{kind: ListenerSet, name: s{n}}}]\n  rules:\n  - backendRefs: [{{name: web, port: 80}}]\n---\n"
    ))
}

fn indented(pem: &str) -> String {
    pem.lines().map(|line| format!("    {line}\n")).collect()
}

/// The Service of a namespace.
fn service(space: usize, backend: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: t{space}}}\nspec: {{ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web, namespace: t{space}, \
         labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nendpoints: [{{addresses: [{}]}}]\n\
         ports: [{{port: {}}}]\n---\n",
        backend.ip(),
        backend.port()
    )
}

fn base(port: u16) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: ours}}\n\
         spec: {{controllerName: gatewright.io/gateway-controller}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge, namespace: infra}}\n\
         spec:\n  gatewayClassName: ours\n  allowedListeners: {{namespaces: {{from: All}}}}\n  listeners:\n  \
         - {{name: https, hostname: first.example.com, protocol: HTTPS, port: {port}, \
         tls: {{options: {{gatewright.io/issuer: internal-ca}}}}}}\n"
    )
}

/// The program with its Envoy over a directory.
struct Site {
    program: Gatewright,
    envoy: u32,
    manifests: TempDir,
    _state: TempDir,
    port: u16,
    names: Names,
}

impl Site {
    /// Starts with `count` hosts, and prints when the last ones were served.
    async fn start(count: usize, names: Names, echo: &Echo) -> Result<Self> {
        let port = free_port()?;
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        fs::write(manifests.path().join("base.yaml"), base(port))?;
        for space in 0..(count + ROUNDS).div_ceil(OF_ONE_NAMESPACE) {
            let hosts = space * OF_ONE_NAMESPACE..count.min((space + 1) * OF_ONE_NAMESPACE);
            let mut text = service(space, echo.address());
            for n in hosts {
                text += &host(n, names, port)?;
            }
            fs::write(manifests.path().join(format!("t{space}.yaml")), text)?;
        }
        let began = Instant::now();
        let program = Gatewright::standalone(manifests.path(), state.path(), &[])?;
        let envoy = program.until_envoy().await?;
        let site = Self {
            program,
            envoy,
            manifests,
            _state: state,
            port,
            names,
        };
        for n in count.saturating_sub(LAST)..count {
            site.served(n).await?;
        }
        println!(
            "{count:>6} | {names:?} | start to the last {LAST}: {:.2} s, ours {:.2} s of processor time, {}",
            began.elapsed().as_secs_f64(),
            processor_time(site.program.pid())?.as_secs_f64(),
            site.memories()?
        );
        Ok(site)
    }

    fn memories(&self) -> Result<String> {
        fn mb(pid: u32, field: &str) -> Result<f64> {
            Ok(memory(pid, field)? as f64 / 1024.0 / 1024.0)
        }
        let ours = self.program.pid();
        Ok(format!(
            "ours {:.0} MB (at most {:.0}), Envoy {:.0} MB",
            mb(ours, "VmRSS")?,
            mb(ours, "VmHWM")?,
            mb(self.envoy, "VmRSS")?
        ))
    }

    /// Waits until a host answers.
    async fn served(&self, n: usize) -> Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let probe = Probe::https(address, &self.names.of(n)).limit(Duration::from_secs(5));
        let began = Instant::now();
        loop {
            match probe.send().await {
                Ok(answer) if answer.status == 200 => return Ok(()),
                answer => ensure!(
                    began.elapsed() < LIMIT,
                    "host {n} never came: {answer:?}\n{}",
                    self.program.output()
                ),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Adds hosts, one after the other.
    async fn add(&self, count: usize) -> Result<()> {
        let (mut live, mut ours, mut envoy) = (Vec::new(), Vec::new(), Vec::new());
        for n in count..count + ROUNDS {
            let text = host(n, self.names, self.port)?;
            let new = self.manifests.path().join(format!(".added{n}.new"));
            fs::write(&new, text)?;
            let program = threads_time(self.program.pid())?;
            let main = main_thread_time(self.envoy)?;
            let began = Instant::now();
            fs::rename(new, self.manifests.path().join(format!("added{n}.yaml")))
                .context("renaming into place")?;
            self.served(n).await?;
            live.push(began.elapsed());
            ours.push(threads_time(self.program.pid())?.saturating_sub(program));
            envoy.push(main_thread_time(self.envoy)?.saturating_sub(main));
        }
        println!(
            "{count:>6} | {:?} | add a host: live {} (p95 {}), ours {}, Envoy's main thread {}, {}",
            self.names,
            at(&mut live, 50),
            at(&mut live, 95),
            at(&mut ours, 50),
            at(&mut envoy, 50),
            self.memories()?
        );
        Ok(())
    }

    /// Removes all hosts that were there at the start.
    async fn empty(&self, count: usize) -> Result<()> {
        for space in 0..count / OF_ONE_NAMESPACE {
            fs::remove_file(self.manifests.path().join(format!("t{space}.yaml")))?;
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let began = Instant::now();
        for n in 0..count / OF_ONE_NAMESPACE {
            let probe = Probe::https(address, &self.names.of(n * OF_ONE_NAMESPACE));
            while probe.send().await.is_ok() {
                ensure!(began.elapsed() < LIMIT, "host {n} never went");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        println!(
            "{count:>6} | {:?} | without them: {}",
            self.names,
            self.memories()?
        );
        Ok(())
    }
}

fn at(all: &mut [Duration], percent: usize) -> String {
    all.sort();
    let place = (all.len() * percent / 100).min(all.len() - 1);
    format!("{:.1} ms", all[place].as_secs_f64() * 1000.0)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let counts: Vec<usize> = wanted.iter().filter_map(|arg| arg.parse().ok()).collect();
    let counts = if counts.is_empty() {
        vec![64, 1000, 10_000]
    } else {
        counts
    };
    let names: Vec<Names> = wanted.iter().filter_map(|arg| Names::named(arg)).collect();
    let names = if names.is_empty() {
        vec![Names::Siblings, Names::Own]
    } else {
        names
    };
    let echo = Echo::start("web").await?;
    for names in names {
        for count in &counts {
            let site = Site::start(*count, names, &echo).await?;
            site.add(*count).await?;
            site.empty(*count).await?;
        }
    }
    Ok(())
}
