//! The webhook provider.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acme::challenge::dns::{DnsError, DnsProvider};
use acme::dns::{Secret, Webhook, WebhookConfig};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::double::{Double, reply};
use super::{NAME, SECRET, error, record};

fn provider(double: &Double) -> Webhook {
    let endpoint = format!("{}/dns", double.url());
    Webhook::new(WebhookConfig {
        endpoint,
        token: Secret::new(SECRET),
        ca_bundle: None,
    })
    .expect("a good configuration")
}

#[tokio::test]
async fn it_is_told_name_value_and_action() {
    let double = Double::start(|call| match call.json()["action"].as_str() {
        Some("zone") => reply(200, json!({"zone": "Example.com."})),
        _ => reply(204, ""),
    })
    .await;
    let provider = provider(&double);
    assert_eq!(provider.zone_of(NAME).await.as_deref(), Ok("example.com"));
    provider.present(&record("v")).await.expect("presented");
    provider.cleanup(&record("v")).await.expect("cleaned up");
    let calls = double.calls();
    assert!(
        calls
            .iter()
            .all(|call| call.method == Method::POST && call.path == "/dns")
    );
    assert!(
        calls
            .iter()
            .all(|call| call.header("authorization") == format!("Bearer {SECRET}"))
    );
    let bodies: Vec<Value> = calls.iter().map(|call| call.json()).collect();
    assert_eq!(
        bodies,
        [
            json!({"version": 1, "action": "zone", "name": NAME}),
            json!({"version": 1, "action": "present", "name": NAME, "value": "v", "ttl": 60}),
            json!({"version": 1, "action": "cleanup", "name": NAME, "value": "v", "ttl": 60}),
        ]
    );
}

#[tokio::test]
async fn its_refusals_are_sorted() {
    let next = Arc::new(Mutex::new((200, String::new())));
    let shared = next.clone();
    let double = Double::start(move |_| {
        let (status, body) = shared.lock().expect("not poisoned").clone();
        reply(status, body).header("retry-after", "5")
    })
    .await;
    let provider = provider(&double);
    let said = async |status: u16, body: Value| {
        *next.lock().expect("not poisoned") = (status, body.to_string());
        error(provider.zone_of(NAME).await)
    };
    assert!(matches!(
        said(401, json!({"message": format!("no {SECRET}")})).await,
        DnsError::Credentials { .. }
    ));
    let no_zone = said(404, json!({"message": "not mine"})).await;
    assert!(
        matches!(&no_zone, DnsError::NoZone { message, .. } if message == "not mine"),
        "{no_zone:?}"
    );
    let refused = said(422, json!({"message": "no such tenant"})).await;
    assert!(
        matches!(&refused, DnsError::Refused { message, .. } if message == "no such tenant"),
        "{refused:?}"
    );
    for status in [429, 503] {
        let wanted = DnsError::Throttled {
            provider: "webhook".into(),
            retry_after: Some(Duration::from_secs(5)),
        };
        assert_eq!(said(status, json!({})).await, wanted);
    }
    assert!(matches!(
        said(500, json!({})).await,
        DnsError::Unavailable { .. }
    ));
    assert!(matches!(
        said(200, json!({"zones": 1})).await,
        DnsError::Protocol { .. }
    ));
    // A zone that does not contain the name is rejected.
    assert!(matches!(
        said(200, json!({"zone": "ample.com"})).await,
        DnsError::NoZone { .. }
    ));
    *next.lock().expect("not poisoned") = (404, String::new());
    assert_eq!(provider.cleanup(&record("v")).await, Ok(()));
}

#[tokio::test]
#[ignore = "needs Python"]
async fn the_example_of_the_documentation_keeps_exactly_its_records() {
    let dir = tempfile::tempdir().expect("a directory");
    let token = dir.path().join("token");
    std::fs::write(&token, SECRET).expect("written");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dns/webhook.py");
    let mut child = Command::new("python3")
        .arg(example)
        .arg("example.com")
        .arg(&token)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("python3 runs");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut kept = BufReader::new(child.stderr.take().expect("piped")).lines();
    let line = said.next_line().await.expect("read").expect("it listens");
    let port = line.rsplit(' ').next().expect("a port");
    fn made(token: &str, port: &&str) -> Webhook {
        let endpoint = format!("http://127.0.0.1:{port}/");
        Webhook::new(WebhookConfig {
            endpoint,
            token: Secret::new(token),
            ca_bundle: None,
        })
        .expect("it makes sense")
    }
    let provider = made(SECRET, &port);
    assert_eq!(provider.zone_of(NAME).await.as_deref(), Ok("example.com"));
    let one = format!("('{NAME}', 'one')");
    let two = format!("('{NAME}', 'two')");
    for (value, records) in [
        ("one", format!("[{one}]")),
        ("two", format!("[{one}, {two}]")),
        ("one", format!("[{one}, {two}]")),
    ] {
        provider.present(&record(value)).await.expect("presented");
        assert_eq!(
            kept.next_line().await.expect("read").as_deref(),
            Some(&*records)
        );
    }
    for _ in 0..2 {
        provider.cleanup(&record("one")).await.expect("cleaned up");
        assert_eq!(
            kept.next_line().await.expect("read").as_deref(),
            Some(&*format!("[{two}]"))
        );
    }
    assert!(matches!(
        error(provider.zone_of("www.example.org").await),
        DnsError::NoZone { .. }
    ));
    assert!(matches!(
        error(made("another", &port).zone_of(NAME).await),
        DnsError::Credentials { .. }
    ));
}
