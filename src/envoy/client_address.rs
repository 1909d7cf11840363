//! The address of a client behind load balancers: the PROXY protocol at a listener, and entries of
//! `X-Forwarded-For` that Envoy cannot read.
//!
//! Envoy's listener filter believes every sender of a header. So the matcher that selects the
//! filter chain looks at the address of the peer first, which no header changes: a connection of
//! another sender finds no chain, and is closed before TLS begins and before a backend is
//! connected.

use envoy_types::pb::envoy::config::listener::v3::{FilterChain, ListenerFilter, listener_filter};
use envoy_types::pb::envoy::config::rbac::v3::{Action as Verdict, rbac};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use envoy_types::pb::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol as ReadsHeaders;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::DirectSourceIpInput;
use envoy_types::pb::google::protobuf::StringValue;
use envoy_types::pb::xds::core::v3::CidrRange;
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher,
    matcher::{
        MatcherList, MatcherTree, MatcherType, OnMatch, matcher_list::FieldMatcher,
        matcher_tree::TreeType, on_match,
    },
};

use ipnet::IpNet;

use super::predicate::{all_of, header, other_source_port, regex};
use super::proto::{any, http_filter, uint, xds_extension};
use super::{IpMatcher, IpRangeMatcher};
use gatewright_core::model::{ProxyProtocol, ProxyProtocolMode};
use gatewright_core::request_outcome::FORWARDED_FOR;

const FORWARDED_FOR_HEADER: &str = "x-forwarded-for";

/// The listener filter that reads headers of version 1 and 2. It stands before all others.
pub(super) fn listener_filter(proxy_protocol: &ProxyProtocol) -> ListenerFilter {
    let filter = ReadsHeaders {
        allow_requests_without_proxy_protocol: match proxy_protocol.mode {
            ProxyProtocolMode::Required => false,
            ProxyProtocolMode::Optional => true,
        },
        ..Default::default()
    };
    ListenerFilter {
        name: "envoy.filters.listener.proxy_protocol".to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(any(&filter))),
        ..Default::default()
    }
}

/// The matcher of a listener for connections of its senders alone. `inner` selects their chain;
/// without it the first chain takes them all.
pub(super) fn of_senders(
    proxy_protocol: &ProxyProtocol,
    inner: Option<Matcher>,
    chains: &[FilterChain],
) -> Option<Matcher> {
    let on_match = match inner {
        Some(inner) => on_match::OnMatch::Matcher(Box::new(inner)),
        None => {
            let name = chains.first()?.name.clone();
            let action = any(&StringValue {
                value: name.clone(),
            });
            on_match::OnMatch::Action(xds_extension(&name, action))
        }
    };
    let senders = IpRangeMatcher {
        ranges: proxy_protocol.from.iter().map(range).collect(),
        on_match: Some(OnMatch {
            on_match: Some(on_match),
            ..Default::default()
        }),
        exclusive: false,
    };
    let matcher = IpMatcher {
        range_matchers: vec![senders],
    };
    let tree = MatcherTree {
        input: Some(xds_extension(
            "envoy.matching.inputs.direct_source_ip",
            any(&DirectSourceIpInput {}),
        )),
        tree_type: Some(TreeType::CustomMatch(xds_extension(
            "envoy.matching.custom_matchers.ip_range_matcher",
            any(&matcher),
        ))),
    };
    Some(Matcher {
        matcher_type: Some(MatcherType::MatcherTree(tree)),
        on_no_match: None,
    })
}

/// Refuses requests whose entry of the outermost trusted proxy is no address, as with a port or in
/// brackets: Envoy would take the peer for the client, which no list of addresses expects. Envoy
/// gives an address of the header port 0, so that any other port is that of a connection.
pub(super) fn readable(hops: u8) -> Option<HttpFilter> {
    if hops == 0 {
        return None;
    }
    // The peer is the last entry by then. Where there are fewer, nobody wrote the client's.
    let entries = format!("(?:[^,]*,){{{hops}}}.*");
    let unread = all_of(vec![
        other_source_port("0"),
        header(FORWARDED_FOR_HEADER, regex(entries)),
    ]);
    let refused = FieldMatcher {
        predicate: Some(unread),
        on_match: Some(verdict(FORWARDED_FOR, rbac::Action::Deny)),
    };
    let matcher = Matcher {
        matcher_type: Some(MatcherType::MatcherList(MatcherList {
            matchers: vec![refused],
        })),
        on_no_match: Some(Box::new(verdict("others", rbac::Action::Allow))),
    };
    let filter = Rbac {
        matcher: Some(matcher),
        ..Default::default()
    };
    Some(http_filter("gatewright.forwarded_for", &filter))
}

fn verdict(name: &str, action: rbac::Action) -> OnMatch {
    let action = Verdict {
        name: name.to_owned(),
        action: action.into(),
    };
    OnMatch {
        on_match: Some(on_match::OnMatch::Action(xds_extension(name, any(&action)))),
        ..Default::default()
    }
}

