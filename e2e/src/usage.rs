//! Processor time, memory, descriptors and threads of a process, by Linux's `/proc`.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Returns the processor time of a process since its start, including threads that have ended, in
/// steps of 10 ms.
///
/// # Errors
/// When there is no such process.
pub fn processor_time(pid: u32) -> Result<Duration> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/stat")).context("reading the process's times")?;
    let mut fields = text
        .rsplit(')')
        .next()
        .context("a name")?
        .split_whitespace()
        .skip(11);
    let mut ticks =
        || -> Result<u64> { Ok(fields.next().context("the process's times")?.parse()?) };
    Ok(Duration::from_millis((ticks()? + ticks()?) * 10))
}

/// Returns how often the current threads of a process have waited for something, and woken up.
///
/// # Errors
/// When there is no such process.
pub fn wake_ups(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for text in of_threads(pid, "status")? {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += line.context("context switches")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}

/// Returns the processor time of a process's current threads, in nanoseconds.
///
/// # Errors
/// When there is no such process.
pub fn threads_time(pid: u32) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for text in of_threads(pid, "schedstat")? {
        sum += on_processor(&text)?;
    }
    Ok(sum)
}

/// The texts of a file of each current thread of a process. A thread may end meanwhile.
fn of_threads(pid: u32, file: &str) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("listing threads")? {
        texts.extend(fs::read_to_string(task?.path().join(file)));
    }
    Ok(texts)
}

/// Returns the processor time of a process's main thread: in Envoy the one that applies
/// configuration.
///
/// # Errors
/// When there is no such process.
pub fn main_thread_time(pid: u32) -> Result<Duration> {
    on_processor(
        &fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat"))
            .context("reading schedstat")?,
    )
}

/// Returns a field of a process's status that counts kilobytes (`VmRSS`, `VmHWM`, `RssAnon`), in
/// bytes.
///
/// # Errors
/// When there is no such process, or no such field.
pub fn memory(pid: u32, field: &str) -> Result<u64> {
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).context("reading the process status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kilobytes = line
        .with_context(|| format!("the process status has no {field}"))?
        .trim()
        .trim_end_matches(" kB");
    Ok(kilobytes.parse::<u64>()? * 1024)
}

/// The number of a process's open descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Those of sockets, which include all connections.
    pub sockets: u64,
    /// All others.
    pub others: u64,
}

/// Returns the number of a process's open descriptors.
///
/// # Errors
/// When there is no such process.
pub fn descriptors(pid: u32) -> Result<Descriptors> {
    let mut found = Descriptors {
        sockets: 0,
        others: 0,
    };
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).context("listing descriptors")? {
        // One may be closed meanwhile.
        let Ok(target) = fs::read_link(entry?.path()) else {
            continue;
        };
        if target.to_string_lossy().starts_with("socket:") {
            found.sockets += 1;
        } else {
            found.others += 1;
        }
    }
    Ok(found)
}

/// Returns the number of a process's threads.
///
/// # Errors
/// When there is no such process.
pub fn threads(pid: u32) -> Result<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).context("listing threads")?;
    Ok(tasks.count() as u64)
}

/// Returns the child process whose program has this file name.
///
/// # Errors
/// When there is none.
pub fn child(parent: u32, program: &str) -> Result<u32> {
    for entry in fs::read_dir("/proc").context("listing processes")? {
        let entry = entry?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else {
            continue;
        };
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        if field("PPid:") == Some(parent.to_string().as_str()) && field("Name:") == Some(program) {
            return Ok(pid);
        }
    }
    anyhow::bail!("process {parent} has started no {program}")
}

/// Parses the first number of a schedstat: nanoseconds on a processor.
fn on_processor(schedstat: &str) -> Result<Duration> {
    let nanoseconds = schedstat
        .split_whitespace()
        .next()
        .context("schedstat is empty")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}
