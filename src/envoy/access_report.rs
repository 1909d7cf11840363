//! Envoy's filters for AccessPolicies that only report: shadow rules of filter RBAC, behind the
//! filters of policies that refuse requests.
//!
//! They refuse, change and delay nothing. Rules of action DENY leave the name of the policy in the
//! metadata of a request that it would refuse, for access logs and statistics. Each filter
//! overwrites what the ones before it left, so they stand in the opposite order: the outermost
//! policy remains.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, Rbac as Rules, permission, principal, rbac,
};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;

use super::proto::extension;
use super::rbac::RBAC;
use super::{access, jwt, required_claims};
use gatewright_core::model::Access;

/// The filters of policies, the outermost policy first.
pub(super) fn filters(policies: &[&Access]) -> Vec<TypedExtensionConfig> {
    let tokens = policies
        .iter()
        .filter_map(|access| Some(jwt::rehearsal(&access.policy, access.tokens.as_ref()?)));
    tokens
        .chain(policies.iter().rev().map(|access| shadow(access)))
        .collect()
}

/// Marks requests that a policy would refuse.
fn shadow(access: &Access) -> TypedExtensionConfig {
    let Access {
        policy,
        enforcement: _,
        addresses,
        users: _,
        login: _,
        tokens,
    } = access;
    let by_address = addresses.as_ref().map(access::admitted);
    let by_token = tokens.as_ref().map(|auth| {
        let asked = jwt::proof(auth);
        required_claims::all(policy, &asked, &auth.audiences)
    });
    let refused = by_address.into_iter().chain(by_token).map(not);
    let refused = Policy {
        permissions: vec![Permission {
            rule: Some(permission::Rule::Any(true)),
        }],
        principals: refused.collect(),
        ..Default::default()
    };
    let rules = Rules {
        action: rbac::Action::Deny.into(),
        policies: HashMap::from([(policy.to_string(), refused)]),
        ..Default::default()
    };
    let filter = Rbac {
        shadow_rules: Some(rules),
        ..Default::default()
    };
    extension(RBAC, &filter)
}

fn not(admitted: Principal) -> Principal {
    Principal {
        identifier: Some(principal::Identifier::NotId(Box::new(admitted))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gatewright_core::model::{
        AddressList, ClaimHeader, Enforcement, IssuerKeys, Jwks, KeyKind, ObjectName, TokenAuth,
    };
    use prost::Message;

    use super::*;

    fn reporting(name: &str, tokens: Option<TokenAuth>) -> Arc<Access> {
        Arc::new(Access {
            policy: ObjectName::new("a", name),
            enforcement: Enforcement::Report,
            addresses: Some(AddressList {
                allow: ["10.0.0.0/8".parse().expect("a network")].into(),
                deny: Arc::default(),
            }),
            users: None,
            login: None,
            tokens,
        })
    }

    fn tokens() -> TokenAuth {
        let claim = ClaimHeader {
            claim: "sub".into(),
            header: "x-sub".into(),
        };
        TokenAuth {
            issuer: "id".into(),
            audiences: Arc::default(),
            keys: IssuerKeys::Given(Jwks::new("{}".to_owned(), vec![KeyKind::P256])),
            required_claims: Arc::default(),
            claims: [claim].into(),
            forward_payload: Some("x-payload".into()),
            forwards_credentials: false,
        }
    }

    #[test]
    fn nothing_is_refused_or_changed_and_the_outermost_policy_is_marked_last() {
        let made = access::filters(&[reporting("outer", Some(tokens())), reporting("inner", None)]);
        let names: Vec<&str> = made.iter().map(|filter| filter.name.as_str()).collect();
        let mutation = "envoy.filters.http.header_mutation";
        let expected = [mutation, jwt::JWT, RBAC, RBAC, mutation];
        assert_eq!(names, expected, "a copy of the token alone is removed");
        let marks = made[2..4].iter().map(|filter| {
            let config = filter.typed_config.as_ref().expect("a configuration");
            let filter = Rbac::decode(config.value.as_slice()).expect("the filter");
            assert_eq!(filter.rules, None, "nothing is refused");
            let rules = filter.shadow_rules.expect("rules");
            assert_eq!(rules.action, i32::from(rbac::Action::Deny));
            let [(name, policy)] = &Vec::from_iter(rules.policies)[..] else {
                panic!("one policy")
            };
            (name.clone(), policy.principals.len())
        });
        let marks: Vec<(String, usize)> = marks.collect();
        assert_eq!(
            marks,
            [("a/inner".to_owned(), 1), ("a/outer".to_owned(), 2)]
        );
        let token = format!("{:?}", made[1]);
        for header in ["x-sub", "x-payload"] {
            assert!(!token.contains(header), "{header}: {token}");
        }
    }
}
