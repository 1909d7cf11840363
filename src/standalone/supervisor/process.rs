//! Processes that run an Envoy of one private directory, found in `/proc` by user and command line.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::process::{self, Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::launch::Launch;

/// A process that runs, or ran, an Envoy of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// The process id, which another process may get once this one has ended.
    pub(super) pid: u32,
    /// The start time, in clock ticks since boot: together with the id it identifies the process.
    started: u64,
    /// The parameters from its command line.
    pub(super) launch: Launch,
}

/// A signal to a process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Signal {
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

/// Returns the running Envoys of this private directory, oldest first.
///
/// # Errors
/// When processes cannot be listed.
pub(super) fn find(dir: &Path, uid: u32) -> io::Result<Vec<Process>> {
    find_in(Path::new("/proc"), dir, uid)
}

fn find_in(proc: &Path, dir: &Path, uid: u32) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(proc)? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        found.extend(read(proc, dir, uid, pid));
    }
    found.sort_by_key(|process: &Process| (process.started, process.pid));
    Ok(found)
}

/// Reads one process; `None` when it is not such an Envoy, is another user's, or has ended.
fn read(proc: &Path, dir: &Path, uid: u32, pid: u32) -> Option<Process> {
    let place = proc.join(pid.to_string());
    let command = fs::read(place.join("cmdline")).ok()?;
    let command: Vec<OsString> = command
        .strip_suffix(b"\0")?
        .split(|byte| *byte == 0)
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect();
    let launch = Launch::parse(dir, &command)?;
    // The owner of the files in `/proc` is root where the program has capabilities of its own.
    let status = fs::read_to_string(place.join("status")).ok()?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))?
        .split_whitespace()
        .nth(1)?;
    if effective.parse() != Ok(uid) {
        return None;
    }
    Some(Process {
        pid,
        started: started(proc, pid)?,
        launch,
    })
}

/// Returns the start time of a process that has not ended (proc_pid_stat(5), fields 3, 20 and 22).
fn started(proc: &Path, pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    // The name may have spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let threads: u32 = fields.get(17)?.parse().ok()?;
    // The first thread may have ended before the others, which still have the sockets open.
    let has_ended = matches!(*fields.first()?, "Z" | "X") && threads <= 1;
    fields.get(19)?.parse().ok().filter(|_| !has_ended)
}

impl Process {
    /// Creates the record of a process that was just started.
    pub(super) fn of_child(pid: u32, launch: Launch) -> Self {
        Self {
            pid,
            started: started(Path::new("/proc"), pid).unwrap_or_default(),
            launch,
        }
    }

    /// Returns whether the process still runs.
    pub(super) fn is_alive(&self) -> bool {
        started(Path::new("/proc"), self.pid) == Some(self.started)
    }

