//! The certificate manager of a replica, as readers of its state find it.

use std::sync::Arc;

use tokio::sync::watch;

use super::manager::CertificateManager;
use super::report::Report;

/// The certificate manager while it runs here, and whether one is needed.
#[derive(Clone)]
pub struct ManagerWatch {
    manager: watch::Receiver<Option<Arc<CertificateManager>>>,
    /// True while a certificate is wanted or to be withdrawn.
    has_work: watch::Receiver<bool>,
}

impl ManagerWatch {
    /// Creates it from the channels of whoever starts and ends managers.
    pub fn new(
        manager: watch::Receiver<Option<Arc<CertificateManager>>>,
        has_work: watch::Receiver<bool>,
    ) -> Self {
        Self { manager, has_work }
    }

    /// A manager that runs as long as the program.
    pub fn always(manager: Arc<CertificateManager>) -> Self {
        Self::new(watch::channel(Some(manager)).1, watch::channel(true).1)
    }

    /// Returns the manager; `None` while none runs here.
    pub fn manager(&self) -> Option<Arc<CertificateManager>> {
        self.manager.borrow().clone()
    }

    /// Returns its report, which has no certificate where none is wanted; `None` while it starts, or
    /// runs elsewhere.
    pub fn report(&self) -> Option<Report> {
        match self.manager() {
            Some(manager) => Some(manager.tell()),
            None => (!*self.has_work.borrow()).then(Report::default),
        }
    }
}
