//! Envoy's filters for AccessPolicies that only report: shadow rules of filter RBAC, behind the
//! filters of policies that refuse requests.
//!
//! They refuse, change and delay nothing. Rules of action DENY leave the name of the policy in the
//! metadata of a request that it would refuse, for access logs and statistics.

use std::collections::HashMap;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::rbac::v3::{
    Permission, Policy, Principal, Rbac as Rules, permission, principal, rbac,
};
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::Rbac;

use super::Filters;
use crate::proto::extension;
use crate::rbac::RBAC;
use gatewright_core::model::ObjectName;

/// A policy that only reports, as its settings are visited.
pub(super) struct Report<'a, 'b> {
    pub(super) filters: &'a mut Filters<'b>,
    refused: Vec<Principal>,
}

impl<'a, 'b> Report<'a, 'b> {
    pub(super) fn new(filters: &'a mut Filters<'b>) -> Self {
        Self {
            filters,
            refused: Vec::new(),
        }
    }

    /// A setting admits these.
    pub(super) fn admits(&mut self, admitted: Principal) {
        self.refused.push(not(admitted));
    }

    /// Marks requests that the policy would refuse.
    pub(super) fn filter(self, policy: &ObjectName) -> TypedExtensionConfig {
        let refused = Policy {
            permissions: vec![Permission {
                rule: Some(permission::Rule::Any(true)),
            }],
            principals: self.refused,
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
}

/// All that are not these.
pub(super) fn not(admitted: Principal) -> Principal {
    Principal {
        identifier: Some(principal::Identifier::NotId(Box::new(admitted))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gatewright_core::model::{ClaimHeader, Enforcement};
    use gatewright_core::settings::{Access, AddressList, TokenAuth, TokenRules};
    use prost::Message;

    use super::super::jwt;
    use super::*;
    use crate::testdata::{filters, policy, token_rules, tokens_of};

    fn reporting(name: &str, tokens: Option<TokenAuth>) -> Arc<Access> {
        Arc::new(Access {
            enforcement: Enforcement::Report,
            client_address: Some(AddressList {
                allow: ["10.0.0.0/8".parse().expect("a network")].into(),
                deny: Arc::default(),
            }),
            jwt: tokens,
            ..policy("a", name)
        })
    }

    fn tokens() -> TokenAuth {
        let claim = ClaimHeader {
            claim: "sub".into(),
            header: "x-sub".into(),
        };
        tokens_of(TokenRules {
            claims: [claim].into(),
            forward_payload: Some("x-payload".into()),
            forwards_credentials: false,
            ..token_rules()
        })
    }

    #[test]
    fn nothing_is_refused_or_changed_and_the_outermost_policy_is_marked_last() {
        let made = filters(&[reporting("outer", Some(tokens())), reporting("inner", None)]);
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
