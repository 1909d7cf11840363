//! A DNS provider by dynamic update (RFC 2136), signed with TSIG, over TCP.
//!
//! An update adds or deletes exactly one record; the server applies updates one after another, so
//! that any number of values at one name are added and removed without a read before the write.

mod tsig;

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode, UpdateMessage};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use tokio::time::{Instant, timeout};

pub use self::tsig::TsigHash;
use self::tsig::{TsigKey, Unsigned};
use super::api::{ZoneCache, zone_candidates};
use super::authority::{cname, plain};
use super::query::{over_tcp, question};
use super::secret::Secret;
use crate::challenge::dns::{DnsError, DnsProvider, TxtRecord};
use crate::denied_networks::DeniedNetworks;

const PROVIDER: &str = "rfc2136";
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Lifetime of a name's zone in the cache: one order needs it several times, and a zone may be
/// delegated at any time.
const ZONE_LIFE: Duration = Duration::from_secs(60);
/// A value that no challenge has: its deletion is requested to test for write permission at the
/// name.
const NO_VALUE: &str = "gatewright-permission-probe";

/// The settings for a name server.
pub struct Rfc2136Config {
    /// The primary server, as `host:port`; port 53 by default.
    pub nameserver: String,
    /// Name of the TSIG key, as the server knows it.
    pub key_name: String,
    /// The algorithm of the key.
    pub algorithm: TsigHash,
    /// The key in base64, as the server's key file has it.
    pub secret: Secret,
    /// The zone; None to find it by queries to the server.
    pub zone: Option<String>,
}

/// The DNS provider by dynamic update.
pub struct Rfc2136 {
    nameserver: String,
    key: TsigKey,
    zone: Option<String>,
    zones: ZoneCache<(Name, Instant)>,
    denied: DeniedNetworks,
}

impl Rfc2136 {
    /// Checks the configuration; sends nothing yet.
    pub fn new(config: Rfc2136Config) -> Result<Self, DnsError> {
        let nameserver = with_port(&config.nameserver).map_err(wrong)?;
        let key =
            TsigKey::new(&config.key_name, config.algorithm, &config.secret).map_err(wrong)?;
        let zone = config
            .zone
            .map(|zone| zone.trim_end_matches('.').to_ascii_lowercase());
        if let Some(zone) = &zone
            && (zone.is_empty() || Name::from_ascii(zone).is_err())
        {
            return Err(wrong(format!("zone: {zone:?} is not a domain name")));
        }
        Ok(Self {
            nameserver,
            key,
            zone,
            zones: ZoneCache::new(),
            denied: DeniedNetworks::default(),
        })
    }

    /// Sends nothing to these networks, whatever the server's name resolves to.
    pub fn denying(self, denied: DeniedNetworks) -> Self {
        Self { denied, ..self }
    }

    async fn zone(&self, name: &str) -> Result<Name, DnsError> {
        if let Some(zone) = &self.zone {
            if zone_candidates(name).any(|candidate| candidate == zone) {
                return absolute(zone);
            }
            return Err(self.no_zone(name, format!("the configured zone {zone} does not hold it")));
        }
        if let Some((zone, found)) = self.zones.find(name)
            && found.elapsed() < ZONE_LIFE
        {
            return Ok(zone);
        }
        for candidate in zone_candidates(name) {
            let apex = absolute(candidate)?;
            let answer = self
                .exchange(name, question(&apex, RecordType::SOA, false))
                .await?;
            match answer.response_code {
                // An authoritative SOA at this very name: it is an apex. The answer for any other
                // name has none.
                ResponseCode::NoError | ResponseCode::NXDomain => {
                    let here = |record: &Record| {
                        record.record_type() == RecordType::SOA && record.name == apex
                    };
                    if answer.authoritative && answer.answers.iter().any(here) {
                        self.zones.keep(name, &(apex.clone(), Instant::now()));
                        return Ok(apex);
                    }
                }
                // The server does not serve this zone, but may serve a parent.
                ResponseCode::Refused | ResponseCode::NotAuth | ResponseCode::ServFail => {}
                code => return Err(self.refused(name, code)),
            }
        }
        let message = format!(
            "{} is authoritative for none of its parent domains",
            self.nameserver
        );
        Err(self.no_zone(name, message))
    }

    /// Adds (class IN) or deletes (class NONE, time to live 0) one TXT record (RFC 2136, 2.5.1 and
    /// 2.5.4).
    async fn update(
        &self,
        zone: Name,
        class: DNSClass,
        record: &TxtRecord,
    ) -> Result<(), DnsError> {
        let ttl = if class == DNSClass::NONE {
            0
        } else {
            record.ttl
        };
        let text = RData::TXT(TXT::new(vec![record.value.clone()]));
        let mut update = Record::from_rdata(absolute(&record.name)?, ttl, text);
        update.dns_class = class;
        let mut message = Message::query();
        message.metadata.op_code = OpCode::Update;
        message.metadata.recursion_desired = false;
        message.add_zone(Query::query(zone, RecordType::SOA));
        message.add_update(update);
        let answer = self.exchange(&record.name, message).await?;
        match answer.response_code {
            ResponseCode::NoError => Ok(()),
            ResponseCode::Refused => Err(self.refused_for(&record.name).await),
            code => Err(self.refused(&record.name, code)),
        }
    }

