//! `gatewright logs` beside a running program.

use super::*;

#[tokio::test]
#[ignore = "needs Envoy"]
async fn requests_that_failed_are_printed_with_the_reason() -> Result<()> {
    let mut site = Standalone::start().await?;
    let private = site.state.path().display().to_string();
    let arguments = ["logs", "--follow", "--errors", "--state-dir", &private];
    let mut following = Gatewright::start(&arguments)?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program.line("httproute default/web: ").await?;
    site.save("lost.yaml", &route("lost", "lost.example.org", "nowhere"))?;
    site.program.line("BackendNotFound").await?;
    site.program.line("httproute default/lost: ").await?;
    assert_eq!(site.status("web.example.org").await?, 200);
    assert_eq!(site.status("lost.example.org").await?, 500);
    let line = following.line("500 GET lost.example.org").await?;
    assert!(
        line.contains(
            " route httproute/default/lost/0: BrokenRule: the rule has no usable backend"
        ),
        "{line}"
    );
    assert!(
        !following.output().contains("web.example.org"),
        "no error: {}",
        following.output()
    );
    let (code, text) = site.ask(&["logs", "--host", "LOST.example.org", "-o", "json"])?;
    assert_eq!(code, 0, "{text}");
    let line: serde_json::Value = serde_json::from_str(text.trim()).context(text)?;
    assert_eq!(line["reason"], "BrokenRule", "{line:#}");
    assert_eq!(line["namespace"], "default", "{line:#}");
    assert_eq!(line["gateway"], "default/edge", "{line:#}");
    assert_eq!(line["listener"], "https", "{line:#}");

    // Rotated by another program, and Envoy begins a new file.
    let log = site.state.path().join("access.log");
    fs::rename(&log, site.state.path().join("old.log"))?;
    let admin = site.state.path().join("envoy-admin.sock");
    gatewright_control::tell(&admin, "/reopen_logs").await?;
    assert_eq!(site.status("other.example.org").await?, 404);
    let line = following.line("404 GET other.example.org").await?;
    assert!(line.contains(": NoHost: "), "{line}");
    Ok(())
}
