//! Certificates on one port that are valid for each other's names: clients then reuse connections
//! between their hosts (RFC 9113, 9.1.1; GEP-3567, `OverlappingCertificates`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gatewright_objects::model::{Certificate, Hostname};
use gatewright_objects::multimap::MultiMap;

/// The names in the certificates of a port's listeners, by the listener's hostname.
#[derive(Default)]
pub(crate) struct Sans {
    certificates: BTreeMap<Hostname, Arc<Certificate>>,
    listeners: MultiMap<Hostname, Hostname>,
    /// The number of exact names directly below each wildcard.
    under: HashMap<Hostname, usize>,
}

impl Sans {
    /// Sets the certificate of a listener. Returns the listeners that may begin or cease to overlap
    /// with another.
    pub(crate) fn set(
        &mut self,
        listener: &Hostname,
        certificate: Option<&Arc<Certificate>>,
    ) -> BTreeSet<Hostname> {
        let mut touched = BTreeSet::new();
        let old = match certificate {
            Some(new) => self.certificates.insert(listener.clone(), new.clone()),
            None => self.certificates.remove(listener),
        };
        fn names(certificate: Option<&Arc<Certificate>>) -> BTreeSet<Hostname> {
            certificate
                .into_iter()
                .flat_map(|certificate| certificate.names.iter().cloned())
                .collect()
        }
        let before = names(old.as_ref());
        let after = names(certificate);
        for name in before.difference(&after) {
            self.listeners.remove(name, listener);
            self.count(name, false);
            self.touch(name, &mut touched);
        }
        for name in after.difference(&before) {
            self.listeners.insert(name.clone(), listener.clone());
            self.count(name, true);
            self.touch(name, &mut touched);
        }
        touched
    }

    /// True if another listener's certificate is valid for a name of this listener's, or the
    /// reverse.
    pub(crate) fn overlap(&self, listener: &Hostname) -> bool {
        let names = self
            .certificates
            .get(listener)
            .map(|certificate| certificate.names.as_slice())
            .unwrap_or_default();
        fn others(
            name: &Hostname,
            listener: &&Hostname,
            listeners: &MultiMap<Hostname, Hostname>,
        ) -> bool {
            listeners.of(name).any(|other| other != *listener)
        }
        names.iter().any(|name| {
            others(name, &listener, &self.listeners)
                || match wildcard_over(name) {
                    Some(wildcard) => others(&wildcard, &listener, &self.listeners),
                    None => self
                        .under(name)
                        .any(|(_, mut by)| by.any(|other| other != listener)),
                }
        })
    }

    fn count(&mut self, name: &Hostname, there: bool) {
        let Some(wildcard) = wildcard_over(name) else {
            return;
        };
        let count = self.under.entry(wildcard.clone()).or_insert(0);
        if there {
            *count += 1
        } else {
            *count -= 1
        }
        if *count == 0 {
            self.under.remove(&wildcard);
        }
    }

    /// The listeners that an added or removed name may affect: if there are more of a kind, the
    /// present ones overlap already.
    fn touch(&self, name: &Hostname, touched: &mut BTreeSet<Hostname>) {
        touched.extend(few(name, &self.listeners));
        match wildcard_over(name) {
            Some(wildcard) if self.under.get(&wildcard).is_none_or(|count| *count <= 2) => {
                touched.extend(few(&wildcard, &self.listeners))
            }
            Some(_) => {}
            None if self.listeners.count(name) <= 2 => {
                touched.extend(self.under(name).flat_map(|(_, by)| by.cloned()))
            }
            None => {}
        }
    }

    /// The exact names directly below a wildcard.
    fn under<'a>(
        &'a self,
        wildcard: &'a Hostname,
    ) -> impl Iterator<Item = (&'a Hostname, impl Iterator<Item = &'a Hostname>)> {
        let there = self.under.contains_key(wildcard);
        let all = there
            .then(|| self.listeners.from(Hostname::any()))
            .into_iter()
            .flatten();
        all.filter(move |(name, _)| wildcard_over(name).as_ref() == Some(wildcard))
    }
}

fn few(name: &Hostname, listeners: &MultiMap<Hostname, Hostname>) -> Vec<Hostname> {
    listeners.of(name).take(3).cloned().collect::<Vec<_>>()
}

/// The wildcard that covers a name in a certificate: it covers exactly one label (RFC 9525, 6.3).
fn wildcard_over(name: &Hostname) -> Option<Hostname> {
    name.parent().filter(|_| name.is_exact())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;
    use gatewright_objects::model::PrivateKey;

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).expect("a hostname")
    }

    fn certificate(names: &[String]) -> Arc<Certificate> {
        Arc::new(Certificate {
            leaf: b"leaf".as_slice().into(),
            issuers: Arc::from(""),
            key: PrivateKey::new(b"key"),
            names: names.iter().map(|name| host(name)).collect(),
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH,
            issuer: "itself".into(),
        })
    }

    /// The result of `overlap`, pair by pair.
    fn overlapping(all: &BTreeMap<Hostname, Vec<String>>) -> BTreeSet<Hostname> {
        fn meet(a: &Hostname, b: &Hostname) -> bool {
            a == b || wildcard_over(a).as_ref() == Some(b) || wildcard_over(b).as_ref() == Some(a)
        }
        fn clash(a: &[String], b: &[String]) -> bool {
            a.iter().any(|a| b.iter().any(|b| meet(&host(a), &host(b))))
        }
        fn others(
            name: &Hostname,
            names: &[String],
            all: &BTreeMap<Hostname, Vec<String>>,
        ) -> bool {
            all.iter()
                .any(|(n, other)| n != name && clash(names, other))
        }
        all.iter()
            .filter(|(name, names)| others(name, names, all))
            .map(|(name, _)| name.clone())
            .collect()
    }

    proptest! {
        #[test]
        fn every_listener_whose_overlap_changes_is_returned(
            steps in proptest::collection::vec(
                ("[a-d]\\.l", proptest::option::of(proptest::collection::vec("([ab]|\\*)\\.([xy]\\.)?org", 1..3))), 1..40)
        ) {
            let mut sans = Sans::default();
            let mut model: BTreeMap<Hostname, Vec<String>> = BTreeMap::new();
            for (listener, names) in steps {
                let listener = host(&listener);
                let before = overlapping(&model);
                match &names {
                    Some(names) => model.insert(listener.clone(), names.clone()),
                    None => model.remove(&listener),
                };
                let touched = sans.set(&listener, names.map(|names| certificate(&names)).as_ref());
                let after = overlapping(&model);
                for name in model.keys() {
                    prop_assert_eq!(sans.overlap(name), after.contains(name), "{}", name);
                    let flipped = before.contains(name) != after.contains(name);
                    prop_assert!(!flipped || *name == listener || touched.contains(name), "{}", name);
                }
            }
        }
    }
}
