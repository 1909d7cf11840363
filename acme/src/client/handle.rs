//! The HTTP client as `instant-acme` sees it: its trait, and the headers of answers, which that crate discards.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Response, StatusCode};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use super::{Answer, Exchange, Http, HttpError};

/// A handle of a shared [`Http`] that remembers its last exchange. Each order has its own.
#[derive(Clone)]
pub(crate) struct Handle {
    http: Arc<Http>,
    last: Arc<Mutex<Exchange>>,
}

impl Handle {
    pub(crate) fn new(http: Arc<Http>) -> Self {
        Self { http, last: Arc::default() }
    }

    /// Returns status and headers of the CA's last answer.
    pub(crate) fn last(&self) -> Exchange {
        self.last.lock().expect("nobody panics while holding it").clone()
    }

    async fn answer(self, method: Method, url: String, body: Bytes) -> Result<BytesResponse, HttpError> {
        if method == Method::GET && url == self.http.directory_url() {
            let (body, _) = self.http.directory_answer().await?;
            return Ok(Response::new(Full::new(body)).into());
        }
        if method == Method::HEAD {
            let nonce = self.http.nonce().await?;
            let response = Response::builder().header("replay-nonce", nonce).body(Full::<Bytes>::default());
            return Ok(response.expect("a nonce is a valid header: the pool keeps no other").into());
        }
        let jose = (method == Method::POST).then_some(body);
        let answer = self.http.send("order", method, &url, jose).await?;
        *self.last.lock().expect("nobody panics while holding it") = answer.exchange();
        Ok(understandable(answer))
    }
}

/// Makes an answer readable for `instant-acme`, which expects errors in JSON, and removes the nonce, which the pool has
/// already.
fn understandable(answer: Answer) -> BytesResponse {
    let failed = answer.status.is_client_error() || answer.status.is_server_error();
    let body = if failed && serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&answer.body).is_err()
    {
        // The text of an HTML page from a proxy, or an empty body, helps nobody; the status does.
        let detail = format!(
            "status {}{}",
            answer.status.as_u16(),
            answer.status.canonical_reason().map(|r| format!(" {r}")).unwrap_or_default()
        );
        let problem = serde_json::json!({ "detail": detail, "status": answer.status.as_u16() });
        Bytes::from(problem.to_string())
    } else {
        answer.body
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response.headers_mut().remove("replay-nonce");
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
            this.answer(parts.method, parts.uri.to_string(), body).await.map_err(|e| Error::Other(Box::new(e)))
        })
    }
}
