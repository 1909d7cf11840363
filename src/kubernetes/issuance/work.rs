//! The work of one term: the certificate manager over the storage, what it hands out, and what is published to all replicas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use acme::keeper::Stored;
use acme::storage::StorageError;
use jiff::Timestamp;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::super::lease::{Term, leads};
use super::super::storage::ObjectStorage;
use super::lost::{self, AllLost};
use super::published::{CHALLENGES, PublishedConfigMap, ROOTS};
use super::{IssuanceConfig, Told};
use gatewright_control::certificates::{Authority, CertificateManager, CertificateManagerConfig, CertificateUpdate};
use gatewright_core::model::ObjectName;

/// What failed is tried again after this long.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Works until the term is over, or `stop`.
pub(super) async fn work(
    client: Client,
    issuance_config: Arc<IssuanceConfig>,
    mut term: watch::Receiver<Term>,
    all_lost: watch::Receiver<AllLost>,
    out: mpsc::Sender<Told>,
    mut stop: watch::Receiver<bool>,
) {
    let for_storage = term.clone();
    let doing = async {
        let (storage, manager) = open(&client, &issuance_config, &for_storage).await;
        info!("certificates are issued here");
        if out.send(Told::Open(manager.clone())).await.is_err() {
            return;
        }
        let (sender, handed) = mpsc::channel(4);
        // Dropping it loses nothing, so that nobody has to stop it.
        let (_stopper, desk_stop) = watch::channel(false);
        let notices =
            [CHALLENGES, ROOTS].map(|which| PublishedConfigMap::new(client.clone(), &issuance_config.namespace, which));
        let (waiting, untold) = (BTreeMap::new(), false);
        let withdrawing = lost::withdraw(&storage, all_lost);
        let taking = Taking { storage: storage.clone(), manager: manager.clone(), out: &out, waiting, notices, untold };
        tokio::join!(manager.run(sender, desk_stop), taking.run(handed), withdrawing);
    };
    tokio::select! {
        () = doing => {}
        () = over(&mut term) => warn!("certificates are not issued here any more: the lease went to another replica"),
        // An error means that whoever could stop us is gone.
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Waits until the term is over.
async fn over(term: &mut watch::Receiver<Term>) {
    loop {
        let now = *term.borrow_and_update();
        let Some(until) = now.filter(|_| leads(now)) else { return };
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
    let mut told = String::new();
    loop {
        match try_open(client, issuance_config, term).await {
            Ok(opened) => return opened,
            Err(text) if text != told => {
                warn!("no certificates are issued: {text}");
                told = text;
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
    let storage = ObjectStorage::open(client.clone(), &issuance_config.namespace, term.clone()).await;
    let storage = Arc::new(storage.map_err(|error| error.to_string())?);
    let authority =
        Authority::stored(storage.clone(), Timestamp::now()).await?.within(issuance_config.authority.clone());
    let config = CertificateManagerConfig {
        storage: storage.clone(),
        authority: Arc::new(authority),
        issuers: issuance_config.issuers.installed.clone(),
        at_once: issuance_config.at_once,
        places: Some(issuance_config.places.clone()),
        secret_targets: Some(storage.clone()),
    };
    let manager = CertificateManager::open(config).await.map_err(|error| error.to_string())?;
    Ok((storage, Arc::new(manager)))
}

/// Takes what the certificate manager hands out.
struct Taking<'a> {
    storage: Arc<ObjectStorage>,
    manager: Arc<CertificateManager>,
    out: &'a mpsc::Sender<Told>,
    /// Certificates that could not be put where they belong, and are held still.
    waiting: BTreeMap<ObjectName, Arc<Stored>>,
    notices: [PublishedConfigMap; 2],
    /// There is something to tell everybody.
    untold: bool,
}

impl Taking<'_> {
    async fn run(mut self, mut handed: mpsc::Receiver<Vec<CertificateUpdate>>) {
        let mut again = None;
        let mut changes = self.manager.changes();
        loop {
            if self.untold {
                self.untold = !self.tell().await;
            }
            let behind = self.untold || !self.waiting.is_empty();
            again = behind.then(|| again.unwrap_or_else(|| Instant::now() + RETRY_DELAY));
            let retry = async {
                match again {
                    Some(again) => sleep_until(again).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                certificate_updates = handed.recv() => match certificate_updates {
                    Some(certificate_updates) => {
                        self.untold = true;
                        self.take(certificate_updates).await;
                    }
                    None => return,
                },
                // The certificate manager holds the sender.
                _ = changes.changed() => self.untold = true,
                () = retry => {
                    again = None;
                    for (name, stored) in std::mem::take(&mut self.waiting) {
                        self.install(name, stored).await;
                    }
                }
            }
        }
    }

    async fn take(&mut self, certificate_updates: Vec<CertificateUpdate>) {
        let mut troubles = Vec::new();
        for update in certificate_updates {
            match update {
                CertificateUpdate::Certificate(name, Some(stored)) => self.install(name, stored).await,
                CertificateUpdate::Certificate(name, None) => drop(self.waiting.remove(&name)),
                CertificateUpdate::Trouble(secret, text) => troubles.push((secret, text)),
                // They are told by account.
                CertificateUpdate::Challenge(..) => {}
            }
        }
        if !troubles.is_empty() {
            // Whoever listened may be ending.
            let _ = self.out.send(Told::Troubles(troubles)).await;
        }
    }

    /// Puts a certificate that is held where it is missing: it covers a name that came later, or the Secret was deleted.
    async fn install(&mut self, name: ObjectName, stored: Arc<Stored>) {
        match self.storage.install(&name, &stored).await {
            Ok(()) => drop(self.waiting.remove(&name)),
            Err(error @ StorageError::Foreign { .. }) => {
                warn!("{error}");
                self.waiting.remove(&name);
            }
            Err(error) => {
                if self.waiting.insert(name, stored).is_none() {
                    warn!("{error}");
                }
            }
        }
    }

    /// Tells everybody what there is to tell. Whether that is done.
    async fn tell(&mut self) -> bool {
        let [challenges, bundle] = &mut self.notices;
        let before = match challenges.read().await {
            Ok(text) => serde_json::from_str(text).unwrap_or_default(),
            Err(failure) => {
                warn!("configmap {}: {failure}", challenges.name());
                return false;
            }
        };
        // Issuers that are being set up answer as they did.
        let answers = self.manager.answers(&before);
        let answers = if answers == before {
            challenges.known().to_owned()
        } else {
            serde_json::to_string(&answers).expect("texts")
        };
        let roots = self.manager.authority().bundle(Timestamp::now());
        for (notice, text) in [(challenges, answers), (bundle, roots)] {
            if let Err(failure) = notice.say(&text).await {
                warn!("configmap {}: {failure}", notice.name());
                return false;
            }
        }
        true
    }
}
