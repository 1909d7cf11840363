//! Golden cases: `src/core/translate/testdata/*.in.yaml` → `.out.yaml`, with the Envoy resources,
//! and `src/core/tenancy/testdata`, with the derived objects. Each case is self-contained, and a
//! test of its own:
//!
//! ```text
//! make golden CASE=httproute-redirect           the cases whose name contains this
//! make golden CASE=httproute-redirect UPDATE=1  rewrites their outputs; read the diff
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use gatewright::offline;
use gatewright_core::channel::Channel;
use gatewright_core::external_name::{ExternalNames, NamePolicy};
use gatewright_core::inputs::Object;
use gatewright_core::limits::{Limits, NamespaceLimits, ObjectLimits};
use gatewright_core::model::ObjectName;
use gatewright_core::request_outcome::{BROKEN_FILTERS, MISDIRECTED, NO_HOST, NO_ROUTE};
use gatewright_core::tenancy;
use gatewright_core::translate::Settings;
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize as _;
use serde_json::{Map, Value};
use similar::TextDiff;

/// 2026-11-21T00:00:00Z: the certificates of the cases were made for it.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_219_200)
}

/// Returns whether a case is shown unabridged: the smallest one.
fn is_whole(input: &Path) -> bool {
    input.ends_with("httproute-on-plain-http.in.yaml")
}

/// Returns whether a case shows the access log, and what is there for it.
fn has_access_log(input: &Path) -> bool {
    is_whole(input) || input.to_string_lossy().contains("access-log")
}

/// Removes the access log, and the names of virtual hosts' owners and of our own routes, which are
/// there for it.
fn without_access_log(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("access_log");
            if fields.contains_key("domains")
                && let Some(Value::String(name)) = fields.get_mut("name")
            {
                name.truncate(name.find('|').unwrap_or(name.len()));
            }
            let is_route = fields.contains_key("direct_response");
            fields.retain(|name, value| {
                let is_cause = name == "name" && value.as_str().is_some_and(is_cause);
                !(is_route && is_cause)
            });
            fields.values_mut().for_each(without_access_log);
        }
        Value::Array(items) => items.iter_mut().for_each(without_access_log),
        _ => {}
    }
}

/// True for the names of routes that answer by themselves.
fn is_cause(name: &str) -> bool {
    [MISDIRECTED, NO_HOST, NO_ROUTE, BROKEN_FILTERS].contains(&name)
}

/// Abridges the output, so that a case stays readable: removes times, and those settings of
/// listeners, clusters and tables that no object affects.
fn abridge(value: &mut Value) {
    const CONSTANT: [&str; 29] = [
        "circuit_breakers",
        "common_http_protocol_options",
        "connect_timeout",
        "delayed_close_timeout",
        "http1_safe_max_connection_duration",
        "http_filters",
        "http_protocol_options",
        "ignore_health_on_host_removal",
        "internal_address_config",
        "lastTransitionTime",
        "listener_filters",
        "listener_filters_timeout",
        "max_connections_to_accept_per_socket_event",
        "max_request_headers_kb",
        "merge_slashes",
        "most_specific_header_mutations_wins",
        "normalize_path",
        "path_with_escaped_slashes_action",
        "per_connection_buffer_limit_bytes",
        "request_headers_timeout",
        "server_header_transformation",
        "stat_prefix",
        "supportedFeatures",
        "ignore_port_in_host_matching",
        "strip_trailing_host_dot",
        "transport_socket_connect_timeout",
        "upgrade_configs",
        "upstream_connection_options",
        "validate_clusters",
    ];
    match value {
        Value::Object(fields) => {
            if let Some(limits) = fields.get_mut("circuit_breakers") {
                // A policy's, among the limits that are an operator's.
                limits["thresholds"][0]
                    .as_object_mut()
                    .into_iter()
                    .for_each(|of| of.retain(|name, _| name == "retry_budget"));
            }
            without_common_replies(fields);
            let is_policy = |value: &Value| value["thresholds"][0]["retry_budget"].is_object();
            fields.retain(|name, value| !CONSTANT.contains(&name.as_str()) || is_policy(value));
            fields.values_mut().for_each(abridge);
        }
        Value::Array(items) => items.iter_mut().for_each(abridge),
        Value::String(text) if text.starts_with("-----BEGIN CERTIFICATE") => {
            // The last line of the certificate identifies it.
            *text = text.lines().rev().nth(1).unwrap_or_default().to_owned();
        }
        _ => {}
    }
}

/// Removes the change of a local reply that all connection managers have, of its status to 503.
fn without_common_replies(fields: &mut Map<String, Value>) {
    let Some(mappers) = fields
        .get_mut("local_reply_config")
        .and_then(|config| config["mappers"].as_array_mut())
    else {
        return;
    };
    mappers.retain(|mapper| mapper["status_code"] != 503);
    if mappers.is_empty() {
        fields.remove("local_reply_config");
    }
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

fn check(input: &Path) -> Result<(), String> {
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
    if !is_whole(input) {
        documents.iter_mut().for_each(abridge);
    }
    let texts: Vec<String> = documents
        .iter()
        .map(|document| serde_yaml_ng::to_string(document).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    let got = texts.join("---\n");
    let output = input.with_file_name(
        input
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .replace(".in.yaml", ".out.yaml"),
    );
    if std::env::var_os("UPDATE").is_some() {
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

/// Returns the input files of a folder, sorted.
fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut cases: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of cases")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().ends_with(".in.yaml"))
        .collect();
    cases.sort();
    assert!(!cases.is_empty(), "there are cases in {}", folder.display());
    cases
}

fn main() -> ExitCode {
    let trials = ["translate", "tenancy"].into_iter().flat_map(|stage| {
        cases(&format!("src/core/{stage}/testdata"))
            .into_iter()
            .map(move |case| {
                let file = case
                    .file_name()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default();
                let name = format!("{stage}::{}", file.trim_end_matches(".in.yaml"));
                Trial::test(name, move || check(&case).map_err(Failed::from))
            })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
