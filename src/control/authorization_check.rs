//! Asks the authorization servers of an explanation, as Envoy would: a server that gives no answer
//! lets no request pass.

use std::net::SocketAddr;

use futures::future::join_all;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, TE};
use hyper::http::request::Builder;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::tasks::named;
use gatewright_core::translate::{AuthorizationServer, CheckProtocol, Question};
use gatewright_envoy::check_request;

/// The largest number of endpoints of a server that are asked.
const ASKED: usize = 8;
/// The maximum size of an answer by gRPC.
const ANSWER: usize = 1 << 20;
/// The gRPC method of Envoy's `ext_authz`.
const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";

type Body = Full<Bytes>;

/// Asks the servers of an explanation in JSON. The link of the first that gives no answer fails,
/// and is the last.
pub(crate) async fn checked(mut explanation: Value, question: &Question) -> Value {
    let Some(links) = explanation["links"].as_array_mut() else {
        return explanation;
    };
    for index in 0..links.len() {
        let Some(link) = links[index].as_object_mut() else {
            continue;
        };
        let server = link
            .remove("server")
            .and_then(|server| serde_json::from_value(server).ok());
        let Some(server) = server else { continue };
        let (ok, why) = verdict(&server, question).await;
        let text = link["text"].as_str().unwrap_or_default();
        let text = format!("{text}, {why}");
        link.insert("text".to_owned(), json!(text));
        link.insert("ok".to_owned(), json!(ok));
        if !ok {
            links.truncate(index + 1);
            break;
        }
    }
    explanation
}

/// Returns whether a server answers, and what is found, as the end of a sentence.
async fn verdict(server: &AuthorizationServer, question: &Question) -> (bool, String) {
    let asked = &server.endpoints[..server.endpoints.len().min(ASKED)];
    let each = asked.iter().map(|address| async move {
        match timeout(server.timeout, ask(server, *address, question)).await {
            Ok(answered) => answered.map_err(|why| format!("{address}: {why}")),
            Err(_) => Err(format!(
                "{address}: no answer within {} seconds",
                server.timeout.as_secs_f64()
            )),
        }
    });
    let silent: Vec<String> = join_all(each)
        .await
        .into_iter()
        .filter_map(Result::err)
        .collect();
    let count = silent.len();
    let text = silent.join("; ");
    match count {
        0 if server.tls => (
            true,
            "and accepts connections; its TLS was not tried".to_owned(),
        ),
        0 => (true, "and answers".to_owned()),
        _ if count == asked.len() => (
            false,
            format!(
                "and gives no answer ({text}): every request is answered 403, since nobody permits it"
            ),
        ),
        _ => (
            true,
            format!(
                "and answers; NOTE: not at each of its endpoints ({text}): requests to these are answered 403"
            ),
        ),
    }
}

/// Asks a server at one of its endpoints for its consent to a request.
async fn ask(
    server: &AuthorizationServer,
    address: SocketAddr,
    question: &Question,
) -> Result<(), String> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| error.to_string())?;
    if server.tls {
        return Ok(());
    }
    let to = &server.authority;
    match &server.protocol {
        CheckProtocol::Http { path, http2 } => {
            let request = Request::builder()
                .method(question.method.as_str())
                .header(CONTENT_LENGTH, "0");
            let answer = if *http2 {
                over_http2(
                    stream,
                    request.uri(format!("http://{to}{path}")),
                    Bytes::new(),
                )
                .await?
            } else {
                over_http1(stream, request.uri(path.as_str()).header(HOST, to)).await?
            };
            // Envoy takes these for the failure of a server, and every other status for its answer.
            if answer.status().is_server_error() {
                Err(format!("it answers {}", answer.status()))
            } else {
                Ok(())
            }
        }
        CheckProtocol::Grpc => {
            let request = Request::builder()
                .method(Method::POST)
                .uri(format!("http://{to}{CHECK}"));
            let request = request
                .header(CONTENT_TYPE, "application/grpc")
                .header(TE, "trailers");
            let message = framed(&check_request(
                &question.method,
                &question.host,
                &question.path,
            ));
            consent(over_http2(stream, request, message).await?).await
        }
    }
}

async fn over_http1(stream: TcpStream, request: Builder) -> Result<Response<Incoming>, String> {
    let request = request
        .body(Body::default())
        .map_err(|error| error.to_string())?;
    let (mut client, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| described(&error))?;
    // The connection ends with the client.
    tokio::spawn(named("authorization check", connection));
    client
        .send_request(request)
        .await
        .map_err(|error| described(&error))
}

