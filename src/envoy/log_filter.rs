//! Filters of access logs: which requests and connections are in one.

use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLogFilter, AndFilter, ComparisonFilter, DurationFilter, ExtensionFilter, HeaderFilter,
    OrFilter, ResponseFlagFilter, StatusCodeFilter, access_log_filter::FilterSpecifier,
    comparison_filter::Op, extension_filter,
};
use envoy_types::pb::envoy::config::core::v3::RuntimeUInt32;
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, header_matcher::HeaderMatchSpecifier,
};
use envoy_types::pb::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

use super::proto::any;

/// The time without a response head after which a client that leaves says something about the
/// backend.
pub(super) const PATIENCE_MILLISECONDS: u32 = 5_000;

/// Handshakes that failed, but for those of names without a certificate, which Envoy refuses:
/// clients ask for as many as they like. An attribute without a value makes the expression false.
pub(super) const HANDSHAKE_FAILED: &str = "connection.transport_failure_reason != '' && \
     !connection.transport_failure_reason.contains('CONNECTION_REJECTED')";

/// Response flags of Envoy about clients that went.
const CLIENT_FLAGS: [&str; 2] = ["DC", "DR"];

/// Requests whose client left before the response began, after a time.
pub(super) fn client_left() -> AccessLogFilter {
    let at_least = comparison(Op::Ge, PATIENCE_MILLISECONDS);
    all_of(vec![
        flags(&CLIENT_FLAGS),
        status(Op::Eq, 0),
        made(FilterSpecifier::DurationFilter(DurationFilter {
            comparison: Some(at_least),
        })),
    ])
}

/// Responses with one of these flags. Envoy compares bits.
pub(super) fn flags(flags: &[&str]) -> AccessLogFilter {
    made(FilterSpecifier::ResponseFlagFilter(ResponseFlagFilter {
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
    }))
}

/// Responses whose status compares so.
pub(super) fn status(op: Op, status: u32) -> AccessLogFilter {
    made(FilterSpecifier::StatusCodeFilter(StatusCodeFilter {
        comparison: Some(comparison(op, status)),
    }))
}

/// Requests whose path or query has a text.
pub(super) fn path_with(text: &str) -> AccessLogFilter {
    let matcher = StringMatcher {
        match_pattern: Some(MatchPattern::Contains(text.to_owned())),
        ..Default::default()
    };
    made(FilterSpecifier::HeaderFilter(HeaderFilter {
        header: Some(HeaderMatcher {
            name: ":path".to_owned(),
            header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(matcher)),
            ..Default::default()
        }),
    }))
}

/// Requests for which an expression is true: the dearest filter, which takes 7,000 instructions.
pub(super) fn expression(expression: &str) -> AccessLogFilter {
    let filter = ExpressionFilter {
        expression: expression.to_owned(),
        ..Default::default()
    };
    made(FilterSpecifier::ExtensionFilter(ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".to_owned(),
        config_type: Some(extension_filter::ConfigType::TypedConfig(any(&filter))),
    }))
}

pub(super) fn all_of(filters: Vec<AccessLogFilter>) -> AccessLogFilter {
    made(FilterSpecifier::AndFilter(AndFilter { filters }))
}

pub(super) fn any_of(filters: Vec<AccessLogFilter>) -> AccessLogFilter {
    made(FilterSpecifier::OrFilter(OrFilter { filters }))
}

pub(super) fn made(specifier: FilterSpecifier) -> AccessLogFilter {
    AccessLogFilter {
        filter_specifier: Some(specifier),
    }
}

fn comparison(op: Op, value: u32) -> ComparisonFilter {
    ComparisonFilter {
        op: op.into(),
        value: Some(RuntimeUInt32 {
            default_value: value,
            // Envoy asks for a key, which nothing sets.
            runtime_key: "gatewright.access_log.status".to_owned(),
        }),
    }
}
