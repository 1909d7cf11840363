//! Golden cases: `src/core/translate/testdata/*.in.yaml` → `.out.yaml`, with the Envoy resources,
//! and `src/core/tenancy/testdata`, with the derived objects. Each case is self-contained, and a
//! test of its own. Outputs are [short], and parts that several cases have alike are in a file of
//! their own ([shared]); one case is shown whole.
//!
//! ```text
//! make golden CASE=httproute-redirect           the cases whose name contains this
//! make golden CASE=httproute-redirect UPDATE=1  rewrites their outputs; read the diff
//! ```

mod abridged;
mod shared;
mod short;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gatewright::offline;
use gatewright_core::channel::Channel;
use gatewright_core::external_name::{ExternalNames, NamePolicy};
use gatewright_core::inputs::Object;
use gatewright_core::limits::{Limits, NamespaceLimits, ObjectLimits};
use gatewright_core::model::ObjectName;
use gatewright_core::tenancy;
use gatewright_core::translate::Settings;
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize as _;
use serde_json::Value;
use similar::TextDiff;

use abridged::{abridge, has_access_log, is_whole, without_access_log};
use shared::Shared;

/// 2026-11-21T00:00:00Z: the certificates of the cases were made for it.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_219_200)
}

/// Returns the settings of tenancy that a case's first line names.
fn tenancy(text: &str) -> tenancy::Settings {
    let told = text.lines().next().unwrap_or_default();
    let solver = |answers| tenancy::SolverService {
        namespace: "gatewright-system".into(),
        name: "gatewright-challenges".into(),
        port: 80,
        answers,
    };
    let solver = match told {
        _ if told.ends_with(", challenges through routes") => Some(solver(true)),
        _ if told.ends_with(", challenges nowhere") => Some(solver(false)),
        _ => None,
    };
    let certificates = match told {
        _ if told.starts_with("# certificates: own") => tenancy::Source::Acme,
        _ if told.starts_with("# certificates: internal-ca") => tenancy::Source::InternalCa,
        _ => tenancy::Source::CertManager,
    };
    tenancy::Settings {
        certificates,
        solver,
        ..tenancy::Settings::default()
    }
}

/// The documents of a case: statuses, then what Envoy gets or what is derived.
fn documents(input: &Path) -> Result<Vec<Value>, String> {
    let text = fs::read_to_string(input).map_err(|error| error.to_string())?;
    let objects = serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| {
            let value = Value::deserialize(document).map_err(|error| error.to_string())?;
            Object::parse(value).map_err(|error| error.to_string())
        })
        .collect::<Result<Vec<Object>, String>>()?;
    let envoys = Some(ObjectName::new("gatewright-system", "gatewright-envoy"));
    let settings = Settings {
        envoys,
        // One case has four mirrors, and others have active health checks.
        limits: Limits {
            namespace: NamespaceLimits {
                health_checks: 64,
                ..Limits::default().namespace
            },
            object: ObjectLimits {
                mirrors: 4,
                ..Limits::default().object
            },
            ..Limits::default()
        },
        channel: if text.starts_with("# channel: experimental") {
            Channel::Experimental
        } else {
            Channel::Standard
        },
        external_names: if text
            .lines()
            .next()
            .is_some_and(|told| told.contains("external names: enabled"))
        {
            ExternalNames::On(NamePolicy::default())
        } else {
            ExternalNames::Off
        },
        ..Settings::new(
            "gatewright.io/gateway-controller",
            vec!["127.0.0.1".parse().expect("an address")],
        )
    };
    let made = offline::translate(objects, settings, tenancy(&text), now())
        .map_err(|error| error.to_string())?;
    let mut documents = made.statuses;
    documents.extend(made.wants);
    documents.extend(made.services);
    documents.extend(
        if input
            .parent()
            .is_some_and(|folder| folder.ends_with("src/core/tenancy/testdata"))
        {
            made.desired
        } else {
            made.resources
        },
    );
    if !has_access_log(input) {
        documents.iter_mut().for_each(without_access_log);
    }
    if is_whole(input) {
        return Ok(documents);
    }
    documents.iter_mut().for_each(abridge);
    Ok(documents)
}

