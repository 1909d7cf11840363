//! The parts of a request, or of a connection, that its hash is made of.

use envoy_types::pb::envoy::config::route::v3::route_action::{
    HashPolicy,
    hash_policy::{ConnectionProperties, Cookie, CookieAttribute, Header, PolicySpecifier},
};
use envoy_types::pb::envoy::r#type::v3::{HashPolicy as ConnectionHash, hash_policy};

use super::proto::duration;
use gatewright_core::model::{HashKey, RequestHash, WeightedTarget};

/// The hash of requests to these shares, which is the same for all of them.
pub(super) fn of_requests(shares: &[&WeightedTarget]) -> Vec<HashPolicy> {
    let hash = shares.first().and_then(|share| share.hash.as_deref());
    hash.map(policy).into_iter().collect()
}

fn policy(hash: &RequestHash) -> HashPolicy {
    let RequestHash { key, secure } = hash;
    let specifier = match key {
        HashKey::SourceIp => {
            PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: true })
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
    HashPolicy {
        terminal: false,
        policy_specifier: Some(specifier),
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
