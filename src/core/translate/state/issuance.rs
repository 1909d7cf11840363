//! Certificates that do not exist yet, or are not renewed: their issuers, and the reasons.

use std::collections::BTreeMap;
use std::sync::Arc;

use gatewright_objects::model::ObjectName;

/// Why certificates do not exist yet or are not renewed, and which issuers are about to issue them,
/// by Secret.
#[derive(Default)]
pub(crate) struct Issuance {
    troubles: BTreeMap<ObjectName, String>,
    awaited: BTreeMap<ObjectName, Arc<str>>,
}

impl Issuance {
    /// Why a wanted certificate does not exist yet, or is not renewed.
    pub(crate) fn trouble(&self, secret: &ObjectName) -> Option<&str> {
        self.troubles.get(secret).map(String::as_str)
    }

    /// Sets why a certificate does not exist yet, or is not renewed.
    pub(crate) fn set_trouble(&mut self, secret: ObjectName, text: Option<String>) {
        match text {
            Some(text) => {
                self.troubles.insert(secret, text);
            }
            None => {
                self.troubles.remove(&secret);
            }
        }
    }

    /// The issuer that is about to store a certificate in a Secret that listeners refer to.
    pub(crate) fn awaited(&self, secret: &ObjectName) -> Option<&Arc<str>> {
        self.awaited.get(secret)
    }

    /// Sets the issuer that is about to store a certificate in a Secret.
    pub(crate) fn set_awaited(&mut self, secret: ObjectName, by: Option<Arc<str>>) {
        match by {
            Some(by) => {
                self.awaited.insert(secret, by);
            }
            None => {
                self.awaited.remove(&secret);
            }
        }
    }
}
