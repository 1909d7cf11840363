//! Queries to the authoritative servers of a zone: the CNAME that a challenge is delegated by, and
//! the visibility of a TXT record.
//!
//! The challenge name itself is queried at authoritative servers only. A resolver that is asked
//! before the record exists would cache its absence, and so might the CA's.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::timeout;

use super::query::{QueryError, ask, question};
use super::resolver::{Resolver, code_name};
use crate::challenge::dns::{DnsError, DnsView, Seen, TxtRecord};
use crate::denied_networks::DeniedNetworks;

const PROVIDER: &str = "dns";
/// Most CNAMEs that are followed in a row.
pub const CNAME_LIMIT: usize = 8;
/// Most addresses of authoritative servers that are queried.
const SERVER_LIMIT: usize = 16;
/// Most delegations below the first zone that are followed.
const REFERRAL_LIMIT: usize = 4;
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 3;
/// Time limit of all queries about one name, regardless of how many servers do not answer.
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// The [`DnsView`] of authoritative servers, which are found through a resolver.
#[derive(Clone, Debug)]
pub struct Authorities {
    resolver: Resolver,
    port: u16,
    denied: DeniedNetworks,
}

/// One address of an authoritative server, with a label for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Server {
    label: String,
    address: SocketAddr,
}

impl Authorities {
    /// Finds the servers through `resolver` and queries them on port 53.
    pub fn new(resolver: Resolver) -> Self {
        Self {
            resolver,
            port: 53,
            denied: DeniedNetworks::default(),
        }
    }

    /// Queries the servers on another port: for tests and split-horizon DNS.
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Queries no servers in these networks: the owner of a zone names its servers, and could
    /// direct us to any address.
    pub fn denying(self, denied: DeniedNetworks) -> Self {
        Self { denied, ..self }
    }

    /// Returns the authoritative servers of the zone that contains `name`, following delegations
    /// below the first zone, and their answer to a CNAME query for it.
    async fn servers(&self, name: &Name) -> Result<(Vec<Server>, Message), DnsError> {
        let mut zone = self.zone_above(name).await?;
        let mut servers = self.servers_of_zone(&zone).await?;
        for _referral in 0..REFERRAL_LIMIT {
            // Every type of query leads to the referral, but a CNAME query is not answered by
            // following CNAMEs.
            let answer = first_answer(&servers, name, RecordType::CNAME)
                .await
                .map_err(|why| {
                    unavailable(format!(
                        "no authoritative server of {} answers: {why}",
                        plain(&zone)
                    ))
                })?;
            let Some(child) = referral(&answer, &zone, name) else {
                return Ok((servers, answer));
            };
            servers = self.servers_of_child(&answer, &child).await?;
            zone = child;
        }
        Err(unavailable(format!(
            "{} lies below more than {REFERRAL_LIMIT} delegations",
            plain(name)
        )))
    }

    /// Finds the apex of the zone that contains the parent of `name`, through the resolver, without
    /// a query for the name itself or any other name that begins with an underscore (see the
    /// module's documentation).
    async fn zone_above(&self, name: &Name) -> Result<Name, DnsError> {
        let mut asked = name.base_name();
        while asked
            .iter()
            .next()
            .is_some_and(|label| label.starts_with(b"_"))
        {
            asked = asked.base_name();
        }
        while !asked.is_root() {
            let answer = self
                .resolver
                .look_up(&asked, RecordType::SOA)
                .await
                .map_err(|error| {
                    unavailable(format!(
                        "finding the zone of {}: {error} for SOA {}",
                        plain(name),
                        plain(&asked)
                    ))
                })?;
            // If the name has a CNAME, the SOA is that of the target's zone.
            let alias = answer
                .answers
                .iter()
                .any(|record| record.record_type() == RecordType::CNAME);
            let apex = answer
                .answers
                .iter()
                .chain(&answer.authorities)
                .filter(|record| record.record_type() == RecordType::SOA)
                .map(|record| &record.name)
                .find(|apex| apex.zone_of(&asked));
            match apex {
                Some(apex) if !alias && !apex.is_root() => return Ok(apex.clone()),
                _ => asked = asked.base_name(),
            }
        }
        Err(DnsError::NoZone {
            provider: PROVIDER.to_owned(),
            name: plain(name),
            message: "no zone is found above it; register the domain and delegate it".to_owned(),
        })
    }

