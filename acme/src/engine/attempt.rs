//! One attempt at an order: its persisted record, its permit to send requests to the CA, and the
//! challenges to clean up.

use jiff::Timestamp;
use tokio::sync::SemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument;

use super::problem::{is_kind, of_protocol};
use super::record::{OrderRecord, remove_txt_records};
use super::{AcmeIssuer, of_storage};
use crate::account::Account;
use crate::budget::Exempt;
use crate::certificate::IssuedCertificate;
use crate::client::Handle;
use crate::failure::{Class, Failure};
use crate::issuer::IssueRequest;
use crate::key::PrivateKeyPem;
use crate::storage::StorageError;

/// Repeats a call that the CA refused with `badNonce`; `instant-acme` itself tries three times.
macro_rules! retry_bad_nonce {
    ($call:expr) => {{
        let mut tries = 6;
        loop {
            match $call {
                Err(error) if tries > 0 && $crate::engine::problem::is_bad_nonce(&error) => {
                    tries -= 1
                }
                other => break other,
            }
        }
    }};
}
pub(super) use retry_bad_nonce;

/// An attempt at an order. Its caller holds the order's lock.
pub(super) struct OrderAttempt<'a> {
    pub(super) issuer: &'a AcmeIssuer,
    pub(super) account: &'a Account,
    pub(super) protocol: instant_acme::Account,
    pub(super) handle: Handle,
    pub(super) record: OrderRecord,
    /// HTTP-01 and TLS-ALPN-01 challenges that are presented and need a cleanup: name and token.
    pub(super) answering: Vec<(String, String)>,
    pub(super) request: &'a IssueRequest,
    pub(super) started: Instant,
    /// True if the CA does not know the order.
    pub(super) is_lost: bool,
    /// True if a challenge was answered.
    pub(super) has_answered: bool,
    /// True if the persisted record equals `record`.
    pub(super) written: bool,
    /// The permit to send requests to the CA; None while the attempt waits for something else.
    ca_permit: Option<SemaphorePermit<'a>>,
    /// Writes that are being flushed to the disk while requests to the CA are in flight.
    pending_flushes: JoinSet<Result<(), StorageError>>,
}

