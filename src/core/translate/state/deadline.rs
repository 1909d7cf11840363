//! Deadlines: times at which a certificate becomes valid or expires, without a change of any
//! object.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// Times of Gateways and ListenerSets, or of policies, one for each: when they must be evaluated
/// again, or the first certificate of each ends.
pub(crate) struct Deadlines<K> {
    by_time: BTreeSet<(SystemTime, K)>,
    of: BTreeMap<K, SystemTime>,
}

// Derived, it would ask for a default key.
impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self {
            by_time: BTreeSet::new(),
            of: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Deadlines<K> {
    /// The next deadline.
    pub(crate) fn next(&self) -> Option<SystemTime> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// Removes and returns one whose deadline has passed.
    pub(crate) fn pop_due(&mut self, now: SystemTime) -> Option<K> {
        let (_, key) = self
            .by_time
            .first()
            .filter(|(time, _)| *time <= now)
            .cloned()?;
        self.set(&key, None);
        Some(key)
    }

    /// Sets the deadline of one, in place of its former one.
    pub(crate) fn set(&mut self, key: &K, next: Option<SystemTime>) {
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
    use crate::{Change, Delta, Engine, Fact, Resource, Settings};
    use gatewright_objects::inputs::{
        CaBundle, CaCertificate, ConfigMap, ConfigMapData, Kind, Object, ObjectKey, Secret,
    };
    use gatewright_objects::model::{Certificate, Hostname, ObjectName, PrivateKey};

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn put(kind: &str, name: &str, spec: Value) -> Change {
        let object = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        Change::put(Object::parse(object).expect("an object"))
    }

    /// A Secret with a certificate for these seconds.
    fn held(name: &str, valid: std::ops::Range<u64>) -> Secret {
        let certificate = Certificate {
            leaf: b"leaf".as_slice().into(),
            issuers: Arc::from(""),
            key: PrivateKey::new(b"key"),
            names: vec![Hostname::any()],
            not_before: at(valid.start),
            not_after: at(valid.end),
            issuer: Arc::from("test"),
        };
        Secret::with_certificate(ObjectName::new("default", name), Arc::new(certificate))
    }

    fn changed(secret: Secret) -> Change {
        Change::put(Object::Secret(secret))
    }

    fn secret(valid: std::ops::Range<u64>) -> Change {
        changed(held("cert", valid))
    }

    fn engine() -> Engine {
        started(Vec::new(), at(5))
    }

    /// An engine that serves the host with a certificate for the seconds from 10 to 20, with these
    /// changes of it.
    fn started(changes: Vec<Change>, now: SystemTime) -> Engine {
        let mut engine = Engine::new(Settings::new(
            "test/controller",
            vec!["127.0.0.1".parse().expect("an address")],
        ));
        let tls = json!({"certificateRefs": [{"name": "cert"}]});
        let listener = json!({"name": "a", "port": 443, "protocol": "HTTPS", "hostname": "a.example.org", "tls": tls});
        let mut all = vec![
            put(
                "GatewayClass",
                "ours",
                json!({"controllerName": "test/controller"}),
            ),
            put(
                "Gateway",
                "edge",
                json!({"gatewayClassName": "ours", "listeners": [listener]}),
            ),
            secret(10..20),
        ];
        all.extend(changes);
        engine.apply(all, now);
        engine
    }

    fn message(engine: &Engine) -> String {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("default", "edge"));
        let status = engine.status(&key).expect("it is ours");
        status
            .conditions()
            .map(|c| c.message.as_str())
            .find(|text| !text.is_empty())
            .unwrap_or_default()
            .to_owned()
    }

    /// The end of the certificate that the host is served with.
    fn served(engine: &Engine) -> Option<SystemTime> {
        engine.hosts()[0]
            .certificate
            .as_ref()
            .map(|held| held.not_after)
    }

    #[test]
    fn a_certificate_begins_and_ceases_to_be_valid_by_itself() {
        let mut engine = engine();
        assert!(
            message(&engine).contains("not valid before"),
            "{}",
            message(&engine)
        );
        assert_eq!(engine.next_deadline(), Some(at(10)));
        engine.apply(Vec::new(), at(10));
        assert!(
            message(&engine).contains("expires at 1970-01-01T00:00:20Z"),
            "{}",
            message(&engine)
        );
        assert_eq!(engine.next_deadline(), Some(at(20)));
        let delta = engine.apply(Vec::new(), at(20));
        assert!(
            delta.resources.is_empty(),
            "it stays in service: {:?}",
            delta.resources.keys()
        );
        assert!(
            message(&engine).contains("expired at 1970-01-01T00:00:20Z"),
            "{}",
            message(&engine)
        );
        assert_eq!(engine.next_deadline(), None);
        assert_eq!(
            engine.certificate_ends(at(20)).ended,
            1,
            "the metric shows that it has ended"
        );
    }

    #[test]
    fn an_expired_certificate_is_served_after_a_start_as_before_it() {
        let mut before = engine();
        before.apply(Vec::new(), at(20));
        let after = started(Vec::new(), at(25));
        assert_eq!(before.digest(), after.digest());
        assert_eq!(message(&before), message(&after));
    }

    #[test]
    fn the_owner_is_warned_fourteen_and_three_days_before_the_end_and_at_no_other_time() {
        const DAY: u64 = 24 * 60 * 60;
        let mut engine = started(vec![secret(0..100 * DAY)], at(1));
        assert_eq!(message(&engine), "");
        for (day, told) in [
            (86, "within 14 days"),
            (97, "within 3 days"),
            (100, "expired at"),
        ] {
            assert_eq!(
                engine.next_deadline(),
                Some(at(day * DAY)),
                "the next change is on day {day}"
            );
            let delta = engine.apply(Vec::new(), at(day * DAY - 1));
            assert!(
                delta.statuses.is_empty(),
                "nothing is written before day {day}"
            );
            let delta = engine.apply(Vec::new(), at(day * DAY));
            assert_eq!(
                delta.statuses.len(),
                1,
                "one status is written on day {day}"
            );
            assert!(message(&engine).contains(told), "{}", message(&engine));
        }
        assert_eq!(engine.next_deadline(), None);
    }

    #[test]
    fn a_certificate_for_a_short_time_is_reported_where_cert_manager_is_late() {
        let mut short = held("cert", 0..6000);
        short.issued_by = Some(Arc::from(gatewright_objects::inputs::CERT_MANAGER));
        let mut engine = started(vec![changed(short)], at(1));
        assert_eq!(message(&engine), "", "cert-manager renews it in time");
        assert_eq!(engine.next_deadline(), Some(at(5000)));
        engine.apply(Vec::new(), at(5000));
        assert!(
            message(&engine).contains("within 3 days"),
            "{}",
            message(&engine)
        );
    }

    #[test]
    fn a_certificate_that_an_issuer_of_ours_renews_is_not_reported() {
        let mut engine = started(Vec::new(), at(12));
        assert!(
            message(&engine).contains("within 3 days"),
            "{}",
            message(&engine)
        );
        let name = ObjectName::new("default", "cert");
        fn awaited(by: Option<&str>, name: &ObjectName) -> Change {
            Change::Fact(Fact::ExpectedIssuer(name.clone(), by.map(Arc::from)))
        }
        engine.apply(vec![awaited(Some("acme"), &name)], at(12));
        assert_eq!(message(&engine), "");
        assert_eq!(
            engine.brought_certificates(None),
            [],
            "`certs` has it among those of issuers"
        );
        engine.apply(vec![awaited(None, &name)], at(12));
        let brought = engine.brought_certificates(None);
        assert_eq!(brought.len(), 1, "it is a user's");
        assert!(
            brought[0]
                .problem
                .as_ref()
                .is_some_and(|text| text.contains("within 3 days")),
            "{brought:?}"
        );
    }

    #[test]
    fn of_two_references_a_valid_one_is_served_before_an_expired_one_and_the_unused_one_is_told() {
        let mut engine = engine();
        fn refer(names: [&str; 2]) -> Change {
            let references: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            let tls = json!({"certificateRefs": references});
            let listener = json!({"name": "a", "port": 443, "protocol": "HTTPS", "hostname": "a.example.org", "tls": tls});
            put(
                "Gateway",
                "edge",
                json!({"gatewayClassName": "ours", "listeners": [listener]}),
            )
        }
        engine.apply(
            vec![
                changed(held("other", 0..100 * 24 * 3600)),
                refer(["cert", "other"]),
            ],
            at(12),
        );
        assert!(
            message(&engine)
                .contains("that of Secret default/cert is served, not that of default/other"),
            "{}",
            message(&engine)
        );
        engine.apply(Vec::new(), at(20));
        assert_eq!(
            served(&engine),
            Some(at(100 * 24 * 3600)),
            "the valid one takes over"
        );
        engine.apply(vec![refer(["other", "cert"])], at(20));
        assert_eq!(served(&engine), Some(at(100 * 24 * 3600)));
    }

    #[test]
    fn a_renewed_certificate_moves_the_deadline_and_a_removed_gateway_takes_it_along() {
        let mut engine = engine();
        engine.apply(vec![secret(1..30)], at(15));
        assert_eq!(engine.next_deadline(), Some(at(30)));
        assert_eq!(engine.certificate_ends(at(16)).next, Some(at(30)));
        engine.apply(
            vec![Change::delete(ObjectKey::new(
                Kind::Gateway,
                ObjectName::new("default", "edge"),
            ))],
            at(16),
        );
        assert_eq!(engine.next_deadline(), None);
        assert_eq!(engine.certificate_ends(at(16)).next, None);
    }

    #[test]
    fn the_last_good_certificate_is_served_until_it_ends() {
        let mut engine = engine();
        engine.apply(Vec::new(), at(10));
        let good = held("cert", 10..20);
        let bad = Secret::without(
            good.name.clone(),
            gatewright_objects::inputs::SecretError::Mismatch,
        );
        let bad = bad.following(Some(&good), at(12));
        let delta = engine.apply(vec![changed(bad.clone())], at(12));
        assert!(
            delta.resources.values().all(Option::is_some),
            "nothing is taken back: {:?}",
            delta.resources.keys()
        );
        let text = message(&engine);
        assert!(text.contains("does not match"), "{text}");
        assert!(
            text.contains("served until it ends at 1970-01-01T00:00:20Z"),
            "{text}"
        );
        // Replacing it by another bad one changes nothing.
        let worse = Secret::without(
            good.name.clone(),
            gatewright_objects::inputs::SecretError::Missing("tls.key"),
        );
        assert_eq!(
            worse.clone().following(Some(&bad), at(15)).last_good,
            bad.last_good
        );
        assert_eq!(worse.following(Some(&bad), at(20)).last_good, None);
        assert_eq!(engine.next_deadline(), Some(at(20)));
        let delta = engine.apply(Vec::new(), at(20));
        assert!(
            delta.resources.values().any(Option::is_none),
            "there is no certificate, as after a start"
        );
    }

    #[test]
    fn an_expired_certificate_takes_the_place_of_the_last_good_one_when_that_ends_too() {
        let mut engine = started(vec![secret(0..20)], at(10));
        let good = held("cert", 0..20);
        let expired = held("cert", 0..5);
        engine.apply(
            vec![changed(expired.following(Some(&good), at(10)))],
            at(10),
        );
        assert_eq!(served(&engine), Some(at(20)));
        engine.apply(Vec::new(), at(20));
        assert_eq!(
            served(&engine),
            Some(at(5)),
            "the one that a start would find"
        );
    }

    #[test]
    fn an_ended_edition_of_a_ca_is_left_out_by_itself() {
        fn certificate(pem: &str, end: u64) -> CaCertificate {
            CaCertificate {
                pem: pem.into(),
                not_before: at(1),
                not_after: at(end),
            }
        }
        let bundle = CaBundle::new(vec![certificate("OLD", 20), certificate("NEW", 30)]);
        let roots = ConfigMap {
            name: ObjectName::new("default", "ca"),
            bundle: Ok(Arc::new(bundle)),
            data: Ok(ConfigMapData::default()),
        };
        let reference = json!([{"group": "", "kind": "ConfigMap", "name": "ca"}]);
        let tls = json!({"certificateRefs": [{"name": "cert"}]});
        let listener = json!({"name": "a", "port": 443, "protocol": "HTTPS", "hostname": "a.example.org", "tls": tls});
        let clients =
            json!({"frontend": {"default": {"validation": {"caCertificateRefs": reference}}}});
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
        fn roots_in(delta: &Delta) -> Option<String> {
            delta
                .resources
                .values()
                .find_map(|resource| match resource {
                    Some(Resource::Roots(roots)) => Some(roots.certificates.to_string()),
                    _ => None,
                })
        }
        assert_eq!(
            roots_in(&engine.apply(changes, at(15))).as_deref(),
            Some("OLDNEW"),
            "both are valid"
        );
        assert_eq!(engine.next_deadline(), Some(at(20)), "the old one ends");
        assert_eq!(
            roots_in(&engine.apply(Vec::new(), at(20))).as_deref(),
            Some("NEW"),
            "it is left out"
        );
        assert_eq!(engine.next_deadline(), Some(at(30)), "the new one ends");
        engine.apply(Vec::new(), at(30));
        fn told(engine: &Engine, key: &ObjectKey) -> String {
            let status = engine.status(key).expect("it is ours");
            status
                .conditions()
                .map(|c| c.message.clone())
                .collect::<Vec<_>>()
                .join("; ")
        }
        let edge = ObjectKey::new(Kind::Gateway, ObjectName::new("default", "edge"));
        assert!(
            told(&engine, &edge).contains("all certificates in it have ended"),
            "{}",
            told(&engine, &edge)
        );
        assert_eq!(
            engine.next_deadline(),
            Some(at(90)),
            "nothing ends before the server certificate"
        );
    }
}
