//! Deadlines: times at which a certificate becomes valid or expires, without a change of any object.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// The times at which Gateways and ListenerSets, or policies, must be evaluated again, one time for each.
pub(super) struct Deadlines<K> {
    by_time: BTreeSet<(SystemTime, K)>,
    of: BTreeMap<K, SystemTime>,
}

// Derived, it would ask for a default key.
impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), of: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Deadlines<K> {
    /// The next deadline.
    pub(super) fn next(&self) -> Option<SystemTime> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// Removes and returns one whose deadline has passed.
    pub(super) fn pop_due(&mut self, now: SystemTime) -> Option<K> {
        let (_, key) = self.by_time.first().filter(|(time, _)| *time <= now).cloned()?;
        self.set(&key, None);
        Some(key)
    }

    /// Sets the deadline of one, in place of its former one.
    pub(super) fn set(&mut self, key: &K, next: Option<SystemTime>) {
        let before = match next {
            Some(next) => self.of.insert(key.clone(), next),
            None => self.of.remove(key),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(next) = next {
            self.by_time.insert((next, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{CaBundle, CaCertificate, ConfigMap, Kind, Object, ObjectChange, ObjectKey, Secret};
    use crate::model::{Certificate, Hostname, ObjectName, PrivateKey};
    use crate::translate::{Change, Delta, Engine, Resource, Settings};

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn put(kind: &str, name: &str, spec: Value) -> Change {
        let object = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        Change::put(Object::parse(object).expect("an object"))
    }

    fn secret(valid: std::ops::Range<u64>) -> Change {
        let certificate = Certificate {
            leaf: b"leaf".as_slice().into(),
            issuers: Arc::from(""),
            key: PrivateKey::new(b"key"),
            names: vec![Hostname::any()],
            not_before: at(valid.start),
            not_after: at(valid.end),
            issuer: Arc::from("test"),
        };
        let name = ObjectName::new("default", "cert");
        Change::put(Object::Secret(Secret::with_certificate(name, Arc::new(certificate))))
    }

    fn engine() -> Engine {
        let mut engine = Engine::new(Settings::new("test/controller", vec!["127.0.0.1".parse().expect("an address")]));
        let tls = json!({"certificateRefs": [{"name": "cert"}]});
        let listener = json!({"name": "a", "port": 443, "protocol": "HTTPS", "hostname": "a.example.org", "tls": tls});
        let changes = vec![
            put("GatewayClass", "ours", json!({"controllerName": "test/controller"})),
            put("Gateway", "edge", json!({"gatewayClassName": "ours", "listeners": [listener]})),
            secret(10..20),
        ];
        engine.apply(changes, at(5));
        engine
    }

    fn message(engine: &Engine) -> String {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("default", "edge"));
        let status = engine.status(&key).expect("it is ours");
        status.conditions().map(|c| c.message.as_str()).find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    }

    #[test]
    fn a_certificate_begins_and_ceases_to_be_valid_by_itself() {
        let mut engine = engine();
        assert!(message(&engine).contains("not valid before"));
        assert_eq!(engine.next_deadline(), Some(at(10)));
        engine.apply(Vec::new(), at(10));
        assert_eq!((message(&engine).as_str(), engine.next_deadline()), ("", Some(at(20))));
        let delta = engine.apply(Vec::new(), at(20));
        assert!(delta.resources.values().any(Option::is_none), "the secret is taken back");
        assert!(!message(&engine).is_empty());
        assert_eq!(engine.next_deadline(), None);
    }

    #[test]
    fn a_renewed_certificate_moves_the_deadline_and_a_removed_gateway_takes_it_along() {
        let mut engine = engine();
        engine.apply(vec![secret(1..30)], at(15));
        assert_eq!(engine.next_deadline(), Some(at(30)));
        engine.apply(vec![Change::delete(ObjectKey::new(Kind::Gateway, ObjectName::new("default", "edge")))], at(16));
        assert_eq!(engine.next_deadline(), None);
    }

    #[test]
    fn the_last_good_certificate_is_served_until_it_ends() {
        let mut engine = engine();
        engine.apply(Vec::new(), at(10));
        let Change::Object(ObjectChange::Put(Object::Secret(good))) = secret(10..20) else {
            unreachable!("it is a Secret")
        };
        let bad = Secret::without(good.name.clone(), crate::inputs::SecretError::Mismatch);
        let bad = bad.following(Some(&good), at(12));
        let delta = engine.apply(vec![Change::put(Object::Secret(bad.clone()))], at(12));
        assert!(delta.resources.values().all(Option::is_some), "nothing is taken back: {:?}", delta.resources.keys());
        let text = message(&engine);
        assert!(
            text.contains("does not match") && text.contains("served until it ends at 1970-01-01T00:00:20Z"),
            "{text}"
        );
        // Replacing it by another bad one changes nothing.
        let worse = Secret::without(good.name.clone(), crate::inputs::SecretError::Missing("tls.key"));
        assert_eq!(worse.clone().following(Some(&bad), at(15)).last_good, bad.last_good);
        assert_eq!(worse.following(Some(&bad), at(20)).last_good, None);
        assert_eq!(engine.next_deadline(), Some(at(20)));
        let delta = engine.apply(Vec::new(), at(20));
        assert!(delta.resources.values().any(Option::is_none), "the secret is taken back");
    }
    #[test]
    fn an_ended_edition_of_a_ca_is_left_out_by_itself() {
        let certificate =
            |pem: &str, end: u64| CaCertificate { pem: pem.into(), not_before: at(1), not_after: at(end) };
        let bundle = CaBundle::new(vec![certificate("OLD", 20), certificate("NEW", 30)]);
        let roots = ConfigMap { name: ObjectName::new("default", "ca"), bundle: Ok(Arc::new(bundle)) };
        let reference = json!([{"group": "", "kind": "ConfigMap", "name": "ca"}]);
        let tls = json!({"certificateRefs": [{"name": "cert"}]});
        let listener = json!({"name": "a", "port": 443, "protocol": "HTTPS", "hostname": "a.example.org", "tls": tls});
        let clients = json!({"frontend": {"default": {"validation": {"caCertificateRefs": reference}}}});
        let gateway = json!({"gatewayClassName": "ours", "listeners": [listener], "tls": clients});
        let validation = json!({"hostname": "b.example.org", "caCertificateRefs": reference});
        let targets = json!([{"group": "", "kind": "Service", "name": "web"}]);
        let policy = json!({"targetRefs": targets, "validation": validation});
        let mut engine = engine();
        let changes = vec![
            secret(1..90),
            put("Gateway", "edge", gateway),
            put("BackendTLSPolicy", "web", policy),
            Change::put(Object::ConfigMap(roots)),
        ];
        let roots = |delta: &Delta| {
            let of = |resource: &Option<Resource>| match resource {
                Some(Resource::Roots(roots)) => Some(roots.certificates.to_string()),
                _ => None,
            };
            delta.resources.values().find_map(of)
        };
        assert_eq!(roots(&engine.apply(changes, at(15))).as_deref(), Some("OLDNEW"), "both are valid");
        assert_eq!(engine.next_deadline(), Some(at(20)), "the old one ends");
        assert_eq!(roots(&engine.apply(Vec::new(), at(20))).as_deref(), Some("NEW"), "it is left out");
        assert_eq!(engine.next_deadline(), Some(at(30)), "the new one ends");
        engine.apply(Vec::new(), at(30));
        let told = |engine: &Engine, key| {
            let status = engine.status(key).expect("it is ours");
            status.conditions().map(|c| c.message.clone()).collect::<Vec<_>>().join("; ")
        };
        let edge = ObjectKey::new(Kind::Gateway, ObjectName::new("default", "edge"));
        assert!(told(&engine, &edge).contains("all certificates in it have ended"), "{}", told(&engine, &edge));
        assert_eq!(engine.next_deadline(), Some(at(90)), "nothing ends before the server certificate");
    }
}
