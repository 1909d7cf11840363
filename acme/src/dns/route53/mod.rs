//! The DNS provider Route 53: public zones only, one multivalue record per value; a change is
//! complete once it is `INSYNC`.
//!
//! A multivalue answer record has an identifier, for which the value is used: several values at one
//! name need no read before the write, cannot race, and are deleted one by one. Route 53 answers a
//! query with at most eight of them, so that at most eight challenges can be open at one name at
//! the same time.

mod credentials;
mod sigv4;
mod xml;

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use jiff::Timestamp;
use tokio::time::{Instant, sleep, sleep_until};

use self::credentials::AwsCredentials;
pub use self::credentials::{AwsKeys, AwsSource, IMDS_ENDPOINT};
use self::sigv4::Signable;
use super::api::{PAGE_LIMIT, ZoneCache, quote, refusal, zone_candidates};
use super::http::{Answer, Endpoint, Http, encode};
use crate::challenge::dns::{DnsError, DnsProvider, TxtRecord};

const PROVIDER: &str = "route53";
const VERSION: &str = "/2013-04-01";
const FIX: &str = "allow route53:ListHostedZonesByName, ListResourceRecordSets, ChangeResourceRecordSets and GetChange";
/// Longest wait for a request's slot; beyond it, the call fails as throttled.
const QUEUE_LIMIT: Duration = Duration::from_secs(60);
/// An identifier that no record has: its deletion is requested to test for write permission in the
/// zone.
const NO_RECORD: &str = "gatewright-permission-probe";

/// The settings for Route 53.
pub struct Route53Config {
    /// The source of the AWS keys.
    pub source: AwsSource,
    /// `us-east-1` unless the account is in China (`cn-…`) or GovCloud (`us-gov-…`).
    pub region: Option<String>,
    /// The zone to use; None for the longest public zone that contains the name.
    pub hosted_zone_id: Option<String>,
    /// The endpoint, if not the partition's.
    pub endpoint: Option<String>,
    /// PEM roots to trust in addition to the machine's.
    pub ca_bundle: Option<String>,
    /// Time between two requests for the state of a change; 4 s is usual.
    pub poll: Duration,
    /// Longest wait for `INSYNC`.
    pub insync_limit: Duration,
    /// Time between two requests: Route 53 allows five per second and account ("Route 53 quotas").
    pub pace: Duration,
}

impl Route53Config {
    /// Makes the default settings, with a source of keys.
    pub fn new(source: AwsSource) -> Self {
        Self {
            source,
            region: None,
            hosted_zone_id: None,
            endpoint: None,
            ca_bundle: None,
            poll: Duration::from_secs(4),
            insync_limit: Duration::from_secs(120),
            pace: Duration::from_millis(200),
        }
    }
}

/// The DNS provider Route 53.
pub struct Route53 {
    credentials: AwsCredentials,
    http: Http,
    endpoint: Endpoint,
    signing_region: &'static str,
    hosted_zone_id: Option<String>,
    zones: ZoneCache<Zone>,
    poll: Duration,
    insync_limit: Duration,
    pace: Duration,
    /// Time of the next request.
    next: Mutex<Instant>,
}

#[derive(Clone)]
struct Zone {
    id: String,
    name: String,
}

