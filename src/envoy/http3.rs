//! HTTP/3: the listener of QUIC beside that of TLS over TCP.
//!
//! Each host has a filter chain with its certificate. One chain with the certificates of all hosts
//! would be smaller, but Envoy would choose among them by the names inside: a certificate that
//! names another tenant's host would be served for that host. An additional chain is an update in
//! place, which keeps the connections of the others.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::{
    QuicProtocolOptions as QuicLimits, TransportSocket, transport_socket,
};
use envoy_types::pb::envoy::config::listener::v3::{
    AdditionalAddress, FilterChain, Listener, QuicProtocolOptions, UdpListenerConfig,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::CodecType;
use envoy_types::pb::envoy::extensions::transport_sockets::quic::v3::QuicDownstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext,
};

use super::connection_manager::{self, Http, Routes};
use super::proto::{any, boolean, seconds, socket, uint};
use super::secret::sds;
use super::{Edge, ResourceName, limits, sni_matcher};
use gatewright_core::model::{
    ChainName, Frontend, FrontendId, Hostname, IdentityRemoval, OtherListeners, SecretName,
    Transport, http3_chain,
};

/// The listener of the hosts with HTTP/3. A connection for any other name is refused.
pub(super) fn listener(
    frontend: &Frontend,
    http: Http<'_>,
    (hosts, elsewhere): (&BTreeMap<Hostname, SecretName>, &OtherListeners),
    edge: &Edge,
) -> Listener {
    let http = Http {
        codec: CodecType::Http3,
        ..http
    };
    let mut addresses = frontend
        .addresses
        .iter()
        .map(|ip| socket(*ip, frontend.port, Transport::Udp));
    let chains: BTreeMap<Hostname, ChainName> = hosts
        .keys()
        .map(|hostname| (hostname.clone(), http3_chain(hostname)))
        .collect();
    let routes = frontend.id.over(Transport::Tcp);
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
        filter_chains: hosts
            .iter()
            .map(|(hostname, secret)| chain((hostname, secret), &routes, http, elsewhere, edge))
            .collect(),
        filter_chain_matcher: sni_matcher::matcher(&chains, &BTreeMap::new()),
        per_connection_buffer_limit_bytes: uint(limits::BUFFER_BYTES),
        udp_listener_config: Some(UdpListenerConfig {
            quic_options: Some(QuicProtocolOptions {
                quic_protocol_options: Some(QuicLimits {
                    max_concurrent_streams: uint(limits::STREAMS),
                    initial_stream_window_size: uint(limits::STREAM_WINDOW_BYTES),
                    initial_connection_window_size: uint(limits::CONNECTION_WINDOW_BYTES),
                    ..Default::default()
                }),
                idle_timeout: seconds(edge.idle_seconds),
                crypto_handshake_timeout: seconds(limits::HANDSHAKE_SECONDS),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The chain of a host.
fn chain(
    (hostname, secret): (&Hostname, &SecretName),
    routes: &FrontendId,
    http: Http<'_>,
    elsewhere: &OtherListeners,
    edge: &Edge,
) -> FilterChain {
    let scopes = Routes::Scopes {
        listener: None,
        elsewhere,
        // The chains of hosts that keep them are no other ones.
        identity_headers: IdentityRemoval::Late,
    };
    FilterChain {
        name: http3_chain(hostname).to_string(),
        filters: vec![connection_manager::filter(routes, http, scopes, edge)],
        transport_socket: Some(transport_socket(secret)),
        ..Default::default()
    }
}

fn transport_socket(secret: &SecretName) -> TransportSocket {
    let context = DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            alpn_protocols: vec!["h3".to_owned()],
            tls_certificate_sds_secret_configs: vec![sds(secret)],
            ..Default::default()
        }),
        ..Default::default()
    };
    let quic = QuicDownstreamTransport {
        downstream_tls_context: Some(context),
        // Early data can be sent again by whoever sees it (RFC 8470).
        enable_early_data: boolean(false),
        ..Default::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.quic".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any(&quic))),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::testdata::{frontend, host};
    use gatewright_core::model::{ClientAddress, FrontendKind};

    fn made(hosts: &[&str]) -> Listener {
        let id = frontend(443).over(Transport::Udp);
        let hosts = hosts.iter().map(|name| {
            let secret = SecretName::Fixed(id.clone(), (*name).into());
            (host(name), secret)
        });
        let kind = FrontendKind::Http3 {
            hosts: hosts.collect(),
            elsewhere: OtherListeners::NOWHERE,
        };
        crate::listener(&Frontend {
            id,
            addresses: vec!["127.0.0.1".parse().expect("an address")],
            port: 443,
            cdn_id: "test".into(),
            clients: ClientAddress::default(),
            access_log: None,
            tracing: None,
            kind,
        })
    }

    #[test]
    fn another_host_is_another_chain_and_leaves_the_others() {
        let one = made(&["a.org"]);
        let two = made(&["a.org", "b.org"]);
        assert_eq!(two.filter_chains.len(), 2);
        assert_eq!(two.filter_chains[0], one.filter_chains[0]);
        fn without(listener: Listener) -> Listener {
            Listener {
                filter_chains: Vec::new(),
                filter_chain_matcher: None,
                ..listener
            }
        }
        assert_eq!(without(one), without(two));
    }

    #[test]
    fn a_chain_has_one_certificate_and_takes_no_early_data() {
        let listener = made(&["a.org"]);
        let socket = listener.filter_chains[0].transport_socket.as_ref();
        let Some(transport_socket::ConfigType::TypedConfig(config)) =
            socket.and_then(|socket| socket.config_type.as_ref())
        else {
            panic!("a configuration")
        };
        let quic = QuicDownstreamTransport::decode(config.value.as_slice()).expect("of QUIC");
        assert_eq!(quic.enable_early_data, boolean(false));
        let context = quic.downstream_tls_context.expect("a TLS context");
        let common = context.common_tls_context.expect("a common context");
        let names: Vec<_> = common
            .tls_certificate_sds_secret_configs
            .iter()
            .map(|secret| secret.name.as_str())
            .collect();
        assert_eq!(names, ["sds/infra/edge:443/udp/a.org"]);
    }
}
