//! `gatewright kinds`: the kinds that are read, and the fields of those that have a definition.

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, Result, bail};
use gatewright_core::inputs::Kind;

use crate::cli::KindsVerb;
use crate::definitions::{DEFINITIONS, Definition, OURS};
use crate::schema::{self, nearest};
use crate::table::table;

/// Runs the command.
///
/// # Errors
/// When there is no such kind or field, or a file cannot be written.
pub fn run(verb: Option<&KindsVerb>) -> Result<bool> {
    match verb {
        None | Some(KindsVerb::List) => io::stdout().write_all(list().as_bytes())?,
        Some(KindsVerb::Explain { field }) => {
            let (kind, path) = field.split_once('.').unwrap_or((field, ""));
            let (kind, definition) = definition(kind)?;
            let name = kind.as_str();
            let text = schema::explain(&definition.schema, name, path);
            let text = text.with_context(|| name.to_owned())?;
            io::stdout().write_all(text.as_bytes())?;
        }
        Some(KindsVerb::Schema {
            into: Some(dir), ..
        }) => {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            for (kind, definition) in &*DEFINITIONS {
                let file = dir.join(format!("{}.json", kind.as_str().to_lowercase()));
                fs::write(&file, text(definition)?).with_context(|| file.display().to_string())?;
                writeln!(io::stdout(), "{}", file.display())?;
            }
        }
        Some(KindsVerb::Schema { kind, .. }) => {
            let (_, definition) = definition(kind.as_deref().unwrap_or_default())?;
            io::stdout().write_all(text(definition)?.as_bytes())?;
        }
    }
    Ok(true)
}

/// The kinds that are read, each with its versions.
fn list() -> String {
    let head = ["KIND", "APIVERSION", "NOTE"].map(str::to_owned);
    let rows = Kind::READ.iter().copied().map(|kind| {
        let versions = kind.versions().join(", ");
        let versions = match kind.group() {
            "" => versions,
            group => format!("{group}/{versions}"),
        };
        let is_ours = OURS.iter().any(|(ours, _)| *ours == kind);
        let note = match (is_ours, kind.is_experimental()) {
            (true, _) => "ours: gatewright kinds explain",
            (false, true) => "experimental channel",
            (false, false) => "",
        };
        [kind.as_str().to_owned(), versions, note.to_owned()]
    });
    let rows: Vec<_> = [head].into_iter().chain(rows).collect();
    table(&rows)
}

/// The kind that a person names, with its definition.
fn definition(name: &str) -> Result<(Kind, &'static Definition)> {
    let names = DEFINITIONS.keys().map(|kind| kind.as_str());
    let name = name.to_lowercase();
    for (kind, definition) in &*DEFINITIONS {
        let is_short = definition.names.contains(&name);
        if is_short || kind.as_str().to_lowercase() == name {
            return Ok((*kind, definition));
        }
    }
    if let Some(instead) = nearest(&name, names.clone()) {
        bail!("{name}: no such kind: did you mean {instead}?");
    }
    let names: Vec<_> = names.collect();
    bail!(
        "{name}: no kind with a definition here, which are {}; `kubectl explain` has the others",
        names.join(", ")
    );
}

/// The JSON schema of a kind, as a file.
fn text(definition: &Definition) -> Result<String> {
    Ok(serde_json::to_string_pretty(&definition.schema)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_what_people_write() {
        for name in ["trafficpolicy", "TrafficPolicies", "gwtp"] {
            let (kind, _) = definition(name).expect("there is one");
            assert_eq!(kind, Kind::TrafficPolicy, "{name}");
        }
        for name in ["httproute", "httproutes"] {
            let (kind, _) = definition(name).expect("there is one");
            assert_eq!(kind, Kind::HTTPRoute, "{name}");
        }
        let Err(error) = definition("trafficpolizy") else {
            panic!("there is no such kind")
        };
        assert!(error.to_string().contains("did you mean TrafficPolicy?"));
        let Err(error) = definition("configmap") else {
            panic!("it has no definition here")
        };
        assert!(error.to_string().contains("kubectl explain"), "{error}");
    }
}
