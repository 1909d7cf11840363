//! The certificates that no issuer of ours renews: those of references to Secrets, and those of
//! issuers that may no longer serve the hostname.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::report::Report;
use crate::key::ListenerId;
use crate::rule::certificate::Served;
use crate::state::parent::{Parent, ParentListener};
use gatewright_objects::inputs::CERT_MANAGER;
use gatewright_objects::model::{Certificate, ObjectName};

/// A Secret with a certificate that no issuer of ours renews.
#[derive(Clone, Debug, PartialEq)]
pub struct BroughtCertificate {
    /// The Secret.
    pub secret: ObjectName,
    /// The hostnames that it is served for, and the Gateways that show it to backends.
    pub hosts: BTreeSet<String>,
    /// The listeners that serve it.
    pub listeners: BTreeSet<ListenerId>,
    /// The certificate; `None` if there is none.
    pub certificate: Option<Arc<Certificate>>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

impl BroughtCertificate {
    fn of(secret: &ObjectName) -> Self {
        Self {
            secret: secret.clone(),
            hosts: BTreeSet::new(),
            listeners: BTreeSet::new(),
            certificate: None,
            problem: None,
        }
    }
}

impl Report<'_> {
    /// The certificates that no issuer of ours renews, by Secret: of all listeners, or of those of
    /// one namespace.
    pub(crate) fn brought_certificates(self, namespace: Option<&str>) -> Vec<BroughtCertificate> {
        let mut all: BTreeMap<ObjectName, BroughtCertificate> = BTreeMap::new();
        let parents = self
            .parents
            .keys()
            .filter(|key| namespace.is_none_or(|namespace| *key.name().namespace == *namespace));
        for parent in parents.filter_map(|key| self.parents.get(key)) {
            let granted = parent
                .listeners
                .iter()
                .filter(|l| self.listener_outcomes().is_granted(parent, l));
            for listener in granted {
                let Some(secret) = self.brought_to(parent, listener) else {
                    continue;
                };
                let row = all
                    .entry(secret.clone())
                    .or_insert_with(|| BroughtCertificate::of(&secret));
                let host = if listener.hostname.is_any() {
                    "*"
                } else {
                    listener.hostname.as_str()
                };
                row.hosts.insert(host.to_owned());
                row.listeners.insert(parent.id(listener));
                row.certificate = row
                    .certificate
                    .take()
                    .or_else(|| listener.served.certificate().cloned());
                let warnings: Vec<&str> = listener
                    .warnings
                    .iter()
                    .map(|warning| warning.text.as_str())
                    .collect();
                let warning = (!warnings.is_empty()).then(|| warnings.join("; "));
                let refused = listener
                    .resolved
                    .as_ref()
                    .err()
                    .map(|(_, text)| text.clone());
                row.problem = row.problem.take().or(refused).or(warning);
            }
            let Some(client) = &parent.client else {
                continue;
            };
            let reference = self
                .store
                .gateway(parent.key.name())
                .and_then(|gateway| gateway.client_certificate.as_ref());
            let Some(secret) = reference.map(|reference| &reference.name) else {
                continue;
            };
            let row = all
                .entry(secret.clone())
                .or_insert_with(|| BroughtCertificate::of(secret));
            row.hosts
                .insert(format!("backends of gateway {}", parent.key.name()));
            row.certificate = row
                .certificate
                .take()
                .or_else(|| client.certificate.clone());
            let warning = client.warnings.first().map(|warning| warning.text.clone());
            let refused = client.resolved.as_ref().err().map(|(_, text)| text.clone());
            row.problem = row.problem.take().or(refused).or(warning);
        }
        all.into_values().collect()
    }

    /// The Secret of a listener that no issuer of ours fills.
    fn brought_to(self, parent: &Parent, listener: &ParentListener) -> Option<ObjectName> {
        let secret = match &listener.served {
            Served::Certificate(secret, _)
            | Served::Missing(secret)
            | Served::NotAllowed(secret, Some(_)) => secret,
            Served::None => {
                let written = self
                    .store
                    .listeners(&parent.key)
                    .find(|written| written.name == listener.name)?;
                &written.tls.as_ref()?.certificates.first()?.name
            }
            Served::Issued(..) | Served::NotAllowed(_, None) => return None,
        };
        let is_ours = self
            .issuance
            .awaited(secret)
            .is_some_and(|by| **by != *CERT_MANAGER);
        (!is_ours).then(|| secret.clone())
    }
}
