//! Unreadable manifests are not deleted ones: directories that vanish and files that are broken,
//! while clients send requests continuously.

use std::fs;
use std::path::Path;

use anyhow::Result;
use gatewright_control::ask;

use super::hot_restart::{ANSWERS, Site, TOOK_OVER, configured, route};

/// Returns the answer of the program's admin socket.
async fn admin(site: &Site, path: &str) -> Result<String> {
    Ok(ask(&site.state.path().join("admin.sock"), path).await?)
}

async fn stale(site: &Site) -> Result<u64> {
    let metrics = admin(site, "/metrics").await?;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("gatewright_manifests_stale "));
    Ok(line.unwrap_or_default().parse()?)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_directory_that_vanishes_costs_no_request() -> Result<()> {
    let site = Site::new().await?;
    let (mut program, _, load) = site.serving().await?;
    load.more(ANSWERS).await?;
    let root = site.manifests.path();
    let away = site.manifests.path().with_extension("away");

    // Moved away, and back with a change.
    fs::rename(root, &away)?;
    program.line("cannot be read").await?;
    load.more(ANSWERS).await?;
    assert_eq!(stale(&site).await?, 1);
    let ready = admin(&site, "/readyz").await?;
    assert!(
        ready.starts_with("ok\n") && ready.contains("is served as it was at"),
        "{ready}"
    );
    fs::write(away.join("late.yaml"), route("late"))?;
    fs::rename(&away, root)?;
    program.line("can be read again").await?;
    program
        .line("httproute default/late: 1 host changed, acked 1/1")
        .await?;
    load.more(ANSWERS).await?;
    assert_eq!(
        site.status("late.example.org").await?,
        200,
        "the host is served"
    );
    assert_eq!(stale(&site).await?, 0, "nothing is stale");
    assert_eq!(admin(&site, "/readyz").await?, "ok\n");

    // A new directory in its place is watched as well.
    copy(root, &away)?;
    fs::remove_dir_all(root)?;
    load.more(ANSWERS).await?;
    fs::rename(&away, root)?;
    load.more(ANSWERS).await?;
    fs::write(root.join("later.yaml"), route("later"))?;
    program
        .line("httproute default/later: 1 host changed, acked 1/1")
        .await?;
    fs::remove_file(root.join("late.yaml"))?;
    program
        .line("httproute default/late deleted: 1 host changed, acked 1/1")
        .await?;
    load.failures()?;
    drop(load);
    site.end(program).await
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn broken_or_missing_files_at_a_start_are_served_in_their_last_version() -> Result<()> {
    let site = Site::new().await?;
    let (program, _, load) = site.serving().await?;
    load.more(ANSWERS).await?;
    let root = site.manifests.path();
    let away = site.manifests.path().with_extension("away");

    drop(program);
    for file in ["base.yaml", "web.yaml"] {
        let text = fs::read_to_string(root.join(file))?;
        fs::write(
            root.join(file),
            text.replace("apiVersion", "apiversion") + "kind: [\n",
        )?;
    }
    for _ in 0..2 {
        let mut program = site.start(&[])?;
        program.line(TOOK_OVER).await?;
        configured(&mut program).await?;
        let said = program.output();
        assert!(
            said.contains("base.yaml:") && said.contains("web.yaml:"),
            "{said}"
        );
        load.more(ANSWERS).await?;
        assert_eq!(stale(&site).await?, 2, "both files are stale");
        assert_eq!(
            site.status("early.example.org").await?,
            200,
            "their last version is served"
        );
        let ready = admin(&site, "/readyz").await?;
        assert!(
            ready.contains("base.yaml is served as it was at") && ready.lines().count() == 3,
            "{ready}"
        );
    }

    // The whole directory.
    fs::rename(root, &away)?;
    let mut program = site.start(&[])?;
    program.line("served until it is readable again").await?;
    program.line(TOOK_OVER).await?;
    configured(&mut program).await?;
    load.more(ANSWERS).await?;
    for file in ["base.yaml", "web.yaml"] {
        let text = fs::read_to_string(away.join(file))?;
        fs::write(
            away.join(file),
            text.replace("apiversion", "apiVersion")
                .replace("kind: [\n", ""),
        )?;
    }
    fs::write(away.join("late.yaml"), route("late"))?;
    fs::rename(&away, root)?;
    program
        .line("httproute default/late: 1 host changed, acked 1/1")
        .await?;
    load.more(ANSWERS).await?;
    assert_eq!(stale(&site).await?, 0, "nothing is stale any more");
    assert_eq!(
        site.status("late.example.org").await?,
        200,
        "the mended host is served"
    );
    load.failures()?;
    drop(load);
    site.end(program).await
}
