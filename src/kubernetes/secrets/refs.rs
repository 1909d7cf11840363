//! Which Secrets' bodies we hold: only those that a listener or a TenantGateway refers to. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatewright_core::inputs::{Kind, Listener, Object, ObjectKey, ReferenceGrant};
use gatewright_core::model::ObjectName;
use gatewright_core::tenancy::secret_of;

/// Who refers to which Secret, which Secrets there are, and of which the body is held.
#[derive(Debug, Default)]
pub struct SecretRefs {
    /// Version of every TLS Secret in the cluster.
    there: BTreeMap<ObjectName, String>,
    /// Those with a key of ours.
    keyed: BTreeSet<ObjectName>,
    rekeyed: BTreeMap<ObjectName, bool>,
    by_referrer: BTreeMap<ObjectKey, BTreeSet<ObjectName>>,
    /// Names of Secrets of other namespaces in objects, granted or not.
    crossing: BTreeMap<ObjectKey, BTreeSet<ObjectName>>,
    /// Namespaces with Secrets that objects of others name, and those objects.
    crossed: BTreeSet<(Arc<str>, ObjectKey)>,
    grants: BTreeMap<ObjectName, ReferenceGrant>,
    referrers: BTreeSet<(ObjectName, ObjectKey)>,
    /// Version of every body that was asked for.
    asked: BTreeMap<ObjectName, String>,
}

/// What is to be done about a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretAction {
    /// Ask for its body.
    Fetch(ObjectName),
    /// Forget its body.
    Forget(ObjectName),
}

impl SecretRefs {
    /// Takes in an object that may refer to Secrets, or lets others refer to them: a Secret of another namespace is asked for
    /// only where a ReferenceGrant permits it.
    pub fn put(&mut self, object: &Object) -> Vec<SecretAction> {
        let listeners: &[Arc<Listener>] = match object {
            Object::ReferenceGrant(grant) => {
                self.grants.insert(grant.meta.name.clone(), ReferenceGrant::clone(grant));
                return self.regrant(&grant.meta.name.namespace);
            }
            Object::TenantGateway(tenant) => {
                return self.refer(object.key(), secret_of(tenant).into_iter().collect());
            }
            Object::Gateway(gateway) => &gateway.listeners,
            Object::ListenerSet(set) => &set.listeners,
            _ => return Vec::new(),
        };
        let certificates =
            listeners.iter().filter_map(|listener| listener.tls.as_ref()).flat_map(|tls| &tls.certificates);
        let names: BTreeSet<_> =
            certificates.filter(|r| r.group.is_empty() && r.kind == "Secret").map(|r| r.name.clone()).collect();
        let referrer = object.key();
        self.cross(&referrer, &names);
        let permitted = names.into_iter().filter(|name| self.permits(&referrer, name)).collect();
        self.refer(referrer, permitted)
    }

    /// Notes which Secrets of other namespaces an object names.
    fn cross(&mut self, referrer: &ObjectKey, names: &BTreeSet<ObjectName>) {
        let foreign = |name: &&ObjectName| name.namespace != referrer.name.namespace;
        let names: BTreeSet<_> = names.iter().filter(foreign).cloned().collect();
        let old = match names.is_empty() {
            true => self.crossing.remove(referrer),
            false => self.crossing.insert(referrer.clone(), names.clone()),
        };
        for name in old.into_iter().flatten() {
            self.crossed.remove(&(name.namespace.clone(), referrer.clone()));
        }
        self.crossed.extend(names.iter().map(|name| (name.namespace.clone(), referrer.clone())));
    }

    fn permits(&self, referrer: &ObjectKey, secret: &ObjectName) -> bool {
        let (kind, namespace) = (referrer.kind.as_str(), &*referrer.name.namespace);
        let first = ObjectName::new(secret.namespace.clone(), "");
        let grants = self.grants.range(first..).take_while(|(name, _)| name.namespace == secret.namespace);
        *namespace == *secret.namespace
            || grants.into_iter().any(|(_, grant)| grant.permits(kind, namespace, "Secret", &secret.name))
    }

