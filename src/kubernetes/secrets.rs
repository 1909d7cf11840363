//! Which Secrets' bodies we hold: only those that a listener or a TenantGateway refers to. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::inputs::{Kind, Listener, Object, ObjectKey};
use crate::model::ObjectName;
use crate::tenancy::secret_of;

/// Who refers to which Secret, which Secrets there are, and of which the body is held.
#[derive(Debug, Default)]
pub struct Secrets {
    /// Version of every TLS Secret in the cluster.
    there: BTreeMap<ObjectName, String>,
    /// Those with a key of ours.
    keyed: BTreeSet<ObjectName>,
    rekeyed: BTreeMap<ObjectName, bool>,
    by_referrer: BTreeMap<ObjectKey, BTreeSet<ObjectName>>,
    referrers: BTreeSet<(ObjectName, ObjectKey)>,
    /// Version of every body that was asked for.
    asked: BTreeMap<ObjectName, String>,
}

/// What is to be done about a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask for its body.
    Fetch(ObjectName),
    /// Forget its body.
    Forget(ObjectName),
}

impl Secrets {
    /// Takes in an object that may refer to Secrets.
    pub fn put(&mut self, object: &Object) -> Vec<Step> {
        let listeners: &[Arc<Listener>] = match object {
            Object::TenantGateway(tenant) => {
                return self.refer(object.key(), secret_of(tenant).into_iter().collect());
            }
            Object::Gateway(gateway) => &gateway.listeners,
            Object::ListenerSet(set) => &set.listeners,
            _ => return Vec::new(),
        };
        let certificates =
            listeners.iter().filter_map(|listener| listener.tls.as_ref()).flat_map(|tls| &tls.certificates);
        let names = certificates.filter(|r| r.group.is_empty() && r.kind == "Secret").map(|r| r.name.clone()).collect();
        self.refer(object.key(), names)
    }

    /// Somebody is to put a certificate into a Secret, or nobody is any more: what is in it matters.
    pub fn wish(&mut self, secret: &ObjectName, is_wished: bool) -> Vec<Step> {
        // No Secret refers to another one, so that the name is free.
        let wisher = ObjectKey::new(Kind::Secret, secret.clone());
        self.refer(wisher, is_wished.then(|| secret.clone()).into_iter().collect())
    }

    /// Takes in that an object is gone.
    pub fn delete(&mut self, key: &ObjectKey) -> Vec<Step> {
        self.refer(key.clone(), BTreeSet::new())
    }

    /// A Secret is there in this version, with a key of ours or without.
    pub fn there(&mut self, name: ObjectName, version: String, ours: bool) -> Vec<Step> {
        self.key(&name, ours);
        self.there.insert(name.clone(), version);
        self.settle(&name).into_iter().collect()
    }

    /// A Secret is gone.
    pub fn gone(&mut self, name: &ObjectName) -> Vec<Step> {
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

    fn refer(&mut self, referrer: ObjectKey, names: BTreeSet<ObjectName>) -> Vec<Step> {
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

    fn settle(&mut self, name: &ObjectName) -> Option<Step> {
        let wanted = self.there.get(name).filter(|_| self.referrers(name).next().is_some());
        match (wanted, self.asked.get(name)) {
            (Some(version), asked) if asked != Some(version) => {
                self.asked.insert(name.clone(), version.clone());
                Some(Step::Fetch(name.clone()))
            }
            (None, Some(_)) => {
                self.asked.remove(name);
                Some(Step::Forget(name.clone()))
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

    #[test]
    fn a_body_is_fetched_when_it_is_referred_to_and_there() {
        let mut secrets = Secrets::default();
        assert_eq!(secrets.there(name("x"), "1".into(), true), []);
        assert_eq!(secrets.put(&gateway(&["x", "y"])), [Step::Fetch(name("x"))]);
        assert_eq!(secrets.there(name("x"), "1".into(), true), [], "a relist brings the same version");
        assert_eq!(secrets.there(name("y"), "7".into(), false), [Step::Fetch(name("y"))]);
        assert_eq!(
            secrets.there(name("x"), "2".into(), true),
            [Step::Fetch(name("x"))],
            "a new version has a new body"
        );
        assert_eq!(secrets.rekeyed().collect::<Vec<_>>(), [(name("x"), true)], "once, and those alone that matter");
        assert_eq!(secrets.gone(&name("y")), [Step::Forget(name("y"))]);
        assert_eq!(secrets.put(&gateway(&["y"])), [Step::Forget(name("x"))]);
        assert!(!secrets.wanted(&name("x")));
        assert_eq!(secrets.there(name("y"), "8".into(), false), [Step::Fetch(name("y"))]);
        assert_eq!(secrets.wish(&name("y"), true), [], "it is there already");
        assert_eq!(secrets.delete(&gateway(&[]).key()), [], "whoever is to put something there wants to know");
        assert_eq!(secrets.wish(&name("y"), false), [Step::Forget(name("y"))]);
    }
}
