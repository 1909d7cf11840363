//! Certificates that we issue ourselves. The holder of the Lease orders and writes; every replica answers challenges.
//!
//! ```text
//! wishes, Secrets as they are ==> Desk (of the holder, for a term) ==> Secrets ==> (watched)
//!    |                                  └══> who answers ==> ConfigMap ==> (watched) ═╗
//!    └═══════════════════════════════════════════════════════════════> Follower <════╝ ==> answers in Envoy
//! ```

mod notice;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::lease::{Term, leads};
use crate::certificates::{Answered, Answers, AuthorityLimits, Desk, Follower, Present, TenantIssuers, Where, Wishing};
use crate::model::ObjectName;
use crate::pipeline::Pipeline;
use crate::translate::Change;

pub use notice::watch_answers;

/// How certificates are issued.
pub struct Trade {
    /// Where accounts, orders and internal CAs are kept.
    pub namespace: String,
    /// The ACME issuers of the installation, by name, and what holds for those of tenants.
    pub issuers: TenantIssuers,
    /// For which domains there are internal CAs.
    pub authority: AuthorityLimits,
    /// How many orders may be on their way at a time.
    pub at_once: usize,
    /// Who knows where hosts are served.
    pub places: mpsc::Sender<Where>,
}

/// What the work of a term tells.
pub(super) enum Told {
    /// The desk is open.
    Open(Arc<Desk>),
    /// Why Secrets have no certificate yet.
    Troubles(Vec<(ObjectName, Option<String>)>),
    /// The term is over.
    Over,
}

/// What one replica does for certificates.
pub struct Issuance {
    client: Client,
    trade: Arc<Trade>,
    term: watch::Receiver<Term>,
    wishing: Wishing,
    follower: Follower,
    /// How hosts are answered for, for those who ask here.
    answered: Arc<Answered>,
    /// The desk, for those who look.
    desk: watch::Sender<Option<Arc<Desk>>>,
    /// What is in the Secrets that are wished for.
    present: BTreeMap<ObjectName, Present>,
    /// Those whose trouble was told.
    troubled: BTreeSet<ObjectName>,
    told: (mpsc::Sender<Told>, mpsc::Receiver<Told>),
    work: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Issuance {
    /// Nothing wished for yet.
    pub fn new(client: Client, trade: Trade, term: watch::Receiver<Term>) -> Self {
        Self {
            client,
            wishing: Wishing::new(trade.issuers.clone()),
            trade: Arc::new(trade),
            term,
            follower: Follower::default(),
            answered: Arc::default(),
            desk: watch::channel(None).0,
            present: BTreeMap::new(),
            troubled: BTreeSet::new(),
            told: mpsc::channel(16),
            work: JoinSet::new(),
            stop: watch::channel(false).0,
        }
    }

    /// How hosts are answered for.
    pub fn answered(&self) -> Arc<Answered> {
        self.answered.clone()
    }

    /// The desk, while there is one here.
    pub fn desk(&self) -> watch::Receiver<Option<Arc<Desk>>> {
        self.desk.subscribe()
    }

    /// Takes in that something else may be wished for some Secrets, and that others are different from before.
    pub(super) fn change(
        &mut self,
        pipeline: &Pipeline,
        wished: BTreeSet<ObjectName>,
        secrets: BTreeSet<ObjectName>,
    ) -> Vec<Change> {
        let changes = self.wishing.changes(pipeline, wished, secrets.iter().cloned());
        self.follower.change(changes.iter().cloned());
        let touched: BTreeSet<ObjectName> =
            secrets.into_iter().chain(changes.iter().map(|(name, _)| name.clone())).collect();
        let mut present = Vec::new();
        for name in touched {
            let wanted = self.follower.wish(&name).is_some();
            let secret = pipeline.engine().store().secret(&name).filter(|_| wanted);
            let now = secret.and_then(|secret| {
                let certificate = secret.certificate.as_ref().ok()?.clone();
                Some(Present { certificate, issued_by: secret.issued_by.clone() })
            });
            let before = match &now {
                Some(now) => self.present.insert(name.clone(), now.clone()),
                None => self.present.remove(&name),
            };
            if before != now {
                present.push((name, now));
            }
        }
        if let Some(desk) = &*self.desk.borrow() {
            desk.present(present);
            desk.change(changes);
        }
        self.lead();
        self.answers()
    }

    /// The Secrets with credentials of DNS providers that issuers use.
    pub(super) fn credentials(&self) -> BTreeSet<ObjectName> {
        self.wishing.credentials().cloned().collect()
    }

    /// Begins to work when we hold the Lease and something is wished for.
    pub(super) fn lead(&mut self) {
        if !self.work.is_empty() || !leads(*self.term.borrow()) || !self.follower.has_wishes() {
            return;
        }
        let (client, trade, term) = (self.client.clone(), self.trade.clone(), self.term.clone());
        self.work.spawn(work::work(client, trade, term, self.told.0.clone(), self.stop.subscribe()));
    }

    /// Takes in who answers challenges.
    pub(super) fn take_answers(&mut self, answers: Answers) -> Vec<Change> {
        self.follower.take_in(answers);
        self.answers()
    }

    fn answers(&mut self) -> Vec<Change> {
        let changes = self.follower.changes().into_iter();
        let told = changes.map(|(asked, answer)| {
            self.answered.set(&asked, answer.as_ref());
            Change::Challenge(asked, answer)
        });
        told.collect()
    }

    /// Waits for what the work tells, or its end.
    pub(super) async fn next(&mut self) -> Told {
        let over = async {
            match self.work.join_next().await {
                Some(ended) => ended.expect("the work does not panic and is not aborted"),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            told = self.told.1.recv() => told.expect("we hold a sender"),
            () = over => Told::Over,
        }
    }

    /// Takes in what the work tells.
    pub(super) fn take_in(&mut self, told: Told) -> Vec<Change> {
        match told {
            Told::Open(desk) => {
                desk.present(self.present.iter().map(|(name, present)| (name.clone(), Some(present.clone()))));
                desk.wish(self.follower.wishes());
                self.desk.send_replace(Some(desk));
                Vec::new()
            }
            Told::Troubles(troubles) => {
                let change = |(secret, text): (ObjectName, Option<String>)| {
                    match &text {
                        Some(_) => self.troubled.insert(secret.clone()),
                        None => self.troubled.remove(&secret),
                    };
                    Change::Trouble(secret, text)
                };
                troubles.into_iter().map(change).collect()
            }
            Told::Over => {
                self.desk.send_replace(None);
                self.lead();
                std::mem::take(&mut self.troubled).into_iter().map(|secret| Change::Trouble(secret, None)).collect()
            }
        }
    }

    /// Ends the work.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        self.desk.send_replace(None);
        // Whoever still has something to tell is not waited for.
        self.told.1.close();
        while self.work.join_next().await.is_some() {}
    }
}
