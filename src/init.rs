//! `gatewright init`: a first directory of manifests, with comments.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::cli;
use crate::standalone::PrivateDir;

/// The files, by name.
const FILES: [(&str, &str); 2] = [
    ("app.yaml", include_str!("../examples/first/app.yaml")),
    ("edge.yaml", include_str!("../examples/first/edge.yaml")),
];

/// Writes the directory, and prints what to do with it.
///
/// # Errors
/// When it has files already, or cannot be written.
pub fn run(options: &cli::Init) -> Result<bool> {
    let dir = &options.dir;
    ensure!(
        is_empty(dir)?,
        "{}: has files already: name another directory, or an empty one",
        dir.display()
    );
    let mut text = String::new();
    for (name, manifest) in FILES {
        let file = dir.join(name);
        fs::write(&file, manifest).with_context(|| file.display().to_string())?;
        text.push_str(&format!("{}\n", file.display()));
    }
    let schemas = dir.parent().unwrap_or(Path::new("")).join("schemas");
    let authority = PrivateDir::default_path("standalone")?.join("ca.crt");
    text.push_str(&format!(
        "\nCheck it, serve it, and ask for its page:\n  gatewright lint {0}\n  gatewright standalone {0}\n  \
         curl --cacert {1} https://app.localhost:8443/hello\n\nFor an editor with the YAML language server:\n  \
         gatewright kinds schema --into {2}\n",
        dir.display(),
        authority.display(),
        schemas.display()
    ));
    io::stdout().write_all(text.as_bytes())?;
    Ok(true)
}

/// True for a directory without files, which is made if it is missing.
fn is_empty(dir: &Path) -> Result<bool> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
            fs::read_dir(dir)
        }
        entries => entries,
    };
    let mut entries = entries.with_context(|| dir.display().to_string())?;
    Ok(entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::SystemTime;

    use gatewright_core::tenancy;
    use gatewright_core::translate::Settings;

    use super::*;
    use crate::configuration::CONTROLLER;
    use crate::definitions::DEFINITIONS;
    use crate::lint::{Beside, lint};
    use crate::manifest::parse;

    #[test]
    fn the_first_directory_has_no_mistake() {
        let parsed = FILES.map(|(name, text)| parse(Path::new(name), text));
        for file in &parsed {
            assert_eq!(file.problems, []);
        }
        let objects = parsed.into_iter().flat_map(|file| file.objects);
        let found = lint(
            objects.map(|(_, object)| object).collect(),
            Beside::Nothing,
            Settings::new(CONTROLLER, vec![Ipv4Addr::LOCALHOST.into()]),
            tenancy::Settings::default(),
            None,
            SystemTime::UNIX_EPOCH,
        );
        assert_eq!(found, []);
    }

    #[test]
    fn each_document_names_the_schema_of_its_kind_for_editors() {
        let documents = FILES.iter().flat_map(|(_, text)| text.split("---\n"));
        for document in documents {
            let kind = document
                .lines()
                .find_map(|line| line.strip_prefix("kind: "));
            let kind = kind.expect("a kind");
            let named = document
                .lines()
                .find_map(|line| line.strip_prefix("# yaml-language-server: $schema=../schemas/"));
            let has_schema = DEFINITIONS.keys().any(|known| known.as_str() == kind);
            let file = has_schema.then(|| format!("{}.json", kind.to_lowercase()));
            assert_eq!(named, file.as_deref(), "{kind}");
        }
    }

    #[test]
    fn a_directory_with_files_is_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(is_empty(&dir.path().join("new")).expect("it is made"));
        assert!(!is_empty(dir.path()).expect("it is read"));
    }
}
