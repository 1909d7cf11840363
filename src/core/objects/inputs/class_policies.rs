//! `spec.policies` of GatewayParameters: what the policies and routes of namespaces may ask of the
//! Gateways of a class.

use std::sync::Arc;

use serde::Deserialize;

use crate::settings::PolicyField;

/// What policies may ask for. The namespace of the parameters may ask for everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClassPolicies {
    /// The fields that policies may have, and the filters that routes may; all if `None`.
    pub allow: Option<Arc<[PolicyField]>>,
    /// How much a policy may ask for.
    #[serde(default)]
    pub limits: ClassPolicyLimits,
}

/// How much a policy may ask for; no less than the limits of the configuration if `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClassPolicyLimits {
    /// The networks of `clientAddress`, of both lists together.
    pub networks: Option<u32>,
    /// The users of `basicAuth`.
    pub users: Option<u32>,
    /// The limits in `rateLimit`.
    pub rate_limits: Option<u32>,
    /// The clients that a limit in `rateLimit` tells apart.
    pub rate_limit_clients: Option<u32>,
    /// The bytes of a request that `requestBody` collects.
    pub buffered_bytes: Option<u32>,
}

impl ClassPolicies {
    /// True if policies may have a field.
    pub fn may_have(&self, field: PolicyField) -> bool {
        let allowed = self.allow.as_ref();
        allowed.is_none_or(|allowed| allowed.contains(&field))
    }
}
