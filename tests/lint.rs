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
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes())
        .expect("it reads");
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
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: cilium}
spec: {controllerName: io.cilium/gateway-controller}
";

#[test]
fn nothing_found_is_zero_something_is_one_and_a_wrong_command_line_two() {
    let good = lint(&["-"], TENANT);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    assert_eq!(&*good.stdout, &b""[..], "{good:?}");
    let bad = lint(
        &["-", "-o", "json"],
        &TENANT.replace("apex: a.org", "apex: b.org"),
    );
    assert_eq!(bad.status.code(), Some(1), "{bad:?}");
    let found: serde_json::Value = serde_json::from_slice(&bad.stdout).expect("JSON");
    let finding = &found[0];
    assert_eq!(
        finding["file"].as_str(),
        Some("-"),
        "standard input is the file"
    );
    assert_eq!(
        finding["line"].as_u64(),
        Some(5),
        "the line is that of the object"
    );
    assert_eq!(finding["object"], "tenantgateway tenant-a/cozystack");
    assert_eq!(finding["reason"], "ApexNotAllowed");
    assert!(
        finding["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("spec.apex: b.org")),
        "{found}"
    );
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
        TENANT
            .replace("spec: {", "spec: {certMoed: http01, ")
            .replace("tenant-a", "x"),
    )
    .expect("writes");
    let told = lint(&[&path], "");
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(
        told.status.code() == Some(1) && text.contains("typo.yaml") && text.contains("certMoed"),
        "{text}"
    );
}

#[test]
fn what_concerns_a_whole_file_has_no_line_and_a_second_definition_a_reason_of_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["a.yaml", "b.yaml"] {
        std::fs::write(dir.path().join(name), TENANT).expect("writes");
    }
    std::fs::write(dir.path().join("c.yaml"), b"\xff").expect("writes");
    let path = dir.path().display().to_string();
    let told = lint(&[&path], "");
    let text = String::from_utf8_lossy(&told.stdout);
    let row = |file: &str| {
        text.lines()
            .filter(|line| line.contains(file))
            .collect::<Vec<_>>()
    };
    assert!(
        row("/b.yaml:")
            .iter()
            .all(|line| line.contains("DefinedTwice"))
            && row("/b.yaml:").len() == 3,
        "{text}"
    );
    assert!(
        row("/c.yaml ")
            .iter()
            .all(|line| line.contains("Unreadable"))
            && row("/c.yaml ").len() == 1,
        "{text}"
    );
    let found: serde_json::Value =
        serde_json::from_slice(&lint(&[&path, "-o", "json"], "").stdout).expect("JSON");
    let whole = found
        .as_array()
        .expect("a list")
        .iter()
        .find(|finding| finding["reason"] == "Unreadable")
        .expect("found");
    assert!(whole.get("line").is_none(), "{whole}");
}

#[test]
fn the_listener_of_a_finding_is_named() {
    let gateway = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatewright}
spec: {controllerName: gatewright.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: infra}
spec:
  gatewayClassName: gatewright
  listeners: [{name: own, port: 443, protocol: HTTPS, hostname: a.org, tls: {certificateRefs: [{name: gone}]}}]
";
    let text = lint(&["-"], gateway);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(
        text.contains("listener own: certificateRefs: Secret infra/gone does not exist"),
        "{text}"
    );
    let found: serde_json::Value =
        serde_json::from_slice(&lint(&["-", "-o", "json"], gateway).stdout).expect("JSON");
    assert_eq!(found[0]["listeners"], serde_json::json!(["own"]));
}

#[test]
fn a_namespace_that_uses_most_of_a_quota_is_told_with_what_needs_most() {
    let site = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatewright}
spec: {controllerName: gatewright.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {gatewayClassName: gatewright, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}, {port: 81}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: web, port: 80}, {name: web, port: 81}]}]
";
    let text = |most: &str| {
        let output = lint(
            &["--set", &format!("limits.namespace.clusters={most}"), "-"],
            site,
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(text("3"), "", "two thirds are not most of it");
    let told = text("2");
    for part in [
        "httproute shop/web",
        "QuotaNearlyUsed",
        "namespace shop uses 2 of 2 clusters, which is limits.namespace.clusters",
        "httproute shop/web needs 2; a Service port is one cluster",
    ] {
        assert!(told.contains(part), "{part} is missing: {told}");
    }
    let told = text("1");
    assert!(told.contains("LimitReached"), "it is refused: {told}");
    assert!(!told.contains("QuotaNearlyUsed"), "nothing is used: {told}");
}

#[test]
fn what_an_issuer_cannot_do_is_found_with_the_configuration() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("gatewright.yaml");
    let head = "apiVersion: config.gatewright.io/v1alpha1\nkind: Configuration\nissuers:\n";
    let site = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatewright}
spec: {controllerName: gatewright.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: infra}
spec:
  gatewayClassName: gatewright
  listeners:
  - {name: own, port: 443, protocol: HTTPS, hostname: a.org, tls: {options: {gatewright.io/issuer: letsencrpyt}}}
";
    let found = |issuers: &str| {
        std::fs::write(&file, format!("{head}{issuers}")).expect("written");
        let path = file.display().to_string();
        let linted = lint(&["--config", &path, "-"], site);
        let checked = Command::new(env!("CARGO_BIN_EXE_gatewright"))
            .args(["config", "check", "--config", &path])
            .output()
            .expect("it ends");
        let linted = String::from_utf8_lossy(&linted.stdout).into_owned();
        let told = String::from_utf8_lossy(&checked.stderr).into_owned();
        (linted, checked.status.code(), told)
    };
    let (linted, code, told) = found("  le: {directory: letsencrypt}\n");
    assert!(
        linted.contains("no issuer is called \"letsencrpyt\": there are le, internal-ca"),
        "{linted}"
    );
    assert!(linted.contains("issuers.le.agreeToTerms: "), "{linted}");
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains("issuers.le.agreeToTerms: letsencrypt creates an account only"),
        "{told}"
    );
    let (linted, code, told) =
        found("  letsencrpyt: {directory: letsencrypt, agreeToTerms: true}\n");
    assert!(!linted.contains("issuer"), "{linted}");
    assert_eq!(code, Some(0), "{told}");
    // Files are read as at a start.
    std::fs::write(dir.path().join("roots.pem"), "no certificate").expect("written");
    let bundle = dir.path().join("roots.pem").display().to_string();
    let ca = format!("  a: {{directory: 'https://ca.example.org/d', caBundle: {bundle}}}\n");
    let (_, code, told) = found(&ca);
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains("issuers.a: caBundle: ") && told.contains("roots.pem"),
        "{told}"
    );
    let gone = format!("  a: {{directory: 'https://ca.example.org/d', caBundle: {bundle}x}}\n");
    let (_, code, told) = found(&gone);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("roots.pemx"), "{told}");
}
