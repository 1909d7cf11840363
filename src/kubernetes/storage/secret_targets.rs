//! Index of the Secrets that want certificates. Pure.

use std::collections::BTreeMap;

use acme::keeper::Stored;
use acme::storage::{Key, Kind};

use gatewright_control::certificates::SecretTarget;
use gatewright_core::model::ObjectName;
use gatewright_core::multimap::MultiMap;

/// All Secrets that want a certificate.
#[derive(Default)]
pub(super) struct SecretTargetIndex {
    all: BTreeMap<ObjectName, SecretTarget>,
    by_key: MultiMap<Key, ObjectName>,
    /// The Secrets by namespace and the first of the certificate's names.
    by_name: MultiMap<(String, String), ObjectName>,
}

impl SecretTargetIndex {
    /// Sets the certificate that a Secret wants; `None` for none.
    pub(super) fn set(&mut self, secret: &ObjectName, target: Option<SecretTarget>) {
        if let Some(before) = self.all.remove(secret) {
            self.by_key.remove(&key(&before), secret);
            self.by_name.remove(&place(secret, &before), secret);
        }
        if let Some(target) = target {
            self.by_key.insert(key(&target), secret.clone());
            self.by_name.insert(place(secret, &target), secret.clone());
            self.all.insert(secret.clone(), target);
        }
    }

    /// Returns the first Secret that wants the certificate of this entry.
    pub(super) fn of(&self, key: &Key) -> Option<(ObjectName, SecretTarget)> {
        let secret = self.by_key.of(key).next()?;
        Some((secret.clone(), self.all.get(secret)?.clone()))
    }

    /// Returns the certificate that a Secret wants.
    pub(super) fn get(&self, secret: &ObjectName) -> Option<&SecretTarget> {
        self.all.get(secret)
    }

    /// Returns the Secrets whose wanted names the certificate covers.
    pub(super) fn served_by(&self, stored: &Stored) -> Vec<ObjectName> {
        let names = &stored.certificate.names;
        let places = names
            .iter()
            .map(|name| (stored.tenant.clone(), name.as_str().to_owned()));
        let secrets = places.flat_map(|place| self.by_name.of(&place).cloned().collect::<Vec<_>>());
        secrets
            .filter(|secret| {
                self.all
                    .get(secret)
                    .is_some_and(|who| names.cover(&who.names))
            })
            .collect()
    }
}

fn key(target: &SecretTarget) -> Key {
    Key::new(Kind::Certificate, target.id.as_str())
}

fn place(secret: &ObjectName, target: &SecretTarget) -> (String, String) {
    (
        secret.namespace.to_string(),
        target.names.first().as_str().to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use acme::self_signed::self_signed;
    use acme::{CertificateId, DnsName, Names};
    use jiff::Timestamp;

    #[test]
    fn a_certificate_goes_to_all_of_its_tenant_that_it_is_good_for() {
        fn names(host: &str) -> Names {
            Names::parse([host]).expect("a name")
        }
        fn target(host: &str) -> SecretTarget {
            let id = CertificateId::of("t", &names(host));
            let issuer = "ca".to_owned();
            SecretTarget {
                id,
                names: names(host),
                issuer,
                twin: None,
                present: None,
            }
        }
        let mut all = SecretTargetIndex::default();
        let one = ObjectName::new("t", "one");
        let twin = ObjectName::new("t", "twin");
        all.set(&one, Some(target("a.example.org")));
        all.set(&twin, Some(target("a.example.org")));
        all.set(
            &ObjectName::new("t", "other"),
            Some(target("b.example.org")),
        );
        all.set(
            &ObjectName::new("u", "stranger"),
            Some(target("a.example.org")),
        );
        let name = DnsName::parse("a.example.org").expect("a name");
        let certificate = self_signed(&name, Timestamp::now()).expect("made");
        let id = CertificateId::of("t", &Names::one(name));
        let stored = Stored {
            id: id.clone(),
            tenant: "t".to_owned(),
            certificate,
        };
        assert_eq!(all.served_by(&stored), [one.clone(), twin.clone()]);
        let key = Key::new(Kind::Certificate, id.as_str());
        assert_eq!(all.of(&key).map(|(secret, _)| secret), Some(one.clone()));
        all.set(&one, None);
        assert_eq!(
            all.of(&key).map(|(secret, _)| secret),
            Some(twin.clone()),
            "the twin is served"
        );
        assert_eq!(
            all.served_by(&stored),
            vec![twin],
            "the certificate goes there"
        );
    }
}
