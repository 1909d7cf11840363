//! The program as a user starts it.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use e2e::gatewright::Gatewright;

#[test]
fn the_program_is_built_and_runs() -> Result<()> {
    let output = Gatewright::run(&["--help"])?;
    assert!(output.status.success(), "{output:?}");
    Ok(())
}

#[tokio::test]
async fn a_program_that_ends_early_is_an_error_with_its_output() -> Result<()> {
    let mut program = Gatewright::start(&["--help"])?;
    let failed = program
        .line("a line that no help has")
        .await
        .expect_err("it ended");
    assert!(
        format!("{failed:#}").contains("gatewright ended"),
        "{failed:#}"
    );
    Ok(())
}

const SITE: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: ours}
spec: {controllerName: gatewright.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: ours
  listeners:
  - {name: http, protocol: HTTP, port: 8080}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  hostnames: [web.example.org]
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}]
"#;

fn program(args: &[&str], input: &str) -> Result<(i32, String, String)> {
    let mut child = Command::new(e2e::gatewright::binary()?)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("a pipe")?
        .write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.code().context("it was killed")?,
        text(&output.stdout),
        text(&output.stderr),
    ))
}

#[test]
fn translate_prints_what_envoy_would_get() -> Result<()> {
    let (code, yaml, _) = program(&["translate", "-"], SITE)?;
    assert_eq!(code, 0);
    assert!(
        yaml.contains("https_redirect") || yaml.contains("scheme_redirect"),
        "{yaml}"
    );
    assert!(
        yaml.contains("HttpConnectionManager") && yaml.contains("type: Accepted"),
        "every Any is opened: {yaml}"
    );
    let (code, json, _) = program(&["translate", "-", "-o", "json"], SITE)?;
    let document: serde_json::Value = serde_json::from_str(&json)?;
    assert_eq!(code, 0);
    assert_eq!(
        document["statuses"].as_array().map(Vec::len),
        Some(3),
        "{document}"
    );
    Ok(())
}

#[test]
fn translate_tells_what_is_wrong_and_goes_on() -> Result<()> {
    let input = SITE.replace("name: edge}]", "name: nowhere}]") + "---\nkind: HTTPRoute\n";
    let (code, yaml, errors) = program(&["translate", "-"], &input)?;
    assert_eq!(code, 1);
    assert!(errors.contains("apiVersion"), "{errors}");
    assert!(
        yaml.contains("HttpConnectionManager"),
        "the Gateway is translated all the same: {yaml}"
    );
    let (code, _, errors) = program(&["translate", "/nonexistent"], "")?;
    assert!(
        code == 1 && errors.contains("/nonexistent"),
        "{code} {errors}"
    );
    Ok(())
}

#[test]
fn a_wrong_command_line_is_exit_2_and_completion_is_a_script() -> Result<()> {
    assert_eq!(program(&["translate"], "")?.0, 2);
    assert_eq!(program(&["no-such-verb"], "")?.0, 2);
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = program(&["completion", shell], "")?;
        assert!(code == 0 && script.contains("standalone"), "{shell}");
    }
    let (code, version, _) = program(&["version"], "")?;
    assert!(
        code == 0 && version.contains(env!("CARGO_PKG_VERSION")),
        "{version}"
    );
    Ok(())
}

#[test]
fn asking_a_program_that_does_not_run_says_so() -> Result<()> {
    let state = tempfile::tempdir()?;
    let dir = state.path().display().to_string();
    for args in [&["status"][..], &["explain", "https://a.example.org/"]] {
        let (code, _, errors) = program(&[args, &["--state-dir", &dir]].concat(), "")?;
        assert!(
            code == 3 && errors.contains("admin.sock"),
            "{args:?}: {code} {errors}"
        );
    }
    Ok(())
}
