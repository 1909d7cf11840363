//! `requestBody`: the last filters of a route.
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

use super::{Filters, Phase, Waits};
use crate::predicate::{all_of, header, one_of, regex};
use crate::proto::{extension, uint};
use gatewright_core::model::ObjectName;
use gatewright_core::settings::{BodyBuffer, RequestBody, Visit};

const LENGTH: &str = "content-length";
/// The filter that collects bodies of unknown length: Envoy's buffer filter.
const UNKNOWN_LENGTH: &str = "gatewright.buffer.unknown_length";
/// The filter that collects all bodies: Envoy's buffer filter.
const ALL: &str = "gatewright.buffer.all";

const TOO_LARGE: u32 = 413;
/// The body of the answer, which the buffer filter has as well.
const TEXT: &str = "Payload Too Large";
/// The option `upgrade` of the header `Connection`, by which Envoy knows an upgrade.
const UPGRADE_OPTION: &str = r"(?i)(.*,)?[ \t]*upgrade[ \t]*(,.*)?";

impl Visit<RequestBody> for Filters<'_> {
    fn visit(&mut self, _: &ObjectName, body: &RequestBody) {
        self.add(Phase::RequestBody, too_long(body.max_bytes));
        let (name, uncollected) = match body.buffer {
            BodyBuffer::None => return,
            BodyBuffer::UnknownLength => (UNKNOWN_LENGTH, one_of(vec![has_length(), upgrade()])),
            BodyBuffer::All => (ALL, upgrade()),
        };
        let buffer = Buffer {
            max_request_bytes: uint(body.buffered_bytes()),
        };
        let buffer = extension(name, &buffer);
        self.add_waiting(Phase::RequestBody, buffer, Waits::Unless(uncollected));
    }
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

/// True for a request whose body has a length.
pub(crate) fn has_length() -> Predicate {
    header(LENGTH, regex(".+"))
}

fn upgrade() -> Predicate {
    all_of(vec![
        header("upgrade", regex(".+")),
        header("connection", regex(UPGRADE_OPTION)),
    ])
}
