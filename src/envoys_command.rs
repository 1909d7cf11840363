//! `gatewright envoys`: a row for each connected Envoy, and the revocation of one.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Error, Result};
use gatewright_control::envoys::{EnvoyRow, Revoke, meant};
use gatewright_control::path_with;
use gatewright_kubernetes::keys::{EnvoyAccounts, Keys};
use gatewright_kubernetes::reports::{ReportKind, ReportSpec};
use serde::Deserialize;
use serde_json::Value;

use crate::answer::{answer, command, show};
use crate::cli::{self, EnvoysVerb};
use crate::client::reports::{ask, connect, report};
use crate::controller::xds::said;
use crate::table::table;

/// Prints the connected Envoys, or revokes one.
///
/// # Errors
/// When no program answers, or the output cannot be written.
pub async fn run(options: &cli::Envoys) -> Result<bool> {
    let program = &options.program;
    if let Some(EnvoysVerb::Revoke { name, with_others }) = &options.verb {
        if options.asking.is_asked(program) {
            let said = revoke(options, name, *with_others).await?;
            writeln!(io::stdout(), "{said}")?;
            return Ok(true);
        }
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

/// Revokes an Envoy with the rights of the user, who may write the Secret of the authority: the
/// controllers read it every two seconds.
async fn revoke(options: &cli::Envoys, name: &str, with_others: bool) -> Result<String> {
    let installation = &options.asking.cluster.installation;
    let (client, _) = connect(&options.asking, None).await?;
    let spec = ReportSpec::new(ReportKind::Envoys, installation);
    let answer = ask(&client, installation, &spec).await?;
    let rows = Vec::<EnvoyRow>::deserialize(&answer.document)?;
    let keys = Keys::new(client, installation, Duration::ZERO);
    let pods = rows.iter().any(|row| row.pod.is_some());
    let who = match meant(&rows, name, with_others, pods).map_err(Error::msg)? {
        Revoke::PodNamed(name) => Revoke::Pod(keys.pod(&name, &EnvoyAccounts::of_many()).await?),
        known => known,
    };
    keys.revoke(&who).await?;
    Ok(said(&who))
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
