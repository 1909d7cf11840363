//! Runs a page of `docs/` as a reader would: its blocks marked `sh run` are run one after the other in one shell, and
//! the following block `text shows` is compared with their output.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Time limit of all commands of a page, in seconds.
const SECONDS: u32 = 300;
/// The wildcard in expected output, for any text.
const ANY: char = '…';

/// Commands of a page, with their expected output.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// The line of the page at which they begin.
    pub line: usize,
    /// The commands.
    pub commands: String,
    /// Expected lines in this order, perhaps with others between. `…` is any text; any white space matches any other.
    pub shows: Vec<String>,
}

impl Step {
    /// Returns an error if the output lacks an expected line.
    pub fn compare(&self, printed: &str) -> Result<()> {
        match missing(&self.shows, printed) {
            Some(line) => bail!("line {}: the page shows {line:?}, and its commands printed:\n{printed}", self.line),
            None => Ok(()),
        }
    }
}

/// Parses the steps of a page.
pub fn steps(page: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let mut inside = Vec::new();
        loop {
            match lines.next() {
                Some(("```", _)) => break,
                Some((line, _)) => inside.push(line),
                None => bail!("line {number}: the block does not end"),
            }
        }
        match info {
            "sh run" => steps.push(Step { line: number + 1, commands: inside.join("\n"), shows: Vec::new() }),
            "text shows" => {
                let last = steps.last_mut().with_context(|| format!("line {number}: nothing was run before"))?;
                last.shows.extend(inside.into_iter().filter(|line| !line.trim().is_empty()).map(str::to_owned));
            }
            _ => {}
        }
    }
    ensure!(!steps.is_empty(), "no block of the page is marked `sh run`");
    Ok(steps)
}

/// Returns the first expected line that is missing in the output.
fn missing<'a>(shows: &'a [String], printed: &str) -> Option<&'a str> {
    let mut printed = printed.lines();
    shows.iter().find(|line| !printed.any(|there| is_like(line, there))).map(String::as_str)
}

fn is_like(line: &str, printed: &str) -> bool {
    let spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (line, printed) = (spaced(line), spaced(printed));
    let mut parts = line.split(ANY).map(str::trim);
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The environment in which a page is run.
#[derive(Debug)]
pub struct Place {
    /// The working directory of its first command.
    pub dir: PathBuf,
    /// Directories at the beginning of `PATH`.
    pub path: Vec<PathBuf>,
    /// Further environment variables.
    pub environment: Vec<(&'static str, String)>,
    /// True for a network namespace of its own, in which any port is free; its processes end with it. Else they run on
    /// this machine.
    pub alone: bool,
}

/// Runs a page; an error names the line of the page whose commands fail, or whose output differs.
pub fn follow(page: &Path, place: &Place) -> Result<()> {
    let text = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let steps = steps(&text).with_context(|| page.display().to_string())?;
    let work = tempfile::Builder::new().prefix("walkthrough").tempdir()?;
    let output = |number: usize| work.path().join(format!("{number}.out"));
    let mut script =
        "set -euo pipefail\ntrap 'ended=$?; set +e; kill $(jobs -p) 2>/dev/null; wait; exit $ended' EXIT\n".to_owned();
    if place.alone {
        script += "ip link set lo up\n";
    }
    for (number, step) in steps.iter().enumerate() {
        writeln!(script, "{{\n{}\n}} >'{}' 2>&1", step.commands, output(number).display())?;
    }
    let file = work.path().join("script");
    std::fs::write(&file, script)?;

    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &SECONDS.to_string()]);
    if place.alone {
        command.args(["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        if !is_root {
            command.arg("--map-root-user");
        }
    }
    let before = std::env::var_os("PATH").unwrap_or_default();
    let path = place.path.iter().cloned().chain(std::env::split_paths(&before));
    let ended = command
        .arg("bash")
        .arg(&file)
        .current_dir(&place.dir)
        .env("PATH", std::env::join_paths(path)?)
        .envs(place.environment.iter().map(|(name, value)| (name, value)))
        .stdin(std::process::Stdio::null())
        .output()
        .context("running the commands of a page")?;
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    for (number, step) in steps.iter().enumerate() {
        let printed = String::from_utf8_lossy(&std::fs::read(output(number)).unwrap_or_default()).into_owned();
        let at = format!("{}:{}", page.display(), step.line);
        let is_last = !output(number + 1).exists();
        ensure!(
            !is_last || ended.status.success(),
            "{at}: {}\n{}\nprinted:\n{printed}\n{said}",
            ended.status,
            step.commands
        );
        step.compare(&printed).with_context(|| format!("{}\n{said}", page.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n\n```sh run\necho one\necho two\n```\n\nshows\n\n```text shows\none\n…o\n```\n\n```sh\nexit 1\n```\n";

    fn place(dir: &Path) -> Place {
        Place { dir: dir.to_owned(), path: Vec::new(), environment: vec![("WHO", "you".to_owned())], alone: false }
    }

    /// Runs a page with this text.
    fn followed(text: &str) -> Result<()> {
        let dir = tempfile::Builder::new().prefix("page").tempdir()?;
        let page = dir.path().join("page.md");
        std::fs::write(&page, text)?;
        follow(&page, &place(dir.path()))
    }

    #[test]
    fn blocks_that_are_marked_are_steps() {
        let step =
            Step {
                line: 4, commands: "echo one\necho two".to_owned(), shows: vec!["one".to_owned(), "…o".to_owned()]
            };
        assert_eq!(steps(PAGE).expect("a page"), [step]);
        assert!(
            steps("```text shows\na\n```\n").is_err() && steps("```sh run\necho\n").is_err() && steps("none").is_err()
        );
    }

    #[test]
    fn any_text_may_stand_for_dots_and_for_nothing_else() {
        for (line, printed, like) in [
            ("a b", "a    b", true),
            ("a b", "a b c", false),
            ("a … c", "a b c", true),
            ("… c", "a b c", true),
            ("a …", "a b c", true),
            ("a … b … d", "a b c d", true),
            ("a … x … d", "a b c d", false),
            ("b …", "a b", false),
        ] {
            assert_eq!(is_like(line, printed), like, "{line} {printed}");
        }
        let shows = ["one".to_owned(), "two".to_owned()];
        assert_eq!(missing(&shows, "zero\none\nand\ntwo\n"), None);
        assert_eq!(missing(&shows, "two\none\n"), Some("two"));
    }

    #[test]
    fn a_page_is_followed_in_one_shell() {
        followed("```sh run\nWHOM=$WHO\n```\n```sh run\necho \"for $WHOM\"\n```\n```text shows\nfor you\n```\n")
            .expect("it is right");
        followed(PAGE).expect("it is right");
    }

    #[test]
    fn what_fails_or_shows_something_else_is_named_by_its_line() {
        let failed = followed("a\n```sh run\necho so far\nfalse\n```\n").expect_err("it fails").to_string();
        assert!(failed.contains("page.md:3: exit status: 1") && failed.contains("so far"), "{failed}");
        let other = followed("```sh run\necho a\n```\n```text shows\nb\n```\n").expect_err("it differs");
        let other = format!("{other:#}");
        assert!(other.contains("line 2: the page shows \"b\"") && other.contains("printed:\na"), "{other}");
    }
}
