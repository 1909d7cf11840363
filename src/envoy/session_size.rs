//! The bound of the sessions of logins: browsers drop a cookie of more than 4,096 bytes, and
//! Envoy's filter would send a browser without it to the provider again and again, or ask the
//! provider about each of its requests. So a response that sets such a cookie is answered 431.
//!
//! Three filters in front of that of the login, which a response passes after it: one takes the
//! cookies out of the response, one compares their lengths, and one answers. No matcher of Envoy's
//! knows lengths, and expressions have no functions that take texts apart.

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TypedExtensionConfig, data_source::Specifier,
    header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::extensions::filters::http::custom_response::v3::CustomResponse;
use envoy_types::pb::envoy::extensions::filters::http::header_to_metadata::v3::{
    Config as HeaderToMetadata,
    config::{KeyValuePair, Rule},
};
use envoy_types::pb::envoy::extensions::http::custom_response::local_response_policy::v3::{
    LocalResponsePolicy, local_response_policy::ResponseCodeDetailsAction,
};
use envoy_types::pb::envoy::r#type::matcher::v3::RegexMatchAndSubstitute;
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher,
    matcher::{MatcherList, MatcherType, OnMatch, matcher_list::FieldMatcher, on_match},
    string_matcher::MatchPattern,
};

use super::headers::{HEADER_TO_METADATA, mutation, response_mutation};
use super::predicate::response_header;
use super::proto::{any, extension, uint, xds_extension};
use super::request_match::regex_matcher;
use super::settings::CUSTOM_RESPONSE;
use gatewright_core::request_outcome::SESSION_TOO_LARGE;

/// The most bytes of the name and the value of a cookie together (RFC 6265bis, 5.7).
const COOKIE_BYTES: usize = 4096;
/// The most bytes of a value that Envoy takes out; a longer one is left out.
const TAKEN_BYTES: usize = 8192;
/// The header of cookies.
const SET_COOKIE: &str = "set-cookie";
/// The namespace of the metadata with the cookies of a response.
const COOKIES: &str = "gatewright.login";
/// What is there of every response with cookies.
const SET: &str = "set";
/// The header that marks a response which sets a cookie that is too large.
const MARK: &str = "x-gw-session";
/// The value of the mark.
const TOO_LARGE: &str = "too-large";

const STATUS: u32 = 431;
const TEXT: &str = "The login succeeded, but a token of the provider does not fit into a cookie of 4096 bytes. \
                    Ask the owner of this site to let the provider issue smaller tokens.\n";

/// The filters for cookies of these names.
pub(super) fn filters(cookies: &[&str]) -> [TypedExtensionConfig; 3] {
    [refused(), compared(cookies), taken_out(cookies)]
}

/// Takes out the value of each cookie, by the name of the cookie; an empty one where it is not set.
fn taken_out(cookies: &[&str]) -> TypedExtensionConfig {
    let rules = cookies.iter().map(|name| {
        let escaped = name.replace('.', r"\.");
        let value = RegexMatchAndSubstitute {
            // Envoy has all `Set-Cookie` of a response in one text, with commas between them.
            pattern: Some(regex_matcher(&format!(
                "(?:.*[, ]|){escaped}=([^;]*);.*|.*"
            ))),
            substitution: r"\1".to_owned(),
        };
        Rule {
            header: SET_COOKIE.to_owned(),
            on_header_present: Some(KeyValuePair {
                metadata_namespace: COOKIES.to_owned(),
                key: (*name).to_owned(),
                regex_value_rewrite: Some(value),
                ..Default::default()
            }),
            ..Default::default()
        }
    });
    let set = Rule {
        header: SET_COOKIE.to_owned(),
        on_header_present: Some(KeyValuePair {
            metadata_namespace: COOKIES.to_owned(),
            key: SET.to_owned(),
            value: SET.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let config = HeaderToMetadata {
        response_rules: rules.chain([set]).collect(),
        ..Default::default()
    };
    extension(HEADER_TO_METADATA, &config)
}

/// Marks a response with a cookie that is too large.
fn compared(cookies: &[&str]) -> TypedExtensionConfig {
    let taken = format!("metadata.filter_metadata['{COOKIES}']");
    let all = format!("response.headers['{SET_COOKIE}']");
    let larger = cookies.iter().map(|name| {
        let most = COOKIE_BYTES.saturating_sub(name.len());
        format!(
            "('{name}' in {taken} ? size({taken}['{name}']) > {most} : \
             size({all}) > {TAKEN_BYTES} && {all}.contains('{name}='))"
        )
    });
    let larger: Vec<String> = larger.collect();
    let value = format!("%CEL({} ? '{TOO_LARGE}' : '')%", larger.join(" || "));
    response_mutation(mutation(
        MARK,
        &value,
        HeaderAppendAction::OverwriteIfExistsOrAdd,
    ))
}

/// Answers in place of a marked response.
fn refused() -> TypedExtensionConfig {
    let response = LocalResponsePolicy {
        body: Some(DataSource {
            specifier: Some(Specifier::InlineString(TEXT.to_owned())),
            ..Default::default()
        }),
        status_code: uint(STATUS),
        response_code_details_action: Some(ResponseCodeDetailsAction::ResponseCodeDetails(
            SESSION_TOO_LARGE.to_owned(),
        )),
        ..Default::default()
    };
    let marked = FieldMatcher {
        predicate: Some(response_header(
            MARK,
            MatchPattern::Exact(TOO_LARGE.to_owned()),
        )),
        on_match: Some(OnMatch {
            on_match: Some(on_match::OnMatch::Action(xds_extension(
                "response",
                any(&response),
            ))),
            ..Default::default()
        }),
    };
    let filter = CustomResponse {
        custom_response_matcher: Some(Matcher {
            matcher_type: Some(MatcherType::MatcherList(MatcherList {
                matchers: vec![marked],
            })),
            on_no_match: None,
        }),
    };
    extension(CUSTOM_RESPONSE, &filter)
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::common::mutation_rules::v3::header_mutation::Action;
    use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::HeaderMutation;
    use prost::Message;

    use super::*;

    fn decoded<M: Message + Default>(filter: &TypedExtensionConfig) -> M {
        let config = filter.typed_config.as_ref().expect("a configuration");
        M::decode(config.value.as_slice()).expect("the filter")
    }

    #[test]
    fn each_cookie_is_taken_out_and_compared_by_its_name() {
        let names = ["__Host-gw-id.a.p", "__Host-gw-refresh.a.p"];
        let [_, compared, taken_out] = filters(&names);
        let taken_out: HeaderToMetadata = decoded(&taken_out);
        assert_eq!(
            taken_out.response_rules.len(),
            3,
            "these, and that there are any"
        );
        let compared: HeaderMutation = decoded(&compared);
        let mutations = compared.mutations.expect("mutations").response_mutations;
        let Some(Action::Append(mark)) = &mutations[0].action else {
            panic!("a header")
        };
        let expression = &mark.header.as_ref().expect("a header").value;
        for (rule, name) in taken_out.response_rules.iter().zip(names) {
            let pair = rule.on_header_present.as_ref().expect("a value");
            let rewrite = pair.regex_value_rewrite.as_ref().expect("a rewrite");
            let pattern = &rewrite.pattern.as_ref().expect("a pattern").regex;
            let escaped = name.replace('.', r"\.");
            assert!(pattern.contains(&format!("{escaped}=([^;]*)")), "{pattern}");
            let bound = format!("['{name}']) > {}", 4096 - name.len());
            assert!(expression.contains(&bound), "{expression}");
        }
    }
}
