//! Many routes in one file, by the real kubectl: until all are served, and without a controller.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::cluster::Cluster;
use tokio::process::Command;

use crate::own::answered;
use crate::own_hosts::{OwnHosts, Parents};
use crate::{Memory, processor, quiet};

pub(crate) async fn apply(routes: usize) -> Result<()> {
    let cluster = Cluster::start().await?;
    let all = OwnHosts::new(Parents::ListenerSets).await?;
    all.create(&cluster, routes).await?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("routes.json");
    let list: Vec<_> = (0..routes).map(|number| all.route(number)).collect();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": list});
    fs::write(&file, list.to_string())?;

    let bare = kubectl(&cluster, "apply", &file).await?;
    kubectl(&cluster, "delete", &file).await?;

    let mut controller = cluster.controller("bench")?;
    controller.line("the view is complete").await?;
    controller.line("xDS at").await?;
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let before = quiet(&cluster, 0).await?.len();
    let used = processor(&controller)?;
    let began = Instant::now();
    let applied = kubectl(&cluster, "apply", &file);
    // The routes are written in the order of the file.
    let served = async {
        for number in 0..routes {
            answered(&all.probe(number)).await?;
        }
        Ok::<_, anyhow::Error>(began.elapsed())
    };
    let (applied, served) = tokio::try_join!(applied, served)?;
    let used = processor(&controller)? - used;
    let writes = quiet(&cluster, before).await?.len();
    println!(
        "{routes} routes in one file: kubectl takes {:.1} s without a controller, and {:.1} s with it; all are served after {:.1} s, {:.2}x; {:.1} s of our processor, {writes} writes, {}",
        bare.as_secs_f64(),
        applied.as_secs_f64(),
        served.as_secs_f64(),
        served.as_secs_f64() / bare.as_secs_f64(),
        used.as_secs_f64(),
        Memory::of(&controller)?
    );
    Ok(())
}

/// Runs a command of kubectl with a file, and returns its time.
async fn kubectl(cluster: &Cluster, command: &str, file: &Path) -> Result<Duration> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/kubectl");
    let began = Instant::now();
    let done = Command::new(program)
        .arg("--kubeconfig")
        .arg(cluster.server.kubeconfig("admin", &["system:masters"])?)
        .args([command, "-f"])
        .arg(file)
        .output()
        .await
        .context("kubectl")?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "kubectl {command}: {errors}");
    Ok(began.elapsed())
}
