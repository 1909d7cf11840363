//! The internal CA as an issuer: one CA for each registered domain, with a name constraint (RFC
//! 5280, 4.2.1.10), stored in a directory or in an entry of the storage.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use acme::failure::{Class, Failure};
use acme::internal_ca::{CaError, Constraints, InternalCa, InternalCaConfig};
use acme::issuer::{IssueRequest, Issuer};
use acme::storage::{Expect, Key, Kind, StorageError, Version};
use acme::{DnsName, IssuedCertificate, Names, Storage};
use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use gatewright_core::wanted::INTERNAL_CA;

/// The domains for which there are internal CAs, and their maximum number: each has keys of its
/// own, and its root is in the bundle that clients trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityLimits {
    /// The domains that certificates may be issued for, with all names below them; empty for all
    /// domains.
    pub domains: Vec<DnsName>,
    /// The maximum number of registered domains with a CA.
    pub most: usize,
    /// The maximum number of CAs that are created for one namespace.
    pub most_of_one: usize,
}

impl Default for AuthorityLimits {
    fn default() -> Self {
        // Two roots of a kilobyte for each domain fill half of the maximum size of a ConfigMap.
        Self {
            domains: Vec::new(),
            most: 256,
            most_of_one: 32,
        }
    }
}

/// The internal CAs.
pub struct Authority {
    home: Home,
    limits: AuthorityLimits,
    cas: RwLock<BTreeMap<String, Arc<InternalCa>>>,
    /// The CAs that exist and cannot be used, with the reason: they wait for an operator, and are
    /// not replaced.
    damaged: RwLock<BTreeMap<String, String>>,
}

/// The place where CAs are stored.
enum Home {
    /// Each CA in a directory of its own.
    Directory(PathBuf),
    /// Each CA in an entry, with the content that was last written.
    Storage(Arc<dyn Storage>, Mutex<BTreeMap<String, StoredRecord>>),
}

struct StoredRecord {
    record: Zeroizing<Vec<u8>>,
    version: Version,
}

