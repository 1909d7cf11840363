//! Addresses of this machine beside 127.0.0.0/8: those of 198.18.0.0/15, which are for tests
//! (RFC 2544).

use anyhow::{Context, Result};
use tokio::net::TcpListener;

/// Adds an address to the loopback interface, unless it is there.
pub async fn add(address: &str) -> Result<()> {
    if TcpListener::bind((address, 0)).await.is_err() {
        let added = std::process::Command::new("ip")
            .args(["address", "add", &format!("{address}/32"), "dev", "lo"])
            .output();
        // Another test may have added it already; a bind to it tells.
        added.context("running ip: install the package iproute2")?;
    }
    Ok(())
}
