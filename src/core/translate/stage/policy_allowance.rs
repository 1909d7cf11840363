//! What a class lets the policies and routes of namespaces ask of its Gateways. Pure.
//!
//! A policy is judged as a whole, at each Gateway: one that asks for too much has no effect there,
//! and an AccessPolicy closes what it is attached to. The namespace of the class's parameters is
//! the operator's, whose policies are not judged.

use super::resolve::label;
use crate::key::Verdict;
use crate::rule::gateway_exposure::PolicyAllowance;
use crate::state::attached_policies::{Effect, JudgedAttachment};
use crate::state::parent::Parent;
use crate::state::traffic_settings::TrafficSettings;
use gatewright_objects::inputs::{ClassPolicyLimits, PolicyField, Route};
use gatewright_objects::model::{Access, Bodies, LimitedBy, Reason};

impl Parent {
    /// Ok if the class of the Gateway allows a policy.
    pub(crate) fn allows(&self, judged: &JudgedAttachment) -> Verdict {
        match &self.placement.exposure.policies {
            Some(allowance) => allowance.verdict(judged),
            None => Ok(()),
        }
    }

    /// Ok if the class of the Gateway allows rules of a namespace that answer by a DirectResponse.
    pub(crate) fn allows_answers(&self, namespace: &str) -> Result<(), String> {
        match &self.placement.exposure.policies {
            Some(allowance) if *allowance.parameters.namespace != *namespace => {
                allowance.may_have(PolicyField::DirectResponse)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Ok if the class of the Gateway allows the filters of all rules of a route; the others are
    /// answered 500.
    pub(crate) fn allows_filters(&self, route: &Route) -> Verdict {
        let answering: Vec<String> = route
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.answers())
            .map(|(index, rule)| label(index, rule))
            .collect();
        if answering.is_empty() {
            return Ok(());
        }
        let verdict = self.allows_answers(&route.meta.name.namespace);
        verdict.map_err(|text| {
            let rules = answering.join(", ");
            let text =
                format!("filter ExtensionRef: {text}; requests for rule {rules} are answered 500");
            (Reason::InvalidFilter, text)
        })
    }
}

impl PolicyAllowance {
    /// Ok if a policy has effect at the Gateways of the class.
    fn verdict(&self, judged: &JudgedAttachment) -> Verdict {
        if judged.policy.meta.name.namespace == self.parameters.namespace {
            return Ok(());
        }
        let (verdict, comes_of_it) = match &judged.effect {
            Effect::Admit(access) if access.only_reports() => {
                (self.access(access), "the policy reports nothing there")
            }
            Effect::Admit(access) => (self.access(access), "requests there are answered 500"),
            Effect::Traffic(settings) => (self.traffic(settings), "the policy has no effect there"),
            Effect::Close | Effect::Nothing => return Ok(()),
        };
        verdict.map_err(|text| (Reason::NotAllowed, format!("{text}; {comes_of_it}")))
    }

    fn access(&self, access: &Access) -> Result<(), String> {
        let Access {
            policy: _,
            enforcement: _,
            addresses,
            users,
            login,
            tokens,
        } = access;
        let ClassPolicyLimits {
            networks: most_networks,
            users: most_users,
            ..
        } = self.policies.limits;
        if let Some(list) = addresses {
            self.may_have(PolicyField::ClientAddress)?;
            self.within(("clientAddress", list.len()), ("networks", most_networks))?;
        }
        if let Some(auth) = users {
            self.may_have(PolicyField::BasicAuth)?;
            self.within(("basicAuth", auth.users.count()), ("users", most_users))?;
        }
        if login.is_some() {
            self.may_have(PolicyField::Oidc)?;
        }
        if tokens.is_some() {
            self.may_have(PolicyField::Jwt)?;
        }
        Ok(())
    }

    fn traffic(&self, settings: &TrafficSettings) -> Result<(), String> {
        let TrafficSettings {
            rate_limits,
            bodies:
                Bodies {
                    compression,
                    overrides,
                    request,
                },
        } = settings;
        let ClassPolicyLimits {
            rate_limits: most_limits,
            rate_limit_clients: most_clients,
            buffered_bytes: most_bytes,
            ..
        } = self.policies.limits;
        if let Some(all) = rate_limits {
            self.may_have(PolicyField::RateLimit)?;
            let asked = ("rateLimit", all.limits.len());
            self.within(asked, ("rateLimits", most_limits))?;
            let told_apart = all
                .limits
                .iter()
                .filter(|limit| limit.by != LimitedBy::Everyone);
            let clients = told_apart.map(|limit| limit.by.buckets()).max();
            let asked = ("rateLimit[].by.maxClients", clients.unwrap_or(0) as usize);
            self.within(asked, ("rateLimitClients", most_clients))?;
        }
        if compression.is_some() {
            self.may_have(PolicyField::Compression)?;
        }
        if overrides.is_some() {
            self.may_have(PolicyField::ResponseOverride)?;
        }
        if let Some(request) = request {
            self.may_have(PolicyField::RequestBody)?;
            let asked = ("requestBody", request.buffered_bytes() as usize);
            self.within(asked, ("bufferedBytes", most_bytes))?;
        }
        Ok(())
    }

    fn may_have(&self, field: PolicyField) -> Result<(), String> {
        if self.policies.may_have(field) {
            return Ok(());
        }
        Err(format!(
            "{field}: the Gateway's class does not allow it (spec.policies.allow of GatewayParameters {})",
            self.parameters
        ))
    }

    /// Ok if so much of a field is within a limit of this name.
    fn within(
        &self,
        (field, asked): (&str, usize),
        (limit, most): (&str, Option<u32>),
    ) -> Result<(), String> {
        match most {
            Some(most) if asked > most as usize => Err(format!(
                "{field}: {asked}, the Gateway's class allows {most} (spec.policies.limits.{limit} of GatewayParameters {})",
                self.parameters
            )),
            _ => Ok(()),
        }
    }
}
