//! `responseOverride`: Envoy's custom response filter, which answers in place of errors, whether a
//! backend sent them or Envoy.
//!
//! The answer has the route's own edits of headers, and none of the headers of the response.
//! `preserve_response_code_details` is not used: Envoy 1.40 then reads freed memory for its access
//! log.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TypedExtensionConfig, data_source::Specifier,
};
use envoy_types::pb::envoy::extensions::filters::http::custom_response::v3::CustomResponse;
use envoy_types::pb::envoy::extensions::http::custom_response::local_response_policy::v3::{
    LocalResponsePolicy, local_response_policy::ResponseCodeDetailsAction,
};
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher,
    matcher::{MatcherList, MatcherType, OnMatch, matcher_list::FieldMatcher, on_match},
};

use super::{Filters, Phase};
use crate::headers::headers;
use crate::predicate::{self, regex};
use crate::proto::{any, extension, uint, xds_extension};
use gatewright_core::model::{HeaderEdits, ObjectName};
use gatewright_core::request_outcome::OVERRIDDEN;
use gatewright_core::settings::{ResponseOverride, ResponseOverrides, StatusRange, Visit};

/// The name of the filter.
pub(crate) const FILTER: &str = "envoy.filters.http.custom_response";
/// The status whose responses need their `WWW-Authenticate`, which would be lost.
const UNAUTHORIZED: u16 = 401;

impl Visit<ResponseOverrides> for Filters<'_> {
    fn visit(&mut self, _: &ObjectName, overrides: &ResponseOverrides) {
        self.add(Phase::ResponseOverride, filter(overrides));
    }
}

fn filter(ResponseOverrides { overrides }: &ResponseOverrides) -> TypedExtensionConfig {
    let matchers = overrides.iter().map(matcher).collect();
    let filter = CustomResponse {
        custom_response_matcher: Some(Matcher {
            matcher_type: Some(MatcherType::MatcherList(MatcherList { matchers })),
            on_no_match: None,
        }),
    };
    extension(FILTER, &filter)
}

fn matcher(one: &ResponseOverride) -> FieldMatcher {
    FieldMatcher {
        predicate: Some(predicate::status(regex(statuses(&one.statuses)))),
        on_match: Some(OnMatch {
            on_match: Some(on_match::OnMatch::Action(xds_extension(
                "response",
                any(&response(one)),
            ))),
            ..Default::default()
        }),
    }
}

fn response(one: &ResponseOverride) -> LocalResponsePolicy {
    let ResponseOverride {
        statuses: _,
        status,
        content_type,
        body,
    } = one;
    let content_type = content_type.iter();
    let edits = HeaderEdits {
        set: content_type
            .map(|media| ("content-type".to_owned(), media.clone()))
            .collect(),
        ..HeaderEdits::default()
    };
    LocalResponsePolicy {
        body: Some(DataSource {
            specifier: Some(Specifier::InlineBytes(body.to_vec())),
            ..Default::default()
        }),
        status_code: status.and_then(|status| uint(status.into())),
        response_headers_to_add: headers(&[&edits]).add,
        response_code_details_action: Some(ResponseCodeDetailsAction::ResponseCodeDetails(
            OVERRIDDEN.to_owned(),
        )),
        ..Default::default()
    }
}

/// The regular expression of statuses, without 401.
fn statuses(ranges: &[StatusRange]) -> String {
    let all: BTreeSet<u16> = ranges
        .iter()
        .flat_map(|range| range.first..=range.last)
        .filter(|status| *status != UNAUTHORIZED)
        .collect();
    let tens: BTreeSet<u16> = all.iter().map(|status| status / 10).collect();
    let parts = tens.into_iter().map(|ten| {
        let last: String = all
            .range(ten * 10..=ten * 10 + 9)
            .map(|status| (status % 10).to_string())
            .collect();
        format!("{ten}[{last}]")
    });
    parts.collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn range(first: u16, last: u16) -> StatusRange {
        StatusRange { first, last }
    }

    #[test]
    fn statuses_are_an_expression_without_401() {
        assert_eq!(statuses(&[range(404, 404)]), "40[4]");
        assert_eq!(
            statuses(&[range(500, 504), range(403, 404), range(404, 410)]),
            "40[3456789]|41[0]|50[01234]"
        );
        assert!(
            statuses(&[range(400, 499)]).starts_with("40[023456789]|41[0123456789]|"),
            "401 keeps its challenge"
        );
    }

    #[test]
    fn an_override_has_the_body_as_it_is_written() {
        let made = filter(&ResponseOverrides {
            overrides: vec![ResponseOverride {
                statuses: vec![range(503, 503)],
                status: Some(500),
                content_type: Some("text/html; a=%REQ(b)%".to_owned()),
                body: b"%REQ(cookie)%".as_slice().into(),
            }],
        });
        let config = made.typed_config.expect("a configuration");
        let made = CustomResponse::decode(config.value.as_slice()).expect("the filter");
        let matcher = made.custom_response_matcher.expect("a matcher");
        let Some(MatcherType::MatcherList(list)) = matcher.matcher_type else {
            panic!("a list")
        };
        let on_match = list.matchers[0].on_match.as_ref().expect("an action");
        let Some(on_match::OnMatch::Action(action)) = &on_match.on_match else {
            panic!("an action")
        };
        let action = action.typed_config.as_ref().expect("a configuration");
        let policy = LocalResponsePolicy::decode(action.value.as_slice()).expect("the policy");
        assert_eq!(policy.body_format, None, "operators have no meaning");
        assert_eq!(policy.status_code, uint(500));
        let body = policy.body.and_then(|body| body.specifier);
        let text = b"%REQ(cookie)%".to_vec();
        assert_eq!(body, Some(Specifier::InlineBytes(text)));
        let header = policy.response_headers_to_add[0].header.clone();
        let value = header.expect("a header").value;
        assert_eq!(value, "text/html; a=%%REQ(b)%%", "nor in the media type");
        assert!(
            matches!(
                policy.response_code_details_action,
                Some(ResponseCodeDetailsAction::ResponseCodeDetails(_))
            ),
            "the details are ours"
        );
    }
}
