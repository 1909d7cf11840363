//! Liveness, readiness and metrics over TCP, for any client that reaches the port.
//!
//! Only metrics query the main loop, at most once a second: liveness and readiness are read from
//! memory, and metrics are cached.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use crate::admin::{AdminQuery, Asks, METRICS, live, put, typed};
use crate::bounded_listener;
use crate::heartbeat::Heartbeat;
use crate::server_tls::server_tls;
use crate::tasks::{blocking, joined};

/// The time for which the metrics are cached.
const FRESH: Duration = Duration::from_secs(1);
/// The timeout of a connection, including its single request and response.
const EXCHANGE: Duration = Duration::from_secs(30);
/// The timeout of the request headers.
const HEADERS: Duration = Duration::from_secs(5);
const BUFFER: usize = 16 << 10;
/// The interval at which the files of the certificate are read.
const READ_AGAIN: Duration = Duration::from_secs(10);

/// The readiness, as the main loop last set it. Clones share it.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<RwLock<Ready>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Ready {
    /// Ready, with notices for people.
    Yes(Vec<String>),
    /// Not ready, with the reasons.
    No(Vec<String>),
}

impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(RwLock::new(Ready::No(vec![
            "starting".to_owned(),
        ]))))
    }
}

impl Readiness {
    /// Sets the program ready; `lines` are notices for people.
    pub fn ready(&self, lines: Vec<String>) {
        self.set(Ready::Yes(lines));
    }

    /// Sets the program unready; `lines` are the reasons.
    pub fn waiting(&self, lines: Vec<String>) {
        self.set(Ready::No(lines));
    }

    fn set(&self, now: Ready) {
        let mut held = self.0.write().expect("nobody panics while holding it");
        if *held != now {
            *held = now;
        }
    }

    fn answer(&self) -> (StatusCode, String) {
        let (code, lines) = match &*self.0.read().expect("nobody panics while holding it") {
            Ready::Yes(lines) => (StatusCode::OK, [&["ok".to_owned()], &lines[..]].concat()),
            Ready::No(lines) => (StatusCode::SERVICE_UNAVAILABLE, lines.clone()),
        };
        (code, lines.join("\n") + "\n")
    }
}

/// The decision about a reader of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The reader is permitted.
    Allowed,
    /// The reader is not authenticated.
    Unknown,
    /// The reader is authenticated, but not permitted.
    Forbidden,
}

/// Authorizes readers of the metrics.
#[async_trait]
pub trait ReadMetrics: Send + Sync + 'static {
    /// Authorizes the bearer of a token.
    ///
    /// # Errors
    /// When no decision is possible now; the text is the reason.
    async fn may_read(&self, token: &str) -> Result<Verdict, String>;
}

/// The certificate of the port, in files that may be replaced.
#[derive(Clone, Debug)]
pub struct ProbesTls {
    /// A directory with `tls.crt` and `tls.key`.
    pub dir: PathBuf,
}

/// The server of the port.
pub struct Probes {
    /// The heartbeat, for liveness.
    pub heartbeat: Heartbeat,
    /// The readiness.
    pub readiness: Readiness,
    /// The channel for queries of the metrics.
    pub asks: Asks,
    /// The authorizer of readers of the metrics; `None` permits everybody.
    pub access: Option<Arc<dyn ReadMetrics>>,
    /// The certificate; `None` serves plain HTTP.
    pub tls: Option<ProbesTls>,
}

