//! What a class lets the policies and routes of namespaces ask of its Gateways. Pure.
//!
//! A policy is judged as a whole, at each Gateway: one that asks for too much has no effect there,
//! and an AccessPolicy closes what it is attached to. The namespace of the class's parameters is
//! the operator's, whose policies are not judged.

use super::resolve::label;
use crate::key::Verdict;
use crate::rule::gateway_exposure::{Fleet, PolicyAllowance};
use crate::state::parent::Parent;
use crate::state::policies::judged::{Effect, Judged};
use gatewright_objects::inputs::{Kind, Route};
use gatewright_objects::model::Reason;
use gatewright_objects::settings::{Amount, PolicyField};

impl Parent {
    /// Ok if the class of the Gateway allows a policy. The collector of spans is a setting of a
    /// connection manager, and that of a port of the shared fleet belongs to Gateways of all
    /// namespaces.
    pub(crate) fn allows(&self, judged: &Judged) -> Verdict {
        if judged.policy.kind() == Kind::XTelemetryPolicy
            && self.placement.exposure.fleet == Fleet::Shared
        {
            let text = format!(
                "Gateway {} is of fleet Shared, whose ports have Gateways of all namespaces in common: traces need fleet \
                 Dedicated or Isolated",
                self.placement.gateway.name
            );
            return Err((Reason::Invalid, text));
        }
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
    fn verdict(&self, judged: &Judged) -> Verdict {
        if judged.policy.meta.name.namespace == self.parameters.namespace {
            return Ok(());
        }
        let limits = &self.policies.limits;
        let (asked, consequence) = match &judged.effect {
            Effect::Admit(access) if access.only_reports() => {
                (access.amounts(limits), "the policy reports nothing there")
            }
            Effect::Admit(access) => (access.amounts(limits), "requests there are answered 500"),
            Effect::Traffic(settings) => {
                (settings.amounts(limits), "the policy has no effect there")
            }
            _ => return Ok(()),
        };
        asked
            .into_iter()
            .try_for_each(|(field, amounts)| {
                self.may_have(field)?;
                amounts.iter().try_for_each(|amount| self.within(amount))
            })
            .map_err(|text| (Reason::NotAllowed, format!("{text}; {consequence}")))
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

    /// Ok if so much of a field is within its limit.
    fn within(&self, amount: &Amount) -> Result<(), String> {
        let Amount {
            asked: (field, asked),
            limit: (limit, most),
        } = amount;
        match most {
            Some(most) if *asked > *most as usize => Err(format!(
                "{field}: {asked}, the Gateway's class allows {most} (spec.policies.limits.{limit} of GatewayParameters {})",
                self.parameters
            )),
            _ => Ok(()),
        }
    }
}
