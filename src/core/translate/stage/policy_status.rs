//! Statuses of policies, by each Gateway with routes to their Services.

use super::report::Report;
use super::verdict::condition;
use crate::key::Verdict;
use crate::state::datagrams;
use gatewright_objects::inputs::{ObjectKey, Policy, PolicyRules, PolicyTarget};
use gatewright_objects::model::{ConditionType, ObjectName, Reason, Transport};
use gatewright_objects::status::{ObjectStatus, PolicyStatus, StatusBody};

impl Report<'_> {
    pub(crate) fn policy_status(self, key: &ObjectKey) -> Option<ObjectStatus> {
        let policy = self.store.policy(key)?;
        let judged = self.policies.judged(key)?;
        let services = policy.targets.iter().map(|target| &target.service);
        let mut gateways: Vec<ObjectName> = self
            .policies
            .gateways(services)
            .into_iter()
            .cloned()
            .collect();
        // Where there is no room for all, those of its own namespace are told of.
        gateways.sort_by_key(|gateway| gateway.namespace != policy.meta.name.namespace);
        if gateways.is_empty() {
            return None;
        }
        let accepted = judged
            .accepted
            .clone()
            .and_then(|()| self.takes_effect(policy));
        let mut accepted = condition(ConditionType::Accepted, accepted, Reason::Accepted);
        if accepted.message.is_empty() {
            let others = (!policy.others.is_empty()).then(|| {
                format!(
                    "no effect on {}: only core Services are supported",
                    policy.others.join(", ")
                )
            });
            accepted.message = others
                .into_iter()
                .chain(judged.note.clone())
                .chain(self.hash_over_zones(policy))
                .chain(self.without_effect_on_datagrams(policy))
                .collect::<Vec<_>>()
                .join("; ");
        }
        let resolved = judged.resolved.clone();
        let resolved = resolved
            .map(|resolved| condition(ConditionType::ResolvedRefs, resolved, Reason::ResolvedRefs));
        let conditions = std::iter::once(accepted).chain(resolved).collect();
        let body = StatusBody::Policy(PolicyStatus {
            gateways,
            conditions,
        });
        Some(ObjectStatus {
            generation: policy.meta.generation,
            body,
        })
    }

    /// A note on a policy whose hash leaves `trafficDistribution` of a target without effect.
    fn hash_over_zones(self, policy: &Policy) -> Option<String> {
        let PolicyRules::Backend(Ok(settings)) = &policy.rules else {
            return None;
        };
        settings.hash()?;
        let mut services = policy.targets.iter().map(|target| &target.service);
        let zoned = services.find(|name| {
            self.store
                .service(name)
                .is_some_and(|service| service.prefers_zone())
        })?;
        Some(format!(
            "trafficDistribution of Service {} has no effect: a consistent hash goes by no zone",
            zoned.name
        ))
    }

    /// A note on the fields of a policy that its UDP ports do not go by.
    fn without_effect_on_datagrams(self, policy: &Policy) -> Option<String> {
        let PolicyRules::Backend(Ok(settings)) = &policy.rules else {
            return None;
        };
        policy.targets.iter().find_map(|target| {
            let service = self.store.service(&target.service)?;
            let mut ports = service.ports.iter().filter(|port| {
                let is_meant = target
                    .section
                    .as_ref()
                    .is_none_or(|name| port.name == *name);
                port.transport == Transport::Udp && is_meant
            });
            let port = ports.next()?;
            let is_checked = datagrams::is_checked(service, port);
            let fields = datagrams::without_effect(settings, is_checked);
            let name = &target.service.name;
            (!fields.is_empty()).then(|| {
                format!(
                    "no effect on datagrams to Service {name}: {}",
                    fields.join(", ")
                )
            })
        })
    }

    /// Ok if a policy applies to all its targets.
    fn takes_effect(self, policy: &Policy) -> Verdict {
        let kind = policy.kind();
        for PolicyTarget { service, section } in &policy.targets {
            let place = match section {
                Some(section) => format!("port {section} of Service {}", service.name),
                None => format!("Service {}", service.name),
            };
            let first = self
                .policies
                .first(&(service.clone(), kind, section.clone()));
            if let Some(first) = first.filter(|first| first.name != policy.meta.name) {
                let (kind, name) = (kind.as_str(), &first.name.name);
                let text = format!(
                    "{place} has {kind} {name}, which takes precedence (older, or first by name)"
                );
                return Err((Reason::Conflicted, text));
            }
            let has_port = self.store.service(service).is_some_and(|service| {
                section
                    .as_ref()
                    .is_none_or(|section| service.ports.iter().any(|port| port.name == *section))
            });
            if !has_port {
                return Err((Reason::TargetNotFound, format!("{place} does not exist")));
            }
        }
        Ok(())
    }
}
