//! The admin socket: serves queries to the running program. Only users with access to its private
//! directory can connect.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header as field};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::authorization_check::checked;
use crate::heartbeat::Heartbeat;
use crate::history::HistoryQuery;
use crate::host_query::HostQuery;
use crate::status_query::{Parameters, StatusQuery};
use crate::visibility::Visibility;
use gatewright_core::model::Transport;
use gatewright_core::ownership::Ownable;
use gatewright_core::translate::Question;

const LIMIT: Duration = Duration::from_secs(30);
/// The maximum size of an answer: 50,000 objects with their conditions fit.
const ANSWER: usize = 512 << 20;

/// A query to the task that owns the state.
pub struct AdminRequest {
    /// The query.
    pub what: AdminQuery,
    /// The channel for the answer.
    pub answer: oneshot::Sender<String>,
}

/// A query.
#[derive(Clone, Debug)]
pub enum AdminQuery {
    /// Statuses, in JSON.
    Status(StatusQuery),
    /// The hostnames with what answers and what is wrong, in JSON.
    Hosts(HostQuery),
    /// The history of changes, in JSON.
    History(HistoryQuery, Visibility),
    /// The chain for a URL, in JSON.
    Explain(Question),
    /// The state of each Envoy, in JSON.
    Clients,
    /// The owners of hostnames and ports on addresses that namespaces share, in JSON.
    Owners(Visibility),
    /// A request to remove an entry from that record.
    Release(Ownable),
    /// The certificates that no issuer of ours renews, in JSON.
    BroughtCertificates(Visibility),
    /// The metrics, in OpenMetrics text.
    Metrics,
    /// The readiness: `true`, with notices for people on further lines; `false`; or the list of
    /// what is pending.
    Ready,
}

/// The reason for which the running program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The socket does not exist, or no program listens.
    #[error("no gatewright answers at {}: start `gatewright standalone`, or say --state-dir or --admin ({why})", path.display())]
    Connect {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the connection.
        why: std::io::Error,
    },
    /// The socket belongs to another user.
    #[error("the gatewright at {} is another user's: run this as the user who runs it ({why})", path.display())]
    Denied {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the connection.
        why: std::io::Error,
    },
    /// The HTTP exchange failed.
    #[error("the gatewright at {} does not answer: {why}; see its log, or name another by --state-dir or --admin", path.display())]
    Exchange {
        /// The path of the socket.
        path: PathBuf,
        /// The description of the error.
        why: String,
    },
    /// The program rejected the query; the text is the reason.
    #[error("{0}")]
    Refused(String),
}

