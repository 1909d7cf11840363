//! The configuration from a file and from `--set`.

use std::fmt;
use std::path::Path;

use garde::Validate;
use gatewright_control::certificates::{SettingsError, check_issuers, read_file};
use gatewright_core::inputs::plain;
use serde_json::Value;

use super::Configuration;
use super::override_path::Override;
use crate::manifest::{line_of, read_yaml};

/// Why there is no configuration: where, and what is wrong there.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ConfigurationError {
    place: String,
    problem: String,
}

/// Reads the configuration of a file, with the fields that `--set` gives.
///
/// # Errors
/// When the file cannot be read, is no YAML, or has an unknown field or an invalid value; the error
/// names file, line and field.
pub fn load(file: Option<&Path>, set: &[String]) -> Result<Configuration, ConfigurationError> {
    configuration(Source::read(file, set)?)
}

/// Reads the configuration of a document from elsewhere; errors say `place` for the file.
///
/// # Errors
/// As [`load`].
pub fn load_text(place: &Path, text: String) -> Result<Configuration, ConfigurationError> {
    configuration(Source::of_text(place, text, Vec::new())?)
}

fn configuration(mut source: Source<'_>) -> Result<Configuration, ConfigurationError> {
    let mut document = std::mem::take(&mut source.document);
    for one in &source.overrides {
        one.put(&mut document)
            .map_err(|problem| source.error(&one.path, problem))?;
    }
    let document = without_nulls(document);
    let configuration: Configuration =
        serde_path_to_error::deserialize(document).map_err(|error| {
            let path = error.path().to_string();
            source.error(&path, plain(&error.into_inner().to_string()))
        })?;
    if let Err(report) = configuration.validate() {
        let mut problems = report.iter();
        if let Some((path, problem)) = problems.next() {
            return Err(source.error(&camel(&path.to_string()), problem));
        }
    }
    match check_issuers(&configuration.issuers) {
        Err(SettingsError::Value { field, problem }) => Err(source.error(&field, problem)),
        Err(other) => Err(source.error("issuers", other)),
        Ok(()) => Ok(configuration),
    }
}

/// The texts from which the configuration is read.
struct Source<'a> {
    file: Option<&'a Path>,
    text: String,
    document: Value,
    overrides: Vec<Override>,
}

impl<'a> Source<'a> {
    fn read(file: Option<&'a Path>, set: &[String]) -> Result<Self, ConfigurationError> {
        let overrides = set.iter().map(|text| {
            Override::parse(text).map_err(|problem| ConfigurationError {
                place: format!("--set {text}"),
                problem,
            })
        });
        let overrides = overrides.collect::<Result<_, _>>()?;
        let Some(path) = file else {
            return Ok(Self {
                file,
                text: String::new(),
                document: Value::Object(serde_json::Map::new()),
                overrides,
            });
        };
        let text = read_file(path).map_err(|problem| failed(path, problem))?;
        Self::of_text(path, text, overrides)
    }

    fn of_text(
        path: &'a Path,
        text: String,
        overrides: Vec<Override>,
    ) -> Result<Self, ConfigurationError> {
        let document = read_yaml(&text).map_err(|error| failed(path, error.to_string()))?;
        for field in ["apiVersion", "kind"] {
            if document.get(field).is_none() {
                let problem = format!(
                    "{field} is missing: expected apiVersion: config.gatewright.io/v1alpha1 and kind: Configuration"
                );
                return Err(failed(path, problem));
            }
        }
        Ok(Self {
            file: Some(path),
            text,
            document,
            overrides,
        })
    }

    /// An error at a field: with the line of the file, or the argument that gives it.
    fn error(&self, field: &str, problem: impl fmt::Display) -> ConfigurationError {
        let given = self
            .overrides
            .iter()
            .find(|one| is_within(field, &one.path) || is_within(&one.path, field));
        let place = match (given, self.file) {
            (Some(one), _) if one.path == field => format!("--set {field}"),
            (Some(one), _) => format!("--set {}: {field}", one.path),
            (None, Some(file)) => {
                let line = line_of(&self.text, field) + 1;
                format!("{}:{line}: {field}", file.display())
            }
            (None, None) => field.to_owned(),
        };
        ConfigurationError {
            place,
            problem: problem.to_string(),
        }
    }
}

