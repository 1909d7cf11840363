//! Cloudflare.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use acme::challenge::dns::{DnsError, DnsProvider, DnsRetry};
use acme::dns::{Cloudflare, CloudflareConfig, Secret};
use hyper::Method;
use serde_json::json;

use super::double::{Call, Double, Reply, reply};
use super::{NAME, SECRET, error, record};

const ZONE: &str = "023e105f4ecef8ad9ca31a8372d0c353";

type Records = Arc<Mutex<Vec<(String, String, String)>>>;

fn refuse(status: u16, code: u64, message: &str) -> Reply {
    reply(
        status,
        json!({"success": false, "errors": [{"code": code, "message": message}], "result": null}),
    )
}

fn ok(result: serde_json::Value) -> Reply {
    reply(
        200,
        json!({"success": true, "errors": [], "messages": [], "result": result}),
    )
}

/// A simulated service with these records `(id, name, content)`, two per page.
fn service(call: &Call, records: &Records) -> Reply {
    if call.header("authorization") != format!("Bearer {SECRET}") {
        return refuse(
            403,
            10000,
            &format!("Authentication error: {}", call.header("authorization")),
        );
    }
    let mut records = records.lock().expect("not poisoned");
    let base = format!("/client/v4/zones/{ZONE}/dns_records");
    match (call.method.as_str(), call.path.as_str()) {
        ("GET", "/client/v4/zones") => match call.parameter("name") {
            Some("example.com") => ok(json!([{"id": ZONE, "name": "example.com"}])),
            _ => ok(json!([])),
        },
        ("GET", path) if path == base => {
            let page: usize = call
                .parameter("page")
                .expect("a page")
                .parse()
                .expect("a number");
            let here: Vec<_> = records
                .iter()
                .filter(|(_, name, _)| Some(name.as_str()) == call.parameter("name"))
                .collect();
            let shown: Vec<_> = here
                .iter()
                .skip((page - 1) * 2)
                .take(2)
                .map(|(id, name, content)| json!({"id": id, "type": "TXT", "name": name, "content": content}))
                .collect();
            let pages = here.len().div_ceil(2);
            reply(
                200,
                json!({"success": true, "errors": [], "result": shown, "result_info": {"page": page, "total_pages": pages}}),
            )
        }
        ("POST", path) if path == base => {
            let body = call.json();
            assert_eq!(body["type"], "TXT");
            let id = format!("id{}", records.len());
            fn text(field: &str, body: &serde_json::Value) -> String {
                body[field].as_str().expect("a text").to_owned()
            }
            records.push((id.clone(), text("name", &body), text("content", &body)));
            ok(json!({"id": id}))
        }
        ("DELETE", path) => {
            let id = path
                .strip_prefix(&format!("{base}/"))
                .expect("a record's path");
            let before = records.len();
            records.retain(|(found, _, _)| found != id);
            if records.len() < before {
                ok(json!({"id": id}))
            } else {
                refuse(404, 81044, "Record does not exist.")
            }
        }
        _ => refuse(404, 7003, "Could not route"),
    }
}

fn provider(double: &Double, token: &str) -> Cloudflare {
    let endpoint = Some(format!("{}/client/v4", double.url()));
    Cloudflare::new(CloudflareConfig {
        token: Secret::new(token),
        endpoint,
        ca_bundle: None,
    })
    .expect("a good configuration")
}

async fn start(records: &[(&str, &str, &str)]) -> (Double, Records) {
    let owned = records
        .iter()
        .map(|(id, name, content)| ((*id).into(), (*name).into(), (*content).into()))
        .collect();
    let records: Records = Arc::new(Mutex::new(owned));
    let shared = records.clone();
    (
        Double::start(move |call| service(call, &shared)).await,
        records,
    )
}

#[tokio::test]
async fn values_come_and_go_and_foreign_ones_stay() {
    // Foreign records fill the first page, so that ours are found on the following ones only.
    let (double, records) = start(&[
        ("f1", NAME, "\"foreign\""),
        ("f2", NAME, "\"v1 and more\""),
        ("f3", "example.com", "\"v1\""),
        ("f4", NAME, "\"other\""),
    ])
    .await;
    let foreign = records.lock().expect("not poisoned").clone();
    let provider = provider(&double, SECRET);
    assert_eq!(provider.zone_of(NAME).await.as_deref(), Ok("example.com"));
    for value in ["v1", "v2", "v1"] {
        provider.present(&record(value)).await.expect("presented");
    }
    assert_eq!(
        double.count(Method::POST, "/dns_records"),
        2,
        "the second v1 was there already"
    );
    // A new process knows only the records.
    let restarted = super::cloudflare::provider(&double, SECRET);
    for value in ["v1", "v1", "v2"] {
        restarted.cleanup(&record(value)).await.expect("cleaned up");
    }
    assert_eq!(*records.lock().expect("not poisoned"), foreign);
    // Each searched for the zone once: the name, www.example.com, example.com.
    assert_eq!(double.count(Method::GET, "/zones"), 6);
}

