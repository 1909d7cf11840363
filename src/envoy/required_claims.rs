//! Envoy's filter RBAC for claims of a token that the filter of tokens in front of it has verified.
//!
//! It denies what lacks a claim: a payload that is not there has none, and is denied as well.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::rbac::v3::{
    MetadataSource, Permission, Policy, Principal, Rbac as Rules, SourcedMetadata, permission,
    principal, rbac,
};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    ListMatcher, MetadataMatcher, OrMatcher, ValueMatcher, list_matcher, value_matcher,
};

use super::jwt::JWT;
use super::proto::extension;
use super::rbac::{RBAC, segment, value};
use super::request_match::exact;
use gatewright_core::model::{ClaimType, ObjectName, RequiredClaim};
use gatewright_core::request_outcome::CLAIMS;

/// Denies tokens of a policy that lack one of the claims.
pub(super) fn filter(policy: &ObjectName, required: &[RequiredClaim]) -> TypedExtensionConfig {
    let all = all(policy, required);
    let lacking = Policy {
        permissions: vec![Permission {
            rule: Some(permission::Rule::Any(true)),
        }],
        principals: vec![of(principal::Identifier::NotId(Box::new(all)))],
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
    extension(RBAC, &filter)
}

/// All claims, each with one of its values.
pub(super) fn all(policy: &ObjectName, required: &[RequiredClaim]) -> Principal {
    let ids = required.iter().map(|one| of(has(policy, one)));
    of(principal::Identifier::AndIds(principal::Set {
        ids: ids.collect(),
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
