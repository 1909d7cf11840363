//! Certificates of the internal CA: what listeners wish for becomes Secrets.
//!
//! There is one CA for each registered domain, constrained to it by name (RFC 5280, 4.2.1.10), in a directory of its
//! own in the private directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use acme::internal_ca::{Constraints, InternalCa, InternalCaConfig};
use acme::{CertificateId, DnsName, IssuedCertificate, Names};
use jiff::Timestamp;
use serde_json::json;

use crate::inputs::{Kind, Object, ObjectKey};
use crate::model::{Certificate, ObjectName};
use crate::translate::{Change, INTERNAL_CA, Wish};

/// The internal CAs, and what they have given.
pub struct Authority {
    directory: PathBuf,
    cas: BTreeMap<String, InternalCa>,
    given: BTreeSet<ObjectKey>,
}

/// Wishes and what there is for them now.
type Wishes = BTreeMap<Wish, Option<Arc<Certificate>>>;

impl Authority {
    /// CAs kept in a directory, which nobody else may read.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(directory: PathBuf) -> std::io::Result<Self> {
        fs::create_dir_all(directory.join("certificates"))?;
        Ok(Self { directory, cas: BTreeMap::new(), given: BTreeSet::new() })
    }

    /// Fulfils wishes: Secrets to put into and take out of the engine, and what could not be given.
    pub fn fulfil(&mut self, wishes: &Wishes, now: Timestamp) -> (Vec<Change>, Vec<String>) {
        let (mut changes, mut problems) = (Vec::new(), Vec::new());
        let mut wanted = BTreeSet::new();
        for (wish, held) in wishes {
            let key = ObjectKey::new(Kind::Secret, wish.secret.clone());
            wanted.insert(key.clone());
            if wish.issuer != INTERNAL_CA {
                problems.push(format!("{key}: issuer {:?} is unknown: expected {INTERNAL_CA:?}", wish.issuer));
                continue;
            }
            if held.as_ref().is_some_and(|held| !due(times(held), now)) {
                continue;
            }
            match self.give(wish, now).and_then(|given| secret(wish, &given)) {
                Ok(object) => {
                    self.given.insert(key);
                    changes.push(Change::Put(object));
                }
                Err(text) => problems.push(format!("{key}: no certificate for {}: {text}", wish.hostname)),
            }
        }
        let gone: Vec<ObjectKey> = self.given.difference(&wanted).cloned().collect();
        for key in gone {
            self.given.remove(&key);
            changes.push(Change::Delete(key));
        }
        (changes, problems)
    }

    /// Whether a Secret is one that it gave.
    pub fn gave(&self, secret: &ObjectName) -> bool {
        self.given.contains(&ObjectKey::new(Kind::Secret, secret.clone()))
    }

    /// A certificate for these names with its key, for a server of ours.
    ///
    /// # Errors
    /// When the CA cannot sign it.
    pub fn sign(&mut self, name: &DnsName, now: Timestamp) -> Result<IssuedCertificate, String> {
        let names = Names::one(name.clone());
        self.ca(name, now)?.sign(&names, None, now).map_err(|error| error.to_string())
    }

    /// The roots that clients should trust.
    pub fn bundle(&self, now: Timestamp) -> String {
        self.cas.values().map(|ca| ca.bundle_pem(now)).collect()
    }

    fn give(&mut self, wish: &Wish, now: Timestamp) -> Result<IssuedCertificate, String> {
        let name = DnsName::parse(wish.hostname.as_str()).map_err(|error| error.to_string())?;
        let id = CertificateId::of(&wish.secret.namespace, &Names::one(name.clone()));
        let file = self.directory.join("certificates").join(format!("{id}.json"));
        // The CA first: what it signed before it was made anew is nobody's any more.
        let fresh = !self.directory.join(domain(&name)).join("ca.crt").exists();
        self.ca(&name, now)?;
        if let Some(stored) = fs::read(&file).ok().filter(|_| !fresh)
            && let Ok(stored) = serde_json::from_slice::<IssuedCertificate>(&stored)
            && !due((stored.not_before, stored.not_after), now)
        {
            return Ok(stored);
        }
        let given = self.sign(&name, now)?;
        let bytes = serde_json::to_vec(&given).map_err(|error| error.to_string())?;
        write_private(&file, &bytes).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(given)
    }

    fn ca(&mut self, name: &DnsName, now: Timestamp) -> Result<&InternalCa, String> {
        let domain = domain(name);
        if !self.cas.contains_key(&domain) {
            let constraints = Constraints::permit([&domain]).map_err(|error| error.to_string())?;
            let config = InternalCaConfig::new(INTERNAL_CA, self.directory.join(&domain), constraints);
            let ca = InternalCa::open(config, now).map_err(|error| error.to_string())?;
            self.cas.insert(domain.clone(), ca);
        }
        Ok(&self.cas[&domain])
    }
}

