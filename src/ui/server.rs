//! The server of the page: its files, the answers to what it asks, and the stream of what changes.
//! Only who has the cookie is answered, and nothing is written.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use futures::stream::{self, Stream, StreamExt};
use gatewright_control::{AskedUrl, HostsAnswer};
use gatewright_core::statuses::Selection;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::sync::broadcast::error::RecvError;

use super::feed::{Feed, Message};
use super::page;
use super::session::{Refusal, Session};
use super::source::{Answer, Source};
use crate::tasks;

/// The most connections: a browser has six to a server.
const CONNECTIONS: usize = 64;
/// The most time for the headers of a request, and between two requests.
const HEADERS: Duration = Duration::from_secs(30);
/// The most bytes of the headers.
const BUFFER: usize = 32 << 10;

/// The headers of every response: nothing of another site is loaded, no other page shows this one,
/// and nothing stays in a cache.
const SAFE: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
];

/// What requests are answered from.
pub(super) struct Server {
    pub(super) session: Session,
    pub(super) source: Source,
    pub(super) feed: Feed,
}

type Shared = State<Arc<Server>>;

/// Serves connections until it is dropped.
pub(super) async fn serve(listener: TcpListener, server: Arc<Server>) -> Result<()> {
    let router = router(server);
    let seats = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let seat = seats.clone().acquire_owned().await?;
        let (stream, _) = listener.accept().await?;
        // A change is a small segment, that waits for no acknowledgement of another. A connection
        // that is closed already is noticed below.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        tasks::spawn("connection of a browser", async move {
            let _seat = seat;
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS)
                .max_buf_size(BUFFER);
            // A browser that closes a connection is no news.
            let _ = builder
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn router(server: Arc<Server>) -> Router {
    let path = server.session.path();
    let mut own = Router::new()
        .route(&format!("{path}api/about"), get(about))
        .route(&format!("{path}api/certificates"), get(certificates))
        .route(&format!("{path}api/envoys"), get(envoys))
        .route(&format!("{path}api/errors"), get(errors))
        .route(&format!("{path}api/events"), get(events))
        .route(&format!("{path}api/explain"), get(explain))
        .route(&format!("{path}api/history"), get(history))
        .route(&format!("{path}api/owners"), get(owners))
        .route(&format!("{path}api/policies"), get(policies))
        .route(&format!("{path}api/status"), get(status));
    for file in &page::FILES {
        own = own.route(
            &format!("{path}{}", file.name),
            get(move || async move { ([(header::CONTENT_TYPE, file.kind)], file.text) }),
        );
    }
    own.layer(middleware::from_fn_with_state(server.clone(), admitted))
        .route("/", get(exchange))
        .layer(middleware::from_fn_with_state(server.clone(), guarded))
        .with_state(server)
}

/// Refuses what is not meant for this server, and gives every response the headers that keep it
/// safe.
async fn guarded(State(server): Shared, request: Request, next: Next) -> Response {
    let is_meant = if request.uri().path() == "/" {
        // A link to the first page may be anywhere.
        server.session.is_host(request.headers())
    } else {
        server.session.is_meant(request.headers())
    };
    let mut response = match is_meant {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(refusal),
    };
    for (name, value) in SAFE {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

async fn admitted(State(server): Shared, request: Request, next: Next) -> Response {
    match server.session.admits(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(refusal),
    }
}

fn refused(refusal: Refusal) -> Response {
    (StatusCode::FORBIDDEN, format!("{}\n", refusal.message())).into_response()
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
}

/// Exchanges the token for the cookie. The answer is a page that leads on to the path of the
/// session: after a redirect of a link that another page had, the browser would not send the
/// cookie.
async fn exchange(State(server): Shared, Query(Token { token }): Query<Token>) -> Response {
    match server.session.exchange(&token) {
        Ok(cookie) => {
            let leads_on = page::lead_on(&server.session.path());
            ([(header::SET_COOKIE, cookie)], Html(leads_on)).into_response()
        }
        Err(refusal) => refused(refusal),
    }
}

/// An answer as JSON; an error as its text.
fn answered(answer: Result<Answer>) -> Response {
    match answer {
        Ok(answer) => axum::Json(answer).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}\n")).into_response(),
    }
}

async fn about(State(server): Shared) -> Response {
    match server.source.about().await {
        Ok(about) => axum::Json(about).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}\n")).into_response(),
    }
}

async fn explain(State(server): Shared, Query(asked): Query<AskedUrl>) -> Response {
    answered(server.source.explain(asked).await)
}

#[derive(Deserialize)]
struct OfHost {
    host: String,
}

async fn history(State(server): Shared, Query(of): Query<OfHost>) -> Response {
    answered(server.source.history(of.host).await)
}

async fn errors(State(server): Shared, Query(of): Query<OfHost>) -> Response {
    answered(server.source.errors(of.host).await)
}

/// Answers with all conditions that are not as desired, and counts.
async fn status(State(server): Shared) -> Response {
    answered(server.source.status(Selection::default()).await)
}

async fn certificates(State(server): Shared) -> Response {
    answered(server.source.certificates().await)
}

async fn policies(State(server): Shared) -> Response {
    answered(server.source.policies().await)
}

async fn owners(State(server): Shared) -> Response {
    answered(server.source.owners().await)
}

async fn envoys(State(server): Shared) -> Response {
    answered(server.source.envoys().await)
}

/// Answers with all hostnames, and then with what changes.
async fn events(State(server): Shared) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (first, receiver) = server.feed.follow();
    let later = stream::unfold((server, receiver), |(server, mut receiver)| async move {
        let messages = match receiver.recv().await {
            Ok(message) => vec![message],
            // A page that is slower than the changes gets the whole again.
            Err(RecvError::Lagged(_)) => server.feed.whole(),
            Err(RecvError::Closed) => return None,
        };
        Some((stream::iter(messages), (server, receiver)))
    });
    let messages = stream::iter(first).chain(later.flatten());
    Sse::new(messages.map(|message| Ok(event(&message)))).keep_alive(KeepAlive::default())
}

fn event(message: &Message) -> Event {
    let (name, data) = match message {
        Message::Hosts(hosts) => ("hosts", json_of(hosts)),
        Message::Trouble(why) => ("trouble", json!(why).to_string()),
    };
    Event::default().event(name).data(data)
}

fn json_of(hosts: &HostsAnswer) -> String {
    serde_json::to_string(hosts).expect("strings and numbers")
}