    /// The grants of a namespace are others.
    fn regrant(&mut self, namespace: &Arc<str>) -> Vec<SecretAction> {
        let first = ObjectKey::new(Kind::Namespace, ObjectName::new("", ""));
        let referrers = self.crossed.range((namespace.clone(), first)..).take_while(|(of, _)| of == namespace);
        let referrers: Vec<ObjectKey> = referrers.map(|(_, referrer)| referrer.clone()).collect();
        let mut steps = Vec::new();
        for referrer in referrers {
            let own = self.by_referrer.get(&referrer).into_iter().flatten();
            let own = own.filter(|name| name.namespace == referrer.name.namespace).cloned();
            let crossing = self.crossing.get(&referrer).into_iter().flatten();
            let permitted = crossing.filter(|name| self.permits(&referrer, name)).cloned();
            let names = own.chain(permitted).collect();
            steps.extend(self.refer(referrer, names));
        }
        steps
    }

    /// Somebody is to put a certificate into a Secret, or nobody is any more: what is in it matters.
    pub fn want(&mut self, secret: &ObjectName, is_wanted: bool) -> Vec<SecretAction> {
        // No Secret refers to another one, so that the name is free.
        let asker = ObjectKey::new(Kind::Secret, secret.clone());
        self.refer(asker, is_wanted.then(|| secret.clone()).into_iter().collect())
    }

    /// Takes in that an object is gone.
    pub fn delete(&mut self, key: &ObjectKey) -> Vec<SecretAction> {
        if key.kind == Kind::ReferenceGrant {
            self.grants.remove(&key.name);
            return self.regrant(&key.name.namespace);
        }
        self.cross(key, &BTreeSet::new());
        self.refer(key.clone(), BTreeSet::new())
    }

    /// A Secret is there in this version, with a key of ours or without.
    pub fn there(&mut self, name: ObjectName, version: String, ours: bool) -> Vec<SecretAction> {
        self.key(&name, ours);
        self.there.insert(name.clone(), version);
        self.settle(&name).into_iter().collect()
    }

    /// A Secret is gone.
    pub fn gone(&mut self, name: &ObjectName) -> Vec<SecretAction> {
        self.key(name, false);
        self.there.remove(name);
        self.settle(name).into_iter().collect()
    }

    /// In which Secrets there is a key of ours since this was last asked, or is none any more.
    pub fn rekeyed(&mut self) -> impl Iterator<Item = (ObjectName, bool)> {
        std::mem::take(&mut self.rekeyed).into_iter()
    }

    fn key(&mut self, name: &ObjectName, ours: bool) {
        let changed = if ours { self.keyed.insert(name.clone()) } else { self.keyed.remove(name) };
        if changed {
            self.rekeyed.insert(name.clone(), ours);
        }
    }

    /// Whether an object refers to one of these Secrets.
    pub fn refers(&self, referrer: &ObjectKey, to: &BTreeSet<ObjectName>) -> bool {
        self.by_referrer.get(referrer).is_some_and(|names| !names.is_disjoint(to))
    }

    /// The objects that refer to a Secret.
    pub fn referrers(&self, name: &ObjectName) -> impl Iterator<Item = &ObjectKey> {
        // The first of all keys.
        let first = ObjectKey::new(Kind::Namespace, ObjectName::new("", ""));
        self.referrers.range((name.clone(), first)..).take_while(move |(of, _)| of == name).map(|(_, key)| key)
    }

    /// Whether the body of a Secret, which came just now, is still wanted.
    pub fn wanted(&self, name: &ObjectName) -> bool {
        self.asked.contains_key(name)
    }

    fn refer(&mut self, referrer: ObjectKey, names: BTreeSet<ObjectName>) -> Vec<SecretAction> {
        let old = match names.is_empty() {
            true => self.by_referrer.remove(&referrer),
            false => self.by_referrer.insert(referrer.clone(), names.clone()),
        };
        let old = old.unwrap_or_default();
        self.referrers.extend(names.difference(&old).map(|name| (name.clone(), referrer.clone())));
        for name in old.difference(&names) {
            self.referrers.remove(&(name.clone(), referrer.clone()));
        }
        old.symmetric_difference(&names).filter_map(|name| self.settle(name)).collect()
    }

