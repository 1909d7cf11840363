//! The fixture of these tests: a CA, an echo backend, manifests, and the program that serves them.

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::pebble::{Options, Pebble};
use e2e::probe::{Answer, Failure, Probe, roots_of};
use e2e_inside::world::free_port;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

pub(crate) const LIMIT: Duration = Duration::from_secs(180);

/// A CA, an echo backend, a directory of manifests, a private directory, and the program that
/// serves them.
pub(crate) struct Site {
    pub(crate) pebble: Pebble,
    pub(crate) program: Option<Gatewright>,
    pub(crate) manifests: TempDir,
    pub(crate) state: TempDir,
    pub(crate) port: u16,
    pub(crate) echo: Echo,
}

fn listener(name: &str, host: &str, port: u16, issuer: &str) -> String {
    let hostname = if host.is_empty() {
        String::new()
    } else {
        format!("hostname: \"{host}\", ")
    };
    format!(
        "  - {{name: {name}, {hostname}protocol: HTTPS, port: {port}, \
         tls: {{options: {{gatewright.io/issuer: {issuer}}}}}}}\n"
    )
}

impl Site {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(Pebble::start(&Options::default()).await?).await
    }

    pub(crate) async fn with(pebble: Pebble) -> Result<Self> {
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        let ca = pebble.ca_pem();
        fs::write(state.path().join("pebble.pem"), ca)?;
        let site = Self {
            pebble,
            program: None,
            manifests,
            state,
            port: free_port()?,
            echo: Echo::start("web").await?,
        };
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

    /// Writes a file atomically.
    pub(crate) fn save(&self, name: &str, text: &str) -> Result<()> {
        let new = self.manifests.path().join(format!(".{name}.new"));
        fs::write(&new, text)?;
        fs::rename(new, self.manifests.path().join(name)).context("renaming into place")
    }

    /// Writes the Gateway with these listeners, as (host, issuer), and no listener on port 80. The
    /// host may be empty.
    pub(crate) fn publish(&self, hosts: &[(&str, &str)]) -> Result<()> {
        self.publish_beside(hosts, "")
    }

    /// Like [`Self::publish`], with more lines of listeners.
    pub(crate) fn publish_beside(&self, hosts: &[(&str, &str)], more: &str) -> Result<()> {
        let listeners: String = hosts
            .iter()
            .enumerate()
            .map(|(i, (host, issuer))| listener(&format!("l{i}"), host, self.port, issuer))
            .collect();
        self.save(
            "gateway.yaml",
            &format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\nspec:\n  \
                 gatewayClassName: ours\n  listeners:\n{listeners}{more}"
            ),
        )
    }

    pub(crate) fn start(&mut self, more: &[&str]) -> Result<()> {
        let directory = self.pebble.directory();
        self.start_at(&directory, more)
    }

    pub(crate) fn start_at(&mut self, directory: &str, more: &[&str]) -> Result<()> {
        let ca = self.state.path().join("pebble.pem").display().to_string();
        let own = [
            "--set",
            &format!("issuers.acme.directory={directory}"),
            "--set",
            &format!("issuers.acme.caBundle={ca}"),
            "--set",
            "issuers.acme.agreeToTerms=true",
        ];
        self.start_with(&[&own[..], more].concat())
    }

    /// Starts the program with these options, and only the CA that they name.
    pub(crate) fn start_with(&mut self, options: &[&str]) -> Result<()> {
        let envoy = e2e::envoy::binary()?.canonicalize()?.display().to_string();
        self.start_before(&[&["--envoy", &envoy], options].concat())
    }

    /// Starts the program with these options, which include those of the data plane.
    pub(crate) fn start_before(&mut self, options: &[&str]) -> Result<()> {
        fn text(path: &Path) -> String {
            path.display().to_string()
        }
        let dir = text(self.manifests.path());
        let private = text(self.state.path());
        // The name servers of these tests are on loopback.
        let mut own = vec![
            "standalone",
            &dir,
            "--state-dir",
            &private,
            "--set",
            "tenancy.allowedNetworks=[127.0.0.0/8]",
        ];
        let port = format!("issuers.acme.httpPort={}", self.pebble.http_port);
        let of_acme = [
            "--set",
            &port,
            "--set",
            "issuers.acme.allowedNetworks=[127.0.0.0/8]",
        ];
        let has_acme = options
            .iter()
            .any(|option| option.starts_with("issuers.acme.directory="));
        if has_acme {
            own.extend(of_acme);
        }
        self.program = Some(Gatewright::start(&[&own[..], options].concat())?);
        Ok(())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub(crate) async fn get(&self, host: &str) -> Result<Answer, Failure> {
        Probe::https(self.address(), host).send().await
    }

    /// Waits until a host is served over TLS, with a certificate by Pebble's root.
    pub(crate) async fn served(&self, host: &str) -> Result<Answer> {
        let roots = roots_of(&self.pebble.issuing_root(0).await?)?;
        let probe = Probe::https(self.address(), host).roots(roots);
        let until = Instant::now() + LIMIT;
        loop {
            match probe.send().await {
                Ok(answer) => return Ok(answer),
                Err(error) if Instant::now() > until => {
                    let log = self.output();
                    let (_, certs) = self.ask(&["certs"])?;
                    bail!("{host}: {error}\n{certs}\n{log}");
                }
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Returns the output of the program; nothing before it is started.
    pub(crate) fn output(&self) -> String {
        self.program
            .as_ref()
            .map(Gatewright::output)
            .unwrap_or_default()
    }

    pub(crate) fn ask(&self, args: &[&str]) -> Result<(i32, String)> {
        let private = self.state.path().display().to_string();
        let output = Gatewright::run(&[args, &["--state-dir", &private]].concat())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code().context("it was killed")?, text))
    }

    /// Waits until the row of a host in `certs` satisfies a predicate, and returns it.
    pub(crate) async fn row(&self, host: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let until = Instant::now() + LIMIT;
        loop {
            let (_, text) = self.ask(&["certs", "-o", "json"])?;
            // At the very start the admin socket does not answer.
            let report: Value = serde_json::from_str(&text).unwrap_or_default();
            let rows = report["certificates"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            match rows.iter().find(|row| row["hosts"][0] == host) {
                Some(row) if is_so(row) => return Ok(row.clone()),
                _ if Instant::now() > until => bail!("{host}: {text}"),
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

/// Returns the serial number of the server's certificate.
pub(crate) fn serial(answer: &Answer) -> Result<String> {
    Ok(format!(
        "{:?}",
        answer.peer.as_ref().context("over TLS")?.serial
    ))
}
