//! A simulated wall clock of a program, which can jump (libfaketime). The monotonic clock is
//! unaffected, as when somebody sets the time of a machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// A simulated wall clock, correct at first.
#[derive(Debug)]
pub struct Clock {
    dir: TempDir,
}

impl Clock {
    /// Makes a correct clock.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new() -> Result<Self> {
        let clock = Self {
            dir: tempfile::Builder::new().prefix("clock").tempdir()?,
        };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets the clock ahead of the correct time, in seconds, or behind it if negative.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set(&self, ahead: i64) -> Result<()> {
        // Replaced atomically: the program reads it all the time.
        let new = self.dir.path().join("new");
        std::fs::write(&new, format!("{ahead:+}\n"))?;
        std::fs::rename(&new, self.file()).context("setting the clock")
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ahead")
    }

    /// Returns the environment of a program that uses this clock.
    ///
    /// # Errors
    /// When libfaketime is not installed.
    pub fn environment(&self) -> Result<[String; 4]> {
        let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/libfaketime.so");
        ensure!(
            library.exists(),
            "no libfaketime at {}; run: e2e/tools install faketime",
            library.display()
        );
        Ok([
            format!("LD_PRELOAD={}", library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.file().display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ])
    }
}
