//! The recipes for CI in `docs/plan.md`: their commands are run as the services run them, in a
//! repository with a change.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const SITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/plan.in");

/// The YAML blocks of the page.
fn recipes() -> Vec<Value> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/plan.md");
    let page = fs::read_to_string(page).expect("the page");
    let blocks = page.split("\n```yaml\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("\n```\n").next());
    blocks
        .map(|block| serde_yaml_ng::from_str(block).expect("YAML"))
        .collect()
}

/// The commands of a recipe but that which installs the program.
fn commands(steps: &Value, field: Option<&str>) -> Vec<String> {
    let steps = steps.as_array().expect("a list").iter();
    let commands = steps.filter_map(|step| match field {
        Some(field) => step[field].as_str(),
        None => step.as_str(),
    });
    let commands: Vec<String> = commands.map(str::to_owned).collect();
    assert_eq!(commands[0], "pip install gatewright");
    commands[1..].to_vec()
}

/// A clone of a repository with a directory `site`, on a branch.
struct Repository {
    _folder: tempfile::TempDir,
    clone: PathBuf,
    base: String,
}

impl Repository {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (origin, clone) = (folder.path().join("origin"), folder.path().join("clone"));
        fs::create_dir_all(origin.join("site")).expect("a folder");
        for file in fs::read_dir(Path::new(SITE).join("site")).expect("the site") {
            let file = file.expect("a file");
            fs::copy(file.path(), origin.join("site").join(file.file_name())).expect("copied");
        }
        git(&origin, &["init", "-q", "-b", "main"]);
        git(&origin, &["add", "."]);
        git(&origin, &["commit", "-q", "-m", "site: begin"]);
        let path = clone.display().to_string();
        git(&origin, &["clone", "-q", ".", &path]);
        let base = git(&clone, &["rev-parse", "HEAD"]);
        Self {
            _folder: folder,
            clone,
            base: base.trim().to_owned(),
        }
    }

    /// Takes a file into the site.
    fn add(&self, file: &str) {
        let from = Path::new(SITE).join("changes").join(file);
        fs::copy(from, self.clone.join("site").join(file)).expect("copied");
    }

    /// Runs a script as the service does: each ends at the first command that fails.
    fn run(&self, script: &str, environment: &BTreeMap<&str, &str>) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_gatewright"));
        let path = std::env::var("PATH").expect("a path");
        let programs = program.parent().expect("a folder").display();
        Command::new("bash")
            .args(["-eo", "pipefail", "-c", script])
            .current_dir(&self.clone)
            .env("PATH", format!("{programs}:{path}"))
            .envs(environment)
            .output()
            .expect("bash")
    }
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let who = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
    let output = Command::new("git")
        .args(who)
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("git");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The exit status and the output of both recipes for a site with another file.
fn planned(file: &str) -> [(Option<i32>, String); 2] {
    let recipes = recipes();
    assert_eq!(recipes.len(), 2, "GitHub and GitLab");

    let repository = Repository::new();
    repository.add(file);
    let summary = repository.clone.join("summary.md");
    let summary_path = summary.display().to_string();
    let environment = BTreeMap::from([
        ("GITHUB_BASE_REF", "main"),
        ("GITHUB_STEP_SUMMARY", &*summary_path),
    ]);
    let script = commands(&recipes[0]["jobs"]["plan"]["steps"], Some("run")).join("\n");
    let github = repository.run(&script, &environment);
    let summary = fs::read_to_string(summary).unwrap_or_else(|error| panic!("{error}: {github:?}"));

    let repository = Repository::new();
    repository.add(file);
    let environment = BTreeMap::from([("CI_MERGE_REQUEST_DIFF_BASE_SHA", &*repository.base)]);
    let script = commands(&recipes[1]["plan"]["script"], None).join("\n");
    let gitlab = repository.run(&script, &environment);
    let log = String::from_utf8(gitlab.stdout).expect("UTF-8");
    [(github.status.code(), summary), (gitlab.status.code(), log)]
}

#[test]
fn a_change_that_loses_a_host_fails_and_says_which() {
    for (status, text) in planned("beta.yaml") {
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains("-  beta.example.org"), "{text}");
    }
}

#[test]
fn a_change_that_loses_nothing_passes() {
    for (status, text) in planned("new.yaml") {
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains("new.example.org"), "{text}");
    }
}
