//! Conversions of other programs' objects: `src/convert/SOURCE/testdata/*.in.yaml` → `.out.yaml`,
//! with the exit status, what is said of each setting, and the objects, which `lint` judges beside
//! the Services of the input. `UPDATE=1` rewrites the outputs; read the diff.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gatewright::convert::ingress_nginx::{ANNOTATIONS, KEYS};
use gatewright::convert::{Document, Options, Source, convert};
use serde_json::json;

/// The cases in which `lint` finds something, and the reasons: what a person has to add is missing.
const FINDINGS: &[(&str, &[&str])] = &[
    // The Secret of bcrypt hashes is not written.
    ("access", &["Invalid"]),
    // A host without a certificate, beside the one for all names; and one of two namespaces.
    ("namespaces", &["ServedInClear", "SharedHostname"]),
    // Paths that are not redirected, at a host with a certificate.
    ("shared-hosts", &["ServedInClear"]),
];

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

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/convert/ingress_nginx")
}

/// The names of the cases, in order.
fn cases() -> Vec<String> {
    let entries = fs::read_dir(folder().join("testdata")).expect("a folder of cases");
    let names: BTreeSet<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .filter_map(|name| Some(name.to_str()?.strip_suffix(".in.yaml")?.to_owned()))
        .collect();
    names.into_iter().collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn converted(input: &str) -> Output {
    gatewright(&["convert", "--from", "ingress-nginx", "-"], input)
}

#[test]
fn cases_become_their_outputs() {
    let mut wrong = Vec::new();
    for case in cases() {
        let file = folder().join("testdata").join(format!("{case}.in.yaml"));
        let input = fs::read_to_string(&file).expect("a case");
        let output = converted(&input);
        let again = converted(&input);
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
            wrong.push(format!("{case}\n{written}"));
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
        if document.contains("\nkind: Service\n") {
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
    for case in cases() {
        let file = folder().join("testdata").join(format!("{case}.in.yaml"));
        let input = fs::read_to_string(file).expect("a case");
        let output = text(&converted(&input).stdout);
        let manifests = format!("{}---\n{output}", beside(&input, &output));
        let found = gatewright(&["lint", "-", "-o", "json"], &manifests);
        let rows: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap_or_default();
        let expected = FINDINGS
            .iter()
            .find(|(name, _)| *name == case)
            .map_or(&[][..], |(_, reasons)| *reasons);
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
                "{case}: {}\n{}",
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
        converted(&input).status.code()
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
    assert_eq!(converted("a: b\na: c\n").status.code(), Some(1), "no YAML");
}

#[test]
fn a_directory_gets_a_file_for_each_namespace() {
    let file = folder().join("testdata/namespaces.in.yaml");
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
    let file = folder().join("testdata/access.in.yaml");
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
    let names = fs::read_to_string(folder().join("names.txt")).expect("the list");
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
    let options = Options {
        class: None,
        configmap: None,
        gateway: None,
        gateway_class: "gatewright".to_owned(),
    };
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

fn document(value: serde_json::Value) -> Document {
    Document {
        file: "-".to_owned(),
        line: 1,
        comments: Vec::new(),
        value,
    }
}
