//! The reference in `docs/reference/` is generated from the code: `make reference` writes it, the
//! test compares.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory};
use gatewright::cli::Cli;
use gatewright::configuration;
use gatewright::convert::Row;
use gatewright::convert::envoy_gateway::FIELDS;
use gatewright::convert::ingress_nginx::{ANNOTATIONS, KEYS};
use gatewright_control::metrics::{Program, text};
use gatewright_core::model::{ConditionType, Reason};
use gatewright_core::request_outcome::{OUTCOMES, RequestOutcome};
use gatewright_core::translate::{CertificateEnds, TLS_OPTIONS, TLS_VALUES};
use prometheus_client::collector::Collector;
use serde_yaml_ng::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Compares a page, or writes it with UPDATE=1.
fn page(name: &str, body: &str) {
    let path = root().join("docs/reference").join(name);
    let body = format!(
        "{}\n\n<!-- Made from the code by `make reference`. -->\n",
        body.trim_end()
    );
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        fs::write(&path, body).expect("the page can be written");
        return;
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == body,
        "docs/reference/{name} is out of date: run `make reference`"
    );
}

/// Escapes a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('\n', " ")
        .replace('<', "&lt;")
}

#[test]
fn flags() {
    let mut body =
        "# Flags\n\nEvery command of `gatewright`. `gatewright COMMAND --help` says the same.\n"
            .to_owned();
    let mut root = Cli::command();
    root.build();
    command(&root, &mut body);
    page("flags.md", &body);
}

fn command(of: &Command, body: &mut String) {
    for sub in of
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
    {
        let name = sub.get_bin_name().unwrap_or(sub.get_name());
        let about = sub
            .get_long_about()
            .or(sub.get_about())
            .map(ToString::to_string)
            .unwrap_or_default();
        writeln!(body, "\n## {name}\n\n{}\n", about.trim()).expect("a String takes every write");
        let args: Vec<&Arg> = sub
            .get_arguments()
            .filter(|arg| {
                !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
            })
            .collect();
        if !args.is_empty() {
            body.push_str("| Argument | Default | Meaning |\n| --- | --- | --- |\n");
        }
        for arg in args {
            let values = arg
                .get_value_names()
                .map(|names| names.iter().map(|name| name.as_str()).collect::<Vec<_>>());
            let values = values
                .filter(|_| arg.get_action().takes_values())
                .unwrap_or_default()
                .join(" ");
            let name = match arg.get_long() {
                Some(long) if values.is_empty() => format!("`--{long}`"),
                Some(long) => format!("`--{long} {values}`"),
                None => format!("`{values}`"),
            };
            let defaults: Vec<_> = arg
                .get_default_values()
                .iter()
                .map(|value| value.to_string_lossy())
                .collect();
            let default = if defaults.is_empty() || values.is_empty() {
                String::new()
            } else {
                format!("`{}`", defaults.join(","))
            };
            let help = arg
                .get_long_help()
                .or(arg.get_help())
                .map(ToString::to_string)
                .unwrap_or_default();
            writeln!(
                body,
                "| {} | {} | {} |",
                cell(&name),
                cell(&default),
                cell(help.trim())
            )
            .expect("it takes it");
        }
        command(sub, body);
    }
}

#[test]
fn configuration_fields() {
    let mut body = "# Configuration\n\nEvery field of the configuration (`apiVersion: config.gatewright.io/v1alpha1`, `kind: Configuration`). \
        `gatewright config explain FIELD` says the same; [configuration.md](../configuration.md) says how to use it.\n\n\
        `[]` is an item of a list, `NAME` the name of an entry.\n\n\
        | Field | Type | Default | Meaning |\n| --- | --- | --- | --- |\n"
        .to_owned();
    for field in configuration::reference() {
        let default = field.default.map(|value| format!("`{value}`"));
        writeln!(
            body,
            "| `{}` | {} | {} | {} |",
            field.path,
            cell(&field.kind),
            cell(&default.unwrap_or_default()),
            cell(&field.description)
        )
        .expect("a String takes every write");
    }
    page("configuration.md", &body);
}

