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
                self.indexes.policies_by_service.set(&target.service, &key, there);
            }
            for reference in policy.references() {
                self.indexes.policies_by_roots.set(&reference.name, &key, there);
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
        let policies = self.indexes.policies_by_service.of(service).filter_map(|key| self.policies.get(key));
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::Object;
    use crate::namespaces::Namespaces;

    fn object(group: &str, kind: &str, spec: Value) -> Object {
        let value =
            json!({"apiVersion": group, "kind": kind, "metadata": {"namespace": "a", "name": "x"}, "spec": spec});
        Object::parse(value).expect("an object")
    }

    /// How much more a route is with a policy on Service `web`, on a channel.
    fn more(channel: Channel, rule: Value) -> u64 {
        let spec = json!({"hostnames": ["a.org", "b.org"], "rules": [rule]});
        let Object::Route(route) = object("gateway.networking.k8s.io/v1", "HTTPRoute", spec) else { panic!("a route") };
        let mut store = Store::in_cluster(None, Namespaces::default(), channel);
        let before = store.extent(&route).bytes;
        let target = json!({"group": "", "kind": "Service", "name": "web"});
        let session = json!({"type": "Cookie", "cookie": {"name": "sid"}});
        let spec = json!({"targetRefs": [target], "sessionPersistence": session});
        store.put(object("gateway.networking.x-k8s.io/v1alpha1", "XBackendTrafficPolicy", spec));
        store.extent(&route).bytes - before
    }

    #[test]
    fn a_session_counts_for_each_hostname_match_and_share_where_it_is_served() {
        let to = |name: &str| json!({"name": name, "port": 80});
        let matches = json!([{"path": {"value": "/a"}}, {"path": {"value": "/b"}}, {"path": {"value": "/c"}}]);
        let one =
            SessionPersistence::Cookie { name: Some("sid".to_owned()), path: "/".to_owned(), lifetime: None }.bytes();
        let alone = json!({"matches": matches, "backendRefs": [to("web")]});
        let shared = json!({"matches": matches, "backendRefs": [to("web"), to("other"), to("web")]});
        assert_eq!(more(Channel::Experimental, alone.clone()), 2 * 3 * one);
        assert_eq!(more(Channel::Experimental, shared), 2 * 3 * 2 * one);
        assert_eq!(more(Channel::Standard, alone.clone()), 0);
        let own = json!({"matches": matches, "backendRefs": [to("web")], "sessionPersistence": {}});
        assert_eq!(more(Channel::Experimental, own), 0);
    }
}
