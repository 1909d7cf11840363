//! Manifests of a directory, and the files that they name.

use std::path::PathBuf;

use garde::Validate;
use gatewright_core::namespaces::Namespaces;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::manifest::{self, Safety, SecretFiles, Trust};

/// Manifests of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[garde(allow_unvalidated)]
pub struct Manifests {
    /// Directories whose files Secrets may have in place of data (annotation gatewright.io/files),
    /// beside those in the folder of their manifest and below it. A given list replaces the
    /// default, the directory of certbot. Links lead to files of these directories alone
    #[garde(length(max = 1000))]
    pub secret_files: Vec<SecretDirectory>,
}

/// A directory with files of Secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretDirectory {
    /// Its path, from the root
    #[serde(deserialize_with = "absolute")]
    pub directory: PathBuf,
    /// Namespaces whose Secrets may have its files. Empty: all
    #[serde(default, deserialize_with = "names")]
    pub namespaces: Vec<String>,
}

impl Default for Manifests {
    fn default() -> Self {
        Self {
            secret_files: vec![SecretDirectory {
                directory: "/etc/letsencrypt".into(),
                namespaces: Vec::new(),
            }],
        }
    }
}

impl Manifests {
    /// The trust in a directory of manifests.
    pub fn trust(&self, safety: Safety) -> Trust {
        let directories = self.secret_files.iter();
        let directories = directories.map(|allowed| manifest::SecretDirectory {
            path: allowed.directory.clone(),
            namespaces: allowed.namespaces.clone(),
        });
        Trust {
            namespace: None,
            safety,
            files: SecretFiles::Within(directories.collect()),
        }
    }
}

fn absolute<'de, D: serde::Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(from)?;
    if path.is_absolute() {
        Ok(path)
    } else {
        let why = format!("{:?}: expected a path from the root", path.display());
        Err(serde::de::Error::custom(why))
    }
}

fn names<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    names
        .iter()
        .map(|name| Namespaces::check(name).map_err(serde::de::Error::custom))
        .collect()
}
