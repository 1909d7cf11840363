//! `gatewright init`: its directory is accepted, and serves.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::private_dir::private_dir;
use e2e::probe::{Answer, Probe, roots_of};
use e2e_inside::served::PATIENCE;
use e2e_inside::world::free_port;
use tokio::time::{sleep, timeout};

#[tokio::test]
#[ignore = "needs Envoy"]
async fn the_directory_of_init_is_accepted_and_serves() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("site");
    let path = dir.display().to_string();
    let written = Gatewright::run(&["init", &path])?;
    let told = String::from_utf8(written.stdout)?;
    ensure!(
        written.status.success() && told.contains(&format!("gatewright standalone {path}")),
        "{told}"
    );
    let again = Gatewright::run(&["init", &path])?;
    ensure!(!again.status.success(), "its files are kept");
    let linted = Gatewright::run(&["lint", &path])?;
    ensure!(linted.status.success(), "{linted:?}");

    // Ports that are free here, and an application.
    let (web, https) = (Echo::start("web").await?, free_port()?);
    for (file, port, ours) in [
        ("edge.yaml", "port: 8443", https),
        ("edge.yaml", "port: 8080", free_port()?),
        ("app.yaml", "port: 3000", web.address().port()),
    ] {
        let file = dir.join(file);
        let text = fs::read_to_string(&file)?;
        ensure!(text.matches(port).count() == 1, "{port}: {text}");
        fs::write(&file, text.replace(port, &format!("port: {ours}")))?;
    }
    let state = private_dir()?;
    let program = Gatewright::standalone(&dir, state.path(), &[])?;
    let answer = async |path: &str| {
        let answered = async {
            loop {
                let roots = fs::read_to_string(state.path().join("ca.crt")).unwrap_or_default();
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, https));
                let probe = Probe::https(address, "app.localhost").path(path);
                match probe.roots(roots_of(&roots)?).send().await {
                    Ok(answer) if answer.status == 200 => {
                        return Ok::<Answer, anyhow::Error>(answer);
                    }
                    _ => sleep(std::time::Duration::from_millis(20)).await,
                }
            }
        };
        timeout(PATIENCE, answered)
            .await
            .with_context(|| format!("{path} is not served: {}", program.output()))?
    };
    ensure!(answer("/hello").await?.body == "It works\n", "the page");
    ensure!(
        answer("/").await?.echoed("name")? == "web",
        "the application"
    );
    Ok(())
}
