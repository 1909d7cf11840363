//! The answers of the running program, and how commands print them.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bundle::Bundle;
use crate::cli::{Asking, Document, Output, RunningProgram};
use crate::run;
use gatewright_control::{ask, tell};
use gatewright_core::printable::{printable, printable_json};

/// The interval of `certs --watch` and `status --watch`.
pub const WATCH: Duration = Duration::from_secs(1);

/// Prints a document. Returns true, as a command without a finding does.
pub fn print(value: &Value, how: Document) -> Result<bool> {
    let text = match how {
        Document::Yaml => serde_yaml_ng::to_string(value)?,
        Document::Json => printable_json(&serde_json::to_string_pretty(value)?).into_owned() + "\n",
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(true)
}

/// The same value with texts that have no effect on a terminal.
fn harmless(value: &Value) -> Value {
    match value {
        Value::String(text) => printable(text).into(),
        Value::Array(items) => items.iter().map(harmless).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(name, field)| (name.clone(), harmless(field)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// Prints an answer as a document, or as this text. Returns true, as [`print()`] does.
pub fn show(value: &Value, how: Output, text: impl FnOnce() -> Result<String>) -> Result<bool> {
    match how {
        // YAML has them as they are.
        Output::Yaml => print(&harmless(value), Document::Yaml),
        Output::Json => print(value, Document::Json),
        Output::Table | Output::Wide => {
            io::stdout().write_all(for_terminal(&text()?).as_bytes())?;
            Ok(true)
        }
    }
}

/// Escapes what has an effect on a terminal, except for ends of lines and colours: tables have
/// escaped what is in their cells, and a text of somebody else beside them may at worst be
/// coloured.
pub fn for_terminal(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut safe = lines(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != ';');
        match end.map(|end| part.split_at(end)) {
            Some((colour, rest)) if rest.starts_with('m') => {
                safe += "\x1b[";
                safe += colour;
                safe += &lines(rest);
            }
            _ => safe += &lines(&format!("\x1b[{part}")),
        }
    }
    safe
}

/// Escapes the same but for ends of lines.
fn lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(printable).collect();
    lines.join("\n")
}

/// Returns the path of the admin socket of the running program.
fn socket_of(program: &RunningProgram) -> Result<PathBuf> {
    match &program.admin {
        Some(admin) => Ok(admin.clone()),
        None => Ok(run::state_dir(&program.state())?.join("admin.sock")),
    }
}

/// Sends a query to the running program, and parses the answer.
pub async fn answer<T: DeserializeOwned>(program: &RunningProgram, question: &str) -> Result<T> {
    if let Some(file) = &program.bundle {
        return Ok(serde_json::from_value(
            Bundle::open(file)?.answer(question)?,
        )?);
    }
    let socket = socket_of(program)?;
    let text = ask(&socket, question).await?;
    serde_json::from_str(&text).with_context(|| {
        format!(
            "{} sends an unexpected answer: is it a gatewright of another version?",
            socket.display()
        )
    })
}

/// Sends a command to the running program, and returns what it says.
pub async fn command(program: &RunningProgram, path_and_query: &str) -> Result<String> {
    if program.bundle.is_some() {
        bail!("a support bundle takes no commands");
    }
    Ok(tell(&socket_of(program)?, path_and_query).await?)
}

/// Refuses a command that changes something, with the options of a cluster: requests for reports
/// change nothing.
pub fn refuse_cluster(asking: &Asking, command: &str) -> Result<()> {
    let is_named = asking.cluster.context.is_some() || asking.cluster.kubeconfig.is_some();
    ensure!(
        !is_named && !asking.cluster.is_plugin,
        "{command}: run it where the program runs, without --context and --kubeconfig; in a cluster at the lease holder"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_have_an_effect_on_a_terminal() {
        for (text, expected) in [
            ("a\nb", "a\nb"),
            ("\x1b[38;5;9mno\x1b[39m", "\x1b[38;5;9mno\x1b[39m"),
            ("\x1b[2Jx\x1b[H", "\\u{1b}[2Jx\\u{1b}[H"),
            ("\x1b]0;title\x07\x1b[", "\\u{1b}]0;title\\u{7}\\u{1b}["),
        ] {
            assert_eq!(for_terminal(text), expected, "{text:?}");
        }
    }
}
