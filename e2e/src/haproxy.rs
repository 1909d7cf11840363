//! HAProxy, from its Debian package: a load balancer that tells the client's address by the PROXY
//! protocol.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::loopback;
use crate::port::free_port;
use crate::process::Process;

const START_LIMIT: Duration = Duration::from_secs(60);

/// The header that it writes before a connection's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// None.
    None,
    /// The PROXY protocol, version 1.
    V1,
    /// The PROXY protocol, version 2.
    V2,
}

/// A running HAProxy; killed on drop.
#[derive(Debug)]
pub struct HaProxy {
    _process: Process,
    addresses: Vec<SocketAddr>,
}

impl HaProxy {
    /// The address of this machine that it listens on, which therefore is that of its clients.
    pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 7, 9);

    /// Starts it with an address for each of these headers and ports of 127.0.0.1. It connects
    /// there from the address `from`.
    pub async fn start(from: Ipv4Addr, targets: &[(Header, u16)]) -> Result<Self> {
        loopback::add(&Self::ADDRESS.to_string()).await?;
        let dir = tempfile::Builder::new()
            .prefix("haproxy")
            .tempdir()
            .context("making a directory")?;
        let mut configuration = "global\n  maxconn 64\ndefaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n  \
                                 timeout server 60s\n"
            .to_owned();
        let mut addresses = Vec::new();
        for (header, port) in targets {
            let address = SocketAddr::from((Self::ADDRESS, free_port()?));
            let send = match header {
                Header::None => "",
                Header::V1 => "send-proxy",
                Header::V2 => "send-proxy-v2",
            };
            writeln!(
                configuration,
                "listen l{}\n  bind {address}\n  server envoy 127.0.0.1:{port} source {from} {send}",
                addresses.len()
            )?;
            addresses.push(address);
        }
        let process = listening(&configuration, dir, &addresses).await?;
        Ok(Self {
            _process: process,
            addresses,
        })
    }

    /// The address that leads to a target, by its position.
    pub fn address(&self, target: usize) -> SocketAddr {
        self.addresses[target]
    }
}

/// Starts HAProxy with a configuration, and waits until it listens.
async fn listening(
    configuration: &str,
    dir: tempfile::TempDir,
    addresses: &[SocketAddr],
) -> Result<Process> {
    let file = dir.path().join("haproxy.cfg");
    std::fs::write(&file, configuration)?;
    let arguments = [
        "-db".to_owned(),
        "-f".to_owned(),
        file.display().to_string(),
    ];
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/haproxy");
    ensure!(
        program.exists(),
        "no haproxy at {}; run: e2e/tools install haproxy",
        program.display()
    );
    let mut process = Process::start(&program, &arguments, dir)?;
    for address in addresses {
        process.accepts("HAProxy", *address, START_LIMIT).await?;
    }
    Ok(process)
}

/// A running HAProxy that answers requests with the address of the client, as the header of the
/// PROXY protocol has it, and accepts no connection without one; killed on drop.
#[derive(Debug)]
pub struct Accepting {
    _process: Process,
    plain: SocketAddr,
    tls: SocketAddr,
}

impl Accepting {
    /// Starts it with an address for HTTP, and one for HTTPS with a certificate for this host.
    pub async fn start(host: &str) -> Result<Self> {
        let address = HaProxy::ADDRESS;
        loopback::add(&address.to_string()).await?;
        let dir = tempfile::Builder::new()
            .prefix("haproxy")
            .tempdir()
            .context("making a directory")?;
        let made = rcgen::generate_simple_self_signed([host.to_owned()])?;
        let certificate = dir.path().join("tls.pem");
        let pem = [made.cert.pem(), made.signing_key.serialize_pem()].concat();
        std::fs::write(&certificate, pem)?;
        let plain = SocketAddr::from((address, free_port()?));
        let tls = SocketAddr::from((address, free_port()?));
        let configuration = format!(
            "global\n  maxconn 64\ndefaults\n  mode http\n  timeout connect 10s\n  timeout client 60s\n  \
             timeout server 60s\nfrontend f\n  bind {plain} accept-proxy\n  \
             bind {tls} accept-proxy ssl crt {}\n  \
             http-request return status 200 content-type text/plain lf-string %[src]\n",
            certificate.display()
        );
        let process = listening(&configuration, dir, &[plain, tls]).await?;
        Ok(Self {
            _process: process,
            plain,
            tls,
        })
    }

    /// The address for HTTP.
    pub fn plain(&self) -> SocketAddr {
        self.plain
    }

    /// The address for HTTPS.
    pub fn tls(&self) -> SocketAddr {
        self.tls
    }
}
