//! Answers to the challenges of a CA, within the test's process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acme::Failure;
use acme::challenge::alpn::{AlpnSolver, ChallengeCertificate};
use acme::challenge::dns::{DnsError, DnsProvider, DnsView, Seen, TxtRecord};
use acme::client::Roots;
use anyhow::{Context, Result};
use async_trait::async_trait;
use e2e::pebble::{Pebble, tell_dns};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);

/// The root of Pebble's own TLS certificate.
pub fn roots_of(pebble: &Pebble) -> Roots {
    Roots::Pem(pebble.ca_pem().to_owned())
}

/// A DNS provider that writes TXT records into Pebble's DNS server, and remembers them.
#[derive(Debug)]
pub struct TestDns {
    management: SocketAddr,
    records: tokio::sync::Mutex<BTreeMap<String, Vec<String>>>,
}

impl TestDns {
    /// Makes one for a Pebble.
    pub fn of(pebble: &Pebble) -> Arc<Self> {
        Arc::new(Self {
            management: pebble.dns_management(),
            records: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the current values at all names.
    pub async fn records(&self) -> BTreeMap<String, Vec<String>> {
        self.records.lock().await.clone()
    }

    async fn tell(&self, path: &str, body: &Value) -> Result<(), DnsError> {
        tell_dns(self.management, path, body)
            .await
            .map_err(|error| DnsError::Unavailable {
                provider: "test".to_owned(),
                message: format!("{error:#}"),
            })
    }
}

#[async_trait]
impl DnsProvider for TestDns {
    fn name(&self) -> &str {
        "test"
    }

    async fn zone_of(&self, name: &str) -> Result<String, DnsError> {
        Ok(name
            .rsplitn(3, '.')
            .take(2)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join("."))
    }

    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError> {
        let mut records = self.records.lock().await;
        let values = records.entry(record.name.clone()).or_default();
        if !values.contains(&record.value) {
            values.push(record.value.clone());
            self.tell(
                "/set-txt",
                &json!({ "host": format!("{}.", record.name), "value": record.value }),
            )
            .await?;
        }
        Ok(())
    }

    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError> {
        let mut records = self.records.lock().await;
        let Some(values) = records.get_mut(&record.name) else {
            return Ok(());
        };
        values.retain(|v| *v != record.value);
        let left = values.clone();
        let host = format!("{}.", record.name);
        // The server can only remove all values of a name.
        self.tell("/clear-txt", &json!({ "host": host })).await?;
        for value in &left {
            self.tell("/set-txt", &json!({ "host": host, "value": value }))
                .await?;
        }
        if left.is_empty() {
            records.remove(&record.name);
        }
        Ok(())
    }
}

#[async_trait]
impl DnsView for TestDns {
    async fn challenge_target(&self, name: &str) -> Result<String, DnsError> {
        Ok(name.to_owned())
    }

    async fn seen(&self, record: &TxtRecord) -> Result<Seen, DnsError> {
        let records = self.records.lock().await;
        let there = records
            .get(&record.name)
            .is_some_and(|v| v.contains(&record.value));
        Ok(if there {
            Seen::Everywhere { silent: vec![] }
        } else {
            Seen::NotYet {
                missing: vec!["test".to_owned()],
            }
        })
    }

    async fn values(&self, name: &str) -> Result<Vec<String>, DnsError> {
        Ok(self
            .records
            .lock()
            .await
            .get(name)
            .cloned()
            .unwrap_or_default())
    }
}

/// A stateless HTTP-01 responder, which knows the thumbprint only.
#[derive(Debug)]
pub struct Responder {
    accepting: JoinHandle<()>,
    thumbprint: Arc<Mutex<String>>,
}

impl Responder {
    /// Starts it.
    pub async fn start(port: u16, thumbprint: &str) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .context("the port of HTTP-01")?;
        let thumbprint = Arc::new(Mutex::new(thumbprint.to_owned()));
        let known = thumbprint.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let thumbprint = known
                    .lock()
                    .expect("nobody panics while holding it")
                    .clone();
                connections.spawn(async move {
                    let _gone = timeout(EXCHANGE_LIMIT, respond(stream, &thumbprint)).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            accepting,
            thumbprint,
        })
    }

    /// Sets the thumbprint of another account.
    pub fn set_thumbprint(&self, thumbprint: &str) {
        *self
            .thumbprint
            .lock()
            .expect("nobody panics while holding it") = thumbprint.to_owned();
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn respond(mut stream: TcpStream, thumbprint: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 8192 {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or("/");
    let answer = match acme::challenge::http::answer(path, thumbprint) {
        Some(body) => format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ),
        None => {
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()
        }
    };
    stream.write_all(answer.as_bytes()).await
}

/// A TLS-ALPN-01 responder that serves challenge certificates.
#[derive(Debug)]
pub struct AlpnResponder {
    accepting: JoinHandle<()>,
    shown: Arc<Shown>,
}

#[derive(Debug, Default)]
struct Shown(Mutex<BTreeMap<String, Arc<CertifiedKey>>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let challenge = hello.alpn()?.any(|p| p == acme::challenge::alpn::PROTOCOL);
        let name = hello.server_name()?;
        challenge.then(|| {
            self.0
                .lock()
                .expect("nobody panics while holding it")
                .get(name)
                .cloned()
        })?
    }
}

impl AlpnResponder {
    /// Starts it.
    pub async fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .context("the port of TLS-ALPN-01")?;
        let shown = Arc::new(Shown::default());
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(shown.clone());
        config.alpn_protocols = vec![acme::challenge::alpn::PROTOCOL.to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let _gone = timeout(EXCHANGE_LIMIT, async {
                        if let Ok(mut stream) = acceptor.accept(stream).await {
                            let _closed = stream.shutdown().await;
                        }
                    })
                    .await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { accepting, shown })
    }

    /// Returns the number of names with a challenge certificate.
    pub fn shown(&self) -> usize {
        self.shown
            .0
            .lock()
            .expect("nobody panics while holding it")
            .len()
    }
}

impl Drop for AlpnResponder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

#[async_trait]
impl AlpnSolver for AlpnResponder {
    async fn present(&self, name: &str, certificate: &ChallengeCertificate) -> Result<(), Failure> {
        let bug = |e: String| Failure::new(acme::Class::Bug, e);
        let chain = CertificateDer::from_pem_slice(certificate.certificate_pem.as_bytes())
            .map_err(|e| bug(e.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(certificate.key_pem.expose().as_bytes())
            .map_err(|e| bug(e.to_string()))?;
        let key =
            rustls::crypto::ring::sign::any_supported_type(&key).map_err(|e| bug(e.to_string()))?;
        let certified = Arc::new(CertifiedKey::new(vec![chain], key));
        self.shown
            .0
            .lock()
            .expect("nobody panics while holding it")
            .insert(name.to_owned(), certified);
        Ok(())
    }

    async fn cleanup(&self, name: &str) {
        self.shown
            .0
            .lock()
            .expect("nobody panics while holding it")
            .remove(name);
    }
}
