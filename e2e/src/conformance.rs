//! Runs the official conformance suite of the Gateway API, and parses its output.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The image of the suite's backends.
pub const ECHO: &str = "registry.k8s.io/gateway-api/conformance/echo-basic";
/// The profiles of the suite that are reported.
pub const PROFILES: [&str; 5] = [
    "GATEWAY-HTTP",
    "GATEWAY-TLS",
    "GATEWAY-GRPC",
    "GATEWAY-TCP",
    "GATEWAY-UDP",
];
/// The tests of the suite that are of features that nobody claims, one a line.
const SKIPPED: &str = include_str!("../conformance/skipped.txt");
/// The single Go test of the program, whose subtests are the suite's tests.
const ROOT: &str = "TestConformance/";

/// The program that replaces the image of the suite's backends.
///
/// # Errors
/// When it is not installed.
pub fn echo() -> Result<PathBuf> {
    installed("conformance-echo")
}

fn installed(name: &str) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../.tools")
        .join(name);
    ensure!(
        path.exists(),
        "no {name} at {}; run: e2e/tools install conformance",
        path.display()
    );
    Ok(path)
}

/// Returns the features of gateways that the suite knows, each with the number of its tests that
/// need it.
///
/// # Errors
/// When the suite is not installed, or lists no features.
pub fn features() -> Result<BTreeMap<String, usize>> {
    let told = Command::new(installed("conformance")?)
        .arg("-test.run=^TestFeatures$")
        .output()?;
    let features = parse_features(&String::from_utf8_lossy(&told.stdout));
    ensure!(
        !features.is_empty(),
        "the suite tells of no features: {}",
        String::from_utf8_lossy(&told.stderr)
    );
    Ok(features)
}

fn parse_features(text: &str) -> BTreeMap<String, usize> {
    text.lines()
        .filter_map(|line| {
            let (name, tests) = line.strip_prefix("feature ")?.split_once(' ')?;
            Some((name.to_owned(), tests.parse().ok()?))
        })
        .collect()
}

/// Returns mistakes in the claimed features of a class. Each feature of the suite must be claimed,
/// or have no tests and be listed in `unclaimed` with the reason, one per line.
pub fn wrong_claims(
    features: &BTreeMap<String, usize>,
    claimed: &BTreeSet<String>,
    unclaimed: &str,
) -> Vec<String> {
    let entries = unclaimed
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries: BTreeSet<&str> = entries
        .map(|line| line.split(':').next().unwrap_or(line))
        .collect();
    let mut wrong = Vec::new();
    for (feature, tests) in features {
        match (claimed.contains(feature), entries.contains(feature.as_str())) {
            (true, false) => {}
            (false, true) if *tests == 0 => {}
            (false, true) => wrong.push(format!(
                "{feature} is listed in e2e/conformance/unclaimed.txt, but {tests} tests need it: see whether they pass, and \
                 claim it in src/core/translate/rule/features.rs"
            )),
            (true, true) => wrong.push(format!("{feature} is claimed, and listed in e2e/conformance/unclaimed.txt")),
            (false, false) => wrong.push(format!(
                "{feature} is new to us: claim it in src/core/translate/rule/features.rs, or list it with a reason in \
                 e2e/conformance/unclaimed.txt"
            )),
        }
    }
    let known = |feature: &str| features.contains_key(feature);
    wrong.extend(
        claimed.iter().map(String::as_str).chain(entries.iter().copied()).filter(|of| !known(of)).map(|feature| {
            format!("{feature} is no feature of the suite: take it out of where it is claimed or listed")
        }),
    );
    wrong
}

/// The result of a test of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran without failures.
    Passed,
    /// It failed.
    Failed,
    /// Its feature is not claimed.
    Skipped,
}

/// The arguments of a run of the suite.
pub struct Run<'a> {
    /// The kubeconfig of a cluster administrator.
    pub kubeconfig: &'a Path,
    /// The GatewayClass.
    pub class: &'a str,
    /// An address that a Gateway can request and gets.
    pub usable: Ipv4Addr,
    /// The path of the report.
    pub report: &'a Path,
    /// Runs this test of the suite only.
    pub test: Option<String>,
}

/// The output of the suite.
#[derive(Debug)]
pub struct Said {
    /// The result of each test, by name.
    pub outcomes: BTreeMap<String, Outcome>,
    /// Its whole log.
    pub log: String,
}

