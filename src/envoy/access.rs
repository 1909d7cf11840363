//! Envoy's filters for AccessPolicies, among the own filters of a route: RBAC for addresses, and
//! those that authenticate clients.
//!
//! Each AccessPolicy has filters of its own, so that a request passes all of them. A route without
//! policies has no such filter, and a connection manager has none either.

use std::collections::HashMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::{CidrRange, TypedExtensionConfig};
use envoy_types::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, Rbac as Rules, permission, principal, rbac,
};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use ipnet::IpNet;

use super::proto::{extension, uint};
use super::rbac::RBAC;
use super::{access_report, basic_auth, credentials, jwt, oidc, required_claims};
use gatewright_core::address_forms::{mapped_network, mapped_within};
use gatewright_core::model::{Access, AddressList, BasicAuth, ObjectName, TokenAuth};

/// The name of the only policy of a filter.
const CLIENTS: &str = "clients";

/// The filters of the policies of a rule, in the order in which requests pass them: nobody is asked
/// for credentials whose address is not admitted. Policies that only report see the requests that
/// pass the others, with their credentials.
pub(super) fn filters(policies: &[Arc<Access>]) -> Vec<TypedExtensionConfig> {
    let all = policies.iter().map(|access| &**access);
    let (reporting, policies): (Vec<&Access>, Vec<&Access>) =
        all.partition(|access| access.only_reports());
    let lists = policies
        .iter()
        .filter_map(|access| access.addresses.as_ref());
    let users: Vec<(&ObjectName, &BasicAuth)> = policies
        .iter()
        .filter_map(|access| Some((&access.policy, access.users.as_ref()?)))
        .collect();
    let tokens: Vec<(&ObjectName, &TokenAuth)> = policies
        .iter()
        .filter_map(|access| Some((&access.policy, access.tokens.as_ref()?)))
        .collect();
    let logins = policies
        .iter()
        .filter_map(|access| Some(oidc::filters(&access.policy, access.login.as_ref()?)));
    let forgets = users.iter().any(|(_, auth)| !auth.forwards_credentials)
        || tokens.iter().any(|(_, auth)| !auth.forwards_credentials);
    let reads_tokens = !tokens.is_empty() || reporting.iter().any(|one| one.tokens.is_some());
    let mut filters: Vec<_> = lists.map(by_address).collect();
    // It may set the token that the next ones verify.
    filters.extend(logins.flatten());
    // One realm, also where several lists ask.
    let basic = users.first().map(|(policy, _)| credentials::basic(policy));
    filters.extend(basic);
    filters.extend(users.into_iter().map(|(_, auth)| basic_auth::filter(auth)));
    filters.extend(reads_tokens.then(credentials::copied));
    filters.extend(tokens.into_iter().flat_map(by_token));
    filters.extend(access_report::filters(&reporting));
    if forgets {
        filters.push(credentials::without_credentials());
    } else if reads_tokens {
        filters.push(credentials::without_copy());
    }
    filters
}

/// Admits clients by their tokens, and of them by what the tokens say.
fn by_token(
    (policy, auth): (&ObjectName, &TokenAuth),
) -> impl Iterator<Item = TypedExtensionConfig> {
    let claims = required_claims::filter(policy, auth);
    std::iter::once(jwt::filter(policy, auth)).chain(claims)
}

/// Admits clients by their address as the connection manager determines it: behind load balancers
/// that of the PROXY protocol or of `X-Forwarded-For`.
fn by_address(list: &AddressList) -> TypedExtensionConfig {
    let clients = Policy {
        permissions: vec![Permission {
            rule: Some(permission::Rule::Any(true)),
        }],
        principals: vec![admitted(list)],
        ..Default::default()
    };
    let rules = Rules {
        action: rbac::Action::Allow.into(),
        policies: HashMap::from([(CLIENTS.to_owned(), clients)]),
        ..Default::default()
    };
    let filter = Rbac {
        rules: Some(rules),
        ..Default::default()
    };
    extension(RBAC, &filter)
}

/// The clients whose address a list admits.
pub(super) fn admitted(list: &AddressList) -> Principal {
    let AddressList { allow, deny } = list;
    let allowed = if allow.is_empty() {
        principal::Identifier::Any(true)
    } else {
        one_of(allow)
    };
    let not_denied =
        (!deny.is_empty()).then(|| principal::Identifier::NotId(Box::new(of(one_of(deny)))));
    let ids = std::iter::once(allowed).chain(not_denied).map(of);
    of(principal::Identifier::AndIds(principal::Set {
        ids: ids.collect(),
    }))
}

