//! A provider of OpenID Connect whose answers a test chooses. It speaks HTTP without TLS; browsers
//! reach it through a Gateway.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::http_server::serve;

/// The code that it gives to each login.
pub const CODE: &str = "canari-code";

/// A running provider; gone on drop.
#[derive(Debug)]
pub struct ScriptedProvider {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    /// Status, content type and body of the token endpoint.
    answer: (u16, String, Bytes),
    /// True if it shows a page with a link before it sends a browser back.
    asks: bool,
    /// The credentials and forms of the requests for tokens.
    asked: Vec<(String, String)>,
}

impl ScriptedProvider {
    /// Starts one that knows everybody.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State {
            answer: (200, String::new(), Bytes::new()),
            asks: false,
            asked: Vec::new(),
        }));
        let shared = state.clone();
        let respond = move |request| answer(request, shared.clone());
        let accepting = tokio::spawn(serve(listener, respond));
        let provider = Self {
            address,
            state,
            accepting,
        };
        provider.gives(&json!({}));
        Ok(provider)
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives tokens from now on, with these fields in place of its own.
    pub fn gives(&self, fields: &Value) {
        let mut tokens = json!({"access_token": "canari-access", "id_token": "canari-id",
            "refresh_token": "canari-refresh", "token_type": "Bearer", "expires_in": 300});
        for (field, value) in fields.as_object().into_iter().flatten() {
            tokens[field] = value.clone();
        }
        self.answers(200, "application/json", &tokens.to_string());
    }

    /// Answers requests for tokens with this from now on.
    ///
    /// # Panics
    /// If a task of the provider panicked.
    pub fn answers(&self, status: u16, kind: &str, body: &str) {
        let body = Bytes::copy_from_slice(body.as_bytes());
        self.state.lock().expect("not poisoned").answer = (status, kind.to_owned(), body);
    }

    /// Shows a page before it sends a browser back from now on.
    ///
    /// # Panics
    /// If a task of the provider panicked.
    pub fn asks_first(&self) {
        self.state.lock().expect("not poisoned").asks = true;
    }

    /// Name and secret of the client, as they were sent, and the form of each request for tokens.
    ///
    /// # Panics
    /// If a task of the provider panicked.
    pub fn asked(&self) -> Vec<(String, String)> {
        self.state.lock().expect("not poisoned").asked.clone()
    }
}

impl Drop for ScriptedProvider {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() != "/token" {
        let asks = state.lock().expect("not poisoned").asks;
        return Ok(login(request.uri().query().unwrap_or_default(), asks));
    }
    let credentials = request.headers().get("authorization");
    let credentials = credentials.and_then(|value| value.to_str().ok());
    let credentials = credentials.and_then(|value| value.strip_prefix("Basic "));
    let credentials = credentials.and_then(|value| BASE64_STANDARD.decode(value).ok());
    let credentials = String::from_utf8_lossy(&credentials.unwrap_or_default()).into_owned();
    let form = request
        .into_body()
        .collect()
        .await
        .map(|body| body.to_bytes());
    let form = String::from_utf8_lossy(&form.unwrap_or_default()).into_owned();
    let mut state = state.lock().expect("not poisoned");
    state.asked.push((credentials, form));
    let (status, kind, body) = state.answer.clone();
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(status).expect("tests set statuses");
    let kind = kind.parse().expect("tests set media types");
    response.headers_mut().insert("content-type", kind);
    Ok(response)
}

/// Sends a browser back with a code, at once or by a link.
fn login(query: &str, asks: bool) -> Response<Full<Bytes>> {
    let mut fields = query.split('&').filter_map(|field| field.split_once('='));
    let [back, state] = ["redirect_uri", "state"].map(|name| {
        let value = fields.clone().find(|(field, _)| *field == name);
        value.map_or("", |(_, value)| value)
    });
    let client = fields.find(|(field, _)| *field == "client_id");
    let client = client.map_or("", |(_, value)| value);
    let back = percent_decode_str(back).decode_utf8_lossy();
    let target = format!("{back}?code={CODE}&state={state}");
    if asks {
        let page = format!("<body>client {client} <a id=on href=\"{target}\">on</a></body>");
        let mut response = Response::new(Full::new(page.into()));
        let html = "text/html".parse().expect("a media type");
        response.headers_mut().insert("content-type", html);
        return response;
    }
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::FOUND;
    let target = target.parse().expect("a URL of visible characters");
    response.headers_mut().insert("location", target);
    response
}
