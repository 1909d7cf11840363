//! Port 80 belongs to another Gateway on the same address: no order is placed, and the Gateway is
//! named.

use anyhow::{Result, ensure};
use e2e_inside::world::free_port;

use super::site::Site;

/// A Gateway with the port of challenges, and more listeners.
fn front(port: u16, more: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: front}}\nspec:\n  \
         gatewayClassName: ours\n  listeners:\n  - {{name: http, protocol: HTTP, port: {port}}}\n{more}"
    )
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn no_order_is_placed_where_another_gateway_has_port_80_until_it_has_the_host() -> Result<()>
{
    let mut site = Site::new().await?;
    let challenges = site.pebble.http_port;
    site.save("front.yaml", &front(challenges, ""))?;
    site.publish(&[("a.example.test", "acme")])?;
    site.start(&[])?;
    let row = site
        .row("a.example.test", |row| row["lastError"].is_string())
        .await?;
    let told = format!("Gateway default/front has port {challenges} of this address");
    ensure!(
        row["lastError"]
            .as_str()
            .is_some_and(|text| text.contains(&told)),
        "{row}"
    );
    let (code, text) = site.ask(&["certs", "check", "a.example.test"])?;
    ensure!(code == 1 && text.contains(&told), "{code}: {text}");
    ensure!(site.pebble.orders() == 0, "{} orders", site.pebble.orders());

    let port = free_port()?;
    let host = format!(
        "  - {{name: a, hostname: a.example.test, protocol: HTTPS, port: {port}, \
         tls: {{options: {{gatewright.io/issuer: acme}}}}}}\n"
    );
    site.save("front.yaml", &front(challenges, &host))?;
    site.row("a.example.test", |_| true).await?;
    site.ask(&["certs", "renew", "a.example.test"])?;
    let answer = site.served("a.example.test").await?;
    ensure!(answer.status == 200, "{}", answer.status);
    Ok(())
}
