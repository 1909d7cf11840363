//! `gatewright support-bundle` of a running program: canaries in every place where a secret can be
//! are not in the archive, and the archive answers as the program does.

use std::process::Command;

use super::*;

/// A text that is in no other place.
const CANARY: &str = "c4n4ry7c4n4ry7c4n4ry";

/// Manifests with secrets where authors put them.
fn canaries() -> String {
    let encoded = base64(CANARY);
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: users\n  annotations:\n    \
         kubectl.kubernetes.io/last-applied-configuration: '{CANARY}'\ntype: gatewright.io/htpasswd\n\
         stringData: {{.htpasswd: 'alice:{{SHA}}5en6G6MezRroT3XKqkdPOmY/BfQ=', note: {CANARY}}}\n---\n\
         apiVersion: v1\nkind: Secret\nmetadata: {{name: data}}\ndata: {{key: {encoded}}}\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: headers}}\nspec:\n  \
         parentRefs: [{{name: edge}}]\n  hostnames: [headers.example.org]\n  rules:\n  - filters:\n    \
         - type: RequestHeaderModifier\n      requestHeaderModifier:\n        set: [{{name: Authorization, value: 'Bearer {CANARY}'}}]\n    \
         backendRefs: [{{name: web, port: 80}}]\n"
    )
}

fn base64(text: &str) -> String {
    use std::process::Stdio;
    let mut encoder = Command::new("base64")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("base64");
    std::io::Write::write_all(&mut encoder.stdin.take().expect("a pipe"), text.as_bytes())
        .expect("written");
    let output = encoder.wait_with_output().expect("it ends");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_bundle_has_no_secret_and_answers_as_the_program_does() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("bundle.tar.gz").display().to_string();
    let mut site = Standalone::start().await?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.save("bad.yaml", &route("bad", "bad.example.org", "nobody"))?;
    site.save("canaries.yaml", &canaries())?;
    site.program.line("BackendNotFound").await?;
    site.until("headers.example.org", Some(200)).await?;
    // A query and headers in a line of the access log.
    let probe = site
        .probe("bad.example.org")
        .header("cookie", &format!("session={CANARY}"))
        .header("authorization", &format!("Bearer {CANARY}"))
        .header(
            "referer",
            &format!("https://u:{CANARY}@a.example/?t={CANARY}"),
        )
        .path(&format!("/cart?token={CANARY}"));
    assert_eq!(probe.send().await?.status, 500);

    let (code, text) = site.ask(&["support-bundle", "-o", &file])?;
    assert_eq!(code, 0, "{text}");
    let mode = fs::metadata(&file)?.permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "for its owner alone");
    let listed = Command::new("tar").args(["-tzf", &file]).output()?;
    let names = String::from_utf8(listed.stdout)?;
    assert!(names.starts_with("CONTENTS.md\n"), "{names}");
    for name in [
        "status.json",
        "site.json",
        "history.json",
        "metrics.txt",
        "envoy/config_dump.json",
        "logs/access.log",
        "program.json",
    ] {
        assert!(names.lines().any(|line| line == name), "{name}: {names}");
    }
    let all = Command::new("tar").args(["-xzOf", &file]).output()?.stdout;
    let all = String::from_utf8_lossy(&all);
    for secret in [CANARY, &base64(CANARY), "PRIVATE KEY"] {
        let at = all
            .find(secret)
            .map(|at| all[at.saturating_sub(200)..].chars().take(300));
        let found: Option<String> = at.map(Iterator::collect);
        assert_eq!(found, None, "{secret}");
    }
    assert!(all.contains("headers.example.org"), "names are in it");

    // The same answers, without the program.
    let (_, own) = site.ask(&["status", "--not-ok"])?;
    site.program.signal("TERM")?;
    site.program.end().await?;
    let offline = |arguments: &[&str]| -> Result<(Option<i32>, String)> {
        let output = Gatewright::run(&[arguments, &["--bundle", &file]].concat())?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8(text)?))
    };
    let (code, text) = offline(&["status", "--not-ok"])?;
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(text, own, "what is wrong");
    let (code, text) = offline(&["status", "https://web.example.org/"])?;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("httproute default/web"), "{text}");
    let url = format!("https://bad.example.org:{}/", site.port);
    let (code, text) = offline(&["explain", &url])?;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("FAILS") && text.contains("nobody"), "{text}");
    let url = format!("web.example.org:{}", site.port);
    let (code, text) = offline(&["explain", &url])?;
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = offline(&["history"])?;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("httproute default/web"), "{text}");
    Ok(())
}
