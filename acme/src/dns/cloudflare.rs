//! The DNS provider Cloudflare, by its API v4 and a token with `Zone:Read` and `DNS:Edit`.
//!
//! A record is added by one `POST` and removed by one `DELETE` of its identifier: other records are
//! never touched.

use async_trait::async_trait;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, PAGE_LIMIT, ZoneCache, zone_candidates};
use super::http::{Answer, encode};
use super::secret::Secret;
use crate::challenge::dns::{DnsError, DnsProvider, TxtRecord};

/// The URL of Cloudflare's API.
pub const CLOUDFLARE_ENDPOINT: &str = "https://api.cloudflare.com/client/v4";

const FIX: &str = "create an API token with Zone:Read and DNS:Edit for this zone";
/// Error code of "An identical record already exists."
const IDENTICAL_RECORD: u64 = 81058;
/// Error codes of a malformed token, with status 400: "Invalid request headers", "Invalid format
/// for Authorization header".
const MALFORMED_TOKEN: [u64; 2] = [6003, 6111];
/// An identifier that no record has: its deletion is requested to test for write permission.
const NO_RECORD: &str = "00000000000000000000000000000000";

/// The settings for Cloudflare.
pub struct CloudflareConfig {
    /// API token (not the global key).
    pub token: Secret,
    /// The endpoint, if not [`CLOUDFLARE_ENDPOINT`].
    pub endpoint: Option<String>,
    /// PEM roots to trust in addition to the machine's.
    pub ca_bundle: Option<String>,
}

/// The DNS provider Cloudflare.
pub struct Cloudflare {
    api: Api,
    zones: ZoneCache<Zone>,
}

impl Cloudflare {
    /// Checks the configuration; sends nothing yet.
    pub fn new(config: CloudflareConfig) -> Result<Self, DnsError> {
        let endpoint = config.endpoint.as_deref().unwrap_or(CLOUDFLARE_ENDPOINT);
        let api = Api::new(
            "cloudflare",
            endpoint,
            config.token,
            config.ca_bundle.as_deref(),
        )?;
        Ok(Self {
            api,
            zones: ZoneCache::new(),
        })
    }

    async fn zone(&self, name: &str) -> Result<Zone, DnsError> {
        if let Some(zone) = self.zones.find(name) {
            return Ok(zone);
        }
        for candidate in zone_candidates(name) {
            let path = format!("/zones?name={}&per_page=50", encode(candidate));
            let found: Vec<Zone> = self
                .read(name, self.api.call(Method::GET, &path, None).await?)?
                .result;
            // The filter is not trusted: an endpoint that ignores it must not make us use a foreign
            // zone.
            if let Some(zone) = found
                .into_iter()
                .find(|zone| zone.name.eq_ignore_ascii_case(candidate))
            {
                self.zones.keep(name, &zone);
                return Ok(zone);
            }
        }
        Err(self.api.no_zone(
            name,
            format!("none of its parent domains is a zone the token can see; {FIX}"),
        ))
    }

    /// Returns the identifiers of our records: exactly this name, type and value.
    async fn matching(&self, zone: &Zone, record: &TxtRecord) -> Result<Vec<String>, DnsError> {
        let mut ids = Vec::new();
        for page in 1..=PAGE_LIMIT {
            let path = format!(
                "/zones/{}/dns_records?type=TXT&name={}&per_page=100&page={page}",
                encode(&zone.id),
                encode(&record.name)
            );
            let answer = self.api.call(Method::GET, &path, None).await?;
            let Some(listed) = self.unless_zone_is_gone::<Vec<Record>>(record, answer)? else {
                return Ok(Vec::new());
            };
            let here = listed
                .result
                .into_iter()
                .filter(|found| found.is(record))
                .map(|found| found.id);
            ids.extend(here);
            if listed
                .result_info
                .is_none_or(|info| page >= info.total_pages)
            {
                return Ok(ids);
            }
        }
        Err(self.api.protocol(format!(
            "more than {PAGE_LIMIT} pages of TXT records at {}",
            record.name
        )))
    }

