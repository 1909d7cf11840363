//! Conversions of other programs' objects: `src/convert/SOURCE/testdata/*.in.yaml` → `.out.yaml`,
//! with the exit status, what is said of each setting, and the objects, which `lint` judges beside
//! the Services of the input. `UPDATE=1` rewrites the outputs; read the diff.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gatewright::convert::envoy_gateway::FIELDS;
use gatewright::convert::ingress_nginx::{ANNOTATIONS, KEYS};
use gatewright::convert::{Document, Options, Source, Verdict, convert};
use serde_json::json;

/// The cases in which `lint` finds something, and the reasons: what a person has to add is missing.
const FINDINGS: &[(&str, &str, &[&str])] = &[
    // The Secret of bcrypt hashes is not written; names outside of the cluster have to be enabled.
    ("envoy-gateway", "access", &["Invalid", "UnsupportedValue"]),
    ("envoy-gateway", "backends", &["UnsupportedValue"]),
    ("envoy-gateway", "login", &["UnsupportedValue"]),
    // A route at all listeners, of HTTP and of HTTPS.
    ("envoy-gateway", "clients", &["ServedInClear"]),
    // Filters without a counterpart stay, so that their rules are answered 500.
    ("envoy-gateway", "filters", &["UnsupportedValue"]),
    // A Service for each Gateway, which is there in a cluster only.
    ("envoy-gateway", "proxy", &["InvalidParameters", "Pending"]),
    // A Gateway of another controller.
    ("envoy-gateway", "quick-start", &["ClassNotFound"]),
    // The Secret of bcrypt hashes is not written.
    ("ingress-nginx", "access", &["Invalid"]),
    // A host without a certificate, beside the one for all names; and one of two namespaces.
    (
        "ingress-nginx",
        "namespaces",
        &["ServedInClear", "SharedHostname"],
    ),
    // Paths that are not redirected, at a host with a certificate.
    ("ingress-nginx", "shared-hosts", &["ServedInClear"]),
];

/// The sources, as the command names them.
const SOURCES: [&str; 2] = ["envoy-gateway", "ingress-nginx"];

fn gatewright(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes())
        .expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// The folder of a source.
fn folder(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/convert")
        .join(source.replace('-', "_"))
}

