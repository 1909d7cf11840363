//! The valid certificates that are held, by tenant and name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use acme::keeper::Stored;
use acme::{CertificateId, Names};
use jiff::Timestamp;

/// Finds the certificate to serve for a wanted certificate.
#[derive(Default)]
pub(super) struct HeldCertificates {
    all: BTreeMap<CertificateId, Arc<Stored>>,
    /// The certificates of each tenant and name, ordered by expiry.
    by_name: HashMap<(String, String), BTreeSet<(Timestamp, CertificateId)>>,
    ends: BTreeSet<(Timestamp, CertificateId)>,
}

impl HeldCertificates {
    /// Replaces or removes a certificate. Returns the affected tenants and names.
    pub(super) fn set(
        &mut self,
        id: &CertificateId,
        stored: Option<Arc<Stored>>,
    ) -> Vec<(String, String)> {
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
                self.by_name
                    .entry(place.clone())
                    .or_default()
                    .insert(end.clone());
                concerned.push(place);
            }
            self.ends.insert(end);
        }
        concerned
    }

    /// Removes expired certificates. Returns the affected tenants and names.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<(String, String)> {
        let mut concerned = Vec::new();
        while let Some((_, id)) = self.ends.first().filter(|(end, _)| *end <= now).cloned() {
            concerned.extend(self.set(&id, None));
        }
        concerned
    }

    /// Returns the certificate of a tenant that was issued for all these names, with the latest
    /// expiry. A wildcard certificate that covers a host by chance is not returned, since it may be
    /// of another issuer.
    pub(super) fn find(&self, tenant: &str, names: &Names) -> Option<&Arc<Stored>> {
        let there = self
            .by_name
            .get(&(tenant.to_owned(), names.first().as_str().to_owned()))?;
        let held = there.iter().rev().filter_map(|(_, id)| self.all.get(id));
        held.into_iter()
            .find(|stored| stored.certificate.names.cover(names))
    }
}

fn places(stored: &Stored) -> Vec<(String, String)> {
    stored
        .certificate
        .names
        .iter()
        .map(|name| (stored.tenant.clone(), name.as_str().to_owned()))
        .collect()
}