/// Clients of any of these networks. Those of IPv4 have addresses of either form: load balancers
/// and proxies with sockets for both versions of IP write IPv4-mapped ones.
fn one_of(networks: &[IpNet]) -> principal::Identifier {
    let ids = networks.iter().flat_map(|network| match network {
        IpNet::V4(v4) => vec![of(within(network)), of(within(&mapped_network(*v4)))],
        IpNet::V6(v6) => match mapped_within(*v6) {
            None => vec![of(within(network))],
            Some(mapped) => vec![of(within_except(network, &mapped))],
        },
    });
    principal::Identifier::OrIds(principal::Set { ids: ids.collect() })
}

fn within(network: &IpNet) -> principal::Identifier {
    principal::Identifier::RemoteIp(CidrRange {
        address_prefix: network.network().to_string(),
        prefix_len: uint(network.prefix_len().into()),
    })
}

fn within_except(network: &IpNet, except: &IpNet) -> principal::Identifier {
    let others = principal::Identifier::NotId(Box::new(of(within(except))));
    principal::Identifier::AndIds(principal::Set {
        ids: vec![of(within(network)), of(others)],
    })
}

fn of(identifier: principal::Identifier) -> Principal {
    Principal {
        identifier: Some(identifier),
    }
}

#[cfg(test)]
mod tests {
    use gatewright_core::model::{
        ClaimType, Enforcement, IssuerKeys, Jwks, KeyKind, RequiredClaim, Users,
    };
    use gatewright_core::request_outcome::CLAIMS;
    use prost::Message;

    use super::*;

    fn made(allow: &[&str], deny: &[&str]) -> Vec<Principal> {
        fn networks(all: &[&str]) -> Arc<[IpNet]> {
            all.iter()
                .map(|text| text.parse().expect("a network"))
                .collect()
        }
        let access = Access {
            policy: ObjectName::new("a", "p"),
            enforcement: Enforcement::Enforce,
            addresses: Some(AddressList {
                allow: networks(allow),
                deny: networks(deny),
            }),
            users: None,
            login: None,
            tokens: None,
        };
        let made = filters(&[Arc::new(access)]);
        let config = made[0].typed_config.as_ref().expect("a configuration");
        let filter = Rbac::decode(config.value.as_slice()).expect("the filter");
        let rules = filter.rules.expect("rules");
        assert_eq!(
            rules.action,
            i32::from(rbac::Action::Allow),
            "others are denied"
        );
        let clients = rules.policies[CLIENTS].principals[0].identifier.clone();
        match clients {
            Some(principal::Identifier::AndIds(set)) => set.ids,
            other => panic!("{other:?}"),
        }
    }

    fn networks(ids: &[Principal]) -> Vec<String> {
        let ranges = ids.iter().filter_map(|id| match &id.identifier {
            Some(principal::Identifier::RemoteIp(range)) => Some(range),
            _ => None,
        });
        ranges
            .map(|range| {
                let length = range.prefix_len.as_ref().map_or(0, |length| length.value);
                format!("{}/{length}", range.address_prefix)
            })
            .collect()
    }

    #[test]
    fn all_of_ipv6_has_no_client_of_ipv4() {
        let made = made(&["::/0"], &[]);
        let Some(principal::Identifier::OrIds(allowed)) = &made[0].identifier else {
            panic!("a list: {made:?}")
        };
        let Some(principal::Identifier::AndIds(all)) = &allowed.ids[0].identifier else {
            panic!("two conditions: {allowed:?}")
        };
        assert_eq!(networks(&all.ids), ["::/0"]);
        let Some(principal::Identifier::NotId(mapped)) = &all.ids[1].identifier else {
            panic!("an exception: {all:?}")
        };
        assert_eq!(
            networks(std::slice::from_ref(mapped)),
            ["::ffff:0.0.0.0/96"]
        );
    }

