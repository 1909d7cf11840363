//! The certificates that are held and alive, by tenant and name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use acme::keeper::Stored;
use acme::{CertificateId, Names};
use jiff::Timestamp;

/// Finds the certificate to serve for a wanted certificate.
#[derive(Default)]
pub(super) struct HeldCertificates {
    all: BTreeMap<CertificateId, Arc<Stored>>,
    /// For each tenant and name, those that have it, and when they end.
    by_name: HashMap<(String, String), BTreeSet<(Timestamp, CertificateId)>>,
    ends: BTreeSet<(Timestamp, CertificateId)>,
}

impl HeldCertificates {
    /// Puts a certificate in the place of another, or takes one away. The tenants and names that this concerns.
    pub(super) fn set(&mut self, id: &CertificateId, stored: Option<Arc<Stored>>) -> Vec<(String, String)> {
        let mut concerned = Vec::new();
        let before = match &stored {
            Some(stored) => self.all.insert(id.clone(), stored.clone()),
            None => self.all.remove(id),
        };
        if let Some(old) = before {
            let end = (old.certificate.not_after, id.clone());
            self.ends.remove(&end);
            for place in places(&old) {
                if let Some(there) = self.by_name.get_mut(&place) {
                    there.remove(&end);
                    if there.is_empty() {
                        self.by_name.remove(&place);
                    }
                }
                concerned.push(place);
            }
        }
        if let Some(new) = stored {
            let end = (new.certificate.not_after, id.clone());
            for place in places(&new) {
                self.by_name.entry(place.clone()).or_default().insert(end.clone());
                concerned.push(place);
            }
            self.ends.insert(end);
        }
        concerned
    }

    /// Takes away what has ended. The tenants and names that this concerns.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<(String, String)> {
        let mut concerned = Vec::new();
        while let Some((_, id)) = self.ends.first().filter(|(end, _)| *end <= now).cloned() {
            concerned.extend(self.set(&id, None));
        }
        concerned
    }

    /// When the first of them ends.
    pub(super) fn next_end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// The certificate of a tenant that was made for all these names, the longest life first. A wildcard that happens to
    /// cover a host is not its own, and may come from another issuer.
    pub(super) fn find(&self, tenant: &str, names: &Names) -> Option<&Arc<Stored>> {
        let there = self.by_name.get(&(tenant.to_owned(), names.first().as_str().to_owned()))?;
        let held = there.iter().rev().filter_map(|(_, id)| self.all.get(id));
        held.into_iter().find(|stored| stored.certificate.names.cover(names))
    }
}

fn places(stored: &Stored) -> Vec<(String, String)> {
    stored.certificate.names.iter().map(|name| (stored.tenant.clone(), name.as_str().to_owned())).collect()
}
