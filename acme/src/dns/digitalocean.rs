//! The DNS provider DigitalOcean, by its API v2 and a token with the scope `domain`.

use async_trait::async_trait;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::api::{Api, PAGE_LIMIT, ZoneCache, zone_candidates};
use super::http::{Answer, encode};
use super::secret::Secret;
use crate::challenge::dns::{DnsError, DnsProvider, TxtRecord};

/// The URL of DigitalOcean's API.
pub const DIGITALOCEAN_ENDPOINT: &str = "https://api.digitalocean.com";

const FIX: &str =
    "create a token with the scopes domain:read, domain:create, domain:update and domain:delete";
/// The shortest time to live that the API accepts, in seconds.
const TTL_FLOOR: u32 = 30;

/// The settings for DigitalOcean.
pub struct DigitalOceanConfig {
    /// API token.
    pub token: Secret,
    /// The endpoint, if not [`DIGITALOCEAN_ENDPOINT`].
    pub endpoint: Option<String>,
    /// PEM roots to trust in addition to the machine's.
    pub ca_bundle: Option<String>,
}

/// The DNS provider DigitalOcean.
pub struct DigitalOcean {
    api: Api,
    zones: ZoneCache<String>,
}

impl DigitalOcean {
    /// Checks the configuration; sends nothing yet.
    pub fn new(config: DigitalOceanConfig) -> Result<Self, DnsError> {
        let endpoint = config.endpoint.as_deref().unwrap_or(DIGITALOCEAN_ENDPOINT);
        let api = Api::new(
            "digitalocean",
            endpoint,
            config.token,
            config.ca_bundle.as_deref(),
        )?;
        Ok(Self {
            api,
            zones: ZoneCache::new(),
        })
    }

    async fn zone(&self, name: &str) -> Result<String, DnsError> {
        if let Some(zone) = self.zones.find(name) {
            return Ok(zone);
        }
        // A top-level domain is never a domain of an account.
        for candidate in zone_candidates(name).filter(|candidate| candidate.contains('.')) {
            let answer = self
                .api
                .call(
                    Method::GET,
                    &format!("/v2/domains/{}", encode(candidate)),
                    None,
                )
                .await?;
            match answer.status {
                StatusCode::NOT_FOUND => {}
                status if status.is_success() => {
                    let zone = candidate.to_owned();
                    self.zones.keep(name, &zone);
                    return Ok(zone);
                }
                _ => return Err(self.refused(name, &answer)),
            }
        }
        Err(self.api.no_zone(
            name,
            "none of its parent domains is in this account; add the domain to it",
        ))
    }

    /// Returns the identifiers of our records: exactly this name, type and value.
    async fn matching(&self, zone: &str, record: &TxtRecord) -> Result<Vec<u64>, DnsError> {
        let mut ids = Vec::new();
        let relative = relative(&record.name, zone);
        for page in 1..=PAGE_LIMIT {
            let path = format!(
                "/v2/domains/{}/records?type=TXT&name={}&per_page=200&page={page}",
                encode(zone),
                encode(&record.name)
            );
            let answer = self.api.call(Method::GET, &path, None).await?;
            if answer.status == StatusCode::NOT_FOUND {
                self.zones.forget(&record.name);
                return Ok(ids);
            }
            if !answer.status.is_success() {
                return Err(self.refused(&record.name, &answer));
            }
            let listed: Listing = self.api.json(&answer)?;
            ids.extend(
                listed
                    .domain_records
                    .into_iter()
                    .filter(|found| {
                        found.kind == "TXT"
                            && found.name.eq_ignore_ascii_case(relative)
                            && found.data == record.value
                    })
                    .map(|found| found.id),
            );
            if listed.links.pages.is_none_or(|pages| pages.next.is_none()) {
                return Ok(ids);
            }
        }
        Err(self.api.protocol(format!(
            "more than {PAGE_LIMIT} pages of TXT records at {}",
            record.name
        )))
    }

    /// Maps an answer to an error. The body has a `request_id` beside the message; only the message
    /// is used, so that the error is stable.
    fn refused(&self, name: &str, answer: &Answer) -> DnsError {
        #[derive(Deserialize)]
        struct Said {
            message: String,
        }
        let said = serde_json::from_slice::<Said>(&answer.body)
            .map(|said| said.message)
            .unwrap_or_default();
        self.api.refusal(name, answer, &said, FIX)
    }
}

#[async_trait]
impl DnsProvider for DigitalOcean {
    fn name(&self) -> &str {
        self.api.provider
    }

    /// Also tests for write permission: record 0 never exists, and its deletion is refused to a
    /// read-only token.
    async fn zone_of(&self, name: &str) -> Result<String, DnsError> {
        let zone = self.zone(name).await?;
        let path = format!("/v2/domains/{}/records/0", encode(&zone));
        let answer = self.api.call(Method::DELETE, &path, None).await?;
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.refused(name, &answer)),
            _ => Ok(zone),
        }
    }

    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError> {
        let zone = self.zone(&record.name).await?;
        if !self.matching(&zone, record).await?.is_empty() {
            return Ok(());
        }
        let body = json!({
            "type": "TXT",
            "name": relative(&record.name, &zone),
            "data": record.value,
            "ttl": record.ttl.max(TTL_FLOOR),
        });
        let answer = self
            .api
            .call(
                Method::POST,
                &format!("/v2/domains/{}/records", encode(&zone)),
                Some(&body),
            )
            .await?;
        if answer.status == StatusCode::NOT_FOUND {
            self.zones.forget(&record.name);
        }
        if answer.status.is_success() {
            Ok(())
        } else {
            Err(self.refused(&record.name, &answer))
        }
    }

    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError> {
        let zone = match self.zone(&record.name).await {
            // A deleted domain has no records left.
            Err(DnsError::NoZone { .. }) => return Ok(()),
            zone => zone?,
        };
        for id in self.matching(&zone, record).await? {
            let path = format!("/v2/domains/{}/records/{id}", encode(&zone));
            let answer = self.api.call(Method::DELETE, &path, None).await?;
            if !answer.status.is_success() && answer.status != StatusCode::NOT_FOUND {
                return Err(self.refused(&record.name, &answer));
            }
        }
        Ok(())
    }
}

/// Returns a name relative to its domain, as the API names records; the domain itself is `@`.
fn relative<'a>(name: &'a str, zone: &str) -> &'a str {
    if name == zone {
        return "@";
    }
    name.strip_suffix(zone)
        .and_then(|rest| rest.strip_suffix('.'))
        .unwrap_or(name)
}

#[derive(Deserialize)]
struct Listing {
    domain_records: Vec<Record>,
    #[serde(default)]
    links: Links,
}

#[derive(Default, Deserialize)]
struct Links {
    pages: Option<Pages>,
}

#[derive(Deserialize)]
struct Pages {
    next: Option<String>,
}

#[derive(Deserialize)]
struct Record {
    id: u64,
    #[serde(rename = "type")]
    kind: String,
    name: String,
    data: String,
}

#[cfg(test)]
mod tests {
    use super::relative;

    #[test]
    fn names_are_relative_to_the_domain() {
        assert_eq!(
            relative("_acme-challenge.a.example.com", "example.com"),
            "_acme-challenge.a"
        );
        assert_eq!(relative("example.com", "example.com"), "@");
    }
}