    async fn servers_of_zone(&self, zone: &Name) -> Result<Vec<Server>, DnsError> {
        let answer = self
            .resolver
            .look_up(zone, RecordType::NS)
            .await
            .map_err(|error| {
                unavailable(format!(
                    "finding the name servers of {}: {error}",
                    plain(zone)
                ))
            })?;
        self.addresses(zone, &server_names(&answer.answers, zone), &[])
            .await
    }

    async fn servers_of_child(
        &self,
        referral: &Message,
        child: &Name,
    ) -> Result<Vec<Server>, DnsError> {
        let names = server_names(&referral.authorities, child);
        self.addresses(child, &names, &referral.additionals).await
    }

    async fn addresses(
        &self,
        zone: &Name,
        names: &[Name],
        glue: &[hickory_proto::rr::Record],
    ) -> Result<Vec<Server>, DnsError> {
        let looked = names.iter().take(SERVER_LIMIT).map(|name| async move {
            let found: Vec<_> = glue
                .iter()
                .filter(|record| record.name == *name)
                .filter_map(address)
                .collect();
            let found = if found.is_empty() {
                self.resolver.addresses(name).await.unwrap_or_default()
            } else {
                found
            };
            (name, found)
        });
        let mut servers = Vec::new();
        let mut private = false;
        for (name, mut found) in join_all(looked).await {
            let before = found.len();
            found.retain(|ip| !self.denied.holds(*ip));
            private |= found.len() < before;
            servers.extend(found.into_iter().map(|ip| Server {
                label: format!("{} ({ip})", plain(name)),
                address: SocketAddr::new(ip, self.port),
            }));
        }
        servers.truncate(SERVER_LIMIT);
        if servers.is_empty() && private {
            let text = "are in private networks alone, which are asked only if the issuer's allowedNetworks \
                        (--acme-allowed-network) name them";
            return Err(unavailable(format!(
                "the name servers of {} {text}",
                plain(zone)
            )));
        }
        if servers.is_empty() {
            return Err(unavailable(format!(
                "none of the name servers of {} has an address",
                plain(zone)
            )));
        }
        Ok(servers)
    }
}

#[async_trait]
impl DnsView for Authorities {
    async fn challenge_target(&self, name: &str) -> Result<String, DnsError> {
        bounded(name, self.follow(name)).await
    }

    async fn seen(&self, record: &TxtRecord) -> Result<Seen, DnsError> {
        bounded(&record.name, self.look(record)).await
    }

    async fn values(&self, name: &str) -> Result<Vec<String>, DnsError> {
        bounded(name, self.all(name)).await
    }
}

impl Authorities {
    async fn follow(&self, name: &str) -> Result<String, DnsError> {
        let mut chain = vec![absolute(name)?];
        while chain.len() <= CNAME_LIMIT {
            let at = chain
                .last()
                .expect("the chain begins with the name")
                .clone();
            let (servers, answer) = self.servers(&at).await?;
            let Some(target) = cname(&answer, &at) else {
                return Ok(plain(&at));
            };
            if is_synthesised(&servers, &at, &target).await? {
                return Ok(plain(&at));
            }
            append(name, &mut chain, target)?;
        }
        Err(too_long(name, &chain))
    }

    /// Queries every authoritative server for the TXT records at a name.
    async fn texts(&self, name: &Name) -> Result<Vec<(Server, Result<Message, String>)>, DnsError> {
        let asked = self
            .servers(name)
            .await?
            .0
            .into_iter()
            .map(|server| async move {
                let answer = authoritative_answer(&server, name, RecordType::TXT).await;
                (server, answer)
            });
        Ok(join_all(asked).await)
    }