impl Authority {
    /// Opens the CAs of a directory, which is readable by its owner only.
    ///
    /// # Errors
    /// When the directory cannot be created or read.
    pub fn open(directory: PathBuf, now: Timestamp) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(failed)?;
        let home = Home::Directory(directory.clone());
        let limits = AuthorityLimits::default();
        let authority = Self {
            home,
            limits,
            cas: RwLock::default(),
            damaged: RwLock::default(),
        };
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.path().join("ca.crt").exists()
                && let Some(domain) = entry.file_name().to_str()
                && let Err(why) = authority.ca(domain, "", now)
            {
                authority.wait_for_mending(domain, &why.message);
            }
        }
        Ok(authority)
    }

    /// Opens the CAs of a storage.
    ///
    /// # Errors
    /// When a CA cannot be read.
    pub async fn stored(storage: Arc<dyn Storage>, now: Timestamp) -> Result<Self, String> {
        let keys = storage
            .list(Kind::Authority)
            .await
            .map_err(|error| error.to_string())?;
        let home = Home::Storage(storage.clone(), Mutex::default());
        let limits = AuthorityLimits::default();
        let authority = Self {
            home,
            limits,
            cas: RwLock::default(),
            damaged: RwLock::default(),
        };
        for key in keys {
            match authority.keep(key.name(), "", now).await {
                Ok(_) => {}
                Err(failure) if failure.class == Class::Config => {
                    authority.wait_for_mending(key.name(), &failure.message);
                }
                Err(failure) => return Err(failure.message),
            }
        }
        Ok(authority)
    }

    fn wait_for_mending(&self, domain: &str, why: &str) {
        let remedy = match &self.home {
            Home::Directory(directory) => {
                let path = directory.join(domain);
                format!(
                    "restore {0} from a backup, or begin with another root, which clients must come to trust: \
                     mv {0} {0}.damaged",
                    path.display()
                )
            }
            Home::Storage(..) => {
                "restore its Secret from a backup, or delete it to begin with another root"
                    .to_owned()
            }
        };
        let text = format!("the internal CA of {domain} waits: {why}; {remedy}");
        let mut damaged = self
            .damaged
            .write()
            .expect("nobody panics while holding it");
        if damaged.get(domain) != Some(&text) {
            tracing::error!("{text}");
            damaged.insert(domain.to_owned(), text);
        }
    }

    /// Tries again to open damaged CAs. Returns whether any of them can be used again.
    pub fn mend(&self, now: Timestamp) -> bool {
        let Home::Directory(directory) = &self.home else {
            return false;
        };
        let domains: Vec<String> = self
            .damaged
            .read()
            .expect("nobody panics while holding it")
            .keys()
            .cloned()
            .collect();
        let mut mended = false;
        for domain in domains {
            // A CA that was moved away is replaced with the next certificate.
            let is_gone = !directory.join(&domain).join("ca.json").exists();
            match if is_gone {
                Ok(())
            } else {
                self.ca(&domain, "", now).map(drop)
            } {
                Ok(()) => {
                    self.damaged
                        .write()
                        .expect("nobody panics while holding it")
                        .remove(&domain);
                    mended = true;
                }
                Err(why) => self.wait_for_mending(&domain, &why.message),
            }
        }
        mended
    }

    /// Returns the messages about damaged CAs.
    pub fn troubles(&self) -> Vec<String> {
        self.damaged
            .read()
            .expect("nobody panics while holding it")
            .values()
            .cloned()
            .collect()
    }

    /// Sets the limits. Existing CAs are kept.
    pub fn within(self, limits: AuthorityLimits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the reason for which a tenant gets no certificate for some names, and the name that
    /// it is about.
    fn refusal<'a>(&self, tenant: &str, names: &'a Names) -> Option<(String, &'a DnsName)> {
        if let Some(name) = names.iter().find(|name| name.is_public_suffix()) {
            let text = format!(
                "{name} is a public suffix: a CA for it would cover domains of different owners; use a name below it"
            );
            return Some((text, name));
        }
        if let Some(name) = names
            .iter()
            .find(|name| !listed(name, &self.limits.domains))
        {
            let domains: Vec<&str> = self.limits.domains.iter().map(DnsName::as_str).collect();
            let text = format!(
                "{name} is not in a domain of internalCa.domains: it issues for {}; use a name there, or add the domain",
                domains.join(", ")
            );
            return Some((text, name));
        }
        let cas = self.cas.read().expect("nobody panics while holding it");
        let domain = domain(names.first());
        if !cas.contains_key(&domain) && cas.len() >= self.limits.most {
            let text = format!(
                "{domain} would be registered domain {} with a CA of its own, and the limit of internalCa.maxDomains is {}; use a \
                 name in a domain that has one, or raise the limit",
                cas.len() + 1,
                self.limits.most
            );
            return Some((text, names.first()));
        }
        let of_tenant = || cas.values().filter(|ca| ca.made_for() == tenant).count();
        if !cas.contains_key(&domain)
            && !tenant.is_empty()
            && of_tenant() >= self.limits.most_of_one
        {
            let text = format!(
                "{domain} would be registered domain {} with a CA of its own that is made for {tenant}, and the limit of \
                 internalCa.maxDomainsPerNamespace is {}; use a name in a domain that has one, or raise the limit",
                of_tenant() + 1,
                self.limits.most_of_one
            );
            return Some((text, names.first()));
        }
        None
    }

    /// Signs a certificate for a name, with a new key, for a server of ours.
    ///
    /// # Errors
    /// When the CA cannot sign it.
    pub fn sign(&self, name: &DnsName, now: Timestamp) -> Result<IssuedCertificate, String> {
        let names = Names::one(name.clone());
        let ca = self
            .ca(&domain(name), "", now)
            .map_err(|failure| failure.message)?;
        ca.sign(&names, None, now)
            .map_err(|error| error.to_string())
    }

    /// Returns the roots that clients should trust, as PEM.
    pub fn bundle(&self, now: Timestamp) -> String {
        let mut bundle: String = self
            .cas
            .read()
            .expect("nobody panics while holding it")
            .values()
            .map(|ca| ca.bundle_pem(now))
            .collect();
        if let Home::Directory(directory) = &self.home {
            // Certificates of damaged CAs are still served until they expire.
            for domain in self
                .damaged
                .read()
                .expect("nobody panics while holding it")
                .keys()
            {
                bundle +=
                    &fs::read_to_string(directory.join(domain).join("ca.crt")).unwrap_or_default();
            }
        }
        bundle
    }

    /// Returns whether the CA of these names exists: a certificate of a deleted CA is not trusted
    /// any more.
    pub fn has_ca_of(&self, names: &Names) -> bool {
        let domain = domain(names.first());
        self.cas
            .read()
            .expect("nobody panics while holding it")
            .contains_key(&domain)
            || self
                .damaged
                .read()
                .expect("nobody panics while holding it")
                .contains_key(&domain)
    }

    /// Creates the CA that will renew a certificate of a CA that is gone, so that clients can come
    /// to trust its root before.
    ///
    /// # Errors
    /// When the limits do not allow it, or it cannot be stored.
    pub async fn prepare(
        &self,
        tenant: &str,
        names: &Names,
        now: Timestamp,
    ) -> Result<(), Failure> {
        if self.has_ca_of(names) {
            return Ok(());
        }
        if let Some((text, _)) = self.refusal(tenant, names) {
            return Err(Failure::new(
                Class::Config,
                format!("{INTERNAL_CA}: {text}"),
            ));
        }
        self.keep(&domain(names.first()), tenant, now)
            .await
            .map(drop)
    }

    /// Returns the CA of a domain, creating it for a tenant if necessary.
    fn ca(&self, domain: &str, tenant: &str, now: Timestamp) -> Result<Arc<InternalCa>, Failure> {
        if let Some(ca) = self
            .cas
            .read()
            .expect("nobody panics while holding it")
            .get(domain)
        {
            return Ok(ca.clone());
        }
        let mut cas = self.cas.write().expect("nobody panics while holding it");
        if let Some(ca) = cas.get(domain) {
            return Ok(ca.clone());
        }
        let constraints = Constraints::permit([domain]).map_err(unusable)?;
        let Home::Directory(directory) = &self.home else {
            return Err(Failure::new(
                Class::Config,
                format!("there is no CA for {domain} yet"),
            ));
        };
        let config = InternalCaConfig::new(INTERNAL_CA, directory.join(domain), constraints);
        let config = InternalCaConfig {
            made_for: tenant.to_owned(),
            ..config
        };
        let ca = Arc::new(InternalCa::open(config, now).map_err(unusable)?);
        cas.insert(domain.to_owned(), ca.clone());
        Ok(ca)
    }

    /// Returns the CA of a domain after storing its state, including due renewals: no certificate
    /// is signed by a CA that could be lost.
    async fn keep(
        &self,
        domain: &str,
        tenant: &str,
        now: Timestamp,
    ) -> Result<Arc<InternalCa>, Failure> {
        fn config(text: String) -> Failure {
            failed(Class::Config, text)
        }
        let Home::Storage(storage, written) = &self.home else {
            return self
                .ca(domain, tenant, now)
                .map_err(|failure| failed(failure.class, failure.message));
        };
        let mut written = written.lock().await;
        let key = Key::new(Kind::Authority, domain);
        fn stored(error: StorageError) -> Failure {
            failed(Class::Transient, error.to_string())
        }
        let known = self
            .cas
            .read()
            .expect("nobody panics while holding it")
            .get(domain)
            .cloned();
        let (ca, before) = match (known, written.remove(domain)) {
            (Some(ca), Some(before)) => {
                ca.advance(now).map_err(|error| config(error.to_string()))?;
                (ca, Some(before))
            }
            _ => {
                let there = storage.read(&key).await.map_err(stored)?;
                let constraints =
                    Constraints::permit([domain]).map_err(|error| config(error.to_string()))?;
                let settings = InternalCaConfig::new(INTERNAL_CA, "", constraints);
                let settings = InternalCaConfig {
                    made_for: tenant.to_owned(),
                    ..settings
                };
                let record = there.as_ref().map(|entry| entry.bytes.as_slice());
                let ca = InternalCa::of_record(settings, record, now);
                let ca = ca.map_err(|error| config(format!("{key}: {error}")))?;
                (
                    Arc::new(ca),
                    there.map(|entry| StoredRecord {
                        record: entry.bytes,
                        version: entry.version,
                    }),
                )
            }
        };
        let record = ca.record();
        let version = match before {
            Some(before) if *before.record == *record => before.version,
            before => {
                let expect =
                    before.map_or(Expect::Absent, |before| Expect::Version(before.version));
                // On a conflict with another writer the CA is read again.
                storage
                    .write(&key, &record, &expect)
                    .await
                    .map_err(stored)?
            }
        };
        written.insert(domain.to_owned(), StoredRecord { record, version });
        self.damaged
            .write()
            .expect("nobody panics while holding it")
            .remove(domain);
        self.cas
            .write()
            .expect("nobody panics while holding it")
            .insert(domain.to_owned(), ca.clone());
        Ok(ca)
    }
}

