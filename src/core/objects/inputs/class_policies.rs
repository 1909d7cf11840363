//! `spec.policies` of GatewayParameters: what the policies and routes of namespaces may ask of the
//! Gateways of a class.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

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

/// A field of an AccessPolicy or of a TrafficPolicy on Gateways, ListenerSets and routes; or a
/// filter of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum PolicyField {
    /// `clientAddress` of an AccessPolicy.
    ClientAddress,
    /// `basicAuth` of an AccessPolicy.
    BasicAuth,
    /// `jwt` of an AccessPolicy.
    #[serde(rename = "JWT")]
    Jwt,
    /// `oidc` of an AccessPolicy.
    #[serde(rename = "OIDC")]
    Oidc,
    /// `rateLimit` of a TrafficPolicy.
    RateLimit,
    /// `compression` of a TrafficPolicy.
    Compression,
    /// `responseOverride` of a TrafficPolicy.
    ResponseOverride,
    /// `requestBody` of a TrafficPolicy.
    RequestBody,
    /// Filter ExtensionRef of a rule that refers to a DirectResponse.
    DirectResponse,
}

impl PolicyField {
    /// The name of the field in the policy, or of the kind that the filter refers to.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClientAddress => "clientAddress",
            Self::BasicAuth => "basicAuth",
            Self::Jwt => "jwt",
            Self::Oidc => "oidc",
            Self::RateLimit => "rateLimit",
            Self::Compression => "compression",
            Self::ResponseOverride => "responseOverride",
            Self::RequestBody => "requestBody",
            Self::DirectResponse => "DirectResponse",
        }
    }
}

impl fmt::Display for PolicyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ClassPolicies {
    /// True if policies may have a field.
    pub fn may_have(&self, field: PolicyField) -> bool {
        let allowed = self.allow.as_ref();
        allowed.is_none_or(|allowed| allowed.contains(&field))
    }
}
