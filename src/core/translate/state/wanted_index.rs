//! The wanted certificates, indexed by parent, so that the cost of a change depends on the changed
//! parent alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::dirty::Dirty;
use super::frontends::Frontends;
use super::gateway_services::GatewayServices;
use super::parent::{Parent, ParentListener};
use super::parents::Parents;
use super::register::Register;
use crate::key::ParentKey;
use crate::rule::certificate::Served;
use gatewright_objects::model::{Certificate, Hostname, ObjectName};
use gatewright_objects::store::Store;
use gatewright_objects::wanted::WantedCertificate;

/// Wanted certificates by Secret and by parent. Two Gateways with the same hostname and issuer
/// share a Secret.
#[derive(Default)]
pub(crate) struct WantedIndex {
    /// Nearly always one parent; sorted.
    by_secret: BTreeMap<ObjectName, Vec<(ParentKey, WantedCertificate)>>,
    by_parent: BTreeMap<ParentKey, Vec<ObjectName>>,
    /// The Secrets of refused listeners, by parent.
    refused: BTreeMap<ParentKey, BTreeMap<ObjectName, Refused>>,
}

/// The number of refused listeners with a Secret.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Refused {
    all: usize,
    /// The number of those whose hostname another namespace owns by record.
    lost: usize,
}

impl WantedIndex {
    /// The wanted certificate of a Secret.
    pub(crate) fn get(&self, secret: &ObjectName) -> Option<&WantedCertificate> {
        self.by_secret
            .get(secret)
            .and_then(|all| all.first())
            .map(|(_, want)| want)
    }

    /// Sets the certificates that a parent wants, and adds the changes to the result.
    pub(crate) fn set_parent(
        &mut self,
        key: &ParentKey,
        outcomes: ListenerOutcomes<'_>,
        dirty: &mut Dirty,
    ) {
        self.set_refused(key, outcomes, dirty);
        let now: BTreeMap<ObjectName, WantedCertificate> = outcomes
            .wanted_of(key)
            .into_iter()
            .map(|(want, _)| (want.secret.clone(), want))
            .collect();
        let before = if now.is_empty() {
            self.by_parent.remove(key)
        } else {
            self.by_parent
                .insert(key.clone(), now.keys().cloned().collect())
        };
        for secret in before
            .unwrap_or_default()
            .into_iter()
            .filter(|secret| !now.contains_key(secret))
        {
            self.set_wanted(key, secret, None, dirty);
        }
        for (secret, want) in now {
            self.set_wanted(key, secret, Some(want), dirty);
        }
    }

    /// Sets the Secrets of refused listeners of a parent, and adds those whose state changed to the
    /// result.
    fn set_refused(&mut self, key: &ParentKey, outcomes: ListenerOutcomes<'_>, dirty: &mut Dirty) {
        let mut now: BTreeMap<ObjectName, Refused> = BTreeMap::new();
        if let Some(parent) = outcomes.parents.get(key) {
            for listener in parent
                .listeners
                .iter()
                .filter(|listener| !outcomes.is_granted(parent, listener))
            {
                for secret in outcomes.secrets_of_listener(key, listener) {
                    let refused = now.entry(secret.clone()).or_default();
                    refused.all += 1;
                    refused.lost += usize::from(outcomes.has_lost(parent, listener));
                }
            }
            // A Secret that is refused for another parent may be served here.
            if !self.refused.is_empty() {
                let all = parent
                    .listeners
                    .iter()
                    .flat_map(|listener| outcomes.secrets_of_listener(key, listener));
                let shared =
                    all.filter(|secret| outcomes.parents.of_secret(secret).nth(1).is_some());
                dirty.note_secrets(shared.cloned());
            }
        }
        let before = if now.is_empty() {
            self.refused.remove(key)
        } else {
            self.refused.insert(key.clone(), now.clone())
        };
        let before = before.unwrap_or_default();
        dirty.note_secrets(
            now.iter()
                .filter(|(secret, refused)| before.get(*secret) != Some(*refused))
                .map(|(secret, _)| secret.clone()),
        );
        dirty.note_secrets(
            before
                .into_keys()
                .filter(|secret| !now.contains_key(secret)),
        );
    }

