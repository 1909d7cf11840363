//! The parts of a request, or of a connection, that its hash is made of.

use envoy_types::pb::envoy::config::route::v3::route_action::{
    HashPolicy,
    hash_policy::{ConnectionProperties, Cookie, CookieAttribute, Header, PolicySpecifier},
};
use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use envoy_types::pb::envoy::r#type::v3::{HashPolicy as ConnectionHash, hash_policy};

use super::proto::duration;
use super::request_match::regex_matcher;
use gatewright_core::model::{HashKey, RequestHash, WeightedTarget};

/// The header in which Envoy writes the client's address.
const CLIENT: &str = "x-envoy-external-address";

/// An IPv4-mapped address, as Envoy writes it.
const MAPPED: &str = r"^::ffff:([0-9.]+)$";

/// The hash of requests to these shares, which is the same for all of them.
pub(super) fn of_requests(shares: &[&WeightedTarget]) -> Vec<HashPolicy> {
    let hash = shares.first().and_then(|share| share.hash.as_deref());
    hash.map_or_else(Vec::new, policies)
}

fn policies(hash: &RequestHash) -> Vec<HashPolicy> {
    let RequestHash { key, secure } = hash;
    let specifier = match key {
        HashKey::SourceIp => {
            let connection =
                PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: true });
            return vec![
                policy(PolicySpecifier::Header(of_client()), true),
                policy(connection, false),
            ];
        }
        HashKey::Header(name) => PolicySpecifier::Header(Header {
            header_name: name.clone(),
            regex_rewrite: None,
        }),
        HashKey::Cookie { name, ttl } => PolicySpecifier::Cookie(Cookie {
            name: name.clone(),
            ttl: ttl.and_then(duration),
            path: "/".to_owned(),
            attributes: attributes(*secure),
        }),
    };
    vec![policy(specifier, false)]
}

fn policy(specifier: PolicySpecifier, terminal: bool) -> HashPolicy {
    HashPolicy {
        terminal,
        policy_specifier: Some(specifier),
    }
}

/// The address of the client as Envoy tells it to backends. An IPv4-mapped one, which a load
/// balancer or proxy may write, is that of IPv4 (RFC 4291, 2.5.5.2). A filter of the route may
/// remove the header.
fn of_client() -> Header {
    Header {
        header_name: CLIENT.to_owned(),
        regex_rewrite: Some(RegexMatchAndSubstitute {
            pattern: Some(regex_matcher(MAPPED)),
            substitution: r"\1".to_owned(),
        }),
    }
}

/// Envoy adds `HttpOnly` by itself. Browsers send the cookie when a link of another site is
/// followed, so that the visitor stays where he was.
fn attributes(secure: bool) -> Vec<CookieAttribute> {
    fn attribute(name: &str, value: &str) -> CookieAttribute {
        CookieAttribute {
            name: name.to_owned(),
            value: value.to_owned(),
        }
    }
    secure
        .then(|| attribute("Secure", ""))
        .into_iter()
        .chain([attribute("SameSite", "Lax")])
        .collect()
}

/// The hash of connections to these shares: of those that have one it is the address of the client.
pub(super) fn of_connections(shares: &[WeightedTarget]) -> Vec<ConnectionHash> {
    let address = ConnectionHash {
        policy_specifier: Some(hash_policy::PolicySpecifier::SourceIp(
            hash_policy::SourceIp {},
        )),
    };
    let hashed = shares.iter().any(|share| share.hash.is_some());
    hashed.then_some(address).into_iter().collect()
}
