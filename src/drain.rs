//! Readiness and graceful shutdown of an Envoy in a pod: Envoy serves on while the pod is removed
//! from endpoints, then its connections are drained, and then it ends.
//!
//! Envoy ends at once on SIGTERM, with all requests in progress. A deleted pod gets SIGTERM before
//! every node and load balancer knows of the deletion. So this program runs beside it, and delays
//! Envoy's own signal (`preStop`).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper::body::Bytes;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use crate::{cli, connection_pressure, tls_client};
use gatewright_control::{ask, tell};

/// The interval at which connections are counted.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Envoy updates its count of connections every five seconds: an earlier value is outdated.
const COUNTED: Duration = Duration::from_secs(6);
/// The maximum size of a controller's readiness answer.
const ANSWER: usize = 1 << 20;

/// Waits for SIGTERM or SIGINT, and drains Envoy first. Until then, tells Envoy how near its
/// connections are to their limit.
///
/// # Errors
/// When signals cannot be received. Failures of Envoy are logged only.
pub async fn drain(options: cli::Drain) -> Result<bool> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let limit = connection_pressure::usual_limit(
        options
            .envoy_admin
            .parent()
            .context("--envoy-admin: expected a file")?,
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        never = connection_pressure::follow(&options.envoy_admin, &limit) => match never {},
    }
    info!("Envoy serves on for {} s", options.serve);
    sleep(Duration::from_secs(options.serve)).await;
    match end(&options.envoy_admin, Duration::from_secs(options.drain)).await {
        Ok(()) => Ok(true),
        Err(error) => {
            warn!("{error:#}");
            Ok(false)
        }
    }
}

/// Returns whether Envoy is ready, by its admin interface: a probe without a port, which untrusted
/// clients could exhaust. With `--controller`, waits until a controller is ready.
///
/// # Errors
/// When it is not ready, or does not answer in time; the message says which.
pub async fn ready(options: cli::Ready) -> Result<bool> {
    let patience = Duration::from_secs(options.patience);
    if let Some(controller) = &options.controller {
        let roots = options.roots.as_deref();
        return controller_ready(controller, roots, patience)
            .await
            .map(|()| true);
    }
    let envoy_admin = options.envoy_admin.context("--envoy-admin")?;
    let asked = ask(&envoy_admin, "/ready");
    let admin = envoy_admin.display();
    timeout(patience, asked)
        .await
        .with_context(|| {
            format!(
                "Envoy at {admin} did not answer within {} s",
                patience.as_secs()
            )
        })?
        .with_context(|| format!("Envoy at {admin} is not ready"))?;
    Ok(true)
}

