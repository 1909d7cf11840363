//! `rateLimit`: Envoy's local rate limit.
//!
//! One filter has all limits of a rule. Its name has the rule, and equal filters are one filter
//! (`shared_filters.rs`), so that the matches of a rule share one, and with it the token buckets,
//! and no other rule does. Each limit is a descriptor that every request has: its
//! number, and for limits of single clients the address or the value of the header. The values that
//! the filter has seen have a token bucket each, up to `max_dynamic_descriptors`, and the one that
//! was not used for longest makes room.

use envoy_types::pb::envoy::config::core::v3::{RuntimeFractionalPercent, TypedExtensionConfig};
use envoy_types::pb::envoy::config::route::v3::RateLimit as DescriptorActions;
use envoy_types::pb::envoy::config::route::v3::rate_limit::{
    Action,
    action::{ActionSpecifier, GenericKey, RemoteAddressMatch},
};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::{
    LocalRateLimitDescriptor, XRateLimitHeadersRfcVersion, rate_limit_descriptor::Entry,
};
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::r#type::matcher::v3::AddressMatcher;
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, TokenBucket};
use envoy_types::pb::xds::core::v3::CidrRange;

use super::{Filters, Phase};
use crate::proto::{boolean, duration, extension, seconds, uint};
use gatewright_core::model::ObjectName;
use gatewright_core::settings::{HEADER_BYTES, LimitedBy, RateLimit, RateLimits, Visit};

/// The name of the filter, before that of the rule.
const FILTER: &str = "envoy.filters.http.local_ratelimit";
/// The prefix of its statistics, which are those of all routes together.
const STATISTICS: &str = "routes";
/// The keys of descriptors.
const LIMIT: &str = "limit";
const ADDRESS: &str = "address";
const HEADER: &str = "header";
/// The value of a request without the header.
const WITHOUT: &str = "-";
/// An IPv4 address in its IPv4-mapped form (RFC 4291, 2.5.5.2): a load balancer or proxy may write
/// either one, and both have one bucket.
const OF_IPV4: &str = "::ffff:%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%";
/// An IPv6 address that is of a client of IPv4.
const MAPPED: &str = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%";
/// The bits of an IPv6 address that tell clients apart: a subscriber has at least a network of
/// these.
const OF_IPV6: &str = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT(64)%";
/// All of IPv4.
const IPV4: (&str, u32) = ("0.0.0.0", 0);
/// The networks of IPv6 in which each address is of one client of IPv4: IPv4-mapped addresses, and
/// those that a translator makes (RFC 6052, 2.1).
const IPV4_IN_IPV6: [(&str, u32); 2] = [("::ffff:0:0", 96), ("64:ff9b::", 96)];
/// The runtime feature by which the value of a descriptor is a format.
pub(crate) const FORMATS: &str =
    "envoy.reloadable_features.enable_formatter_for_ratelimit_action_descriptor_value";

/// The part of a rule's name for the limits in front of its login.
const IN_FRONT: &str = "/login";

impl Visit<RateLimits> for Filters<'_> {
    fn visit(&mut self, _: &ObjectName, limits: &RateLimits) {
        let [front, behind] = filters(&self.route.name, limits, self.has_login);
        if let Some(front) = front {
            self.add(Phase::LimitBeforeLogin, front);
        }
        if let Some(behind) = behind {
            self.add(Phase::Limit, behind);
        }
    }
}

/// The filters of a rule: in front of a login, and behind all policies about clients.
fn filters(rule: &str, all: &RateLimits, has_login: bool) -> [Option<TypedExtensionConfig>; 2] {
    let (front, behind): (Vec<_>, Vec<_>) =
        all.limits.iter().enumerate().partition(|(_, limit)| {
            has_login && matches!(limit.by, LimitedBy::ClientAddress { .. })
        });
    [
        (format!("{rule}{IN_FRONT}"), front),
        (rule.to_owned(), behind),
    ]
    .map(|(name, limits)| (!limits.is_empty()).then(|| filter(&name, all.buckets(), &limits)))
}

/// The filter of some limits, each with its number, and with so many buckets.
fn filter(name: &str, buckets: u32, limits: &[(usize, &RateLimit)]) -> TypedExtensionConfig {
    let filter = LocalRateLimit {
        stat_prefix: STATISTICS.to_owned(),
        // Every request has a descriptor, so this one is never used.
        token_bucket: Some(TokenBucket {
            max_tokens: u32::MAX,
            tokens_per_fill: uint(u32::MAX),
            fill_interval: seconds(1),
        }),
        always_consume_default_token_bucket: boolean(false),
        filter_enabled: always(),
        filter_enforced: always(),
        rate_limits: limits.iter().copied().flat_map(actions).collect(),
        descriptors: limits.iter().copied().map(descriptor).collect(),
        max_dynamic_descriptors: uint(buckets),
        enable_x_ratelimit_headers: XRateLimitHeadersRfcVersion::DraftVersion03.into(),
        enable_retry_after_header: true,
        rate_limited_as_resource_exhausted: true,
        ..Default::default()
    };
    extension(&format!("{FILTER}/{name}"), &filter)
}

