//! Certificates that are not there yet: their issuers, and why they are not there.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::ObjectName;

/// Why certificates are not there yet, and who is about to bring them, by Secret.
#[derive(Default)]
pub(super) struct Issuance {
    troubles: BTreeMap<ObjectName, String>,
    awaited: BTreeMap<ObjectName, Arc<str>>,
}

impl Issuance {
    /// Why a certificate that was wanted is not there yet.
    pub(super) fn trouble(&self, secret: &ObjectName) -> Option<&str> {
        self.troubles.get(secret).map(String::as_str)
    }

    /// Sets why a certificate is not there yet.
    pub(super) fn set_trouble(&mut self, secret: ObjectName, text: Option<String>) {
        match text {
            Some(text) => drop(self.troubles.insert(secret, text)),
            None => drop(self.troubles.remove(&secret)),
        }
    }

    /// The issuer that is about to fill a Secret that listeners refer to.
    pub(super) fn awaited(&self, secret: &ObjectName) -> Option<&Arc<str>> {
        self.awaited.get(secret)
    }

    /// Sets who is about to fill a Secret.
    pub(super) fn set_awaited(&mut self, secret: ObjectName, by: Option<Arc<str>>) {
        match by {
            Some(by) => drop(self.awaited.insert(secret, by)),
            None => drop(self.awaited.remove(&secret)),
        }
    }
}
