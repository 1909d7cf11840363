//! Envoy's filters for the bodies of requests of TrafficPolicies, the last of the own filters of a
//! route.
//!
//! A request whose `Content-Length` is beyond the limit is refused at once. Another body with a
//! length is passed on as it comes: the codecs see to it that it is no longer. Envoy has nothing
//! that counts the bytes of a body without a length on its way, so it is collected first. An
//! upgrade has no body, and what follows it never ends: it passes.

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, header_matcher::HeaderMatchSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::buffer::v3::Buffer;
use envoy_types::pb::envoy::extensions::filters::http::fault::v3::{
    FaultAbort, HttpFault, fault_abort::ErrorType,
};
use envoy_types::pb::envoy::r#type::v3::{
    FractionalPercent, Int64Range, fractional_percent::DenominatorType,
};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::Predicate;

use super::predicate::{all_of, header, one_of, regex};
use super::proto::{extension, uint};
use gatewright_core::model::{BodyBuffer, RequestBody};

const LENGTH: &str = "content-length";
/// The filter that collects bodies of unknown length: Envoy's buffer filter.
pub(super) const UNKNOWN_LENGTH: &str = "gatewright.buffer.unknown_length";
/// The filter that collects all bodies: Envoy's buffer filter.
pub(super) const ALL: &str = "gatewright.buffer.all";

const TOO_LARGE: u32 = 413;
/// The body of the answer, which the buffer filter has as well.
const TEXT: &str = "Payload Too Large";
/// The option `upgrade` of the header `Connection`, by which Envoy knows an upgrade.
const UPGRADE_OPTION: &str = r"(?i)(.*,)?[ \t]*upgrade[ \t]*(,.*)?";

/// The filters of a rule.
pub(super) fn filters(body: &RequestBody) -> Vec<TypedExtensionConfig> {
    let name = match body.buffer {
        BodyBuffer::None => None,
        BodyBuffer::UnknownLength => Some(UNKNOWN_LENGTH),
        BodyBuffer::All => Some(ALL),
    };
    let buffer = name.map(|name| {
        let buffer = Buffer {
            max_request_bytes: uint(body.buffered_bytes()),
        };
        extension(name, &buffer)
    });
    std::iter::once(too_long(body.max_bytes))
        .chain(buffer)
        .collect()
}

/// Refuses a request that says that its body is longer: Envoy's fault filter, the one that answers
/// by a number in a header.
fn too_long(most: u64) -> TypedExtensionConfig {
    let start = i64::try_from(most).map_or(i64::MAX, |most| most.saturating_add(1));
    let longer = HeaderMatcher {
        name: LENGTH.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::RangeMatch(Int64Range {
            start,
            end: i64::MAX,
        })),
        ..Default::default()
    };
    let abort = FaultAbort {
        percentage: Some(FractionalPercent {
            numerator: 100,
            denominator: DenominatorType::Hundred.into(),
        }),
        error_type: Some(ErrorType::HttpStatus(TOO_LARGE)),
        response_body: TEXT.to_owned(),
    };
    extension(
        "envoy.filters.http.fault",
        &HttpFault {
            abort: Some(abort),
            headers: vec![longer],
            disable_downstream_cluster_stats: true,
            ..Default::default()
        },
    )
}

/// The requests that a filter of the last stage does not have to collect; `None` if it collects none.
pub(super) fn uncollected(filter: &TypedExtensionConfig) -> Option<Predicate> {
    let is_upgrade = all_of(vec![
        header("upgrade", regex(".+")),
        header("connection", regex(UPGRADE_OPTION)),
    ]);
    match filter.name.as_str() {
        ALL => Some(is_upgrade),
        UNKNOWN_LENGTH => Some(one_of(vec![header(LENGTH, regex(".+")), is_upgrade])),
        _ => None,
    }
}