impl Run<'_> {
    /// Runs the suite, and reports the result of each test as soon as it is known. The suite tests
    /// the features that the GatewayClass claims, and no others.
    ///
    /// # Errors
    /// When it cannot be started, or does not end by itself.
    pub fn run(&self, mut tell: impl FnMut(&str, Outcome)) -> Result<Said> {
        let version = env!("CARGO_PKG_VERSION");
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(installed("conformance")?);
        command.env("KUBECONFIG", self.kubeconfig).args([
            "-test.v",
            "-test.parallel=8",
            "-test.timeout=40m",
        ]);
        command.arg("-test.run=^TestConformance$");
        command.args(["-gateway-class", self.class]);
        command.arg(format!("-usable-address={}", self.usable));
        // In a network for documentation (RFC 5737), which no load balancer has.
        command.arg("-unusable-address=203.0.113.250");
        // The cluster is discarded, so that no cleanup is needed.
        command.arg("-cleanup-base-resources=false");
        match &self.test {
            Some(test) => command.arg(format!("-run-test={test}")),
            None => command
                .arg(format!("-conformance-profiles={}", PROFILES.join(",")))
                .arg(format!("-report-output={}", self.report.display()))
                .args([
                    "-organization=gatewright",
                    "-project=gatewright",
                    "-url=https://gatewright.io",
                ])
                .args([
                    &format!("-version=v{version}"),
                    "-contact=https://gatewright.io",
                ]),
        };
        let mut suite = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("starting the conformance suite")?;
        let mut said = Said {
            outcomes: BTreeMap::new(),
            log: String::new(),
        };
        for line in BufReader::new(suite.stdout.take().context("its output")?).lines() {
            let line = line.context("reading what the suite says")?;
            if let Some((name, outcome)) = ended(&line) {
                said.outcomes.insert(name.to_owned(), outcome);
                tell(line.trim(), outcome);
            }
            said.log.push_str(&line);
            said.log.push('\n');
        }
        suite.wait()?;
        ensure!(
            !said.outcomes.is_empty(),
            "the suite ran no test:\n{}",
            said.log
        );
        Ok(said)
    }
}

impl Said {
    /// # Errors
    /// When a test failed: what the log says of each.
    pub fn none_failed(&self) -> Result<()> {
        let failed = self.names(Outcome::Failed);
        let about: Vec<String> = failed.iter().map(|test| self.about(test)).collect();
        ensure!(
            failed.is_empty(),
            "{}\n{} tests of the suite failed: {}",
            about.join("\n"),
            failed.len(),
            failed.join(", ")
        );
        Ok(())
    }

    /// # Errors
    /// When others were skipped than those of features that nobody claims.
    pub fn skipped_as_listed(&self) -> Result<()> {
        let skipped: BTreeSet<&str> = self.names(Outcome::Skipped).into_iter().collect();
        let expected = SKIPPED
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let unexpected: Vec<_> = skipped.symmetric_difference(&expected).collect();
        ensure!(
            unexpected.is_empty(),
            "skipped, or listed in e2e/conformance/skipped.txt, and not both: {unexpected:?}"
        );
        Ok(())
    }

    /// Returns the tests with this result.
    pub fn names(&self, wanted: Outcome) -> Vec<&str> {
        self.outcomes
            .iter()
            .filter(|(_, outcome)| **outcome == wanted)
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Returns the log of a test.
    pub fn about(&self, test: &str) -> String {
        let mut mine = false;
        let mut text = String::new();
        for line in self.log.lines() {
            let told = line.trim_start();
            for mark in ["=== RUN", "=== CONT", "=== NAME", "=== PAUSE", "--- "] {
                if told.starts_with(mark) {
                    let rest = told.split(ROOT).nth(1).unwrap_or_default();
                    mine = rest.split([' ', '/']).next() == Some(test);
                }
            }
            if mine {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }
}

/// Returns the test, and its result, that a line reports; None for subtests of it.
fn ended(line: &str) -> Option<(&str, Outcome)> {
    let rest = line.trim_start().strip_prefix("--- ")?;
    let (word, rest) = rest.split_once(": ")?;
    let name = rest.split(' ').next()?.strip_prefix(ROOT)?;
    let outcome = match word {
        "PASS" => Outcome::Passed,
        "FAIL" => Outcome::Failed,
        "SKIP" => Outcome::Skipped,
        _ => return None,
    };
    (!name.contains('/')).then_some((name, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_claimed_or_listed_with_a_reason_while_it_has_no_tests() {
        let features =
            parse_features("feature A 3\nfeature B 0\nfeature C 1\nfeature D 2\n=== RUN\nPASS");
        let wrong = |claimed: &[&str], unclaimed: &str| {
            let claimed = claimed.iter().map(|name| (*name).to_owned()).collect();
            wrong_claims(&features, &claimed, unclaimed)
        };
        assert!(wrong(&["A", "C", "D"], "# Why\nB: without tests").is_empty());
        for (claimed, unclaimed, expected) in [
            (&["A", "C"][..], "B: why", "D is new to us"),
            (
                &["A", "C"],
                "B: why\nD: why",
                "D is listed in e2e/conformance/unclaimed.txt, but 2 tests",
            ),
            (&["A", "B", "C", "D"], "B: why", "B is claimed, and listed"),
            (
                &["A", "C", "D", "X"],
                "B: why",
                "X is no feature of the suite",
            ),
            (
                &["A", "C", "D"],
                "B: why\nY: why",
                "Y is no feature of the suite",
            ),
        ] {
            let told = wrong(claimed, unclaimed);
            assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
        }
    }

    #[test]
    fn ends_of_tests_are_told_from_those_of_their_parts() {
        assert_eq!(
            ended("    --- PASS: TestConformance/A (0.1s)"),
            Some(("A", Outcome::Passed))
        );
        assert_eq!(
            ended("    --- SKIP: TestConformance/A (0.1s)"),
            Some(("A", Outcome::Skipped))
        );
        assert_eq!(ended("        --- FAIL: TestConformance/A/b (0.1s)"), None);
        assert_eq!(ended("--- FAIL: TestConformance (0.1s)"), None);
        assert_eq!(ended("=== RUN TestConformance/A"), None);
    }
}