    /// Returns a file that becomes readable when the process ends (pidfd_open(2)); `None` where it
    /// has ended, or the kernel has no such files.
    pub(super) fn end(&self) -> Option<AsyncFd<OwnedFd>> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let file = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The process may have ended before, so that the file is another's.
        let file = Some(file).filter(|_| self.is_alive())?;
        #[expect(
            deprecated,
            reason = "the file of an `OwnedFd` stays open, and the replacement is unsafe"
        )]
        AsyncFd::with_interest(file, Interest::READABLE).ok()
    }

    /// Sends a signal, if the process still runs.
    pub(super) fn signal(&self, signal: Signal) {
        if !self.is_alive() {
            return;
        }
        let signal = match signal {
            Signal::Term => process::Signal::TERM,
            Signal::Kill => process::Signal::KILL,
        };
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        // The process may end meanwhile.
        let _ = pid.map(|pid| process::kill_process(pid, signal));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Lifetime;
    use super::super::launch::digest;
    use super::*;
    use tokio::process::Command;

    struct Proc(tempfile::TempDir);

    impl Proc {
        fn put(&self, pid: u32, uid: u32, command: &[OsString], stat: &str) {
            let place = self.0.path().join(pid.to_string());
            fs::create_dir(&place).expect("made");
            let words: Vec<u8> = command
                .iter()
                .flat_map(|word| [word.clone().into_vec(), vec![0]].concat())
                .collect();
            fs::write(place.join("cmdline"), words).expect("written");
            fs::write(
                place.join("status"),
                format!("Name:\tx\nUid:\t1\t{uid}\t1\t1\n"),
            )
            .expect("written");
            fs::write(place.join("stat"), format!("{pid} (en (v) oy) {stat}")).expect("written");
        }
    }

    fn stat(state: &str, started: u64) -> String {
        format!("{state} {}{started} 0 0", "1 ".repeat(18))
    }

    #[test]
    fn a_process_has_ended_when_all_of_its_threads_have() {
        let proc = Proc(tempfile::tempdir().expect("a directory"));
        proc.put(1, 0, &[], &stat("Z", 7));
        proc.put(2, 0, &[], &stat("Z", 7).replacen(" 1 1 7", " 3 1 7", 1));
        assert_eq!(
            started(proc.0.path(), 1),
            None,
            "the start of a process that has ended is not known"
        );
        assert_eq!(
            started(proc.0.path(), 2),
            Some(7),
            "that of the other one is"
        );
    }

    #[test]
    fn only_running_envoys_of_this_directory_and_this_user_are_found() {
        let dir = Path::new("/state");
        let launch = |epoch| Launch {
            base_id: 7,
            epoch,
            digest: digest("", Lifetime::Independent),
        };
        let command = |dir: &Path, epoch: u32| {
            let arguments = launch(epoch).arguments(dir, 60);
            [vec![OsString::from("envoy")], arguments].concat()
        };
        let proc = Proc(tempfile::tempdir().expect("a directory"));
        proc.put(40, 1000, &command(dir, 0), &stat("S", 9000));
        proc.put(30, 1000, &command(dir, 1), &stat("R", 9500));
        proc.put(50, 1000, &command(dir, 2), &stat("Z", 9100));
        proc.put(51, 1001, &command(dir, 2), &stat("S", 9100));
        proc.put(52, 1000, &command(Path::new("/other"), 2), &stat("S", 9100));
        proc.put(53, 1000, &[], &stat("S", 1));
        proc.put(54, 1000, &command(dir, 2), "S cut off");
        fs::write(proc.0.path().join("uptime"), "1").expect("written");
        let found = find_in(proc.0.path(), dir, 1000).expect("listed");
        let found: Vec<_> = found
            .iter()
            .map(|process| (process.pid, process.started, process.launch.epoch))
            .collect();
        assert_eq!(found, [(40, 9000, 0), (30, 9500, 1)]);
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_noticed_without_a_poll() {
        let launch = Launch {
            base_id: 7,
            epoch: 0,
            digest: String::new(),
        };
        let mut child = Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        let process = Process::of_child(child.id().expect("it runs"), launch);
        let end = process.end().expect("a kernel from 2019 on");
        let readable = end.readable();
        tokio::pin!(readable);
        assert!(
            futures::poll!(&mut readable).is_pending(),
            "the process runs"
        );
        drop(child.stdin.take());
        let _ready = readable.await.expect("the file can be watched");
        assert!(!process.is_alive(), "the process has ended");
        assert!(process.end().is_none(), "nothing is left to wait for");
        child.wait().await.expect("it has ended");
    }

    #[tokio::test]
    async fn a_process_that_has_the_number_of_an_earlier_one_is_not_taken_for_it() {
        let launch = Launch {
            base_id: 7,
            epoch: 0,
            digest: String::new(),
        };
        let us = Process::of_child(std::process::id(), launch);
        assert!(us.is_alive());
        let earlier = Process {
            started: us.started - 1,
            ..us
        };
        assert!(!earlier.is_alive());
        // If it was mistaken for the other process, this test would end here.
        earlier.signal(Signal::Kill);
    }
}
