//! `gatewright envoys`: a row for each connected Envoy, and the revocation of one.

use std::io::{self, Write};

use anyhow::Result;
use gatewright_control::envoys::EnvoyRow;
use gatewright_control::path_with;
use gatewright_kubernetes::reports::{ReportKind, ReportSpec};
use serde::Deserialize;
use serde_json::Value;

use crate::answer::{answer, command, refuse_cluster, show};
use crate::cli::{self, EnvoysVerb};
use crate::client::reports::report;
use crate::table::table;

/// Prints the connected Envoys, or revokes one.
///
/// # Errors
/// When no program answers, or the output cannot be written.
pub async fn run(options: &cli::Envoys) -> Result<bool> {
    let program = &options.program;
    if let Some(EnvoysVerb::Revoke { name, with_others }) = &options.verb {
        refuse_cluster(&options.asking, "envoys revoke")?;
        let fields = [
            ("name", Some(name.clone())),
            ("with_others", Some(with_others.to_string())),
        ];
        let said = command(program, &path_with("/envoys/revoke", fields)).await?;
        writeln!(io::stdout(), "{said}")?;
        return Ok(true);
    }
    let cluster = &options.asking.cluster;
    let reply: Value = if options.asking.is_asked(program) {
        let spec = ReportSpec::new(ReportKind::Envoys, &cluster.installation);
        report(&options.asking, options.namespace.as_deref(), spec).await?
    } else {
        answer(program, "/envoys").await?
    };
    show(&reply, program.output, || {
        Ok(table(&connected(&Vec::<EnvoyRow>::deserialize(&reply)?)))
    })
}

/// Returns the table of connected Envoys.
fn connected(rows: &[EnvoyRow]) -> Vec<[String; 8]> {
    let head = [
        "NAME",
        "FLEET",
        "NODE",
        "ADDRESS",
        "VERSION",
        "CONNECTED",
        "LAST ACK",
        "CURRENT",
    ]
    .map(str::to_owned);
    std::iter::once(head)
        .chain(rows.iter().map(cells))
        .collect()
}

fn cells(row: &EnvoyRow) -> [String; 8] {
    [
        row.name.clone(),
        row.fleet.clone(),
        or_none(row.pod.as_ref().map(|pod| pod.node.clone())),
        or_none(row.address.map(|address| address.to_string())),
        or_none(row.version.clone()),
        row.connected.to_string(),
        or_none(row.last_ack.map(|at| at.to_string())),
        if row.current { "yes" } else { "no" }.to_owned(),
    ]
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}