#[tokio::test]
async fn an_unquoted_record_of_ours_is_found() {
    let (double, records) = start(&[("old", NAME, "v1")]).await;
    let provider = provider(&double, SECRET);
    provider
        .present(&record("v1"))
        .await
        .expect("there already");
    provider.cleanup(&record("v1")).await.expect("cleaned up");
    assert!(records.lock().expect("not poisoned").is_empty());
}

#[tokio::test]
async fn refused_credentials_are_not_quoted() {
    let (double, _) = start(&[]).await;
    // The service quotes the token that it received.
    let failed = provider(&double, &format!("{SECRET}x")).zone_of(NAME).await;
    let error = error(failed);
    assert!(matches!(error, DnsError::Credentials { .. }), "{error:?}");
    assert!(
        error.to_string().contains("[redacted]")
            && error.to_string().contains("Zone:Read and DNS:Edit"),
        "{error}"
    );
    assert_eq!(error.retry(), DnsRetry::Never);
}

#[tokio::test]
async fn a_token_that_may_only_read_is_found_before_an_order() {
    let double = Double::start(|call| match call.method {
        Method::GET => {
            ok(json!([{"id": ZONE, "name": "www.example.com"}, {"id": "x", "name": NAME}]))
        }
        _ => refuse(403, 10000, "Authentication error"),
    })
    .await;
    let error = error(provider(&double, SECRET).zone_of(NAME).await);
    assert!(matches!(error, DnsError::Credentials { .. }), "{error:?}");
}

#[tokio::test]
async fn a_foreign_name_has_no_zone_and_is_clean() {
    let (double, _) = start(&[]).await;
    let provider = provider(&double, SECRET);
    let mut elsewhere = record("v");
    elsewhere.name = "_acme-challenge.example.org".to_owned();
    let error = error(provider.present(&elsewhere).await);
    assert!(matches!(error, DnsError::NoZone { .. }), "{error:?}");
    assert_eq!(provider.cleanup(&elsewhere).await, Ok(()));
}

#[tokio::test]
async fn answers_of_every_kind_are_sorted() {
    fn throttled(wait: Option<u64>) -> DnsError {
        DnsError::Throttled {
            provider: "cloudflare".into(),
            retry_after: wait.map(Duration::from_secs),
        }
    }
    let double = Double::start(|call| match call.parameter("name").unwrap_or_default() {
        "a" => refuse(429, 10013, "slow down").header("retry-after", "17"),
        "b" => refuse(429, 10013, "slow down"),
        "c" => reply(502, "<html>bad gateway</html>"),
        "d" => reply(200, "<html>captive portal</html>"),
        "e" => refuse(400, 6003, "Invalid request headers"),
        "f" => refuse(400, 1004, "DNS Validation\nError"),
        "g" => reply(200, "x".repeat(2 * 1024 * 1024)),
        "h" => reply(302, "").header("location", "http://127.0.0.1:1/"),
        "i" => reply(503, "").header("retry-after", "3"),
        other => panic!("{other}"),
    })
    .await;
    let provider = provider(&double, SECRET);
    let said = async |name: &str| error(provider.zone_of(name).await);
    assert_eq!(said("a").await, throttled(Some(17)));
    assert_eq!(
        said("a").await.retry(),
        DnsRetry::After(Duration::from_secs(17))
    );
    assert_eq!(said("b").await, throttled(None));
    assert_eq!(said("i").await, throttled(Some(3)));
    assert!(matches!(said("c").await, DnsError::Unavailable { .. }));
    assert!(matches!(said("d").await, DnsError::Protocol { .. }));
    assert!(matches!(said("e").await, DnsError::Credentials { .. }));
    let refused = said("f").await;
    assert!(
        matches!(&refused, DnsError::Refused { message, .. } if message == "DNS Validation Error (code 1004)"),
        "{refused:?}"
    );
    let big = said("g").await;
    assert!(
        matches!(&big, DnsError::Unavailable { message, .. } if message.contains("length limit exceeded")),
        "{big:?}"
    );
    assert!(
        matches!(said("h").await, DnsError::Protocol { .. }),
        "a redirect is not followed"
    );
}

#[test]
fn bad_configuration_names_the_field() {
    let make = |token: &str, endpoint: Option<&str>, ca: Option<&str>| {
        let config = CloudflareConfig {
            token: Secret::new(token),
            endpoint: endpoint.map(str::to_owned),
            ca_bundle: ca.map(str::to_owned),
        };
        error(Cloudflare::new(config)).to_string()
    };
    assert!(make("", None, None).contains("token: is empty"));
    assert!(make(&format!("{SECRET} {SECRET}"), None, None).contains("token: holds characters"));
    assert!(make(SECRET, Some("http://api.example"), None).contains("endpoint: "));
    assert!(make(SECRET, None, Some("no PEM")).contains("the CA bundle: no certificate in PEM"));
}
