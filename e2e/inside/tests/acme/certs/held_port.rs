//! Port 80 belongs to a Gateway of another namespace on the same address: no order is placed, and
//! the row says so. One of the own namespace answers challenges.

use anyhow::{Result, ensure};

use super::site::Site;

/// A Gateway of a namespace with the port of challenges.
fn front(namespace: &str, port: u16) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: front, namespace: {namespace}}}\nspec:\n  \
         gatewayClassName: ours\n  listeners:\n  - {{name: http, protocol: HTTP, port: {port}}}\n"
    )
}

#[tokio::test]
#[ignore = "needs Envoy and Pebble"]
async fn no_order_is_placed_where_another_namespace_has_port_80_until_it_is_free() -> Result<()> {
    let mut site = Site::new().await?;
    let challenges = site.pebble.http_port;
    site.save("front.yaml", &front("other", challenges))?;
    site.publish(&[("a.example.test", "acme")])?;
    site.start(&[])?;
    let row = site
        .row("a.example.test", |row| row["lastError"].is_string())
        .await?;
    let told = format!("a Gateway of another namespace has port {challenges} of this address");
    ensure!(
        row["lastError"]
            .as_str()
            .is_some_and(|text| text.contains(&told)),
        "{row}"
    );
    let (code, text) = site.ask(&["certs", "check", "a.example.test"])?;
    ensure!(code == 1 && text.contains(&told), "{code}: {text}");
    ensure!(site.pebble.orders() == 0, "{} orders", site.pebble.orders());

    site.save("front.yaml", &front("default", challenges))?;
    site.row("a.example.test", |_| true).await?;
    site.ask(&["certs", "renew", "a.example.test"])?;
    let answer = site.served("a.example.test").await?;
    ensure!(answer.status == 200, "{}", answer.status);
    Ok(())
}