impl AdminError {
    /// Returns whether there was no answer, so that the state of the program is unknown.
    pub fn is_unanswered(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

pub(crate) type Asks = mpsc::Sender<AdminRequest>;

/// Serves the admin socket, with the routes of `others`, until `stop`.
///
/// # Errors
/// When the socket cannot be created.
pub async fn serve(
    path: &Path,
    asks: Asks,
    heartbeat: Heartbeat,
    others: Router,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let router = Router::new()
        .route("/status", get(status))
        .route(
            "/debug/xds",
            get(|State(asks): State<Asks>| async move {
                typed(JSON, put(&asks, AdminQuery::Clients).await)
            }),
        )
        .route(
            "/metrics",
            get(|State(asks): State<Asks>| async move {
                typed(METRICS, put(&asks, AdminQuery::Metrics).await)
            }),
        )
        .route(
            "/certs/brought",
            get(|State(asks): State<Asks>| async move {
                typed(
                    JSON,
                    put(
                        &asks,
                        AdminQuery::BroughtCertificates(Visibility::Everything),
                    )
                    .await,
                )
            }),
        )
        .route("/livez", get(async move || live(&heartbeat)))
        .route("/readyz", get(ready))
        .route("/explain", get(explain))
        .route("/history", get(history))
        .route("/hosts", get(hosts))
        .route(
            "/owners",
            get(|State(asks): State<Asks>| async move {
                typed(
                    JSON,
                    put(&asks, AdminQuery::Owners(Visibility::Everything)).await,
                )
            }),
        )
        .route("/owners/release", post(release))
        .with_state(asks)
        .merge(others);
    let stopped = async move {
        // An error means that the sender was dropped.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    axum::serve(listener, router)
        .with_graceful_shutdown(stopped)
        .await
}

const JSON: &str = "application/json";
pub(crate) const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) async fn put(asks: &Asks, what: AdminQuery) -> Result<String, StatusCode> {
    let (sender, answer) = oneshot::channel();
    asks.send(AdminRequest {
        what,
        answer: sender,
    })
    .await
    .map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    answer.await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

pub(crate) fn typed(kind: &'static str, answer: Result<impl IntoResponse, StatusCode>) -> Response {
    answer
        .map(|text| ([(field::CONTENT_TYPE, kind)], text))
        .into_response()
}

/// Answers the liveness probe: whether the main loop runs. The main loop is not queried itself, so
/// that a long queue causes no restart.
pub(crate) fn live(heartbeat: &Heartbeat) -> Response {
    match heartbeat.hangs(Instant::now()) {
        None => "ok\n".into_response(),
        Some(age) => {
            let text = format!(
                "the main loop has been blocked for {} seconds\n",
                age.as_secs()
            );
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

async fn ready(State(asks): State<Asks>) -> Response {
    match put(&asks, AdminQuery::Ready).await.as_deref() {
        Ok("true") => "ok\n".into_response(),
        // The notices for people follow.
        Ok(text) if text.starts_with("true\n") => format!("ok\n{}\n", &text[5..]).into_response(),
        Ok("false") | Err(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "not everything is acknowledged\n".to_owned(),
        )
            .into_response(),
        Ok(waiting) => (StatusCode::SERVICE_UNAVAILABLE, format!("{waiting}\n")).into_response(),
    }
}

/// A URL that is asked about, as a person writes it, with the rest of the request.
#[derive(Clone, Debug, Deserialize)]
pub struct AskedUrl {
    /// The URL.
    pub url: String,
    /// The method.
    pub method: String,
    /// The protocol of an upgrade.
    pub upgrade: Option<String>,
    /// Lines `NAME: VALUE`; without the field the headers are not known.
    pub headers: Option<String>,
    /// The address of the client.
    pub client: Option<IpAddr>,
}

impl AskedUrl {
    /// Parses it.
    ///
    /// # Errors
    /// When Envoy could not serve such a URL, or a header is none.
    pub fn question(self) -> Result<Question, String> {
        let Self {
            url,
            method,
            upgrade,
            headers,
            client,
        } = self;
        let headers = headers.map(|lines| lines.lines().map(given_header).collect());
        Ok(Question {
            upgrade,
            client,
            headers: headers.transpose()?,
            ..question(&url, &method)?
        })
    }
}

/// The name in lower case, and the value of a header.
fn given_header(line: &str) -> Result<(String, String), String> {
    let (name, value) = line
        .split_once(':')
        .filter(|(name, _)| header::HeaderName::from_bytes(name.as_bytes()).is_ok())
        .ok_or_else(|| format!("{line:?}: expected NAME:VALUE of a header"))?;
    Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
}

#[derive(Deserialize)]
struct Released {
    what: String,
}

async fn release(State(asks): State<Asks>, Query(released): Query<Released>) -> Response {
    let what = match Ownable::named(&released.what) {
        Ok(what) => what,
        Err(text) => return (StatusCode::BAD_REQUEST, text).into_response(),
    };
    match put(&asks, AdminQuery::Release(what)).await {
        Ok(text) if text.is_empty() => ().into_response(),
        Ok(text) => (StatusCode::CONFLICT, text).into_response(),
        Err(status) => status.into_response(),
    }
}

async fn status(State(asks): State<Asks>, Query(asked): Query<Parameters>) -> Response {
    match StatusQuery::try_from(asked) {
        Ok(query) => typed(JSON, put(&asks, AdminQuery::Status(query)).await),
        Err(text) => (StatusCode::BAD_REQUEST, text).into_response(),
    }
}

async fn history(State(asks): State<Asks>, Query(query): Query<HistoryQuery>) -> Response {
    let query = AdminQuery::History(query, Visibility::Everything);
    typed(JSON, put(&asks, query).await)
}

async fn hosts(State(asks): State<Asks>, Query(query): Query<HostQuery>) -> Response {
    typed(JSON, put(&asks, AdminQuery::Hosts(query)).await)
}

async fn explain(State(asks): State<Asks>, Query(asked): Query<AskedUrl>) -> Response {
    match asked.question() {
        Ok(question) => {
            let explanation = match put(&asks, AdminQuery::Explain(question.clone())).await {
                Ok(text) => {
                    serde_json::from_str(&text).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
                }
                Err(status) => Err(status),
            };
            match explanation {
                Ok(explanation) => {
                    typed(JSON, Ok(checked(explanation, &question).await.to_string()))
                }
                Err(status) => status.into_response(),
            }
        }
        Err(text) => (StatusCode::BAD_REQUEST, text).into_response(),
    }
}

/// Parses a URL into a question.
///
/// # Errors
/// When Envoy could not serve such a URL.
pub(super) fn question(url: &str, method: &str) -> Result<Question, String> {
    let uri: hyper::Uri = url
        .parse()
        .map_err(|error| format!("{url:?} is no URL: {error}"))?;
    let (tls, bare) = match uri.scheme_str() {
        Some("https" | "tls") => (true, None),
        Some("http") => (false, None),
        Some("tcp") => (false, Some(Transport::Tcp)),
        Some("udp") => (false, Some(Transport::Udp)),
        _ => {
            return Err(format!(
                "{url:?}: expected https://HOST/, http://HOST/, or tls://, tcp:// or udp://HOST:PORT"
            ));
        }
    };
    let host = uri
        .host()
        .filter(|host| !host.is_empty())
        .ok_or_else(|| format!("{url:?} has no host"))?;
    let port = match uri.port_u16() {
        Some(port) => port,
        None if bare.is_some() => return Err(format!("{url:?} has no port")),
        None if tls => 443,
        None => 80,
    };
    // Of an address that listeners are bound to, only these count.
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
    Ok(Question {
        bare,
        address: address.filter(|_| bare.is_some()),
        path: uri.path().to_owned(),
        query: uri.query().map(str::to_owned),
        method: method.to_owned(),
        ..Question::get(tls, host.to_ascii_lowercase(), port)
    })
}

/// Sends a query (GET) to the running program.
///
/// # Errors
/// When no program runs, or it rejects the query.
pub async fn ask(socket: &Path, path_and_query: &str) -> Result<String, AdminError> {
    exchange(socket, Method::GET, path_and_query).await
}

/// Sends a command (POST) to the running program.
///
/// # Errors
/// When no program runs, or it rejects the command.
pub async fn tell(socket: &Path, path_and_query: &str) -> Result<String, AdminError> {
    exchange(socket, Method::POST, path_and_query).await
}

async fn exchange(
    socket: &Path,
    method: Method,
    path_and_query: &str,
) -> Result<String, AdminError> {
    let work = async {
        let stream = UnixStream::connect(socket).await.map_err(|why| {
            let path = socket.to_path_buf();
            match why.kind() {
                std::io::ErrorKind::PermissionDenied => AdminError::Denied { path, why },
                _ => AdminError::Connect { path, why },
            }
        })?;
        let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error, socket))?;
        let request = Request::builder()
            .method(method)
            .uri(path_and_query)
            .header(header::HOST, "admin")
            .header(header::CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| failed(&error, socket))?;
        let exchange = async {
            let answer = client
                .send_request(request)
                .await
                .map_err(|error| failed(&error, socket))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER)
                .collect()
                .await
                .map_err(|error| failed(&error, socket))?;
            let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            if status.is_success() {
                Ok(text)
            } else {
                Err(AdminError::Refused(if text.is_empty() {
                    status.to_string()
                } else {
                    text
                }))
            }
        };
        // Errors of the connection after the answer are ignored.
        let (answer, _) = tokio::join!(exchange, connection);
        answer
    };
    timeout(LIMIT, work)
        .await
        .map_err(|_| failed(&format!("no answer within {LIMIT:?}"), socket))?
}

fn failed(why: &dyn std::fmt::Display, socket: &Path) -> AdminError {
    AdminError::Exchange {
        path: socket.to_path_buf(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error of a query when the socket gives no answer.
    async fn said(socket: &Path) -> String {
        let error = ask(socket, "/status").await.expect_err("nobody answers");
        assert!(error.is_unanswered());
        error.to_string()
    }

    #[tokio::test]
    async fn a_missing_answer_is_reported_with_the_socket_and_the_remedy() {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("admin.sock");
        let place = socket.display().to_string();
        let nobody = said(&socket).await;
        assert!(
            nobody.starts_with(&format!("no gatewright answers at {place}: ")),
            "{nobody}"
        );
        let listener = UnixListener::bind(&socket).expect("bound");
        let other = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"220 mail\r\n").await;
            }
        });
        let another = said(&socket).await;
        assert!(
            another.starts_with(&format!("the gatewright at {place} does not answer: ")),
            "{another}"
        );
        assert!(
            [nobody, another]
                .iter()
                .all(|text| text.contains("--admin"))
        );
        other.abort();
    }

    #[test]
    fn a_url_is_taken_apart() {
        let asked = question("https://Shop.example.org:8443/a?b", "GET").expect("a URL");
        assert!(asked.tls, "https is TLS");
        assert_eq!(&*asked.host, "shop.example.org", "the host is read");
        assert_eq!(asked.port, 8443, "the port is read");
        assert_eq!(&*asked.path, "/a", "the path is read");
        assert_eq!(
            question("http://a.example.org", "GET").expect("a URL").port,
            80
        );
        assert!(question("shop.example.org", "GET").is_err());
        let bare = question("tcp://192.0.2.1:5432", "GET").expect("a URL");
        assert_eq!(bare.bare, Some(Transport::Tcp));
        assert_eq!(bare.address, "192.0.2.1".parse().ok());
        assert!(question("udp://a.example.org", "GET").is_err(), "no port");
    }
}
