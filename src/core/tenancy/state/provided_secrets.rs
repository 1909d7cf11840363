//! The Secrets that TenantGateways refer to for their certificates, and whether they suffice.
//!
//! This affects the status of a TenantGateway alone: its Gateway is written all the same, and
//! serves what it can.

use std::collections::{BTreeMap, BTreeSet};

use super::tenants::ResolvedTenant;
use crate::rule::desired::KeyKind;
use crate::rule::host::Host;
use crate::rule::provided_secret::{ProvidedSecret, secret_of};
use gatewright_objects::model::{Hostname, ObjectName};
use gatewright_objects::multimap::MultiMap;

/// Secrets with certificates that users provide, and Secrets with keys of ours.
#[derive(Default)]
pub(crate) struct ProvidedSecrets {
    /// TenantGateways by the Secrets that they refer to, and the contents of these Secrets.
    users: MultiMap<ObjectName, ObjectName>,
    provided: BTreeMap<ObjectName, ProvidedSecret>,
    /// Secrets with a key of ours.
    keyed: BTreeSet<ObjectName>,
}

impl ProvidedSecrets {
    /// True if a TenantGateway refers to a Secret.
    pub(crate) fn refers_to(&self, secret: &ObjectName) -> bool {
        self.users.count(secret) > 0
    }

    /// The TenantGateways that refer to a Secret.
    pub(crate) fn users(&self, secret: &ObjectName) -> impl Iterator<Item = &ObjectName> {
        self.users.of(secret)
    }

    /// Sets the content of a Secret that a TenantGateway refers to; others are not kept. Returns
    /// whether it changed.
    pub(crate) fn set(&mut self, name: &ObjectName, new: Option<ProvidedSecret>) -> bool {
        let new = new.filter(|_| self.refers_to(name));
        if self.provided.get(name) == new.as_ref() {
            return false;
        }
        match new {
            Some(new) => {
                self.provided.insert(name.clone(), new);
            }
            None => {
                self.provided.remove(name);
            }
        }
        true
    }

    /// Sets whether the key in a Secret is ours. Returns whether that changed.
    pub(crate) fn set_key(&mut self, name: &ObjectName, ours: bool) -> bool {
        if ours {
            self.keyed.insert(name.clone())
        } else {
            self.keyed.remove(name)
        }
    }

    /// The origin of the key in a Secret.
    pub(crate) fn key_in(&self, secret: ObjectName) -> KeyKind {
        if self.keyed.contains(&secret) {
            KeyKind::Own
        } else {
            KeyKind::CertManager
        }
    }

    /// Updates the Secret that a TenantGateway refers to, in place of its former one.
    pub(crate) fn refer(
        &mut self,
        tenant: &ObjectName,
        old: Option<ObjectName>,
        now: Option<ObjectName>,
    ) {
        if let Some(now) = &now {
            self.users.insert(now.clone(), tenant.clone());
        }
        let Some(old) = old.filter(|old| Some(old) != now.as_ref()) else {
            return;
        };
        self.users.remove(&old, tenant);
        if !self.refers_to(&old) {
            self.provided.remove(&old);
        }
    }

    /// A finding about the Secret of a TenantGateway; `children` are the wildcards of its child
    /// apexes.
    pub(crate) fn lacks<'a>(
        &self,
        valid: &ResolvedTenant,
        children: impl Iterator<Item = &'a Host>,
    ) -> Option<(&'static str, String)> {
        let secret = secret_of(&valid.object)?;
        let text = match self.provided.get(&secret) {
            Some(ProvidedSecret::Unknown) => return None,
            None => {
                let text = format!(
                    "spec.wildcardSecretRef: there is no Secret {secret} of type kubernetes.io/tls: create it, or name another"
                );
                return Some(("WildcardSecretNotFound", text));
            }
            Some(ProvidedSecret::Broken(why)) => {
                let text = format!(
                    "spec.wildcardSecretRef: Secret {secret}: {why}: put a certificate and its key there"
                );
                return Some(("WildcardSecretInvalid", text));
            }
            Some(ProvidedSecret::Names(names)) => {
                let apex = std::iter::once(&valid.apex).cloned();
                let children = children.filter_map(|host| {
                    let apex = Hostname::parse(host.hostname.as_str().strip_prefix("*.")?).ok()?;
                    Some(apex)
                });
                let wanted = apex.chain(children).flat_map(|apex| {
                    let wildcard = Hostname::parse(&format!("*.{apex}")).ok();
                    std::iter::once(apex).chain(wildcard)
                });
                let missing: Vec<String> = wanted
                    .filter(|name| !name.is_certified_by(names))
                    .map(|name| name.to_string())
                    .collect();
                if missing.is_empty() {
                    return None;
                }
                let more = if missing.len() > 8 { ", ..." } else { "" };
                let missing = missing
                    .iter()
                    .take(8)
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(", ");
                format!(
                    "spec.wildcardSecretRef: the certificate in Secret {secret} is not valid for {missing}{more}: put one there that is"
                )
            }
        };
        Some(("WildcardSecretIncomplete", text))
    }
}
