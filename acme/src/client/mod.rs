//! The HTTP client for a CA: bounded in time and size, rate-limited, counted, with a pool of
//! nonces.
//!
//! `instant-acme` gets its HTTP client through a trait, which `Handle` implements; the calls that
//! the crate does not make use the client directly (ARI without `Retry-After`, EAB with a key of
//! ours, key rollover, alternate chains).

pub(crate) mod connector;
mod directory;
mod handle;
mod nonces;
mod rate_limits;
pub(crate) mod resource;
mod roots;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{DATE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::{SignedDuration, Timestamp};

pub use connector::Proxy;
pub use directory::Directory;
pub(crate) use handle::Handle;
pub use rate_limits::{AddressLimits, RateLimits};
pub use resource::Unreadable;
pub use roots::Roots;

use connector::Connector;
use nonces::Nonces;

use crate::budget::Endpoint;
use crate::denied_networks::DeniedNetworks;

/// Largest body that is read; answers of CAs are far smaller.
const LARGEST_ANSWER: usize = 1 << 20;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Age at which the directory is read again.
const DIRECTORY_LIFE: Duration = Duration::from_secs(3600);

/// The settings for the connection to a CA.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// The directory URL (RFC 8555, 7.1.1).
    pub directory_url: String,
    /// The roots of trust.
    pub roots: Roots,
    /// The proxy; None for direct connections.
    pub proxy: Option<Proxy>,
    /// Networks that are not connected to.
    pub denied: DeniedNetworks,
    /// Time limit of one exchange.
    pub timeout: Duration,
    /// The rate limits of our address at the CA.
    pub address_limits: Arc<AddressLimits>,
}

/// The HTTP client of one CA, shared by all its orders.
pub struct Http {
    client: Client<hyper_rustls::HttpsConnector<Connector>, Full<Bytes>>,
    config: HttpConfig,
    nonces: Nonces,
    directory: Mutex<Option<(std::time::Instant, Bytes, Arc<Directory>)>>,
    counts: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The URL that was requested, against which those of the headers are resolved.
    url: String,
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// Status and headers of an answer that matter to the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<SignedDuration>,
    pub(crate) location: Option<String>,
    pub(crate) alternates: Vec<String>,
    /// URL of a page that explains an error (`Link` with `rel="help"`).
    pub(crate) help: Option<String>,
}

