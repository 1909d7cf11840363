//! `gatewright convert`: reads files, prints objects and what became of each setting.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use gatewright_core::printable::{printable, printable_json};

use crate::cli::{Convert, Report};
use crate::convert::{Converted, Document, Note, Options, convert, documents};
use crate::manifest::{Safety, scan};
use crate::replace::replace;

/// The most bytes of a file, and of standard input.
const BYTES: u64 = 64 << 20;

/// Booleans of YAML 1.1 that are texts of YAML 1.2.
const BOOLEANS: [&str; 6] = ["y", "n", "yes", "no", "on", "off"];

/// Runs the command. Returns false if something is not carried over.
///
/// # Errors
/// When the input cannot be read, or the output cannot be written.
pub fn run(options: &Convert) -> Result<bool> {
    let mut source = Vec::new();
    for path in &options.paths {
        source.extend(read(path)?);
    }
    let conversion = convert(
        options.from,
        &source,
        &Options {
            class: options.class.clone(),
            configmap: options.configmap.clone(),
            gateway: options.gateway.clone(),
            gateway_class: options.gateway_class.clone(),
        },
    );
    match &options.into {
        None => io::stdout().write_all(text(&conversion.objects)?.as_bytes())?,
        Some(dir) => write(dir, &conversion.objects)?,
    }
    // Standard error may be closed.
    let _ = io::stderr().write_all(notes(&conversion.notes, options.output)?.as_bytes());
    Ok(conversion.is_whole())
}

/// Reads the documents of a file, a directory or standard input.
fn read(path: &Path) -> Result<Vec<Document>> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin()
            .lock()
            .take(BYTES)
            .read_to_string(&mut text)
            .context("standard input")?;
        return documents("-", &text).map_err(anyhow::Error::msg);
    }
    // Paths are relative as in the argument, so that a place can be copied from the output.
    let root: PathBuf = path.components().collect();
    fs::metadata(&root).with_context(|| path.display().to_string())?;
    let (files, problems) = scan(&root, &root, Safety::Off);
    if let Some(problem) = problems.first() {
        bail!("{problem}");
    }
    if files.is_empty() {
        bail!(
            "{}: no manifests: no file below it ends in .yaml, .yml or .json",
            path.display()
        );
    }
    let mut all = Vec::new();
    for file in files {
        let name = file.display().to_string();
        let size = fs::metadata(&file).with_context(|| name.clone())?.len();
        if size > BYTES {
            bail!("{name}: {size} bytes, at most {BYTES} are read");
        }
        let text = fs::read_to_string(&file).with_context(|| name.clone())?;
        all.extend(documents(&name, &text).map_err(anyhow::Error::msg)?);
    }
    Ok(all)
}

/// The objects as documents of YAML.
fn text<'a>(objects: impl IntoIterator<Item = &'a Converted>) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        if !text.is_empty() {
            text.push_str("---\n");
        }
        for line in &object.comments {
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(&quoted(&serde_yaml_ng::to_string(&object.value)?));
    }
    Ok(text)
}

/// YAML 1.2 with quotes around texts that are booleans of YAML 1.1, which `kubectl` reads.
fn quoted(yaml: &str) -> String {
    let mut text = String::new();
    // The indentation of the key of a block, whose lines are more indented.
    let mut block: Option<usize> = None;
    for line in yaml.split_inclusive('\n') {
        let indentation = line.len() - line.trim_start_matches([' ', '-']).len();
        let is_blank = line.trim().is_empty();
        if block.is_some_and(|key| is_blank || line.len() - line.trim_start().len() > key) {
            text.push_str(line);
            continue;
        }
        block = None;
        let content = line.trim_end();
        let (before, value) = match content.rsplit_once(' ') {
            Some((before, value)) if before.ends_with([':', '-']) => (before, value),
            _ => ("", ""),
        };
        if value.starts_with(['|', '>']) {
            let is_item = before.ends_with('-');
            block = Some(if is_item {
                before.len() - 1
            } else {
                indentation
            });
        }
        if BOOLEANS.contains(&value.to_lowercase().as_str()) {
            text.push_str(&[before, " '", value, "'\n"].concat());
        } else {
            text.push_str(line);
        }
    }
    text
}

/// Writes a file for each namespace. Secrets may be among the objects: only their owner reads it.
fn write(dir: &Path, objects: &[Converted]) -> Result<()> {
    let mut namespaces: BTreeMap<&str, Vec<&Converted>> = BTreeMap::new();
    for object in objects {
        let namespace = object.value["metadata"]["namespace"].as_str();
        namespaces
            .entry(namespace.unwrap_or_default())
            .or_default()
            .push(object);
    }
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    for (namespace, objects) in namespaces {
        // A namespace is a name, not a path.
        if namespace.contains('/') || namespace.starts_with('.') {
            bail!("namespace {namespace:?}: no name of a namespace");
        }
        let file = dir.join(format!("{namespace}.yaml"));
        let text = text(objects)?;
        replace(&file, |file| file.write_all(text.as_bytes()))
            .with_context(|| file.display().to_string())?;
    }
    Ok(())
}

fn notes(notes: &[Note], format: Report) -> Result<String> {
    Ok(match format {
        Report::Text => notes
            .iter()
            .map(|note| format!("{}\n", printable(&note.to_string())))
            .collect(),
        Report::Json => {
            let text = serde_json::to_string_pretty(notes)?;
            printable_json(&text).into_owned() + "\n"
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_kubectl_takes_for_booleans_have_quotes() {
        for (yaml, expected) in [
            ("mode: Off\n", "mode: 'Off'\n"),
            ("a:\n- on\n- only\n", "a:\n- 'on'\n- only\n"),
            (
                "a: |-\n  mode: Off\n\n  b: no\nc: no\n",
                "a: |-\n  mode: Off\n\n  b: no\nc: 'no'\n",
            ),
            (
                "- a: |\n    x: on\n  b: y\n",
                "- a: |\n    x: on\n  b: 'y'\n",
            ),
            ("a:\n- |\n  x: on\nb: on\n", "a:\n- |\n  x: on\nb: 'on'\n"),
            ("a: x on\nb: true\n", "a: x on\nb: true\n"),
        ] {
            assert_eq!(quoted(yaml), expected, "{yaml}");
        }
    }
}
