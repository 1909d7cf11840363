//! Callgrind, a tool of Valgrind: how many instructions the threads of a program execute in user
//! space. Unlike times, the numbers are the same on a machine with other load.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The prefix of the names of its files.
const FILES: &str = "callgrind";

/// A program that runs under Callgrind.
#[derive(Debug)]
pub struct Callgrind {
    pid: u32,
    dir: PathBuf,
    dumps: u32,
}

/// Instructions by the number of a thread, of which 1 is the main thread.
pub type Instructions = BTreeMap<u32, u64>;

/// Returns the program and the arguments that stand before a command line to run it under
/// Callgrind, with files in `dir`. It counts nothing until [`Callgrind::begin`].
///
/// # Errors
/// When Valgrind is not installed.
pub fn launcher(dir: &Path) -> Result<(PathBuf, Vec<String>)> {
    for program in ["valgrind", "vgdb"] {
        let found = Command::new(program).arg("--help").output();
        found.with_context(|| {
            format!("no {program}, which counts instructions: apt-get install valgrind")
        })?;
    }
    let files = dir.join(FILES);
    let arguments = [
        "--tool=callgrind".to_owned(),
        "--separate-threads=yes".to_owned(),
        "--instr-atstart=no".to_owned(),
        format!("--callgrind-out-file={}", files.display()),
    ];
    Ok(("valgrind".into(), arguments.into()))
}

impl Callgrind {
    /// Begins to count the instructions of a process that was started with the [`launcher`] for
    /// `dir`.
    ///
    /// # Errors
    /// When the process does not answer.
    pub fn begin(pid: u32, dir: &Path) -> Result<Self> {
        let made = Self {
            pid,
            dir: dir.to_owned(),
            dumps: 0,
        };
        made.command(&["instrumentation", "on"])?;
        Ok(made)
    }

    /// Returns the instructions since the last call, or the beginning.
    ///
    /// # Errors
    /// When the process does not answer, or has written no file.
    pub fn take(&mut self) -> Result<Instructions> {
        self.command(&["dump"])?;
        self.dumps += 1;
        let prefix = format!("{FILES}.{}-", self.dumps);
        let mut all = Instructions::new();
        for file in std::fs::read_dir(&self.dir).context("listing Callgrind's files")? {
            let file = file?;
            let name = file.file_name();
            let Some(thread) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else {
                continue;
            };
            let thread = thread.parse().context("the number of a thread")?;
            all.insert(thread, total(&std::fs::read_to_string(file.path())?)?);
            std::fs::remove_file(file.path())?;
        }
        ensure!(!all.is_empty(), "Callgrind has written no file {prefix}*");
        Ok(all)
    }

    fn command(&self, words: &[&str]) -> Result<()> {
        let answer = Command::new("vgdb")
            .arg(format!("--pid={}", self.pid))
            .args(words)
            .output()
            .context("running vgdb, of the package valgrind")?;
        ensure!(
            answer.status.success(),
            "vgdb {words:?}: {}",
            String::from_utf8_lossy(&answer.stderr)
        );
        Ok(())
    }
}

/// The total of a file, which counts instructions and nothing else.
fn total(file: &str) -> Result<u64> {
    let total = file.lines().find_map(|line| line.strip_prefix("totals: "));
    total
        .context("a file of Callgrind without its total")?
        .parse()
        .context("the total of a file of Callgrind")
}
