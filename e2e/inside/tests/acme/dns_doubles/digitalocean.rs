//! DigitalOcean.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use acme::challenge::dns::{DnsError, DnsProvider};
use acme::dns::{DigitalOcean, DigitalOceanConfig, Secret};
use hyper::Method;
use serde_json::json;

use super::double::{Call, Double, Reply, reply};
use super::{NAME, SECRET, error, record};

type Records = Arc<Mutex<Vec<(u64, String, String)>>>;

fn refuse(status: u16, id: &str, message: &str) -> Reply {
    reply(
        status,
        json!({"id": id, "message": message, "request_id": format!("{:?}", std::time::Instant::now())}),
    )
}

/// A simulated service with these records `(id, relative name, data)`, two per page.
fn service(call: &Call, records: &Records) -> Reply {
    if call.header("authorization") != format!("Bearer {SECRET}") {
        return refuse(401, "unauthorized", "Unable to authenticate you");
    }
    let mut records = records.lock().expect("not poisoned");
    let base = "/v2/domains/example.com/records";
    match (call.method.as_str(), call.path.as_str()) {
        ("GET", "/v2/domains/example.com") => {
            reply(200, json!({"domain": {"name": "example.com"}}))
        }
        ("GET", path) if path == base => {
            let page: usize = call
                .parameter("page")
                .expect("a page")
                .parse()
                .expect("a number");
            let name = call
                .parameter("name")
                .expect("a name")
                .strip_suffix(".example.com")
                .expect("a full name");
            let here: Vec<_> = records
                .iter()
                .filter(|(_, found, _)| found == name)
                .collect();
            let shown: Vec<_> = here
                .iter()
                .skip((page - 1) * 2)
                .take(2)
                .map(
                    |(id, name, data)| json!({"id": id, "type": "TXT", "name": name, "data": data}),
                )
                .collect();
            let more = page * 2 < here.len();
            let links = if more {
                json!({"pages": {"next": "https://…?page=2"}})
            } else {
                json!({})
            };
            reply(
                200,
                json!({"domain_records": shown, "links": links, "meta": {"total": here.len()}}),
            )
        }
        ("POST", path) if path == base => {
            let body = call.json();
            fn text(field: &str, body: &serde_json::Value) -> String {
                body[field].as_str().expect("a text").to_owned()
            }
            assert!(body["ttl"].as_u64() >= Some(30));
            let id = 100 + records.len() as u64;
            records.push((id, text("name", &body), text("data", &body)));
            reply(201, json!({"domain_record": {"id": id}}))
        }
        ("DELETE", path) if path.starts_with(base) => {
            let id: u64 = path
                .rsplit('/')
                .next()
                .and_then(|id| id.parse().ok())
                .expect("an id");
            let before = records.len();
            records.retain(|(found, _, _)| *found != id);
            if records.len() < before {
                reply(204, "")
            } else {
                refuse(404, "not_found", "not found")
            }
        }
        _ => refuse(404, "not_found", "not found"),
    }
}

fn provider(double: &Double, token: &str) -> DigitalOcean {
    let config = DigitalOceanConfig {
        token: Secret::new(token),
        endpoint: Some(double.url()),
        ca_bundle: None,
    };
    DigitalOcean::new(config).expect("a good configuration")
}

#[tokio::test]
async fn values_come_and_go_and_foreign_ones_stay() {
    let ours = "_acme-challenge.www".to_owned();
    let foreign = vec![
        (1, ours.clone(), "foreign".to_owned()),
        (2, ours.clone(), "v1 and more".to_owned()),
        (3, "@".to_owned(), "v1".to_owned()),
    ];
    let records: Records = Arc::new(Mutex::new(foreign.clone()));
    let shared = records.clone();
    let double = Double::start(move |call| service(call, &shared)).await;
    let one = provider(&double, SECRET);
    assert_eq!(one.zone_of(NAME).await.as_deref(), Ok("example.com"));
    for value in ["v1", "v2", "v1"] {
        one.present(&record(value)).await.expect("presented");
    }
    assert_eq!(double.count(Method::POST, "/records"), 2);
    let restarted = provider(&double, SECRET);
    for value in ["v2", "v1", "v1"] {
        restarted.cleanup(&record(value)).await.expect("cleaned up");
    }
    assert_eq!(*records.lock().expect("not poisoned"), foreign);
}

#[tokio::test]
async fn errors_are_stable_and_carry_no_token() {
    let records: Records = Arc::default();
    let double = Double::start(move |call| service(call, &records)).await;
    let bad = provider(&double, &format!("{SECRET}x"));
    let one = error(bad.zone_of(NAME).await);
    let two = error(bad.zone_of(NAME).await);
    assert!(matches!(one, DnsError::Credentials { .. }), "{one:?}");
    assert_eq!(one, two, "the request id is not part of the message");

    let good = provider(&double, SECRET);
    let mut elsewhere = record("v");
    elsewhere.name = "_acme-challenge.example.org".to_owned();
    assert!(matches!(
        error(good.present(&elsewhere).await),
        DnsError::NoZone { .. }
    ));
    assert_eq!(good.cleanup(&elsewhere).await, Ok(()));
}

#[tokio::test]
async fn throttling_carries_the_wait() {
    let double =
        Double::start(|_| refuse(429, "too_many_requests", "limit").header("retry-after", "44"))
            .await;
    let wanted = DnsError::Throttled {
        provider: "digitalocean".into(),
        retry_after: Some(Duration::from_secs(44)),
    };
    assert_eq!(
        error(provider(&double, SECRET).present(&record("v")).await),
        wanted
    );
    assert_eq!(
        error(provider(&double, SECRET).cleanup(&record("v")).await),
        wanted
    );
}

#[tokio::test]
async fn a_token_that_may_only_read_is_found_before_an_order() {
    let double = Double::start(|call| match call.method {
        Method::GET => reply(200, json!({"domain": {"name": "x"}})),
        _ => refuse(
            403,
            "forbidden",
            "You are not authorized to perform this operation",
        ),
    })
    .await;
    assert!(matches!(
        error(provider(&double, SECRET).zone_of(NAME).await),
        DnsError::Credentials { .. }
    ));
}
