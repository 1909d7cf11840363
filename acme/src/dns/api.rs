//! Common parts of the HTTP providers: JSON calls with a bearer token, and the mapping of answers
//! to errors.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use zeroize::Zeroizing;

use super::http::{Answer, Endpoint, Http};
use super::secret::Secret;
use crate::challenge::dns::DnsError;

/// Most characters of a foreign text that an error quotes.
const QUOTE_LIMIT: usize = 200;
/// Most names that a [`ZoneCache`] holds.
const CACHE_LIMIT: usize = 10_000;
/// Most pages of a listing that are read.
pub(crate) const PAGE_LIMIT: u32 = 100;

/// A JSON API with a bearer token.
pub(crate) struct Api {
    pub(crate) provider: &'static str,
    pub(crate) endpoint: Endpoint,
    pub(crate) token: Secret,
    pub(crate) http: Http,
}

impl Api {
    pub(crate) fn new(
        provider: &'static str,
        endpoint: &str,
        token: Secret,
        ca_bundle: Option<&str>,
    ) -> Result<Self, DnsError> {
        let config = |message: String| DnsError::Config {
            provider: provider.to_owned(),
            message,
        };
        let endpoint =
            Endpoint::parse(endpoint).map_err(|message| config(format!("endpoint: {message}")))?;
        if token.is_empty() {
            return Err(config(
                "token: is empty; put the API token there".to_owned(),
            ));
        }
        if HeaderValue::from_str(token.expose()).is_err()
            || token.expose().contains(char::is_whitespace)
        {
            return Err(config(
                "token: holds characters that no API token has; check for spaces, quotes and line ends".to_owned(),
            ));
        }
        let http = Http::new(ca_bundle).map_err(config)?;
        Ok(Self {
            provider,
            endpoint,
            token,
            http,
        })
    }

    /// Sends one request. `path` is encoded already and may contain a query.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, DnsError> {
        let bearer = Zeroizing::new(format!("Bearer {}", self.token.expose()));
        let mut bearer = HeaderValue::from_str(&bearer)
            .expect("the token was checked to be a header value when it was taken");
        bearer.set_sensitive(true);
        let request = Request::builder()
            .method(method)
            .uri(self.endpoint.url(path))
            .header(AUTHORIZATION, bearer)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(
                body.map(|body| Bytes::from(body.to_string()))
                    .unwrap_or_default(),
            ))
            .map_err(|error| self.protocol(format!("building the request: {error}")))?;
        self.http
            .send(request)
            .await
            .map_err(|message| self.unavailable(message))
    }

    /// Returns the error for an answer that is no success. `said` is the provider's own message;
    /// `fix` is the advice for refused credentials.
    pub(crate) fn refusal(&self, name: &str, answer: &Answer, said: &str, fix: &str) -> DnsError {
        let said = quote(&self.token.blot(said));
        refusal(self.provider, name, answer, &said, fix)
    }

    /// Parses the JSON of a successful answer.
    pub(crate) fn json<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, DnsError> {
        serde_json::from_slice(&answer.body)
            .map_err(|error| self.protocol(format!("not the JSON we expect: {error}")))
    }

    pub(crate) fn protocol(&self, message: impl Into<String>) -> DnsError {
        DnsError::Protocol {
            provider: self.provider.to_owned(),
            message: message.into(),
        }
    }

    pub(crate) fn unavailable(&self, message: impl Into<String>) -> DnsError {
        DnsError::Unavailable {
            provider: self.provider.to_owned(),
            message: message.into(),
        }
    }

    pub(crate) fn no_zone(&self, name: &str, message: impl Into<String>) -> DnsError {
        DnsError::NoZone {
            provider: self.provider.to_owned(),
            name: name.to_owned(),
            message: message.into(),
        }
    }
}

/// Maps an answer that is no success to an error, by its status.
pub(crate) fn refusal(
    provider: &str,
    name: &str,
    answer: &Answer,
    said: &str,
    fix: &str,
) -> DnsError {
    let (provider, name) = (provider.to_owned(), name.to_owned());
    let status = answer.status;
    let retry_after = answer.retry_after(SystemTime::now());
    let message = if said.is_empty() {
        format!("HTTP {}", status.as_u16())
    } else {
        said.to_owned()
    };
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => DnsError::Credentials {
            provider,
            message: format!("{message}; {fix}"),
        },
        StatusCode::TOO_MANY_REQUESTS => DnsError::Throttled {
            provider,
            retry_after,
        },
        StatusCode::SERVICE_UNAVAILABLE if retry_after.is_some() => DnsError::Throttled {
            provider,
            retry_after,
        },
        StatusCode::REQUEST_TIMEOUT => DnsError::Unavailable { provider, message },
        status if status.is_server_error() => DnsError::Unavailable { provider, message },
        status if status.is_client_error() => DnsError::Refused {
            provider,
            name,
            message,
        },
        status => DnsError::Protocol {
            provider,
            message: format!("HTTP {} is neither success nor error", status.as_u16()),
        },
    }
}

/// Makes a foreign text fit for a status: one line, printable, bounded.
pub(crate) fn quote(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let words: Vec<&str> = line.split_whitespace().collect();
    let text = words.join(" ");
    match text.char_indices().nth(QUOTE_LIMIT) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Returns the names that may be the zone of `name`, the longest first: from the name itself (a
/// challenge may be delegated as a zone of its own) up to its top-level domain.
pub(crate) fn zone_candidates(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |rest| {
        rest.split_once('.').map(|(_, parent)| parent)
    })
    .filter(|candidate| !candidate.is_empty())
}

/// A cache of the zones of names, so that a challenge costs one search for the zone and not three.
pub(crate) struct ZoneCache<Z>(Mutex<BTreeMap<String, Z>>);

impl<Z: Clone> ZoneCache<Z> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    pub(crate) fn find(&self, name: &str) -> Option<Z> {
        self.0
            .lock()
            .expect("nobody panics while holding it")
            .get(name)
            .cloned()
    }

    pub(crate) fn keep(&self, name: &str, zone: &Z) {
        let mut zones = self.0.lock().expect("nobody panics while holding it");
        if zones.len() >= CACHE_LIMIT {
            zones.clear();
        }
        zones.insert(name.to_owned(), zone.clone());
    }

    /// Removes a name whose zone does not exist any more.
    pub(crate) fn forget(&self, name: &str) {
        self.0
            .lock()
            .expect("nobody panics while holding it")
            .remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_go_from_the_name_to_its_top_level_domain() {
        let all: Vec<&str> = zone_candidates("_acme-challenge.a.example").collect();
        assert_eq!(all, ["_acme-challenge.a.example", "a.example", "example"]);
    }

    #[test]
    fn a_quote_is_one_bounded_line() {
        assert_eq!(quote("a\n\tb\u{7}  c"), "a b c");
        assert_eq!(quote(&"x".repeat(500)).chars().count(), QUOTE_LIMIT + 1);
    }
}
