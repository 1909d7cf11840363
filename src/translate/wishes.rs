//! Which certificates issuers are to make: kept by who asks, so that a change costs what the parent that changed has.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::certificate::{Served, Wish};
use super::engine::{Dirty, Engine};
use super::key::ParentKey;
use super::parent::{Parent, ParentListener};
use crate::model::{Certificate, ObjectName};

/// Wishes by Secret and by who has them. Two Gateways with the same hostname and issuer share a Secret.
#[derive(Default)]
pub(super) struct Wished {
    /// Nearly always one, and sorted.
    by_secret: BTreeMap<ObjectName, Vec<(ParentKey, Wish)>>,
    by_parent: BTreeMap<ParentKey, Vec<ObjectName>>,
}

impl Wished {
    fn get(&self, secret: &ObjectName) -> Option<&Wish> {
        self.by_secret.get(secret).and_then(|all| all.first()).map(|(_, wish)| wish)
    }
}

impl Engine {
    /// The certificate that an issuer is to make for a Secret.
    pub fn wish(&self, secret: &ObjectName) -> Option<&Wish> {
        self.wished.get(secret)
    }

    /// The certificates that issuers are to make, each with the certificate that is there now.
    pub fn wishes(&self) -> BTreeMap<Wish, Option<Arc<Certificate>>> {
        self.parents.keys().flat_map(|parent| self.wishes_of(parent)).collect()
    }

    /// Whether a listener has its hostname on its port, and the port is its Gateway's. Nothing is ordered for another one: who
    /// does not own a name gets no certificate for it.
    fn has_won(&self, parent: &Parent, listener: &ParentListener) -> bool {
        let id = parent.frontend(listener.port);
        let Some(frontend) = self.frontends.get(&id) else { return false };
        let winner = frontend.winners.get(&listener.hostname).map(|(winner, _)| winner);
        winner == Some(&parent.id(listener)) && self.rival(&id).is_none()
    }

    fn wishes_of(&self, key: &ParentKey) -> Vec<(Wish, Option<Arc<Certificate>>)> {
        let Some(parent) = self.parents.get(key).filter(|parent| parent.accepted.is_ok()) else { return Vec::new() };
        let own =
            parent.listeners.iter().filter(|listener| listener.accepted.is_ok() && self.has_won(parent, listener));
        own.filter_map(|listener| match &listener.served {
            Served::Issued(wish, held) => Some((wish.clone(), held.clone())),
            Served::None | Served::Missing(_) | Served::Certificate(_) | Served::NotAllowed(..) => None,
        })
        .collect()
    }

    /// Notes what a parent wishes for now, and hands out what is different by it.
    pub(super) fn settle_wishes(&mut self, key: &ParentKey, dirty: &mut Dirty) {
        let now: BTreeMap<ObjectName, Wish> =
            self.wishes_of(key).into_iter().map(|(wish, _)| (wish.secret.clone(), wish)).collect();
        let before = match now.is_empty() {
            true => self.wished.by_parent.remove(key),
            false => self.wished.by_parent.insert(key.clone(), now.keys().cloned().collect()),
        };
        for secret in before.unwrap_or_default().into_iter().filter(|secret| !now.contains_key(secret)) {
            self.set_wish(key, secret, None, dirty);
        }
        for (secret, wish) in now {
            self.set_wish(key, secret, Some(wish), dirty);
        }
    }

