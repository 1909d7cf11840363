//! Responses, and problems by their kind (RFC 8555, 6.7).

use super::*;

pub(super) type Answer = Response<Full<Bytes>>;

/// The type of a problem, as an error.
#[derive(Debug)]
pub(super) struct Kind(pub(super) &'static str);

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Kind {}

pub(super) fn reply(status: StatusCode, body: &Value) -> Answer {
    let body = if body.is_null() {
        Bytes::new()
    } else {
        Bytes::from(body.to_string())
    };
    let kind = if body_is_problem(status) {
        "application/problem+json"
    } else {
        "application/json"
    };
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(Full::new(body))
        .expect("a valid response")
}

/// Returns true for the status of an error, whose body is a problem document (RFC 8555, 6.7).
pub(super) fn body_is_problem(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

pub(super) fn problem(status: u16, kind: &str, detail: &str) -> Answer {
    let body = json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail, "status": status });
    reply(StatusCode::from_u16(status).expect("a status"), &body)
}

pub(super) fn with(mut answer: Answer, header: &'static str, value: &str) -> Answer {
    answer
        .headers_mut()
        .insert(header, value.parse().expect("a valid header"));
    answer
}
