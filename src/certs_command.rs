//! `gatewright certs`: a row for each certificate, and the limits of CAs.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use gatewright_control::certificates::{self, Check, Report};
use gatewright_control::path_with;
use gatewright_kubernetes::reports::{ReportKind, ReportSpec};
use serde::Deserialize;
use serde_json::Value;

use crate::answer::{WATCH, answer, command, refuse_cluster, show};
use crate::cli::{self, CertsVerb};
use crate::client::reports;
use crate::table::table;

/// The interval of `--watch` of a cluster: each time an object is created and removed.
const WATCH_CLUSTER: Duration = Duration::from_secs(10);

/// Prints certificates, or has one renewed or checked.
///
/// # Errors
/// When no program answers, or the output cannot be written.
pub async fn run(options: &cli::Certs) -> Result<bool> {
    let (program, output) = (&options.program, options.program.output);
    if options.verb.is_some() {
        refuse_cluster(
            &options.asking,
            "certs renew, check, change-key and new-account",
        )?;
    }
    match &options.verb {
        Some(CertsVerb::Renew { host }) => {
            let count = command(program, &query("/certs/renew", "host", host)).await?;
            writeln!(
                io::stdout(),
                "{count} to be renewed: follow it with gatewright certs --watch"
            )?;
            Ok(true)
        }
        Some(CertsVerb::Check { host }) => {
            let reply: Value = answer(program, &query("/certs/check", "host", host)).await?;
            let checks = Vec::<Check>::deserialize(&reply)?;
            let now = jiff::Timestamp::now();
            let findings = checks
                .iter()
                .flat_map(|check| certificates::findings(check, now));
            show(&reply, output, || {
                Ok(findings.map(|line| format!("{line}\n")).collect())
            })?;
            Ok(checks.iter().all(|check| check.findings.is_empty()))
        }
        Some(CertsVerb::ChangeKey { issuer }) => {
            command(program, &query("/certs/change-key", "issuer", issuer)).await?;
            writeln!(io::stdout(), "{issuer}: the account has a new key")?;
            Ok(true)
        }
        Some(CertsVerb::NewAccount { issuer }) => {
            command(program, &query("/certs/new-account", "issuer", issuer)).await?;
            writeln!(io::stdout(), "{issuer}: there is a new account")?;
            Ok(true)
        }
        None => {
            let mut shown = None;
            loop {
                let report = report(options).await?;
                let now = jiff::Timestamp::now();
                let good = report.certificates.iter().all(|row| row.is_good(now));
                if shown.as_ref() != Some(&report) {
                    show(&serde_json::to_value(&report)?, output, || {
                        Ok(of_certificates(&report))
                    })?;
                }
                if !options.watch {
                    return Ok(good);
                }
                shown = Some(report);
                let pause = if options.asking.is_asked(program) {
                    WATCH_CLUSTER
                } else {
                    WATCH
                };
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// The report of the running program, or of a cluster.
async fn report(options: &cli::Certs) -> Result<Report> {
    let cluster = &options.asking.cluster;
    if options.asking.is_asked(&options.program) {
        let spec = ReportSpec::new(ReportKind::Certificates, &cluster.installation);
        let document = reports::report(&options.asking, options.namespace.as_deref(), spec).await?;
        return Ok(serde_json::from_value(document)?);
    }
    let report: Report = answer(&options.program, "/certs").await?;
    let report = report.with_brought(answer(&options.program, "/certs/brought").await?);
    let Some(namespace) = &options.namespace else {
        return Ok(report);
    };
    Ok(report.of_namespace(namespace))
}

/// Returns the table of certificates, and the lines below it.
fn of_certificates(report: &Report) -> String {
    let now = jiff::Timestamp::now();
    let lines = certificates::limits(report, now)
        .into_iter()
        .chain(certificates::troubles(report));
    let below: String = lines.map(|line| format!("{line}\n")).collect();
    table(&certificates::table(report, now)) + &below
}

/// The path of the admin socket with one field.
fn query(path: &str, field: &str, value: &str) -> String {
    path_with(path, [(field, Some(value.to_owned()))])
}
