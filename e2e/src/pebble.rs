//! A real Pebble, Let's Encrypt's test CA, with its DNS server.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::port::free_port;
use crate::process::Process;

const START_LIMIT: Duration = Duration::from_secs(60);
const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_LIMIT: u64 = 1 << 20;

/// The settings of Pebble.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Percentage of good nonces that it refuses.
    pub nonce_reject: u8,
    /// Accepts every challenge without validation.
    pub always_valid: bool,
    /// Sends no `Retry-After`, so that a run measures work and not waiting.
    pub eager: bool,
    /// External accounts that it knows, by key id; with any, it requires one.
    pub external: BTreeMap<String, String>,
    /// Number of alternate chains that it offers.
    pub alternate_roots: u8,
    /// The resolver that it uses instead of its own DNS server.
    pub resolver: Option<SocketAddr>,
    /// The port of HTTP-01, instead of a free one.
    pub http_port: Option<u16>,
    /// The address of every name in its DNS server, instead of 127.0.0.1.
    pub hosts: Option<IpAddr>,
}

/// A running Pebble and its DNS server; both killed on drop.
#[derive(Debug)]
pub struct Pebble {
    pebble: Process,
    dns: Process,
    listen: SocketAddr,
    management: SocketAddr,
    dns_management: SocketAddr,
    nameserver: SocketAddr,
    ca_pem: String,
    /// The port at which it validates HTTP-01.
    pub http_port: u16,
    /// The port at which it validates TLS-ALPN-01.
    pub tls_port: u16,
}

impl Pebble {
    /// Starts it and returns when its directory answers.
    ///
    /// It runs with one processor: with more, its locks deadlock under concurrent clients while its
    /// directory still answers. A test without progress is ended by its own time limit.
    pub async fn start(options: &Options) -> Result<Self> {
        let listen = free_address()?;
        let management = free_address()?;
        let dns_management = free_address()?;
        let dns = free_address()?;
        let http_port = options.http_port.map_or_else(free_port, Ok)?;
        let tls_port = free_port()?;
        let hosts = options
            .hosts
            .map_or_else(|| "127.0.0.1".to_owned(), |ip| ip.to_string());
        let dir = tempfile::Builder::new().prefix("pebble").tempdir()?;
        let ca_pem = server_certificate(dir.path())?;
        let config = json!({ "pebble": {
            "listenAddress": listen.to_string(),
            "managementListenAddress": management.to_string(),
            "certificate": dir.path().join("server.pem"),
            "privateKey": dir.path().join("server.key"),
            "httpPort": http_port,
            "tlsPort": tls_port,
            "caaIdentities": ["pebble.letsencrypt.org"],
            "externalAccountBindingRequired": !options.external.is_empty(),
            "externalAccountMACKeys": options.external,
            // Zero: no `Retry-After`, so that clients poll at their own interval.
            "retryAfter": { "authz": i32::from(!options.eager), "order": i32::from(!options.eager) },
            "profiles": {
                "default": { "description": "ninety days", "validityPeriod": 90 * 86400 },
                "shortlived": { "description": "six days", "validityPeriod": 6 * 86400 },
            },
        }});
        let file = dir.path().join("config.json");
        std::fs::write(&file, config.to_string())?;

        let dns_dir = tempfile::Builder::new().prefix("challtestsrv").tempdir()?;
        let dns_args = [
            "-management",
            &dns_management.to_string(),
            "-dnsserver",
            &dns.to_string(),
            "-http01",
            "",
            "-https01",
            "",
            "-tlsalpn01",
            "",
            "-doh",
            "",
            "-defaultIPv4",
            &hosts,
            "-defaultIPv6",
            "",
        ]
        .map(str::to_owned);
        let dns_process = Process::start(&binary("pebble-challtestsrv")?, &dns_args, dns_dir)?;
        let mut args = vec![
            "GOMAXPROCS=1".to_owned(),
            "PEBBLE_VA_NOSLEEP=1".to_owned(),
            format!("PEBBLE_WFE_NONCEREJECT={}", options.nonce_reject),
            format!("PEBBLE_ALTERNATE_ROOTS={}", options.alternate_roots),
        ];
        if options.always_valid {
            args.push("PEBBLE_VA_ALWAYS_VALID=1".to_owned());
        }
        args.push(binary("pebble")?.display().to_string());
        args.extend(
            [
                "-config",
                &file.display().to_string(),
                "-dnsserver",
                &options.resolver.unwrap_or(dns).to_string(),
            ]
            .map(str::to_owned),
        );
        let process = Process::start(Path::new("/usr/bin/env"), &args, dir)?;
        let mut pebble = Self {
            pebble: process,
            dns: dns_process,
            listen,
            management,
            dns_management,
            nameserver: dns,
            ca_pem,
            http_port,
            tls_port,
        };
        pebble.ready().await?;
        Ok(pebble)
    }

    /// Stops it (SIGSTOP): connections are accepted and not answered.
    pub fn freeze(&self) -> Result<()> {
        self.pebble.signal("STOP")
    }

    /// Continues it (SIGCONT).
    pub fn thaw(&self) -> Result<()> {
        self.pebble.signal("CONT")
    }

