//! Answers HTTP-01 challenges where Envoy is not ours: any replica answers any challenge of a known
//! host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use acme::challenge::http::answer;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use dashmap::DashMap;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::manager::CertificateManager;
use crate::bounded_listener;
use gatewright_core::model::Hostname;
use gatewright_core::translate::{Asked, ChallengeAnswer};

/// The timeout of a connection: a request is a line, and so is its response.
const EXCHANGE: Duration = Duration::from_secs(10);
/// The buffer size, large enough for all headers that proxies add.
const BUFFER: usize = 64 << 10;

/// The source of the thumbprint that answers for a host.
pub trait Thumbprints: Send + Sync + 'static {
    /// Returns the thumbprint of a host, in lower case; `None` where the host is not ours.
    fn of(&self, host: &str) -> Option<Arc<str>>;
}

impl Thumbprints for CertificateManager {
    fn of(&self, host: &str) -> Option<Arc<str>> {
        self.thumbprint_of(host)
    }
}

/// Thumbprints, by the namespace that wants the host.
type ByNamespace = BTreeMap<Arc<str>, Arc<str>>;

/// The answers to challenges, as the engine gets them.
#[derive(Default)]
pub struct ThumbprintIndex(DashMap<Hostname, ByNamespace>);

impl ThumbprintIndex {
    /// Sets the answer for a host in a namespace.
    pub fn set(&self, asked: &Asked, answer: Option<&ChallengeAnswer>) {
        let Asked {
            hostname,
            namespace,
        } = asked;
        match answer {
            Some(ChallengeAnswer { thumbprint, .. }) => {
                let mut known = self.0.entry(hostname.clone()).or_default();
                known.insert(namespace.clone(), thumbprint.clone());
            }
            None => {
                self.0.remove_if_mut(hostname, |_, known| {
                    known.remove(namespace);
                    known.is_empty()
                });
            }
        }
    }
}

impl Thumbprints for ThumbprintIndex {
    fn of(&self, host: &str) -> Option<Arc<str>> {
        let host = Hostname::parse(host).ok()?;
        self.0.get(&host)?.values().next_back().cloned()
    }
}

/// Serves until `stop`.
pub async fn respond(
    listener: TcpListener,
    thumbprints: Arc<dyn Thumbprints>,
    stop: watch::Receiver<bool>,
) {
    let router = Router::new().fallback(challenge).with_state(thumbprints);
    bounded_listener::receive(listener, "HTTP-01", EXCHANGE, stop, |stream| {
        exchange(stream, router.clone())
    })
    .await;
}

/// Serves one request: a kept-alive connection would be closed in the middle of a later one.
async fn exchange(stream: TcpStream, router: Router) -> hyper::Result<()> {
    let service = TowerToHyperService::new(router);
    http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn challenge(
    State(thumbprints): State<Arc<dyn Thumbprints>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let host = host
        .rsplit_once(':')
        .filter(|(_, port)| port.parse::<u16>().is_ok())
        .map_or(host, |(host, _)| host);
    let body = thumbprints
        .of(&host.to_ascii_lowercase())
        .and_then(|thumbprint| answer(uri.path(), &thumbprint));
    match body {
        Some(body) => {
            let fields = [
                (header::CONTENT_TYPE, "text/plain"),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            ];
            (fields, body).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn ask(address: std::net::SocketAddr, host: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let question = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream
            .write_all(question.as_bytes())
            .await
            .expect("it reads");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .await
            .expect("it answers and closes");
        answer
    }

    #[tokio::test]
    async fn known_hosts_are_answered_for_and_no_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it has one");
        let (stopper, stop) = watch::channel(false);
        let thumbprint_index = Arc::new(ThumbprintIndex::default());
        let host = Hostname::parse("a.example.org").expect("a hostname");
        let asked = Asked {
            hostname: host,
            namespace: "t".into(),
        };
        thumbprint_index.set(
            &asked,
            Some(&ChallengeAnswer {
                port: 80,
                thumbprint: "thumb".into(),
            }),
        );
        let responder = tokio::spawn(respond(listener, thumbprint_index.clone(), stop));
        let path = "/.well-known/acme-challenge/0123456789abcdef";
        // A silent client does not delay others.
        let _silent = TcpStream::connect(address).await.expect("it listens");
        for host in ["a.example.org", "A.Example.org:80"] {
            let told = ask(address, host, path).await;
            assert!(
                told.starts_with("HTTP/1.1 200")
                    && told.ends_with("\r\n\r\n0123456789abcdef.thumb"),
                "{told}"
            );
            assert!(told.contains("connection: close"), "{told}");
        }
        for (host, path) in [("b.example.org", path), ("a.example.org", "/"), ("", path)] {
            assert!(
                ask(address, host, path).await.starts_with("HTTP/1.1 404"),
                "{host} {path}"
            );
        }
        thumbprint_index.set(&asked, None);
        assert!(
            ask(address, "a.example.org", path)
                .await
                .starts_with("HTTP/1.1 404")
        );
        stopper.send_replace(true);
        responder.await.expect("it ends");
    }
}
