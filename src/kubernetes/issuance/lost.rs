//! Certificates of ours that must be withdrawn: every listener that refers to the Secret lost its
//! hostname to another namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatewright_core::inputs::CERT_MANAGER;
use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::pipeline::Pipeline;

/// A certificate to be withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    hostnames: BTreeSet<Hostname>,
    /// The serial number of the certificate.
    pub(super) serial: Arc<str>,
}

impl Lost {
    /// Creates one for these hostnames.
    #[cfg(test)]
    pub(super) fn of(hostnames: &[&str], serial: &str) -> Self {
        let hostnames = hostnames
            .iter()
            .map(|hostname| Hostname::parse(hostname).expect("a hostname"))
            .collect();
        Self {
            hostnames,
            serial: serial.into(),
        }
    }

    /// Returns the reason of the withdrawal, for the log.
    pub(super) fn why(&self) -> String {
        let hostnames: Vec<&str> = self.hostnames.iter().map(Hostname::as_str).collect();
        format!("another namespace owns {}", hostnames.join(", "))
    }
}

/// All certificates to be withdrawn, by Secret.
pub(super) type AllLost = BTreeMap<ObjectName, Lost>;

/// Returns the certificate in a Secret, if it must be withdrawn; `None` where a listener still
/// wants the Secret.
pub(super) fn lost(pipeline: &Pipeline, name: &ObjectName) -> Option<Lost> {
    let secret = pipeline.engine().store().secret(name)?;
    let certificate = secret.certificate.as_ref().ok()?;
    secret
        .issued_by
        .as_deref()
        .filter(|by| *by != CERT_MANAGER)?;
    let hostnames = pipeline.engine().lost_hostnames(name);
    (!hostnames.is_empty()).then(|| Lost {
        hostnames,
        serial: certificate.serial().into(),
    })
}