/// Polls a controller until it is ready.
async fn controller_ready(address: &str, roots: Option<&Path>, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    let scheme = if address.contains("://") {
        ""
    } else {
        "http://"
    };
    let uri: Uri = format!("{scheme}{address}/readyz")
        .parse()
        .context("--controller: expected HOST:PORT or https://HOST:PORT")?;
    let roots = match (uri.scheme_str(), roots) {
        (Some("https"), Some(path)) => std::fs::read_to_string(path).with_context(|| {
            format!(
                "--roots {}: the CA certificates that verify the controller (ca.crt of the Secret of metrics.tlsSecretName)",
                path.display()
            )
        })?,
        (Some("https"), None) => {
            bail!("--controller https://… needs --roots: the CA certificates that verify it")
        }
        _ => String::new(),
    };
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(if roots.is_empty() {
            tls_client::nobody()?
        } else {
            tls_client::trusting(&roots)?
        })
        .https_or_http()
        .enable_http1()
        .build();
    let client = Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    loop {
        let asked = async {
            let answer = client.get(uri.clone()).await?;
            let status = answer.status();
            let said = Limited::new(answer.into_body(), ANSWER)
                .collect()
                .await
                .map_err(|error| anyhow!(error))?;
            ensure!(
                status.is_success(),
                "{status}: {}",
                String::from_utf8_lossy(&said.to_bytes()).trim()
            );
            Ok(())
        };
        let why = match timeout_at(deadline, asked).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => anyhow!("it does not answer"),
        };
        if Instant::now() + POLL_INTERVAL >= deadline {
            return Err(why.context(format!(
                "the controller at {address} is not ready after {} s",
                patience.as_secs()
            )));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Drains Envoy's connections, until there are none or `patience` is over.
async fn end(admin: &Path, patience: Duration) -> Result<()> {
    let post = async |path: &str| {
        tell(admin, path)
            .await
            .with_context(|| format!("Envoy at {}: {path}", admin.display()))
    };
    // HTTP/1 responses get "connection: close", HTTP/2 connections get GOAWAY; and Envoy is not
    // ready any more.
    post("/healthcheck/fail").await?;
    // Drains TCP as well; after Envoy's own drain time it accepts no more connections.
    post("/drain_listeners?graceful&skip_exit").await?;
    let begun = Instant::now();
    let mut open = None;
    while begun.elapsed() < patience {
        sleep(POLL_INTERVAL).await;
        open = connections(admin).await;
        if open == Some(0) && begun.elapsed() > COUNTED {
            break;
        }
    }
    match open {
        Some(0) => info!(
            "no connection is left after {} s",
            begun.elapsed().as_secs()
        ),
        Some(open) => warn!(
            "{open} connections are cut off after {} s",
            begun.elapsed().as_secs()
        ),
        None => warn!("Envoy does not say how many connections it has"),
    }
    post("/quitquitquit").await?;
    Ok(())
}

async fn connections(admin: &Path) -> Option<u64> {
    let stats = ask(admin, "/stats?filter=^server\\.total_connections$")
        .await
        .ok()?;
    stats.lines().find_map(|line| {
        line.strip_prefix("server.total_connections: ")?
            .trim()
            .parse()
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use rustls::ServerConfig;
    use rustls_pki_types::pem::PemObject;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use xds::Authority;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn tls(authority: &Authority) -> TlsAcceptor {
        let shown = authority
            .issue_server(&["localhost".to_owned()], HOUR, SystemTime::now())
            .expect("issued");
        let chain =
            CertificateDer::from_pem_slice(shown.certificate.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).expect("a key");
        let config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_no_client_auth()
                .with_single_cert(vec![chain], key)
                .expect("a pair");
        TlsAcceptor::from(Arc::new(config))
    }

    /// Answers probes over TLS, and returns the address.
    async fn probes(acceptor: TlsAcceptor) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let Ok(mut io) = acceptor.accept(tcp).await else {
                    continue;
                };
                let mut request = [0; 1024];
                let _ = io.read(&mut request).await;
                let _ = io
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                    .await;
                let _ = io.shutdown().await;
            }
        });
        format!("https://localhost:{port}")
    }

    #[tokio::test]
    async fn a_controller_whose_probes_use_tls_is_verified_by_the_roots() {
        let now = SystemTime::now();
        let authority = Authority::new("test", HOUR, now).expect("an authority");
        let other = Authority::new("another test", HOUR, now).expect("an authority");
        let address = probes(tls(&authority)).await;
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("ca.crt");
        async fn ask(address: &str, roots: Option<&Path>) -> Result<(), String> {
            let asked = controller_ready(address, roots, Duration::from_millis(1500)).await;
            asked.map_err(|error| format!("{error:#}"))
        }
        let why = ask(&address, Some(&path)).await.expect_err("no roots");
        assert!(why.contains("--roots") && why.contains("ca.crt"), "{why}");
        std::fs::write(&path, authority.certificate()).expect("written");
        assert_eq!(ask(&address, Some(&path)).await, Ok(()));
        std::fs::write(&path, other.certificate()).expect("written");
        let why = ask(&address, Some(&path)).await.expect_err("another CA");
        assert!(why.contains("UnknownIssuer"), "{why}");
        let why = ask(&address, None).await.expect_err("it is not verified");
        assert!(why.contains("needs --roots"), "{why}");
    }
}