impl Http {
    /// Makes a client for the CA of the configuration's directory URL. Nothing is sent yet.
    pub fn new(config: HttpConfig) -> Result<Arc<Self>, HttpError> {
        let malformed = |problem: &'static str| HttpError::Url {
            url: config.directory_url.clone(),
            problem,
        };
        let uri: Uri = config
            .directory_url
            .parse()
            .map_err(|_| malformed("it is no URL"))?;
        let host = uri.host().ok_or_else(|| malformed("it has no host"))?;
        let loopback = host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback());
        let plain = match uri.scheme_str() {
            Some("https") => false,
            Some("http") if loopback => true,
            _ => {
                return Err(malformed(
                    "it must begin with https:// (http:// on loopback only)",
                ));
            }
        };
        let tls = config.roots.client_config()?;
        let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls);
        let builder = if plain {
            builder.https_or_http()
        } else {
            builder.https_only()
        };
        let connector = Connector::new(config.proxy.clone(), config.denied.clone(), CONNECT_LIMIT);
        let connector = builder
            .enable_http1()
            .enable_http2()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .build(connector);
        Ok(Arc::new(Self {
            client,
            config,
            nonces: Nonces::default(),
            directory: Mutex::default(),
            counts: Mutex::default(),
        }))
    }

    /// The directory URL.
    pub fn directory_url(&self) -> &str {
        &self.config.directory_url
    }

    /// Returns the number of requests by action and status; status 0 is a request without answer.
    /// For metrics.
    pub fn counts(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.counts
            .lock()
            .expect("nobody panics while holding it")
            .clone()
    }

    /// Returns the directory of the CA, which is read at most once an hour.
    pub async fn directory(&self) -> Result<Arc<Directory>, HttpError> {
        Ok(self.directory_answer().await?.1)
    }

    async fn directory_answer(&self) -> Result<(Bytes, Arc<Directory>), HttpError> {
        let known = self
            .directory
            .lock()
            .expect("nobody panics while holding it")
            .clone();
        if let Some((read, body, directory)) = &known
            && read.elapsed() < DIRECTORY_LIFE
        {
            return Ok((body.clone(), directory.clone()));
        }
        let fetched = self.fetch_directory().await;
        match (fetched, known) {
            (Ok((body, directory)), _) => {
                let entry = (std::time::Instant::now(), body.clone(), directory.clone());
                *self
                    .directory
                    .lock()
                    .expect("nobody panics while holding it") = Some(entry);
                Ok((body, directory))
            }
            // An outdated directory is better than none.
            (Err(_), Some((_, body, directory))) => Ok((body, directory)),
            (Err(error), None) => Err(error),
        }
    }

    async fn fetch_directory(&self) -> Result<(Bytes, Arc<Directory>), HttpError> {
        let answer = self
            .send("directory", Method::GET, self.directory_url(), None)
            .await?;
        if !answer.status.is_success() {
            return Err(HttpError::Status {
                url: self.directory_url().to_owned(),
                status: answer.status.as_u16(),
            });
        }
        let directory = Directory::read(&answer.body, self.directory_url()).map_err(|why| {
            HttpError::NoDirectory {
                url: self.directory_url().to_owned(),
                why,
            }
        })?;
        let body = serde_json::to_vec(&directory).expect("texts and lists are JSON");
        Ok((body.into(), Arc::new(directory)))
    }

    /// Returns a nonce from the pool, or a fresh one (RFC 8555, 7.2).
    pub(crate) async fn nonce(&self) -> Result<String, HttpError> {
        if let Some(nonce) = self.nonces.take() {
            return Ok(nonce);
        }
        let url = self.directory().await?.new_nonce.clone();
        let answer = self.send("new-nonce", Method::HEAD, &url, None).await?;
        self.nonces.take().ok_or(HttpError::NoNonce {
            url,
            status: answer.status.as_u16(),
        })
    }

    /// Sends one request: limited in rate, time and size; counts it and keeps the answer's nonce.
    /// Redirects are not followed.
    pub(crate) async fn send(
        &self,
        action: &'static str,
        method: Method,
        url: &str,
        jose: Option<Bytes>,
    ) -> Result<Answer, HttpError> {
        let endpoint = self.endpoint(url);
        let now = Timestamp::now();
        let slot = self.config.address_limits.spend_request(endpoint, now);
        let slot = slot.map_err(|wait| HttpError::Limited {
            url: url.to_owned(),
            until: wait.until,
        })?;
        if let Ok(pause) = Duration::try_from(slot.duration_since(now))
            && !pause.is_zero()
        {
            tokio::time::sleep(pause).await;
        }
        let result = tokio::time::timeout(self.config.timeout, self.exchange(method, url, jose))
            .await
            .unwrap_or_else(|_| {
                Err(HttpError::Timeout {
                    url: url.to_owned(),
                    limit: self.config.timeout,
                })
            });
        let status = result.as_ref().map_or(0, |a| a.status.as_u16());
        *self
            .counts
            .lock()
            .expect("nobody panics while holding it")
            .entry((action, status))
            .or_default() += 1;
        let answer = result?;
        if let Some(nonce) = answer
            .headers
            .get("replay-nonce")
            .and_then(|v| v.to_str().ok())
        {
            if is_bad_nonce(&answer) {
                // The cause of this bad nonce, a restart of the CA or its age, applies to the
                // others in the pool as well.
                self.nonces.clear();
            }
            self.nonces.put(nonce);
        }
        // Let's Encrypt answers with 503 and `Retry-After` when an address exceeds a limit.
        if answer.status == StatusCode::SERVICE_UNAVAILABLE
            && let Some(after) = answer.exchange().retry_after
        {
            self.config
                .address_limits
                .record_retry_after(endpoint, after, Timestamp::now());
        }
        if answer.status.is_redirection()
            && let Some(to) = answer.exchange().location
        {
            return Err(HttpError::Redirected {
                url: url.to_owned(),
                status: answer.status.as_u16(),
                to,
            });
        }
        Ok(answer)
    }

    /// Returns the endpoint whose limit a request counts against.
    fn endpoint(&self, url: &str) -> Endpoint {
        if url == self.directory_url() {
            return Endpoint::Directory;
        }
        let known = self
            .directory
            .lock()
            .expect("nobody panics while holding it");
        let Some((_, _, directory)) = &*known else {
            return Endpoint::Other;
        };
        let is = |resource: &Option<String>| resource.as_deref() == Some(url);
        match () {
            () if url == directory.new_order => Endpoint::NewOrder,
            () if url == directory.new_nonce => Endpoint::NewNonce,
            () if url == directory.new_account => Endpoint::NewAccount,
            () if is(&directory.revoke_cert) => Endpoint::Revoke,
            () if directory
                .renewal_info
                .as_ref()
                .is_some_and(|base| url.starts_with(base.as_str())) =>
            {
                Endpoint::RenewalInfo
            }
            () => Endpoint::Other,
        }
    }

    /// Returns the rate limits of our address at the CA.
    pub(crate) fn address_limits(&self) -> &AddressLimits {
        &self.config.address_limits
    }

    async fn exchange(
        &self,
        method: Method,
        url: &str,
        jose: Option<Bytes>,
    ) -> Result<Answer, HttpError> {
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header(USER_AGENT, user_agent());
        if jose.is_some() {
            request = request.header("content-type", "application/jose+json");
        }
        let request = request
            .body(Full::new(jose.unwrap_or_default()))
            .map_err(|_| HttpError::Url {
                url: url.chars().take(300).collect(),
                problem: "it is no URL",
            })?;
        let unreachable = |e: &dyn std::error::Error| HttpError::Unreachable {
            url: url.to_owned(),
            cause: chain(e),
        };
        let response = self
            .client
            .request(request)
            .await
            .map_err(|e| unreachable(&e))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, LARGEST_ANSWER)
            .collect()
            .await
            .map_err(|e| HttpError::Unreachable {
                url: url.to_owned(),
                cause: e.to_string(),
            })?
            .to_bytes();
        Ok(Answer {
            url: url.to_owned(),
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }
}