    fn set_wanted(
        &mut self,
        key: &ParentKey,
        secret: ObjectName,
        want: Option<WantedCertificate>,
        dirty: &mut Dirty,
    ) {
        let before = self.get(&secret).cloned();
        let all = self
            .by_secret
            .entry(secret.clone())
            .or_insert_with(|| Vec::with_capacity(1));
        match (all.binary_search_by(|(parent, _)| parent.cmp(key)), want) {
            (Ok(place), Some(want)) => all[place].1 = want,
            (Ok(place), None) => {
                all.remove(place);
            }
            (Err(place), Some(want)) => all.insert(place, (key.clone(), want)),
            (Err(_), None) => {}
        }
        if all.is_empty() {
            self.by_secret.remove(&secret);
        }
        let after = self.get(&secret).cloned();
        if before != after {
            dirty.want_certificate(secret, after);
        }
    }
}

/// The states that decide which listeners have their hostname and port.
#[derive(Clone, Copy)]
pub(crate) struct ListenerOutcomes<'a> {
    pub(crate) store: &'a Store,
    pub(crate) parents: &'a Parents,
    pub(crate) frontends: &'a Frontends,
    pub(crate) gateway_services: &'a GatewayServices,
    pub(crate) register: &'a Register,
}

impl<'a> ListenerOutcomes<'a> {
    /// True if a listener has its hostname on its port, and its Gateway has the port. No
    /// certificate is ordered for any other listener: a namespace that does not own a hostname gets
    /// no certificate for it.
    fn has_won(self, parent: &Parent, listener: &ParentListener) -> bool {
        let id = parent.frontend(listener.transport_port());
        let Some(frontend) = self.frontends.get(&id) else {
            return false;
        };
        let winner = frontend
            .winner(&listener.hostname)
            .map(|(winner, _)| winner);
        let has_port = self
            .gateway_services
            .port_outcomes(&parent.placement.gateway)
            .get(&id.transport_port())
            .is_none_or(Result::is_ok);
        winner == Some(&parent.id(listener))
            && has_port
            && self.frontends.rival(&id, self.register).is_none()
    }

    /// True if listeners refer to a Secret and all of them are refused: no issuer may store a
    /// certificate there.
    pub(crate) fn is_refused(self, secret: &ObjectName) -> bool {
        let mut having = self.having(secret).peekable();
        having.peek().is_some()
            && having.all(|(parent, listener)| !self.is_granted(parent, listener))
    }

    /// The hostnames of the listeners with a Secret, if by record another namespace owns each of
    /// them: a certificate that we stored there must be removed. Empty if one listener may still
    /// serve it, or if no listener of the Secret's own namespace refers to it.
    pub(crate) fn lost_hostnames(self, secret: &ObjectName) -> BTreeSet<Hostname> {
        let mut hostnames = BTreeSet::new();
        let mut has_own = false;
        for (parent, listener) in self.having(secret) {
            if !self.has_lost(parent, listener) {
                return BTreeSet::new();
            }
            has_own |= parent.key.name().namespace == secret.namespace;
            hostnames.insert(listener.hostname.clone());
        }
        if has_own { hostnames } else { BTreeSet::new() }
    }

    /// True if by record another namespace owns the hostname of a refused listener.
    fn has_lost(self, parent: &Parent, listener: &ParentListener) -> bool {
        self.frontends
            .conflict(&parent.id(listener))
            .is_some_and(|conflict| conflict.is_recorded)
    }

