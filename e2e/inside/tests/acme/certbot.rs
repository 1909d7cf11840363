//! Tests certbot with our test CA: whatever our client accepts from it, another client accepts as
//! well.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::testca::TestCa;
use e2e_inside::served::PATIENCE;
use e2e_inside::world::free_port;
use jiff::SignedDuration;
use tokio::time::timeout;

use super::serve::{Place, answered_by};

/// Runs certbot until it ends, with all its state in this directory.
fn certbot(dir: &Path, ca: &TestCa, args: &[&str]) -> Result<()> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/certbot");
    ensure!(
        program.exists(),
        "no certbot at {}; run: e2e/tools install certbot",
        program.display()
    );
    fn path(name: &str, dir: &Path) -> String {
        dir.join(name).display().to_string()
    }
    let output = Command::new(program)
        .args(args)
        .args([
            "--server",
            &ca.directory(),
            "--non-interactive",
            "--agree-tos",
            "--register-unsafely-without-email",
        ])
        .args([
            "--config-dir",
            &path("config", dir),
            "--work-dir",
            &path("work", dir),
            "--logs-dir",
            &path("logs", dir),
        ])
        .args([
            "--manual",
            "--preferred-challenges",
            "http",
            "--manual-auth-hook",
            "/bin/true",
        ])
        .output()
        .context("running certbot")?;
    let log = std::fs::read_to_string(dir.join("logs/letsencrypt.log")).unwrap_or_default();
    let tail = log.len().saturating_sub(6000);
    ensure!(
        output.status.success(),
        "certbot {args:?}: {}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        log.get(tail..).unwrap_or(&log)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs certbot"]
async fn certbot_registers_orders_polls_and_renews() -> Result<()> {
    let ca = TestCa::start().await?;
    // Refused nonces and slow finalization are part of the protocol. certbot retries once.
    ca.behave(|b| {
        b.bad_nonces = 5;
        b.processing = (2, Some(1));
        b.life = Some(SignedDuration::from_hours(24 * 6));
    });
    let dir = tempfile::tempdir()?;
    let names = "a.example.com,b.example.com";
    certbot(
        dir.path(),
        &ca,
        &[
            "certonly",
            "--domains",
            "a.example.com",
            "--domains",
            "b.example.com",
        ],
    )?;
    let live = dir.path().join("config/live/a.example.com");
    let chain = std::fs::read_to_string(live.join("fullchain.pem"))?;
    ensure!(chain.matches("BEGIN CERTIFICATE").count() == 2, "{chain}");
    let counts = ca.counts();
    ensure!(
        counts.accounts == 1 && counts.certificates.get(names) == Some(&1),
        "{counts:?}"
    );

    // The account is reused, and the certificate is a new one.
    certbot(
        dir.path(),
        &ca,
        &[
            "certonly",
            "--force-renewal",
            "--domains",
            "a.example.com",
            "--domains",
            "b.example.com",
        ],
    )?;
    ensure!(std::fs::read_to_string(live.join("fullchain.pem"))? != chain);
    let counts = ca.counts();
    ensure!(
        counts.accounts == 1 && counts.certificates.get(names) == Some(&2),
        "{counts:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs certbot and Envoy"]
async fn renewals_of_certbot_are_served_without_a_restart() -> Result<()> {
    const HOST: &str = "a.example.com";
    let ca = TestCa::start().await?;
    let dir = tempfile::tempdir()?;
    certbot(dir.path(), &ca, &["certonly", "--domains", HOST])?;
    let live = dir.path().join("config/live").join(HOST);
    let [chain, key] = ["fullchain.pem", "privkey.pem"].map(|name| live.join(name));
    ensure!(chain.is_symlink(), "certbot has links");
    let [chain, key] = [chain, key].map(|file| file.display().to_string());
    let place = Place::new(free_port()?).await?;
    let site = format!("{HOST}={}", place.web.address());
    let program = place.start(&[site], &["--cert", &chain, "--key", &key])?;
    let probe = place.unverified(HOST);
    let serial = async || {
        let answer = answered_by(&probe, "web", &program).await?;
        let peer = answer.peer.context("a certificate")?;
        Ok::<_, anyhow::Error>(peer.serial)
    };
    let mut before = serial().await?;
    for _ in 0..3 {
        let renewal = ["certonly", "--force-renewal", "--domains", HOST];
        certbot(dir.path(), &ca, &renewal)?;
        let renewed = async {
            loop {
                let now = serial().await?;
                if now != before {
                    return Ok::<_, anyhow::Error>(now);
                }
            }
        };
        before = timeout(PATIENCE, renewed)
            .await
            .with_context(|| format!("never renewed: {}", program.output()))??;
    }
    let told = program.output();
    ensure!(!told.contains("does not match"), "half a renewal: {told}");
    Ok(())
}
