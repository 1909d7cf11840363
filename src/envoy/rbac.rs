//! Envoy's filter RBAC: its name, and the metadata that its shadow rules leave for access logs and
//! statistics.

use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLogFilter, MetadataFilter, access_log_filter::FilterSpecifier,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{
    MetadataMatcher, ValueMatcher,
    metadata_matcher::{PathSegment, path_segment::Segment},
    value_matcher::MatchPattern,
};

use super::proto::boolean;

/// The name of the filter, and the namespace of its metadata.
pub(super) const RBAC: &str = "envoy.filters.http.rbac";

/// The metadata with the name of the policy of shadow rules that would have denied a request.
const POLICY: &str = "shadow_effective_policy_id";

/// The policy that would have refused a request, as the format of an access log; no value if there
/// is none.
pub(super) fn would_refuse() -> String {
    format!("%DYNAMIC_METADATA({RBAC}:{POLICY})%")
}

/// Requests that a policy would have refused.
pub(super) fn reported() -> AccessLogFilter {
    let matcher = MetadataMatcher {
        filter: RBAC.to_owned(),
        path: vec![segment(POLICY)],
        value: Some(value(MatchPattern::PresentMatch(true))),
        invert: false,
    };
    AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::MetadataFilter(MetadataFilter {
            matcher: Some(matcher),
            match_if_key_not_found: boolean(false),
        })),
    }
}

/// A value that a pattern matches.
pub(super) fn value(pattern: MatchPattern) -> ValueMatcher {
    ValueMatcher {
        match_pattern: Some(pattern),
    }
}

/// A step to a field of metadata.
pub(super) fn segment(key: &str) -> PathSegment {
    PathSegment {
        segment: Some(Segment::Key(key.to_owned())),
    }
}
