//! Runs a page of `docs/` as a reader would: its marked blocks are run one after the other in one
//! shell, and the following block `text shows` is compared with their output.
//!
//! | Mark of a block | Meaning |
//! | --- | --- |
//! | `sh run` | the commands succeed |
//! | `sh fails` | the command fails, as the page says |
//! | `sh serves` | the command runs until the page ends; the next step begins when it is ready |
//!
//! A word after the mark names a part of the page, which is run by itself (`sh run cluster`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Time limit of all commands of a page, in seconds.
const SECONDS: u32 = 300;
/// The wildcard in expected output, for any text.
const ANY: char = '…';

/// The expected end of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// They succeed.
    Success,
    /// The command fails.
    Failure,
    /// The command runs until the page ends.
    Never,
}

/// Commands of a page, with their expected output.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// The line of the page at which they begin.
    pub line: usize,
    /// The part of the page to which they belong; empty for most pages.
    pub part: String,
    /// Their expected end.
    pub end: End,
    /// The commands.
    pub commands: String,
    /// Expected lines in this order, perhaps with others between. `…` is any text; any white space
    /// matches any other.
    pub shows: Vec<String>,
}

impl Step {
    /// Returns an error if the output lacks an expected line.
    pub fn compare(&self, printed: &str) -> Result<()> {
        match missing(&self.shows, printed) {
            Some(line) => bail!(
                "line {}: the page shows {line:?}, and its commands printed:\n{printed}",
                self.line
            ),
            None => Ok(()),
        }
    }
}

/// Parses the steps of a page.
pub fn steps(page: &str) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else {
            continue;
        };
        let mut inside = Vec::new();
        loop {
            match lines.next() {
                Some(("```", _)) => break,
                Some((line, _)) => inside.push(line),
                None => bail!("line {number}: the block does not end"),
            }
        }
        let (language, mark) = info.split_once(' ').unwrap_or((info, ""));
        let (mark, part) = mark.split_once(' ').unwrap_or((mark, ""));
        let end = match (language, mark) {
            ("sh", "run") => End::Success,
            ("sh", "fails") => End::Failure,
            ("sh", "serves") => End::Never,
            ("text", "shows") => {
                let last = steps
                    .last_mut()
                    .with_context(|| format!("line {number}: nothing was run before"))?;
                last.shows.extend(
                    inside
                        .into_iter()
                        .filter(|line| !line.trim().is_empty())
                        .map(str::to_owned),
                );
                continue;
            }
            ("sh", "") => continue,
            ("sh", _) => bail!("line {number}: {mark:?} is no mark of a block"),
            _ => continue,
        };
        let (part, commands) = (part.to_owned(), inside.join("\n"));
        steps.push(Step {
            line: number + 1,
            part,
            end,
            commands,
            shows: Vec::new(),
        });
    }
    ensure!(!steps.is_empty(), "no block of the page is marked `sh run`");
    Ok(steps)
}

/// Returns the manifests of a page: its YAML blocks that have a `kind`, each with its line.
pub fn manifests(page: &str) -> Vec<(usize, String)> {
    let has_kind = |text: &str| text.lines().any(|line| line.starts_with("kind:"));
    yaml(page)
        .into_iter()
        .filter(|(_, text)| has_kind(text))
        .collect()
}

/// Returns the YAML blocks of a page, each with its line.
pub fn yaml(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some((indent, "yaml")) = line.split_once("```") else {
            continue;
        };
        let inside = lines
            .by_ref()
            .map(|(line, _)| line)
            .take_while(|line| line.trim() != "```");
        let text: Vec<&str> = inside
            .map(|line| line.strip_prefix(indent).unwrap_or(line))
            .collect();
        found.push((number + 1, text.join("\n") + "\n"));
    }
    found
}

/// Returns the first expected line that is missing in the output.
fn missing<'a>(shows: &'a [String], printed: &str) -> Option<&'a str> {
    let mut printed = printed.lines();
    shows
        .iter()
        .find(|line| !printed.any(|there| is_like(line, there)))
        .map(String::as_str)
}

