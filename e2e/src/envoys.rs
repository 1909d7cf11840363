//! A guard of Envoys that outlive the program that started them, but never the test.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Kills the processes that have this line among their arguments, once standard input ends: with
/// the test, for whatever reason.
const REAPER: &str = r#"
cat > /dev/null
for round in 1 2 3; do
  for process in /proc/[0-9]*; do
    if tr '\0' '\n' < "$process/cmdline" 2> /dev/null | grep -qxF -- "$SOCKETS"; then kill -9 "${process#/proc/}"; fi
  done
  sleep 0.1
done
"#;

/// The Envoys of one private directory; killed on drop.
#[derive(Debug)]
pub struct Envoys {
    sockets: PathBuf,
    reaper: Child,
}

impl Envoys {
    /// Guards the current and later Envoys of this private directory. Drop the program first: it
    /// would start another.
    ///
    /// # Errors
    /// When there is no shell.
    pub fn of(dir: &Path) -> Result<Self> {
        let sockets = dir.canonicalize()?.join("hot");
        let mut command = Command::new("sh");
        command.args(["-c", REAPER]).env("SOCKETS", &sockets);
        let reaper = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Ok(Self {
            sockets,
            reaper: reaper.context("starting sh")?,
        })
    }

    /// Returns the process ids of the running Envoys.
    ///
    /// # Errors
    /// When processes cannot be listed.
    pub fn running(&self) -> Result<Vec<u32>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let Some(pid) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let mut command = Vec::new();
            // It may have ended meanwhile; an ended process has an empty command line.
            let read = std::fs::File::open(format!("/proc/{pid}/cmdline"))
                .and_then(|mut file| file.read_to_end(&mut command));
            if read.is_ok()
                && command
                    .split(|byte| *byte == 0)
                    .any(|word| word == self.sockets.as_os_str().as_encoded_bytes())
            {
                found.push(pid);
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

impl Drop for Envoys {
    fn drop(&mut self) {
        drop(self.reaper.stdin.take());
        let _reaped = self.reaper.wait();
    }
}
