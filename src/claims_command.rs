//! `gatewright claims`: a row for each owner, and the release of a hostname.

use std::io::{self, Write};

use anyhow::Result;
use gatewright_control::path_with;
use gatewright_kubernetes::reports::{ReportKind, ReportSpec};
use serde_json::Value;

use crate::answer::{answer, command, refuse_cluster, show};
use crate::cli::{self, ClaimsVerb};
use crate::client::reports::report;
use crate::table::table;

/// Prints the owners of hostnames, or releases one.
///
/// # Errors
/// When no program answers, or the output cannot be written.
pub async fn run(options: &cli::Claims) -> Result<bool> {
    let program = &options.program;
    if let Some(ClaimsVerb::Release { what }) = &options.verb {
        refuse_cluster(&options.asking, "claims release")?;
        command(
            program,
            &path_with("/owners/release", [("what", Some(what.clone()))]),
        )
        .await?;
        writeln!(
            io::stdout(),
            "{what} is released: see gatewright claims for who has it now"
        )?;
        return Ok(true);
    }
    let reply = owners(options).await?;
    show(&reply, program.output, || Ok(text(&reply)))
}

/// The rows of the running program, or of a cluster.
async fn owners(options: &cli::Claims) -> Result<Value> {
    let cluster = &options.asking.cluster;
    let namespace = options.namespace.as_deref();
    if options.asking.is_asked(&options.program) {
        let spec = ReportSpec::new(ReportKind::Claims, &cluster.installation);
        return report(&options.asking, namespace, spec).await;
    }
    let mut rows: Vec<Value> = answer(&options.program, "/owners").await?;
    rows.retain(|row| namespace.is_none_or(|namespace| row["namespace"] == *namespace));
    Ok(Value::Array(rows))
}

/// Returns the text of a field of a row.
fn field(row: &Value, name: &str) -> String {
    let text = row[name].as_str().filter(|text| !text.is_empty());
    text.unwrap_or("-").to_owned()
}

/// Returns the table of owners, and below it what a namespace claims and others have.
fn text(reply: &Value) -> String {
    let rows = reply.as_array().into_iter().flatten();
    let (lost, owned): (Vec<&Value>, Vec<&Value>) = rows.partition(|row| !row["reason"].is_null());
    let heads = ["WHAT", "NAMESPACE", "PROTOCOL", "SINCE", "RELEASED"].map(str::to_owned);
    let owned = owned.into_iter().map(|row| {
        ["what", "namespace", "protocol", "since", "released"].map(|name| field(row, name))
    });
    let mut text = table(&std::iter::once(heads).chain(owned).collect::<Vec<_>>());
    if !lost.is_empty() {
        let heads = ["NOT OWNED", "REASON", "MESSAGE"].map(str::to_owned);
        let lost = lost
            .into_iter()
            .map(|row| ["what", "reason", "message"].map(|name| field(row, name)));
        text.push('\n');
        text += &table(&std::iter::once(heads).chain(lost).collect::<Vec<_>>());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_namespace_does_not_get_is_below_what_it_owns() {
        let owned = json!({"what": "hostname a.org", "namespace": "shop", "protocol": null,
            "since": "2026-11-26T03:00:00Z", "released": null});
        let lost = json!({"what": "httproute shop/web", "namespace": null,
            "reason": "HostnameConflict", "message": "b.org belongs to another namespace"});
        let text = text(&json!([owned, lost]));
        let expected = "WHAT            NAMESPACE  PROTOCOL  SINCE                 RELEASED\n\
            hostname a.org  shop       -         2026-11-26T03:00:00Z  -\n\n\
            NOT OWNED           REASON            MESSAGE\n\
            httproute shop/web  HostnameConflict  b.org belongs to another namespace\n";
        assert_eq!(text, expected);
    }
}
