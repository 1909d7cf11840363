//! The HTTP client as `instant-acme` sees it: its trait, answers as it can read them, and the
//! headers that it discards.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::LOCATION;
use hyper::{Method, Request, Response, StatusCode};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use serde_json::Value;

use super::resource::{ANSWERED_CHALLENGE, AUTHORIZATION, ORDER, problem};
use super::{Answer, Exchange, Http, HttpError};

/// A handle of a shared [`Http`] that remembers its last exchange. Each order has its own.
#[derive(Clone)]
pub(crate) struct Handle {
    http: Arc<Http>,
    last: Arc<Mutex<Exchange>>,
    /// The resources of the order, by the URLs that the CA gave for them.
    resources: Arc<Mutex<BTreeMap<String, Part>>>,
}

/// A part of an order; any other URL is that of an order.
#[derive(Clone, Copy)]
enum Part {
    Authorization,
    Challenge,
    Certificate,
}

impl Handle {
    pub(crate) fn new(http: Arc<Http>) -> Self {
        Self {
            http,
            last: Arc::default(),
            resources: Arc::default(),
        }
    }

    /// Returns status and headers of the CA's last answer; those of no answer if the last request
    /// got none.
    pub(crate) fn last(&self) -> Exchange {
        self.last
            .lock()
            .expect("nobody panics while holding it")
            .clone()
    }

    fn set_last(&self, exchange: Exchange) {
        *self.last.lock().expect("nobody panics while holding it") = exchange;
    }

    async fn answer(
        self,
        method: Method,
        url: String,
        body: Bytes,
    ) -> Result<BytesResponse, HttpError> {
        if method == Method::GET && url == self.http.directory_url() {
            let (body, _) = self.http.directory_answer().await?;
            return Ok(Response::new(Full::new(body)).into());
        }
        if method == Method::HEAD {
            let nonce = self.http.nonce().await?;
            let response = Response::builder()
                .header("replay-nonce", nonce)
                .body(Full::<Bytes>::default());
            return Ok(response
                .expect("a nonce is a valid header: the pool keeps no other")
                .into());
        }
        self.set_last(Exchange::default());
        let jose = (method == Method::POST).then_some(body);
        let answer = self.http.send("order", method, &url, jose).await?;
        let exchange = answer.exchange();
        self.set_last(exchange.clone());
        let body = self.readable(&url, &answer)?;
        Ok(understandable(answer, body, exchange.location))
    }

    /// Returns the body of an answer as `instant-acme` can read it.
    fn readable(&self, url: &str, answer: &Answer) -> Result<Bytes, HttpError> {
        if answer.status.is_redirection() {
            return Err(HttpError::Status {
                url: url.to_owned(),
                status: answer.status.as_u16(),
            });
        }
        if !answer.status.is_success() {
            return Ok(problem(answer.status, &answer.body).to_string().into());
        }
        let mut resources = self
            .resources
            .lock()
            .expect("nobody panics while holding it");
        let read = match resources.get(url) {
            Some(Part::Certificate) => return Ok(answer.body.clone()),
            // The CA has taken the answer, whatever it says about it.
            Some(Part::Challenge) => ANSWERED_CHALLENGE
                .read(&answer.body, url)
                .or_else(|_| ANSWERED_CHALLENGE.read(b"{}", url))?,
            Some(Part::Authorization) => AUTHORIZATION.read(&answer.body, url)?,
            None => ORDER.read(&answer.body, url)?,
        };
        let challenges = read["challenges"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|challenge| &challenge["url"]);
        let parts = challenges.map(|url| (url, Part::Challenge));
        let parts = parts.chain(
            read["authorizations"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|url| (url, Part::Authorization)),
        );
        let parts = parts.chain([(&read["certificate"], Part::Certificate)]);
        resources
            .extend(parts.filter_map(|(url, part)| Some((Value::as_str(url)?.to_owned(), part))));
        Ok(read.to_string().into())
    }
}

/// Makes an answer for `instant-acme`, without the nonce, which the pool has already.
fn understandable(answer: Answer, body: Bytes, location: Option<String>) -> BytesResponse {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response.headers_mut().remove("replay-nonce");
    if let Some(location) = location.and_then(|url| url.parse().ok()) {
        response.headers_mut().insert(LOCATION, location);
    }
    if answer.status == StatusCode::NO_CONTENT {
        *response.status_mut() = StatusCode::OK;
    }
    response.into()
}

impl HttpClient for Handle {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let this = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            this.answer(parts.method, parts.uri.to_string(), body)
                .await
                .map_err(|e| Error::Other(Box::new(e)))
        })
    }
}
