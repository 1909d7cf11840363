//! Numbers of the traffic of a running program, and `gatewright envoy`.

use super::*;

const PASSWORD: &str = "abcdefghijklmnopqrstuvwxyz";

/// Waits until a command prints a text.
async fn until(site: &Standalone, arguments: &[&str], text: &str) -> Result<String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (code, printed) = site.ask(arguments)?;
        ensure!(code == 0, "{printed}");
        if printed.contains(text) {
            return Ok(printed);
        }
        ensure!(Instant::now() < deadline, "no {text} in {printed}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn what_envoy_counts_is_printed_and_read_with_the_password() -> Result<()> {
    let credentials = tempfile::tempdir()?;
    fs::write(credentials.path().join("username"), "prometheus\n")?;
    fs::write(credentials.path().join("password"), PASSWORD)?;
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let address = format!("envoys.statistics.address={at}");
    let dir = format!(
        "envoys.statistics.credentials={}",
        credentials.path().display()
    );
    let metrics = "envoys.trafficMetrics=Namespaces";
    let mut site =
        Standalone::start_with(&["--set", metrics, "--set", &address, "--set", &dir]).await?;
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program.line("httproute default/web: ").await?;
    assert_eq!(site.status("web.example.org").await?, 200);
    let counted = "gatewright.requests.tenant.default.class.2.route.: 1";
    until(&site, &["envoy", "stats", "^gatewright"], counted).await?;
    let text = until(
        &site,
        &["envoy", "stats", "--prometheus"],
        "envoy_gatewright",
    )
    .await?;
    assert!(
        text.contains("envoy_gatewright_requests{tenant=\"default\",class=\"2\",route=\"\"} 1"),
        "{text}"
    );

    let probe = Probe::http(at, "envoy").path("/stats/prometheus");
    assert_eq!(
        probe.clone().send().await?.status,
        401,
        "without a password"
    );
    let user = "Basic cHJvbWV0aGV1czphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5eg==";
    let answer = probe.header("authorization", user).send().await?;
    assert_eq!(answer.status, 200, "with it");

    let clusters = until(&site, &["envoy", "clusters", "default/"], "::rq_success::1").await?;
    assert!(
        clusters.lines().all(|line| line.starts_with("default/web")),
        "{clusters}"
    );
    let config = until(&site, &["envoy", "config"], "web.example.org").await?;
    let _: serde_json::Value = serde_json::from_str(&config)?;
    assert!(!config.contains(PASSWORD), "no password");
    assert!(!config.contains("PRIVATE KEY"), "no key");
    assert!(
        config.contains("\"private_key\": \"[redacted]\""),
        "it says so"
    );
    let some = until(
        &site,
        &["envoy", "config", "web.example.org"],
        "web.example.org",
    )
    .await?;
    assert!(some.len() < config.len() / 2, "only what has that name");

    // Out of service and back.
    let admin = site.state.path().join("envoy-admin.sock");
    until(&site, &["envoy", "drain"], "out of service").await?;
    assert!(
        gatewright_control::ask(&admin, "/ready").await.is_err(),
        "unready"
    );
    assert_eq!(site.status("web.example.org").await?, 200, "it serves on");
    until(&site, &["envoy", "drain", "--undo"], "in service").await?;
    assert_eq!(
        gatewright_control::ask(&admin, "/ready").await?.trim(),
        "LIVE"
    );

    let (code, text) = site.ask(&["envoy", "stats", "--envoy-admin", "/nowhere/admin.sock"])?;
    assert_eq!(code, 3, "{text}");
    Ok(())
}

#[test]
#[ignore = "needs Envoy"]
fn a_port_for_everybody_or_a_short_password_is_refused() -> Result<()> {
    let address = "envoys.statistics.address=0.0.0.0:19001";
    let output = Gatewright::run(&["config", "check", "--set", address])?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("envoys.statistics.address") && text.contains("loopback"),
        "{text}"
    );
    Ok(())
}
