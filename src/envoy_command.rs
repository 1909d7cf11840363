//! `gatewright envoy`: asks an Envoy over its admin socket.

mod containing;
mod redaction;

use std::io::{self, Write};

use anyhow::{Context, Result};
use gatewright_control::{ask, path_with, tell};

use self::containing::containing;
use self::redaction::redacted;
use crate::cli::{Envoy, EnvoyVerb};
use crate::run::state_dir;

/// Asks or tells Envoy, and prints what it answers.
///
/// # Errors
/// When no Envoy answers, or it refuses.
pub async fn run(options: &Envoy) -> Result<bool> {
    let socket = match &options.envoy_admin {
        Some(path) => path.clone(),
        None => state_dir(&options.state())?.join("envoy-admin.sock"),
    };
    let text = match &options.verb {
        EnvoyVerb::Stats { filter, prometheus } => {
            let path = if *prometheus {
                "/stats/prometheus"
            } else {
                "/stats"
            };
            ask(&socket, &path_with(path, [("filter", filter.clone())])).await?
        }
        EnvoyVerb::Clusters { name } => {
            let all = ask(&socket, "/clusters").await?;
            named(&all, name.as_deref().unwrap_or_default())
        }
        EnvoyVerb::Config { text } => {
            let dump = ask(&socket, "/config_dump?include_eds").await?;
            let dump = serde_json::from_str(&dump).context("the configuration of Envoy")?;
            let dump = containing(redacted(dump), text.as_deref().unwrap_or_default());
            let mut text = serde_json::to_string_pretty(&dump)?;
            text.push('\n');
            text
        }
        EnvoyVerb::Drain { undo: false } => {
            tell(&socket, "/healthcheck/fail").await?;
            "Envoy is out of service: it is unready, and closes HTTP connections after their next response\n"
                .to_owned()
        }
        EnvoyVerb::Drain { undo: true } => {
            tell(&socket, "/healthcheck/ok").await?;
            "Envoy is in service\n".to_owned()
        }
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(true)
}

/// Returns the lines of clusters whose names begin so: `NAME::FIELD::VALUE`.
fn named(clusters: &str, begin: &str) -> String {
    clusters
        .lines()
        .filter(|line| line.starts_with(begin))
        .fold(String::new(), |text, line| text + line + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_found_by_the_beginning_of_their_names() {
        let all = "team-a/web_80::a::1\nteam-ab/web_80::a::2\n";
        assert_eq!(named(all, "team-a/"), "team-a/web_80::a::1\n");
        assert_eq!(named(all, ""), all);
    }
}
