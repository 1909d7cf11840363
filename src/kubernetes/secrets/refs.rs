//! Decides which bodies of Secrets and ConfigMaps are fetched and kept: only those that an object
//! of ours refers to. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatewright_core::inputs::{Kind, Listener, LocalRef, Object, ObjectKey, ReferenceGrant};
use gatewright_core::model::ObjectName;
use gatewright_core::tenancy::secret_of;

use crate::watch::scope::AccessSecret;

/// The references to objects of one kind (Secret or ConfigMap), the existing objects, and the
/// bodies that were requested.
#[derive(Debug)]
pub struct BodyRefs {
    kind: Kind,
    /// Every existing object of the kind; of Secrets, only those of the types that are watched.
    there: BTreeMap<ObjectName, There>,
    /// The Secrets whose key we wrote.
    keyed: BTreeSet<ObjectName>,
    rekeyed: BTreeMap<ObjectName, bool>,
    by_referrer: BTreeMap<ObjectKey, BTreeSet<ObjectName>>,
    /// The references of each object to Secrets of other namespaces, granted or not.
    crossing: BTreeMap<ObjectKey, BTreeSet<ObjectName>>,
    /// The same by the Secret's namespace: the objects of other namespaces that refer to Secrets in
    /// it.
    crossed: BTreeSet<(Arc<str>, ObjectKey)>,
    grants: BTreeMap<ObjectName, ReferenceGrant>,
    referrers: BTreeSet<(ObjectName, ObjectKey)>,
    /// The resource version of every body that was requested.
    asked: BTreeMap<ObjectName, String>,
}

/// An existing object.
#[derive(Debug, PartialEq, Eq)]
struct There {
    /// Its resource version.
    version: String,
    /// The type of a Secret for AccessPolicies. Secrets of each type have watches of their own, so
    /// that of a Secret that was made again with another type the deletion may come last.
    access: Option<AccessSecret>,
}

/// An action for a Secret or ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyAction {
    /// Fetches its body.
    Fetch(ObjectName),
    /// Drops its body.
    Forget(ObjectName),
}

