//! Man pages of the command line: one for each command, from the same definition as the help.

use std::io;
use std::path::Path;

use clap::Command;
use clap::builder::Resettable;

/// Writes `NAME.1` for a command and its subcommands into a directory, which is created if it is
/// missing.
pub fn write(command: &Command, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let mut command = command.clone().disable_help_subcommand(true);
    command.build();
    pages(&command, dir)
}

fn pages(command: &Command, dir: &Path) -> io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages(sub, dir)?;
    }
    // The text after the help has lines of its own, which paragraphs of the page would join.
    let more = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(ToString::to_string);
    let page = command
        .clone()
        .after_help(Resettable::Reset)
        .after_long_help(Resettable::Reset);
    let page = clap_mangen::Man::new(page);
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend(
        more.as_deref()
            .map(section)
            .unwrap_or_default()
            .into_bytes(),
    );
    std::fs::write(dir.join(page.get_filename()), text)
}

/// Returns a section with its lines unfilled (groff_man(7): `.nf`, and the necessary escapes).
fn section(text: &str) -> String {
    let examples = text
        .strip_prefix("Example:\n")
        .or(text.strip_prefix("Examples:\n"));
    let (heading, text) = examples.map_or(("NOTES", text), |examples| ("EXAMPLES", examples));
    let mut section = format!(".SH {heading}\n.nf\n");
    for line in text.trim_end().lines() {
        // A line that begins with one of these would be a request of groff.
        let guard = if line.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        section += &format!("{guard}{}\n", line.replace('\\', "\\e").replace('-', "\\-"));
    }
    section + ".fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_examples_stay_as_they_are() {
        let text = section("Examples:\n  a --b          what\n.c '\\'\n");
        assert_eq!(
            text,
            ".SH EXAMPLES\n.nf\n  a \\-\\-b          what\n\\&.c '\\e'\n.fi\n"
        );
    }
}
