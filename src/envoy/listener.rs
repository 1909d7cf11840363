//! Listeners: one per frontend.

use envoy_types::pb::envoy::config::accesslog::v3::AccessLog;
use envoy_types::pb::envoy::config::listener::v3::{
    AdditionalAddress, FilterChain, Listener, ListenerFilter, listener_filter,
};
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::CodecType;

use super::connection_manager::Http;
use super::proto::{any, seconds, socket, uint};
use super::{
    Edge, ResourceName, access_log, chain, client_address, failure_log, http3, limits, sni_matcher,
    udp,
};
use gatewright_core::model::{Frontend, FrontendKind};

/// The listener of a frontend.
///
/// Only its filter chains and its matcher ever change, and Envoy applies such a change in place,
/// without affecting the connections of unchanged chains. All other fields are constant, unless the
/// PROXY protocol begins or ends: a change there drains all connections.
pub fn listener(frontend: &Frontend) -> Listener {
    listener_within(frontend, &Edge::DEFAULT)
}

/// The listener of a frontend, with an operator's limits.
pub fn listener_within(frontend: &Frontend, edge: &Edge) -> Listener {
    let Frontend {
        id,
        addresses,
        port,
        cdn_id,
        clients,
        access_log,
        tracing,
        kind,
    } = frontend;
    let http = Http {
        cdn_id,
        clients,
        log: access_log.as_deref(),
        tracing: tracing.as_deref(),
        codec: CodecType::Auto,
    };
    let mut addresses = addresses.iter().map(|ip| socket(*ip, *port, id.transport));
    let (filter_chains, mut filter_chain_matcher, mut listener_filters) = match kind {
        FrontendKind::Tcp { shares } => (vec![chain::tcp(id, shares, edge)], None, Vec::new()),
        FrontendKind::Udp => return udp::listener(frontend, edge),
        FrontendKind::Http3 { hosts, elsewhere } => {
            return http3::listener(frontend, http, (hosts, elsewhere), edge);
        }
        FrontendKind::Http => (vec![chain::plain(id, http, edge)], None, Vec::new()),
        FrontendKind::Tls {
            chains,
            sni_matcher,
        } => {
            let mut filter_chains: Vec<FilterChain> = chains
                .iter()
                .map(|(name, chain)| chain::tls(id, http, name, chain, edge))
                .collect();
            if filter_chains.is_empty() {
                // Envoy refuses a listener without a chain; the port stays bound and closes its
                // connections.
                filter_chains.push(chain::closed());
            }
            (
                filter_chains,
                sni_matcher::matcher(sni_matcher, chains),
                vec![tls_inspector()],
            )
        }
    };
    if let Some(proxy_protocol) = &clients.proxy_protocol {
        filter_chain_matcher =
            client_address::of_senders(proxy_protocol, filter_chain_matcher, &filter_chains);
        listener_filters.insert(0, client_address::listener_filter(proxy_protocol));
    }
    Listener {
        name: frontend.resource_name(),
        address: addresses.next(),
        additional_addresses: addresses
            .map(|address| AdditionalAddress {
                address: Some(address),
                ..Default::default()
            })
            .collect(),
        stat_prefix: frontend.resource_name(),
        filter_chains,
        filter_chain_matcher,
        listener_filters,
        listener_filters_timeout: seconds(limits::CLIENT_HELLO_SECONDS),
        per_connection_buffer_limit_bytes: uint(limits::BUFFER_BYTES),
        max_connections_to_accept_per_socket_event: uint(limits::ACCEPTS_PER_EVENT),
        access_log: handshake_logs(frontend),
        ..Default::default()
    }
}

/// The logs of handshakes that fail, of which no connection manager knows.
fn handshake_logs(frontend: &Frontend) -> Vec<AccessLog> {
    let FrontendKind::Tls { .. } = &frontend.kind else {
        return Vec::new();
    };
    let mut logs = access_log::of_handshakes(&frontend.id, frontend.access_log.as_deref());
    logs.push(failure_log::of_handshakes());
    logs
}

fn tls_inspector() -> ListenerFilter {
    ListenerFilter {
        name: "envoy.filters.listener.tls_inspector".to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(any(
            &TlsInspector::default(),
        ))),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testdata::{frontend, host};
    use gatewright_core::model::{
        CertificateSource, Chain, ClientAddress, Handler, IdentityRemoval, OtherListeners,
        Termination, TlsParams,
    };

    fn tls(sni_matcher: &[(&str, &str)]) -> Listener {
        let https = Chain {
            tls: Some(Termination {
                certificate: CertificateSource::BySni,
                alpn: vec!["h2".into(), "http/1.1".into()],
                params: TlsParams::default(),
                clients: None,
            }),
            handler: Handler::Scopes {
                listener: None,
                elsewhere: OtherListeners::NOWHERE,
                identity_headers: IdentityRemoval::Early,
            },
        };
        let chains = BTreeMap::from([("https".into(), https)]);
        let sni_matcher = sni_matcher
            .iter()
            .map(|(name, chain)| (host(name), (*chain).into()))
            .collect();
        listener(&Frontend {
            id: frontend(443),
            addresses: vec![
                "127.0.0.1".parse().expect("an address"),
                "::1".parse().expect("an address"),
            ],
            port: 443,
            cdn_id: "test".into(),
            clients: ClientAddress::default(),
            access_log: None,
            tracing: None,
            kind: FrontendKind::Tls {
                chains,
                sni_matcher,
            },
        })
    }

    #[test]
    fn another_host_changes_nothing_but_the_matcher() {
        let before = tls(&[("a.org", "https")]);
        let after = tls(&[("a.org", "https"), ("b.org", "https")]);
        assert_ne!(before.filter_chain_matcher, after.filter_chain_matcher);
        fn without(listener: Listener) -> Listener {
            Listener {
                filter_chain_matcher: None,
                ..listener
            }
        }
        assert_eq!(without(before), without(after));
    }

    #[test]
    fn further_addresses_are_additional_ones() {
        let made = tls(&[("a.org", "https")]);
        assert_eq!(made.name, "infra/edge:443");
        assert!(made.address.is_some());
        assert_eq!(made.additional_addresses.len(), 1);
    }

    #[test]
    fn a_frontend_without_chains_keeps_its_port_and_closes() {
        let kind = FrontendKind::Tls {
            chains: BTreeMap::new(),
            sni_matcher: BTreeMap::new(),
        };
        let addresses = vec!["127.0.0.1".parse().expect("an address")];
        let made = listener(&Frontend {
            id: frontend(443),
            addresses,
            port: 443,
            cdn_id: "test".into(),
            clients: ClientAddress::default(),
            access_log: None,
            tracing: None,
            kind,
        });
        assert_eq!(made.filter_chains.len(), 1);
        assert!(made.filter_chain_matcher.is_none());
    }

    #[test]
    fn plain_http_has_one_chain_and_inspects_no_tls() {
        let addresses = vec!["127.0.0.1".parse().expect("an address")];
        let made = listener(&Frontend {
            id: frontend(80),
            addresses,
            port: 443,
            cdn_id: "test".into(),
            clients: ClientAddress::default(),
            access_log: None,
            tracing: None,
            kind: FrontendKind::Http,
        });
        assert_eq!(made.filter_chains.len(), 1);
        assert!(
            made.listener_filters.is_empty() && made.filter_chains[0].transport_socket.is_none()
        );
    }
}
