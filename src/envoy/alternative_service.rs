//! Alternative services (RFC 7838): responses tell clients of HTTP/3.

use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};

/// The time for which clients remember that a host has HTTP/3.
const ALTERNATIVE_SECONDS: u32 = 86_400;

/// The header of responses that tells clients of HTTP/3 at a port (RFC 7838).
pub(super) fn http3(port: u16) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: "alt-svc".to_owned(),
            value: format!("h3=\":{port}\"; ma={ALTERNATIVE_SECONDS}"),
            ..Default::default()
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..Default::default()
    }
}
