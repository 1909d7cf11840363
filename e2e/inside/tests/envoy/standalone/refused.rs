//! Resources that Envoy refuses.

use super::*;

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_refusal_by_envoy_is_reported_and_affects_no_others() -> Result<()> {
    let mut site = Standalone::start().await?;
    let port = free_port()?;
    // No machine has an address of TEST-NET-1 (RFC 5737): Envoy cannot bind it.
    let gateway = |address: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: far}}\nspec:\n  \
             gatewayClassName: ours\n  addresses: [{{value: {address}}}]\n  listeners:\n  - name: https\n    \
             hostname: far.example.net\n    protocol: HTTPS\n    port: {port}\n    \
             tls: {{options: {{gatewright.io/issuer: internal-ca}}}}\n---\n"
        ) + &route("far", "far.example.net", "web").replace("name: edge", "name: far")
    };
    site.save("far.yaml", &gateway("192.0.2.1"))?;
    let line = site.program.line("refused").await?;
    assert!(
        line.contains("default/far") && line.contains("192.0.2.1"),
        "{line}"
    );
    site.program.line("secret default/far-").await?;
    let (_, text) = site.ask(&["status", "-o", "json"])?;
    let list: serde_json::Value = serde_json::from_str(&text)?;
    let far = list["items"]
        .as_array()
        .context("a list")?
        .iter()
        .find(|item| item["metadata"]["name"] == "far");
    let status = &far.context("the Gateway")?["status"];
    for conditions in [&status["conditions"], &status["listeners"][0]["conditions"]] {
        let all = conditions.as_array().context("conditions")?;
        let programmed = all
            .iter()
            .find(|c| c["type"] == "Programmed")
            .context("Programmed")?;
        assert_eq!(programmed["status"], "False", "{text}");
        assert_eq!(programmed["reason"], "Invalid", "{text}");
        assert!(
            programmed["message"]
                .as_str()
                .is_some_and(|text| text.contains("refused by Envoy")),
            "{text}"
        );
    }
    let url = format!("https://far.example.net:{port}/");
    let (code, text) = site.ask(&["explain", &url])?;
    assert!(code == 1 && text.contains("refused default/far"), "{text}");

    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program
        .line("httproute default/web: 1 host changed, acked 1/1")
        .await?;
    assert_eq!(site.status("web.example.org").await?, 200);

    site.save("far.yaml", &gateway("127.0.0.1"))?;
    site.program
        .line("gateway default/far: 0 hosts changed")
        .await?;
    let probe = Probe::https(
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        "far.example.net",
    );
    assert_eq!(probe.send().await?.status, 200);
    let (code, text) = site.ask(&["explain", &url])?;
    assert_eq!(code, 0, "{text}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_refused_port_of_a_gateway_leaves_its_other_ports_good() -> Result<()> {
    let mut site = Standalone::start().await?;
    let holder = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let busy = holder.local_addr()?.port();
    let base = fs::read_to_string(site.file("base.yaml"))?;
    site.save(
        "base.yaml",
        &with(
            &base,
            "",
            &format!("  - {{name: busy, protocol: HTTP, port: {busy}}}\n"),
        ),
    )?;
    let line = site.program.line("refused").await?;
    assert!(line.contains(&busy.to_string()), "{line}");
    site.save("web.yaml", &route("web", "web.example.org", "web"))?;
    site.program
        .line("httproute default/web: 1 host changed, acked 1/1")
        .await?;
    assert_eq!(site.status("web.example.org").await?, 200);
    let (code, text) = site.ask(&[
        "explain",
        &format!("https://web.example.org:{}/", site.port),
    ])?;
    assert!(
        code == 0 && text.contains("acknowledged by 1 of 1 Envoys"),
        "{text}"
    );
    let (code, text) = site.ask(&["explain", &format!("http://web.example.org:{busy}/")])?;
    assert!(
        code == 1 && text.contains(&format!("refused default/edge:{busy}")),
        "{text}"
    );
    Ok(())
}
