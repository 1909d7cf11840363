//! Readiness and graceful shutdown of an Envoy in a pod: Envoy serves on while the pod is removed
//! from endpoints, then its connections are drained, and then it ends.
//!
//! Envoy ends at once on SIGTERM, with all requests in progress. A deleted pod gets SIGTERM before
//! every node and load balancer knows of the deletion. So this program runs beside it, and delays
//! Envoy's own signal (`preStop`).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use crate::{cli, connection_pressure};
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
        return controller_ready(controller, patience).await.map(|()| true);
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
async fn controller_ready(address: &str, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let uri: Uri = format!("http://{address}/readyz")
        .parse()
        .context("--controller: expected HOST:PORT")?;
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