impl<'a> OrderAttempt<'a> {
    /// Resumes the persisted order if it is the requested one, else begins a new one.
    pub(super) async fn start(
        issuer: &'a AcmeIssuer,
        account: &'a Account,
        request: &'a IssueRequest,
    ) -> Result<Self, Failure> {
        let key = issuer.order_key(&request.id);
        let profile = profile(issuer).await?;
        let read = super::record::read(issuer, &key).await?;
        let mut txt_records = Vec::new();
        let record = match read {
            Some(record) if record.continues(request, profile.as_deref()) => record,
            other => {
                if let Some(old) = other {
                    txt_records = remove_txt_records(issuer, old.txt).await;
                }
                let key_pem = PrivateKeyPem::generate_p256().map_err(|e| {
                    Failure::new(Class::Bug, format!("issuer {}: {e}", issuer.config.name))
                })?;
                OrderRecord {
                    id: request.id.clone(),
                    issuer: issuer.config.name.clone(),
                    names: request.names.clone(),
                    profile,
                    key: key_pem,
                    replaces: request.replaces.clone(),
                    charged: false,
                    url: None,
                    txt: txt_records,
                    downloaded: None,
                    over: false,
                    finalized: false,
                    lost_since: None,
                    since: request.now,
                }
            }
        };
        let (protocol, handle) = account
            .protocol()
            .await
            .map_err(|e| of_protocol(issuer, &e, None, None, Timestamp::now()))?;
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
            is_lost: false,
            has_answered: false,
            written: false,
            ca_permit: None,
            pending_flushes: JoinSet::new(),
        })
    }

    /// Persists budget and rate limits after an answer of the CA. A failure is only logged: the CA
    /// would repeat its limits.
    pub(super) async fn write_budget(&self) {
        let now = Timestamp::now();
        let address_limits = self.issuer.http.address_limits();
        let written = futures::join!(
            self.issuer.write_budget(now),
            address_limits.save(&*self.issuer.storage, now)
        );
        if let Err(error) = written.0.and(written.1) {
            tracing::warn!(issuer = self.issuer.config.name, %error, "the budget could not be written");
        }
    }

    /// Waits for a permit to send requests to the CA.
    pub(super) async fn acquire_ca_permit(&mut self) {
        self.ca_permit = Some(
            self.issuer
                .ca_permits
                .acquire()
                .await
                .expect("nobody closes it"),
        );
    }

    /// Releases the permit while we wait for something else.
    pub(super) fn release_ca_permit(&mut self) {
        self.ca_permit = None;
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

    /// Waits until the persisted record survives a power failure: before a step that spends budget.
    pub(super) async fn flush(&self) -> Result<(), Failure> {
        let key = self.issuer.order_key(&self.record.id);
        self.issuer
            .storage
            .flush(&key)
            .await
            .map_err(|e| of_storage(&e))
    }

    /// Starts to flush the persisted record to the disk, while requests to the CA go on.
    pub(super) fn start_flush(&mut self) {
        let storage = self.issuer.storage.clone();
        let key = self.issuer.order_key(&self.record.id);
        let flush = async move { storage.flush(&key).await };
        self.pending_flushes
            .spawn(flush.instrument(tracing::error_span!("flush of an order")));
    }

    /// Waits until all writes are flushed to the disk, without the permit while there are some.
    pub(super) async fn flushed(&mut self) -> Result<(), Failure> {
        while !self.pending_flushes.is_empty() {
            let ended = match self.pending_flushes.try_join_next() {
                Some(ended) => Some(ended),
                None => {
                    self.release_ca_permit();
                    self.pending_flushes.join_next().await
                }
            };
            ended
                .expect("one is under way")
                .expect("nobody ends it")
                .map_err(|e| of_storage(&e))?;
        }
        // Writes since then.
        self.flush().await?;
        if self.ca_permit.is_none() {
            self.acquire_ca_permit().await;
        }
        Ok(())
    }

    pub(super) fn failed(&self, error: &instant_acme::Error) -> Failure {
        let exchange = self.handle.last();
        if self.account.is_new() && is_kind(error, "accountDoesNotExist") {
            let message = format!(
                "{}: the CA does not know the account {} yet, which it registered a moment ago",
                self.issuer.config.name,
                self.account.url()
            );
            return Failure::new(Class::Transient, message);
        }
        of_protocol(
            self.issuer,
            error,
            Some(&exchange),
            Some(&self.record.names),
            Timestamp::now(),
        )
    }

    pub(super) fn exempt(&self) -> Exempt {
        self.request.exempt
    }
}

impl OrderRecord {
    /// Returns true if this is the order that a request is about: not one that ended or whose
    /// certificate is to be replaced.
    fn continues(&self, request: &IssueRequest, profile: Option<&str>) -> bool {
        if self.over || self.names != request.names || self.profile.as_deref() != profile {
            return false;
        }
        let Some(chain) = &self.downloaded else {
            return true;
        };
        // Downloaded, but not confirmed as installed: it is returned again, unless the caller holds
        // it already.
        match IssuedCertificate::read(chain.clone(), self.key.clone(), &self.issuer) {
            Err(_) => false,
            Ok(c) => {
                (request.replaces.is_none() || c.ari_id != request.replaces)
                    && request.now < c.not_before + c.lifetime() / 2
            }
        }
    }
}

/// Returns the certificate profile to request.
async fn profile(issuer: &AcmeIssuer) -> Result<Option<String>, Failure> {
    let Some(want) = &issuer.config.profile else {
        return Ok(None);
    };
    let directory = issuer.directory().await?;
    let offered = &directory.meta.profiles;
    match (offered.contains_key(&want.name), want.required) {
        (true, _) => Ok(Some(want.name.clone())),
        (false, false) => Ok(None),
        (false, true) => {
            let list = offered
                .keys()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            let there = if list.is_empty() {
                "no profiles".to_owned()
            } else {
                list
            };
            let message = format!(
                "issuer {}: profile {} is required; the CA offers {there}",
                issuer.config.name, want.name
            );
            Err(Failure::new(Class::Config, message))
        }
    }
}
