//! The set of wanted certificates, written by the embedding program and read by the keeper.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::watch;

use crate::issuer::CertificateId;
use crate::plan::Wanted;

/// The wanted certificates, by stable name. The cost of a change does not depend on the size of the
/// set.
pub struct WantedCertificates {
    all: RwLock<BTreeMap<CertificateId, Wanted>>,
    generation: watch::Sender<u64>,
}

impl Default for WantedCertificates {
    fn default() -> Self {
        Self {
            all: RwLock::default(),
            generation: watch::channel(0).0,
        }
    }
}

impl WantedCertificates {
    /// Adds, changes or (with None) removes wanted certificates; notifies the keeper if something
    /// changed.
    pub fn change(&self, changes: impl IntoIterator<Item = (CertificateId, Option<Wanted>)>) {
        let mut changed = false;
        {
            let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
            for (id, wanted) in changes {
                changed |= match wanted {
                    Some(wanted) => {
                        all.get(&id) != Some(&wanted) && {
                            all.insert(id, wanted);
                            true
                        }
                    }
                    None => all.remove(&id).is_some(),
                };
            }
        }
        if changed {
            self.generation.send_modify(|n| *n += 1);
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, BTreeMap<CertificateId, Wanted>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }
}