fn listed(name: &DnsName, limits_domains: &[DnsName]) -> bool {
    limits_domains.is_empty()
        || limits_domains.iter().any(|domain| {
            let base = name.base();
            base == domain.as_str()
                || base
                    .strip_suffix(domain.as_str())
                    .is_some_and(|rest| rest.ends_with('.'))
        })
}

fn unusable(error: CaError) -> Failure {
    // A full disk is a transient failure, a wrong configuration is not.
    let class = if matches!(error, CaError::Storage(_)) {
        Class::Transient
    } else {
        Class::Config
    };
    Failure::new(class, error.to_string())
}

fn failed(class: Class, text: String) -> Failure {
    Failure::new(class, format!("{INTERNAL_CA}: {text}"))
}

#[async_trait]
impl Issuer for Authority {
    fn name(&self) -> &str {
        INTERNAL_CA
    }

    async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure> {
        fn config(text: String) -> Failure {
            Failure::new(Class::Config, format!("{INTERNAL_CA}: {text}"))
        }
        if let Some((text, name)) = self.refusal(&request.tenant, &request.names) {
            return Err(config(text).by(vec![name.to_string()]));
        }
        let domain = domain(request.names.first());
        let damaged = self
            .damaged
            .read()
            .expect("nobody panics while holding it")
            .get(&domain)
            .cloned();
        if let (Some(text), Home::Directory(_)) = (damaged, &self.home) {
            return Err(config(text));
        }
        self.keep(&domain, &request.tenant, request.now)
            .await?
            .issue(request)
            .await
    }
}

