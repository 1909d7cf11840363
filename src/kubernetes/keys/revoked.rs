//! Revocations: Envoys that are refused although a trusted authority signed their certificates,
//! either by one certificate or as a pod with all its certificates. The lists are in the Secret of
//! the authority, so that a replica which knows the trusted authorities knows the revocations too.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use gatewright_control::envoy_identity::PodIdentity;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xds::{Fingerprint, RevokedClients};

/// The maximum number of entries of each list. An operator who has to refuse more replaces the
/// authority.
const MOST: usize = 1024;
/// A time longer than the lifetime of a pod's certificate.
const LONGEST: Duration = Duration::from_secs(48 * 3600);

/// A revoked certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// The name of the client, for people.
    pub name: String,
    /// The time of the revocation.
    pub at: Timestamp,
    /// The time at which all authorities that may have signed it have expired.
    pub until: Timestamp,
}

/// A revoked pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PodRevocation {
    /// The time of the revocation.
    at: Timestamp,
    /// The time at which all its certificates have expired; `None` while the pod exists, since it
    /// may request another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

/// All revocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations {
    certificates: BTreeMap<Fingerprint, Revocation>,
    /// The revoked pods, by the URI in their certificates.
    pods: BTreeMap<String, PodRevocation>,
}

impl Revocations {
    /// Parses the revoked certificates that [`Revocations::written`] serialized.
    ///
    /// # Errors
    /// When the text is invalid.
    pub fn read(text: &str) -> Result<Self, String> {
        let entries: BTreeMap<String, Revocation> =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        let certificates = entries
            .into_iter()
            .map(|(name, entry)| Ok((Fingerprint::try_from(name)?, entry)))
            .collect::<Result<_, String>>()?;
        Ok(Self {
            certificates,
            ..Self::default()
        })
    }

    /// Adds the revoked pods that [`Revocations::pods_written`] serialized.
    ///
    /// # Errors
    /// When the text is invalid.
    pub fn and_pods(self, text: &str) -> Result<Self, String> {
        let pods: BTreeMap<String, PodRevocation> =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        match pods.keys().find(|uri| PodIdentity::parse(uri).is_none()) {
            Some(other) => Err(format!("{other:?} is no pod of a fleet")),
            None => Ok(Self { pods, ..self }),
        }
    }

    /// Returns the revoked certificates as JSON, by fingerprint; `None` where there are none.
    pub fn written(&self) -> Option<Vec<u8>> {
        let entries: BTreeMap<String, &Revocation> = self
            .certificates
            .iter()
            .map(|(one, entry)| (one.to_string(), entry))
            .collect();
        (!entries.is_empty()).then(|| serde_json::to_vec(&entries).expect("strings alone"))
    }

    /// Returns the revoked pods as JSON, by URI; `None` where there are none.
    pub fn pods_written(&self) -> Option<Vec<u8>> {
        (!self.pods.is_empty()).then(|| serde_json::to_vec(&self.pods).expect("strings alone"))
    }

    /// Adds a certificate. An existing entry is kept.
    ///
    /// # Errors
    /// When the list is full.
    pub fn add(&mut self, credential: Fingerprint, entry: Revocation) -> Result<(), String> {
        if self.certificates.len() >= MOST && !self.certificates.contains_key(&credential) {
            return Err(format!(
                "{MOST} certificates are revoked already: replace the authority (gatewright.io/replace)"
            ));
        }
        self.certificates.entry(credential).or_insert(entry);
        Ok(())
    }

    /// Adds a pod. An existing entry is kept.
    ///
    /// # Errors
    /// When the list is full.
    pub fn add_pod(&mut self, identity: &PodIdentity, at: Timestamp) -> Result<(), String> {
        let uri = identity.to_string();
        if self.pods.len() >= MOST && !self.pods.contains_key(&uri) {
            return Err(format!(
                "{MOST} pods are revoked already: delete them, and two days later there is room for others"
            ));
        }
        self.pods
            .entry(uri)
            .or_insert(PodRevocation { at, until: None });
        Ok(())
    }

    /// Returns the revoked pods that may still exist.
    pub fn pods(&self) -> impl Iterator<Item = PodIdentity> {
        let there = self.pods.iter().filter(|(_, entry)| entry.until.is_none());
        there.filter_map(|(uri, _)| PodIdentity::parse(uri))
    }

    /// Notes that a pod was deleted, so that it cannot request a certificate any more.
    pub fn pod_is_gone(&mut self, identity: &PodIdentity, now: Timestamp) {
        if let Some(entry) = self.pods.get_mut(&identity.to_string()) {
            entry
                .until
                .get_or_insert(now.saturating_add(LONGEST).unwrap_or(Timestamp::MAX));
        }
    }

    /// Returns whether a pod is revoked.
    pub fn has_pod(&self, identity: &PodIdentity) -> bool {
        self.pods.contains_key(&identity.to_string())
    }

