//! Issuance of certificates by ourselves. The lease holder orders and writes; every replica answers
//! challenges.
//!
//! ```text
//! requests, Secrets as they are ==> CertificateManager (of the holder, for a term) ==> Secrets ==> (watched)
//!    |                                  └══> accounts ==> ConfigMap ==> (watched) ═════════╗
//!    └═══════════════════════════════════════════════════════════════> ChallengeIndex <════╝ ==> answers in Envoy
//! ```

mod lost;
mod published;
mod work;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gatewright_control::tasks::named;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::lease::{Term, leads};
use crate::metrics::Writes;
use crate::write::worker::RequestCounts;
use gatewright_control::certificates::{
    AddressQuery, AuthorityLimits, CertificateManager, ChallengeAccounts, ChallengeIndex,
    ExistingCertificate, ManagerWatch, RejectedCertificate, TenantIssuers, ThumbprintIndex,
    WantedTracker,
};
use gatewright_core::model::ObjectName;
use gatewright_core::pipeline::Pipeline;
use gatewright_core::translate::{Change, Fact};

use lost::AllLost;
pub use published::watch_answers;

/// The configuration of issuance.
pub struct IssuanceConfig {
    /// The namespace that has accounts, orders and internal CAs.
    pub namespace: String,
    /// The ACME issuers of the installation by name, and the settings of tenants' issuers.
    pub issuers: TenantIssuers,
    /// The domains for which there are internal CAs.
    pub authority: AuthorityLimits,
    /// The maximum number of concurrent orders.
    pub at_once: usize,
    /// The channel to the task that knows at which addresses hosts are served.
    pub places: mpsc::Sender<AddressQuery>,
}

/// An event of the work of a term.
pub(super) enum IssuanceEvent {
    /// The certificate manager has started.
    Started(Arc<CertificateManager>),
    /// The reasons for which Secrets have no certificate yet; `None` for a reason that no longer
    /// holds.
    Troubles(Vec<(ObjectName, Option<String>)>),
    /// The term has ended.
    Ended,
}

