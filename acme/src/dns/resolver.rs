//! Queries to recursive resolvers: those of the machine, or configured ones.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};

use super::query::{ask, question};
use crate::challenge::dns::DnsError;

const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// The time for the answer about the other family, once there are addresses of one.
const OTHER_FAMILY: Duration = Duration::from_millis(500);
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
        joined(v4, v6)
    }

    /// The same, without waiting long for one family once there are addresses of the other: some
    /// name servers drop the queries of a family that they do not know.
    async fn either_family(&self, name: &Name) -> (Vec<Message>, Option<LookupError>) {
        let v4 = self.look_up(name, RecordType::A);
        let v6 = self.look_up(name, RecordType::AAAA);
        tokio::pin!(v4, v6);
        let (v4, v6) = tokio::select! {
            first = &mut v4 => {
                let second = second_family(&first, v6).await;
                (first, second)
            }
            first = &mut v6 => {
                let second = second_family(&first, v4).await;
                (second, first)
            }
        };
        joined(v4, v6)
    }

    /// Returns the addresses of an absolute name with the time for which they hold; the resolver
    /// follows CNAMEs. Without an answer for one of the two families those of the other count.
    ///
    /// # Errors
    /// When no resolver answers, or not with `NOERROR` or `NXDOMAIN`.
    pub async fn name_addresses(&self, name: &str) -> Result<NameAddresses, LookupError> {
        let mut name = Name::from_ascii(name).map_err(|_| LookupError::Name)?;
        name.set_fqdn(true);
        let (answers, error) = self.either_family(&name).await;
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

fn joined(
    v4: Result<Message, LookupError>,
    v6: Result<Message, LookupError>,
) -> (Vec<Message>, Option<LookupError>) {
    let error = v4.as_ref().err().or(v6.as_ref().err()).cloned();
    (v4.into_iter().chain(v6).collect(), error)
}

/// The answer for the other family, for which only a moment is left if the first has addresses.
async fn second_family(
    first: &Result<Message, LookupError>,
    second: impl Future<Output = Result<Message, LookupError>>,
) -> Result<Message, LookupError> {
    let has_addresses = first
        .as_ref()
        .is_ok_and(|answer| addresses_in(answer).next().is_some());
    if !has_addresses {
        return second.await;
    }
    tokio::time::timeout(OTHER_FAMILY, second)
        .await
        .unwrap_or(Err(LookupError::Silent))
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
    use std::time::Instant;

    use hickory_proto::op::MessageType;
    use hickory_proto::rr::{Record, rdata};
    use tokio::net::UdpSocket;

    use super::*;

    /// A server that answers with an address of one family, and drops the queries of the other.
    async fn server_of(kind: RecordType) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let address = socket.local_addr().expect("its address");
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
                let Ok(mut message) = Message::from_vec(&buffer[..length]) else {
                    continue;
                };
                let question = message.queries[0].clone();
                if question.query_type() != kind {
                    continue;
                }
                let data = match kind {
                    RecordType::A => RData::A(rdata::A([192, 0, 2, 1].into())),
                    _ => RData::AAAA(rdata::AAAA([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into())),
                };
                message.metadata.message_type = MessageType::Response;
                message.add_answer(Record::from_rdata(question.name().clone(), 60, data));
                let answer = message.to_vec().expect("a message");
                let _sent = socket.send_to(&answer, client).await;
            }
        });
        address
    }

    #[tokio::test]
    async fn a_server_that_drops_one_family_keeps_nobody_waiting() {
        for (kind, expected) in [
            (RecordType::A, "192.0.2.1"),
            (RecordType::AAAA, "2001:db8::1"),
        ] {
            let server = server_of(kind).await;
            let resolver = Resolver::new(vec![server]).expect("a server");
            let begun = Instant::now();
            let found = resolver.name_addresses("a.example").await.expect("some");
            let expected: IpAddr = expected.parse().expect("an address");
            assert_eq!(found.addresses, [expected], "{kind}");
            assert!(
                begun.elapsed() < ANSWER_LIMIT,
                "{kind}: {:?}, the time for one answer",
                begun.elapsed()
            );
        }
    }

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