impl Probes {
    /// Serves until `stop`.
    ///
    /// # Errors
    /// When the certificate cannot be read at the start.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: watch::Receiver<bool>,
    ) -> Result<(), String> {
        let Self {
            heartbeat,
            readiness,
            asks,
            access,
            tls,
        } = self;
        let metrics = Arc::new(Metrics {
            asks,
            access,
            copy: Mutex::default(),
            asking: tokio::sync::Mutex::new(()),
        });
        let router = Router::new()
            .route("/metrics", get(read_metrics).with_state(metrics))
            .route("/livez", get(async move || live(&heartbeat)))
            .route("/readyz", get(async move || readiness.answer()));
        match tls {
            None => {
                bounded_listener::receive(listener, "probes", EXCHANGE, stop, |tcp| {
                    bounded_listener::serve_one(tcp, router.clone(), HEADERS, BUFFER)
                })
                .await;
            }
            Some(tls) => {
                let files = Arc::new(Files::read(tls.dir)?);
                bounded_listener::receive(listener, "probes", EXCHANGE, stop, |tcp| {
                    encrypted(tcp, files.clone(), router.clone())
                })
                .await;
            }
        }
        Ok(())
    }
}

async fn encrypted(tcp: TcpStream, files: Arc<Files>, router: Router) -> Result<(), String> {
    let config = files.clone().config(Instant::now()).await;
    let handshake = tokio::time::timeout(HEADERS, TlsAcceptor::from(config).accept(tcp)).await;
    let io = handshake
        .map_err(|_| "the TLS handshake took too long")?
        .map_err(|error| error.to_string())?;
    bounded_listener::serve_one(io, router, HEADERS, BUFFER).await
}

/// A certificate and its key, reloaded when they change.
struct Files {
    dir: PathBuf,
    held: Mutex<(Instant, Arc<ServerConfig>)>,
}

impl Files {
    fn read(dir: PathBuf) -> Result<Self, String> {
        let config = server_config(&dir)?;
        Ok(Self {
            dir,
            held: Mutex::new((Instant::now(), config)),
        })
    }

    /// Returns the present TLS configuration. Files that cannot be used leave it unchanged.
    async fn config(self: Arc<Self>, now: Instant) -> Arc<ServerConfig> {
        let (due, held) = {
            let mut held = self.held.lock().expect("nobody panics while holding it");
            let due = now.saturating_duration_since(held.0) >= READ_AGAIN;
            if due {
                held.0 = now;
            }
            (due, held.1.clone())
        };
        if !due {
            return held;
        }
        let dir = self.dir.clone();
        match joined(blocking("certificate of probes", move || server_config(&dir)).await) {
            Some(Ok(config)) => {
                self.held.lock().expect("nobody panics while holding it").1 = config.clone();
                config
            }
            Some(Err(error)) => {
                warn!("the certificate of probes and metrics is not replaced: {error}");
                held
            }
            None => held,
        }
    }
}

fn server_config(dir: &std::path::Path) -> Result<Arc<ServerConfig>, String> {
    fn read(name: &str, dir: &std::path::Path) -> Result<Vec<u8>, String> {
        let path = dir.join(name);
        std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    }
    server_tls(
        &read("tls.crt", dir)?,
        &read("tls.key", dir)?,
        rustls::DEFAULT_VERSIONS,
    )
    .map_err(|error| format!("tls.crt and tls.key of {}: {error}", dir.display()))
}

/// The cached metrics.
struct Metrics {
    asks: Asks,
    access: Option<Arc<dyn ReadMetrics>>,
    copy: Mutex<Option<(Instant, Arc<str>)>>,
    /// Held while the main loop is queried.
    asking: tokio::sync::Mutex<()>,
}

impl Metrics {
    /// Returns the cached metrics, and whether they are fresh.
    fn copy(&self, now: Instant) -> Option<(bool, Arc<str>)> {
        let copy = self.copy.lock().expect("nobody panics while holding it");
        let (at, text) = copy.as_ref()?;
        Some((now.saturating_duration_since(*at) < FRESH, text.clone()))
    }

    async fn text(&self) -> Result<String, StatusCode> {
        let copy = self.copy(Instant::now());
        if let Some((true, text)) = copy {
            return Ok(text.to_string());
        }
        let _turn = match (self.asking.try_lock(), copy) {
            (Ok(turn), _) => turn,
            // Another request queries the main loop already: the cached metrics are returned.
            (Err(_), Some((_, text))) => return Ok(text.to_string()),
            (Err(_), None) => self.asking.lock().await,
        };
        if let Some((true, text)) = self.copy(Instant::now()) {
            return Ok(text.to_string());
        }
        let text = put(&self.asks, AdminQuery::Metrics).await?;
        *self.copy.lock().expect("nobody panics while holding it") =
            Some((Instant::now(), text.as_str().into()));
        Ok(text)
    }
}

