//! `gatewright crds`: writes the CustomResourceDefinitions of this version to a cluster, or prints
//! them.

use std::io::{self, Write};

use anyhow::Result;
use gatewright_kubernetes::connect_as_user;
use gatewright_kubernetes::crds::{self, Action, Outcome};
use serde_json::Value;

use crate::cli::CrdsVerb;
use crate::definitions::written;
use crate::table::table;

/// Runs the command.
///
/// # Errors
/// When the API server does not answer, or a definition is refused.
pub async fn run(verb: &CrdsVerb) -> Result<bool> {
    match verb {
        CrdsVerb::Apply {
            context,
            kubeconfig,
            dry_run,
        } => {
            let (client, _) = connect_as_user(kubeconfig.as_deref(), context.as_deref()).await?;
            let outcomes = crds::apply(&client, &definitions(), *dry_run).await?;
            io::stdout().write_all(rows(&outcomes).as_bytes())?;
        }
        CrdsVerb::Print => {
            for text in written() {
                write!(io::stdout(), "---\n{text}")?;
            }
        }
    }
    Ok(true)
}

fn definitions() -> Vec<Value> {
    let texts = written();
    texts
        .map(|text| serde_yaml_ng::from_str(text).expect("a definition of ours is YAML"))
        .collect()
}

fn rows(outcomes: &[Outcome]) -> String {
    let head = ["NAME", "ACTION", "NOTE"].map(str::to_owned);
    let rows = outcomes.iter().map(|outcome| {
        [
            outcome.name.clone(),
            word(outcome.action).to_owned(),
            outcome.note.clone().unwrap_or_default(),
        ]
    });
    table(&[head].into_iter().chain(rows).collect::<Vec<_>>())
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Created => "created",
        Action::Updated => "updated",
        Action::Unchanged => "unchanged",
        Action::Kept => "kept",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_says_the_version_of_the_program() {
        for document in definitions() {
            assert_eq!(
                document["metadata"]["annotations"][crds::VERSION_ANNOTATION],
                env!("CARGO_PKG_VERSION"),
                "{}: deploy/crds",
                document["metadata"]["name"]
            );
        }
    }
}
