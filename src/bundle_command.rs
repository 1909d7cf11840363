//! `gatewright support-bundle`: writes one archive for whoever helps.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;

use crate::bundle::{self, Place, State};
use crate::cli;
use crate::progress::progress;
use crate::run::state_dir;

/// Writes a bundle. Returns true.
///
/// # Errors
/// When nobody answers, or the file cannot be written.
pub async fn run(options: &cli::SupportBundle) -> Result<bool> {
    progress("asking");
    let bundle = match options.user.connect().await? {
        Some((client, namespace)) => {
            let installation = &options.user.cluster.installation;
            bundle::of_cluster(client, &namespace, installation).await?
        }
        None => {
            let state = state_dir(&options.state)?;
            let socket =
                |given: &Option<_>, name| given.clone().unwrap_or_else(|| state.join(name));
            let admin = socket(&options.admin, "admin.sock");
            let envoy_admin = socket(&options.envoy_admin, "envoy-admin.sock");
            bundle::of_program(&Place {
                state,
                admin,
                envoy_admin,
            })
            .await?
        }
    };
    progress("");
    bundle::write(&bundle, &options.output)?;
    let missing = bundle.contents.entries.iter();
    let missing = missing.filter(|entry| matches!(entry.state, State::NotRead { .. }));
    let missing = missing.count();
    if options.output != Path::new("-") {
        writeln!(
            io::stdout(),
            "{}: {} files; {missing} could not be read, as its CONTENTS.md says. Look into it before you send it",
            options.output.display(),
            bundle.contents.entries.len() - missing,
        )?;
    }
    Ok(true)
}