    async fn all(&self, name: &str) -> Result<Vec<String>, DnsError> {
        let at = absolute(name)?;
        let mut common = None::<Vec<String>>;
        let mut silent = Vec::new();
        for (server, answer) in self.texts(&at).await? {
            match answer {
                Ok(answer) => {
                    let held: Vec<String> = texts(&answer, &at)
                        .filter_map(|text| String::from_utf8(text).ok())
                        .collect();
                    common = Some(match common {
                        Some(before) => before
                            .into_iter()
                            .filter(|value| held.contains(value))
                            .collect(),
                        None => held,
                    });
                }
                Err(why) => silent.push(format!("{}: {why}", server.label)),
            }
        }
        common.ok_or_else(|| {
            unavailable(format!(
                "no authoritative server answers for {name}: {}",
                silent.join("; ")
            ))
        })
    }

    async fn look(&self, record: &TxtRecord) -> Result<Seen, DnsError> {
        let name = absolute(&record.name)?;
        let answers = self.texts(&name).await?;
        let mut having = 0;
        let mut missing = Vec::new();
        let mut silent = Vec::new();
        for (server, answer) in answers {
            match answer {
                Ok(answer) if texts(&answer, &name).any(|text| text == record.value.as_bytes()) => {
                    having += 1
                }
                Ok(_) => missing.push(server.label.clone()),
                Err(why) => silent.push(format!("{}: {why}", server.label)),
            }
        }
        if !missing.is_empty() {
            return Ok(Seen::NotYet { missing });
        }
        if having == 0 {
            return Err(unavailable(format!(
                "no authoritative server answers for {}: {}",
                record.name,
                silent.join("; ")
            )));
        }
        Ok(Seen::Everywhere { silent })
    }
}

async fn bounded<T>(
    name: &str,
    look: impl Future<Output = Result<T, DnsError>>,
) -> Result<T, DnsError> {
    timeout(LOOK_LIMIT, look).await.unwrap_or_else(|_| {
        Err(unavailable(format!(
            "looking at {name} took more than {} s; check its name servers",
            LOOK_LIMIT.as_secs()
        )))
    })
}

/// Returns the first usable answer of any server; a referral is usable.
async fn first_answer(
    servers: &[Server],
    name: &Name,
    kind: RecordType,
) -> Result<Message, String> {
    let mut why = "there are none".to_owned();
    for server in servers {
        match answer(server, name, kind).await {
            Ok(answer)
                if matches!(
                    answer.response_code,
                    ResponseCode::NoError | ResponseCode::NXDomain
                ) =>
            {
                return Ok(answer);
            }
            Ok(answer) => {
                why = format!(
                    "{} answers {}",
                    server.label,
                    code_name(answer.response_code)
                )
            }
            Err(error) => why = format!("{}: {error}", server.label),
        }
    }
    Err(why)
}

/// Returns an authoritative answer, or the reason why there is none.
async fn authoritative_answer(
    server: &Server,
    name: &Name,
    kind: RecordType,
) -> Result<Message, String> {
    let answer = answer(server, name, kind)
        .await
        .map_err(|error| error.to_string())?;
    match answer.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain if answer.authoritative => Ok(answer),
        ResponseCode::NoError | ResponseCode::NXDomain => {
            Err("is not authoritative for the zone".to_owned())
        }
        code => Err(format!("answers {}", code_name(code))),
    }
}