    /// Reads an answer; `None` if the zone does not exist any more, which removes it from the
    /// cache.
    fn unless_zone_is_gone<T: for<'de> Deserialize<'de>>(
        &self,
        record: &TxtRecord,
        answer: Answer,
    ) -> Result<Option<Envelope<T>>, DnsError> {
        if answer.status == StatusCode::NOT_FOUND {
            self.zones.forget(&record.name);
            return Ok(None);
        }
        self.read(&record.name, answer).map(Some)
    }

    fn read<T: for<'de> Deserialize<'de>>(
        &self,
        name: &str,
        answer: Answer,
    ) -> Result<Envelope<T>, DnsError> {
        if answer.status.is_success() {
            let envelope: Envelope<T> = self.api.json(&answer)?;
            return if envelope.success {
                Ok(envelope)
            } else {
                Err(self.api.protocol("HTTP 200 without success"))
            };
        }
        Err(self.refused(name, &answer))
    }

    fn refused(&self, name: &str, answer: &Answer) -> DnsError {
        let errors = errors(answer);
        if answer.status == StatusCode::BAD_REQUEST
            && errors
                .iter()
                .any(|error| MALFORMED_TOKEN.contains(&error.code))
        {
            return DnsError::Credentials {
                provider: self.api.provider.to_owned(),
                message: format!("the token is malformed; {FIX}"),
            };
        }
        let said: Vec<String> = errors
            .iter()
            .map(|error| format!("{} (code {})", error.message, error.code))
            .collect();
        self.api.refusal(name, answer, &said.join(", "), FIX)
    }
}

#[async_trait]
impl DnsProvider for Cloudflare {
    fn name(&self) -> &str {
        self.api.provider
    }

    /// Also tests for write permission: the deletion of a record that does not exist is refused
    /// with 403 to a token without it.
    async fn zone_of(&self, name: &str) -> Result<String, DnsError> {
        let zone = self.zone(name).await?;
        let path = format!("/zones/{}/dns_records/{NO_RECORD}", encode(&zone.id));
        let answer = self.api.call(Method::DELETE, &path, None).await?;
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.refused(name, &answer)),
            _ => Ok(zone.name),
        }
    }

    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError> {
        let zone = self.zone(&record.name).await?;
        if !self.matching(&zone, record).await?.is_empty() {
            return Ok(());
        }
        let path = format!("/zones/{}/dns_records", encode(&zone.id));
        let body = json!({
            "type": "TXT", "name": record.name, "content": format!("\"{}\"", record.value), "ttl": record.ttl.max(60),
        });
        let answer = self.api.call(Method::POST, &path, Some(&body)).await?;
        if errors(&answer)
            .iter()
            .any(|error| error.code == IDENTICAL_RECORD)
        {
            return Ok(());
        }
        if answer.status == StatusCode::NOT_FOUND {
            self.zones.forget(&record.name);
        }
        self.read::<Value>(&record.name, answer).map(|_| ())
    }

    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError> {
        let zone = match self.zone(&record.name).await {
            // A deleted zone has no records left.
            Err(DnsError::NoZone { .. }) => return Ok(()),
            zone => zone?,
        };
        for id in self.matching(&zone, record).await? {
            let path = format!("/zones/{}/dns_records/{}", encode(&zone.id), encode(&id));
            let answer = self.api.call(Method::DELETE, &path, None).await?;
            if answer.status != StatusCode::NOT_FOUND {
                self.read::<Value>(&record.name, answer)?;
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Envelope<T> {
    success: bool,
    result: T,
    result_info: Option<ResultInfo>,
}

#[derive(Deserialize)]
struct ResultInfo {
    #[serde(default)]
    total_pages: u32,
}

#[derive(Clone, Deserialize)]
struct Zone {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct Record {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    name: String,
    content: String,
}

impl Record {
    /// Compares with a record of ours. Older records have their text without quotes.
    fn is(&self, record: &TxtRecord) -> bool {
        let text = self
            .content
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            .unwrap_or(&self.content);
        self.kind == "TXT" && self.name.eq_ignore_ascii_case(&record.name) && text == record.value
    }
}

#[derive(Deserialize)]
struct ApiError {
    #[serde(default)]
    code: u64,
    #[serde(default)]
    message: String,
}

fn errors(answer: &Answer) -> Vec<ApiError> {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<ApiError>,
    }
    serde_json::from_slice::<Errors>(&answer.body)
        .map(|all| all.errors)
        .unwrap_or_default()
}
