//! Looks up the facts for a pre-flight check: addresses, the CNAMEs before them, and the CAA
//! records that apply.

use std::net::IpAddr;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, RecordType};

use super::super::authority::{CNAME_LIMIT, absolute, plain};
use super::super::resolver::{LookupError, Resolver};
use super::{CaaRecord, connects};
use crate::challenge::ChallengeKind;
use crate::challenge::dns::DnsError;

/// Most CAA records at one name that are evaluated.
const CAA_LIMIT: usize = 64;

/// The results of the look-ups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Addresses of the name.
    pub addresses: Addresses,
    /// CAA records that apply to it.
    pub caa: Caa,
}

/// The addresses that a name resolves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Not looked up: the CA does not connect to the name with this kind of challenge.
    NotAsked,
    /// The addresses; never empty.
    Found(Vec<IpAddr>),
    /// No address.
    None {
        /// True if the end of the CNAME chain exists.
        exists: bool,
        /// The end of the CNAME chain; the name itself without one.
        end: String,
    },
    /// The CNAMEs form a loop.
    Loop(Vec<String>),
    /// The chain has more than [`CNAME_LIMIT`] CNAMEs.
    TooLong(Vec<String>),
    /// The look-up failed, for this reason.
    Failed(String),
}

/// The CAA records that apply (RFC 8659, 3: the first set on the way from the name to the root).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caa {
    /// Not looked up.
    NotAsked,
    /// There are none: every CA may issue.
    Absent,
    /// These apply.
    Set {
        /// The name that has them.
        at: String,
        /// The records.
        records: Vec<CaaRecord>,
    },
    /// The look-up failed.
    Failed {
        /// The name that was looked up.
        at: String,
        /// The resolver's error.
        why: String,
    },
}

/// Looks up facts through a resolver.
#[derive(Clone, Debug)]
pub struct Lookup {
    resolver: Resolver,
}

impl Lookup {
    /// Uses this resolver.
    pub fn new(resolver: Resolver) -> Self {
        Self { resolver }
    }

    /// Looks up all facts for a pre-flight check of this name and kind of challenge; `host` may
    /// begin with `*.`.
    pub async fn facts(&self, host: &str, method: ChallengeKind) -> Result<Facts, DnsError> {
        // RFC 8659, 3: the CAA records of *.X are looked up from X on.
        let name = absolute(host.strip_prefix("*.").unwrap_or(host))?;
        let asked = connects(method) && !host.starts_with("*.");
        let addresses = async {
            if asked {
                self.addresses(&name).await
            } else {
                Addresses::NotAsked
            }
        };
        let (addresses, caa) = tokio::join!(addresses, self.caa(&name));
        Ok(Facts { addresses, caa })
    }

    /// Follows the CNAMEs one by one, since resolvers answer differently to a loop, and resolves
    /// the last.
    async fn addresses(&self, name: &Name) -> Addresses {
        let mut chain = vec![name.clone()];
        loop {
            let at = chain
                .last()
                .expect("the chain begins with the name")
                .clone();
            let target = match self.resolver.look_up(&at, RecordType::CNAME).await {
                Ok(answer) => answer
                    .answers
                    .iter()
                    .filter(|record| record.name == at)
                    .find_map(|r| match &r.data {
                        RData::CNAME(target) => Some(target.0.to_lowercase()),
                        _ => None,
                    }),
                Err(error) => return Addresses::Failed(error.to_string()),
            };
            let Some(target) = target else {
                return self.end(&at).await;
            };
            let again = chain.contains(&target);
            chain.push(target);
            if again {
                return Addresses::Loop(names(&chain));
            }
            if chain.len() > CNAME_LIMIT + 1 {
                return Addresses::TooLong(names(&chain));
            }
        }
    }

    /// Looks up the addresses of the end of the chain.
    async fn end(&self, name: &Name) -> Addresses {
        match self.resolver.addresses(name).await {
            Ok(found) if !found.is_empty() => Addresses::Found(found),
            Ok(_) => {
                let answer = self.resolver.look_up(name, RecordType::A).await;
                let exists =
                    answer.is_ok_and(|answer| answer.response_code == ResponseCode::NoError);
                Addresses::None {
                    exists,
                    end: plain(name),
                }
            }
            Err(error) => Addresses::Failed(error.to_string()),
        }
    }

    /// Looks up CAA records from the name up to its top-level domain. The resolver follows CNAMEs
    /// at each step, but the next step is the parent of the name and not of a CNAME's target (RFC
    /// 8659, 3, unlike its predecessor).
    async fn caa(&self, name: &Name) -> Caa {
        let mut at = name.clone();
        while !at.is_root() {
            match self.caa_at(&at).await {
                Ok(records) if records.is_empty() => at = at.base_name(),
                Ok(records) => {
                    return Caa::Set {
                        at: plain(&at),
                        records,
                    };
                }
                Err(error) => {
                    return Caa::Failed {
                        at: plain(&at),
                        why: error.to_string(),
                    };
                }
            }
        }
        Caa::Absent
    }

    async fn caa_at(&self, at: &Name) -> Result<Vec<CaaRecord>, LookupError> {
        let answer = self.resolver.look_up(at, RecordType::CAA).await?;
        let records = answer
            .answers
            .iter()
            .filter_map(|record| match &record.data {
                RData::CAA(caa) => Some(CaaRecord {
                    critical: caa.issuer_critical,
                    tag: caa.tag.clone(),
                    value: caa.value.clone(),
                }),
                _ => None,
            });
        Ok(records.take(CAA_LIMIT).collect())
    }
}

fn names(chain: &[Name]) -> Vec<String> {
    chain.iter().map(plain).collect()
}