impl Answer {
    pub(crate) fn exchange(&self) -> Exchange {
        let links = |rel: &'static str| {
            let all = self.headers.get_all("link").iter();
            let all = all.filter_map(|value| value.to_str().ok());
            let found = all.flat_map(move |l| {
                l.split(',')
                    .filter_map(|link| linked(link, rel))
                    .collect::<Vec<_>>()
            });
            found.filter_map(|url| resource::absolute(&self.url, &url))
        };
        Exchange {
            status: self.status.as_u16(),
            retry_after: retry_after(&self.headers, Timestamp::now()),
            location: self
                .headers
                .get(LOCATION)
                .and_then(|value| value.to_str().ok())
                .and_then(|url| resource::absolute(&self.url, url)),
            alternates: links("alternate").take(10).collect(),
            help: links("help").find(|url| url.len() <= 500 && url.starts_with("https://")),
        }
    }
}

/// `Retry-After`: seconds or a date (RFC 9110, 10.2.3). A date is one of the server's clock, and so
/// is that of its answer: ours may be a day behind, and an order must not wait for that.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<SignedDuration> {
    let value = trimmed(headers, RETRY_AFTER)?;
    if let Ok(seconds) = value.parse::<u32>() {
        return Some(SignedDuration::from_secs(i64::from(seconds)));
    }
    let sent = trimmed(headers, DATE).and_then(date).unwrap_or(now);
    Some(date(value)?.duration_since(sent).max(SignedDuration::ZERO))
}

fn trimmed(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn date(text: &str) -> Option<Timestamp> {
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(date.timestamp())
}

/// Returns the URL of a `Link` of this relation: `<url>;rel="alternate"` (RFC 8555, 7.4.2), or
/// another one.
fn linked(link: &str, rel: &str) -> Option<String> {
    let (url, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
    let is_meant = parameters.split(';').any(|p| {
        let p = p.trim().replace([' ', '"'], "").to_ascii_lowercase();
        p.strip_prefix("rel=") == Some(rel)
    });
    is_meant.then(|| url.to_owned())
}

fn is_bad_nonce(answer: &Answer) -> bool {
    answer.status == StatusCode::BAD_REQUEST && answer.body.windows(8).any(|w| w == b"badNonce")
}

fn user_agent() -> &'static str {
    concat!(
        "gatewright/",
        env!("CARGO_PKG_VERSION"),
        " instant-acme/0.8"
    )
}

/// Returns an error's text with its causes; hyper's own text says only "client error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    crate::tls_error::in_words(text)
}