impl BodyRefs {
    /// Creates the state without references.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            there: BTreeMap::new(),
            keyed: BTreeSet::new(),
            rekeyed: BTreeMap::new(),
            by_referrer: BTreeMap::new(),
            crossing: BTreeMap::new(),
            crossed: BTreeSet::new(),
            grants: BTreeMap::new(),
            referrers: BTreeSet::new(),
            asked: BTreeMap::new(),
        }
    }

    /// Takes in an object that may have references, or a ReferenceGrant. The body of an object in
    /// another namespace is fetched only where a ReferenceGrant permits it.
    pub fn put(&mut self, object: &Object) -> Vec<BodyAction> {
        match object {
            Object::ReferenceGrant(grant) => {
                self.grants
                    .insert(grant.meta.name.clone(), ReferenceGrant::clone(grant));
                return self.regrant(&grant.meta.name.namespace);
            }
            Object::TenantGateway(tenant) if self.kind == Kind::Secret => {
                return self.refer(object.key(), secret_of(tenant).into_iter().collect());
            }
            _ => {}
        }
        let Some(references) = references(object) else {
            return Vec::new();
        };
        let names: BTreeSet<_> = references
            .into_iter()
            .filter(|r| r.group.is_empty() && r.kind == self.kind.as_str())
            .map(|r| r.name.clone())
            .collect();
        let referrer = object.key();
        self.cross(&referrer, &names);
        let permitted = names
            .into_iter()
            .filter(|name| self.permits(&referrer, name))
            .collect();
        self.refer(referrer, permitted)
    }

    /// Indexes the Secrets of other namespaces that an object refers to.
    fn cross(&mut self, referrer: &ObjectKey, names: &BTreeSet<ObjectName>) {
        let names: BTreeSet<_> = names
            .iter()
            .filter(|name| name.namespace != referrer.name.namespace)
            .cloned()
            .collect();
        let old = if names.is_empty() {
            self.crossing.remove(referrer)
        } else {
            self.crossing.insert(referrer.clone(), names.clone())
        };
        for name in old.into_iter().flatten() {
            self.crossed
                .remove(&(name.namespace.clone(), referrer.clone()));
        }
        self.crossed.extend(
            names
                .iter()
                .map(|name| (name.namespace.clone(), referrer.clone())),
        );
    }

    fn permits(&self, referrer: &ObjectKey, secret: &ObjectName) -> bool {
        let kind = referrer.kind;
        let namespace = &*referrer.name.namespace;
        let first = ObjectName::new(secret.namespace.clone(), "");
        let grants = self
            .grants
            .range(first..)
            .take_while(|(name, _)| name.namespace == secret.namespace);
        *namespace == *secret.namespace
            || grants
                .into_iter()
                .any(|(_, grant)| grant.permits(kind, namespace, self.kind, &secret.name))
    }

    /// Evaluates references again after the ReferenceGrants of a namespace have changed.
    fn regrant(&mut self, namespace: &Arc<str>) -> Vec<BodyAction> {
        let first = ObjectKey::new(Kind::Namespace, ObjectName::new("", ""));
        let referrers = self
            .crossed
            .range((namespace.clone(), first)..)
            .take_while(|(of, _)| of == namespace);
        let referrers: Vec<ObjectKey> = referrers.map(|(_, referrer)| referrer.clone()).collect();
        let mut steps = Vec::new();
        for referrer in referrers {
            let own = self.by_referrer.get(&referrer).into_iter().flatten();
            let own = own
                .filter(|name| name.namespace == referrer.name.namespace)
                .cloned();
            let crossing = self.crossing.get(&referrer).into_iter().flatten();
            let permitted = crossing
                .filter(|name| self.permits(&referrer, name))
                .cloned();
            let names = own.chain(permitted).collect();
            steps.extend(self.refer(referrer, names));
        }
        steps
    }

    /// Sets whether a certificate is wanted in a Secret, so that its content has to be known.
    pub fn want(&mut self, secret: &ObjectName, is_wanted: bool) -> Vec<BodyAction> {
        // No Secret refers to another one, so the Secret's own key is free as the referrer.
        let asker = ObjectKey::new(self.kind, secret.clone());
        self.refer(
            asker,
            is_wanted.then(|| secret.clone()).into_iter().collect(),
        )
    }

    /// Takes in the deletion of an object.
    pub fn delete(&mut self, key: &ObjectKey) -> Vec<BodyAction> {
        if key.kind == Kind::ReferenceGrant {
            self.grants.remove(&key.name);
            return self.regrant(&key.name.namespace);
        }
        self.cross(key, &BTreeSet::new());
        self.refer(key.clone(), BTreeSet::new())
    }

    /// Takes in a Secret that was added or changed, and whether we wrote its key.
    pub fn there(&mut self, name: ObjectName, version: String, ours: bool) -> Vec<BodyAction> {
        self.key(&name, ours);
        self.add(None, name, version)
    }

    /// Takes in the deletion of a Secret.
    pub fn gone(&mut self, name: &ObjectName) -> Vec<BodyAction> {
        self.key(name, false);
        self.remove(name, None)
    }

    /// Takes in a Secret for AccessPolicies that was added or changed.
    pub fn access_secret(
        &mut self,
        kind: AccessSecret,
        name: ObjectName,
        version: String,
    ) -> Vec<BodyAction> {
        self.add(Some(kind), name, version)
    }

    /// Takes in the deletion of a Secret for AccessPolicies.
    pub fn access_secret_gone(&mut self, kind: AccessSecret, name: &ObjectName) -> Vec<BodyAction> {
        self.remove(name, Some(kind))
    }

    fn add(
        &mut self,
        access: Option<AccessSecret>,
        name: ObjectName,
        version: String,
    ) -> Vec<BodyAction> {
        self.there.insert(name.clone(), There { version, access });
        self.next_action(&name).into_iter().collect()
    }

    fn remove(&mut self, name: &ObjectName, access: Option<AccessSecret>) -> Vec<BodyAction> {
        let is_it = self
            .there
            .get(name)
            .is_some_and(|there| there.access == access);
        if is_it {
            self.there.remove(name);
        }
        self.next_action(name).into_iter().collect()
    }

    /// Returns the Secrets whose key became ours since the last call (true), or is not ours any
    /// more (false).
    pub fn rekeyed(&mut self) -> impl Iterator<Item = (ObjectName, bool)> {
        std::mem::take(&mut self.rekeyed).into_iter()
    }

    fn key(&mut self, name: &ObjectName, ours: bool) {
        let changed = if ours {
            self.keyed.insert(name.clone())
        } else {
            self.keyed.remove(name)
        };
        if changed {
            self.rekeyed.insert(name.clone(), ours);
        }
    }

    /// Returns whether an object refers to one of these Secrets.
    pub fn refers(&self, referrer: &ObjectKey, to: &BTreeSet<ObjectName>) -> bool {
        self.by_referrer
            .get(referrer)
            .is_some_and(|names| !names.is_disjoint(to))
    }

    /// Returns the objects that refer to a Secret.
    pub fn referrers(&self, name: &ObjectName) -> impl Iterator<Item = &ObjectKey> {
        // The first key in the order of keys.
        let first = ObjectKey::new(Kind::Namespace, ObjectName::new("", ""));
        self.referrers
            .range((name.clone(), first)..)
            .take_while(move |(of, _)| of == name)
            .map(|(_, key)| key)
    }

    /// Returns whether the body of a Secret, which was just fetched, is still wanted.
    pub fn wanted(&self, name: &ObjectName) -> bool {
        self.asked.contains_key(name)
    }

    fn refer(&mut self, referrer: ObjectKey, names: BTreeSet<ObjectName>) -> Vec<BodyAction> {
        let old = if names.is_empty() {
            self.by_referrer.remove(&referrer)
        } else {
            self.by_referrer.insert(referrer.clone(), names.clone())
        };
        let old = old.unwrap_or_default();
        self.referrers.extend(
            names
                .difference(&old)
                .map(|name| (name.clone(), referrer.clone())),
        );
        for name in old.difference(&names) {
            self.referrers.remove(&(name.clone(), referrer.clone()));
        }
        old.symmetric_difference(&names)
            .filter_map(|name| self.next_action(name))
            .collect()
    }

    fn next_action(&mut self, name: &ObjectName) -> Option<BodyAction> {
        let wanted = self
            .there
            .get(name)
            .filter(|_| self.referrers(name).next().is_some());
        match (wanted.map(|there| &there.version), self.asked.get(name)) {
            (Some(version), asked) if asked != Some(version) => {
                self.asked.insert(name.clone(), version.clone());
                Some(BodyAction::Fetch(name.clone()))
            }
            (None, Some(_)) => {
                self.asked.remove(name);
                Some(BodyAction::Forget(name.clone()))
            }
            _ => None,
        }
    }
}

