//! The wall clock of a program, which jumps (libfaketime). The monotonic clock goes on as it is, as it does when somebody sets the
//! time of a machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// A wall clock, right at first.
#[derive(Debug)]
pub struct Clock {
    dir: TempDir,
}

impl Clock {
    /// One that is right.
    ///
    /// # Errors
    /// Where no file can be written.
    pub fn new() -> Result<Self> {
        let clock = Self { dir: tempfile::Builder::new().prefix("clock").tempdir()? };
        clock.set(0)?;
        Ok(clock)
    }

    /// Has it be so many seconds ahead of the right time, or behind it.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn set(&self, ahead: i64) -> Result<()> {
        // Replaced as a whole: the program reads it all the time.
        let new = self.dir.path().join("new");
        std::fs::write(&new, format!("{ahead:+}\n"))?;
        std::fs::rename(&new, self.file()).context("setting the clock")
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ahead")
    }

    /// The variables of a program that goes by it.
    ///
    /// # Errors
    /// Where libfaketime is not there.
    pub fn environment(&self) -> Result<[String; 4]> {
        let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/libfaketime.so");
        ensure!(library.exists(), "no libfaketime at {}; run: e2e/tools install faketime", library.display());
        Ok([
            format!("LD_PRELOAD={}", library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.file().display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ])
    }
}
