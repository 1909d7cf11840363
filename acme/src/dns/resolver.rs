//! Queries to recursive resolvers: those of the machine, or configured ones.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};

use super::query::{ask, question};
use crate::challenge::dns::DnsError;

const ANSWER_LIMIT: Duration = Duration::from_secs(3);
const ROUNDS: usize = 2;
/// Most servers; `resolv.conf` has three at most.
const SERVER_LIMIT: usize = 8;

/// A stub resolver. It has no cache: the records that it looks up are about to change.
#[derive(Clone, Debug)]
pub struct Resolver {
    servers: Vec<SocketAddr>,
}

/// The reason why a look-up has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupError {
    /// The resolver answers with an error: `SERVFAIL`, for instance, when DNSSEC does not validate.
    Code(String),
    /// No resolver answers.
    Silent,
    /// The text is no name of DNS.
    Name,
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "the resolver answers {code}"),
            Self::Silent => write!(f, "no resolver answers"),
            Self::Name => write!(f, "no name of DNS"),
        }
    }
}

/// The addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameAddresses {
    /// The IPv4 and IPv6 addresses; empty if the name exists without any.
    pub addresses: Vec<IpAddr>,
    /// The time for which they may be used: the smallest TTL of the records, those of CNAMEs
    /// included.
    pub ttl: Duration,
    /// True if the name does not exist (`NXDOMAIN`).
    pub is_missing: bool,
}

impl Resolver {
    /// Queries these servers, in their order.
    pub fn new(servers: Vec<SocketAddr>) -> Result<Self, DnsError> {
        if servers.is_empty() || servers.len() > SERVER_LIMIT {
            return Err(DnsError::Config {
                provider: "dns".to_owned(),
                message: format!(
                    "resolvers: {} are given; give 1 to {SERVER_LIMIT}",
                    servers.len()
                ),
            });
        }
        Ok(Self { servers })
    }

    /// Queries the servers of `/etc/resolv.conf`.
    pub fn system() -> Result<Self, DnsError> {
        let text =
            std::fs::read_to_string("/etc/resolv.conf").map_err(|error| DnsError::Config {
                provider: "dns".to_owned(),
                message: format!(
                    "resolvers: none are given and /etc/resolv.conf cannot be read: {error}"
                ),
            })?;
        let mut servers = nameservers(&text);
        servers.truncate(SERVER_LIMIT);
        // resolv.conf(5): without any, the server on the local machine.
        if servers.is_empty() {
            servers.push(([127, 0, 0, 1], 53).into());
        }
        Self::new(servers)
    }

    /// Queries one server after the other, two rounds, until one answers `NOERROR` or `NXDOMAIN`.
    pub(crate) async fn look_up(
        &self,
        name: &Name,
        kind: RecordType,
    ) -> Result<Message, LookupError> {
        let mut worst = LookupError::Silent;
        for _round in 0..ROUNDS {
            for server in &self.servers {
                match ask(*server, &question(name, kind, true), ANSWER_LIMIT).await {
                    Ok(answer) => match answer.response_code {
                        ResponseCode::NoError | ResponseCode::NXDomain => return Ok(answer),
                        code => worst = LookupError::Code(code_name(code)),
                    },
                    Err(error) => {
                        tracing::debug!(%server, %name, %kind, %error, "a resolver does not answer")
                    }
                }
            }
        }
        Err(worst)
    }

    /// Returns the IPv4 and IPv6 addresses of a name; the resolver follows CNAMEs.
    pub(crate) async fn addresses(&self, name: &Name) -> Result<Vec<IpAddr>, LookupError> {
        let (answers, error) = self.both_families(name).await;
        let found: Vec<IpAddr> = answers.iter().flat_map(addresses_in).collect();
        match error {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Returns the answers for IPv4 and IPv6 addresses, and why one of them is missing.
    async fn both_families(&self, name: &Name) -> (Vec<Message>, Option<LookupError>) {
        let (v4, v6) = tokio::join!(
            self.look_up(name, RecordType::A),
            self.look_up(name, RecordType::AAAA)
        );
        let error = v4.as_ref().err().or(v6.as_ref().err()).cloned();
        (v4.into_iter().chain(v6).collect(), error)
    }

    /// Returns the addresses of an absolute name with the time for which they hold; the resolver
    /// follows CNAMEs. Without an answer for one of the two families those of the other count.
    ///
    /// # Errors
    /// When no resolver answers, or not with `NOERROR` or `NXDOMAIN`.
    pub async fn name_addresses(&self, name: &str) -> Result<NameAddresses, LookupError> {
        let mut name = Name::from_ascii(name).map_err(|_| LookupError::Name)?;
        name.set_fqdn(true);
        let (answers, error) = self.both_families(&name).await;
        let addresses: Vec<IpAddr> = answers.iter().flat_map(addresses_in).collect();
        let ttls = answers
            .iter()
            .filter(|answer| addresses_in(answer).next().is_some())
            .flat_map(|answer| answer.answers.iter().map(|record| record.ttl));
        let ttl = Duration::from_secs(u64::from(ttls.min().unwrap_or_default()));
        let is_missing = addresses.is_empty()
            && answers
                .iter()
                .any(|answer| answer.response_code == ResponseCode::NXDomain);
        match error {
            // A name that exists without addresses of one family may have some of the other.
            Some(error) if addresses.is_empty() && !is_missing => Err(error),
            _ => Ok(NameAddresses {
                addresses,
                ttl,
                is_missing,
            }),
        }
    }
}

/// The addresses in an answer, which contains the records of followed CNAMEs.
fn addresses_in(answer: &Message) -> impl Iterator<Item = IpAddr> {
    answer
        .answers
        .iter()
        .filter_map(|record| match &record.data {
            RData::A(a) => Some(IpAddr::V4(a.0)),
            RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.0)),
            _ => None,
        })
}

/// Returns the mnemonic of a response code, which administrators know.
pub(crate) fn code_name(code: ResponseCode) -> String {
    match code {
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::NotAuth => "NOTAUTH".to_owned(),
        ResponseCode::FormErr => "FORMERR".to_owned(),
        ResponseCode::NotImp => "NOTIMP".to_owned(),
        code => code.to_string(),
    }
}

fn nameservers(resolv_conf: &str) -> Vec<SocketAddr> {
    resolv_conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter(|rest| rest.starts_with(char::is_whitespace))
        .filter_map(|rest| {
            // A zone such as %eth0 does not fit into a plain address.
            let address: IpAddr = rest.split_whitespace().next()?.parse().ok()?;
            Some(SocketAddr::new(address, 53))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::nameservers;

    #[test]
    fn resolv_conf_is_read() {
        let text = "# nameserver 9.9.9.9\nsearch a.b\nnameserver 10.0.0.10\n nameserver\tfd00::1 ; x\nnameservers 1.1.1.1\n";
        assert_eq!(
            nameservers(text),
            [
                "10.0.0.10:53".parse().expect("v4"),
                "[fd00::1]:53".parse().expect("v6")
            ]
        );
    }
}
