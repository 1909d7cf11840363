//! Reading filter `ExternalAuth` of an HTTPRoute (GEP-1494), of a listener, and `externalAuth` of an
//! AccessPolicy, which is written in the same way.

use std::sync::Arc;
use std::time::Duration;

use super::schema::port;
use super::{LocalRef, ParseError, Unsupported, schema, text};
use crate::gateway_api::httproutes as gw;
use crate::model::{AUTH_TIMEOUT, AuthProtocol, CheckPath};

/// Settings of a filter of type `ExternalAuth`, or of `externalAuth` of an AccessPolicy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthFilter {
    /// The authorization server.
    pub server: LocalRef,
    /// The port of its Service.
    pub port: Option<u16>,
    /// Lower-case names of the request headers that are sent to the server.
    pub headers: Vec<String>,
    /// The most bytes of the request's body that are sent to the server.
    pub body: u32,
    /// The time in which the server must answer.
    pub timeout: Duration,
    /// The protocol of the server.
    pub protocol: AuthProtocol,
}

/// Reads the filter, or returns why it cannot be served: a rule whose filter cannot be carried out
/// lets no request pass.
pub(crate) fn read(
    namespace: &Arc<str>,
    filter: gw::HttpRouteRulesFiltersExternalAuth,
) -> Result<Result<AuthFilter, Unsupported>, ParseError> {
    let gw::HttpRouteRulesFiltersExternalAuth {
        backend_ref: r,
        forward_body,
        grpc,
        http,
        protocol,
    } = filter;
    let number = r
        .port
        .map(|number| port(number, "externalAuth.backendRef.port"))
        .transpose()?;
    let server = LocalRef::backend(namespace, r.group, r.kind, r.namespace, r.name);
    let body = u32::try_from(forward_body.and_then(|body| body.max_size).unwrap_or(0));
    let body = body
        .map_err(|_| ParseError::Schema("externalAuth.forwardBody.maxSize: negative".to_owned()))?;
    let (headers, protocol) = match protocol {
        gw::HttpRouteRulesFiltersExternalAuthProtocol::Grpc if http.is_some() => {
            return refuse("http: not allowed with protocol GRPC");
        }
        gw::HttpRouteRulesFiltersExternalAuthProtocol::Http if grpc.is_some() => {
            return refuse("grpc: not allowed with protocol HTTP");
        }
        gw::HttpRouteRulesFiltersExternalAuthProtocol::Grpc => (
            grpc.and_then(|grpc| grpc.allowed_headers),
            AuthProtocol::Grpc,
        ),
        gw::HttpRouteRulesFiltersExternalAuthProtocol::Http => {
            let none = gw::HttpRouteRulesFiltersExternalAuthHttp {
                allowed_headers: None,
                allowed_response_headers: None,
                path: None,
            };
            let http = http.unwrap_or(none);
            let path = http.path.unwrap_or_default();
            if !path.is_empty()
                && let Err(refused) = text::path("externalAuth.http.path", &path)
            {
                return Ok(Err(refused.into()));
            }
            let answers = http.allowed_response_headers.unwrap_or_default();
            let answers = schema::at_most("externalAuth.http.allowedResponseHeaders", 64, answers)?;
            if let Err(refused) = answers.iter().try_for_each(|name| check(name)) {
                return Ok(Err(refused.into()));
            }
            let path = path.trim_end_matches('/').to_owned();
            (
                http.allowed_headers,
                AuthProtocol::Http {
                    path: CheckPath::Prefix(path),
                    answers: lower(answers),
                    to_clients: Vec::new(),
                },
            )
        }
    };
    let headers = schema::at_most(
        "externalAuth.allowedHeaders",
        64,
        headers.unwrap_or_default(),
    )?;
    if let Err(refused) = headers
        .iter()
        .try_for_each(|name| text::told_header("externalAuth.allowedHeaders", name))
    {
        return Ok(Err(refused.into()));
    }
    Ok(Ok(AuthFilter {
        server,
        port: number,
        headers: lower(headers),
        body,
        timeout: AUTH_TIMEOUT,
        protocol,
    }))
}

fn refuse(text: &str) -> Result<Result<AuthFilter, Unsupported>, ParseError> {
    Ok(Err(Unsupported::Value(format!("externalAuth.{text}"))))
}

fn check(name: &str) -> Result<(), text::Refused> {
    text::edited_header("externalAuth.http.allowedResponseHeaders", name)
}

/// Lower-case names, sorted, since their order has no meaning.
pub(crate) fn lower(names: Vec<String>) -> Vec<String> {
    let mut names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(asked: Value) -> Result<AuthFilter, String> {
        let filter = serde_json::from_value(asked).expect("the shape is right");
        let read = read(&Arc::from("a"), filter).map_err(|error| error.to_string())?;
        read.map_err(|unsupported| match unsupported {
            Unsupported::Value(text) | Unsupported::Incompatible(text) => text,
        })
    }

    #[test]
    fn names_of_headers_have_no_case_and_no_order() {
        let read = told(
            json!({"protocol": "HTTP", "backendRef": {"name": "auth", "port": 80},
            "forwardBody": {"maxSize": 10},
            "http": {"path": "/check/", "allowedHeaders": ["X-B", "x-a", "x-b"], "allowedResponseHeaders": ["X-User"]}}),
        );
        let read = read.expect("it is served");
        assert_eq!(
            read.headers,
            vec!["x-a".to_owned(), "x-b".to_owned()],
            "names have one spelling and one order"
        );
        assert_eq!(read.body, 10, "the limit of the body is read");
        assert_eq!(
            read.protocol,
            AuthProtocol::Http {
                path: CheckPath::Prefix("/check".into()),
                answers: vec!["x-user".into()],
                to_clients: Vec::new(),
            }
        );
    }

    #[test]
    fn settings_that_could_bypass_the_check_are_refused() {
        fn http(http: Value) -> Value {
            json!({"protocol": "HTTP", "backendRef": {"name": "auth", "port": 80}, "http": http})
        }
        for (asked, expected) in [
            (http(json!({"path": "check"})), "must start with"),
            (http(json!({"path": "/a/../b"})), "must not contain"),
            (http(json!({"path": "/a b"})), "percent-encode"),
            (
                http(json!({"allowedHeaders": ["transfer-encoding"]})),
                "where a message ends",
            ),
            (
                http(json!({"allowedHeaders": ["x-gw-scope"]})),
                "keeps hosts apart",
            ),
            (
                http(json!({"allowedHeaders": ["a b"]})),
                "is no header name",
            ),
            (
                http(json!({"allowedResponseHeaders": ["Content-Length"]})),
                "where a message ends",
            ),
            (
                http(json!({"allowedResponseHeaders": ["x-forwarded-for"]})),
                "who the client is",
            ),
            (
                json!({"protocol": "GRPC", "backendRef": {"name": "auth", "port": 80}, "http": {}}),
                "not allowed with protocol GRPC",
            ),
            (
                json!({"protocol": "HTTP", "backendRef": {"name": "auth", "port": 80}, "grpc": {}}),
                "not allowed with protocol HTTP",
            ),
        ] {
            let text = told(asked.clone()).expect_err("it is refused");
            assert!(
                text.starts_with("externalAuth.") && text.contains(expected),
                "{asked}: {text}"
            );
        }
    }
}
