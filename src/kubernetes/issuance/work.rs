//! The work of one term of the Lease: the certificate manager on its storage, and the writer of its
//! updates.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until};
use tracing::{info, warn};

use super::super::lease::{Term, leads};
use super::super::storage::ObjectStorage;
use super::lost::AllLost;
use super::published::PublishedConfigMap;
use super::writer::CertificateWriter;
use super::{IssuanceConfig, IssuanceEvent};
use crate::write::worker::RequestCounts;
use gatewright_control::certificates::{Authority, CertificateManager, CertificateManagerConfig};

/// The pause before the storage is opened again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Works until the term ends, or `stop`.
pub(super) async fn work(
    client: Client,
    issuance_config: Arc<IssuanceConfig>,
    mut term: watch::Receiver<Term>,
    all_lost: watch::Receiver<AllLost>,
    out: mpsc::Sender<IssuanceEvent>,
    counts: RequestCounts,
    mut stop: watch::Receiver<bool>,
) {
    let for_storage = term.clone();
    let doing = async {
        let (storage, manager) = open(&client, &issuance_config, &for_storage).await;
        info!("this replica issues certificates now");
        if out
            .send(IssuanceEvent::Started(manager.clone()))
            .await
            .is_err()
        {
            return;
        }
        let (sender, handed) = mpsc::channel(4);
        // The manager may be dropped at any time without losing state, so this channel is never
        // used to stop it.
        let (_stopper, manager_stop) = watch::channel(false);
        let published = PublishedConfigMap::all(&client, &issuance_config.namespace);
        let writer = CertificateWriter::new(storage, manager.clone(), published, counts);
        tokio::join!(
            manager.run(sender, manager_stop),
            writer.run(handed, all_lost, &out)
        );
    };
    tokio::select! {
        () = doing => {}
        () = over(&mut term) => warn!("lost the lease: this replica issues no certificates any more"),
        // An error means that the sender was dropped.
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Waits until the term ends.
async fn over(term: &mut watch::Receiver<Term>) {
    loop {
        let now = *term.borrow_and_update();
        let Some(until) = now.filter(|_| leads(now)) else {
            return;
        };
        tokio::select! {
            () = sleep_until(until) => {}
            changed = term.changed() => if changed.is_err() { return },
        }
    }
}

async fn open(
    client: &Client,
    issuance_config: &IssuanceConfig,
    term: &watch::Receiver<Term>,
) -> (Arc<ObjectStorage>, Arc<CertificateManager>) {
    let mut logged = String::new();
    loop {
        match try_open(client, issuance_config, term).await {
            Ok(opened) => return opened,
            Err(text) if text != logged => {
                warn!("cannot start to issue certificates: {text}");
                logged = text;
            }
            Err(_) => {}
        }
        sleep(RETRY_DELAY).await;
    }
}

async fn try_open(
    client: &Client,
    issuance_config: &IssuanceConfig,
    term: &watch::Receiver<Term>,
) -> Result<(Arc<ObjectStorage>, Arc<CertificateManager>), String> {
    let storage =
        ObjectStorage::open(client.clone(), &issuance_config.namespace, term.clone()).await;
    let storage = Arc::new(storage.map_err(|error| error.to_string())?);
    let authority = Authority::stored(storage.clone(), Timestamp::now())
        .await?
        .within(issuance_config.authority.clone());
    let config = CertificateManagerConfig {
        storage: storage.clone(),
        authority: Arc::new(authority),
        issuers: issuance_config.issuers.installed.clone(),
        at_once: issuance_config.at_once,
        places: Some(issuance_config.places.clone()),
        secret_targets: Some(storage.clone()),
    };
    let manager = CertificateManager::open(config)
        .await
        .map_err(|error| error.to_string())?;
    Ok((storage, Arc::new(manager)))
}
