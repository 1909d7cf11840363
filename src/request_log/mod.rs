//! `gatewright logs`: prints the access log of a standalone program, with reasons.

mod follower;
pub mod of_cluster;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cli::{LinesFormat, Logs};
use follower::Follower;
pub(crate) use follower::end_of;
use gatewright_control::request_line::{FailedRequest, RequestFilter, RequestLine};

/// The interval at which the file is read again.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The number of bytes at the end of a log in which failed requests are looked for.
const READ_BACK: u64 = 8 << 20;
/// The most failed requests of a page.
pub const FAILED: usize = 50;

/// Prints the lines of a log, and goes on with new ones if options say so.
///
/// # Errors
/// When the file cannot be read, or nobody reads the output.
pub fn print(options: &Logs, path: &Path) -> Result<()> {
    let wanted = RequestFilter {
        host: options.host.as_ref().map(|host| host.to_ascii_lowercase()),
        namespace: options.namespace.clone(),
        errors: options.errors,
    };
    let mut follower = Follower::new(path);
    let mut last: VecDeque<String> = VecDeque::new();
    let found = follower.read(|text| {
        if options.lines > 0
            && let Some(line) = shown(text, &wanted, options.output)
        {
            if last.len() == options.lines {
                last.pop_front();
            }
            last.push_back(line);
        }
        Ok(())
    });
    match found {
        Err(error) if options.follow && error.kind() == io::ErrorKind::NotFound => {}
        found => found.with_context(|| path.display().to_string())?,
    }
    if last.is_empty() && !options.follow {
        writeln!(io::stderr(), "no line of {} is asked for", path.display())?;
    }
    let mut out = io::stdout().lock();
    for line in last {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    if !options.follow {
        return Ok(());
    }
    loop {
        sleep(POLL_INTERVAL);
        let found = follower.read(|text| match shown(text, &wanted, options.output) {
            Some(line) => writeln!(out, "{line}"),
            None => Ok(()),
        });
        match found {
            // It is there again when Envoy writes the next line.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => found?,
        }
        out.flush()?;
    }
}

/// Returns the last requests for a host that failed, the newest first, from the end of a log; empty
/// if there is no log.
///
/// # Errors
/// When the file cannot be read.
pub fn last_failed(path: &Path, host: &str) -> Result<Vec<FailedRequest>> {
    let wanted = RequestFilter {
        host: Some(host.to_ascii_lowercase()),
        errors: true,
        ..RequestFilter::default()
    };
    let end = match end_of(path, READ_BACK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        end => end.with_context(|| path.display().to_string())?,
    };
    let lines = end.lines().rev().filter_map(RequestLine::parse);
    let failed = lines.filter(|line| wanted.has(line));
    Ok(failed.take(FAILED).map(|line| line.failed()).collect())
}

/// A line as it is printed; `None` if it is not wanted, or no line of an access log.
fn shown(text: &str, wanted: &RequestFilter, format: LinesFormat) -> Option<String> {
    let line = RequestLine::parse(text).filter(|line| wanted.has(line))?;
    Some(match format {
        LinesFormat::Text => line.text(),
        LinesFormat::Json => line.json().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"time":"t","status":404,"details":"direct_response","route":"no-host","method":"GET","host":"a.org:80","path":"/","namespace":"blue"}"#;

    fn is_shown(wanted: &RequestFilter) -> bool {
        shown(LINE, wanted, LinesFormat::Text).is_some()
    }

    #[test]
    fn lines_are_chosen_by_host_namespace_and_error() {
        let host = |host: &str| RequestFilter {
            host: Some(host.to_owned()),
            ..RequestFilter::default()
        };
        assert!(is_shown(&RequestFilter::default()), "all");
        assert!(is_shown(&host("a.org")), "its host");
        assert!(!is_shown(&host("b.org")), "another host");
        let errors = RequestFilter {
            errors: true,
            ..RequestFilter::default()
        };
        assert!(is_shown(&errors), "an error");
        let red = RequestFilter {
            namespace: Some("red".to_owned()),
            ..RequestFilter::default()
        };
        assert!(!is_shown(&red), "another namespace");
    }

    #[test]
    fn what_is_no_line_of_an_access_log_is_left_out() {
        assert_eq!(
            shown("starting", &RequestFilter::default(), LinesFormat::Json),
            None
        );
    }
}
