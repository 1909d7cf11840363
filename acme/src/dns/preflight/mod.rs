//! The pre-flight check of a name: finds the errors in DNS that would fail an order, before the
//! order is placed.
//!
//! [`Lookup`] looks up [`Facts`]; [`examine`] evaluates them and is pure. Each [`Finding`] is a
//! sentence that names the cause and the fix, and stays the same as long as the cause does.

mod caa;
mod facts;

use std::net::IpAddr;

use crate::challenge::ChallengeKind;

pub use self::caa::{CaaRecord, CaaRequest, CaaVerdict, caa};
pub use self::facts::{Addresses, Caa, Facts, Lookup};

/// Returns true if the CA connects to the name with this kind of challenge.
fn connects(method: ChallengeKind) -> bool {
    match method {
        ChallengeKind::Http01 | ChallengeKind::TlsAlpn01 => true,
        ChallengeKind::Dns01 | ChallengeKind::DnsAccount01 | ChallengeKind::DnsPersist01 => false,
    }
}

/// The expected facts.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    /// The name, with `*.` for a wildcard.
    pub host: &'a str,
    /// The kind of challenge.
    pub method: ChallengeKind,
    /// Addresses of the responder; if empty, they are not known, and addresses are not compared.
    pub addresses: &'a [IpAddr],
    /// `caaIdentities` of the CA's directory; if empty, CAA records are not evaluated.
    pub identities: &'a [String],
    /// URL of our account.
    pub account_uri: Option<&'a str>,
}

/// An error in DNS that would fail the order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// The name does not exist.
    #[error(
        "{host} does not exist in DNS; create an A or AAAA record, or a CNAME, that points to {wanted}"
    )]
    NoSuchName {
        /// The name.
        host: String,
        /// Our addresses.
        wanted: String,
    },
    /// The name has no address.
    #[error("{host} has no A or AAAA record; create one that points to {wanted}")]
    NoAddress {
        /// The name.
        host: String,
        /// Our addresses.
        wanted: String,
    },
    /// A CNAME leads to a name that has no address.
    #[error(
        "{host} is a CNAME to {target}, which has no address; remove the CNAME or point it to {wanted}"
    )]
    DanglingCname {
        /// The name.
        host: String,
        /// The end of the chain.
        target: String,
        /// Our addresses.
        wanted: String,
    },
    /// CNAMEs form a loop.
    #[error("the CNAMEs of {host} form a loop, {chain}; remove one of them")]
    CnameLoop {
        /// The name.
        host: String,
        /// The chain.
        chain: String,
    },
    /// Too many CNAMEs.
    #[error("{host} is behind more than {limit} CNAMEs, {chain}; shorten the chain")]
    CnameChain {
        /// The name.
        host: String,
        /// The limit.
        limit: usize,
        /// The chain.
        chain: String,
    },
    /// No address is ours.
    #[error(
        "{host} points to {found}, not to {wanted}; change its A and AAAA records, or wait until the change is visible"
    )]
    ElsewhereAll {
        /// The name.
        host: String,
        /// Its addresses.
        found: String,
        /// Our addresses.
        wanted: String,
    },
    /// Some IPv4 addresses are not ours.
    #[error(
        "{host} points to {strays} besides {wanted}; remove the A record of {strays}, because the CA may ask any of them"
    )]
    ElsewhereSome {
        /// The name.
        host: String,
        /// Its addresses that are not ours.
        strays: String,
        /// Our addresses.
        wanted: String,
    },
    /// The IPv6 addresses are not ours while the IPv4 ones are.
    #[error(
        "the AAAA record of {host} points to {strays}, which is not ours; remove it or point it here, because CAs prefer IPv6"
    )]
    DanglingAaaa {
        /// The name.
        host: String,
        /// Its IPv6 addresses that are not ours.
        strays: String,
    },
    /// The addresses cannot be looked up.
    #[error(
        "the addresses of {host} cannot be looked up: {why}; check the name servers of the domain and its DNSSEC"
    )]
    LookupFailed {
        /// The name.
        host: String,
        /// The resolver's error.
        why: String,
    },
    /// The CAA records cannot be looked up, which CAs treat as a refusal.
    #[error(
        "the CAA records of {at} cannot be looked up: {why}; a CA refuses to issue then: check the name servers of the domain and its DNSSEC"
    )]
    CaaLookupFailed {
        /// The name that was looked up.
        at: String,
        /// The resolver's error.
        why: String,
    },
    /// Only other CAs may issue.
    #[error(
        "CAA records at {at} allow {allowed} to issue for {host}; add: {at} CAA 0 {tag} \"{identity}\""
    )]
    CaaOtherIssuer {
        /// The name that has the records.
        at: String,
        /// The CAs that may issue, or "nobody".
        allowed: String,
        /// The name.
        host: String,
        /// The property to add.
        tag: &'static str,
        /// The name of this CA in CAA records.
        identity: String,
    },
    /// Only another account may.
    #[error(
        "CAA records at {at} bind {host} to the account {bound}; use that account, or set accounturi={ours}"
    )]
    CaaOtherAccount {
        /// The name that has the records.
        at: String,
        /// The name.
        host: String,
        /// The account that the records name.
        bound: String,
        /// Our account.
        ours: String,
    },
    /// Only other kinds of challenge may be used.
    #[error(
        "CAA records at {at} allow the methods {allowed} for {host}; use one of them, or add {method} to validationmethods"
    )]
    CaaOtherMethod {
        /// The name that has the records.
        at: String,
        /// The kinds of challenge that may be used.
        allowed: String,
        /// The name.
        host: String,
        /// Our kind of challenge.
        method: &'static str,
    },
    /// A critical property that CAs do not know.
    #[error(
        "a CAA record at {at} has the critical property {tag}, which CAs do not know and therefore refuse to issue for {host}; remove it or its critical flag"
    )]
    CaaCritical {
        /// The name that has the record.
        at: String,
        /// The property.
        tag: String,
        /// The name.
        host: String,
    },
}

