//! The HTTP client for APIs of DNS providers: follows no redirects, is limited in time and size,
//! and uses TLS except on loopback and link-local addresses.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{HeaderMap, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use crate::client::Proxy;
use crate::client::connector::Connector;
use crate::denied_networks::DeniedNetworks;
use crate::tls_error::in_words;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const BODY_LIMIT: usize = 1024 * 1024;
/// Longest `Retry-After` that is obeyed.
const PATIENCE_LIMIT: Duration = Duration::from_secs(3600);

/// The endpoint of an API: scheme, host, port and a base path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    base: String,
    authority: String,
    path: String,
}

impl Endpoint {
    /// Parses a URL. Plain `http` is allowed for loopback addresses and link-local metadata
    /// services only, because requests carry credentials.
    pub fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| format!("{url:?} is not a URL"))?;
        let authority = uri
            .authority()
            .ok_or_else(|| format!("{url:?} has no host"))?;
        if authority.as_str().contains('@') {
            return Err(
                "a URL must not hold a user name or password; credentials have fields of their own"
                    .to_owned(),
            );
        }
        if uri.query().is_some() {
            return Err(format!("{url:?} must not have a query"));
        }
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if is_local(authority.host()) => {}
            Some("http") => {
                return Err(format!(
                    "{url:?} must be https: plain http is only for loopback and link-local addresses"
                ));
            }
            _ => return Err(format!("{url:?} must begin with https://")),
        }
        Ok(Self {
            base: url.trim_end_matches('/').to_owned(),
            authority: authority.as_str().to_owned(),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Returns the URL of a path below the endpoint; it begins with a slash and is encoded already.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Returns the `Host` of a request.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the base path; empty for the root.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

fn is_local(host: &str) -> bool {
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(IpAddr::V4(v4)) => v4.is_loopback() || v4.is_link_local(),
        // fd00:ec2::/32 has the metadata and pod identity services of EC2 and EKS.
        Ok(IpAddr::V6(v6)) => v6.is_loopback() || v6.segments()[..2] == [0xfd00, 0x0ec2],
        Err(_) => false,
    }
}

/// A complete answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// Parses `Retry-After` (RFC 9110, 10.2.3): seconds or a date.
    pub(crate) fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let wait = match text.parse() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => {
                let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
                SystemTime::from(date)
                    .duration_since(now)
                    .unwrap_or_default()
            }
        };
        Some(wait.min(PATIENCE_LIMIT))
    }
}

/// The client. Cheap to clone; clones share its connections.
#[derive(Clone)]
pub(crate) struct Http {
    /// Client for all other hosts: uses the proxy of the environment, if there is one.
    outside: Client<HttpsConnector<Connector>, Full<Bytes>>,
    /// Client for loopback and metadata services, which no proxy reaches.
    local: Client<HttpsConnector<Connector>, Full<Bytes>>,
    answer_limit: Duration,
}

impl Http {
    /// Makes a client that trusts the machine's roots and, if given, the certificates of a PEM
    /// bundle.
    pub(crate) fn new(ca_bundle: Option<&str>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        // A machine without roots is no error: the bundle may suffice, or the endpoint is local.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(bundle) = ca_bundle {
            for certificate in
                pki::bundle(bundle.as_bytes()).map_err(|why| format!("the CA bundle: {why}"))?
            {
                roots
                    .add(certificate)
                    .map_err(|error| format!("the CA bundle holds a bad certificate: {error}"))?;
            }
        }
        let tls =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .with_root_certificates(roots)
                .with_no_client_auth();
        fn client(
            proxy: Option<Proxy>,
            tls: &ClientConfig,
        ) -> Client<HttpsConnector<Connector>, Full<Bytes>> {
            let connector = HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http()
                .enable_http1()
                .wrap_connector(Connector::new(
                    proxy,
                    DeniedNetworks::default(),
                    CONNECT_LIMIT,
                ));
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(Duration::from_secs(30))
                .pool_max_idle_per_host(2)
                .build(connector)
        }
        Ok(Self {
            outside: client(Proxy::from_env(), &tls),
            local: client(None, &tls),
            answer_limit: ANSWER_LIMIT,
        })
    }

    /// Sets another time limit of an exchange.
    pub(crate) fn with_limit(mut self, limit: Duration) -> Self {
        self.answer_limit = limit;
        self
    }

    /// Sends a request and reads the answer. Errors are stable texts, without addresses that change
    /// and without headers.
    pub(crate) async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let host = request
            .uri()
            .authority()
            .map(|authority| authority.to_string())
            .unwrap_or_default();
        let agent = HeaderValue::from_static(concat!("gatewright/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        let client = if request.uri().host().is_some_and(is_local) {
            &self.local
        } else {
            &self.outside
        };
        let exchange = async {
            let answer = client
                .request(request)
                .await
                .map_err(|error| format!("{host}: {}", innermost(&error)))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, BODY_LIMIT)
                .collect()
                .await
                .map_err(|error| {
                    format!("{host}: reading the answer: {}", innermost(error.as_ref()))
                })?;
            Ok(Answer {
                status: head.status,
                headers: head.headers,
                body: body.to_bytes(),
            })
        };
        match timeout(self.answer_limit, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(format!(
                "{host}: no answer within {} s",
                self.answer_limit.as_secs_f32()
            )),
        }
    }
}

/// Returns the root cause, which a reader can act on ("connection refused", "invalid peer
/// certificate").
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    in_words(error.to_string())
}

/// All characters but the unreserved ones (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Percent-encodes all characters but the unreserved ones, as SigV4 requires.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_only() {
        for good in [
            "http://127.0.0.1:5000",
            "http://localhost/x",
            "http://169.254.169.254",
            "http://[fd00:ec2::23]/",
            "https://api.example/v4",
        ] {
            assert!(Endpoint::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "http://api.example",
            "ftp://127.0.0.1",
            "https://user:pw@api.example",
            "nonsense",
            "https://a/?b",
            "http://10.0.0.1",
        ] {
            let error = Endpoint::parse(bad).expect_err(bad);
            assert!(!error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn an_endpoint_keeps_its_path() {
        let endpoint = Endpoint::parse("https://proxy.example/cloudflare/").expect("a URL");
        assert_eq!(
            endpoint.url("/zones"),
            "https://proxy.example/cloudflare/zones"
        );
        assert_eq!(
            endpoint.authority(),
            "proxy.example",
            "the authority is the proxy's"
        );
        assert_eq!(endpoint.path(), "/cloudflare", "its path is kept");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_and_bounded() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        fn after(text: &str, now: &SystemTime) -> Option<Duration> {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().expect("a header value"));
            Answer {
                status: StatusCode::TOO_MANY_REQUESTS,
                headers,
                body: Bytes::new(),
            }
            .retry_after(*now)
        }
        assert_eq!(after("17", &now), Some(Duration::from_secs(17)));
        assert_eq!(
            after("Sun, 06 Nov 1994 08:49:37 GMT", &now),
            Some(Duration::from_secs(7))
        );
        assert_eq!(after("99999999", &now), Some(PATIENCE_LIMIT));
        assert_eq!(after("soon", &now), None);
    }

    #[test]
    fn encoding_leaves_only_unreserved_characters() {
        assert_eq!(
            encode("_acme-challenge.a/b c*"),
            "_acme-challenge.a%2Fb%20c%2A"
        );
    }
}
