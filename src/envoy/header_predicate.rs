//! Conditions on the headers of a request, in the matchers that choose filters.

use envoy_types::pb::envoy::r#type::matcher::v3::HttpRequestHeaderMatchInput;
use envoy_types::pb::xds::r#type::matcher::v3::{
    StringMatcher,
    matcher::matcher_list::{
        Predicate,
        predicate::{MatchType, PredicateList, SinglePredicate, single_predicate},
    },
    string_matcher::MatchPattern,
};

use super::proto::{any, xds_extension};

/// True if the request has the header, with a value like this.
pub(super) fn is(header: &str, value: MatchPattern) -> Predicate {
    let input = HttpRequestHeaderMatchInput {
        header_name: header.to_owned(),
    };
    let value = StringMatcher {
        match_pattern: Some(value),
        ..Default::default()
    };
    let predicate = SinglePredicate {
        input: Some(xds_extension(
            "envoy.matching.inputs.request_headers",
            any(&input),
        )),
        matcher: Some(single_predicate::Matcher::ValueMatch(value)),
    };
    Predicate {
        match_type: Some(MatchType::SinglePredicate(predicate)),
    }
}

/// True if all are: at least two.
pub(super) fn all_of(predicate: Vec<Predicate>) -> Predicate {
    Predicate {
        match_type: Some(MatchType::AndMatcher(PredicateList { predicate })),
    }
}

/// True if one is: at least two.
pub(super) fn one_of(predicate: Vec<Predicate>) -> Predicate {
    Predicate {
        match_type: Some(MatchType::OrMatcher(PredicateList { predicate })),
    }
}
