//! `spec.externalAuth` of an AccessPolicy: requests that an authorization server permits. It is written
//! and asked as filter `ExternalAuth` of a route (GEP-1494), with more for a server by HTTP.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;

use serde::Deserialize;

use super::Setting;
use super::headers::FILTER;
use super::parts::at_most;
use super::provider::{WrittenBackend, backend};
use crate::cost::{Bytes, EDIT, REMOVAL, RuleSize, of_check};
use crate::gateway_api::httproutes as gw;
use crate::inputs::external_auth::{lower, read};
use crate::inputs::text::{Refused, edited_header};
use crate::inputs::trafficpolicy_value::time_or;
use crate::inputs::{AuthFilter, LocalRef, Unsupported};
use crate::model::{AuthProtocol, BackendId, CheckPath, ExternalAuth};

/// The time in which the server must answer, and its bounds.
const TIMEOUT: &str = "5s";
const TIMES: (&str, &str) = ("100ms", "10s");
/// The most headers of a consent that clients get.
const TO_CLIENTS: usize = 16;

/// The headers with URL, method and path of a request, which are set and removed.
const TOLD: u64 = 3;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenExternalAuth {
    protocol: gw::HttpRouteRulesFiltersExternalAuthProtocol,
    backend_ref: WrittenBackend,
    timeout: Option<String>,
    http: Option<WrittenHttp>,
    grpc: Option<WrittenGrpc>,
    forward_body: Option<WrittenBody>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenHttp {
    path: Option<String>,
    #[serde(default)]
    path_type: PathType,
    allowed_headers: Option<Vec<String>>,
    allowed_response_headers: Option<Vec<String>>,
    #[serde(default)]
    client_response_headers: Vec<String>,
}

/// What the path of the server is to that of the client.
#[derive(Clone, Copy, Default, Deserialize)]
enum PathType {
    #[default]
    Prefix,
    Exact,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenGrpc {
    allowed_headers: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenBody {
    max_size: i32,
}

impl Setting for ExternalAuth {
    type Written = WrittenExternalAuth;
    type Rules = Arc<AuthFilter>;

    fn read(written: WrittenExternalAuth, namespace: &Arc<str>) -> Result<Self::Rules, String> {
        let WrittenExternalAuth {
            protocol,
            backend_ref,
            timeout,
            http,
            grpc,
            forward_body,
        } = written;
        let (server, port) = backend("externalAuth.backendRef", namespace, backend_ref)?;
        let timeout = time_or("externalAuth.timeout", timeout, TIMEOUT, TIMES)?;
        let (http, extension) = http.map(divided).transpose()?.unzip();
        let filter = gw::HttpRouteRulesFiltersExternalAuth {
            backend_ref: gw::HttpRouteRulesFiltersExternalAuthBackendRef {
                group: None,
                kind: None,
                name: server.name.name.to_string(),
                namespace: Some(server.name.namespace.to_string()),
                port: Some(port.into()),
            },
            forward_body: forward_body.map(|WrittenBody { max_size }| {
                gw::HttpRouteRulesFiltersExternalAuthForwardBody {
                    max_size: Some(max_size),
                }
            }),
            grpc: grpc.map(|WrittenGrpc { allowed_headers }| {
                gw::HttpRouteRulesFiltersExternalAuthGrpc { allowed_headers }
            }),
            http,
            protocol,
        };
        let read = read(namespace, filter).map_err(|error| error.to_string())?;
        let read = read.map_err(|unsupported| match unsupported {
            Unsupported::Value(text) | Unsupported::Incompatible(text) => text,
        })?;
        Ok(Arc::new(AuthFilter {
            timeout,
            protocol: extended(read.protocol, extension.unwrap_or_default()),
            ..read
        }))
    }

    fn rehearsed(_: &Self::Rules) -> Result<(), (&'static str, &'static str)> {
        Err(("externalAuth", "requests would wait for the server"))
    }

    fn references(rules: &Self::Rules) -> Vec<&LocalRef> {
        vec![&rules.server]
    }

    fn backend(&self) -> Option<&BackendId> {
        Some(&self.server)
    }

    fn backend_mut(&mut self) -> Option<&mut BackendId> {
        Some(&mut self.server)
    }

    fn cost(&self, _: RuleSize) -> Bytes {
        let removals = self.replaced().count() as u64;
        let told = u64::from(self.is_told_url());
        of_check(&self.headers, &self.protocol)
            + FILTER * (u64::from(removals > 0).max(told) + told)
            + REMOVAL * removals
            + (EDIT + REMOVAL) * (TOLD * told)
    }
}

/// What the filter of a route does not have.
#[derive(Default)]
struct Extension {
    exact: Option<String>,
    to_clients: Vec<String>,
}

/// What the filter of a route has, and the rest.
fn divided(
    written: WrittenHttp,
) -> Result<(gw::HttpRouteRulesFiltersExternalAuthHttp, Extension), String> {
    let WrittenHttp {
        path,
        path_type,
        allowed_headers,
        allowed_response_headers,
        client_response_headers,
    } = written;
    let exact = match path_type {
        PathType::Prefix => None,
        PathType::Exact if path.as_deref().unwrap_or_default().is_empty() => {
            return Err("externalAuth.http.path: needed with pathType Exact".to_owned());
        }
        PathType::Exact => path.clone(),
    };
    let field = "externalAuth.http.clientResponseHeaders";
    at_most(field, TO_CLIENTS, client_response_headers.len())?;
    for name in &client_response_headers {
        edited_header(field, name).map_err(|Refused(why)| why)?;
    }
    let http = gw::HttpRouteRulesFiltersExternalAuthHttp {
        allowed_headers,
        allowed_response_headers,
        path,
    };
    let to_clients = lower(client_response_headers);
    Ok((http, Extension { exact, to_clients }))
}

fn extended(protocol: AuthProtocol, extension: Extension) -> AuthProtocol {
    match protocol {
        AuthProtocol::Grpc => AuthProtocol::Grpc,
        AuthProtocol::Http { path, answers, .. } => AuthProtocol::Http {
            path: extension.exact.map_or(path, CheckPath::Exact),
            answers,
            to_clients: extension.to_clients,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn told(asked: Value) -> Result<Arc<AuthFilter>, String> {
        let written = serde_json::from_value(asked).map_err(|error| error.to_string())?;
        ExternalAuth::read(written, &Arc::from("a"))
    }

    fn http(http: Value) -> Value {
        json!({"protocol": "HTTP", "backendRef": {"name": "auth", "port": 80}, "http": http})
    }

    #[test]
    fn it_is_read_as_the_filter_of_a_route_and_has_more() {
        let read = told(http(json!({"path": "/oauth2/auth", "pathType": "Exact",
            "allowedHeaders": ["Cookie"], "allowedResponseHeaders": ["X-User"],
            "clientResponseHeaders": ["Set-Cookie"]})))
        .expect("it is served");
        assert_eq!(read.timeout, Duration::from_secs(5), "the default");
        assert_eq!(read.server.name.to_string(), "a/auth");
        assert_eq!(
            read.protocol,
            AuthProtocol::Http {
                path: CheckPath::Exact("/oauth2/auth".into()),
                answers: vec!["x-user".into()],
                to_clients: vec!["set-cookie".into()],
            }
        );
        let grpc = json!({"protocol": "GRPC", "timeout": "250ms", "grpc": {"allowedHeaders": ["X-A"]},
            "backendRef": {"name": "auth", "namespace": "b", "port": 80}, "forwardBody": {"maxSize": 8}});
        let read = told(grpc).expect("it is served");
        assert_eq!(read.protocol, AuthProtocol::Grpc);
        assert_eq!(read.timeout, Duration::from_millis(250));
        assert_eq!(read.body, 8, "bytes of the body");
        assert_eq!(read.server.name.to_string(), "b/auth");
    }

    #[test]
    fn what_cannot_be_carried_out_is_told_with_its_field() {
        let mut late = http(json!({}));
        late["timeout"] = json!("1m");
        let mut both = http(json!({}));
        both["grpc"] = json!({});
        let mut zero = http(json!({}));
        zero["backendRef"]["port"] = json!(0);
        let many: Vec<String> = (0..17).map(|n| format!("x-{n}")).collect();
        for (asked, expected) in [
            (late, "externalAuth.timeout: 100ms to 10s"),
            (both, "externalAuth.grpc: not allowed with protocol HTTP"),
            (zero, "externalAuth.backendRef.port"),
            (
                http(json!({"pathType": "Exact"})),
                "externalAuth.http.path: needed with pathType Exact",
            ),
            (
                http(json!({"path": "check"})),
                "externalAuth.http.path: \"check\"",
            ),
            (
                http(json!({"clientResponseHeaders": ["Content-Length"]})),
                "where a message ends",
            ),
            (
                http(json!({"clientResponseHeaders": many})),
                "externalAuth.http.clientResponseHeaders: expected at most 16, found 17",
            ),
            (
                http(json!({"allowedHeaders": ["x-gw-scope"]})),
                "keeps hosts apart",
            ),
            (http(json!({"signIn": "https://a"})), "unknown field"),
        ] {
            let error = told(asked.clone()).expect_err("it is refused");
            assert!(error.contains(expected), "{asked}: {error}");
        }
    }
}