/// Returns the references of an object whose bodies are fetched; `None` for objects of other kinds.
pub(crate) fn references(object: &Object) -> Option<Vec<&LocalRef>> {
    match object {
        Object::Gateway(gateway) => {
            let shown = certificates(&gateway.listeners).chain(&gateway.client_certificate);
            Some(
                shown
                    .chain(gateway.frontend_tls.iter().flat_map(|tls| tls.references()))
                    .collect(),
            )
        }
        Object::ListenerSet(set) => Some(certificates(&set.listeners).collect()),
        Object::Policy(policy) => Some(policy.references().collect()),
        Object::DirectResponse(response) => Some(response.config_map().into_iter().collect()),
        _ => None,
    }
}

fn certificates(listeners: &[Arc<Listener>]) -> impl Iterator<Item = &LocalRef> {
    listeners
        .iter()
        .filter_map(|listener| listener.tls.as_ref())
        .flat_map(|tls| &tls.certificates)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(text: &str) -> ObjectName {
        ObjectName::new("a", text)
    }

    fn gateway(secrets: &[&str]) -> Object {
        let refs: Vec<_> = secrets.iter().map(|name| json!({"name": name})).collect();
        Object::parse(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "g", "namespace": "a"}, "spec": {"gatewayClassName": "c", "listeners": [
                {"name": "l", "protocol": "HTTPS", "port": 443, "tls": {"certificateRefs": refs}}]}}))
        .expect("a Gateway")
    }

    fn grant(name: &str, secret: Option<&str>) -> Object {
        Object::parse(json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
            "metadata": {"name": name, "namespace": "b"}, "spec": {
                "from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "a"}],
                "to": [{"group": "", "kind": "Secret", "name": secret}]}}))
        .expect("a grant")
    }

    #[test]
    fn a_secret_of_another_namespace_is_asked_for_once_its_namespace_permits_it() {
        let mut secrets = BodyRefs::new(Kind::Secret);
        let refs = json!([{"name": "own"}, {"name": "x", "namespace": "b"}, {"name": "y", "namespace": "b"}]);
        let gateway = Object::parse(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "g", "namespace": "a"}, "spec": {"gatewayClassName": "c", "listeners": [
                {"name": "l", "protocol": "HTTPS", "port": 443, "tls": {"certificateRefs": refs}}]}}))
        .expect("a Gateway");
        let [x, y] = ["x", "y"].map(|name| ObjectName::new("b", name));
        for secret in [name("own"), x.clone(), y.clone()] {
            assert_eq!(secrets.there(secret, "1".into(), false), []);
        }
        assert_eq!(secrets.put(&gateway), [BodyAction::Fetch(name("own"))]);
        assert_eq!(
            secrets.put(&grant("one", Some("x"))),
            [BodyAction::Fetch(x.clone())]
        );
        assert_eq!(
            secrets.put(&grant("all", None)),
            [BodyAction::Fetch(y.clone())]
        );
        assert_eq!(
            secrets.delete(&grant("one", None).key()),
            [],
            "the other grant permits it as well"
        );
        assert_eq!(
            secrets.delete(&grant("all", None).key()),
            [BodyAction::Forget(x.clone()), BodyAction::Forget(y)]
        );
        assert_eq!(
            secrets.put(&grant("one", Some("x"))),
            [BodyAction::Fetch(x.clone())]
        );
        let gone = secrets.delete(&gateway.key());
        assert_eq!(
            gone,
            [BodyAction::Forget(name("own")), BodyAction::Forget(x)]
        );
        assert!(secrets.crossed.is_empty() && secrets.crossing.is_empty());
        assert_eq!(secrets.delete(&grant("one", None).key()), []);
    }

    const USERS: AccessSecret = AccessSecret::Users;

    fn asking_for_users(namespace: &str) -> Object {
        let target =
            json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "shop"});
        let users = json!({"name": "users", "namespace": namespace});
        Object::parse(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
            "metadata": {"name": "p", "namespace": "a"},
            "spec": {"targetRefs": [target], "basicAuth": {"users": users}}}),
        )
        .expect("an AccessPolicy")
    }

    #[test]
    fn users_are_asked_for_where_an_access_policy_refers_to_them_and_may() {
        let mut secrets = BodyRefs::new(Kind::Secret);
        let own = name("users");
        let other = ObjectName::new("b", "users");
        assert_eq!(secrets.access_secret(USERS, own.clone(), "1".into()), []);
        assert_eq!(secrets.access_secret(USERS, other.clone(), "1".into()), []);
        let asked = secrets.put(&asking_for_users("a"));
        assert_eq!(asked, [BodyAction::Fetch(own.clone())]);
        let changed = secrets.access_secret(USERS, own.clone(), "2".into());
        assert_eq!(changed, [BodyAction::Fetch(own.clone())]);
        let moved = secrets.put(&asking_for_users("b"));
        assert_eq!(moved, [BodyAction::Forget(own)], "there is no grant");
        let grant = Object::parse(
            json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
            "metadata": {"name": "g", "namespace": "b"}, "spec": {
                "from": [{"group": "gatewright.io", "kind": "AccessPolicy", "namespace": "a"}],
                "to": [{"group": "", "kind": "Secret", "name": "users"}]}}),
        )
        .expect("a grant");
        assert_eq!(secrets.put(&grant), [BodyAction::Fetch(other.clone())]);
        assert_eq!(
            secrets.access_secret_gone(USERS, &other),
            [BodyAction::Forget(other)]
        );
    }

    #[test]
    fn a_secret_made_again_with_another_type_stays_when_the_deletion_comes_last() {
        let mut secrets = BodyRefs::new(Kind::Secret);
        let users = name("users");
        secrets.put(&asking_for_users("a"));
        let as_certificate = secrets.there(users.clone(), "1".into(), false);
        assert_eq!(as_certificate, [BodyAction::Fetch(users.clone())]);
        let as_users = secrets.access_secret(USERS, users.clone(), "3".into());
        assert_eq!(as_users, [BodyAction::Fetch(users.clone())]);
        assert_eq!(secrets.gone(&users), [], "it was of the other type");
        let of_clients = secrets.access_secret_gone(AccessSecret::Client, &users);
        assert_eq!(of_clients, [], "it is not of this type");
        assert_eq!(
            secrets.access_secret_gone(USERS, &users),
            [BodyAction::Forget(users.clone())],
            "now it is deleted"
        );
    }

    #[test]
    fn the_body_of_an_answer_is_asked_for_in_its_own_namespace() {
        let mut maps = BodyRefs::new(Kind::ConfigMap);
        fn response(spec: serde_json::Value) -> Object {
            Object::parse(
                json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "DirectResponse",
                "metadata": {"name": "sorry", "namespace": "a"}, "spec": spec}),
            )
            .expect("a DirectResponse")
        }
        let body = json!({"body": {"configMapRef": {"name": "pages", "key": "sorry.html"}}});
        for name in [name("pages"), ObjectName::new("b", "pages")] {
            assert_eq!(maps.there(name, "1".into(), false), []);
        }
        let asked = maps.put(&response(body));
        assert_eq!(asked, [BodyAction::Fetch(name("pages"))]);
        let dropped = maps.put(&response(json!({"body": {"inline": "hello"}})));
        assert_eq!(dropped, [BodyAction::Forget(name("pages"))]);
    }

    #[test]
    fn roots_of_clients_are_asked_for_where_a_gateway_refers_to_them_and_may() {
        let mut maps = BodyRefs::new(Kind::ConfigMap);
        fn roots(namespace: &str, name: &str) -> serde_json::Value {
            let reference =
                json!({"group": "", "kind": "ConfigMap", "namespace": namespace, "name": name});
            json!({"validation": {"caCertificateRefs": [reference]}})
        }
        let gateway = Object::parse(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "g", "namespace": "a"}, "spec": {"gatewayClassName": "c",
                "tls": {"frontend": {"default": roots("a", "own"), "perPort": [{"port": 8443, "tls": roots("b", "x")}]}},
                "listeners": [{"name": "l", "protocol": "HTTPS", "port": 443}]}}))
        .expect("a Gateway");
        let x = ObjectName::new("b", "x");
        assert_eq!(maps.there(name("other"), "1".into(), false), []);
        assert_eq!(maps.there(name("own"), "1".into(), false), []);
        assert_eq!(maps.there(x.clone(), "1".into(), false), []);
        assert_eq!(maps.put(&gateway), [BodyAction::Fetch(name("own"))]);
        let grant = Object::parse(json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
            "metadata": {"name": "ca", "namespace": "b"}, "spec": {
                "from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "a"}],
                "to": [{"group": "", "kind": "ConfigMap", "name": "x"}]}}))
        .expect("a grant");
        assert_eq!(maps.put(&grant), [BodyAction::Fetch(x.clone())]);
        assert_eq!(
            maps.there(name("own"), "2".into(), false),
            [BodyAction::Fetch(name("own"))],
            "others took their place"
        );
        assert_eq!(maps.delete(&grant.key()), [BodyAction::Forget(x)]);
        assert_eq!(
            maps.delete(&gateway.key()),
            [BodyAction::Forget(name("own"))]
        );
    }

    #[test]
    fn a_body_is_fetched_when_it_is_referred_to_and_there() {
        let mut secrets = BodyRefs::new(Kind::Secret);
        assert_eq!(secrets.there(name("x"), "1".into(), true), []);
        assert_eq!(
            secrets.put(&gateway(&["x", "y"])),
            [BodyAction::Fetch(name("x"))]
        );
        assert_eq!(
            secrets.there(name("x"), "1".into(), true),
            [],
            "a relist brings the same version"
        );
        assert_eq!(
            secrets.there(name("y"), "7".into(), false),
            [BodyAction::Fetch(name("y"))]
        );
        assert_eq!(
            secrets.there(name("x"), "2".into(), true),
            [BodyAction::Fetch(name("x"))],
            "a new version has a new body"
        );
        assert_eq!(
            secrets.rekeyed().collect::<Vec<_>>(),
            [(name("x"), true)],
            "once, and those alone that matter"
        );
        assert_eq!(secrets.gone(&name("y")), [BodyAction::Forget(name("y"))]);
        assert_eq!(
            secrets.put(&gateway(&["y"])),
            [BodyAction::Forget(name("x"))]
        );
        assert!(!secrets.wanted(&name("x")));
        assert_eq!(
            secrets.there(name("y"), "8".into(), false),
            [BodyAction::Fetch(name("y"))]
        );
        assert_eq!(secrets.want(&name("y"), true), [], "it is there already");
        assert_eq!(
            secrets.delete(&gateway(&[]).key()),
            [],
            "whoever is to put something there wants to know"
        );
        assert_eq!(
            secrets.want(&name("y"), false),
            [BodyAction::Forget(name("y"))]
        );
    }

    /// ConfigMaps are read under the same restriction as Secrets.
    #[test]
    fn a_config_map_is_asked_for_where_a_policy_refers_to_it() {
        let policy = Object::parse(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
            "metadata": {"name": "p", "namespace": "a"}, "spec": {
                "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
                "validation": {"hostname": "a.org", "caCertificateRefs": [
                    {"group": "", "kind": "ConfigMap", "name": "ca"}, {"group": "", "kind": "Secret", "name": "x"}]}}}))
        .expect("a policy");
        let mut maps = BodyRefs::new(Kind::ConfigMap);
        assert_eq!(maps.there(name("ca"), "1".into(), false), []);
        assert_eq!(maps.there(name("other"), "1".into(), false), []);
        assert_eq!(maps.put(&gateway(&["ca"])), []);
        assert_eq!(maps.put(&policy), [BodyAction::Fetch(name("ca"))]);
        assert_eq!(
            maps.there(name("ca"), "2".into(), false),
            [BodyAction::Fetch(name("ca"))]
        );
        assert_eq!(maps.delete(&policy.key()), [BodyAction::Forget(name("ca"))]);
    }
}