    fn settle(&mut self, name: &ObjectName) -> Option<SecretAction> {
        let wanted = self.there.get(name).filter(|_| self.referrers(name).next().is_some());
        match (wanted, self.asked.get(name)) {
            (Some(version), asked) if asked != Some(version) => {
                self.asked.insert(name.clone(), version.clone());
                Some(SecretAction::Fetch(name.clone()))
            }
            (None, Some(_)) => {
                self.asked.remove(name);
                Some(SecretAction::Forget(name.clone()))
            }
            _ => None,
        }
    }
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
        let mut secrets = SecretRefs::default();
        let refs = json!([{"name": "own"}, {"name": "x", "namespace": "b"}, {"name": "y", "namespace": "b"}]);
        let gateway = Object::parse(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "g", "namespace": "a"}, "spec": {"gatewayClassName": "c", "listeners": [
                {"name": "l", "protocol": "HTTPS", "port": 443, "tls": {"certificateRefs": refs}}]}}))
        .expect("a Gateway");
        let [x, y] = ["x", "y"].map(|name| ObjectName::new("b", name));
        for secret in [name("own"), x.clone(), y.clone()] {
            assert_eq!(secrets.there(secret, "1".into(), false), []);
        }
        assert_eq!(secrets.put(&gateway), [SecretAction::Fetch(name("own"))]);
        assert_eq!(secrets.put(&grant("one", Some("x"))), [SecretAction::Fetch(x.clone())]);
        assert_eq!(secrets.put(&grant("all", None)), [SecretAction::Fetch(y.clone())]);
        assert_eq!(secrets.delete(&grant("one", None).key()), [], "the other grant permits it as well");
        assert_eq!(
            secrets.delete(&grant("all", None).key()),
            [SecretAction::Forget(x.clone()), SecretAction::Forget(y)]
        );
        assert_eq!(secrets.put(&grant("one", Some("x"))), [SecretAction::Fetch(x.clone())]);
        let gone = secrets.delete(&gateway.key());
        assert_eq!(gone, [SecretAction::Forget(name("own")), SecretAction::Forget(x)]);
        assert!(secrets.crossed.is_empty() && secrets.crossing.is_empty());
        assert_eq!(secrets.delete(&grant("one", None).key()), []);
    }

    #[test]
    fn a_body_is_fetched_when_it_is_referred_to_and_there() {
        let mut secrets = SecretRefs::default();
        assert_eq!(secrets.there(name("x"), "1".into(), true), []);
        assert_eq!(secrets.put(&gateway(&["x", "y"])), [SecretAction::Fetch(name("x"))]);
        assert_eq!(secrets.there(name("x"), "1".into(), true), [], "a relist brings the same version");
        assert_eq!(secrets.there(name("y"), "7".into(), false), [SecretAction::Fetch(name("y"))]);
        assert_eq!(
            secrets.there(name("x"), "2".into(), true),
            [SecretAction::Fetch(name("x"))],
            "a new version has a new body"
        );
        assert_eq!(secrets.rekeyed().collect::<Vec<_>>(), [(name("x"), true)], "once, and those alone that matter");
        assert_eq!(secrets.gone(&name("y")), [SecretAction::Forget(name("y"))]);
        assert_eq!(secrets.put(&gateway(&["y"])), [SecretAction::Forget(name("x"))]);
        assert!(!secrets.wanted(&name("x")));
        assert_eq!(secrets.there(name("y"), "8".into(), false), [SecretAction::Fetch(name("y"))]);
        assert_eq!(secrets.want(&name("y"), true), [], "it is there already");
        assert_eq!(secrets.delete(&gateway(&[]).key()), [], "whoever is to put something there wants to know");
        assert_eq!(secrets.want(&name("y"), false), [SecretAction::Forget(name("y"))]);
    }
}
