//! A small disk that can be full.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// A small disk in memory in place of a directory; taken away on drop.
#[derive(Debug)]
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts one of 8 MiB over a directory.
    ///
    /// # Errors
    /// Without the rights of root.
    pub fn mount(path: &Path) -> Result<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs"])
            .arg(path)
            .status();
        ensure!(
            mounted.context("running mount")?.success(),
            "no disk at {}: that takes root",
            path.display()
        );
        Ok(Self(path.to_owned()))
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Fills it to the last byte.
    ///
    /// # Errors
    /// When there is room left all the same.
    pub fn fill(&self) -> Result<()> {
        let mut file = File::create(self.ballast())?;
        // Files that a program is writing meanwhile may be removed again.
        for _ in 0..100 {
            // In ever smaller pieces, down to the last byte.
            for size in [1 << 16, 1 << 10, 1] {
                while file.write_all(&vec![0; size]).is_ok() {}
            }
            match fs::write(self.0.join("more"), "x") {
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                more => more.and_then(|()| fs::remove_file(self.0.join("more")))?,
            }
        }
        bail!("the disk is not full");
    }

    /// Fills it but for some bytes.
    ///
    /// # Errors
    /// When there is room left all the same.
    pub fn fill_but(&self, room: u64) -> Result<()> {
        self.fill()?;
        let ballast = File::options().write(true).open(self.ballast())?;
        let size = ballast.metadata()?.len();
        ballast
            .set_len(size.saturating_sub(room))
            .context("leaving room")
    }

    /// Makes room again.
    ///
    /// # Errors
    /// When it was not filled.
    pub fn free(&self) -> Result<()> {
        fs::remove_file(self.ballast()).context("making room")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _left_to_the_machine = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