impl Route53 {
    /// Checks the configuration; sends nothing yet.
    pub fn new(config: Route53Config) -> Result<Self, DnsError> {
        config.source.check().map_err(wrong)?;
        let region = config.region.unwrap_or_else(|| "us-east-1".to_owned());
        if region.is_empty()
            || !region
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        {
            return Err(wrong(format!(
                "region: {region:?} is not a region such as us-east-1"
            )));
        }
        // Route 53 is a global service with one endpoint for each partition ("Route 53 endpoints
        // and quotas").
        let (endpoint, signing_region) = if region.starts_with("cn-") {
            ("https://route53.amazonaws.com.cn", "cn-northwest-1")
        } else if region.starts_with("us-gov-") {
            ("https://route53.us-gov.amazonaws.com", "us-gov-west-1")
        } else {
            ("https://route53.amazonaws.com", "us-east-1")
        };
        let endpoint = Endpoint::parse(config.endpoint.as_deref().unwrap_or(endpoint))
            .map_err(|message| wrong(format!("endpoint: {message}")))?;
        let hosted_zone_id = config
            .hosted_zone_id
            .map(|id| id.trim_start_matches("/hostedzone/").to_owned());
        if hosted_zone_id
            .as_ref()
            .is_some_and(|id| id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric()))
        {
            return Err(wrong(
                "hostedZoneID: must be letters and digits such as Z0123456789ABC".to_owned(),
            ));
        }
        let http = Http::new(config.ca_bundle.as_deref()).map_err(wrong)?;
        Ok(Self {
            credentials: AwsCredentials::new(config.source, &region, http.clone()),
            http,
            endpoint,
            signing_region,
            hosted_zone_id,
            zones: ZoneCache::new(),
            poll: config.poll,
            insync_limit: config.insync_limit,
            pace: config.pace,
            next: Mutex::new(Instant::now()),
        })
    }

    async fn zone(&self, name: &str) -> Result<Zone, DnsError> {
        if let Some(zone) = self.zones.find(name) {
            return Ok(zone);
        }
        let zone = match &self.hosted_zone_id {
            Some(id) => self.configured_zone(id, name).await?,
            None => self.longest_zone(name).await?,
        };
        self.zones.keep(name, &zone);
        Ok(zone)
    }

    async fn configured_zone(&self, id: &str, name: &str) -> Result<Zone, DnsError> {
        let answer = self
            .call("GET", &format!("/hostedzone/{id}"), &[], "")
            .await?;
        if xml::error(&answer.body).is_some_and(|(code, _)| code == "NoSuchHostedZone") {
            return Err(no_zone(
                format!("hostedZoneID {id} does not exist in this account"),
                name,
            ));
        }
        let text = self.success(name, &answer)?;
        let document = xml::parse(text).map_err(protocol)?;
        let zone = xml::find(document.root(), "HostedZone")
            .ok_or_else(|| protocol("no HostedZone".to_owned()))?;
        if xml::text(zone, "PrivateZone") == Some("true") {
            return Err(no_zone(
                format!(
                    "hostedZoneID {id} is a private zone, which a CA cannot see; name a public one"
                ),
                name,
            ));
        }
        let apex = xml::text(zone, "Name")
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_ascii_lowercase();
        if !zone_candidates(name).any(|candidate| candidate == apex) {
            return Err(no_zone(
                format!("hostedZoneID {id} is the zone {apex}, which does not hold it"),
                name,
            ));
        }
        Ok(Zone {
            id: id.to_owned(),
            name: apex,
        })
    }

    async fn longest_zone(&self, name: &str) -> Result<Zone, DnsError> {
        for candidate in zone_candidates(name) {
            let mut public = self.public_zones(candidate, name).await?;
            match public.len() {
                0 => {}
                1 => {
                    return Ok(Zone {
                        id: public.remove(0),
                        name: candidate.to_owned(),
                    });
                }
                _ => {
                    return Err(DnsError::Config {
                        provider: PROVIDER.to_owned(),
                        message: format!(
                            "hostedZoneID: the account has several public zones {candidate} ({}); \
                             name the one its parent delegates to",
                            public.join(", ")
                        ),
                    });
                }
            }
        }
        Err(DnsError::NoZone {
            provider: PROVIDER.to_owned(),
            name: name.to_owned(),
            message: "none of its parent domains is a public hosted zone of this account; create one, or delegate \
                      the challenge by CNAME"
                .to_owned(),
        })
    }

    /// Returns the identifiers of the public zones of exactly this name; private zones of the same
    /// name may be listed between them.
    async fn public_zones(&self, zone: &str, name: &str) -> Result<Vec<String>, DnsError> {
        let mut public = Vec::new();
        let mut next: Option<(String, String)> = Some((zone.to_owned(), String::new()));
        for _page in 0..PAGE_LIMIT {
            let Some((from, id)) = next.take() else { break };
            let mut query = vec![("dnsname", from.as_str()), ("maxitems", "100")];
            if !id.is_empty() {
                query.push(("hostedzoneid", &id));
            }
            let answer = self.call("GET", "/hostedzonesbyname", &query, "").await?;
            let document = xml::parse(self.success(name, &answer)?).map_err(protocol)?;
            let root = document.root();
            for found in root
                .descendants()
                .filter(|node| node.tag_name().name() == "HostedZone")
            {
                let same = xml::text(found, "Name")
                    .is_some_and(|found| found.trim_end_matches('.').eq_ignore_ascii_case(zone));
                if same && xml::text(found, "PrivateZone") != Some("true") {
                    let id = xml::text(found, "Id").unwrap_or_default();
                    public.push(id.trim_start_matches("/hostedzone/").to_owned());
                }
            }
            if xml::text(root, "IsTruncated") == Some("true") {
                let following = xml::text(root, "NextDNSName").unwrap_or_default();
                // The list is sorted by name: if the next one differs, all zones of this name have
                // been read.
                if following.trim_end_matches('.').eq_ignore_ascii_case(zone) {
                    let id = xml::text(root, "NextHostedZoneId").unwrap_or_default();
                    next = Some((
                        following.to_owned(),
                        id.trim_start_matches("/hostedzone/").to_owned(),
                    ));
                }
            }
        }
        Ok(public)
    }

    /// Returns the time to live of our record, which a deletion must repeat; `None` if there is no
    /// such record.
    async fn stored_ttl(&self, zone: &Zone, record: &TxtRecord) -> Result<Option<u32>, DnsError> {
        let mut start = (record.name.clone(), "TXT".to_owned(), record.value.clone());
        for _page in 0..PAGE_LIMIT {
            let query = [
                ("name", start.0.as_str()),
                ("type", start.1.as_str()),
                ("identifier", start.2.as_str()),
                ("maxitems", "100"),
            ];
            let answer = self
                .call("GET", &format!("/hostedzone/{}/rrset", zone.id), &query, "")
                .await?;
            let document = xml::parse(self.success(&record.name, &answer)?).map_err(protocol)?;
            let root = document.root();
            let ours = root
                .descendants()
                .filter(|node| node.tag_name().name() == "ResourceRecordSet")
                .find(|set| {
                    let is = |field: &str, value: &str| xml::text(*set, field) == Some(value);
                    xml::text(*set, "Name")
                        .is_some_and(|n| n.trim_end_matches('.').eq_ignore_ascii_case(&record.name))
                        && is("Type", "TXT")
                        && is("SetIdentifier", &record.value)
                        && is("Value", &format!("\"{}\"", record.value))
                });
            if let Some(ours) = ours {
                let ttl = xml::text(ours, "TTL").and_then(|ttl| ttl.parse().ok());
                return ttl
                    .map(Some)
                    .ok_or_else(|| protocol("a record set without a TTL".to_owned()));
            }
            let next = |field: &str| xml::text(root, field).unwrap_or_default().to_owned();
            let truncated = xml::text(root, "IsTruncated") == Some("true");
            let following = (
                next("NextRecordName"),
                next("NextRecordType"),
                next("NextRecordIdentifier"),
            );
            let same_name = following
                .0
                .trim_end_matches('.')
                .eq_ignore_ascii_case(&record.name);
            if !truncated || !same_name || following.1 != "TXT" || following == start {
                return Ok(None);
            }
            start = following;
        }
        Err(protocol(format!(
            "more than {PAGE_LIMIT} pages of records at {}",
            record.name
        )))
    }

    async fn change(
        &self,
        zone: &Zone,
        action: &str,
        record: &TxtRecord,
        ttl: u32,
    ) -> Result<Answer, DnsError> {
        let body = change_batch(action, record, ttl);
        self.call(
            "POST",
            &format!("/hostedzone/{}/rrset", zone.id),
            &[],
            &body,
        )
        .await
    }

    async fn until_insync(&self, name: &str, answer: &Answer) -> Result<(), DnsError> {
        let (id, mut status) = change_info(self.success(name, answer)?)?;
        let deadline = Instant::now() + self.insync_limit;
        while status != "INSYNC" {
            if Instant::now() >= deadline {
                return Err(DnsError::Unavailable {
                    provider: PROVIDER.to_owned(),
                    message: format!(
                        "the change of {name} is still {status} after {} s",
                        self.insync_limit.as_secs_f32()
                    ),
                });
            }
            sleep(self.poll).await;
            let answer = self
                .call("GET", &format!("/change/{}", encode(&id)), &[], "")
                .await?;
            match self.success(name, &answer) {
                Ok(text) => status = change_info(text)?.1,
                // Throttling says nothing about the change; the deadline stays.
                Err(DnsError::Throttled { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer, DnsError> {
        self.turn().await?;
        let now = SystemTime::now();
        let keys = self.credentials.keys(now).await?;
        let path = format!("{VERSION}{path}");
        let signable = Signable {
            method,
            host: self.endpoint.authority(),
            path: &format!("{}{path}", self.endpoint.path()),
            query,
            content_type: (!body.is_empty()).then_some("text/xml"),
            body: body.as_bytes(),
            region: self.signing_region,
            service: "route53",
        };
        let mut url = self.endpoint.url(&path);
        if !query.is_empty() {
            url = format!("{url}?{}", signable.canonical_query());
        }
        let time = Timestamp::try_from(now)
            .map_err(|error| protocol(format!("the clock is absurd: {error}")))?;
        let request = signable
            .sign(Request::builder().method(method).uri(url), &keys, time)
            .body(Full::new(Bytes::from(body.to_owned())))
            .map_err(|error| protocol(format!("building the request: {error}")))?;
        self.http
            .send(request)
            .await
            .map_err(|message| DnsError::Unavailable {
                provider: PROVIDER.to_owned(),
                message,
            })
    }

    /// Waits for the slot of a request, among all requests of this provider.
    async fn turn(&self) -> Result<(), DnsError> {
        let slot = {
            let mut next = self.next.lock().expect("nobody panics while holding it");
            let now = Instant::now();
            let slot = (*next).max(now);
            if slot - now > QUEUE_LIMIT {
                return Err(DnsError::Throttled {
                    provider: PROVIDER.to_owned(),
                    retry_after: Some(slot - now),
                });
            }
            *next = slot + self.pace;
            slot
        };
        sleep_until(slot).await;
        Ok(())
    }

    /// Returns true if the record is gone after this answer to its deletion, false if the record in
    /// the request does not match a stored one.
    fn is_gone(&self, record: &TxtRecord, answer: &Answer) -> Result<bool, DnsError> {
        if answer.status.is_success() {
            return Ok(true);
        }
        match xml::error(&answer.body)
            .as_ref()
            .map(|(code, _)| code.as_str())
        {
            Some("InvalidChangeBatch" | "InvalidInput") => Ok(false),
            // A deleted zone has no records left.
            Some("NoSuchHostedZone") => {
                self.zones.forget(&record.name);
                Ok(true)
            }
            _ => Err(refused(&record.name, answer)),
        }
    }

    fn success<'a>(&self, name: &str, answer: &'a Answer) -> Result<&'a str, DnsError> {
        if !answer.status.is_success() {
            return Err(refused(name, answer));
        }
        std::str::from_utf8(&answer.body).map_err(|_| protocol("the answer is no text".to_owned()))
    }
}

fn wrong(message: String) -> DnsError {
    DnsError::Config {
        provider: PROVIDER.to_owned(),
        message,
    }
}

fn no_zone(message: String, name: &str) -> DnsError {
    DnsError::NoZone {
        provider: PROVIDER.to_owned(),
        name: name.to_owned(),
        message,
    }
}

#[async_trait]
impl DnsProvider for Route53 {
    fn name(&self) -> &str {
        PROVIDER
    }

    /// Also tests for write permission: the deletion of a record that does not exist is refused to
    /// keys without it.
    async fn zone_of(&self, name: &str) -> Result<String, DnsError> {
        let zone = self.zone(name).await?;
        let nothing = TxtRecord {
            name: name.to_owned(),
            value: NO_RECORD.to_owned(),
            ttl: 60,
        };
        let answer = self.change(&zone, "DELETE", &nothing, nothing.ttl).await?;
        match refused(name, &answer) {
            error @ (DnsError::Credentials { .. } | DnsError::Throttled { .. }) => Err(error),
            _ => Ok(zone.name),
        }
    }

    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError> {
        let zone = self.zone(&record.name).await?;
        let answer = self.change(&zone, "UPSERT", record, record.ttl).await?;
        if let Some((code, said)) = xml::error(&answer.body).filter(|_| !answer.status.is_success())
        {
            match code.as_str() {
                "NoSuchHostedZone" => self.zones.forget(&record.name),
                "InvalidChangeBatch" => {
                    return Err(DnsError::Refused {
                        provider: PROVIDER.to_owned(),
                        name: record.name.clone(),
                        message: format!(
                            "{}; a TXT record without the multivalue answer policy, or a CNAME, at this name is in \
                             the way: remove it",
                            quote(&said)
                        ),
                    });
                }
                _ => {}
            }
        }
        self.until_insync(&record.name, &answer).await
    }

    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError> {
        let zone = match self.zone(&record.name).await {
            // A deleted zone has no records left.
            Err(DnsError::NoZone { .. }) => return Ok(()),
            zone => zone?,
        };
        let answer = self.change(&zone, "DELETE", record, record.ttl).await?;
        if self.is_gone(record, &answer)? {
            return Ok(());
        }
        // A deletion must repeat the record as it is stored; the error for a missing record is that
        // for a differing one.
        match self.stored_ttl(&zone, record).await? {
            Some(ttl) if ttl != record.ttl => {
                let answer = self.change(&zone, "DELETE", record, ttl).await?;
                // If it still does not match, somebody else (another replica of ours) deleted it
                // meanwhile.
                self.is_gone(record, &answer).map(|_| ())
            }
            _ => Ok(()),
        }
    }
}

fn change_batch(action: &str, record: &TxtRecord, ttl: u32) -> String {
    let name = xml::escape(&record.name);
    let value = xml::escape(&record.value);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <ChangeResourceRecordSetsRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><ChangeBatch>\
         <Comment>ACME challenge</Comment><Changes><Change><Action>{action}</Action><ResourceRecordSet>\
         <Name>{name}.</Name><Type>TXT</Type><SetIdentifier>{value}</SetIdentifier>\
         <MultiValueAnswer>true</MultiValueAnswer><TTL>{ttl}</TTL><ResourceRecords><ResourceRecord>\
         <Value>&quot;{value}&quot;</Value></ResourceRecord></ResourceRecords></ResourceRecordSet></Change></Changes>\
         </ChangeBatch></ChangeResourceRecordSetsRequest>"
    )
}

fn change_info(text: &str) -> Result<(String, String), DnsError> {
    let document = xml::parse(text).map_err(protocol)?;
    let info = xml::find(document.root(), "ChangeInfo")
        .ok_or_else(|| protocol("no ChangeInfo".to_owned()))?;
    match (xml::text(info, "Id"), xml::text(info, "Status")) {
        (Some(id), Some(status)) => Ok((
            id.trim_start_matches("/change/").to_owned(),
            status.to_owned(),
        )),
        _ => Err(protocol("a ChangeInfo without Id and Status".to_owned())),
    }
}

/// Maps an answer to an error. Route 53 throttles with status 400, so that its error codes precede
/// the status.
fn refused(name: &str, answer: &Answer) -> DnsError {
    let provider = PROVIDER.to_owned();
    let Some((code, said)) = xml::error(&answer.body) else {
        return refusal(PROVIDER, name, answer, "", FIX);
    };
    let said = quote(&said);
    match code.as_str() {
        "Throttling" | "ThrottlingException" | "PriorRequestNotComplete" | "SlowDown" => {
            DnsError::Throttled {
                provider,
                retry_after: answer.retry_after(SystemTime::now()),
            }
        }
        "NoSuchHostedZone" => DnsError::NoZone {
            provider,
            name: name.to_owned(),
            message: "the hosted zone is gone".to_owned(),
        },
        "AccessDenied" | "AccessDeniedException" => DnsError::Credentials {
            provider,
            message: format!("{code}: {said}; {FIX}"),
        },
        "InvalidClientTokenId"
        | "SignatureDoesNotMatch"
        | "ExpiredToken"
        | "IncompleteSignature"
        | "MissingAuthenticationToken"
        | "OptInRequired"
        | "InvalidSignatureException" => DnsError::Credentials {
            provider,
            // The message of SignatureDoesNotMatch holds the whole canonical request.
            message: format!(
                "{code}; check access key, secret key, session token and this machine's clock"
            ),
        },
        _ => refusal(PROVIDER, name, answer, &format!("{code}: {said}"), FIX),
    }
}

fn protocol(message: String) -> DnsError {
    DnsError::Protocol {
        provider: PROVIDER.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::super::secret::Secret;
    use super::*;

    #[tokio::test]
    async fn requests_are_spaced_and_a_long_queue_is_refused_with_a_retry_time() {
        let secret_access_key = Secret::new("secret");
        let keys = AwsKeys {
            access_key_id: "AKIATEST".to_owned(),
            secret_access_key,
            session_token: None,
        };
        let mut config = Route53Config::new(AwsSource::Static(keys));
        config.pace = Duration::from_secs(40);
        let provider = Route53::new(config).expect("a good configuration");
        // The second is given up while it waits, but its slot stays taken; the third would wait too
        // long.
        provider.turn().await.expect("nobody is before the first");
        assert_eq!(provider.turn().now_or_never(), None);
        let third = provider
            .turn()
            .now_or_never()
            .expect("answered at once")
            .expect_err("the queue is full");
        let DnsError::Throttled {
            retry_after: Some(wait),
            ..
        } = third
        else {
            panic!("{third:?}")
        };
        assert!(wait > QUEUE_LIMIT, "{wait:?}");
    }
}
