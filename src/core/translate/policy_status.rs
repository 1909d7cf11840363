//! Statuses of BackendTLSPolicies, for each Gateway with routes to their Services.

use super::key::Verdict;
use super::report::{Report, condition};
use super::status::{ObjectStatus, PolicyStatus, StatusBody};
use crate::inputs::{BackendTlsPolicy, PolicyTarget};
use crate::model::{ConditionType, ObjectName, Reason};

impl Report<'_> {
    pub(super) fn policy_status(self, name: &ObjectName) -> Option<ObjectStatus> {
        let policy = self.store.policy(name)?;
        let judged = self.policies.judged(name)?;
        let services = policy.targets.iter().map(|target| &target.service);
        let gateways: Vec<ObjectName> = self.policies.gateways(services).into_iter().cloned().collect();
        if gateways.is_empty() {
            return None;
        }
        let accepted = judged.accepted.clone().and_then(|()| self.takes_effect(policy));
        let mut accepted = condition(ConditionType::Accepted, accepted, Reason::Accepted);
        if accepted.message.is_empty() && !policy.others.is_empty() {
            accepted.message = format!("no effect on {}: only core Services are supported", policy.others.join(", "));
        }
        let resolved = condition(ConditionType::ResolvedRefs, judged.resolved.clone(), Reason::ResolvedRefs);
        let body = StatusBody::Policy(PolicyStatus { gateways, conditions: vec![accepted, resolved] });
        Some(ObjectStatus { generation: policy.meta.generation, body })
    }

    /// Whether a policy applies to all its targets.
    fn takes_effect(self, policy: &BackendTlsPolicy) -> Verdict {
        let name = &policy.meta.name;
        for PolicyTarget { service, section } in &policy.targets {
            let place = match section {
                Some(section) => format!("port {section} of Service {}", service.name),
                None => format!("Service {}", service.name),
            };
            if let Some(first) = self.policies.first(service, section).filter(|first| *first != name) {
                let text = format!(
                    "{place} has BackendTLSPolicy {}, which takes precedence (older, or first by name)",
                    first.name
                );
                return Err((Reason::Conflicted, text));
            }
            let has_port = self.store.service(service).is_some_and(|service| {
                section.as_ref().is_none_or(|section| service.ports.iter().any(|port| port.name == *section))
            });
            if !has_port {
                return Err((Reason::TargetNotFound, format!("{place} does not exist")));
            }
        }
        Ok(())
    }
}