async fn read_metrics(State(metrics): State<Arc<Metrics>>, headers: HeaderMap) -> Response {
    if let Some(access) = &metrics.access {
        let token = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let verdict = match token.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(token) => access.may_read(token).await,
            None => Ok(Verdict::Unknown),
        };
        match verdict {
            Ok(Verdict::Allowed) => {}
            Ok(Verdict::Unknown) => {
                return (
                    StatusCode::UNAUTHORIZED,
                    "a valid bearer token is required\n",
                )
                    .into_response();
            }
            Ok(Verdict::Forbidden) => {
                return (
                    StatusCode::FORBIDDEN,
                    "the verb get on the non-resource URL /metrics is required\n",
                )
                    .into_response();
            }
            Err(why) => {
                return (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response();
            }
        }
    }
    typed(METRICS, metrics.text().await)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::mpsc;

    use super::*;
    use crate::admin::AdminRequest;

    struct Known;

    #[async_trait]
    impl ReadMetrics for Known {
        async fn may_read(&self, token: &str) -> Result<Verdict, String> {
            match token {
                "good" => Ok(Verdict::Allowed),
                "other" => Ok(Verdict::Forbidden),
                "away" => Err("the API server is away".to_owned()),
                _ => Ok(Verdict::Unknown),
            }
        }
    }

    async fn ask(address: std::net::SocketAddr, path: &str, token: Option<&str>) -> String {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let token = token.map_or(String::new(), |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{token}\r\n").as_bytes())
            .await
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        answer
    }

    #[tokio::test]
    async fn a_main_loop_that_is_busy_is_asked_once_and_probes_do_not_wait_for_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (asks, mut questions) = mpsc::channel::<AdminRequest>(64);
        let (_stopper, stop) = watch::channel(false);
        let readiness = Readiness::default();
        let heartbeat = Heartbeat::new(Instant::now());
        let probes = Probes {
            heartbeat,
            readiness: readiness.clone(),
            asks,
            access: Some(Arc::new(Known)),
            tls: None,
        };
        tokio::spawn(probes.serve(listener, stop));

        // The queries are not answered yet.
        let first = tokio::spawn(async move { ask(address, "/metrics", Some("good")).await });
        let question = questions.recv().await.expect("asked");
        assert!(
            ask(address, "/livez", None)
                .await
                .starts_with("HTTP/1.1 200")
        );
        assert!(
            ask(address, "/readyz", None)
                .await
                .contains("503 Service Unavailable")
        );
        readiness.ready(vec!["old news".to_owned()]);
        assert!(
            ask(address, "/readyz", None)
                .await
                .ends_with("ok\nold news\n")
        );

        question
            .answer
            .send("a 1\n".to_owned())
            .expect("somebody waits");
        assert!(first.await.expect("joined").ends_with("a 1\n"));
        // The main loop is queried once a second, whatever the number of requests.
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        tokio::spawn(async move {
            while let Some(question) = questions.recv().await {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = question.answer.send("a 2\n".to_owned());
            }
        });
        let started = Instant::now();
        for _ in 0..200 {
            assert!(
                ask(address, "/metrics", Some("good"))
                    .await
                    .contains("\r\n\r\na ")
            );
        }
        let most = started.elapsed().as_secs() as usize + 1;
        assert!(
            asked.load(Ordering::SeqCst) <= most,
            "{asked:?} within {most} s"
        );

        for (token, code) in [
            (None, "401"),
            (Some("bad"), "401"),
            (Some("other"), "403"),
            (Some("away"), "503"),
        ] {
            let answer = ask(address, "/metrics", token).await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {code}")),
                "{token:?}: {answer}"
            );
        }
    }
}
