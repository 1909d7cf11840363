//! Which certificates of Envoys are refused from now on, although somebody whom we trust signed them. The list stands in the
//! Secret of the authority: whoever knows whom to trust knows whom not to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xds::Fingerprint;

/// More are refused by a new authority.
const MOST: usize = 1024;

/// What is known of one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Whose it was, for people.
    pub name: String,
    /// When it was revoked.
    pub at: Timestamp,
    /// When nobody is trusted any more who may have signed it.
    pub until: Timestamp,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations(BTreeMap<Fingerprint, Revocation>);

impl Revocations {
    /// Reads what [`Revocations::written`] wrote.
    ///
    /// # Errors
    /// When it is something else.
    pub fn read(text: &str) -> Result<Self, String> {
        let entries: BTreeMap<String, Revocation> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let entry = |(name, entry)| Ok((Fingerprint::try_from(name)?, entry));
        entries.into_iter().map(entry).collect::<Result<_, String>>().map(Self)
    }

    /// In JSON, by fingerprint; nothing where there is none.
    pub fn written(&self) -> Option<Vec<u8>> {
        let entries: BTreeMap<String, &Revocation> =
            self.0.iter().map(|(one, entry)| (one.to_string(), entry)).collect();
        (!entries.is_empty()).then(|| serde_json::to_vec(&entries).expect("strings alone"))
    }

    /// Adds one. Who is on it already stays as it is.
    ///
    /// # Errors
    /// When there are too many.
    pub fn add(&mut self, credential: Fingerprint, entry: Revocation) -> Result<(), String> {
        if self.0.len() >= MOST && !self.0.contains_key(&credential) {
            return Err(format!(
                "{MOST} certificates are revoked already: replace the authority (gatewright.io/replace)"
            ));
        }
        self.0.entry(credential).or_insert(entry);
        Ok(())
    }

    /// Takes in all of another list.
    pub fn extend(&mut self, others: &Revocations) {
        for (credential, entry) in &others.0 {
            self.0.entry(credential.clone()).or_insert_with(|| entry.clone());
        }
    }

    /// Forgets those that nobody would let in any more.
    pub fn prune(&mut self, now: SystemTime) {
        self.0.retain(|_, entry| SystemTime::from(entry.until) > now);
    }

    /// Whether the first certificate of a PEM text is among them.
    pub fn has(&self, pem: &str) -> bool {
        Fingerprint::of_pem(pem).is_some_and(|credential| self.0.contains_key(&credential))
    }

    /// Whose handshake fails.
    pub fn credentials(&self) -> BTreeSet<Fingerprint> {
        self.0.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(until: i64) -> Revocation {
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        Revocation { name: "pod".to_owned(), at: at(1), until: at(until) }
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
        list.prune(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(150));
        assert_eq!(list.credentials(), BTreeSet::from([of(2)]));
    }

    #[test]
    fn a_list_has_an_end() {
        let mut list = Revocations::default();
        (0..MOST).for_each(|number| list.add(of(number), entry(100)).expect("room"));
        assert!(list.add(of(MOST), entry(100)).is_err());
        list.add(of(0), entry(100)).expect("it is there");
    }
}