fn is_like(line: &str, printed: &str) -> bool {
    let spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (line, printed) = (spaced(line), spaced(printed));
    let mut parts = line.split(ANY).map(str::trim);
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in between {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The environment in which a page is run.
#[derive(Debug, Default)]
pub struct Place {
    /// The working directory of its first command.
    pub dir: PathBuf,
    /// Directories at the beginning of `PATH`.
    pub path: Vec<PathBuf>,
    /// Further environment variables.
    pub environment: Vec<(&'static str, String)>,
    /// True for a network namespace of its own, in which any port is free; its processes end with
    /// it. Else they run on this machine.
    pub alone: bool,
    /// Commands of what the page presupposes.
    pub before: String,
    /// Words of the page that stand for something of the reader, and the ones to use for them.
    pub replaced: Vec<(&'static str, String)>,
    /// The command that succeeds when a command marked `sh serves` is ready; the file `$output` has
    /// what that printed.
    pub ready: String,
}

/// Runs a page; an error names the line of the page whose commands fail, or whose output differs.
pub fn follow(page: &Path, place: &Place) -> Result<()> {
    follow_part(page, "", place)
}

/// Runs a part of a page.
pub fn follow_part(page: &Path, part: &str, place: &Place) -> Result<()> {
    run(steps_of(page, part)?, place)
}

/// Runs pages one after the other, in one shell.
pub fn follow_pages(pages: &[PathBuf], place: &Place) -> Result<()> {
    let mut all = Vec::new();
    for page in pages {
        all.extend(steps_of(page, "")?);
    }
    run(all, place)
}

/// Returns the steps of a part of a page, each with the page.
fn steps_of(page: &Path, part: &str) -> Result<Vec<(PathBuf, Step)>> {
    let text = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let mut steps = steps(&text).with_context(|| page.display().to_string())?;
    steps.retain(|step| step.part == part);
    ensure!(
        !steps.is_empty(),
        "{}: no block belongs to part {part:?}",
        page.display()
    );
    Ok(steps
        .into_iter()
        .map(|step| (page.to_owned(), step))
        .collect())
}

fn run(mut steps: Vec<(PathBuf, Step)>, place: &Place) -> Result<()> {
    for (word, instead) in &place.replaced {
        ensure!(
            steps.iter().any(|(_, step)| step.commands.contains(word)),
            "no page has {word:?}"
        );
        for (_, step) in &mut steps {
            step.commands = step.commands.replace(word, instead);
        }
    }
    let work = tempfile::Builder::new().prefix("walkthrough").tempdir()?;
    let output = |number: usize| work.path().join(format!("{number}.out"));
    let mut script =
        "set -euo pipefail\ntrap 'ended=$?; set +e; kill $(jobs -p) 2>/dev/null; wait; exit $ended' EXIT\n".to_owned();
    if place.alone {
        script += "ip link set lo up\n";
    }
    writeln!(script, "{}", place.before)?;
    for (number, (_, step)) in steps.iter().enumerate() {
        let (commands, output) = (&step.commands, output(number).display().to_string());
        match step.end {
            End::Success => writeln!(script, "{{\n{commands}\n}} >'{output}' 2>&1")?,
            End::Failure => writeln!(
                script,
                "if {{\n{commands}\n}} >'{output}' 2>&1; then echo 'the command succeeds' >>'{output}'; exit 1; fi"
            )?,
            End::Never => writeln!(
                script,
                "{{\n{commands}\n}} >'{output}' 2>&1 &\noutput='{output}'\n\
                 until {}; do kill -0 $! || exit 1; sleep 0.1; done",
                if place.ready.is_empty() {
                    "true"
                } else {
                    &place.ready
                }
            )?,
        }
    }
    let file = work.path().join("script");
    std::fs::write(&file, script)?;

    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", &SECONDS.to_string()]);
    if place.alone {
        command.args([
            "unshare",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        let is_root = std::fs::metadata("/proc/self")
            .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        if !is_root {
            command.arg("--map-root-user");
        }
    }
    let before = std::env::var_os("PATH").unwrap_or_default();
    let path = place
        .path
        .iter()
        .cloned()
        .chain(std::env::split_paths(&before));
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
    for (number, (page, step)) in steps.iter().enumerate() {
        let printed = String::from_utf8_lossy(&std::fs::read(output(number)).unwrap_or_default())
            .into_owned();
        let at = format!("{}:{}", page.display(), step.line);
        let is_last = !output(number + 1).exists();
        ensure!(
            !is_last || ended.status.success(),
            "{at}: {}\n{}\nprinted:\n{printed}\n{said}",
            ended.status,
            step.commands
        );
        step.compare(&printed)
            .with_context(|| format!("{}\n{said}", page.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A page\n\n```sh run\necho one\necho two\n```\n\nshows\n\n```text shows\none\n…o\n```\n\n```sh\nexit 1\n```\n";

    fn place(dir: &Path) -> Place {
        Place {
            dir: dir.to_owned(),
            environment: vec![("WHO", "you".to_owned())],
            ..Place::default()
        }
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
        let step = Step {
            line: 4,
            part: String::new(),
            end: End::Success,
            commands: "echo one\necho two".to_owned(),
            shows: vec!["one".to_owned(), "…o".to_owned()],
        };
        assert_eq!(steps(PAGE).expect("a page"), [step]);
        assert!(steps("```sh runs\na\n```\n").is_err(), "an unknown mark");
        assert!(
            steps("```text shows\na\n```\n").is_err()
                && steps("```sh run\necho\n").is_err()
                && steps("none").is_err()
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
    fn a_part_is_run_by_itself() {
        let page = "```sh run\nexit 1\n```\n```sh serves b\necho $SITE; touch up; sleep 60\n```\n\
                    ```text shows\nours\n```\n```sh fails b\ntest -e down\n```\n```sh fails c\ntrue\n```\n";
        let dir = tempfile::Builder::new()
            .prefix("page")
            .tempdir()
            .expect("a directory");
        let file = dir.path().join("page.md");
        std::fs::write(&file, page).expect("a page");
        let before = "SITE=ours".to_owned();
        let b = Place {
            before: before.clone(),
            ready: "test -e up".to_owned(),
            ..place(dir.path())
        };
        follow_part(&file, "b", &b).expect("it serves, and fails as it says");
        let failed = follow_part(&file, "c", &place(dir.path()))
            .expect_err("it succeeds")
            .to_string();
        assert!(failed.contains("the command succeeds"), "{failed}");
        let up = vec![("touch up", "touch down".to_owned())];
        let other = Place {
            before,
            ready: "test -e down".to_owned(),
            replaced: up,
            ..place(dir.path())
        };
        follow_part(&file, "b", &other).expect_err("the file is there now");
        assert!(
            follow_part(&file, "d", &place(dir.path())).is_err(),
            "there is no such part"
        );
    }

    #[test]
    fn manifests_have_a_kind_and_may_be_indented() {
        let page =
            "```yaml\ntls: {}\n```\n1. a\n\n   ```yaml\n   kind: A\n   spec:\n     a: 1\n   ```\n";
        assert_eq!(
            manifests(page),
            [(7, "kind: A\nspec:\n  a: 1\n".to_owned())]
        );
    }

    #[test]
    fn a_command_that_fails_or_differs_is_named_by_its_line() {
        let failed = followed("a\n```sh run\necho so far\nfalse\n```\n")
            .expect_err("it fails")
            .to_string();
        assert!(
            failed.contains("page.md:3: exit status: 1") && failed.contains("so far"),
            "{failed}"
        );
        let other =
            followed("```sh run\necho a\n```\n```text shows\nb\n```\n").expect_err("it differs");
        let other = format!("{other:#}");
        assert!(
            other.contains("line 2: the page shows \"b\"") && other.contains("printed:\na"),
            "{other}"
        );
    }
}
