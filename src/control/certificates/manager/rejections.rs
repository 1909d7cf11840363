//! Certificates that Envoys refuse: passes them on to the keeper.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tracing::warn;

use super::super::request_index::RequestIndex;
use super::CertificateManager;
use gatewright_core::model::ObjectName;

/// A certificate that Envoys refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedCertificate {
    /// Its serial number.
    pub serial: String,
    /// Envoy's message.
    pub text: String,
}

impl CertificateManager {
    /// Takes in the certificates that Envoys refuse, by Secret. Those that no issuer of ours issues
    /// are ignored.
    pub fn refuse(&self, refused: BTreeMap<ObjectName, RejectedCertificate>) {
        let new: BTreeMap<_, _> = refused
            .into_iter()
            .filter(|(secret, refused)| {
                let wanted = self.requests(|requests| {
                    requests.wanted_for(secret, &|issuer| self.resolve(issuer))
                });
                wanted.is_some_and(|want| !self.keeper.knows_refused(&want.id, &refused.serial))
            })
            .collect();
        if !new.is_empty() {
            self.requests(|requests| requests.reject(new));
            self.nudge.send_modify(|n| *n += 1);
        }
    }

    /// Passes them on. Returns whether all are passed on.
    pub(super) async fn pass_on_rejections(&self) -> bool {
        let mut is_done = true;
        for (secret, rejected) in self.requests(RequestIndex::take_rejected) {
            let wanted = self
                .requests(|requests| requests.wanted_for(&secret, &|issuer| self.resolve(issuer)));
            let Some(want) = wanted else { continue };
            if let Err(error) = self
                .keeper
                .refuse(&want, &rejected.serial, &rejected.text, Timestamp::now())
                .await
            {
                warn!(
                    "{secret}: the certificate before one that Envoy refuses cannot be put back now: {error}"
                );
                self.requests(|requests| requests.put_rejected_back(secret, rejected));
                is_done = false;
            }
        }
        is_done
    }
}