/// The reason why the CA gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The URL cannot be used.
    #[error("the URL {url:?} cannot be used: {problem}")]
    Url {
        /// The URL.
        url: String,
        /// The problem.
        problem: &'static str,
    },
    /// The CA bundle cannot be used.
    #[error("the CA bundle cannot be used: {0}")]
    Roots(String),
    /// The connection failed or broke.
    #[error("{url} cannot be reached: {cause}")]
    Unreachable {
        /// The URL.
        url: String,
        /// The cause.
        cause: String,
    },
    /// No answer within the time limit.
    #[error("{url} did not answer within {limit:?}")]
    Timeout {
        /// The URL.
        url: String,
        /// The time limit.
        limit: Duration,
    },
    /// The status is an error, where the answer has no problem document to read.
    #[error("{url} answered with status {status}")]
    Status {
        /// The URL.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The CA refuses requests until a time that it gave.
    #[error("{url} is not asked before {until}, as it said itself")]
    Limited {
        /// The URL.
        url: String,
        /// Time of the next request.
        until: Timestamp,
    },
    /// The answer is no ACME directory.
    #[error(
        "{url} is no ACME directory: {why}; expected JSON with the URLs newNonce, newAccount and newOrder; check the directory URL"
    )]
    NoDirectory {
        /// The URL.
        url: String,
        /// What it lacks.
        why: Unreadable,
    },
    /// The resource has moved.
    #[error(
        "{url} answered with status {status} and another address, {to}; redirects are not followed: configure the directory URL at the new address"
    )]
    Redirected {
        /// The URL.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The new address.
        to: String,
    },
    /// The newNonce resource gives no nonce.
    #[error("HEAD {url} (newNonce) answered with status {status} and without a Replay-Nonce")]
    NoNonce {
        /// The URL.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The answer of the CA cannot be used.
    #[error("the CA's answer cannot be used: {0}")]
    Unreadable(#[from] Unreadable),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Limits;

    #[test]
    fn links_to_alternate_chains_are_read() {
        let link = "<https://ca.example/cert/1/1>;rel=\"alternate\", <https://ca.example/dir>;rel=\"index\"";
        let urls: Vec<_> = link
            .split(',')
            .filter_map(|link| linked(link, "alternate"))
            .collect();
        assert_eq!(urls, ["https://ca.example/cert/1/1"]);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "1999-12-31T23:59:00Z".parse().expect("a time");
        let after = |value: &str, sent: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().expect("a header value"));
            headers.extend(sent.map(|sent| (DATE, sent.parse().expect("a header value"))));
            retry_after(&headers, now)
        };
        assert_eq!(after(" 120 ", None), Some(SignedDuration::from_secs(120)));
        assert_eq!(
            after("Fri, 31 Dec 1999 23:59:59 GMT", None),
            Some(SignedDuration::from_secs(59))
        );
        assert_eq!(
            after("Thu, 30 Dec 1999 23:59:59 GMT", None),
            Some(SignedDuration::ZERO)
        );
        assert_eq!(after("soon", None), None);
        // Our clock is a day behind, or ahead.
        for (value, sent) in [
            (
                "Sat, 01 Jan 2000 23:59:03 GMT",
                "Sat, 01 Jan 2000 23:59:00 GMT",
            ),
            (
                "Thu, 30 Dec 1999 23:59:03 GMT",
                "Thu, 30 Dec 1999 23:59:00 GMT",
            ),
        ] {
            assert_eq!(
                after(value, Some(sent)),
                Some(SignedDuration::from_secs(3)),
                "{sent}"
            );
        }
    }

    #[test]
    fn a_directory_url_must_be_https_except_on_loopback() {
        let config = |url: &str| HttpConfig {
            directory_url: url.to_owned(),
            roots: Roots::Pem(String::new()),
            proxy: None,
            denied: DeniedNetworks::default(),
            timeout: Duration::from_secs(1),
            address_limits: Arc::new(AddressLimits::of(url, &Limits::UNKNOWN)),
        };
        for (url, word) in [
            ("http://ca.example/dir", "https://"),
            ("/dir", "no host"),
            ("ftp://x/", "https://"),
        ] {
            let error = Http::new(config(url)).err().expect(url).to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