fn domain(name: &DnsName) -> String {
    name.registered_domain().trim_start_matches("*.").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use acme::CertificateId;
    use jiff::SignedDuration;

    fn request(name: &str, now: Timestamp) -> IssueRequest {
        let names = Names::parse([name]).expect("a name");
        IssueRequest::new(CertificateId::of("t", &names), names, now)
    }

    /// Opens the storage in a directory, as each process does.
    fn storage(dir: &tempfile::TempDir) -> Arc<acme::storage::dir::Directory> {
        Arc::new(acme::storage::dir::Directory::open(dir.path().join("s")).expect("opens"))
    }

    #[tokio::test]
    async fn each_registered_domain_has_a_ca_that_survives_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Timestamp::now();
        let authority = Authority::open(dir.path().join("ca"), now).expect("opens");
        for name in [
            "a.alice.example.org",
            "b.alice.example.org",
            "c.example.net",
        ] {
            authority.issue(&request(name, now)).await.expect(name);
        }
        let bundle = authority.bundle(now);
        assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
        let again = Authority::open(dir.path().join("ca"), now + SignedDuration::from_hours(1))
            .expect("opens");
        assert_eq!(again.bundle(now), bundle);
        fn names(text: &str) -> Names {
            Names::parse([text]).expect("a name")
        }
        assert!(
            again.has_ca_of(&names("x.example.org")) && !again.has_ca_of(&names("x.example.com"))
        );
    }

    #[tokio::test]
    async fn a_ca_that_cannot_be_written_now_is_tried_again_soon() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Timestamp::now();
        let home = dir.path().join("ca");
        let authority = Authority::open(home.clone(), now).expect("opens");
        fs::create_dir_all(&home).expect("made");
        fs::write(home.join("example.org"), "in the way").expect("written");
        let refused = authority
            .issue(&request("a.example.org", now))
            .await
            .expect_err("no directory");
        assert_eq!(refused.class, Class::Transient, "{refused}");
        fs::remove_file(home.join("example.org")).expect("removed");
        authority
            .issue(&request("a.example.org", now))
            .await
            .expect("issued");
    }

    #[tokio::test]
    async fn a_damaged_ca_waits_for_an_operator_and_the_others_go_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Timestamp::now();
        let home = dir.path().join("ca");
        let authority = Authority::open(home.clone(), now).expect("opens");
        for name in ["a.example.org", "b.example.net"] {
            authority.issue(&request(name, now)).await.expect(name);
        }
        let bundle = authority.bundle(now);
        let file = home.join("example.org/ca.json");
        let good = fs::read(&file).expect("read");
        fs::write(&file, &good[..good.len() / 2]).expect("written");
        let again = Authority::open(home.clone(), now).expect("opens all the same");
        again
            .issue(&request("c.example.net", now))
            .await
            .expect("the other one signs");
        let refused = again
            .issue(&request("c.example.org", now))
            .await
            .expect_err("it is not made anew");
        assert!(
            refused.class == Class::Config && refused.message.contains("mv "),
            "{refused}"
        );
        assert!(
            again.troubles()[0].contains("ca.json"),
            "{:?}",
            again.troubles()
        );
        let names = Names::parse(["a.example.org"]).expect("a name");
        assert!(
            again.has_ca_of(&names) && again.bundle(now).len() == bundle.len(),
            "its roots are trusted as before"
        );
        assert!(!again.mend(now));
        fs::write(&file, &good).expect("written");
        assert!(again.mend(now) && again.troubles().is_empty());
        again
            .issue(&request("c.example.org", now))
            .await
            .expect("it is back");
        assert_eq!(again.bundle(now), bundle);
    }

    #[tokio::test]
    async fn a_ca_in_a_storage_is_made_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Timestamp::now();
        let one = Authority::stored(storage(&dir), now).await;
        let two = Authority::stored(storage(&dir), now).await;
        let (one, two) = (one.expect("opens"), two.expect("opens"));
        one.issue(&request("a.example.org", now))
            .await
            .expect("the first makes it");
        two.issue(&request("b.example.org", now))
            .await
            .expect("the other finds it");
        assert_eq!(
            one.bundle(now),
            two.bundle(now),
            "both replicas have one bundle"
        );
        assert_eq!(
            one.bundle(now).matches("BEGIN").count(),
            1,
            "it has one certificate"
        );
        let again = Authority::stored(storage(&dir), now).await.expect("opens");
        assert_eq!(again.bundle(now), one.bundle(now));
    }

    #[tokio::test]
    async fn a_ca_can_be_made_before_it_signs_and_within_the_limits() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Timestamp::now();
        let authority = Authority::stored(storage(&dir), now).await.expect("opens");
        let authority = authority.within(AuthorityLimits {
            most: 1,
            ..AuthorityLimits::default()
        });
        fn names(text: &str) -> Names {
            Names::parse([text]).expect("a name")
        }
        authority
            .prepare("alice", &names("a.example.org"), now)
            .await
            .expect("made");
        let bundle = authority.bundle(now);
        assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 1);
        authority
            .prepare("alice", &names("b.example.org"), now)
            .await
            .expect("it is there");
        let refused = authority
            .prepare("alice", &names("a.example.net"), now)
            .await
            .expect_err("a second one");
        assert!(
            refused.message.contains("internalCa.maxDomains"),
            "{refused}"
        );
        authority
            .issue(&request("a.example.org", now))
            .await
            .expect("it signs");
        assert_eq!(
            authority.bundle(now),
            bundle,
            "by the root that was known before"
        );
        let again = Authority::stored(storage(&dir), now).await.expect("opens");
        assert_eq!(again.bundle(now), bundle);
    }

    #[tokio::test]
    async fn limits_hold_for_what_is_new_and_roots_in_place_are_told_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Timestamp::now();
        let domains = ["corp.example", "alice.example.org"]
            .map(|name| DnsName::parse(name).expect("a name"))
            .to_vec();
        let authority = Authority::open(dir.path().join("ca"), now).expect("opens");
        let authority = authority.within(AuthorityLimits {
            domains,
            most: 1,
            ..AuthorityLimits::default()
        });
        for name in ["corp.example", "vault.corp.example", "*.corp.example"] {
            authority.issue(&request(name, now)).await.expect(name);
        }
        for (name, word) in [
            (
                "xcorp.example",
                "internalCa.domains: it issues for corp.example, alice.example.org",
            ),
            ("bob.example.org", "internalCa.domains"),
            ("kubernetes.default.svc", "internalCa.domains"),
            (
                "www.alice.example.org",
                "the limit of internalCa.maxDomains is 1",
            ),
        ] {
            let refused = authority.issue(&request(name, now)).await.expect_err(name);
            assert!(
                refused.class == Class::Config && refused.message.contains(word),
                "{name}: {refused}"
            );
        }
        assert_eq!(
            authority.bundle(now).matches("BEGIN CERTIFICATE").count(),
            1
        );
        authority
            .issue(&request("again.corp.example", now))
            .await
            .expect("its domain has a CA");
    }

    /// Otherwise one namespace could use up the limit of all.
    #[tokio::test]
    async fn a_namespace_has_as_many_cas_as_its_limit_says_also_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Timestamp::now();
        fn limits() -> AuthorityLimits {
            AuthorityLimits {
                most_of_one: 2,
                ..AuthorityLimits::default()
            }
        }
        fn of(tenant: &str, name: &str, now: &Timestamp) -> IssueRequest {
            IssueRequest {
                tenant: tenant.to_owned(),
                ..request(name, *now)
            }
        }
        async fn open(dir: &tempfile::TempDir, now: Timestamp) -> Authority {
            Authority::stored(storage(dir), now)
                .await
                .expect("opens")
                .within(limits())
        }
        let authority = open(&dir, now).await;
        for name in ["a.m1.example", "b.m2.example", "c.m2.example"] {
            authority
                .issue(&of("mallory", name, &now))
                .await
                .expect(name);
        }
        for authority in [authority, open(&dir, now).await] {
            let refused = authority
                .issue(&of("mallory", "m3.example", &now))
                .await
                .expect_err("it is the third");
            let words = [
                "m3.example",
                "made for mallory",
                "internalCa.maxDomainsPerNamespace is 2",
            ];
            assert!(
                words.iter().all(|word| refused.message.contains(word)),
                "{refused}"
            );
            authority
                .issue(&of("mallory", "d.m1.example", &now))
                .await
                .expect("its domain has a CA");
            authority
                .issue(&of("alice", "a.alice.example", &now))
                .await
                .expect("she has her own");
        }
    }

    #[tokio::test]
    async fn no_ca_is_made_for_a_public_suffix() {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::open(dir.path().to_path_buf(), Timestamp::now()).expect("opens");
        let refused = authority
            .issue(&request("co.uk", Timestamp::now()))
            .await
            .expect_err("strangers");
        assert!(
            refused.class == Class::Config && refused.message.contains("public suffix"),
            "{refused}"
        );
    }
}
