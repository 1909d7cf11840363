//! Conditions on requests and responses, in the matchers that choose filters and answers.

use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::SourcePortInput;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    HttpRequestHeaderMatchInput, HttpResponseHeaderMatchInput, HttpResponseStatusCodeMatchInput,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::r#type::matcher::v3::{
    RegexMatcher, StringMatcher,
    matcher::matcher_list::{
        Predicate,
        predicate::{MatchType, PredicateList, SinglePredicate, single_predicate},
    },
    regex_matcher::{EngineType, GoogleRe2},
    string_matcher::MatchPattern,
};

use super::proto::{any, xds_extension};

/// True if the request has the header, with a value like this.
pub(super) fn header(name: &str, value: MatchPattern) -> Predicate {
    let input = HttpRequestHeaderMatchInput {
        header_name: name.to_owned(),
    };
    single("envoy.matching.inputs.request_headers", any(&input), value)
}

/// True if the response has the header, with a value like this.
pub(super) fn response_header(name: &str, value: MatchPattern) -> Predicate {
    let input = HttpResponseHeaderMatchInput {
        header_name: name.to_owned(),
    };
    single("envoy.matching.inputs.response_headers", any(&input), value)
}

/// True if the status of the response is like this.
pub(super) fn status(value: MatchPattern) -> Predicate {
    let input = HttpResponseStatusCodeMatchInput {};
    single(
        "envoy.matching.inputs.response_status_code",
        any(&input),
        value,
    )
}

/// True if the client's port is not this one.
pub(super) fn other_source_port(port: &str) -> Predicate {
    let port = single(
        "envoy.matching.inputs.source_port",
        any(&SourcePortInput {}),
        MatchPattern::Exact(port.to_owned()),
    );
    Predicate {
        match_type: Some(MatchType::NotMatcher(Box::new(port))),
    }
}

/// A value that an expression matches as a whole.
pub(super) fn regex(text: impl Into<String>) -> MatchPattern {
    MatchPattern::SafeRegex(RegexMatcher {
        regex: text.into(),
        engine_type: Some(EngineType::GoogleRe2(GoogleRe2 {})),
    })
}

fn single(name: &str, input: Any, value: MatchPattern) -> Predicate {
    let value = StringMatcher {
        match_pattern: Some(value),
        ..Default::default()
    };
    let predicate = SinglePredicate {
        input: Some(xds_extension(name, input)),
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