/// Compares a case with its output, or writes that.
fn check(input: &Path, documents: Vec<Value>, shared: &Shared) -> Result<(), String> {
    let documents = if is_whole(input) {
        documents
    } else {
        shared.fold(documents.into_iter().map(short::document).collect())
    };
    let texts: Vec<String> = documents
        .iter()
        .map(|document| serde_yaml_ng::to_string(document).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    let got = texts.join("---\n");
    let output = PathBuf::from(input.to_string_lossy().replace(".in.yaml", ".out.yaml"));
    if is_update() {
        return fs::write(&output, got).map_err(|error| error.to_string());
    }
    let want = fs::read_to_string(&output)
        .map_err(|error| format!("{}: {error}; run with UPDATE=1", output.display()))?;
    if want == got {
        return Ok(());
    }
    let diff = TextDiff::from_lines(&want, &got);
    let diff = diff
        .unified_diff()
        .context_radius(6)
        .header("expected", "translated")
        .to_string();
    Err(format!("{}\n{diff}", output.display()))
}

fn is_update() -> bool {
    std::env::var_os("UPDATE").is_some()
}

/// Returns the input files of a folder, sorted.
fn cases(folder: &Path) -> Vec<PathBuf> {
    let mut cases: Vec<_> = fs::read_dir(folder)
        .expect("the folder of cases")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().ends_with(".in.yaml"))
        .collect();
    cases.sort();
    assert!(!cases.is_empty(), "there are cases in {}", folder.display());
    cases
}

/// The trials of a folder: one for each case, and two for all of them. What they share is written
/// when all cases are.
fn trials(stage: &str, is_all: bool) -> Result<Vec<Trial>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/core/{stage}/testdata"));
    let (mut cases, mut failed) = (Vec::new(), Vec::new());
    for case in self::cases(&folder) {
        match documents(&case) {
            Ok(documents) => cases.push((case, documents)),
            Err(error) => failed.push((case, error)),
        }
    }
    let long = cases.iter().filter(|(case, _)| !is_whole(case));
    let long: Vec<&[Value]> = long.map(|(_, documents)| &**documents).collect();
    let short: Vec<Vec<Value>> = long
        .iter()
        .map(|documents| documents.iter().cloned().map(short::document).collect())
        .collect();
    let lost = short::lost(long.into_iter().flatten().zip(short.iter().flatten()));
    let before = Shared::read(&folder)?;
    let now = Shared::of(&short, &before);
    let is_same = now == before;
    let shared = Arc::new(if is_update() && is_all { now } else { before });
    if is_update() && is_all {
        shared.write(&folder)?;
    }
    let mut trials = vec![
        Trial::test(format!("{stage}::short"), move || {
            told(lost.is_none(), &lost.unwrap_or_default())
        }),
        Trial::test(format!("{stage}::shared"), move || {
            let text = "cases share other parts than the file has: run all of them with UPDATE=1";
            told(is_same || is_update(), text)
        }),
    ];
    trials.extend(
        failed
            .into_iter()
            .map(|(case, error)| Trial::test(name(stage, &case), move || told(false, &error))),
    );
    trials.extend(cases.into_iter().map(|(case, documents)| {
        let shared = shared.clone();
        Trial::test(name(stage, &case), move || {
            check(&case, documents, &shared).map_err(Failed::from)
        })
    }));
    Ok(trials)
}

fn told(is_right: bool, text: &str) -> Result<(), Failed> {
    if is_right { Ok(()) } else { Err(text.into()) }
}

fn name(stage: &str, case: &Path) -> String {
    let file = case
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    format!("{stage}::{}", file.trim_end_matches(".in.yaml"))
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let is_all = arguments.filter.is_none();
    let trials = ["translate", "tenancy"]
        .into_iter()
        .flat_map(|stage| trials(stage, is_all).unwrap_or_else(|error| panic!("{stage}: {error}")));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
