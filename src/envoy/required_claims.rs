//! Envoy's filter RBAC for claims of a token that the filter of tokens in front of it has verified.
//!
//! It denies what lacks a claim: a payload that is not there has none, and is denied as well. It
//! compares audiences again, since the filter of tokens ignores a scheme before them and a slash
//! behind. And it denies claims that are no value of a header, which a backend would not get.

use std::collections::HashMap;
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::rbac::v3::{
    MetadataSource, Permission, Policy, Principal, Rbac as Rules, SourcedMetadata, permission,
    principal, rbac,
};
use envoy_types::pb::envoy::config::route::v3::{
    HeaderMatcher, header_matcher::HeaderMatchSpecifier,
};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, StringMatcher, ValueMatcher, list_matcher,
    string_matcher::MatchPattern, value_matcher,
};

use super::proto::extension;
use super::rbac::{RBAC, segment, value};
use super::request_match::{exact, regex_matcher};
use super::settings::JWT;
use gatewright_core::model::{ClaimType, ObjectName, RequiredClaim};
use gatewright_core::request_outcome::CLAIMS;
use gatewright_core::settings::TokenAuth;

/// The claim with the audiences (RFC 7519, 4.1.3): a text, or a list of texts.
const AUDIENCE: &str = "aud";

/// Characters that no value of a header has (RFC 9110, 5.5).
const NO_VALUE: &str = r"(?s).*[\x00-\x08\x0a-\x1f\x7f].*";

/// True if the payload of a token is read behind the filter of tokens.
pub(super) fn reads_payload(auth: &TokenAuth) -> bool {
    !auth.rules.required_claims.is_empty() || !auth.rules.audiences.is_empty()
}

/// Denies tokens of a policy that lack one of the claims, or have one that cannot be told; `None` if
/// it asks for none and tells none.
pub(super) fn filter(policy: &ObjectName, auth: &TokenAuth) -> Option<TypedExtensionConfig> {
    let lacking = reads_payload(auth).then(|| {
        let all = all(policy, &auth.rules.required_claims, &auth.rules.audiences);
        of(principal::Identifier::NotId(Box::new(all)))
    });
    let untold = auth.rules.claims.iter().map(|one| untold(&one.header));
    let principals: Vec<Principal> = lacking.into_iter().chain(untold).collect();
    if principals.is_empty() {
        return None;
    }
    let lacking = Policy {
        permissions: vec![Permission {
            rule: Some(permission::Rule::Any(true)),
        }],
        principals,
        ..Default::default()
    };
    let rules = Rules {
        action: rbac::Action::Deny.into(),
        policies: HashMap::from([(CLAIMS.to_owned(), lacking)]),
        ..Default::default()
    };
    let filter = Rbac {
        rules: Some(rules),
        ..Default::default()
    };
    Some(extension(RBAC, &filter))
}

/// A header with a claim that is no value of a header.
fn untold(header: &str) -> Principal {
    let pattern = MatchPattern::SafeRegex(regex_matcher(NO_VALUE));
    of(principal::Identifier::Header(HeaderMatcher {
        name: header.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(pattern),
            ..Default::default()
        })),
        ..Default::default()
    }))
}

/// All claims, each with one of its values, and one of the audiences if there are some.
pub(super) fn all(
    policy: &ObjectName,
    required: &[RequiredClaim],
    audiences: &Arc<[Arc<str>]>,
) -> Principal {
    let claims = required.iter().map(|one| of(has(policy, one)));
    let audience = (!audiences.is_empty()).then(|| for_one(policy, audiences));
    of(principal::Identifier::AndIds(principal::Set {
        ids: claims.chain(audience).collect(),
    }))
}

/// One of the audiences, alone or in a list.
fn for_one(policy: &ObjectName, audiences: &Arc<[Arc<str>]>) -> Principal {
    let either = [ClaimType::String, ClaimType::StringArray].map(|value_type| {
        let claim = RequiredClaim {
            claim: AUDIENCE.into(),
            value_type,
            values: audiences.clone(),
        };
        of(has(policy, &claim))
    });
    of(principal::Identifier::OrIds(principal::Set {
        ids: either.into(),
    }))
}

/// A claim with one of its values, in the payload that the filter of tokens has left for the
/// policy.
fn has(policy: &ObjectName, required: &RequiredClaim) -> principal::Identifier {
    let RequiredClaim {
        claim,
        value_type,
        values,
    } = required;
    let policy = policy.to_string();
    let path = std::iter::once(policy.as_str()).chain(claim.split('.'));
    let one = one_of(
        values
            .iter()
            .map(|text| value(value_matcher::MatchPattern::StringMatch(exact(text))))
            .collect(),
    );
    let value = match value_type {
        ClaimType::String => one,
        ClaimType::StringArray => value(value_matcher::MatchPattern::ListMatch(Box::new(
            ListMatcher {
                match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(one))),
            },
        ))),
    };
    let matcher = MetadataMatcher {
        filter: JWT.to_owned(),
        path: path.map(segment).collect(),
        value: Some(value),
        invert: false,
    };
    principal::Identifier::SourcedMetadata(SourcedMetadata {
        metadata_matcher: Some(matcher),
        metadata_source: MetadataSource::Dynamic.into(),
    })
}

/// Either of the values. Envoy wants two for a choice.
fn one_of(mut values: Vec<ValueMatcher>) -> ValueMatcher {
    match values.len() {
        1 => values.remove(0),
        _ => value(value_matcher::MatchPattern::OrMatch(OrMatcher {
            value_matchers: values,
        })),
    }
}

fn of(identifier: principal::Identifier) -> Principal {
    Principal {
        identifier: Some(identifier),
    }
}