    /// Adds all entries of another list.
    pub fn extend(&mut self, others: &Revocations) {
        for (credential, entry) in &others.certificates {
            self.certificates
                .entry(credential.clone())
                .or_insert_with(|| entry.clone());
        }
        for (uri, entry) in &others.pods {
            let held = self
                .pods
                .entry(uri.clone())
                .or_insert_with(|| entry.clone());
            // A pod that one list knows to be deleted is deleted.
            held.until = held.until.or(entry.until);
        }
    }

    /// Removes the entries whose certificates have expired.
    pub fn prune(&mut self, now: SystemTime) {
        self.certificates
            .retain(|_, entry| SystemTime::from(entry.until) > now);
        self.pods.retain(|_, entry| {
            entry
                .until
                .is_none_or(|until| SystemTime::from(until) > now)
        });
    }

    /// Returns whether the first certificate of a PEM text is revoked.
    pub fn has(&self, pem: &str) -> bool {
        Fingerprint::of_pem(pem)
            .is_some_and(|credential| self.certificates.contains_key(&credential))
    }

    /// Returns the clients whose TLS handshake must fail.
    pub fn clients(&self) -> RevokedClients {
        RevokedClients {
            certificates: self.certificates.keys().cloned().collect(),
            names: self.pods.keys().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gatewright_control::envoy_identity::EnvoyPod;
    use gatewright_core::model::EnvoyFleet;

    use super::*;

    fn entry(until: i64) -> Revocation {
        fn at(seconds: i64) -> Timestamp {
            Timestamp::from_second(seconds).expect("a time")
        }
        Revocation {
            name: "pod".to_owned(),
            at: at(1),
            until: at(until),
        }
    }

    fn of(number: usize) -> Fingerprint {
        Fingerprint::of(&number.to_be_bytes())
    }

    #[test]
    fn a_list_is_read_as_it_was_written_and_ends_with_who_signed() {
        let mut list = Revocations::default();
        assert_eq!(list.written(), None);
        list.add(of(1), entry(100)).expect("room");
        list.add(of(2), entry(200)).expect("room");
        let text = String::from_utf8(list.written().expect("two")).expect("text");
        assert_eq!(Revocations::read(&text), Ok(list.clone()));
        assert!(Revocations::read(r#"{"pod": {"name": "", "at": "", "until": ""}}"#).is_err());
        list.prune(SystemTime::UNIX_EPOCH + Duration::from_secs(150));
        assert_eq!(list.clients().certificates, BTreeSet::from([of(2)]));
    }

    #[test]
    fn a_list_has_an_end() {
        let mut list = Revocations::default();
        (0..MOST).for_each(|number| list.add(of(number), entry(100)).expect("room"));
        assert!(list.add(of(MOST), entry(100)).is_err());
        list.add(of(0), entry(100)).expect("it is there");
    }

    fn pod(number: usize) -> PodIdentity {
        let pod = EnvoyPod {
            namespace: "n".to_owned(),
            name: format!("envoy-{number}"),
            uid: number.to_string(),
            node: "node-a".to_owned(),
        };
        PodIdentity {
            fleet: EnvoyFleet::Shared,
            pod,
        }
    }

    #[test]
    fn a_pod_is_refused_until_it_is_said_to_be_gone() {
        fn at(seconds: i64) -> Timestamp {
            Timestamp::from_second(seconds).expect("a time")
        }
        let mut list = Revocations::default();
        assert_eq!(list.pods_written(), None);
        list.add_pod(&pod(1), at(0)).expect("room");
        list.add_pod(&pod(2), at(7)).expect("room");
        list.add_pod(&pod(1), at(7)).expect("it is there");
        let text = String::from_utf8(list.pods_written().expect("two")).expect("text");
        assert_eq!(Revocations::default().and_pods(&text), Ok(list.clone()));
        assert!(
            Revocations::default()
                .and_pods(r#"{"envoy-1": "1970-01-01T00:00:00Z"}"#)
                .is_err()
        );
        let mut other = Revocations::default();
        other.extend(&list);
        let late = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 32);
        other.prune(late);
        assert_eq!(other, list, "time alone lets nobody in again");
        // The knowledge that a pod was deleted is merged from either list.
        list.pod_is_gone(&pod(1), at(9));
        assert_eq!(list.pods().collect::<Vec<_>>(), [pod(2)]);
        other.extend(&list);
        assert_eq!(other, list);
        list.prune(
            SystemTime::UNIX_EPOCH + Duration::from_secs(9) + LONGEST - Duration::from_secs(1),
        );
        assert!(
            list.has_pod(&pod(1)),
            "a certificate of it may be good still"
        );
        list.prune(late);
        assert!(!list.has_pod(&pod(1)), "the forgotten pod is let in");
        assert!(list.has_pod(&pod(2)), "the other one is not");
        assert_eq!(list.clients().names, BTreeSet::from([pod(2).to_string()]));
        (2..MOST + 2).for_each(|number| list.add_pod(&pod(number), at(0)).expect("room"));
        assert!(list.add_pod(&pod(0), at(0)).is_err());
    }
}
