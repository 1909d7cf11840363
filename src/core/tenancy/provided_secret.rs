//! Secrets that somebody brings (`certMode: existingSecret`): whether they are there, and whether their names suffice.
//!
//! Nothing depends on it but what a TenantGateway says: its Gateway is written all the same, and serves what it can.

use super::delta::{Derived, DerivedKind};
use super::desired::KeyKind;
use super::engine::{Dirty, ResolvedTenant, Tenancy};
use super::{TenantGateway, names};
use crate::inputs::{Mode, Secret, SecretError};
use crate::model::{Hostname, ObjectName};

/// What is in a Secret of type `kubernetes.io/tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProvidedSecret {
    /// A certificate for these names.
    Names(Vec<Hostname>),
    /// No certificate, or none that belongs to the key; never with key material.
    Broken(String),
    /// What we cannot judge: somebody else may be able to serve it.
    Unknown,
}

impl ProvidedSecret {
    /// What a Secret brings; `None` if it is of another type.
    pub fn of(secret: &Secret) -> Option<Self> {
        Some(match &secret.certificate {
            Ok(certificate) => Self::Names(certificate.names.clone()),
            Err(SecretError::Type(_)) => return None,
            Err(SecretError::Key(_) | SecretError::Unread(_)) => Self::Unknown,
            Err(error @ (SecretError::Missing(_) | SecretError::Chain(_) | SecretError::Mismatch)) => {
                Self::Broken(error.to_string())
            }
        })
    }

    /// Whether the certificate is good for a name (RFC 9525, 6.3: a wildcard stands for one label).
    fn is_for(names: &[Hostname], name: &Hostname) -> bool {
        names.contains(name) || name.is_exact() && name.parent().is_some_and(|wildcard| names.contains(&wildcard))
    }
}

/// The Secret that a TenantGateway is to be served with.
pub fn secret_of(tenant: &TenantGateway) -> Option<ObjectName> {
    let named = tenant.spec.wildcard_secret_ref.as_ref().filter(|secret| !secret.name.is_empty())?;
    let brings = tenant.mode() == Ok(Mode::ExistingSecret);
    brings.then(|| ObjectName::new(tenant.name.namespace.clone(), named.name.as_str()))
}

impl Tenancy {
    /// Whether what is in a Secret matters.
    pub fn refers_to(&self, secret: &ObjectName) -> bool {
        self.by_secret.count(secret) > 0
    }

    /// Takes in what is in a Secret that a TenantGateway names; nothing of others is kept.
    pub(super) fn take_secret(&mut self, name: ObjectName, new: Option<ProvidedSecret>, dirty: &mut Dirty) {
        let new = new.filter(|_| self.refers_to(&name));
        if self.brought.get(&name) == new.as_ref() {
            return;
        }
        dirty.readiness.extend(self.by_secret.of(&name).cloned());
        match new {
            Some(new) => drop(self.brought.insert(name, new)),
            None => drop(self.brought.remove(&name)),
        }
    }

    /// Takes in whether the key in a Secret is ours: cert-manager's Certificate for it then says so, or it would be issued anew.
    pub(super) fn take_key(&mut self, name: ObjectName, ours: bool, dirty: &mut Dirty) {
        let changed = if ours { self.keyed.insert(name.clone()) } else { self.keyed.remove(&name) };
        if changed {
            let wildcard = |tenant: &&ObjectName| *name.name == *names::wildcard_certificate(&tenant.name);
            dirty.tenants.extend(self.tenants_in.of(&name.namespace).filter(wildcard).cloned());
            self.touch_certified(&Derived { kind: DerivedKind::Certificate, name }, dirty);
        }
    }

    /// The key that stands in a Secret.
    pub(super) fn key_in(&self, secret: ObjectName) -> KeyKind {
        if self.keyed.contains(&secret) { KeyKind::Ours } else { KeyKind::Theirs }
    }

    /// Remembers which Secret a TenantGateway names, or forgets it.
    pub(super) fn refer(&mut self, tenant: &TenantGateway, there: bool) {
        let Some(secret) = secret_of(tenant) else { return };
        if there {
            self.by_secret.insert(secret, tenant.name.clone());
        } else {
            self.by_secret.remove(&secret, &tenant.name);
            if !self.refers_to(&secret) {
                self.brought.remove(&secret);
            }
        }
    }

    /// What is wrong with the Secret of a TenantGateway.
    pub(super) fn lacks(&self, valid: &ResolvedTenant) -> Option<(&'static str, String)> {
        let secret = secret_of(&valid.object)?;
        let text = match self.brought.get(&secret) {
            Some(ProvidedSecret::Unknown) => return None,
            None => {
                let text = format!(
                    "spec.wildcardSecretRef: there is no Secret {secret} of type kubernetes.io/tls: create it, or name another"
                );
                return Some(("WildcardSecretNotFound", text));
            }
            Some(ProvidedSecret::Broken(why)) => {
                let text =
                    format!("spec.wildcardSecretRef: Secret {secret}: {why}: put a certificate and its key there");
                return Some(("WildcardSecretInvalid", text));
            }
            Some(ProvidedSecret::Names(names)) => {
                let apex = std::iter::once(&valid.apex).cloned();
                let children = self.children_of(&valid.object.name).filter_map(|host| {
                    let apex = Hostname::parse(host.hostname.as_str().strip_prefix("*.")?).ok()?;
                    Some(apex)
                });
                let wanted = apex.chain(children).flat_map(|apex| {
                    let wildcard = Hostname::parse(&format!("*.{apex}")).ok();
                    std::iter::once(apex).chain(wildcard)
                });
                let missing: Vec<String> =
                    wanted.filter(|name| !ProvidedSecret::is_for(names, name)).map(|name| name.to_string()).collect();
                if missing.is_empty() {
                    return None;
                }
                let more = if missing.len() > 8 { ", ..." } else { "" };
                let missing = missing.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
                format!(
                    "spec.wildcardSecretRef: the certificate in Secret {secret} is not valid for {missing}{more}: put one there that is"
                )
            }
        };
        Some(("WildcardSecretIncomplete", text))
    }
}
