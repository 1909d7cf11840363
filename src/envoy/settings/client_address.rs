//! `clientAddress`: Envoy's filter RBAC for addresses. Each AccessPolicy has one of its own, so that a
//! request passes all of them.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::{CidrRange, TypedExtensionConfig};
use envoy_types::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, Rbac as Rules, permission, principal, rbac,
};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use ipnet::IpNet;

use super::report::{Report, not};
use super::{Filters, Phase};
use crate::proto::{extension, uint};
use crate::rbac::RBAC;
use gatewright_core::address_forms::{mapped_network, mapped_within};
use gatewright_core::model::ObjectName;
use gatewright_core::settings::{AddressList, Visit};

/// The name of the only policy of a filter, with which the code details of a denied request end
/// (`ADDRESS_DENIED`).
const DENIED: &str = "none";

impl Visit<AddressList> for Filters<'_> {
    fn visit(&mut self, _: &ObjectName, list: &AddressList) {
        self.add(Phase::Address, by_address(list));
    }
}

impl Visit<AddressList> for Report<'_, '_> {
    fn visit(&mut self, _: &ObjectName, list: &AddressList) {
        self.admits(admitted(list));
    }
}

/// Admits clients by their address as the connection manager determines it: behind load balancers
/// that of the PROXY protocol or of `X-Forwarded-For`. It is a rule that denies all others: Envoy
/// writes the name of a rule that applies into the metadata of each request.
fn by_address(list: &AddressList) -> TypedExtensionConfig {
    let others = Policy {
        permissions: vec![Permission {
            rule: Some(permission::Rule::Any(true)),
        }],
        principals: vec![not(admitted(list))],
        ..Default::default()
    };
    let rules = Rules {
        action: rbac::Action::Deny.into(),
        policies: HashMap::from([(DENIED.to_owned(), others)]),
        ..Default::default()
    };
    let filter = Rbac {
        rules: Some(rules),
        ..Default::default()
    };
    extension(RBAC, &filter)
}

/// The clients whose address a list admits.
fn admitted(list: &AddressList) -> Principal {
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
    use std::sync::Arc;

    use gatewright_core::settings::Access;
    use prost::Message;

    use super::*;
    use crate::testdata::{filters, policy};

    fn made(allow: &[&str], deny: &[&str]) -> Vec<Principal> {
        fn networks(all: &[&str]) -> Arc<[IpNet]> {
            all.iter()
                .map(|text| text.parse().expect("a network"))
                .collect()
        }
        let access = Access {
            client_address: Some(AddressList {
                allow: networks(allow),
                deny: networks(deny),
            }),
            ..policy("a", "p")
        };
        let made = filters(&[Arc::new(access)]);
        let config = made[0].typed_config.as_ref().expect("a configuration");
        let filter = Rbac::decode(config.value.as_slice()).expect("the filter");
        let rules = filter.rules.expect("rules");
        assert_eq!(
            rules.action,
            i32::from(rbac::Action::Deny),
            "others are denied"
        );
        let others = rules.policies[DENIED].principals[0].identifier.clone();
        let Some(principal::Identifier::NotId(admitted)) = others else {
            panic!("{others:?}")
        };
        match admitted.identifier {
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
}