/// The part of issuance that runs on every replica, and starts the work of a term.
pub struct Issuance {
    client: Client,
    issuance_config: Arc<IssuanceConfig>,
    term: watch::Receiver<Term>,
    wanted_tracker: WantedTracker,
    challenge_index: ChallengeIndex,
    /// The thumbprints that answer challenges, shared with local readers.
    thumbprint_index: Arc<ThumbprintIndex>,
    /// The certificate manager while it runs, for readers of its state.
    manager: watch::Sender<Option<Arc<CertificateManager>>>,
    /// True while a certificate is wanted or to be withdrawn: only then the manager runs.
    has_work: watch::Sender<bool>,
    /// The certificates in the Secrets that are wanted.
    present: BTreeMap<ObjectName, ExistingCertificate>,
    /// The certificates to be withdrawn.
    lost: watch::Sender<AllLost>,
    /// The Secrets with a reported problem.
    troubled: BTreeSet<ObjectName>,
    events: (mpsc::Sender<IssuanceEvent>, mpsc::Receiver<IssuanceEvent>),
    /// Counters of the requests of the writers of all terms.
    counts: RequestCounts,
    work: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Issuance {
    /// Creates the state in which nothing is wanted.
    pub fn new(
        client: Client,
        issuance_config: IssuanceConfig,
        term: watch::Receiver<Term>,
    ) -> Self {
        Self {
            client,
            wanted_tracker: WantedTracker::new(issuance_config.issuers.clone()),
            issuance_config: Arc::new(issuance_config),
            term,
            challenge_index: ChallengeIndex::default(),
            thumbprint_index: Arc::default(),
            manager: watch::channel(None).0,
            has_work: watch::channel(false).0,
            present: BTreeMap::new(),
            lost: watch::Sender::default(),
            troubled: BTreeSet::new(),
            events: mpsc::channel(16),
            counts: RequestCounts::default(),
            work: JoinSet::new(),
            stop: watch::channel(false).0,
        }
    }

    /// Returns the index of thumbprints that answer challenges.
    pub fn thumbprint_index(&self) -> Arc<ThumbprintIndex> {
        self.thumbprint_index.clone()
    }

    /// Returns where the certificate manager is found while it runs here.
    pub fn manager(&self) -> ManagerWatch {
        ManagerWatch::new(self.manager.subscribe(), self.has_work.subscribe())
    }

    /// Returns the number of writes of the certificate writer that were started, and of failures by
    /// class.
    pub(super) fn metrics(&self) -> Writes {
        self.counts.read()
    }

    /// Takes in the Secrets whose wanted certificate may have changed, and the Secrets that have
    /// changed themselves.
    pub(super) fn change(
        &mut self,
        pipeline: &Pipeline,
        wanted: BTreeSet<ObjectName>,
        secrets: BTreeSet<ObjectName>,
    ) -> Vec<Change> {
        let changes = self
            .wanted_tracker
            .changes(pipeline, wanted, secrets.iter().cloned());
        self.challenge_index.change(changes.iter().cloned());
        let touched: BTreeSet<ObjectName> = secrets
            .into_iter()
            .chain(changes.iter().map(|(name, _)| name.clone()))
            .collect();
        let mut present = Vec::new();
        for name in touched {
            let wanted = self.challenge_index.want(&name).is_some();
            let lost = if wanted {
                None
            } else {
                lost::lost(pipeline, &name)
            };
            self.lost.send_if_modified(|all| match lost {
                Some(lost) => all.insert(name.clone(), lost.clone()).as_ref() != Some(&lost),
                None => all.remove(&name).is_some(),
            });
            let secret = pipeline.engine().store().secret(&name).filter(|_| wanted);
            let now = secret.and_then(|secret| {
                let certificate = secret.certificate.as_ref().ok()?.clone();
                Some(ExistingCertificate {
                    certificate,
                    issued_by: secret.issued_by.clone(),
                })
            });
            let before = match &now {
                Some(now) => self.present.insert(name.clone(), now.clone()),
                None => self.present.remove(&name),
            };
            if before != now {
                present.push((name, now));
            }
        }
        if let Some(manager) = &*self.manager.borrow() {
            manager.present(present);
            manager.change(changes);
        }
        self.lead();
        self.answers()
    }

    /// Takes in the certificates that Envoys refuse, by Secret.
    pub(super) fn refuse(&self, refused: BTreeMap<ObjectName, RejectedCertificate>) {
        if let Some(manager) = &*self.manager.borrow() {
            manager.refuse(refused);
        }
    }

    /// Returns the Secrets with credentials of DNS providers that issuers use.
    pub(super) fn credentials(&self) -> BTreeSet<ObjectName> {
        self.wanted_tracker.credentials().cloned().collect()
    }

    /// Starts the work of a term if we hold the Lease and a certificate is wanted or to be
    /// withdrawn.
    pub(super) fn lead(&mut self) {
        let has_work = self.challenge_index.has_wanted() || !self.lost.borrow().is_empty();
        self.has_work
            .send_if_modified(|before| std::mem::replace(before, has_work) != has_work);
        if !self.work.is_empty() || !leads(*self.term.borrow()) || !has_work {
            return;
        }
        let client = self.client.clone();
        let issuance_config = self.issuance_config.clone();
        let term = self.term.clone();
        let out = self.events.0.clone();
        let lost = self.lost.subscribe();
        let stop = self.stop.subscribe();
        let counts = self.counts.clone();
        let work = work::work(client, issuance_config, term, lost, out, counts, stop);
        self.work.spawn(named("certificates of a term", work));
    }

    /// Takes in which ACME accounts answer challenges, as the lease holder published it.
    pub(super) fn take_answers(&mut self, answers: ChallengeAccounts) -> Vec<Change> {
        self.challenge_index.take_in(answers);
        self.answers()
    }

    fn answers(&mut self) -> Vec<Change> {
        let changes = self.challenge_index.changes().into_iter();
        let facts = changes.map(|(asked, answer)| {
            self.thumbprint_index.set(&asked, answer.as_ref());
            Change::Fact(Fact::Challenge(asked, answer))
        });
        facts.collect()
    }

    /// Waits for an event of the work, or its end.
    pub(super) async fn next(&mut self) -> IssuanceEvent {
        let over = async {
            match self.work.join_next().await {
                Some(ended) => ended.expect("the work does not panic and is not aborted"),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = self.events.1.recv() => event.expect("we hold a sender"),
            () = over => IssuanceEvent::Ended,
        }
    }

    /// Takes in an event of the work.
    pub(super) fn take_in(&mut self, event: IssuanceEvent) -> Vec<Change> {
        match event {
            IssuanceEvent::Started(manager) => {
                manager.present(
                    self.present
                        .iter()
                        .map(|(name, present)| (name.clone(), Some(present.clone()))),
                );
                manager.want(self.challenge_index.wants());
                self.manager.send_replace(Some(manager));
                Vec::new()
            }
            IssuanceEvent::Troubles(troubles) => troubles
                .into_iter()
                .map(|(secret, text)| {
                    match &text {
                        Some(_) => self.troubled.insert(secret.clone()),
                        None => self.troubled.remove(&secret),
                    };
                    Change::Fact(Fact::IssuanceProblem(secret, text))
                })
                .collect(),
            IssuanceEvent::Ended => {
                self.manager.send_replace(None);
                self.lead();
                std::mem::take(&mut self.troubled)
                    .into_iter()
                    .map(|secret| Change::Fact(Fact::IssuanceProblem(secret, None)))
                    .collect()
            }
        }
    }

    /// Stops the work and waits for its end.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        self.manager.send_replace(None);
        // The channel is closed, so that the work does not block on sending.
        self.events.1.close();
        while self.work.join_next().await.is_some() {}
    }
}