/// Evaluates the facts. The order of the findings is fixed: addresses, then CAA.
pub fn examine(facts: &Facts, expected: &Expected<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if connects(expected.method) {
        examine_addresses(&facts.addresses, expected, &mut findings);
    }
    examine_caa(&facts.caa, expected, &mut findings);
    findings
}

fn examine_addresses(addresses: &Addresses, expected: &Expected<'_>, findings: &mut Vec<Finding>) {
    let host = expected.host.to_owned();
    let wanted = if expected.addresses.is_empty() {
        "this gateway".to_owned()
    } else {
        list(expected.addresses)
    };
    let found = match addresses {
        Addresses::NotAsked => return,
        Addresses::Found(found) => found,
        Addresses::None { exists: true, end } if *end == host => {
            return findings.push(Finding::NoAddress { host, wanted });
        }
        Addresses::None { exists: false, end } if *end == host => {
            return findings.push(Finding::NoSuchName { host, wanted });
        }
        Addresses::None { end, .. } => {
            return findings.push(Finding::DanglingCname {
                host,
                target: end.clone(),
                wanted,
            });
        }
        Addresses::Loop(chain) => {
            return findings.push(Finding::CnameLoop {
                host,
                chain: chain.join(" → "),
            });
        }
        Addresses::TooLong(chain) => {
            let limit = super::authority::CNAME_LIMIT;
            return findings.push(Finding::CnameChain {
                host,
                limit,
                chain: chain.join(" → "),
            });
        }
        Addresses::Failed(why) => {
            return findings.push(Finding::LookupFailed {
                host,
                why: why.clone(),
            });
        }
    };
    if expected.addresses.is_empty() {
        return;
    }
    let strays: Vec<IpAddr> = found
        .iter()
        .filter(|ip| !expected.addresses.contains(ip))
        .copied()
        .collect();
    let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = strays.iter().partition(|ip| ip.is_ipv4());
    if strays.len() == found.len() {
        return findings.push(Finding::ElsewhereAll {
            host,
            found: list(found),
            wanted,
        });
    }
    if !v4.is_empty() {
        findings.push(Finding::ElsewhereSome {
            host: host.clone(),
            strays: list(&v4),
            wanted,
        });
    }
    if !v6.is_empty() {
        findings.push(Finding::DanglingAaaa {
            host,
            strays: list(&v6),
        });
    }
}

fn examine_caa(found: &Caa, expected: &Expected<'_>, findings: &mut Vec<Finding>) {
    let (at, records) = match found {
        Caa::NotAsked | Caa::Absent => return,
        Caa::Failed { at, why } => {
            return findings.push(Finding::CaaLookupFailed {
                at: at.clone(),
                why: why.clone(),
            });
        }
        Caa::Set { at, records } => (at.clone(), records),
    };
    let Some(identity) = expected.identities.first() else {
        return;
    };
    let host = expected.host.to_owned();
    let wildcard = host.starts_with("*.");
    let request = CaaRequest {
        identities: expected.identities,
        account_uri: expected.account_uri,
        method: expected.method,
        wildcard,
    };
    findings.extend(match caa(records, &request) {
        CaaVerdict::Allowed => None,
        CaaVerdict::Critical(tag) => Some(Finding::CaaCritical { at, tag, host }),
        CaaVerdict::OtherIssuer(others) => {
            let allowed = if others.is_empty() {
                "nobody".to_owned()
            } else {
                format!("only {}", others.join(", "))
            };
            let wild = wildcard
                && records
                    .iter()
                    .any(|record| record.tag.eq_ignore_ascii_case("issuewild"));
            let tag = if wild { "issuewild" } else { "issue" };
            Some(Finding::CaaOtherIssuer {
                at,
                allowed,
                host,
                tag,
                identity: identity.clone(),
            })
        }
        CaaVerdict::OtherAccount(bound) => {
            let ours = expected
                .account_uri
                .unwrap_or("(the account that is about to be created)")
                .to_owned();
            Some(Finding::CaaOtherAccount {
                at,
                host,
                bound,
                ours,
            })
        }
        CaaVerdict::OtherMethod(allowed) => {
            let allowed = if allowed.is_empty() {
                "(none)".to_owned()
            } else {
                allowed
            };
            Some(Finding::CaaOtherMethod {
                at,
                allowed,
                host,
                method: expected.method.as_str(),
            })
        }
    });
}

