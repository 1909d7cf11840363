//! An attempt at an order: what is written down of it, its turn to talk to the CA, and what it has left to undo.

use jiff::Timestamp;
use tokio::sync::SemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::problem::of_protocol;
use super::record::{OrderRecord, remove_traces};
use super::{AcmeIssuer, of_storage};
use crate::account::Account;
use crate::budget::Exempt;
use crate::certificate::IssuedCertificate;
use crate::client::Handle;
use crate::failure::{Class, Failure};
use crate::issuer::IssueRequest;
use crate::key::PrivateKeyPem;
use crate::storage::StorageError;

/// Repeats a call whose nonce the CA refused; the protocol crate itself tries three times.
macro_rules! renonce {
    ($call:expr) => {{
        let mut tries = 6;
        loop {
            match $call {
                Err(error) if tries > 0 && $crate::engine::problem::is_bad_nonce(&error) => tries -= 1,
                other => break other,
            }
        }
    }};
}
pub(super) use renonce;

/// An attempt, holding the order's lock.
pub(super) struct OrderAttempt<'a> {
    pub(super) issuer: &'a AcmeIssuer,
    pub(super) account: &'a Account,
    pub(super) protocol: instant_acme::Account,
    pub(super) handle: Handle,
    pub(super) record: OrderRecord,
    /// Challenges that are being answered by HTTP or TLS: name and token.
    pub(super) answering: Vec<(String, String)>,
    pub(super) request: &'a IssueRequest,
    pub(super) started: Instant,
    /// What is written down is what `record` says.
    pub(super) written: bool,
    /// Our turn to talk to the CA, while we have it.
    turn: Option<SemaphorePermit<'a>>,
    /// What is being forced to the disk while the CA is talked to.
    settling: JoinSet<Result<(), StorageError>>,
}

impl<'a> OrderAttempt<'a> {
    /// Takes up the order that is written down, if it is the one asked for, else begins one.
    pub(super) async fn start(
        issuer: &'a AcmeIssuer,
        account: &'a Account,
        request: &'a IssueRequest,
    ) -> Result<Self, Failure> {
        let key = issuer.order_key(&request.id);
        let profile = profile(issuer).await?;
        let read = super::record::read(issuer, &key).await?;
        let mut traces = Vec::new();
        let record = match read {
            Some(record) if record.continues(request, profile.as_deref()) => record,
            other => {
                if let Some(old) = other {
                    traces = remove_traces(issuer, old.txt).await;
                }
                let key_pem = PrivateKeyPem::generate_p256()
                    .map_err(|e| Failure::new(Class::Bug, format!("issuer {}: {e}", issuer.config.name)))?;
                OrderRecord {
                    id: request.id.clone(),
                    issuer: issuer.config.name.clone(),
                    names: request.names.clone(),
                    profile,
                    key: key_pem,
                    replaces: request.replaces.clone(),
                    charged: false,
                    url: None,
                    txt: traces,
                    downloaded: None,
                    over: false,
                    lost: 0,
                    since: request.now,
                }
            }
        };
        let (protocol, handle) =
            account.protocol().await.map_err(|e| of_protocol(issuer, &e, None, None, Timestamp::now()))?;
        let started = Instant::now();
        Ok(Self {
            issuer,
            account,
            protocol,
            handle,
            record,
            answering: Vec::new(),
            request,
            started,
            written: false,
            turn: None,
            settling: JoinSet::new(),
        })
    }

    /// Writes what an answer of the CA changed. What is lost with a failing disk the CA says again.
    pub(super) async fn write_budget(&self) {
        let now = Timestamp::now();
        let traffic = self.issuer.http.traffic();
        let written = futures::join!(self.issuer.write_budget(now), traffic.save(&*self.issuer.storage, now));
        if let Err(error) = written.0.and(written.1) {
            tracing::warn!(issuer = self.issuer.config.name, %error, "the budget could not be written");
        }
    }

    /// Waits for our turn to talk to the CA.
    pub(super) async fn take_turn(&mut self) {
        self.turn = Some(self.issuer.turns.acquire().await.expect("nobody closes it"));
    }

    /// Lets others talk to the CA, while we wait for something else.
    pub(super) fn give_turn(&mut self) {
        self.turn = None;
    }

    pub(super) async fn save_if_changed(&mut self) -> Result<(), Failure> {
        if !self.written {
            self.save().await?;
            self.written = true;
        }
        Ok(())
    }

    pub(super) async fn save(&self) -> Result<(), Failure> {
        super::record::write(self.issuer, &self.record).await
    }

    /// Waits until what is written down survives the loss of the machine's power: before a step that spends budget.
    pub(super) async fn settle(&self) -> Result<(), Failure> {
        let key = self.issuer.order_key(&self.record.id);
        self.issuer.storage.settle(&key).await.map_err(|e| of_storage(&e))
    }

    /// Begins to force what is written down to the disk, while the CA is talked to.
    pub(super) fn begin_to_settle(&mut self) {
        let (storage, key) = (self.issuer.storage.clone(), self.issuer.order_key(&self.record.id));
        self.settling.spawn(async move { storage.settle(&key).await });
    }

    /// Waits until all that is written down is on the disk. Who has to wait lets others talk to the CA.
    pub(super) async fn settled(&mut self) -> Result<(), Failure> {
        while !self.settling.is_empty() {
            let ended = match self.settling.try_join_next() {
                Some(ended) => Some(ended),
                None => {
                    self.give_turn();
                    self.settling.join_next().await
                }
            };
            ended.expect("one is under way").expect("nobody ends it").map_err(|e| of_storage(&e))?;
        }
        // What was written since.
        self.settle().await?;
        if self.turn.is_none() {
            self.take_turn().await;
        }
        Ok(())
    }

    pub(super) fn failed(&self, error: &instant_acme::Error) -> Failure {
        let exchange = self.handle.last();
        of_protocol(self.issuer, error, Some(&exchange), Some(&self.record.names), Timestamp::now())
    }

    pub(super) fn exempt(&self) -> Exempt {
        self.request.exempt
    }
}

impl OrderRecord {
    /// Is this the order a request is about, and not one that ended or got what is to be replaced?
    fn continues(&self, request: &IssueRequest, profile: Option<&str>) -> bool {
        if self.over || self.names != request.names || self.profile.as_deref() != profile {
            return false;
        }
        let Some(chain) = &self.downloaded else { return true };
        // Downloaded, but never said to be installed: it is given again, unless it is what the caller holds.
        match IssuedCertificate::read(chain.clone(), self.key.clone(), &self.issuer) {
            Err(_) => false,
            Ok(c) => {
                (request.replaces.is_none() || c.ari_id != request.replaces)
                    && request.now < c.not_before + c.lifetime() / 2
            }
        }
    }
}

/// The profile to ask for.
async fn profile(issuer: &AcmeIssuer) -> Result<Option<String>, Failure> {
    let Some(want) = &issuer.config.profile else { return Ok(None) };
    let directory = issuer.directory().await?;
    let offered = &directory.meta.profiles;
    match (offered.contains_key(&want.name), want.required) {
        (true, _) => Ok(Some(want.name.clone())),
        (false, false) => Ok(None),
        (false, true) => {
            let list = offered.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let there = if list.is_empty() { "no profiles".to_owned() } else { list };
            let message =
                format!("issuer {}: profile {} is required; the CA offers {there}", issuer.config.name, want.name);
            Err(Failure::new(Class::Config, message))
        }
    }
}
