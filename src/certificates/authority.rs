//! The internal CA as an issuer: one CA for each registered domain, constrained to it by name (RFC 5280, 4.2.1.10), in
//! a directory of its own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use acme::failure::{Class, Failure};
use acme::internal_ca::{Constraints, InternalCa, InternalCaConfig};
use acme::issuer::{IssueRequest, Issuer};
use acme::{DnsName, IssuedCertificate, Names};
use async_trait::async_trait;
use jiff::Timestamp;

use crate::translate::INTERNAL_CA;

/// The internal CAs.
pub struct Authority {
    directory: PathBuf,
    cas: RwLock<BTreeMap<String, Arc<InternalCa>>>,
}

impl Authority {
    /// CAs kept in a directory, which nobody else may read. Those that are there are opened.
    ///
    /// # Errors
    /// When it cannot be made or read.
    pub fn open(directory: PathBuf, now: Timestamp) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed)?;
        let authority = Self { directory: directory.clone(), cas: RwLock::default() };
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.path().join("ca.crt").exists()
                && let Some(domain) = entry.file_name().to_str()
            {
                authority.ca(domain, now)?;
            }
        }
        Ok(authority)
    }

    /// A certificate for a name with its key, for a server of ours.
    ///
    /// # Errors
    /// When the CA cannot sign it.
    pub fn sign(&self, name: &DnsName, now: Timestamp) -> Result<IssuedCertificate, String> {
        let names = Names::one(name.clone());
        self.ca(&domain(name), now)?.sign(&names, None, now).map_err(|error| error.to_string())
    }

    /// The roots that clients should trust.
    pub fn bundle(&self, now: Timestamp) -> String {
        self.cas.read().expect("nobody panics while holding it").values().map(|ca| ca.bundle_pem(now)).collect()
    }

    /// Whether the CA of these names is there: what one signed that is gone, nobody trusts any more.
    pub fn has_ca_of(&self, names: &Names) -> bool {
        self.cas.read().expect("nobody panics while holding it").contains_key(&domain(names.first()))
    }

    fn ca(&self, domain: &str, now: Timestamp) -> Result<Arc<InternalCa>, String> {
        if let Some(ca) = self.cas.read().expect("nobody panics while holding it").get(domain) {
            return Ok(ca.clone());
        }
        let mut cas = self.cas.write().expect("nobody panics while holding it");
        if let Some(ca) = cas.get(domain) {
            return Ok(ca.clone());
        }
        let constraints = Constraints::permit([domain]).map_err(|error| error.to_string())?;
        let config = InternalCaConfig::new(INTERNAL_CA, self.directory.join(domain), constraints);
        let ca = Arc::new(InternalCa::open(config, now).map_err(|error| error.to_string())?);
        cas.insert(domain.to_owned(), ca.clone());
        Ok(ca)
    }
}

#[async_trait]
impl Issuer for Authority {
    fn name(&self) -> &str {
        INTERNAL_CA
    }

    async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure> {
        let config = |text: String| Failure::new(Class::Config, format!("{INTERNAL_CA}: {text}"));
        if let Some(name) = request.names.iter().find(|name| name.is_public_suffix()) {
            let text =
                format!("{name} is a public suffix: a CA for it would be one for strangers; use a name below it");
            return Err(config(text).by(vec![name.to_string()]));
        }
        let domain = domain(request.names.first());
        self.ca(&domain, request.now).map_err(config)?.issue(request).await
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

    #[tokio::test]
    async fn each_registered_domain_has_a_ca_that_survives_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let now = Timestamp::now();
        let authority = Authority::open(dir.path().join("ca"), now).expect("opens");
        for name in ["a.alice.example.org", "b.alice.example.org", "c.example.net"] {
            authority.issue(&request(name, now)).await.expect(name);
        }
        let bundle = authority.bundle(now);
        assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
        let again = Authority::open(dir.path().join("ca"), now + SignedDuration::from_hours(1)).expect("opens");
        assert_eq!(again.bundle(now), bundle);
        let names = |text| Names::parse([text]).expect("a name");
        assert!(again.has_ca_of(&names("x.example.org")) && !again.has_ca_of(&names("x.example.com")));
    }

    #[tokio::test]
    async fn no_ca_is_made_for_a_public_suffix() {
        let dir = tempfile::tempdir().expect("a directory");
        let authority = Authority::open(dir.path().to_path_buf(), Timestamp::now()).expect("opens");
        let refused = authority.issue(&request("co.uk", Timestamp::now())).await.expect_err("strangers");
        assert!(refused.class == Class::Config && refused.message.contains("public suffix"), "{refused}");
    }
}