/// The cases in order: source, name and file.
fn cases() -> Vec<(&'static str, String, PathBuf)> {
    let mut cases = Vec::new();
    for source in SOURCES {
        let entries = fs::read_dir(folder(source).join("testdata")).expect("a folder of cases");
        for entry in entries {
            let file = entry.expect("an entry").path();
            let name = file.file_name().and_then(|name| name.to_str());
            if let Some(name) = name.and_then(|name| name.strip_suffix(".in.yaml")) {
                cases.push((source, name.to_owned(), file));
            }
        }
    }
    cases.sort();
    cases
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn converted(source: &str, input: &str) -> Output {
    gatewright(&["convert", "--from", source, "-"], input)
}

#[test]
fn cases_become_their_outputs() {
    let mut wrong = Vec::new();
    for (source, case, file) in cases() {
        let input = fs::read_to_string(&file).expect("a case");
        let output = converted(source, &input);
        let again = converted(source, &input);
        assert_eq!(output.stdout, again.stdout, "{case}: twice the same bytes");
        let mut written = format!("# exit status {}\n", output.status.code().unwrap_or(-1));
        for line in text(&output.stderr).lines() {
            // The line of the file says nothing of the conversion.
            let rest = line.split_once(": ").map_or(line, |(_, rest)| rest);
            writeln!(written, "# {rest}").expect("a String takes every write");
        }
        written.push_str("---\n");
        written.push_str(&text(&output.stdout));
        let golden = file.with_file_name(format!("{case}.out.yaml"));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&golden, written).expect("the output can be written");
        } else if fs::read_to_string(&golden).unwrap_or_default() != written {
            wrong.push(format!("{source} {case}\n{written}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "other outputs (UPDATE=1 writes them): {}",
        wrong.join("\n")
    );
}

/// What a converted set of objects is judged with: the class, and what stays of the source.
fn beside(input: &str, output: &str) -> String {
    let mut text = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: gatewright}\n\
                    spec: {controllerName: gatewright.io/gateway-controller}\n"
        .to_owned();
    for document in input.split("\n---\n") {
        let kinds = ["Service", "ConfigMap", "Namespace"];
        if kinds
            .iter()
            .any(|kind| document.contains(&format!("\nkind: {kind}\n")))
        {
            text.push_str("---\n");
            text.push_str(document);
            text.push('\n');
        }
    }
    let made = rcgen::generate_simple_self_signed(vec![
        "*.example.org".to_owned(),
        "example.org".to_owned(),
    ])
    .expect("a certificate");
    let mut secrets = BTreeSet::new();
    for document in output.split("---\n") {
        let value: serde_yaml_ng::Value = serde_yaml_ng::from_str(document).expect("YAML");
        for listener in value["spec"]["listeners"]
            .as_sequence()
            .into_iter()
            .flatten()
        {
            for reference in listener["tls"]["certificateRefs"]
                .as_sequence()
                .into_iter()
                .flatten()
            {
                let namespace = reference["namespace"]
                    .as_str()
                    .or(value["metadata"]["namespace"].as_str())
                    .expect("a namespace");
                let name = reference["name"].as_str().expect("a name");
                secrets.insert((namespace.to_owned(), name.to_owned()));
            }
        }
    }
    for (namespace, name) in secrets {
        let indent = |pem: String| {
            pem.lines()
                .map(|line| format!("    {line}\n"))
                .collect::<String>()
        };
        write!(
            text,
            "---\napiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
             stringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
            indent(made.cert.pem()),
            indent(made.signing_key.serialize_pem())
        )
        .expect("a String takes every write");
    }
    text
}

#[test]
fn lint_finds_nothing_in_what_is_written() {
    let mut wrong = Vec::new();
    for (source, case, file) in cases() {
        let input = fs::read_to_string(file).expect("a case");
        let output = text(&converted(source, &input).stdout);
        let manifests = format!("{}---\n{output}", beside(&input, &output));
        let found = gatewright(&["lint", "-", "-o", "json"], &manifests);
        let rows: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap_or_default();
        let expected = FINDINGS
            .iter()
            .find(|(of, name, _)| *of == source && *name == case)
            .map_or(&[][..], |(_, _, reasons)| *reasons);
        let others: Vec<String> = rows
            .as_array()
            .into_iter()
            .flatten()
            .filter(|row| !expected.iter().any(|reason| row["reason"] == **reason))
            .map(ToString::to_string)
            .collect();
        let is_judged = found.status.code().is_some_and(|code| code < 2);
        if !others.is_empty() || !is_judged {
            wrong.push(format!(
                "{source} {case}: {}\n{}",
                others.join("\n"),
                text(&found.stderr)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_exit_status_says_whether_something_is_lost() {
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: a\n  annotations: {ANNOTATION}\n\
                   spec: {ingressClassName: nginx, rules: [{host: a.org, http: {paths: [{path: /, pathType: Prefix, \
                   backend: {service: {name: a, port: {number: 80}}}}]}}]}\n";
    let status = |annotation: &str| {
        let input = ingress.replace("ANNOTATION", annotation);
        converted("ingress-nginx", &input).status.code()
    };
    let of = "nginx.ingress.kubernetes.io";
    assert_eq!(status(""), Some(0), "all is carried over");
    assert_eq!(
        status(&format!("{of}/proxy-body-size: 8m")),
        Some(0),
        "with a difference"
    );
    assert_eq!(
        status(&format!("{of}/server-snippet: x")),
        Some(2),
        "one is not"
    );
    assert_eq!(
        converted("ingress-nginx", "a: b\na: c\n").status.code(),
        Some(1),
        "no YAML"
    );
}

#[test]
fn a_directory_gets_a_file_for_each_namespace() {
    let file = folder("ingress-nginx").join("testdata/namespaces.in.yaml");
    let input = file.display().to_string();
    let dir = tempfile::tempdir().expect("a directory");
    let into = dir.path().join("site");
    let options = ["convert", "--from", "ingress-nginx", "--into"];
    let written = || {
        let paths = [into.to_str().expect("UTF-8"), &input];
        let output = gatewright(&[&options[..], &paths].concat(), "");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let names = ["blog.yaml", "ingress-nginx.yaml", "shop.yaml"];
        names.map(|name| fs::read_to_string(into.join(name)).expect("a file"))
    };
    let first = written();
    assert!(first[0].contains("kind: ListenerSet"), "{}", first[0]);
    assert!(first[1].contains("kind: Gateway"), "{}", first[1]);
    assert_eq!(written(), first, "twice the same files");
    let files = fs::read_dir(&into).expect("a directory").count();
    assert_eq!(files, 3, "and no others");
}

#[test]
fn the_content_of_a_secret_is_in_no_line() {
    let file = folder("ingress-nginx").join("testdata/access.in.yaml");
    let input = fs::read_to_string(file).expect("a case");
    for format in ["text", "json"] {
        let options = ["convert", "--from", "ingress-nginx", "-", "-o", format];
        let said = text(&gatewright(&options, &input).stderr);
        for secret in ["nU4eI71bcnBGqeO0t9tXvY1u5oQ", "$2y$05$", "alice", "bob"] {
            assert!(!said.contains(secret), "{secret} is in {said}");
        }
    }
}

/// `e2e/ingress-nginx/names` writes the list from the source of ingress-nginx.
#[test]
fn every_setting_of_ingress_nginx_has_one_row() {
    let names = fs::read_to_string(folder("ingress-nginx").join("names.txt")).expect("the list");
    for (what, rows) in [("annotation", ANNOTATIONS), ("key", KEYS)] {
        let listed: Vec<&str> = names
            .lines()
            .filter_map(|line| line.strip_prefix(what)?.strip_prefix(' '))
            .collect();
        let rows: Vec<&str> = rows.iter().map(|row| row.name).collect();
        assert!(listed.len() > 100, "{what}: {} names", listed.len());
        assert_eq!(rows, listed, "{what}s");
    }
}

#[test]
fn nothing_is_dropped_in_silence_whatever_its_value() {
    let long = "x/".repeat(5000);
    let values = [
        "",
        "true",
        "false",
        "0",
        "-1",
        "99999999999999999999",
        "a,b, c",
        "$x$1",
        "/",
        "/$2?a",
        "é\u{0}",
        "https://",
        "GRPC",
        "{",
        "::/0",
        &long,
    ];
    let options = options();
    for value in values {
        for row in ANNOTATIONS {
            let annotation = format!("nginx.ingress.kubernetes.io/{}", row.name);
            let backend = json!({"service": {"name": "a", "port": {"number": 80}}});
            let path = json!({"path": "/a(/|$)(.*)", "pathType": "ImplementationSpecific", "backend": backend});
            let ingress = document(json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                "metadata": {"name": "a", "annotations": {annotation: value}},
                "spec": {"ingressClassName": "nginx", "rules": [{"host": "a.example.org", "http": {"paths": [path]}}]},
            }));
            let notes = convert(Source::IngressNginx, &[ingress], &options).notes;
            let is_told = notes.iter().any(|note| note.setting == row.name);
            assert!(is_told, "{}: {value:?}: {notes:?}", row.name);
        }
        for row in KEYS {
            let keys = document(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "ingress-nginx-controller"}, "data": {row.name: value},
            }));
            let notes = convert(Source::IngressNginx, &[keys], &options).notes;
            let is_told = notes.iter().any(|note| note.setting == row.name);
            assert!(is_told, "{}: {value:?}: {notes:?}", row.name);
        }
    }
}

/// `e2e/envoy-gateway/names` writes the list from the definitions of Envoy Gateway.
#[test]
fn every_field_of_envoy_gateway_has_one_row() {
    let names = fs::read_to_string(folder("envoy-gateway").join("names.txt")).expect("the list");
    let mut used = BTreeSet::new();
    let mut fields = 0;
    for line in names.lines().filter(|line| !line.starts_with('#')) {
        let (kind, field) = line.split_once(' ').expect("a kind and a field");
        let (_, rows) = FIELDS
            .iter()
            .find(|(name, _)| *name == kind)
            .expect("a kind with rows");
        let row = rows
            .iter()
            .copied()
            .flatten()
            .filter(|row| {
                let rest = field.strip_prefix(row.name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            })
            .max_by_key(|row| row.name.len());
        let row = row.unwrap_or_else(|| panic!("{kind} {field} has no row"));
        used.insert((kind, row.name));
        fields += 1;
    }
    assert!(fields > 900, "{fields} fields");
    for (kind, lists) in FIELDS {
        for rows in *lists {
            assert!(
                rows.is_sorted_by_key(|row| row.name),
                "{kind}: in order of their names"
            );
            for row in *rows {
                let is_used = used.contains(&(*kind, row.name));
                assert!(is_used, "{kind} {}: no field is of this row", row.name);
            }
        }
    }
}

#[test]
fn no_field_of_envoy_gateway_is_dropped_in_silence_whatever_its_value() {
    let values = [
        json!(""),
        json!("true"),
        json!(true),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!("^/a(/.*)$"),
        json!("99999999999999999h"),
        json!(null),
        json!([]),
        json!({}),
        json!(["a", 1, {"b": []}]),
        json!({"a": {"b": "c"}}),
    ];
    let names = fs::read_to_string(folder("envoy-gateway").join("names.txt")).expect("the list");
    for line in names.lines().filter(|line| !line.starts_with('#')) {
        let (kind, field) = line.split_once(' ').expect("a kind and a field");
        for value in &values {
            let mut spec = value.clone();
            for part in field.rsplit('.') {
                let (name, depth) = (part.trim_end_matches("[]"), part.matches("[]").count());
                for _ in 0..depth {
                    spec = json!([spec]);
                }
                spec = json!({name: spec});
            }
            let group = "gateway.envoyproxy.io/v1alpha1";
            let object = document(
                json!({"apiVersion": group, "kind": kind, "metadata": {"name": "a"}, "spec": spec}),
            );
            let conversion = convert(Source::EnvoyGateway, &[object], &options());
            assert!(!conversion.notes.is_empty(), "{kind} {field}: {value}");
        }
    }
}

/// A setting that may restrict access closes its targets, whatever else is there.
#[test]
fn what_envoy_gateway_restricts_is_closed_where_it_is_not_carried_over() {
    for (kind, lists) in FIELDS {
        let rows = lists.iter().copied().flatten();
        for row in rows.filter(|row| row.closes) {
            let mut spec = json!("x");
            for part in row.name.rsplit('.') {
                let name = part.trim_end_matches("[]");
                if part.ends_with("[]") {
                    spec = json!([spec]);
                }
                spec = json!({name: spec});
            }
            spec["targetRef"] =
                json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "a"});
            let group = "gateway.envoyproxy.io/v1alpha1";
            let object = document(
                json!({"apiVersion": group, "kind": kind, "metadata": {"name": "a"}, "spec": spec}),
            );
            let conversion = convert(Source::EnvoyGateway, &[object], &options());
            let is_closed = conversion
                .objects
                .iter()
                .any(|object| object.value["metadata"]["name"] == "a-closed");
            assert!(is_closed, "{kind} {}: {conversion:?}", row.name);
            let is_told = conversion
                .notes
                .iter()
                .any(|note| note.setting == row.name && note.verdict == Verdict::NotCarriedOver);
            assert!(is_told, "{kind} {}: {conversion:?}", row.name);
        }
    }
}

/// A conversion of converted objects changes nothing.
#[test]
fn what_was_converted_from_envoy_gateway_stays_as_it_is() {
    for (source, case, file) in cases() {
        if source != "envoy-gateway" {
            continue;
        }
        let input = fs::read_to_string(file).expect("a case");
        let once = text(&converted(source, &input).stdout);
        let twice = text(&converted(source, &once).stdout);
        // Services, Secrets and others are read, and not repeated.
        for document in twice.split("---\n") {
            assert!(once.contains(document), "{case}: {document}");
        }
        assert!(!twice.is_empty(), "{case}");
    }
}

fn options() -> Options {
    Options {
        class: None,
        configmap: None,
        gateway: None,
        gateway_class: "gatewright".to_owned(),
    }
}

fn document(value: serde_json::Value) -> Document {
    Document {
        file: "-".to_owned(),
        line: 1,
        comments: Vec::new(),
        value,
    }
}