    /// Makes the error of a refused update. Where the name has a CNAME that was not followed, its
    /// target is likely what the key may change.
    async fn refused_for(&self, name: &str) -> DnsError {
        let error = self.refused(name, ResponseCode::Refused);
        let Ok(at) = absolute(name) else { return error };
        let alias = self
            .exchange(name, question(&at, RecordType::CNAME, false))
            .await
            .ok();
        match (error, alias.and_then(|answer| cname(&answer, &at))) {
            (
                DnsError::Refused {
                    provider,
                    name,
                    message,
                },
                Some(target),
            ) => {
                let why =
                    "it was not followed, since it is that of a wildcard or cannot be looked up";
                let message = format!(
                    "{message}; the name has a CNAME to {}: {why}",
                    plain(&target)
                );
                DnsError::Refused {
                    provider,
                    name,
                    message,
                }
            }
            (error, _) => error,
        }
    }

    /// Adds or deletes a record in the zone that contains its name; returns the zone.
    async fn change(&self, class: DNSClass, record: &TxtRecord) -> Result<String, DnsError> {
        let mut zone = self.zone(&record.name).await?;
        let mut done = self.update(zone.clone(), class, record).await;
        if matches!(done, Err(DnsError::NoZone { .. })) && self.zones.find(&record.name).is_some() {
            // The cached zone is outdated: the name is in another zone now, or in none.
            self.zones.forget(&record.name);
            zone = self.zone(&record.name).await?;
            done = self.update(zone.clone(), class, record).await;
        }
        done.map(|()| zone.to_ascii().trim_end_matches('.').to_ascii_lowercase())
    }

    /// Signs a message, sends it, and accepts only a signed answer to it.
    async fn exchange(&self, name: &str, mut message: Message) -> Result<Message, DnsError> {
        let mac = self.key.sign(&mut message, seconds()).map_err(protocol)?;
        let bytes = message
            .to_vec()
            .map_err(|error| protocol(format!("encoding the message: {error}")))?;
        let server = self.address().await?;
        let answer = over_tcp(server, &bytes, ANSWER_LIMIT)
            .await
            .map_err(|error| self.silent(|| format!("{}: {error}", self.nameserver)))?;
        let parsed = Message::from_vec(&answer);
        let parsed = parsed.map_err(|_| self.silent(|| "the answer is not DNS".to_owned()))?;
        if parsed.id != message.id || parsed.message_type != MessageType::Response {
            return Err(self.silent(|| "the answer is to another question".to_owned()));
        }
        match self.key.verify(&answer, &mac, seconds()) {
            Ok(()) => Ok(parsed),
            Err(why) => Err(self.unsigned(name, why, parsed.response_code)),
        }
    }

    async fn address(&self) -> Result<SocketAddr, DnsError> {
        let looked = timeout(ANSWER_LIMIT, self.denied.look_up(&self.nameserver)).await;
        let found = match looked {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                return Err(self.silent(|| format!("resolving {}: {error}", self.nameserver)));
            }
            Err(_) => {
                return Err(
                    self.silent(|| format!("resolving {}: no answer in time", self.nameserver))
                );
            }
        };
        found
            .first()
            .copied()
            .ok_or_else(|| self.unavailable(format!("{} has no address", self.nameserver)))
    }

    /// Makes the error for a name server that does not answer. For a server that a tenant names the
    /// text is the same for all causes, so that a tenant cannot scan our network through us.
    fn silent(&self, why: impl FnOnce() -> String) -> DnsError {
        self.unavailable(if self.denied.is_empty() {
            why()
        } else {
            format!("{} is not reached, or is no name server", self.nameserver)
        })
    }

    fn unsigned(&self, name: &str, why: Unsigned, code: ResponseCode) -> DnsError {
        let key = self.key.name();
        let algorithm = self.key.hash().as_str();
        match why {
            Unsigned::BadSignature => {
                credentials(format!("the secret of TSIG key {key} is not the one {} has", self.nameserver))
            }
            Unsigned::BadKey => {
                credentials(format!("{} does not know a TSIG key {key} with {algorithm}", self.nameserver))
            }
            Unsigned::BadTime => self.unavailable(format!(
                "its clock and ours differ by more than five minutes; set the clocks of {} and of this machine",
                self.nameserver
            )),
            Unsigned::NotBelieved(_) if code != ResponseCode::NoError => self.refused(name, code),
            Unsigned::NotBelieved(why) => protocol(format!("{}: {why}", self.nameserver)),
        }
    }

    /// Maps a response code of RFC 2136, 2.2 to an error with its fix.
    fn refused(&self, name: &str, code: ResponseCode) -> DnsError {
        let key = self.key.name();
        fn refused(message: String, name: &str) -> DnsError {
            DnsError::Refused {
                provider: PROVIDER.to_owned(),
                name: name.to_owned(),
                message,
            }
        }
        match code {
            ResponseCode::Refused => refused(
                format!(
                    "{} does not let TSIG key {key} change it; grant it, with BIND: \
                 update-policy {{ grant {key} name {name} TXT; }}",
                    self.nameserver
                ),
                name,
            ),
            ResponseCode::NotAuth => self.no_zone(
                name,
                format!("{} is not authoritative for the zone", self.nameserver),
            ),
            ResponseCode::NotZone => self.no_zone(
                name,
                "it is not within the zone that was updated".to_owned(),
            ),
            ResponseCode::NotImp | ResponseCode::FormErr => refused(
                format!(
                    "{} takes no dynamic updates; name the primary server",
                    self.nameserver
                ),
                name,
            ),
            ResponseCode::ServFail => {
                self.unavailable(format!("{} fails to apply the update", self.nameserver))
            }
            code => refused(format!("{} answers {code}", self.nameserver), name),
        }
    }

    fn no_zone(&self, name: &str, message: String) -> DnsError {
        DnsError::NoZone {
            provider: PROVIDER.to_owned(),
            name: name.to_owned(),
            message,
        }
    }

    fn unavailable(&self, message: String) -> DnsError {
        DnsError::Unavailable {
            provider: PROVIDER.to_owned(),
            message,
        }
    }
}

