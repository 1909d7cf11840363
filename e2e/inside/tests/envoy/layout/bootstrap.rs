//! Bootstraps, validated by Envoy itself.

use std::process::Command;

use anyhow::{Context, Error, Result, ensure};
use gatewright_envoy::{
    Admin, AdsServer, BootstrapOptions, ConnectionLimit, MutualTls, ShownStatistics, Statistics,
    StatisticsReader, UdpSessions, bootstrap, keys_files,
};

fn validate(ads: AdsServer, admin: Admin) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let connections = ConnectionLimit::within(Some(4096), UdpSessions::of(256), dir.path());
    std::fs::write(
        connections.pressure_file.as_ref().context("few files")?,
        connections.pressure(0),
    )?;
    let options = BootstrapOptions {
        node_id: "test".into(),
        node_cluster: "test".into(),
        zone: Some("eu-1a".to_owned().try_into().map_err(Error::msg)?),
        ads,
        admin,
        ready: Some("127.0.0.1:19003".parse()?),
        stats: Some(Statistics {
            address: "127.0.0.1:19001".parse()?,
            shown: ShownStatistics::Services(StatisticsReader {
                name: "prometheus".into(),
                sha1: "MtEMe4z5ZXDKBM438qGdhCQNOok=".into(),
            }),
        }),
        max_heap_bytes: 1 << 30,
        connections,
    };
    let output = Command::new(e2e::envoy::binary()?)
        .args([
            "--mode",
            "validate",
            "--config-yaml",
            &bootstrap(&options).to_string(),
        ])
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Deprecated or misspelled fields are warnings first.
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!log.contains("][warning]"), "{log}");
    Ok(())
}

#[test]
#[ignore = "needs Envoy"]
fn a_local_bootstrap_is_valid() -> Result<()> {
    validate(
        AdsServer::Pipe("/tmp/xds.sock".into()),
        Admin::Pipe("/tmp/admin.sock".into()),
    )
}

#[test]
#[ignore = "needs Envoy"]
fn a_remote_bootstrap_is_valid() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let made = rcgen::generate_simple_self_signed(["xds.gatewright".to_owned()])?;
    let file = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).map(|()| path)
    };
    file("tls.crt", made.cert.pem())?;
    file("tls.key", made.signing_key.serialize_pem())?;
    file("ca.crt", made.cert.pem())?;
    for (name, value) in keys_files(dir.path()) {
        file(&name, value.to_string())?;
    }
    let tls = MutualTls {
        dir: dir.path().into(),
        files: dir.path().into(),
        server_name: "xds.gatewright".into(),
    };
    validate(
        AdsServer::Tcp {
            host: "127.0.0.1".into(),
            port: 18000,
            tls,
        },
        Admin::Loopback(0),
    )
}