    fn set_wish(&mut self, key: &ParentKey, secret: ObjectName, wish: Option<Wish>, dirty: &mut Dirty) {
        let before = self.wished.get(&secret).cloned();
        let all = self.wished.by_secret.entry(secret.clone()).or_insert_with(|| Vec::with_capacity(1));
        match (all.binary_search_by(|(parent, _)| parent.cmp(key)), wish) {
            (Ok(place), Some(wish)) => all[place].1 = wish,
            (Ok(place), None) => drop(all.remove(place)),
            (Err(place), Some(wish)) => all.insert(place, (key.clone(), wish)),
            (Err(_), None) => {}
        }
        if all.is_empty() {
            self.wished.by_secret.remove(&secret);
        }
        let after = self.wished.get(&secret).cloned();
        if before != after {
            dirty.delta.wishes.insert(secret, after);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{Kind, Object, ObjectKey};
    use crate::model::Hostname;
    use crate::translate::{Asked, ChallengeAnswer, Change, IssuerPolicy, Resource, Settings, Unlisted};

    fn put(kind: &str, namespace: &str, created: u32, spec: Value) -> Change {
        let object = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "spec": spec,
            "metadata": {"name": "edge", "namespace": namespace,
                "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")}});
        Change::Put(Object::parse(object).expect("an object"))
    }

    fn listener(port: u16, hostname: &str) -> Value {
        json!({"name": "l", "port": port, "protocol": "HTTPS", "hostname": hostname,
            "tls": {"options": {"gatewright.io/issuer": "acme"}}})
    }

    fn gateway(namespace: &str, created: u32, port: u16, hostname: &str) -> Change {
        let spec = json!({"gatewayClassName": "edge", "listeners": [listener(port, hostname)],
            "allowedListeners": {"namespaces": {"from": "All"}}});
        put("Gateway", namespace, created, spec)
    }

    fn engine(rules: &[&str]) -> Engine {
        let mut issuers = IssuerPolicy::new(Unlisted::Nobody);
        for rule in rules {
            let rule: crate::translate::IssuerRule = rule.parse().expect("a rule");
            issuers.allow(&rule.issuer, rule.allow);
        }
        let mut engine = Engine::new(Settings { issuers, ..Settings::new("ours", vec![[127, 0, 0, 1].into()]) });
        engine.apply(vec![put("GatewayClass", "", 0, json!({"controllerName": "ours"}))], SystemTime::UNIX_EPOCH);
        engine
    }

    fn wished(engine: &Engine) -> Vec<String> {
        engine.wishes().keys().map(|wish| format!("{} in {}", wish.hostname, wish.secret.namespace)).collect()
    }

    #[test]
    fn a_certificate_is_wished_for_by_whom_the_issuer_is_allowed_and_who_has_hostname_and_port() {
        let now = SystemTime::UNIX_EPOCH;
        let mut engine = engine(&["acme=alice:a.example.org", "acme=mallory:a.example.org,m.example.org"]);
        engine.apply(vec![gateway("alice", 5, 443, "a.example.org")], now);
        assert_eq!(wished(&engine), ["a.example.org in alice"]);
        // The same hostname in a ListenerSet loses it; another hostname is not allowed.
        let set = |hostname: &str| {
            let parent = json!({"name": "edge", "namespace": "alice"});
            put("ListenerSet", "mallory", 1, json!({"parentRef": parent, "listeners": [listener(443, hostname)]}))
        };
        for hostname in ["a.example.org", "b.example.org", "*.example.org"] {
            engine.apply(vec![set(hostname)], now);
            assert_eq!(wished(&engine), ["a.example.org in alice"], "{hostname}");
        }
        engine.apply(vec![set("m.example.org")], now);
        assert_eq!(wished(&engine), ["a.example.org in alice", "m.example.org in mallory"]);
        let set = ObjectKey::new(Kind::ListenerSet, ObjectName::new("mallory", "edge"));
        let delta = engine.apply(vec![Change::Delete(set)], now);
        assert!(delta.wishes.values().all(Option::is_none) && delta.wishes.len() == 1, "{:?}", delta.wishes);
        // A younger Gateway does not have the port, until the older one goes.
        engine.apply(vec![gateway("mallory", 9, 443, "m.example.org")], now);
        assert_eq!(wished(&engine), ["a.example.org in alice"]);
        let alice = ObjectKey::new(Kind::Gateway, ObjectName::new("alice", "edge"));
        engine.apply(vec![Change::Delete(alice)], now);
        assert_eq!(wished(&engine), ["m.example.org in mallory"]);
    }

    #[test]
    fn challenges_are_answered_where_who_asked_has_the_host() {
        let now = SystemTime::UNIX_EPOCH;
        let mut engine = engine(&["acme=*:*"]);
        engine.apply(vec![gateway("alice", 5, 443, "a.example.org"), gateway("mallory", 6, 444, "a.example.org")], now);
        let told = |engine: &mut Engine, namespace: &str, thumbprint: &str| {
            let hostname = Hostname::parse("a.example.org").expect("a hostname");
            let answer = ChallengeAnswer { port: 80, thumbprint: thumbprint.into() };
            let asked = Asked { hostname, namespace: namespace.into() };
            let delta = engine.apply(vec![Change::Challenge(asked, Some(answer))], now);
            let tables = delta.resources.into_values().filter_map(|resource| match resource {
                Some(Resource::Table(table)) if !table.challenges.is_empty() => {
                    Some(format!("{} {}", table.id.frontend, table.challenges[0].thumbprint))
                }
                _ => None,
            });
            tables.collect::<Vec<_>>()
        };
        assert_eq!(told(&mut engine, "mallory", "hers"), ["mallory/edge:80 hers"]);
        assert_eq!(told(&mut engine, "alice", "alices"), ["alice/edge:80 alices"]);
        assert_eq!(told(&mut engine, "zoe", "zoes"), Vec::<String>::new());
        let host = Hostname::parse("a.example.org").expect("a hostname");
        assert_eq!(engine.addresses_of(&host, Some("zoes")).len(), 0);
        assert_eq!(engine.addresses_of(&host, Some("alices")).len(), 1);
    }
}