async fn over_http2(
    stream: TcpStream,
    request: Builder,
    body: Bytes,
) -> Result<Response<Incoming>, String> {
    let request = request
        .body(Body::new(body))
        .map_err(|error| error.to_string())?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut client, connection) = handshake.map_err(|error| described(&error))?;
    tokio::spawn(named("authorization check", connection));
    client
        .send_request(request)
        .await
        .map_err(|error| described(&error))
}

/// An error with its cause.
fn described(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Returns whether an answer by gRPC is one: any consent or refusal, and no failure of the call.
async fn consent(answer: Response<Incoming>) -> Result<(), String> {
    let (parts, body) = answer.into_parts();
    if !parts.status.is_success() {
        return Err(format!("it answers {} and not by gRPC", parts.status));
    }
    let body = Limited::new(body, ANSWER)
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    match body
        .trailers()
        .and_then(status)
        .or_else(|| status(&parts.headers))
    {
        Some(status) if status == "0" => Ok(()),
        Some(status) => Err(format!(
            "it answers with the gRPC status {}",
            status.to_str().unwrap_or("?")
        )),
        None => Err("it does not answer by gRPC".to_owned()),
    }
}

fn status(fields: &HeaderMap) -> Option<axum::http::HeaderValue> {
    fields.get("grpc-status").cloned()
}

/// A message of gRPC: not compressed, with its length.
fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len())
        .expect("it has a URL")
        .to_be_bytes();
    [&[0], length.as_slice(), message].concat().into()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use gatewright_core::model::AUTH_TIMEOUT;

    fn server(endpoints: Vec<SocketAddr>, protocol: CheckProtocol) -> AuthorizationServer {
        let service = "default/guard:80".to_owned();
        let authority = "guard.default".to_owned();
        AuthorizationServer {
            service,
            authority,
            endpoints,
            protocol,
            tls: false,
            timeout: AUTH_TIMEOUT,
        }
    }

    fn http() -> CheckProtocol {
        CheckProtocol::Http {
            path: "/check/x".to_owned(),
            http2: false,
        }
    }

    fn question() -> Question {
        Question {
            path: "/x".to_owned(),
            ..Question::get(false, "a.example", 80)
        }
    }

    /// A server that says this to whoever connects, and its address.
    async fn saying(text: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut asked = [0; 4096];
                let _ = stream.read(&mut asked).await;
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        address
    }

    async fn found(protocol: CheckProtocol, endpoints: &[SocketAddr]) -> (bool, String) {
        verdict(&server(endpoints.to_vec(), protocol), &question()).await
    }

    #[tokio::test]
    async fn consent_and_refusal_are_answers() {
        for text in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert_eq!(
                found(http(), &[saying(text).await]).await,
                (true, "and answers".to_owned())
            );
        }
    }

    #[tokio::test]
    async fn everything_else_is_none() {
        let refusing = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port")
            .local_addr()
            .expect("an address");
        let failing = saying("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").await;
        for (address, protocol, expected) in [
            (refusing, http(), "refused"),
            (failing, http(), "it answers 503"),
            (saying("220 mail\r\n").await, http(), "HTTP"),
            (saying("").await, http(), "connection closed"),
            (
                saying("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await,
                CheckProtocol::Grpc,
                "gives no answer",
            ),
        ] {
            let (ok, text) = found(protocol, &[address]).await;
            assert!(!ok, "{text}");
            assert!(
                text.contains(expected) && text.contains(&address.to_string()),
                "{expected}: {text}"
            );
        }
    }

    #[tokio::test]
    async fn one_of_two_endpoints_is_a_note() {
        let refusing = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port")
            .local_addr()
            .expect("an address");
        let good = saying("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let (ok, text) = found(http(), &[refusing, good]).await;
        assert!(
            ok && text.contains("NOTE") && text.contains(&refusing.to_string()),
            "{text}"
        );
    }

    #[tokio::test]
    async fn the_link_of_a_silent_server_is_the_last() {
        let refusing = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port")
            .local_addr()
            .expect("an address");
        let silent = serde_json::to_value(server(vec![refusing], http())).expect("JSON");
        let links = json!([{"ok": true, "text": "tenant"}, {"ok": true, "text": "default/guard:80", "server": silent},
            {"ok": true, "text": "backend"}]);
        let checked = checked(json!({"links": links}), &question()).await;
        assert_eq!(
            checked["links"].as_array().map(Vec::len),
            Some(2),
            "{checked}"
        );
        assert_eq!(checked["links"][1]["ok"], json!(false));
        assert!(checked["links"][1].get("server").is_none(), "{checked}");
    }
}