fn always() -> Option<RuntimeFractionalPercent> {
    Some(RuntimeFractionalPercent {
        default_value: Some(FractionalPercent {
            numerator: 100,
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// The ways in which the descriptor of a limit is made of a request, of which one applies.
fn actions((number, limit): (usize, &RateLimit)) -> Vec<DescriptorActions> {
    let of_clients = match &limit.by {
        LimitedBy::Everyone => vec![None],
        LimitedBy::ClientAddress { .. } => {
            let [mapped, translated] = IPV4_IN_IPV6;
            let of_ipv4 = [IPV4, mapped, translated];
            vec![
                Some(address(OF_IPV4, &[IPV4], false)),
                Some(address(MAPPED, &IPV4_IN_IPV6, false)),
                Some(address(OF_IPV6, &of_ipv4, true)),
            ]
        }
        LimitedBy::Header { name, .. } => vec![Some(key(
            HEADER,
            format!("%REQ({name}):{HEADER_BYTES}%"),
            WITHOUT,
        ))],
    };
    let number = key(LIMIT, number.to_string(), "");
    of_clients
        .into_iter()
        .map(|of_client| {
            let actions = std::iter::once(number.clone()).chain(of_client);
            DescriptorActions {
                actions: actions
                    .map(|action| Action {
                        action_specifier: Some(action),
                    })
                    .collect(),
                ..Default::default()
            }
        })
        .collect()
}

/// The address of a client in this form, if it is in one of these networks, or in none of them.
fn address(form: &str, networks: &[(&str, u32)], invert_match: bool) -> ActionSpecifier {
    let ranges = networks.iter().map(|&(prefix, length)| CidrRange {
        address_prefix: prefix.to_owned(),
        prefix_len: uint(length),
    });
    ActionSpecifier::RemoteAddressMatch(RemoteAddressMatch {
        descriptor_key: ADDRESS.to_owned(),
        descriptor_value: form.to_owned(),
        default_value: String::new(),
        address_matcher: Some(AddressMatcher {
            ranges: ranges.collect(),
            invert_match,
        }),
    })
}

fn key(key: &str, value: String, default: &str) -> ActionSpecifier {
    ActionSpecifier::GenericKey(GenericKey {
        descriptor_key: key.to_owned(),
        descriptor_value: value,
        default_value: default.to_owned(),
    })
}

/// The token buckets of a limit: one, or one for each value.
fn descriptor((number, limit): (usize, &RateLimit)) -> LocalRateLimitDescriptor {
    let RateLimit {
        requests,
        per,
        burst,
        by,
    } = limit;
    let of_client = match by {
        LimitedBy::Everyone => None,
        LimitedBy::ClientAddress { .. } => Some(ADDRESS),
        LimitedBy::Header { .. } => Some(HEADER),
    };
    let entries = [(LIMIT, number.to_string())]
        .into_iter()
        .chain(of_client.map(|key| (key, String::new())));
    LocalRateLimitDescriptor {
        entries: entries
            .map(|(key, value)| Entry {
                key: key.to_owned(),
                value,
            })
            .collect(),
        token_bucket: Some(TokenBucket {
            max_tokens: *burst,
            tokens_per_fill: uint(*requests),
            fill_interval: duration(per.duration()),
        }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gatewright_core::settings::LimitUnit;
    use prost::Message;

    use super::*;

    fn made(by: Vec<LimitedBy>) -> LocalRateLimit {
        let [front, behind] = in_parts(by, false);
        assert_eq!(front, None, "without a login");
        behind.expect("a filter").1
    }

    /// The name and the filter in front of a login, and behind it.
    fn in_parts(by: Vec<LimitedBy>, has_login: bool) -> [Option<(String, LocalRateLimit)>; 2] {
        let limits: Arc<[RateLimit]> = by
            .into_iter()
            .map(|by| RateLimit {
                requests: 20,
                per: LimitUnit::Minute,
                burst: 40,
                by,
            })
            .collect();
        filters("httproute/a/b/0", &RateLimits { limits }, has_login).map(|made| {
            let made = made?;
            let config = made.typed_config.expect("a configuration");
            let filter = LocalRateLimit::decode(config.value.as_slice()).expect("the filter");
            Some((made.name, filter))
        })
    }

    #[test]
    fn limits_of_single_addresses_are_in_front_of_a_login() {
        let all = vec![LimitedBy::Everyone, LimitedBy::ClientAddress { clients: 7 }];
        let [front, behind] = in_parts(all, true);
        let (in_front, front) = front.expect("of addresses");
        let (name, behind) = behind.expect("of all");
        assert_ne!(in_front, name, "buckets are by the name");
        assert_eq!(front.descriptors[0].entries[1].key, ADDRESS);
        assert_eq!(behind.descriptors[0].entries.len(), 1, "of all");
        assert_eq!(behind.descriptors.len() + front.descriptors.len(), 2);
    }

    #[test]
    fn each_limit_has_the_descriptor_that_requests_get() {
        let made = made(vec![
            LimitedBy::Everyone,
            LimitedBy::ClientAddress { clients: 7 },
            LimitedBy::Header {
                name: "x-key".to_owned(),
                clients: 9,
            },
        ]);
        assert_eq!(made.max_dynamic_descriptors, uint(9), "the most clients");
        let keys: Vec<Vec<&str>> = made
            .descriptors
            .iter()
            .map(|one| one.entries.iter().map(|entry| &*entry.key).collect())
            .collect();
        assert_eq!(
            keys,
            [vec![LIMIT], vec![LIMIT, ADDRESS], vec![LIMIT, HEADER]]
        );
        assert_eq!(
            made.rate_limits.len(),
            5,
            "one for each, and three for the forms of addresses"
        );
        let bucket = made.descriptors[0].token_bucket.expect("a bucket");
        assert_eq!(bucket.max_tokens, 40, "the burst");
        assert_eq!(bucket.tokens_per_fill, uint(20), "the requests");
        assert_eq!(bucket.fill_interval, seconds(60), "a minute");
    }
}
