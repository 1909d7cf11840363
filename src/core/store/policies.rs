//! Policies, the Services that they are about, and what they add to routes that lead there.

use std::sync::Arc;

use super::Store;
use crate::channel::Channel;
use crate::inputs::{Extent, ObjectKey, Policy, PolicyRules, Route, SessionPersistence, TrafficRules};
use crate::model::ObjectName;

impl Store {
    /// A policy by kind and name.
    pub fn policy(&self, key: &ObjectKey) -> Option<&Arc<Policy>> {
        self.policies.get(key)
    }

    pub(super) fn index_policy(&mut self, old: Option<&Policy>, new: Option<&Policy>) {
        for (policy, there) in [(old, false), (new, true)] {
            let Some(policy) = policy else { continue };
            let key = policy.key();
            for target in &policy.targets {
                self.policies_by_service.set(&target.service, &key, there);
            }
            for reference in policy.references() {
                self.policies_by_roots.set(&reference.name, &key, there);
            }
        }
    }

    /// How much of Envoy's configuration a route becomes, with the sessions that policies on its Services ask for.
    pub(crate) fn extent(&self, route: &Route) -> Extent {
        route.extent(&|service| self.bytes_of_sessions(service))
    }

    fn bytes_of_sessions(&self, service: &ObjectName) -> u64 {
        if self.channel == Channel::Standard {
            return 0;
        }
        let policies = self.policies_by_service.of(service).filter_map(|key| self.policies.get(key));
        policies.filter_map(|policy| session(policy)).map(SessionPersistence::bytes).max().unwrap_or_default()
    }

    /// The Services whose routes become more or less of Envoy's configuration where a policy was replaced.
    pub(crate) fn resized(&self, old: Option<&Policy>, new: Option<&Policy>) -> Vec<ObjectName> {
        let asks = |policy: Option<&Policy>| policy.and_then(session).map(SessionPersistence::bytes);
        let targets = |policy: Option<&Policy>| policy.map(|policy| policy.targets.clone()).unwrap_or_default();
        if asks(old) == asks(new) && (asks(new).is_none() || targets(old) == targets(new)) {
            return Vec::new();
        }
        targets(old).into_iter().chain(targets(new)).map(|target| target.service).collect()
    }
}

/// The sessions that a policy asks for.
fn session(policy: &Policy) -> Option<&SessionPersistence> {
    match &policy.rules {
        PolicyRules::Traffic(Ok(TrafficRules { session, .. })) => session.as_ref(),
        PolicyRules::Traffic(Err(_)) | PolicyRules::Tls(_) => None,
    }
}
