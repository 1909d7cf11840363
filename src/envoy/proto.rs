//! Constructors of protobuf values that occur everywhere.

use std::collections::HashMap;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, ConfigSource, SocketAddress, TypedExtensionConfig,
    address,
    config_source::ConfigSourceSpecifier,
    socket_address::{self, PortSpecifier},
};
use envoy_types::pb::envoy::config::route::v3::FilterConfig;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};
use envoy_types::pb::google::protobuf::{self, Any, BoolValue, UInt32Value};
use envoy_types::pb::xds::core::v3::TypedExtensionConfig as XdsExtension;
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher,
    matcher::{OnMatch, on_match},
};
use prost::{Message, Name};

use gatewright_core::model::Transport;

/// Packs a message with its type URL.
pub(super) fn any<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: M::type_url(),
        value: message.encode_to_vec(),
    }
}

/// A map from names to packed messages. A map is encoded in the order in which it iterates, which
/// differs between instances of [`HashMap`]: it is built again until that is the order of its keys,
/// so that equal messages have equal bytes.
pub(super) fn map(entries: &[(&str, Any)]) -> HashMap<String, Any> {
    loop {
        let made: HashMap<String, Any> = entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();
        if made.keys().is_sorted() {
            return made;
        }
    }
}

/// A map of packed messages with one more.
pub(super) fn map_with(
    entries: &HashMap<String, Any>,
    name: &str,
    message: Any,
) -> HashMap<String, Any> {
    let mut all: Vec<(&str, Any)> = entries
        .iter()
        .map(|(name, message)| (name.as_str(), message.clone()))
        .collect();
    all.push((name, message));
    map(&all)
}

/// An extension by its name and configuration.
pub(super) fn extension<M: Message + Name>(name: &str, config: &M) -> TypedExtensionConfig {
    TypedExtensionConfig {
        name: name.to_owned(),
        typed_config: Some(any(config)),
    }
}

/// The same in the `xds` package's own type.
pub(super) fn xds_extension(name: &str, typed_config: Any) -> XdsExtension {
    XdsExtension {
        name: name.to_owned(),
        typed_config: Some(typed_config),
    }
}

/// A matcher with one action for all requests.
pub(super) fn always(action: XdsExtension) -> Matcher {
    Matcher {
        matcher_type: None,
        on_no_match: Some(Box::new(OnMatch {
            on_match: Some(on_match::OnMatch::Action(action)),
            ..Default::default()
        })),
    }
}

/// A filter of a connection manager by its name and configuration.
pub(super) fn http_filter<M: Message + Name>(name: &str, config: &M) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(http_filter::ConfigType::TypedConfig(any(config))),
        ..Default::default()
    }
}

/// A disabled filter, which routes with a configuration for it enable.
pub(super) fn off(filter: HttpFilter) -> HttpFilter {
    HttpFilter {
        disabled: true,
        ..filter
    }
}

/// The configuration by which a route or virtual host switches a filter off.
pub(super) fn disabled() -> FilterConfig {
    FilterConfig {
        disabled: true,
        ..Default::default()
    }
}

pub(super) fn uint(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

pub(super) fn boolean(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}

pub(super) fn seconds(seconds: u64) -> Option<protobuf::Duration> {
    duration(Duration::from_secs(seconds))
}

pub(super) fn duration(value: Duration) -> Option<protobuf::Duration> {
    // A protobuf Duration is limited to 10,000 years; longer ones are cut to that.
    let seconds = value.as_secs().min(315_576_000_000) as i64;
    Some(protobuf::Duration {
        seconds,
        nanos: value.subsec_nanos() as i32,
    })
}

/// The config source for secrets, clusters and routes: the ADS stream.
pub(super) fn ads() -> Option<ConfigSource> {
    Some(ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    })
}

/// A socket address of a transport.
pub(super) fn socket(ip: std::net::IpAddr, port: u16, transport: Transport) -> Address {
    let protocol = match transport {
        Transport::Tcp => socket_address::Protocol::Tcp,
        Transport::Udp => socket_address::Protocol::Udp,
    };
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            protocol: protocol.into(),
            address: ip.to_string(),
            port_specifier: Some(PortSpecifier::PortValue(port.into())),
            ..Default::default()
        })),
    }
}
