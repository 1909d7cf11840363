//! `gatewright logs` of a cluster: the lines of all Envoys, which the controller reads.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use gatewright_control::request_line::RequestLine;
use gatewright_kubernetes::reports::{ReportKind, ReportSpec};
use kube::Client;
use serde_json::Value;
use tokio::signal::ctrl_c;
use tokio::time::sleep;

use crate::cli::{LinesFormat, Logs};
use crate::client::reports::{MOST_LINES, ReportAnswer, ReportError, ReportSession, ask, connect};

/// The interval at which new lines are asked for: a write of ours, and one of the controller.
const FOLLOWED: Duration = Duration::from_secs(3);

/// Prints the lines of a cluster, and goes on with new ones if options say so, until interrupted.
///
/// # Errors
/// When the user may not ask, nobody answers, or nobody reads the output.
pub async fn print(options: &Logs) -> Result<bool> {
    let asking = &options.asking;
    let namespace = options.namespace.as_deref();
    let (client, own) = connect(asking, namespace).await?;
    let spec = ReportSpec {
        about: options.host.clone(),
        namespace: namespace
            .filter(|_| asking.all_namespaces)
            .map(str::to_owned),
        errors: options.errors,
        lines: Some(options.lines.clamp(1, MOST_LINES)),
        ..ReportSpec::new(ReportKind::Logs, &asking.cluster.installation)
    };
    let mut printer = Printer {
        format: options.output,
        notes: Value::Null,
        after: None,
    };
    if !options.follow {
        let answer = ask(&client, &own, &spec).await?;
        printer.print(answer, options.lines > 0)?;
        return Ok(true);
    }
    loop {
        let spec = ReportSpec {
            after: printer.after.clone(),
            ..spec.clone()
        };
        let shown = printer.session(&client, &own, spec, options).await;
        match shown {
            // Another request goes on from there.
            Err(error) if is_removed(&error) => {}
            shown => return shown.map(|()| true),
        }
    }
}

fn is_removed(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<ReportError>(),
        Some(ReportError::Removed(_))
    )
}

/// What was printed.
struct Printer {
    format: LinesFormat,
    /// The notes that were told last.
    notes: Value,
    /// The place in the logs up to which it was.
    after: Option<String>,
}

impl Printer {
    /// Prints what one object answers, until interrupted. The object is removed at the end.
    async fn session(
        &mut self,
        client: &Client,
        namespace: &str,
        spec: ReportSpec,
        options: &Logs,
    ) -> Result<()> {
        let mut session = ReportSession::open(client, namespace, spec).await?;
        let shown = tokio::select! {
            shown = self.answers(&mut session, options) => shown,
            _ = ctrl_c() => Ok(()),
        };
        session.close().await;
        shown
    }

    async fn answers(&mut self, session: &mut ReportSession, options: &Logs) -> Result<()> {
        loop {
            let pause = match session.answer().await? {
                Ok(answer) => {
                    // Nothing of what is there, but where it ends.
                    let is_wanted = options.lines > 0 || self.after.is_some();
                    self.print(answer, is_wanted)?;
                    FOLLOWED
                }
                Err(refusal) => Duration::from_secs(refusal.retry),
            };
            sleep(pause).await;
            session.renew(self.after.as_deref()).await?;
        }
    }

    fn print(&mut self, answer: ReportAnswer, is_wanted: bool) -> io::Result<()> {
        let ReportAnswer {
            document,
            omitted,
            after,
        } = answer;
        let is_first = self.after.is_none();
        self.after = after;
        if self.notes != document["notes"] {
            self.notes = document["notes"].clone();
            for note in self.notes.as_array().into_iter().flatten() {
                writeln!(io::stderr(), "? {}", note.as_str().unwrap_or_default())?;
            }
        }
        if omitted > 0 && !is_first {
            writeln!(
                io::stderr(),
                "? {omitted} lines are left out: there were too many"
            )?;
        }
        let mut out = io::stdout().lock();
        let lines = document["lines"].as_array().into_iter().flatten();
        for line in lines.filter(|_| is_wanted) {
            let line = line.to_string();
            match (self.format, RequestLine::parse(&line)) {
                (LinesFormat::Text, Some(line)) => writeln!(out, "{}", line.text())?,
                _ => writeln!(out, "{line}")?,
            }
        }
        out.flush()
    }
}