fn domain(name: &DnsName) -> String {
    name.registered_domain().trim_start_matches("*.").to_owned()
}

/// Writes a file that only we may read, complete or not at all.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(new, path)
}

fn times(held: &Certificate) -> (Timestamp, Timestamp) {
    let time = |time| Timestamp::try_from(time).unwrap_or_default();
    (time(held.not_before), time(held.not_after))
}

/// Renewed at two thirds of its life.
fn due((start, end): (Timestamp, Timestamp), now: Timestamp) -> bool {
    let life = end.as_second() - start.as_second();
    now.as_second() >= start.as_second() + life / 3 * 2
}

fn secret(wish: &Wish, given: &IssuedCertificate) -> Result<Object, String> {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": &*wish.secret.namespace, "name": &*wish.secret.name},
        "stringData": {"tls.crt": given.chain_pem, "tls.key": given.key_pem.expose()},
    });
    Object::parse(object).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Hostname, ObjectName};
    use jiff::SignedDuration;

    fn wish(hostname: &str) -> Wish {
        Wish {
            secret: ObjectName::new("alice", format!("issued-{hostname}")),
            hostname: Hostname::parse(hostname).expect("a hostname"),
            issuer: INTERNAL_CA.to_owned(),
        }
    }

    fn certificate(changes: &[Change]) -> Arc<Certificate> {
        let [Change::Put(Object::Secret(secret))] = changes else { panic!("{changes:?}") };
        secret.certificate.clone().expect("it can be served")
    }

    #[test]
    fn a_wish_is_fulfilled_once_renewed_at_two_thirds_and_survives_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut authority = Authority::open(dir.path().to_path_buf()).expect("opens");
        let now = Timestamp::now();
        let wishes = |held| Wishes::from([(wish("shop.alice.example.org"), held)]);
        let (changes, problems) = authority.fulfil(&wishes(None), now);
        assert_eq!(problems, Vec::<String>::new());
        let first = certificate(&changes);
        assert_eq!(first.names, [Hostname::parse("shop.alice.example.org").expect("a hostname")]);
        assert!(authority.fulfil(&wishes(Some(first.clone())), now).0.is_empty());
        let mut again = Authority::open(dir.path().to_path_buf()).expect("opens");
        assert_eq!(certificate(&again.fulfil(&wishes(None), now).0).serial, first.serial);
        let later = now + SignedDuration::from_hours(24 * 61);
        assert_ne!(certificate(&again.fulfil(&wishes(Some(first)), later).0).serial, certificate(&changes).serial);
        assert!(matches!(again.fulfil(&Wishes::new(), later).0[..], [Change::Delete(_)]));
    }

    #[test]
    fn an_unknown_issuer_is_said() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut authority = Authority::open(dir.path().to_path_buf()).expect("opens");
        let wish = Wish { issuer: "elsewhere".into(), ..wish("a.example.org") };
        let (changes, problems) = authority.fulfil(&Wishes::from([(wish, None)]), Timestamp::now());
        assert!(changes.is_empty() && problems[0].contains("internal-ca"), "{problems:?}");
    }
}
