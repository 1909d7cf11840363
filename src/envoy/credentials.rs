//! The header `Authorization` before the filters that verify it: one credential (RFC 9110, 11.6.2),
//! with the name of its scheme in any case and one or more spaces behind it (11.1, 11.4).
//!
//! Envoy's filters compare the scheme with case. The filter of users reads the first of several
//! headers, and that of tokens looks for the scheme anywhere in each of them, while a backend may
//! read another one.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation, header_mutation::Action,
};
use envoy_types::pb::envoy::config::core::v3::{
    TypedExtensionConfig, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, header_matcher::HeaderMatchSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as MutationFilter, Mutations,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

use super::headers::{MUTATION, mutation};
use super::internal_headers::{NO_TOKEN_HEADER, TOKEN_HEADER};
use super::proto::extension;
use super::request_match::regex_matcher;
use gatewright_core::cost::TOKEN_BYTES;
use gatewright_core::model::ObjectName;

/// The header with the credentials of a client.
const AUTHORIZATION: &str = "authorization";

/// The header with a challenge for credentials.
const CHALLENGE: &str = "www-authenticate";

/// One credential of the scheme Bearer (RFC 6750, 2.1), with the characters of a JSON Web Token.
/// Envoy joins several headers by a comma.
const BEARER: &str = "(?i:bearer) +[A-Za-z0-9._-]+";

/// The credentials of the scheme Basic as Envoy's filter expects them: nearly always they are
/// already. What is none of this scheme, or more than one, becomes something else.
const BASIC: &str = "%CEL(request.headers['authorization'].startsWith('Basic ') \
     && !request.headers['authorization'].contains('  ') \
     && !request.headers['authorization'].contains(',') \
     ? request.headers['authorization'] \
     : request.headers['authorization'].matches('^(?i:basic) +[^ ,]+$') \
     ? re.extract(request.headers['authorization'], '^(?i:basic) +([^ ,]+)$', 'Basic \\\\1') \
     : '-')%";

/// Writes the credentials of users in the only way that Envoy's filters of users behind it
/// understand, and gives their challenges the realm of a policy. Those of backends stay.
///
/// Envoy's realm is the URL of the request. Browsers ask for the password once for each realm, and
/// so at each directory of a site.
pub(super) fn basic(policy: &ObjectName) -> TypedExtensionConfig {
    let challenge = format!(
        "%CEL(response.code_details.endsWith('_for_basic_auth') ? 'Basic realm=\"{policy}\"' : \
         response.headers['{CHALLENGE}'])%"
    );
    let action = HeaderAppendAction::OverwriteIfExists;
    let mutations = Mutations {
        request_mutations: vec![mutation(AUTHORIZATION, BASIC, action)],
        response_mutations: vec![mutation(CHALLENGE, &challenge, action)],
        ..Default::default()
    };
    filter(mutations)
}

/// Writes the start of `Authorization`, as long as it may be, to where the filters of tokens read
/// it. A longer one is cut, so that its signature is none.
pub(super) fn copied() -> TypedExtensionConfig {
    let start = format!("%REQ(AUTHORIZATION):{TOKEN_BYTES}%");
    let action = HeaderAppendAction::OverwriteIfExistsOrAdd;
    mutating(vec![
        remove(NO_TOKEN_HEADER),
        mutation(TOKEN_HEADER, &start, action),
    ])
}

/// True for a request with one token.
pub(super) fn one_token() -> HeaderMatcher {
    let pattern = MatchPattern::SafeRegex(regex_matcher(BEARER));
    HeaderMatcher {
        name: AUTHORIZATION.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(pattern),
            ..Default::default()
        })),
        ..Default::default()
    }
}

/// Removes what [`copied`] wrote, behind all filters that read it.
pub(super) fn without_copy() -> TypedExtensionConfig {
    mutating(vec![remove(TOKEN_HEADER)])
}

/// Removes the credentials as well.
pub(super) fn without_credentials() -> TypedExtensionConfig {
    mutating(vec![remove(TOKEN_HEADER), remove(AUTHORIZATION)])
}

/// Removes headers, and sets others in formats of Envoy's.
pub(super) fn replaced(removed: Vec<&str>, set: &[(&str, &str)]) -> TypedExtensionConfig {
    let action = HeaderAppendAction::OverwriteIfExistsOrAdd;
    let set = set
        .iter()
        .map(|(name, format)| mutation(name, format, action));
    mutating(removed.into_iter().map(remove).chain(set).collect())
}

fn mutating(request_mutations: Vec<HeaderMutation>) -> TypedExtensionConfig {
    filter(Mutations {
        request_mutations,
        ..Default::default()
    })
}

fn filter(mutations: Mutations) -> TypedExtensionConfig {
    let filter = MutationFilter {
        mutations: Some(mutations),
        ..Default::default()
    };
    extension(MUTATION, &filter)
}

fn remove(header: &str) -> HeaderMutation {
    HeaderMutation {
        action: Some(Action::Remove(header.to_owned())),
    }
}
