//! Beside an Envoy in a pod: whether it is ready, and its end: it serves on while it is taken out of whatever leads to it, then lets its connections end,
//! and then ends.
//!
//! Envoy itself ends at once when it is told to (SIGTERM), with whatever is under way. A pod that is deleted is told so
//! before every node and load balancer knows. So this runs beside it, and Envoy's own signal is put off (`preStop`).

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

use crate::cli;
use gatewright_control::{ask, tell};

/// How often connections are counted.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Envoy counts its connections every five seconds: what it says before is of the time before.
const COUNTED: Duration = Duration::from_secs(6);
/// How much a controller may say of what it waits for.
const ANSWER: usize = 1 << 20;

/// Waits until it is told to end, and brings Envoy to its end first.
///
/// # Errors
/// When it cannot listen for signals. What Envoy does not do is told and left.
pub async fn drain(options: cli::Drain) -> Result<bool> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
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

/// Whether Envoy is ready, as its admin interface says: a probe of a pod that needs no port, which strangers could use up. Or
/// waits until a controller is.
///
/// # Errors
/// When it is not, or does not answer in time; it says which.
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
        .with_context(|| format!("Envoy at {admin} did not answer within {} s", patience.as_secs()))?
        .with_context(|| format!("Envoy at {admin} is not ready"))?;
    Ok(true)
}

/// Asks a controller until it is ready.
async fn controller_ready(address: &str, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let uri: Uri = format!("http://{address}/readyz").parse().context("--controller: expected HOST:PORT")?;
    loop {
        let asked = async {
            let answer = client.get(uri.clone()).await?;
            let status = answer.status();
            let said = Limited::new(answer.into_body(), ANSWER).collect().await.map_err(|error| anyhow!(error))?;
            ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&said.to_bytes()).trim());
            Ok(())
        };
        let why = match timeout_at(deadline, asked).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => anyhow!("it does not answer"),
        };
        if Instant::now() + POLL_INTERVAL >= deadline {
            return Err(why.context(format!("the controller at {address} is not ready after {} s", patience.as_secs())));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Has connections end, and Envoy when there are none any more, or after `patience`.
async fn end(admin: &Path, patience: Duration) -> Result<()> {
    let told =
        async |path: &str| tell(admin, path).await.with_context(|| format!("Envoy at {}: {path}", admin.display()));
    // Answers say "connection: close", HTTP/2 GOAWAY; and it is ready no more.
    told("/healthcheck/fail").await?;
    // TCP as well; when Envoy's own drain time is over it takes no more connections.
    told("/drain_listeners?graceful&skip_exit").await?;
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
        Some(0) => info!("no connection is left after {} s", begun.elapsed().as_secs()),
        Some(open) => warn!("{open} connections are cut off after {} s", begun.elapsed().as_secs()),
        None => warn!("Envoy does not say how many connections it has"),
    }
    told("/quitquitquit").await?;
    Ok(())
}

async fn connections(admin: &Path) -> Option<u64> {
    let told = ask(admin, "/stats?filter=^server\\.total_connections$").await.ok()?;
    told.lines().find_map(|line| line.strip_prefix("server.total_connections: ")?.trim().parse().ok())
}
