//! AccessPolicy (`gatewright.io/v1alpha1`): who may send requests to hosts. `settings/` has its
//! settings; here is what they mean together.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;

use serde::Deserialize;

use super::{Kind, Meta, ParseError, Policy, PolicyRules};
use crate::gateway_api::backendtlspolicies::BackendTlsPolicyTargetRefs;
use crate::model::Enforcement;
use crate::settings::{AccessRules, settings, specification};

/// The custom resource definition.
pub const ACCESS_POLICY_CRD: &str =
    include_str!("../../../../deploy/crds/gatewright.io_accesspolicies.yaml");

settings! { specification, of access
    /// `spec` of an AccessPolicy.
    struct AccessPolicySpec, read as AccessRules {
        target_refs: Vec<BackendTlsPolicyTargetRefs>,
        #[serde(default)]
        enforcement: Enforcement,
    }
}

impl AccessPolicySpec {
    /// The policy. A value that cannot be carried out is kept with its reason.
    pub(super) fn policy(meta: Meta, mut written: Self) -> Result<Policy, ParseError> {
        let targets = std::mem::take(&mut written.target_refs);
        let enforcement = written.enforcement;
        let only_routes = targets
            .iter()
            .all(|target| target.kind == Kind::HTTPRoute.as_str());
        let rules = written.rules(&meta.name.namespace, only_routes);
        let rules = match enforcement {
            Enforcement::Enforce => rules,
            Enforcement::Report => rules.and_then(rehearsed),
        };
        Policy::new(meta, targets, PolicyRules::Access(enforcement, rules))
    }

    fn rules(self, namespace: &Arc<str>, only_routes: bool) -> Result<AccessRules, String> {
        if self.fields().next().is_none() {
            return Err(
                "spec: clientAddress, basicAuth, oidc, jwt or externalAuth is needed".to_owned(),
            );
        }
        if self.basic_auth.is_some() && self.oidc.is_some() {
            return Err(
                "spec: basicAuth and oidc: browsers cannot do both: use one of them".to_owned(),
            );
        }
        // Backends get cookies with tokens: those of a Gateway would go to every namespace.
        if self.oidc.is_some() && !only_routes {
            return Err("spec: oidc is for HTTPRoutes: name routes as targets".to_owned());
        }
        if self.basic_auth.is_some() && self.jwt.is_some() {
            return Err(
                "spec: basicAuth and jwt both need the header Authorization: use one of them"
                    .to_owned(),
            );
        }
        self.settings(namespace)
    }
}

fn rehearsed(rules: AccessRules) -> Result<AccessRules, String> {
    rules.rehearsed().map_err(|(field, why)| {
        format!(
            "{field}: enforcement Report cannot rehearse it, {why}: use clientAddress, or jwt with keys of inline or \
             configMapRef"
        )
    })
}

#[cfg(test)]
mod patterns;
#[cfg(test)]
mod tests;