/// Formats addresses in a fixed order, so that the message does not change with the resolver's
/// order.
fn list(addresses: &[IpAddr]) -> String {
    let mut sorted = addresses.to_vec();
    sorted.sort();
    sorted.dedup();
    sorted
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn said(addresses: Addresses, caa: Caa, method: ChallengeKind) -> Vec<String> {
        let expected = Expected {
            host: "a.example",
            method,
            addresses: &[ip("192.0.2.1"), ip("2001:db8::1")],
            identities: &["ca.example".to_owned()],
            account_uri: None,
        };
        examine(&Facts { addresses, caa }, &expected)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn addresses(found: &[&str]) -> Addresses {
        Addresses::Found(found.iter().map(|text| ip(text)).collect())
    }

    #[test]
    fn addresses_of_ours_are_no_finding() {
        for found in [
            &["192.0.2.1"][..],
            &["2001:db8::1"],
            &["2001:db8::1", "192.0.2.1"],
        ] {
            assert!(
                said(addresses(found), Caa::Absent, ChallengeKind::Http01).is_empty(),
                "{found:?}"
            );
        }
    }

    #[test]
    fn foreign_addresses_are_named_in_a_fixed_order() {
        let one = said(
            addresses(&["198.51.100.9", "198.51.100.7"]),
            Caa::Absent,
            ChallengeKind::Http01,
        );
        let two = said(
            addresses(&["198.51.100.7", "198.51.100.9"]),
            Caa::Absent,
            ChallengeKind::Http01,
        );
        assert_eq!(one, two);
        assert_eq!(
            one,
            [
                "a.example points to 198.51.100.7, 198.51.100.9, not to 192.0.2.1, 2001:db8::1; \
              change its A and AAAA records, or wait until the change is visible"
            ]
        );
    }

    #[test]
    fn a_dangling_aaaa_is_told_apart() {
        let said = said(
            addresses(&["192.0.2.1", "2001:db8::dead"]),
            Caa::Absent,
            ChallengeKind::Http01,
        );
        assert_eq!(
            said,
            [
                "the AAAA record of a.example points to 2001:db8::dead, which is not ours; remove it or point it here, \
              because CAs prefer IPv6"
            ]
        );
    }

    #[test]
    fn addresses_do_not_matter_to_dns_01() {
        assert!(
            said(
                addresses(&["198.51.100.7"]),
                Caa::Absent,
                ChallengeKind::Dns01
            )
            .is_empty()
        );
    }

    #[test]
    fn each_way_to_have_no_address_has_its_sentence() {
        fn none(exists: bool, end: &str) -> Addresses {
            Addresses::None {
                exists,
                end: end.to_owned(),
            }
        }
        for (facts, wanted) in [
            (none(false, "a.example"), "a.example does not exist in DNS"),
            (none(true, "a.example"), "a.example has no A or AAAA record"),
            (
                none(false, "gone.example"),
                "a.example is a CNAME to gone.example, which has no address",
            ),
            (
                Addresses::Loop(vec![
                    "a.example".into(),
                    "b.example".into(),
                    "a.example".into(),
                ]),
                "the CNAMEs of a.example form a loop, a.example → b.example → a.example",
            ),
            (
                Addresses::Failed("the resolver answers SERVFAIL".into()),
                "the addresses of a.example cannot be looked up",
            ),
        ] {
            let said = said(facts, Caa::Absent, ChallengeKind::Http01);
            assert!(said.len() == 1 && said[0].starts_with(wanted), "{said:?}");
        }
    }

    #[test]
    fn caa_says_what_to_add() {
        let records = vec![CaaRecord {
            critical: false,
            tag: "issue".into(),
            value: b"foreign.example".to_vec(),
        }];
        let set = Caa::Set {
            at: "example".to_owned(),
            records,
        };
        assert_eq!(
            said(addresses(&["192.0.2.1"]), set, ChallengeKind::Http01),
            [
                "CAA records at example allow only foreign.example to issue for a.example; \
              add: example CAA 0 issue \"ca.example\""
            ]
        );
    }
}