#[test]
fn conditions() {
    let kinds: Vec<&str> = ConditionType::ALL
        .iter()
        .map(|kind| kind.as_str())
        .collect();
    let mut body = format!(
        "# Conditions\n\nThe types of conditions are {}. `kubectl get -o yaml`, `gatewright status` and `gatewright explain` show \
         them; the message of a condition names the object, the field and the value. Reasons, which Events have as well \
         (beside those of [kubernetes.md](../kubernetes.md#events)):\n\n\
         | Reason | Meaning | What to do |\n| --- | --- | --- |\n",
        kinds.join(", ")
    );
    for reason in Reason::ALL {
        writeln!(
            body,
            "| <a id=\"{}\"></a>`{}` | {} | {} |",
            reason.as_str().to_lowercase(),
            reason.as_str(),
            reason.meaning(),
            reason.remedy()
        )
        .expect("it takes it");
    }
    page("conditions.md", &body);
}

#[test]
fn reasons() {
    let mut body = "# Reasons of failed requests\n\nWhy a request was not answered by a backend, as `gatewright logs` and `gatewright \
                    explain` say it.\n\n| Reason | Status | Meaning |\n| --- | --- | --- |\n"
        .to_owned();
    for outcome in OUTCOMES {
        let RequestOutcome {
            reason,
            statuses,
            words,
            ..
        } = outcome;
        let statuses = if statuses.is_empty() { "any" } else { statuses };
        writeln!(body, "| `{reason}` | {statuses} | {words} |").expect("it takes it");
    }
    page("reasons.md", &body);
}

#[test]
fn tls_options() {
    let mut body = "# TLS options\n\nKeys of `tls.options` of a listener; lists are separated by commas. Keys of other domains are \
                    ignored. A listener with an unknown key or value of ours, or with the same item twice in a list, is `Accepted=False` with \
                    reason `UnsupportedValue`, whose message says what is expected, and is not served.\n\n\
                    | Key | Values | Meaning |\n| --- | --- | --- |\n"
        .to_owned();
    for (name, values, meaning) in TLS_OPTIONS {
        let known = TLS_VALUES
            .iter()
            .find(|(of, _)| *of == name)
            .map(|(_, values)| format!("`{}`", values.join("`, `")));
        let values = known.unwrap_or_else(|| values.to_owned());
        writeln!(body, "| `gatewright.io/{name}` | {values} | {meaning} |").expect("it takes it");
    }
    page("tls-options.md", &body);
}

#[test]
fn metrics() {
    let certificates = Box::new(gatewright_control::certificates::CertificateMetrics::default());
    let manifests = Box::new(gatewright::manifest::ManifestMetrics::new(
        &[],
        std::time::SystemTime::UNIX_EPOCH,
    ));
    let replica = gatewright_kubernetes::metrics::described();
    let answers = Box::new(gatewright_control::envoy_certificates::Answers::default());
    let last_good = gatewright::controller::described();
    let propagation = Box::new(gatewright_control::propagation::Propagation::default());
    let others: Vec<Box<dyn Collector>> = vec![
        certificates,
        manifests,
        replica,
        gatewright_kubernetes::reports::described(),
        answers,
        last_good,
        propagation,
    ];
    let next = Some(std::time::SystemTime::UNIX_EPOCH);
    let ends = CertificateEnds {
        next,
        ..CertificateEnds::default()
    };
    let program = Program {
        ends,
        ..Default::default()
    };
    let shown = text(program, &xds::Cache::new(), others);
    let mut rows: Vec<(String, String, String)> = Vec::new();
    for line in shown.lines() {
        if let Some((name, help)) = line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '))
        {
            rows.push((
                name.to_owned(),
                String::new(),
                help.trim_end_matches('.').to_owned(),
            ));
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            match rows.iter_mut().find(|row| row.0 == name) {
                Some(row) => kind.clone_into(&mut row.1),
                None => rows.push((name.to_owned(), kind.to_owned(), String::new())),
            }
        }
    }
    assert!(rows.len() > 20, "they are all there: {rows:?}");
    rows.sort();
    let mut body =
        "# Metrics\n\nGiven at `/metrics` in the format of Prometheus. No name of an object, host or node is a label; the \
                    names of 20 namespaces are, for their quotas. Counters end in `_total`.\n\n| Name | Type | Meaning |\n| --- | --- | --- |\n"
            .to_owned();
    for (name, kind, help) in rows {
        writeln!(body, "| `{name}` | {kind} | {} |", cell(&help)).expect("it takes it");
    }
    page("metrics.md", &body);
}

