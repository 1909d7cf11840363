//! Manifests behind links, as the kubelet lays out the volumes of ConfigMaps and Secrets, and other
//! chains of links.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e_inside::served::PATIENCE;
use tokio::time::{sleep, timeout};

use super::super::hot_restart::{self, ANSWERS, Site};
use super::{Standalone, route};

/// A volume of the kubelet: the files of a version in a directory of its own, `..data` a link to
/// it, and the file names links through that link.
struct Volume {
    dir: PathBuf,
    version: usize,
}

impl Volume {
    fn new(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
            version: 0,
        })
    }

    /// Exchanges the files, in the steps and the order of the kubelet.
    fn publish(&mut self, files: &[(&str, &str)]) -> Result<()> {
        self.exchange(files)?;
        self.name(files)?;
        self.clean()
    }

    /// The data of a new version in place of the former one.
    fn exchange(&mut self, files: &[(&str, &str)]) -> Result<()> {
        self.version += 1;
        let version = format!("..v{}", self.version);
        fs::create_dir(self.dir.join(&version))?;
        for (name, text) in files {
            fs::write(self.dir.join(&version).join(name), text)?;
        }
        symlink(&version, self.dir.join("..data_tmp"))?;
        fs::rename(self.dir.join("..data_tmp"), self.dir.join("..data")).context("the exchange")
    }

    /// The links of new files, and those of removed ones.
    fn name(&self, files: &[(&str, &str)]) -> Result<()> {
        for (name, _) in files
            .iter()
            .filter(|(name, _)| self.dir.join(name).symlink_metadata().is_err())
        {
            symlink(Path::new("..data").join(name), self.dir.join(name))?;
        }
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.is_symlink() && !path.exists() {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Removes the data of the former version.
    fn clean(&self) -> Result<()> {
        match self.version {
            1 => Ok(()),
            version => fs::remove_dir_all(self.dir.join(format!("..v{}", version - 1)))
                .context("the former version"),
        }
    }
}

/// A route under a name, whose hostname is that of a version.
fn version(name: &str, number: usize) -> String {
    route(name, &format!("{name}{number}.example.org"), "web")
}

/// Waits until a version of a route is served, and the one before it is not.
async fn served(site: &mut Standalone, name: &str, number: usize) -> Result<()> {
    let answered = async {
        while site
            .status(&format!("{name}{number}.example.org"))
            .await
            .ok()
            != Some(200)
        {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, answered)
        .await
        .with_context(|| format!("{name}{number} is not served:\n{}", site.program.output()))?;
    let before = site
        .status(&format!("{name}{}.example.org", number - 1))
        .await?;
    ensure!(before == 404, "the version before is answered {before}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_volume_of_the_kubelet_is_read_at_every_exchange() -> Result<()> {
    let mut site = Standalone::start().await?;
    // In the directory itself, and below a subdirectory that a volume is mounted at.
    for (name, below) in [("top", ""), ("deep", "tenants/alice")] {
        let mut volume = Volume::new(&site.file(below))?;
        for number in 1..=4 {
            volume.publish(&[(&format!("{name}.yaml"), &version(name, number))])?;
            served(&mut site, name, number).await?;
        }
    }
    // Hidden files themselves stay hidden.
    let mut hidden = Volume::new(&site.file(".git"))?;
    hidden.exchange(&[("hidden.yaml", &version("hidden", 1))])?;
    fs::write(site.file("..v0.yaml"), version("plain", 1))?;
    site.save("last.yaml", &version("last", 1))?;
    served(&mut site, "last", 1).await?;
    for host in ["hidden1.example.org", "plain1.example.org"] {
        assert_eq!(site.status(host).await?, 404, "{host}");
    }
    let said = site.program.output();
    ensure!(
        !said.contains("WARN") || !said.contains("is a link to"),
        "{said}"
    );
    Ok(())
}

/// Every link of a chain may be changed, and so may the file at its end.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_change_of_any_link_of_a_chain_is_noticed() -> Result<()> {
    let mut site = Standalone::start().await?;
    fs::create_dir_all(site.file(".releases/1"))?;
    fs::create_dir_all(site.file(".releases/2/sub"))?;
    symlink(".releases/1", site.file(".current"))?;
    symlink(".current/web.yaml", site.file("web.yaml"))?;
    symlink("./.current/../../.current/sub", site.file("sub"))?;
    // The end of the chain appears.
    fs::write(site.file(".releases/1/web.yaml"), version("a", 1))?;
    served(&mut site, "a", 1).await?;
    // It is written in place, and replaced.
    fs::write(site.file(".releases/1/web.yaml"), version("a", 2))?;
    served(&mut site, "a", 2).await?;
    fs::write(site.file(".releases/1/new"), version("a", 3))?;
    fs::rename(
        site.file(".releases/1/new"),
        site.file(".releases/1/web.yaml"),
    )?;
    served(&mut site, "a", 3).await?;
    // A link in the middle leads elsewhere.
    fs::write(site.file(".releases/2/web.yaml"), version("a", 4))?;
    fs::write(site.file(".releases/2/sub/b.yaml"), version("b", 1))?;
    symlink(".releases/2", site.file(".next"))?;
    fs::rename(site.file(".next"), site.file(".current"))?;
    served(&mut site, "a", 4).await?;
    // A directory behind the chain is exchanged, and a file in the new one changes.
    symlink(".releases/2/sub", site.file("direct"))?;
    served(&mut site, "b", 1).await?;
    fs::create_dir(site.file(".releases/3"))?;
    fs::write(site.file(".releases/3/b.yaml"), version("b", 2))?;
    fs::rename(site.file(".releases/2/sub"), site.file(".releases/old"))?;
    fs::rename(site.file(".releases/3"), site.file(".releases/2/sub"))?;
    served(&mut site, "b", 2).await?;
    fs::write(site.file(".releases/2/sub/b.yaml"), version("b", 3))?;
    served(&mut site, "b", 3).await?;
    Ok(())
}

/// The directory is a link itself, and the program is told the link.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn links_out_of_the_directory_are_followed_where_that_is_allowed() -> Result<()> {
    let mut site = Standalone::start_with(&["--allow-unsafe-manifests"]).await?;
    let outside = tempfile::tempdir()?;
    let mut volume = Volume::new(outside.path())?;
    volume.publish(&[("out.yaml", &version("out", 1))])?;
    symlink(outside.path().join("out.yaml"), site.file("out.yaml"))?;
    symlink(outside.path(), site.file("all"))?;
    for number in 2..=4 {
        volume.publish(&[
            ("out.yaml", &version("out", number)),
            ("all.yaml", &version("all", number)),
        ])?;
        served(&mut site, "all", number).await?;
        served(&mut site, "out", number).await?;
    }
    Ok(())
}

/// Objects move between the files of a volume while clients send requests, also if an exchange
/// takes a while.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn no_object_is_lost_while_a_volume_is_exchanged() -> Result<()> {
    let site = Site::new().await?;
    let web = hot_restart::route("web");
    fs::remove_file(site.manifests.path().join("web.yaml"))?;
    let mut volume = Volume::new(&site.manifests.path().join("volume"))?;
    volume.publish(&[("a.yaml", &web), ("b.yaml", &version("b", 1))])?;
    let (program, _, load) = site.serving().await?;
    load.more(ANSWERS).await?;
    for number in 2..=13 {
        let other = version("b", number);
        let all = format!("{web}---\n{other}");
        let none = "# nothing\n".to_owned();
        let new = format!("c{number}.yaml");
        let files = match number % 3 {
            0 => [("a.yaml", &*all), ("b.yaml", &*none)],
            1 => [("a.yaml", &*none), ("b.yaml", &*all)],
            // The objects are in a file that has no name until the next step.
            _ => [("a.yaml", &*none), (&*new, &*all)],
        };
        volume.exchange(&files)?;
        // Long enough for a read between the two steps.
        sleep(Duration::from_millis(30)).await;
        volume.name(&files)?;
        volume.clean()?;
        let host = format!("b{number}.example.org");
        let answered = async {
            while site.status(&host).await.ok() != Some(200) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, answered)
            .await
            .with_context(|| format!("{host}:\n{}", program.output()))?;
        load.more(5).await?;
    }
    load.failures()?;
    drop(load);
    site.end(program).await
}
