//! Tests without any network: the program, Envoy and the internal CA in a network namespace without
//! routes.

use e2e::private_dir::private_dir;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::gatewright::{Gatewright, binary};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(180);
const HOSTS: usize = 300;

/// Makes a command of the program in a network namespace in which only the loopback interface is
/// up.
fn isolated(args: &[&str]) -> Result<Command> {
    let mut command = Command::new("unshare");
    if !std::fs::read_to_string("/proc/self/status")?.contains("\nUid:\t0\t") {
        command.arg("--map-root-user");
    }
    command.args([
        "--net",
        "--",
        "sh",
        "-c",
        "ip link set lo up && exec \"$@\"",
        "sh",
    ]);
    command.arg(binary()?).args(args);
    Ok(command)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
#[ignore = "needs Envoy"]
fn the_built_in_example_is_served_without_a_network() -> Result<()> {
    let state = private_dir()?;
    let dir = state.path().display().to_string();
    let envoy = e2e::envoy::binary()?.canonicalize()?;
    let args = [
        "standalone",
        "--once",
        "--state-dir",
        &dir,
        "--envoy",
        &envoy.display().to_string(),
    ];
    let output = isolated(&args)?.output().context("running unshare")?;
    ensure!(output.status.success(), "{}", text(&output));
    Ok(())
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn gateway(hosts: usize) -> String {
    let mut yaml =
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: ours}\n\
                    spec: {controllerName: gatewright.io/gateway-controller}\n"
            .to_owned();
    // A Gateway has at most 64 listeners.
    for (g, chunk) in (0..hosts).collect::<Vec<_>>().chunks(64).enumerate() {
        let _ = write!(
            yaml,
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: g{g}}}\nspec:\n  \
             gatewayClassName: ours\n  listeners:\n"
        );
        for i in chunk {
            let _ = writeln!(
                yaml,
                "  - {{name: l{i}, hostname: h{i}.site{g}.internal, protocol: HTTPS, port: {}, \
                 tls: {{options: {{gatewright.io/issuer: internal-ca}}}}}}",
                8443 + g
            );
        }
    }
    yaml
}

#[test]
#[ignore = "builds the program"]
fn hundreds_of_hosts_get_certificates_without_a_network() -> Result<()> {
    let state = private_dir()?;
    let manifests = tempfile::tempdir()?;
    std::fs::write(manifests.path().join("gateways.yaml"), gateway(HOSTS))?;
    fn path(path: &Path) -> String {
        path.display().to_string()
    }
    let dir = path(manifests.path());
    let private = path(state.path());
    let _running =
        Running(isolated(&["standalone", &dir, "--no-envoy", "--state-dir", &private])?.spawn()?);
    let until = Instant::now() + LIMIT;
    loop {
        let output = Gatewright::run(&["certs", "-o", "json", "--state-dir", &private])?;
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let rows = report["certificates"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let served = rows
            .iter()
            .filter(|row| row["expires"].is_string() && row["next"] == "renewal")
            .count();
        // The keeper has a certificate a moment before the program sends it to Envoy, with the
        // bundle.
        let bundle = std::fs::read_to_string(state.path().join("ca.crt")).unwrap_or_default();
        if served == HOSTS && bundle.contains("BEGIN CERTIFICATE") {
            return Ok(());
        }
        ensure!(
            Instant::now() < until,
            "{served} of {HOSTS} served, bundle {bundle:?}: {}",
            text(&output)
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}
