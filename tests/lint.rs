//! Tests of the output and the exit status of `gatewright lint`.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn lint(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
        .arg("lint")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

const TENANT: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: tenant-a, labels: {namespace.cozystack.io/host: a.org}}
---
apiVersion: gateway.cozystack.io/v1alpha1
kind: TenantGateway
metadata: {name: cozystack, namespace: tenant-a}
spec: {apex: a.org}
";

#[test]
fn nothing_found_is_zero_something_is_one_and_a_wrong_command_line_two() {
    let good = lint(&["-"], TENANT);
    assert_eq!((good.status.code(), &*good.stdout), (Some(0), &b""[..]), "{good:?}");
    let bad = lint(&["-", "-o", "json"], &TENANT.replace("apex: a.org", "apex: b.org"));
    assert_eq!(bad.status.code(), Some(1), "{bad:?}");
    let found: serde_json::Value = serde_json::from_slice(&bad.stdout).expect("JSON");
    let finding = &found[0];
    assert_eq!((finding["file"].as_str(), finding["line"].as_u64()), (Some("-"), Some(5)));
    assert_eq!(finding["object"], "tenantgateway tenant-a/cozystack");
    assert_eq!(finding["reason"], "ApexNotAllowed");
    assert!(finding["message"].as_str().is_some_and(|text| text.starts_with("spec.apex: b.org")), "{found}");
    assert_eq!(lint(&[], "").status.code(), Some(2));
    assert_eq!(lint(&["-", "-o", "xml"], "").status.code(), Some(2));
}

#[test]
fn a_directory_is_read_and_what_cannot_be_read_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("tenant.yaml"), TENANT).expect("writes");
    let path = dir.path().display().to_string();
    assert_eq!(lint(&[&path], "").status.code(), Some(0));
    std::fs::write(
        dir.path().join("typo.yaml"),
        TENANT.replace("spec: {", "spec: {certMoed: http01, ").replace("tenant-a", "x"),
    )
    .expect("writes");
    let told = lint(&[&path], "");
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.code() == Some(1) && text.contains("typo.yaml") && text.contains("certMoed"), "{text}");
}
