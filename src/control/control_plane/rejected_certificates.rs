//! The certificates that Envoys refuse to load.

use std::collections::BTreeMap;

use xds::Kind;

use super::ControlPlane;
use crate::certificates::RejectedCertificate;
use gatewright_core::model::ObjectName;

impl ControlPlane {
    /// Returns the certificates that Envoys refuse and that are published at present, by Secret.
    pub fn rejected_certificates(&mut self) -> BTreeMap<ObjectName, RejectedCertificate> {
        let rejected = self.fleet().rejected;
        if rejected.secrets.is_empty() {
            return BTreeMap::new();
        }
        let progress = self.progress();
        // An Envoy that has not answered yet is known to refuse the version before.
        let present: Vec<_> = self
            .rejections(&progress)
            .filter(|r| r.kind == Kind::Secret)
            .filter(|r| {
                self.cache
                    .get(&r.view, r.kind, &r.name)
                    .is_some_and(|now| now.version() == &*r.version)
            })
            .map(|r| (&r.view, &*r.name))
            .collect();
        let present = rejected
            .secrets
            .iter()
            .filter(|(_, secret)| present.contains(&(&secret.view, &*secret.name)));
        present
            .filter_map(|(listener, secret)| {
                let (name, certificate) = self.engine().served_by(listener)?;
                Some((
                    name,
                    RejectedCertificate {
                        serial: certificate.serial(),
                        text: secret.text.clone(),
                    },
                ))
            })
            .collect()
    }
}