/// An error of a file as a whole.
fn failed(path: &Path, problem: String) -> ConfigurationError {
    ConfigurationError {
        place: path.display().to_string(),
        problem,
    }
}

/// True if a field is another one, or a part of it.
fn is_within(field: &str, other: &str) -> bool {
    field
        .strip_prefix(other)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// A field without a value has its default, as an empty section of YAML (`limits:`).
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name, without_nulls(value)))
                .collect(),
        ),
        other => other,
    }
}

/// The path of a field as the document has it.
fn camel(path: &str) -> String {
    let mut camel = String::with_capacity(path.len());
    let mut after_underscore = false;
    for character in path.chars() {
        if character == '_' {
            after_underscore = true;
        } else if std::mem::take(&mut after_underscore) {
            camel.extend(character.to_uppercase());
        } else {
            camel.push(character);
        }
    }
    camel
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HEAD: &str = "apiVersion: config.gatewright.io/v1alpha1\nkind: Configuration\n";

    fn read(text: &str, set: &[&str]) -> Result<Configuration, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), text).expect("written");
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        let name = file.path().display().to_string();
        load(Some(file.path()), &set).map_err(|error| error.to_string().replace(&name, "FILE"))
    }

    #[test]
    fn an_empty_document_has_the_defaults() {
        assert_eq!(read(HEAD, &[]), Ok(Configuration::default()));
        assert_eq!(
            load(None, &[]).expect("without a file"),
            Configuration::default()
        );
        assert_eq!(
            read(&format!("{HEAD}limits:\n"), &[]),
            Ok(Configuration::default()),
            "an empty section"
        );
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let printed = serde_yaml_ng::to_string(&Configuration::default()).expect("YAML");
        assert_eq!(read(&printed, &[]), Ok(Configuration::default()));
    }

    #[test]
    fn an_error_names_line_and_field() {
        for (text, expected) in [
            (
                "limits:\n  namespace:\n    routs: 5\n",
                "FILE:5: limits.namespace.routs: unknown field `routs`, expected one of ",
            ),
            (
                "lease:\n  seconds: 2\n",
                "FILE:4: lease.seconds: lower than 3",
            ),
            (
                "envoys:\n  streams: {perPod: no}\n",
                "FILE:4: envoys.streams.perPod: expected a whole number, found \"no\"",
            ),
            (
                "issuers:\n  le:\n    directory: lets\n",
                "FILE:5: issuers.le.directory: \"lets\": expected letsencrypt",
            ),
            ("lease: 3\n", "FILE:3: lease: expected an object, found 3"),
            (
                "lease: {}\nlease: {}\n",
                "FILE: duplicate key \"lease\" at line 4",
            ),
            (
                "tenancy:\n  reservedHostnames:\n  - hostname: A\n",
                "FILE:5: tenancy.reservedHostnames[0].hostname: ",
            ),
        ] {
            let error = read(&format!("{HEAD}{text}"), &[]).expect_err(text);
            assert!(error.starts_with(expected), "{error}");
        }
        let error = read("kind: Configuration\n", &[]).expect_err("no version");
        assert!(error.starts_with("FILE: apiVersion is missing"), "{error}");
    }

    #[test]
    fn set_overrides_the_file_and_is_named_in_errors() {
        let text = format!("{HEAD}limits: {{namespace: {{routes: 5, ports: 6}}}}\n");
        let read_with = |set: &[&str]| read(&text, set);
        let limits = read_with(&["limits.namespace.routes=7"])
            .expect("it is fine")
            .limits;
        assert_eq!(limits.namespace.routes, 7);
        assert_eq!(limits.namespace.ports, 6);
        for (set, expected) in [
            ("lease.seconds=2", "--set lease.seconds: lower than 3"),
            (
                "lease={seconds: 2}",
                "--set lease: lease.seconds: lower than 3",
            ),
            (
                "leese.seconds=2",
                "--set leese.seconds: leese: unknown field `leese`",
            ),
            ("lease", "--set lease: expected PATH=VALUE"),
        ] {
            let error = read_with(&[set]).expect_err(set);
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
