//! Filters on headers that determine the framing of a message, the client's address, or the host of
//! a request.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::site::{Site, service};
use crate::told::{http_route, manifest};

const NAMES: [&str; 19] = [
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Upgrade",
    "TE",
    "Trailer",
    "Keep-Alive",
    "Proxy-Connection",
    "content_length",
    "x-gw-sni",
    "x-gw-scope",
    "x-gw-host",
    "x-envoy-retry-on",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "Forwarded",
    "X-Real-IP",
    "CDN-Loop",
    "Host",
];

fn modifier(field: &str, verb: &str, name: &str) -> Value {
    let kind = format!("{}{}", field[..1].to_uppercase(), &field[1..]);
    let edits = match verb {
        "remove" => json!({"remove": [name]}),
        verb => json!({verb: [{"name": name, "value": "0"}]}),
    };
    json!({"type": kind, field: edits})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn every_such_name_is_refused_wherever_a_filter_may_stand() -> Result<()> {
    let site = Site::start(&[]).await?;
    let mut documents = Vec::new();
    for name in NAMES {
        for field in ["requestHeaderModifier", "responseHeaderModifier"] {
            for verb in ["set", "add", "remove"] {
                let filter = modifier(field, verb, name);
                let own =
                    json!([{"filters": [filter], "backendRefs": [{"name": "web", "port": 80}]}]);
                let of_backend =
                    json!([{"backendRefs": [{"name": "web", "port": 80, "filters": [filter]}]}]);
                for rules in [own, of_backend] {
                    let index = documents.len();
                    let host = format!("framing-{index}.example.org");
                    documents.push(http_route(
                        "mallory",
                        &format!("framing-{index}"),
                        &[host],
                        &rules,
                    ));
                }
            }
        }
    }
    site.save("mallory-framing.yaml", &manifest(&documents))?;
    site.told(
        "mallory",
        &format!("framing-{}", documents.len() - 1),
        "Accepted=False UnsupportedValue",
    )
    .await?;
    let statuses = site.statuses()?;
    let refused = statuses
        .iter()
        .filter(|item| item["metadata"]["namespace"] == "mallory")
        .filter(|item| {
            let accepted = &item["status"]["parents"][0]["conditions"][0];
            accepted["type"] == "Accepted"
                && accepted["status"] == "False"
                && accepted["message"]
                    .as_str()
                    .is_some_and(|text| text.contains("a header modifier cannot change"))
        });
    ensure!(
        refused.count() == documents.len(),
        "not all are refused: {statuses:#?}"
    );
    site.alice_is_unharmed(1).await
}

/// Starts a backend whose response body is itself the beginning of a response.
async fn poisonous() -> Result<std::net::SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = [0; 4096];
                while stream.read(&mut asked).await.is_ok_and(|read| read > 0) {
                    let body = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Poison: yes\r\n\r\nPWNED";
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    Ok(address)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn on_one_connection_alices_answer_is_hers_whatever_mallory_says_of_lengths() -> Result<()> {
    let site = Site::start(&[]).await?;
    site.save(
        "mallory-service.yaml",
        &service("mallory", poisonous().await?),
    )?;
    let cases = [
        ("set", "Content-Length", "0"),
        ("add", "Transfer-Encoding", "chunked"),
        ("set", "Connection", "x"),
    ];
    for (index, (verb, name, value)) in cases.into_iter().enumerate() {
        let route = format!("desync-{index}");
        let host = format!("desync-{index}.example.org");
        let filter = json!({"type": "ResponseHeaderModifier",
            "responseHeaderModifier": {verb: [{"name": name, "value": value}]}});
        let rules = json!([{"filters": [filter], "backendRefs": [{"name": "web", "port": 80}]}]);
        site.save(
            "mallory-desync.yaml",
            &manifest(&[http_route(
                "mallory",
                &route,
                std::slice::from_ref(&host),
                &rules,
            )]),
        )?;
        // A refused request as well as a served one: the response must be that of the client's own
        // request.
        site.told("mallory", &route, "Accepted=").await?;
        let mallory = site.plain(&host);
        let mut connection = mallory.connect().await?;
        let first = connection.ask(&mallory).await?;
        let second = connection.ask(&site.plain("alice.example.org")).await?;
        let said: Value = serde_json::from_slice(&second.body)?;
        ensure!(
            said["name"] == "alice",
            "{name}: after {first:?} came {second:?}"
        );
        ensure!(
            !second.headers.contains_key("x-poison"),
            "{name}: {second:?}"
        );
        site.told("mallory", &route, "Accepted=False UnsupportedValue")
            .await?;
    }
    Ok(())
}