fn wrong(message: String) -> DnsError {
    DnsError::Config {
        provider: PROVIDER.to_owned(),
        message,
    }
}

fn credentials(message: String) -> DnsError {
    DnsError::Credentials {
        provider: PROVIDER.to_owned(),
        message,
    }
}

#[async_trait]
impl DnsProvider for Rfc2136 {
    fn name(&self) -> &str {
        PROVIDER
    }

    /// Also tests for write permission: the server applies its policy to the deletion of a record
    /// that does not exist, too.
    async fn zone_of(&self, name: &str) -> Result<String, DnsError> {
        let nothing = TxtRecord {
            name: name.to_owned(),
            value: NO_VALUE.to_owned(),
            ttl: 0,
        };
        self.change(DNSClass::NONE, &nothing).await
    }

    async fn present(&self, record: &TxtRecord) -> Result<(), DnsError> {
        self.change(DNSClass::IN, record).await.map(drop)
    }

    async fn cleanup(&self, record: &TxtRecord) -> Result<(), DnsError> {
        // The zone is looked up separately: where it is configured, a refused update does not mean
        // that the zone is gone.
        match self.zone(&record.name).await {
            // A deleted zone has no records left.
            Err(DnsError::NoZone { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => self.change(DNSClass::NONE, record).await.map(drop),
        }
    }
}

/// Parses `host`, `host:port`, `1.2.3.4`, `[::1]:53` or `::1`.
fn with_port(nameserver: &str) -> Result<String, String> {
    let text = nameserver.trim();
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(SocketAddr::new(address, 53).to_string());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address.to_string());
    }
    let (host, port) = text.split_once(':').unwrap_or((text, "53"));
    let is_name =
        !host.is_empty() && !host.contains(['/', '@', '[']) && Name::from_ascii(host).is_ok();
    match port.parse::<u16>() {
        Ok(port) if is_name && port != 0 => Ok(format!("{host}:{port}")),
        _ => Err(format!(
            "nameserver: {nameserver:?} is not host:port; an example is ns1.example.com:53"
        )),
    }
}

fn absolute(name: &str) -> Result<Name, DnsError> {
    let mut parsed = Name::from_ascii(name).map_err(|_| DnsError::Refused {
        provider: PROVIDER.to_owned(),
        name: name.to_owned(),
        message: "it is not a domain name".to_owned(),
    })?;
    parsed.set_fqdn(true);
    Ok(parsed)
}

fn seconds() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

fn protocol(message: String) -> DnsError {
    DnsError::Protocol {
        provider: PROVIDER.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn a_name_server_is_a_host_with_a_port() {
        for (given, wanted) in [
            ("ns1.example.com", "ns1.example.com:53"),
            ("ns1.example.com:5353", "ns1.example.com:5353"),
            ("192.0.2.1", "192.0.2.1:53"),
            ("2001:db8::1", "[2001:db8::1]:53"),
            ("[2001:db8::1]:54", "[2001:db8::1]:54"),
        ] {
            assert_eq!(with_port(given).as_deref(), Ok(wanted));
        }
        for bad in ["", "ns1:0", "ns1:99999", "udp://ns1", ":53"] {
            assert!(with_port(bad).is_err(), "{bad}");
        }
    }
}
