//! Answers of an ACME CA that somebody else runs: an order from the account to the certificate, of
//! which the bytes change answers.
//!
//! They choose for each answer whether it stays as it is, and else its status, its headers, a field
//! of its JSON, or bytes in place of it all. An order ends soon, after a bounded number of
//! requests; nothing is proven for a name that was not ordered; what is taken is a certificate of
//! these names and this key; and what is told is short.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use acme::challenge::Solvers;
use acme::challenge::http::HttpSolver;
use acme::engine::{AcmeConfig, AcmeIssuer};
use acme::storage::dir::Directory;
use acme::{CertificateId, Failure, IssueRequest, Issuer, Names, PrivateKeyPem};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Response, StatusCode};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;

use super::choice::Chosen;
use super::objects::change_one;
use crate::rig::config;
use e2e::testca::TestCa;

/// No order takes more requests.
const REQUESTS: usize = 400;
/// How long an order is followed, and how long it may take to give it up.
const PATIENCE: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(10);
/// Nothing that is told is longer.
const LONGEST: usize = 64 << 10;
const ORDERED: [&str; 2] = ["a.example.com", "b.example.com"];

const STATUSES: [u16; 12] = [200, 201, 202, 204, 301, 400, 403, 404, 409, 429, 500, 503];
const HEADERS: [&str; 7] = [
    "retry-after",
    "location",
    "link",
    "replay-nonce",
    "content-type",
    "content-encoding",
    "cache-control",
];
const VALUES: [&str; 12] = [
    "",
    "0",
    "1",
    "-1",
    "99999999999999999999",
    "Fri, 31 Dec 9999 23:59:59 GMT",
    "Thu, 01 Jan 1970 00:00:00 GMT",
    "http://127.0.0.1:1/",
    "<http://127.0.0.1:1/>;rel=\"alternate\", <>;rel=\"help\"",
    "not a nonce!",
    "application/problem+json",
    "gzip",
];

/// Proves nothing but what was ordered.
struct Watched;

#[async_trait]
impl HttpSolver for Watched {
    async fn present(&self, name: &str, token: &str, _: &str) -> Result<(), Failure> {
        assert!(
            ORDERED.contains(&name),
            "{name} is proven, which was not ordered"
        );
        assert!(
            token.len() >= 16 && !token.contains('/'),
            "{token:?} is a token"
        );
        Ok(())
    }

    async fn cleanup(&self, _: &str, _: &str) {}
}

/// An answer as the bytes have it.
fn mangled(answer: Response<Bytes>, chosen: &mut Chosen) -> Response<Bytes> {
    let (mut parts, mut body) = answer.into_parts();
    for _ in 0..chosen.below(4) {
        match chosen.below(6) {
            0 => parts.status = StatusCode::from_u16(*chosen.of(&STATUSES)).expect("a status"),
            1 => {
                let name = *chosen.of(&HEADERS);
                let value = *chosen.of(&VALUES);
                parts.headers.insert(name, value.parse().expect("a value"));
            }
            2 => {
                parts.headers.remove(*chosen.of(&HEADERS));
            }
            3 => body = Bytes::from(chosen.some(200)),
            4 if !body.is_empty() => {
                let mut bytes = body.to_vec();
                let at = chosen.below(256) * bytes.len() / 256;
                bytes[at] = chosen.byte();
                body = Bytes::from(bytes);
            }
            _ => {
                if let Ok(mut value) = serde_json::from_slice::<Value>(&body) {
                    change_one(&mut value, &Value::Null, &mut chosen.seed());
                    body = Bytes::from(value.to_string());
                }
            }
        }
    }
    parts.headers.remove("content-length");
    Response::from_parts(parts, body)
}

pub(super) fn run(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    let chosen = Mutex::new(Chosen::by(data));
    let folder = tempfile::tempdir().expect("a folder");
    runtime.block_on(async move {
        let ca = TestCa::start().await.expect("a CA");
        ca.mangle(Box::new(move |_, answer| {
            counted.fetch_add(1, Ordering::Relaxed);
            mangled(answer, &mut chosen.lock().expect("it has not failed"))
        }));
        let storage = Arc::new(Directory::open(folder.path().join("acme")).expect("a storage"));
        let solvers = Solvers {
            http: Some(Arc::new(Watched)),
            ..Solvers::default()
        };
        let timeout = Duration::from_secs(2);
        let config = AcmeConfig {
            solvers,
            timeout,
            attempt_timeout: PATIENCE,
            ..config(&ca.directory())
        };
        let issuer = match AcmeIssuer::open(config, storage).await {
            Ok(issuer) => issuer,
            Err(failure) => panic!("nothing was asked yet: {failure}"),
        };
        let names = Names::parse(ORDERED).expect("names");
        let request = IssueRequest::new(
            CertificateId::of("t", &names),
            names.clone(),
            Timestamp::now(),
        );
        let began = Instant::now();
        let ended = tokio::time::timeout(LIMIT, issuer.issue(&request)).await;
        match ended.unwrap_or_else(|_| panic!("no end after {:?}", began.elapsed())) {
            Ok(issued) => {
                assert_eq!(issued.names, names);
                assert!(issued.not_after > Timestamp::now(), "it has ended");
                let der = CertificateDer::from_pem_slice(issued.chain_pem.as_bytes()).expect("PEM");
                let key = PrivateKeyPem::new(issued.key_pem.expose().to_owned());
                assert!(
                    key.belongs_to(&der).expect("both can be read"),
                    "the key is another one"
                );
            }
            Err(failure) => {
                let told = failure.to_string();
                assert!(told.len() < LONGEST, "{} bytes are told", told.len());
                assert!(!told.contains("PRIVATE KEY-----"), "a key in {told}");
            }
        }
    });
    let requests = requests.load(Ordering::Relaxed);
    assert!(requests < REQUESTS, "{requests} requests for one order");
}