    #[test]
    fn a_client_is_in_an_allowed_network_and_in_no_denied_one() {
        let both = made(&["10.0.0.0/8", "2001:db8::/32"], &["10.1.0.0/16"]);
        assert_eq!(both.len(), 2, "allowed, and not denied");
        let Some(principal::Identifier::OrIds(allowed)) = &both[0].identifier else {
            panic!("a list: {both:?}")
        };
        assert_eq!(
            networks(&allowed.ids),
            ["10.0.0.0/8", "::ffff:10.0.0.0/104", "2001:db8::/32"],
            "either network, that of IPv4 in both forms"
        );
        assert!(
            matches!(&both[1].identifier, Some(principal::Identifier::NotId(_))),
            "{both:?}"
        );
        let denied = made(&[], &["10.1.0.0/16"]);
        assert_eq!(
            denied[0].identifier,
            Some(principal::Identifier::Any(true)),
            "all but the denied ones"
        );
    }

    fn asking(forward: Option<&str>, forwards_credentials: bool) -> Arc<Access> {
        let users = BasicAuth {
            secret: ObjectName::new("a", "users"),
            users: Users::new("alice:hash\n".to_owned(), 1),
            forward_username: forward.map(Arc::from),
            forwards_credentials,
        };
        Arc::new(Access {
            policy: ObjectName::new("a", "p"),
            enforcement: Enforcement::Enforce,
            addresses: Some(AddressList {
                allow: ["10.0.0.0/8".parse().expect("a network")].into(),
                deny: Arc::default(),
            }),
            users: Some(users),
            login: None,
            tokens: None,
        })
    }

    #[test]
    fn claims_are_asked_for_behind_the_tokens_of_their_policy_alone() {
        let tokens = TokenAuth {
            issuer: "id".into(),
            audiences: Arc::default(),
            keys: IssuerKeys::Given(Jwks::new("{}".to_owned(), vec![KeyKind::P256])),
            required_claims: Arc::default(),
            claims: Arc::default(),
            forward_payload: None,
            forwards_credentials: true,
        };
        let claim = RequiredClaim {
            claim: "org.team".into(),
            value_type: ClaimType::String,
            values: ["red".into()].into(),
        };
        let asking = TokenAuth {
            required_claims: [claim].into(),
            ..tokens.clone()
        };
        let policies = [("a", tokens), ("b", asking)].map(|(name, tokens)| {
            Arc::new(Access {
                policy: ObjectName::new("n", name),
                enforcement: Enforcement::Enforce,
                addresses: None,
                users: None,
                login: None,
                tokens: Some(tokens),
            })
        });
        let made = filters(&policies);
        let names: Vec<&str> = made.iter().map(|filter| filter.name.as_str()).collect();
        let mutation = "envoy.filters.http.header_mutation";
        let expected = [mutation, jwt::JWT, jwt::JWT, RBAC, mutation];
        assert_eq!(names, expected, "the first has none");
        let config = made[3].typed_config.as_ref().expect("a configuration");
        let rules = Rbac::decode(config.value.as_slice())
            .expect("the filter")
            .rules;
        let rules = rules.expect("rules");
        assert_eq!(rules.action, i32::from(rbac::Action::Deny));
        let lacking = rules.policies[CLAIMS].principals[0].identifier.as_ref();
        let Some(principal::Identifier::NotId(has)) = lacking else {
            panic!("what lacks a claim: {lacking:?}")
        };
        let has = format!("{has:?}");
        let keys = ["n/b", "org", "team"].map(|key| has.find(&format!("Key({key:?})")));
        assert!(keys.iter().all(Option::is_some), "{has}");
        assert!(keys.is_sorted(), "the payload of its policy first: {has}");
    }

    #[test]
    fn addresses_come_before_users_and_credentials_are_removed_last() {
        fn names(policies: &[Arc<Access>]) -> Vec<String> {
            let filters = filters(policies).into_iter();
            filters
                .map(|filter| filter.name.replace("envoy.filters.http.", ""))
                .collect()
        }
        assert_eq!(
            names(&[asking(None, true)]),
            ["rbac", "header_mutation", "basic_auth"],
            "one for scheme and realm, and nothing is told"
        );
        let both = [asking(Some("x-user"), true), asking(None, false)];
        let expected = [
            "rbac",
            "rbac",
            "header_mutation",
            "basic_auth",
            "basic_auth",
            "header_mutation",
        ];
        assert_eq!(names(&both), expected, "both lists of both policies");
    }
}