async fn answer(server: &Server, name: &Name, kind: RecordType) -> Result<Message, QueryError> {
    let mut last = QueryError::Silent;
    for _attempt in 0..ATTEMPTS {
        match ask(server.address, &question(name, kind, false), ANSWER_LIMIT).await {
            Ok(answer) => return Ok(answer),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns true if a wildcard synthesised the CNAME: then a random sibling name has it, too (RFC
/// 4592, 2.1.1). A CNAME that was made for the challenge does not exist there.
async fn is_synthesised(servers: &[Server], at: &Name, target: &Name) -> Result<bool, DnsError> {
    // At a name that leaves no room for a sibling of this length nobody intends a wildcard.
    let Some(sibling) = random_sibling(at)? else {
        return Ok(false);
    };
    let answer = first_answer(servers, &sibling, RecordType::CNAME)
        .await
        .map_err(|why| {
            unavailable(format!(
                "asking for CNAME {}: {why}",
                plain(&at.base_name())
            ))
        })?;
    Ok(cname(&answer, &sibling).as_ref() == Some(target))
}

/// Returns a name beside another one that nobody uses; `None` where its parent leaves no room.
pub(super) fn random_sibling(at: &Name) -> Result<Option<Name>, DnsError> {
    let mut random = [0; 8];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| unavailable("the machine has no random numbers".to_owned()))?;
    let label = format!("_gw-{:016x}", u64::from_be_bytes(random));
    Ok(at.base_name().prepend_label(label.as_bytes()).ok())
}

/// Adds the target of a CNAME to the chain that began at `name`.
pub(super) fn append(name: &str, chain: &mut Vec<Name>, target: Name) -> Result<(), DnsError> {
    let is_loop = chain.contains(&target);
    chain.push(target);
    if is_loop {
        return Err(refused(
            name,
            format!(
                "its CNAMEs form a loop, {}; remove one of them",
                join(chain)
            ),
        ));
    }
    Ok(())
}

pub(super) fn too_long(name: &str, chain: &[Name]) -> DnsError {
    refused(
        name,
        format!(
            "more than {CNAME_LIMIT} CNAMEs follow each other, {}; shorten the chain",
            join(chain)
        ),
    )
}

pub(super) fn cname(answer: &Message, at: &Name) -> Option<Name> {
    answer
        .answers
        .iter()
        .filter(|record| record.name == *at)
        .find_map(|record| match &record.data {
            RData::CNAME(target) => {
                let mut target = target.0.to_lowercase();
                target.set_fqdn(true);
                Some(target)
            }
            _ => None,
        })
}

/// Returns the TXT values at a name.
pub(super) fn texts<'a>(answer: &'a Message, at: &'a Name) -> impl Iterator<Item = Vec<u8>> + 'a {
    answer
        .answers
        .iter()
        .filter(|record| record.name == *at)
        .filter_map(|record| match &record.data {
            RData::TXT(text) => Some(text.txt_data.concat()),
            _ => None,
        })
}

/// Returns the zone that a server refers us to, if the answer is a referral downwards.
fn referral(answer: &Message, zone: &Name, name: &Name) -> Option<Name> {
    if answer.authoritative || !answer.answers.is_empty() {
        return None;
    }
    answer
        .authorities
        .iter()
        .filter(|record| record.record_type() == RecordType::NS)
        .map(|record| record.name.to_lowercase())
        .find(|child| zone.zone_of(child) && child != zone && child.zone_of(name))
}

fn server_names(records: &[hickory_proto::rr::Record], zone: &Name) -> Vec<Name> {
    let here = records.iter().filter(|record| record.name == *zone);
    let mut names: Vec<Name> = here
        .filter_map(|record| match &record.data {
            RData::NS(ns) => Some(ns.0.to_lowercase()),
            _ => None,
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

fn address(record: &hickory_proto::rr::Record) -> Option<std::net::IpAddr> {
    match &record.data {
        RData::A(a) => Some(a.0.into()),
        RData::AAAA(aaaa) => Some(aaaa.0.into()),
        _ => None,
    }
}

/// Parses a name into the form that DNS compares: lower case, fully qualified.
pub(crate) fn absolute(name: &str) -> Result<Name, DnsError> {
    let mut parsed = Name::from_ascii(name.to_ascii_lowercase())
        .map_err(|_| refused(name, "it is not a domain name".to_owned()))?;
    parsed.set_fqdn(true);
    Ok(parsed)
}

/// Formats a name for people: lower case, without the trailing dot.
pub(crate) fn plain(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_ascii_lowercase()
}

pub(crate) fn join(chain: &[Name]) -> String {
    chain.iter().map(plain).collect::<Vec<_>>().join(" → ")
}

fn refused(name: &str, message: String) -> DnsError {
    DnsError::Refused {
        provider: PROVIDER.to_owned(),
        name: name.to_owned(),
        message,
    }
}

fn unavailable(message: String) -> DnsError {
    DnsError::Unavailable {
        provider: PROVIDER.to_owned(),
        message,
    }
}
