//! Secrets that the user provides (`certMode: existingSecret`): whether they exist, and whether
//! they have all names.
//!
//! This affects the status of a TenantGateway alone: its Gateway is written all the same, and
//! serves what it can.

use crate::TenantGateway;
use gatewright_objects::inputs::{Mode, Secret, SecretError};
use gatewright_objects::model::{Hostname, ObjectName};

/// The content of a Secret of type `kubernetes.io/tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProvidedSecret {
    /// A certificate for these names.
    Names(Vec<Hostname>),
    /// No certificate, or one that does not match the key; the text has no key material.
    Broken(String),
    /// A key that we cannot check: another data plane may be able to use it.
    Unknown,
}

impl ProvidedSecret {
    /// Reads a Secret; `None` if it is of another type.
    pub fn of(secret: &Secret) -> Option<Self> {
        Some(match &secret.certificate {
            Ok(certificate) => Self::Names(certificate.names.clone()),
            Err(SecretError::Type(_)) => return None,
            Err(SecretError::Key(_) | SecretError::Costly(_) | SecretError::Unread(_)) => {
                Self::Unknown
            }
            Err(
                error @ (SecretError::Missing(_)
                | SecretError::Chain(_)
                | SecretError::Refused(_)
                | SecretError::Mismatch
                | SecretError::Files(_)),
            ) => Self::Broken(error.to_string()),
        })
    }
}

/// The Secret that a TenantGateway refers to for its certificate.
pub fn secret_of(tenant: &TenantGateway) -> Option<ObjectName> {
    let named = tenant
        .spec
        .wildcard_secret_ref
        .as_ref()
        .filter(|secret| !secret.name.is_empty())?;
    let brings = tenant.mode() == Ok(Mode::ExistingSecret);
    brings.then(|| ObjectName::new(tenant.name.namespace.clone(), named.name.as_str()))
}