    async fn ready(&mut self) -> Result<()> {
        let until = Instant::now() + START_LIMIT;
        loop {
            let trouble = match (
                self.get(self.listen, "/dir").await,
                TcpStream::connect(self.dns_management).await,
            ) {
                (Ok(_), Ok(_)) => return Ok(()),
                (Err(error), _) => format!("{error:#}"),
                (_, Err(error)) => error.to_string(),
            };
            for process in [&mut self.pebble, &mut self.dns] {
                if let Some(status) = process.ended()? {
                    bail!("ended with {status}:\n{}", process.tail());
                }
            }
            ensure!(
                Instant::now() < until,
                "Pebble is not up: {trouble}\n{}",
                self.pebble.tail()
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the address of its DNS server.
    pub fn nameserver(&self) -> SocketAddr {
        self.nameserver
    }

    /// Returns its directory URL.
    pub fn directory(&self) -> String {
        format!("https://{}/dir", self.listen)
    }

    /// Returns the address of its ACME server.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Returns the root of its own TLS certificate, in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the root of the certificates that it issues, or of an alternate chain.
    pub async fn issuing_root(&self, index: usize) -> Result<String> {
        self.get(self.management, &format!("/roots/{index}")).await
    }

    /// Sets the ARI answer for a certificate.
    pub async fn set_renewal_info(&self, certificate_pem: &str, answer: &Value) -> Result<()> {
        let body = json!({ "certificate": certificate_pem, "ariResponse": answer.to_string() });
        self.tls(
            self.management,
            "POST",
            "/set-renewal-info/",
            &body.to_string(),
        )
        .await
        .map(drop)
    }

    /// Returns the number of certificates that it issued, by its log.
    pub fn issued(&self) -> usize {
        self.pebble
            .log()
            .matches("Issued certificate serial")
            .count()
    }

    /// Returns the number of orders that were placed.
    pub fn orders(&self) -> usize {
        self.pebble.log().matches("Added order").count()
    }

    /// Returns the number of protocol requests that it received.
    pub fn requests(&self) -> usize {
        self.pebble.log().matches(" -> calling handler()").count()
    }

    /// Returns the processor time that it used, on its single processor.
    pub fn processor_time(&self) -> Result<Duration> {
        self.pebble.processor_time()
    }

    /// Returns the address at which its DNS server takes commands ([`tell_dns`]).
    pub fn dns_management(&self) -> SocketAddr {
        self.dns_management
    }

    async fn get(&self, address: SocketAddr, path: &str) -> Result<String> {
        self.tls(address, "GET", path, "").await
    }

    async fn tls(
        &self,
        address: SocketAddr,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<String> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).context("our own CA")?)?;
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::from(address.ip());
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?;
        exchange(stream, method, path, body).await
    }
}

/// Returns the path of the program.
pub fn binary(name: &str) -> Result<PathBuf> {
    let variable = format!("GATEWRIGHT_{}", name.to_uppercase().replace('-', "_"));
    if let Some(path) = std::env::var_os(&variable) {
        return Ok(path.into());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../.tools")
        .join(name);
    ensure!(
        path.exists(),
        "no {name} at {}; run: e2e/tools install pebble, or set {variable}",
        path.display()
    );
    Ok(path)
}

/// Returns a free loopback address.
fn free_address() -> Result<SocketAddr> {
    Ok(SocketAddr::from(([127, 0, 0, 1], free_port()?)))
}

/// Makes a CA, and a certificate for 127.0.0.1 and localhost in the directory (`server.pem`,
/// `server.key`); returns the CA's certificate.
pub fn server_certificate(dir: &Path) -> Result<String> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::new(Vec::<String>::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Otherwise OpenSSL takes the server's certificate, which has the same default name, for a
    // self-signed one.
    ca.distinguished_name
        .push(DnType::CommonName, "CA of the test");
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let key = KeyPair::generate()?;
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key))?;
    std::fs::write(dir.join("server.pem"), certificate.pem())?;
    std::fs::write(dir.join("server.key"), key.serialize_pem())?;
    Ok(ca_pem)
}

/// Sends a command to a DNS server of Pebble: `/set-txt`, `/clear-txt`.
///
/// # Errors
/// When it does not carry it out.
pub async fn tell_dns(management: SocketAddr, path: &str, body: &Value) -> Result<()> {
    let stream = TcpStream::connect(management).await?;
    exchange(stream, "POST", path, &body.to_string()).await?;
    Ok(())
}

/// Sends one request on a connection of its own.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    method: &str,
    path: &str,
    body: &str,
) -> Result<String> {
    let work = async move {
        let mut stream = stream;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nUser-Agent: e2e\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        // A peer may close without close_notify after its answer.
        let _end = stream.take(ANSWER_LIMIT).read_to_end(&mut answer).await;
        let text = String::from_utf8(answer)?;
        let (head, body) = text.split_once("\r\n\r\n").context("no HTTP answer")?;
        ensure!(
            head.split(' ').nth(1) == Some("200"),
            "{method} {path}: {head}"
        );
        Ok(body.to_owned())
    };
    timeout(EXCHANGE_LIMIT, work)
        .await
        .context("no answer in time")?
}
