//! Certificates of ours that nobody is to keep: every listener that has the Secret lost its hostname to another namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::super::storage::ObjectStorage;
use gatewright_core::inputs::CERT_MANAGER;
use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::pipeline::Pipeline;

/// What failed is tried again after this long.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// A certificate that is to be withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    hostnames: BTreeSet<Hostname>,
    serial: Arc<str>,
}

/// All of them, by the Secret.
pub(super) type AllLost = BTreeMap<ObjectName, Lost>;

/// The certificate in a Secret, if it is to be withdrawn. Where a Secret is wanted, none is.
pub(super) fn lost(pipeline: &Pipeline, name: &ObjectName) -> Option<Lost> {
    let secret = pipeline.engine().store().secret(name)?;
    let certificate = secret.certificate.as_ref().ok()?;
    secret.issued_by.as_deref().filter(|by| *by != CERT_MANAGER)?;
    let hostnames = pipeline.engine().lost_hostnames(name);
    (!hostnames.is_empty()).then(|| Lost { hostnames, serial: certificate.serial().into() })
}

/// Withdraws what is lost, as long as it is polled. That it is gone comes back by being watched.
pub(super) async fn withdraw(storage: &ObjectStorage, mut all: watch::Receiver<AllLost>) {
    let mut done = AllLost::new();
    let mut told = BTreeMap::new();
    loop {
        let now = all.borrow_and_update().clone();
        done.retain(|name, lost| now.get(name) == Some(lost));
        told.retain(|name, _| now.contains_key(name));
        for (name, lost) in now {
            if done.contains_key(&name) {
                continue;
            }
            let hostnames: Vec<&str> = lost.hostnames.iter().map(Hostname::as_str).collect();
            let why = format!("another namespace owns {}", hostnames.join(", "));
            match storage.withdraw(&name, &lost.serial, &why).await {
                Ok(was_there) => {
                    if was_there {
                        info!("the certificate in secret {name} is withdrawn: {why}");
                    }
                    done.insert(name, lost);
                }
                Err(error) => {
                    let text = error.to_string();
                    if told.get(&name) != Some(&text) {
                        warn!("{text}");
                        told.insert(name, text);
                    }
                }
            }
        }
        let is_behind = all.borrow().keys().any(|name| !done.contains_key(name));
        tokio::select! {
            changed = all.changed() => if changed.is_err() { return std::future::pending().await },
            () = sleep(RETRY_DELAY), if is_behind => {}
        }
    }
}