    /// The listeners that have a Secret: they refer to it, or their issuer stores the certificate
    /// there.
    fn having<'b>(
        self,
        secret: &'b ObjectName,
    ) -> impl Iterator<Item = (&'a Parent, &'a ParentListener)> + use<'a, 'b> {
        self.parents.of_secret(secret).flat_map(move |key| {
            let parent = self.parents.get(key);
            let all = parent
                .into_iter()
                .flat_map(|parent| parent.listeners.iter().map(move |l| (parent, l)));
            all.filter(move |(_, listener)| {
                self.secrets_of_listener(key, listener)
                    .any(|one| one == secret)
            })
        })
    }

    /// The Secrets of a listener.
    fn secrets_of_listener(
        self,
        key: &ParentKey,
        listener: &'a ParentListener,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        let written = self
            .store
            .listeners(key)
            .find(|written| written.name == listener.name);
        let references = written
            .and_then(|written| written.tls.as_ref())
            .into_iter()
            .flat_map(|tls| &tls.certificates);
        references
            .map(|reference| &reference.name)
            .chain(listener.served.secret())
    }

    /// True if a listener is accepted, and has its hostname and port.
    pub(crate) fn is_granted(self, parent: &Parent, listener: &ParentListener) -> bool {
        let served = parent.accepted.is_ok() && parent.placement.unusable.is_none();
        served && listener.accepted.is_ok() && self.has_won(parent, listener)
    }

    pub(crate) fn wanted_of(
        self,
        key: &ParentKey,
    ) -> Vec<(WantedCertificate, Option<Arc<Certificate>>)> {
        let Some(parent) = self.parents.get(key) else {
            return Vec::new();
        };
        self.wants_of_listeners(parent)
            .map(|(_, want, held)| (want.clone(), held.cloned()))
            .collect()
    }

    /// The certificates that listeners of a parent want, each with the present one.
    pub(crate) fn wants_of_listeners(
        self,
        parent: &'a Parent,
    ) -> impl Iterator<
        Item = (
            &'a ParentListener,
            &'a WantedCertificate,
            Option<&'a Arc<Certificate>>,
        ),
    > {
        let own = parent
            .listeners
            .iter()
            .filter(move |listener| self.is_granted(parent, listener));
        own.filter_map(|listener| match &listener.served {
            Served::Issued(want, held) => Some((listener, want, held.as_ref())),
            Served::None
            | Served::Missing(_)
            | Served::Certificate(..)
            | Served::NotAllowed(..) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::rule::certificate::issued_secret_name;
    use crate::{
        Asked, ChallengeAnswer, Change, Engine, Fact, Fleet, IssuerPolicy, Obstacle, Resource,
        ResourceKey, Settings, Unlisted, Validation,
    };
    use gatewright_objects::inputs::{Kind, Object, ObjectKey};
    use gatewright_objects::model::{FrontendId, Hostname, Requests, Scope};

    fn put(kind: &str, namespace: &str, created: u32, spec: Value) -> Change {
        let object = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "spec": spec,
            "metadata": {"name": "edge", "namespace": namespace,
                "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")}});
        Change::put(Object::parse(object).expect("an object"))
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

    /// An engine whose issuer acme issues for these namespaces and hostnames.
    fn engine(rules: &[(&str, &[&str])]) -> Engine {
        let mut issuers = IssuerPolicy::new(Unlisted::Nobody);
        for (namespace, hostnames) in rules {
            let rule = json!({"namespaces": [namespace], "hostnames": hostnames});
            issuers.allow("acme", serde_json::from_value(rule).expect("a rule"));
        }
        let mut engine = Engine::new(Settings {
            issuers,
            ..Settings::new("ours", vec![[127, 0, 0, 1].into()])
        });
        engine.apply(
            vec![put(
                "GatewayClass",
                "",
                0,
                json!({"controllerName": "ours"}),
            )],
            SystemTime::UNIX_EPOCH,
        );
        engine
    }

    fn wanted(engine: &Engine) -> Vec<String> {
        engine
            .wants()
            .iter()
            .map(|(want, _)| format!("{} in {}", want.names[0], want.secret.namespace))
            .collect()
    }

    #[test]
    fn a_certificate_is_wished_for_by_whom_the_issuer_is_allowed_and_who_has_hostname_and_port() {
        let now = SystemTime::UNIX_EPOCH;
        let mut engine = engine(&[
            ("alice", &["a.example.org"]),
            ("mallory", &["a.example.org", "m.example.org"]),
        ]);
        engine.apply(vec![gateway("alice", 5, 443, "a.example.org")], now);
        assert_eq!(wanted(&engine), ["a.example.org in alice"]);
        // A ListenerSet with the same hostname does not get it; another hostname is not permitted.
        fn set(hostname: &str) -> Change {
            let parent = json!({"name": "edge", "namespace": "alice"});
            put(
                "ListenerSet",
                "mallory",
                1,
                json!({"parentRef": parent, "listeners": [listener(443, hostname)]}),
            )
        }
        for hostname in ["a.example.org", "b.example.org", "*.example.org"] {
            engine.apply(vec![set(hostname)], now);
            assert_eq!(wanted(&engine), ["a.example.org in alice"], "{hostname}");
        }
        engine.apply(vec![set("m.example.org")], now);
        assert_eq!(
            wanted(&engine),
            ["a.example.org in alice", "m.example.org in mallory"]
        );
        let set = ObjectKey::new(Kind::ListenerSet, ObjectName::new("mallory", "edge"));
        let delta = engine.apply(vec![Change::delete(set)], now);
        assert!(
            delta.wants.values().all(Option::is_none) && delta.wants.len() == 1,
            "{:?}",
            delta.wants
        );
        // A younger Gateway does not get the port until the older one is deleted.
        engine.apply(vec![gateway("mallory", 9, 443, "m.example.org")], now);
        assert_eq!(wanted(&engine), ["a.example.org in alice"]);
        let alice = ObjectKey::new(Kind::Gateway, ObjectName::new("alice", "edge"));
        engine.apply(vec![Change::delete(alice)], now);
        assert_eq!(wanted(&engine), ["m.example.org in mallory"]);
    }

    #[test]
    fn a_secret_is_refused_while_every_listener_that_refers_to_it_is() {
        let now = SystemTime::UNIX_EPOCH;
        fn refers(namespace: &str, created: u32, port: u16, hostnames: &[&str]) -> Change {
            let listeners: Vec<Value> = hostnames
                .iter()
                .enumerate()
                .map(|(i, hostname)| {
                    json!({"name": format!("l{i}"), "port": port, "protocol": "HTTPS", "hostname": hostname,
                        "tls": {"certificateRefs": [{"name": "tls"}]}})
                })
                .collect();
            put(
                "Gateway",
                namespace,
                created,
                json!({"gatewayClassName": "edge", "listeners": listeners}),
            )
        }
        let mut engine = engine(&[]);
        let secret = ObjectName::new("bob", "tls");
        fn told(
            engine: &mut Engine,
            change: Change,
            now: &SystemTime,
            secret: &ObjectName,
        ) -> (bool, bool) {
            let told = engine
                .apply(vec![change], *now)
                .refusal_changes
                .contains(secret);
            (told, engine.is_refused(secret))
        }
        assert_eq!(
            told(
                &mut engine,
                refers("alice", 1, 443, &["a.example.org"]),
                &now,
                &secret
            ),
            (false, false)
        );
        // Alice's Gateway has the port.
        let two = ["b.example.org", "c.example.org"];
        assert_eq!(
            told(&mut engine, refers("bob", 2, 443, &two), &now, &secret),
            (true, true)
        );
        assert_eq!(
            told(&mut engine, refers("bob", 2, 444, &two), &now, &secret),
            (true, false)
        );
        assert_eq!(
            told(&mut engine, refers("bob", 2, 443, &two), &now, &secret),
            (true, true)
        );
        let alice = ObjectKey::new(Kind::Gateway, ObjectName::new("alice", "edge"));
        assert_eq!(
            told(&mut engine, Change::delete(alice), &now, &secret),
            (true, false)
        );
        // Two listeners with one hostname conflict with each other; a third does not.
        let twice = ["b.example.org", "b.example.org", "c.example.org"];
        assert_eq!(
            told(
                &mut engine,
                refers("bob", 2, 443, &twice[..2]),
                &now,
                &secret
            ),
            (true, true)
        );
        assert!(!told(&mut engine, refers("bob", 2, 443, &twice), &now, &secret).1);
        let bob = ObjectKey::new(Kind::Gateway, ObjectName::new("bob", "edge"));
        assert_eq!(
            told(&mut engine, Change::delete(bob), &now, &secret),
            (true, false)
        );
        assert!(engine.wanted_index().refused.is_empty());
    }

    #[test]
    fn a_secret_is_lost_once_the_record_gives_each_of_its_hostnames_to_another_namespace() {
        let now = SystemTime::UNIX_EPOCH;
        let settings = Settings {
            fleet: Fleet::Shared,
            ..Settings::new("ours", vec![[127, 0, 0, 1].into()])
        };
        let mut engine = Engine::new(settings);
        engine.apply(
            vec![put(
                "GatewayClass",
                "",
                0,
                json!({"controllerName": "ours"}),
            )],
            now,
        );
        let shop = Hostname::parse("shop.example.org").expect("a hostname");
        fn has(namespace: &str, created: u32, listeners: Value) -> Change {
            put(
                "Gateway",
                namespace,
                created,
                json!({"gatewayClassName": "edge", "listeners": listeners}),
            )
        }
        fn refers(name: &str, hostname: &str) -> Value {
            json!({"name": name, "port": 443, "protocol": "HTTPS", "hostname": hostname,
                "tls": {"certificateRefs": [{"name": "tls"}]}})
        }
        fn told(
            engine: &mut Engine,
            change: Change,
            secret: &ObjectName,
            now: &SystemTime,
        ) -> (bool, Vec<Hostname>) {
            let told = engine
                .apply(vec![change], *now)
                .refusal_changes
                .contains(secret);
            (
                told,
                engine
                    .lost_hostnames(secret)
                    .into_iter()
                    .collect::<Vec<_>>(),
            )
        }
        let tls = ObjectName::new("bob", "tls");
        engine.apply(
            vec![has("alice", 5, json!([refers("l", "shop.example.org")]))],
            now,
        );
        // Alice's is younger, and recorded.
        let lost = has("bob", 1, json!([refers("l", "shop.example.org")]));
        assert_eq!(
            told(&mut engine, lost, &tls, &now),
            (true, vec![shop.clone()])
        );
        let both = has(
            "bob",
            1,
            json!([
                refers("l", "shop.example.org"),
                refers("m", "m.example.org")
            ]),
        );
        assert_eq!(
            told(&mut engine, both, &tls, &now).1,
            [],
            "one of them is served"
        );
        assert_eq!(
            engine.lost_hostnames(&ObjectName::new("alice", "tls")),
            BTreeSet::new()
        );
        // A Secret that an issuer fills.
        let issued = has("bob", 1, json!([listener(443, "shop.example.org")]));
        assert_eq!(
            told(&mut engine, issued, &tls, &now).1,
            [],
            "nobody refers to it any more"
        );
        let secret = ObjectName::new("bob", issued_secret_name("acme", &shop));
        assert_eq!(engine.lost_hostnames(&secret), BTreeSet::from([shop]));
        // Alice's Gateway is deleted, and bob's gets the hostname.
        let alice = ObjectKey::new(Kind::Gateway, ObjectName::new("alice", "edge"));
        assert_eq!(
            told(&mut engine, Change::delete(alice), &secret, &now),
            (true, vec![])
        );
        assert!(engine.want(&secret).is_some());
        // Two listeners of one namespace: the record is not involved.
        let twice = json!([refers("l", "m.example.org"), refers("m", "m.example.org")]);
        assert_eq!(
            told(&mut engine, has("bob", 1, twice), &tls, &now),
            (true, vec![])
        );
        assert!(engine.is_refused(&tls));
    }

    #[test]
    fn challenges_are_answered_where_who_asked_has_the_host() {
        let now = SystemTime::UNIX_EPOCH;
        let mut engine = engine(&[("*", &["*"])]);
        engine.apply(
            vec![
                gateway("alice", 5, 443, "a.example.org"),
                gateway("mallory", 6, 444, "a.example.org"),
            ],
            now,
        );
        fn told(
            engine: &mut Engine,
            namespace: &str,
            thumbprint: &str,
            now: &SystemTime,
        ) -> Vec<String> {
            let hostname = Hostname::parse("a.example.org").expect("a hostname");
            let answer = ChallengeAnswer {
                port: 80,
                thumbprint: thumbprint.into(),
            };
            let asked = Asked {
                hostname,
                namespace: namespace.into(),
            };
            let delta = engine.apply(
                vec![Change::Fact(Fact::Challenge(asked, Some(answer)))],
                *now,
            );
            let answers = delta
                .resources
                .into_values()
                .filter_map(|resource| match resource {
                    Some(Resource::Scope(Scope {
                        frontend,
                        requests: Requests::Challenges(account),
                        ..
                    })) => Some(format!("{frontend} {account}")),
                    _ => None,
                });
            answers.collect::<Vec<_>>()
        }
        assert_eq!(
            told(&mut engine, "mallory", "hers", &now),
            ["mallory/edge:80 hers"]
        );
        assert_eq!(
            told(&mut engine, "alice", "alices", &now),
            ["alice/edge:80 alices"]
        );
        assert_eq!(told(&mut engine, "zoe", "zoes", &now), Vec::<String>::new());
        let host = Hostname::parse("a.example.org").expect("a hostname");
        assert_eq!(
            engine
                .addresses_of(&host, Some(&http("zoes")))
                .addresses
                .len(),
            0
        );
        assert_eq!(
            engine
                .addresses_of(&host, Some(&http("alices")))
                .addresses
                .len(),
            1
        );
        // Envoys close connections of others than load balancers on the port of challenges.
        let proxy = json!({"mode": "Required", "from": ["192.0.2.0/24"]});
        let parameters = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "infra", "name": "p"},
            "spec": {"clients": [{"ports": [80], "proxyProtocol": proxy}]}});
        let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "edge"}, "spec": {"controllerName": "ours", "parametersRef": {"group": "gatewright.io",
                "kind": "GatewayParameters", "namespace": "infra", "name": "p"}}});
        engine.apply(
            [parameters, class]
                .map(|value| Change::put(Object::parse(value).expect("an object")))
                .into(),
            now,
        );
        let challenged = engine.addresses_of(&host, Some(&http("alices")));
        assert!(challenged.addresses.is_empty(), "{challenged:?}");
        assert!(challenged.behind_load_balancer, "{challenged:?}");
        let served = engine.addresses_of(&host, None);
        assert_eq!(served.addresses.len(), 1, "port 443 is open: {served:?}");
        assert!(!served.behind_load_balancer, "{served:?}");
    }

    fn http(thumbprint: &str) -> Validation {
        Validation::Http(thumbprint.into())
    }

    /// A Gateway with a listener of plain HTTP on port 80.
    fn with_port_80(namespace: &str, name: &str) -> Change {
        let value = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"namespace": namespace, "name": name, "creationTimestamp": "2020-01-01T00:00:00Z"},
            "spec": {"gatewayClassName": "edge",
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}});
        Change::put(Object::parse(value).expect("an object"))
    }

    #[test]
    fn a_gateway_that_has_the_port_of_challenges_answers_for_its_namespace_alone() {
        let now = SystemTime::UNIX_EPOCH;
        let host = Hostname::parse("a.example.org").expect("a hostname");
        for (namespace, answers) in [("alice", true), ("zoe", false)] {
            let mut engine = engine(&[("*", &["*"])]);
            let asked = Asked {
                hostname: host.clone(),
                namespace: "alice".into(),
            };
            let answer = ChallengeAnswer {
                port: 80,
                thumbprint: "alices".into(),
            };
            engine.apply(
                vec![
                    gateway("alice", 5, 443, "a.example.org"),
                    Change::Fact(Fact::Challenge(asked, Some(answer))),
                ],
                now,
            );
            let free = engine.addresses_of(&host, Some(&http("alices")));
            assert_eq!(free.obstacle, None, "nobody else has the port");
            let delta = engine.apply(vec![with_port_80(namespace, "first")], now);
            let first = FrontendId::tcp(ObjectName::new(namespace, "first"), 80);
            let scope = ResourceKey::Scope(first.clone(), host.clone());
            let is_answered = matches!(
                delta.resources.get(&scope),
                Some(Some(Resource::Scope(Scope { requests: Requests::Challenges(account), .. })))
                    if **account == *"alices"
            );
            assert_eq!(
                is_answered,
                answers,
                "{namespace}: {:?}",
                delta.resources.keys()
            );
            let held = engine.addresses_of(&host, Some(&http("alices")));
            let obstacle = (!answers).then_some(Obstacle::Held {
                gateway: None,
                port: 80,
            });
            assert_eq!(held.obstacle, obstacle, "{namespace}");
            assert_eq!(!held.addresses.is_empty(), answers, "{namespace}");
            // Its own Gateway has the port again.
            let first = ObjectKey::new(Kind::Gateway, ObjectName::new(namespace, "first"));
            let delta = engine.apply(vec![Change::delete(first)], now);
            let free = engine.addresses_of(&host, Some(&http("alices")));
            assert_eq!(free.obstacle, None, "{namespace}");
            let is_gone = delta.resources.get(&scope).is_some_and(Option::is_none);
            assert_eq!(is_gone, answers, "the answer is removed");
        }
    }
}
