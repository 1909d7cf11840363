//! The work of one term: the desk over the storage, what it hands out, and what is told to everybody.

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
use super::notice::{CHALLENGES, Notice, ROOTS};
use super::{Told, Trade};
use crate::certificates::{Authority, Desk, DeskConfig, Handout};
use crate::model::ObjectName;

/// What failed is tried again after this long.
const AGAIN: Duration = Duration::from_secs(5);

/// Works until the term is over, or `stop`.
pub(super) async fn work(
    client: Client,
    trade: Arc<Trade>,
    mut term: watch::Receiver<Term>,
    out: mpsc::Sender<Told>,
    mut stop: watch::Receiver<bool>,
) {
    let for_storage = term.clone();
    let doing = async {
        let (storage, desk) = open(&client, &trade, &for_storage).await;
        info!("certificates are issued here");
        if out.send(Told::Open(desk.clone())).await.is_err() {
            return;
        }
        let (sender, handed) = mpsc::channel(4);
        // Dropping it loses nothing, so that nobody has to stop it.
        let (_stopper, desk_stop) = watch::channel(false);
        let notices = [CHALLENGES, ROOTS].map(|which| Notice::new(client.clone(), &trade.namespace, which));
        let (waiting, untold) = (BTreeMap::new(), false);
        let taking = Taking { storage, desk: desk.clone(), out: &out, waiting, notices, untold };
        tokio::join!(desk.run(sender, desk_stop), taking.run(handed));
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

async fn open(client: &Client, trade: &Trade, term: &watch::Receiver<Term>) -> (Arc<ObjectStorage>, Arc<Desk>) {
    let mut told = String::new();
    loop {
        match try_open(client, trade, term).await {
            Ok(opened) => return opened,
            Err(text) if text != told => {
                warn!("no certificates are issued: {text}");
                told = text;
            }
            Err(_) => {}
        }
        sleep(AGAIN).await;
    }
}

async fn try_open(
    client: &Client,
    trade: &Trade,
    term: &watch::Receiver<Term>,
) -> Result<(Arc<ObjectStorage>, Arc<Desk>), String> {
    let storage = ObjectStorage::open(client.clone(), &trade.namespace, term.clone()).await;
    let storage = Arc::new(storage.map_err(|error| error.to_string())?);
    let authority = Authority::stored(storage.clone(), Timestamp::now()).await?.within(trade.authority.clone());
    let config = DeskConfig {
        storage: storage.clone(),
        authority: Arc::new(authority),
        issuers: trade.issuers.installed.clone(),
        at_once: trade.at_once,
        places: Some(trade.places.clone()),
        cabinet: Some(storage.clone()),
    };
    let desk = Desk::open(config).await.map_err(|error| error.to_string())?;
    Ok((storage, Arc::new(desk)))
}

/// Takes what the desk hands out.
struct Taking<'a> {
    storage: Arc<ObjectStorage>,
    desk: Arc<Desk>,
    out: &'a mpsc::Sender<Told>,
    /// Certificates that could not be put where they belong, and are held still.
    waiting: BTreeMap<ObjectName, Arc<Stored>>,
    notices: [Notice; 2],
    /// There is something to tell everybody.
    untold: bool,
}

impl Taking<'_> {
    async fn run(mut self, mut handed: mpsc::Receiver<Vec<Handout>>) {
        let mut again = None;
        let mut changes = self.desk.changes();
        loop {
            if self.untold {
                self.untold = !self.tell().await;
            }
            let behind = self.untold || !self.waiting.is_empty();
            again = behind.then(|| again.unwrap_or_else(|| Instant::now() + AGAIN));
            let retry = async {
                match again {
                    Some(again) => sleep_until(again).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                handouts = handed.recv() => match handouts {
                    Some(handouts) => {
                        self.untold = true;
                        self.take(handouts).await;
                    }
                    None => return,
                },
                // The desk holds the sender.
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

    async fn take(&mut self, handouts: Vec<Handout>) {
        let mut troubles = Vec::new();
        for handout in handouts {
            match handout {
                Handout::Certificate(name, Some(stored)) => self.install(name, stored).await,
                Handout::Certificate(name, None) => drop(self.waiting.remove(&name)),
                Handout::Trouble(secret, text) => troubles.push((secret, text)),
                // They are told by account.
                Handout::Challenge(..) => {}
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
        let answers = self.desk.answers(&before);
        let answers = if answers == before {
            challenges.known().to_owned()
        } else {
            serde_json::to_string(&answers).expect("texts")
        };
        let roots = self.desk.authority().bundle(Timestamp::now());
        for (notice, text) in [(challenges, answers), (bundle, roots)] {
            if let Err(failure) = notice.say(&text).await {
                warn!("configmap {}: {failure}", notice.name());
                return false;
            }
        }
        true
    }
}