/// A network of peers: Envoy has those of IPv4 in their own form, also where it listens on `::`.
fn range(network: &IpNet) -> CidrRange {
    CidrRange {
        address_prefix: network.network().to_string(),
        prefix_len: uint(network.prefix_len().into()),
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::listener::v3::Listener;
    use gatewright_core::model::{
        CertificateSource, Chain, ClientAddress, Frontend, FrontendKind, Handler, IdentityRemoval,
        OtherListeners, Termination, TlsParams, WeightedTarget,
    };
    use prost::Message;

    use super::*;
    use crate::testdata::{frontend, host, to};

    fn listener(clients: ClientAddress, kind: FrontendKind) -> Listener {
        crate::listener(&Frontend {
            id: frontend(443),
            addresses: vec!["127.0.0.1".parse().expect("an address")],
            port: 443,
            cdn_id: "test".into(),
            clients,
            access_log: None,
            tracing: None,
            kind,
        })
    }

    fn tls() -> FrontendKind {
        let https = Chain {
            tls: Some(Termination {
                certificate: CertificateSource::BySni,
                alpn: vec!["h2".into()],
                params: TlsParams::default(),
                clients: None,
            }),
            handler: Handler::Scopes {
                listener: None,
                elsewhere: OtherListeners::NOWHERE,
                identity_headers: IdentityRemoval::Early,
            },
        };
        FrontendKind::Tls {
            chains: [("https".into(), https)].into(),
            sni_matcher: [(host("a.org"), "https".into())].into(),
        }
    }

    fn tcp() -> FrontendKind {
        let shares: Vec<WeightedTarget> = vec![to("db", 1)];
        FrontendKind::Tcp { shares }
    }

    fn senders(mode: ProxyProtocolMode) -> ClientAddress {
        let from = ["192.0.2.0/24", "2001:db8::/32"];
        ClientAddress {
            proxy_protocol: Some(ProxyProtocol {
                mode,
                from: from.map(|text| text.parse().expect("a network")).into(),
            }),
            hops: 0,
        }
    }

    /// The networks of a matcher of senders, and what is done for them.
    fn opened(listener: &Listener) -> (Vec<String>, on_match::OnMatch) {
        let matcher = listener.filter_chain_matcher.as_ref().expect("a matcher");
        assert!(matcher.on_no_match.is_none(), "all others are closed");
        let Some(MatcherType::MatcherTree(tree)) = &matcher.matcher_type else {
            panic!("a tree")
        };
        let Some(TreeType::CustomMatch(custom)) = &tree.tree_type else {
            panic!("a custom match")
        };
        let config = custom.typed_config.as_ref().expect("a configuration");
        let made = IpMatcher::decode(config.value.as_slice()).expect("an IP matcher");
        let [senders] = made.range_matchers.as_slice() else {
            panic!("one list of networks")
        };
        let ranges = senders.ranges.iter().map(|range| {
            let length = range.prefix_len.as_ref().map_or(0, |length| length.value);
            format!("{}/{length}", range.address_prefix)
        });
        let action = senders.on_match.clone().and_then(|found| found.on_match);
        (ranges.collect(), action.expect("an action"))
    }

    #[test]
    fn the_peer_is_looked_at_before_the_name_it_asks_for() {
        let plain = listener(ClientAddress::default(), tls());
        let made = listener(senders(ProxyProtocolMode::Required), tls());
        let (networks, inner) = opened(&made);
        assert_eq!(networks, ["192.0.2.0/24", "2001:db8::/32"]);
        let on_match::OnMatch::Matcher(inner) = inner else {
            panic!("the SNI matcher")
        };
        assert_eq!(Some(*inner), plain.filter_chain_matcher);
        assert_eq!(made.filter_chains, plain.filter_chains);
        let names: Vec<&str> = made
            .listener_filters
            .iter()
            .map(|filter| filter.name.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "envoy.filters.listener.proxy_protocol",
                "envoy.filters.listener.tls_inspector"
            ],
            "TLS begins after the header"
        );
    }

    #[test]
    fn the_only_chain_of_a_port_is_for_senders_alone() {
        let made = listener(senders(ProxyProtocolMode::Required), tcp());
        let (_, action) = opened(&made);
        let on_match::OnMatch::Action(action) = action else {
            panic!("the chain")
        };
        assert_eq!(action.name, made.filter_chains[0].name);
    }

    #[test]
    fn other_senders_change_the_matcher_alone() {
        let one = listener(senders(ProxyProtocolMode::Required), tls());
        let mut clients = senders(ProxyProtocolMode::Required);
        let other = ["198.51.100.0/24".parse().expect("a network")];
        clients.proxy_protocol.as_mut().expect("it has one").from = other.into();
        let two = listener(clients, tls());
        assert_ne!(one.filter_chain_matcher, two.filter_chain_matcher);
        fn without(listener: Listener) -> Listener {
            Listener {
                filter_chain_matcher: None,
                ..listener
            }
        }
        assert_eq!(without(one), without(two));
    }

    #[test]
    fn a_header_may_be_missing_only_where_it_is_optional() {
        for (mode, allows) in [
            (ProxyProtocolMode::Required, false),
            (ProxyProtocolMode::Optional, true),
        ] {
            let made = listener(senders(mode), tcp());
            let Some(listener_filter::ConfigType::TypedConfig(config)) =
                &made.listener_filters[0].config_type
            else {
                panic!("a configuration")
            };
            let filter = ReadsHeaders::decode(config.value.as_slice()).expect("the filter");
            assert_eq!(
                filter.allow_requests_without_proxy_protocol, allows,
                "{mode:?}"
            );
        }
    }
}