#[test]
fn definitions() {
    let mut body =
        "# Custom resources\n\nThe fields of `spec`, from the definitions in `deploy/crds`.\n"
            .to_owned();
    let mut files: Vec<PathBuf> = fs::read_dir(root().join("deploy/crds"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.retain(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().contains('_'))
    });
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        definition(&path, &mut body);
    }
    page("definitions.md", &body);
}

fn definition(path: &Path, body: &mut String) {
    let text = fs::read_to_string(path).expect("a definition");
    let crd: Value = serde_yaml_ng::from_str(&text).expect("YAML");
    let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for version in crd["spec"]["versions"].as_sequence().expect("versions") {
        let kind = of(&crd["spec"]["names"]["kind"]);
        let group = of(&crd["spec"]["group"]);
        let schema = &version["schema"]["openAPIV3Schema"];
        let heading = format!(
            "\n## {kind} ({group}/{})\n\n{}\n",
            of(&version["name"]),
            of(&schema["description"])
        );
        body.push_str(heading.trim_end());
        body.push_str("\n\n| Field | Type | Meaning |\n| --- | --- | --- |\n");
        fields("spec", &schema["properties"]["spec"], body);
    }
}

fn fields(at: &str, schema: &Value, body: &mut String) {
    let Some(properties) = schema["properties"].as_mapping() else {
        return;
    };
    for (name, field) in properties {
        let name = format!("{at}.{}", name.as_str().unwrap_or_default());
        let (item, list) = if field["items"].is_null() {
            (field, "")
        } else {
            (&field["items"], "[]")
        };
        let kind = item["type"].as_str().unwrap_or("any");
        let words = |key: &str| {
            item[key]
                .as_sequence()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
        };
        let kind = match words("enum").as_slice() {
            [] => format!("{kind}{list}"),
            some => some.join(", "),
        };
        let default = field["default"]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(|text| format!(" Default: `{text}`."))
            .unwrap_or_default();
        let meaning = format!(
            "{}{default}",
            field["description"].as_str().unwrap_or_default()
        );
        writeln!(
            body,
            "| `{name}{list}` | {} | {} |",
            cell(&kind),
            cell(&meaning)
        )
        .expect("it takes it");
        fields(&format!("{name}{list}"), item, body);
    }
}

#[test]
fn ingress_nginx() {
    let names = include_str!("../src/convert/ingress_nginx/names.txt");
    let version = names.split([' ', ',']).nth(2).expect("a version");
    let mut body = format!(
        "# Settings of ingress-nginx\n\nWhat [`gatewright convert`](../migrate.md#from-ingress-nginx) makes of each annotation, and of \
         each key of the ConfigMap, of ingress-nginx {version}.\n"
    );
    for (title, head, rows) in [
        ("Annotations", "`nginx.ingress.kubernetes.io/`", ANNOTATIONS),
        ("Keys of the ConfigMap", "Key", KEYS),
    ] {
        writeln!(
            body,
            "\n## {title}\n\n| {head} | | In Gatewright |\n| --- | --- | --- |"
        )
        .expect("a String takes every write");
        rows.iter().for_each(|row| line(row, &mut body));
    }
    page("ingress-nginx.md", &body);
}

/// Writes the line of a row of a source.
fn line(row: &Row, body: &mut String) {
    let (verdict, note) = (row.verdict.as_str(), cell(row.note));
    writeln!(body, "| `{}` | {verdict} | {note} |", row.name).expect("a String takes every write");
}

#[test]
fn envoy_gateway() {
    let names = include_str!("../src/convert/envoy_gateway/names.txt");
    let version = names.split([' ', ',']).nth(3).expect("a version");
    let mut body = format!(
        "# Fields of Envoy Gateway\n\nWhat [`gatewright convert`](../migrate.md#from-envoy-gateway) makes of each field of Envoy Gateway \
         {version}, below `spec`. A row is a field with all that is below it, except what has a row of its own. Fields that are not \
         here, of a later version, close the targets of their policy.\n"
    );
    for (kind, lists) in FIELDS {
        writeln!(
            body,
            "\n## {kind}\n\n| Field | | In Gatewright |\n| --- | --- | --- |"
        )
        .expect("a String takes every write");
        for row in lists.iter().copied().flatten() {
            line(row, &mut body);
        }
    }
    page("envoy-gateway.md", &body);
}
