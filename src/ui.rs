//! `gatewright ui`: a page on loopback with the rights of whoever runs it.
//!
//! ```text
//! admin socket, or API server ==source==> hosts ==feed==> what changed ==server==> page
//!                                  +====> explain, status, history, certificates ==^
//! ```
//!
//! Nothing is written, but the objects that ask a controller (`reports`). What tenants wrote is text
//! for the page, never HTML.

mod feed;
mod page;
mod reports;
mod server;
mod session;
mod source;

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result};
use tempfile::NamedTempFile;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli;
use feed::Feed;
use server::Server;
use session::Session;
use source::{Source, follow};

/// Serves the page until it is interrupted.
///
/// # Errors
/// When the port cannot be bound, or the cluster cannot be read.
pub async fn run(options: &cli::Ui) -> Result<bool> {
    let source = Source::of(options).await?;
    // Pages show what happens later; that nothing answers now is told here.
    if let Source::Program(_) = source {
        source.hosts(None).await?;
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await;
    let listener = listener.with_context(|| format!("--port {}", options.port))?;
    let session = Session::new(listener.local_addr()?)?;
    let url = session.url();
    let server = Arc::new(Server {
        session,
        source,
        feed: Feed::new(),
    });
    let mut out = io::stdout();
    writeln!(out, "{url}")?;
    out.flush()?;
    // It is there as long as the page is served.
    let _link = options.open.then(|| open(&url)).transpose()?;
    let mut ended = signal(SignalKind::terminate())?;
    tokio::select! {
        served = server::serve(listener, server.clone()) => served?,
        () = follow(&server.source, &server.feed) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = ended.recv() => {}
    }
    Ok(true)
}

/// Opens the page in the browser, by a private file: other users can read the arguments of a
/// process.
fn open(url: &str) -> Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix("gatewright-")
        .suffix(".html")
        .tempfile()?;
    file.write_all(page::lead_on(url).as_bytes())?;
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    Command::new(program)
        .arg(file.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("--open: {program}"))?;
    Ok(file)
}
