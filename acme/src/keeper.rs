//! The keeper: carries the plan out. Holds the certificates, issues and renews them, records failed
//! attempts.
//!
//! Several keepers with one storage do each job once: before a certificate is issued, its lock is
//! taken and the storage is read again.

mod attempts;
mod gc;
mod job;
mod outlook;
mod pass;
mod refusals;
mod run;
mod wanted_certificates;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, RwLock};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::breaker::Breakers;
use crate::certificate::IssuedCertificate;
use crate::engine::of_storage;
use crate::failure::{Attempts, Class, Failure};
use crate::issuer::{CertificateId, IssueRequest, Issuer, Known};
use crate::names::DnsName;
use crate::plan::{Budgets, Held, Obtained, Reason, Step, Wanted};
use crate::renewal::Window;
use crate::storage::{Expect, Key, Kind, Storage, StorageError, read_json, set_aside, write_json};

use attempts::end_config_backoff;
use job::{Job, RunningJobs};
pub use pass::{Next, Outlook, Pass};
pub use wanted_certificates::WantedCertificates;

/// The plan is made at least this often, since clocks jump.
const MAX_SLEEP: SignedDuration = SignedDuration::from_hours(1);
/// Most renewal windows that are requested at the same time.
const MAX_CONCURRENT_ARI: usize = 16;
/// Time after which a CA that gave no renewal window is asked again.
const ARI_PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// The shortest time between two plans for requests of renewal windows: each plan covers all
/// certificates, and those whose request is due within this time are requested together.
const ARI_BATCH: SignedDuration = SignedDuration::from_mins(1);

/// A stored certificate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stored {
    /// Its stable name.
    pub id: CertificateId,
    /// The tenant that the certificate belongs to.
    pub tenant: String,
    /// The certificate.
    pub certificate: IssuedCertificate,
}

/// The keeper of certificates: joins storage and issuers.
pub struct Keeper {
    storage: Arc<dyn Storage>,
    issuers: RwLock<BTreeMap<String, Arc<dyn Issuer>>>,
    max_concurrent: usize,
    state: RwLock<KeeperState>,
    generation: watch::Sender<u64>,
    replan: watch::Sender<u64>,
    /// Certificates that changed since the last [`Self::take_changed`].
    changed: Mutex<BTreeSet<CertificateId>>,
}

#[derive(Default)]
struct KeeperState {
    held: BTreeMap<CertificateId, Arc<Stored>>,
    windows: BTreeMap<CertificateId, Window>,
    /// Windows whose certificate is not held yet, by the name of their storage entry.
    unclaimed: BTreeMap<String, Window>,
    attempts: BTreeMap<CertificateId, Attempts>,
    /// Records of certificates that Envoys refused, of wanted certificates that got another one
    /// since.
    refusals: BTreeMap<CertificateId, Attempts>,
    /// Certificates that were replaced by those that are held, in case Envoys refuse these.
    replaced: BTreeMap<CertificateId, Arc<Stored>>,
    breakers: Breakers,
    /// Certificates that an operator wants to be renewed now; true until an attempt fails.
    forced: BTreeMap<CertificateId, bool>,
    /// Time and reason of certificates that this program obtained.
    obtained: HashMap<CertificateId, Obtained>,
    /// Certificates without a renewal window, with the time of the next request for one.
    windowless: BTreeMap<CertificateId, Timestamp>,
    tidied: Option<Timestamp>,
    /// Problems with stored entries that could not be used.
    storage_problems: Vec<String>,
}

impl Keeper {
    /// Loads the stored entries. A damaged entry is skipped and logged, so that it affects no other
    /// one.
    pub async fn open(
        storage: Arc<dyn Storage>,
        issuers: impl IntoIterator<Item = Arc<dyn Issuer>>,
        max_concurrent: usize,
    ) -> Result<Arc<Self>, StorageError> {
        let mut state = KeeperState::default();
        for key in storage.list(Kind::Certificate).await? {
            if let Some(stored) = readable::<Stored>(&*storage, &key).await? {
                state.held.insert(stored.id.clone(), Arc::new(stored));
            }
        }
        let ids: BTreeMap<String, CertificateId> = state
            .held
            .keys()
            .map(|id| {
                (
                    Key::new(Kind::Renewal, id.as_str()).name().to_owned(),
                    id.clone(),
                )
            })
            .collect();
        for key in storage.list(Kind::Renewal).await? {
            let Some(window) = readable::<Window>(&*storage, &key).await? else {
                continue;
            };
            match ids.get(key.name()) {
                Some(id) => {
                    state.windows.insert(id.clone(), window);
                }
                None => {
                    state.unclaimed.insert(key.name().to_owned(), window);
                }
            }
        }
        for key in storage.list(Kind::Attempts).await? {
            if let Some((id, mut attempts)) =
                readable::<(CertificateId, Attempts)>(&*storage, &key).await?
            {
                end_config_backoff(&mut attempts);
                let records = if attempts.is_over {
                    &mut state.refusals
                } else {
                    &mut state.attempts
                };
                records.insert(id, attempts);
            }
        }
        Ok(Arc::new(Self {
            storage,
            issuers: RwLock::new(
                issuers
                    .into_iter()
                    .map(|i| (i.name().to_owned(), i))
                    .collect(),
            ),
            max_concurrent: max_concurrent.max(1),
            changed: Mutex::new(state.held.keys().cloned().collect()),
            state: RwLock::new(state),
            generation: watch::channel(0).0,
            replan: watch::channel(0).0,
        }))
    }

    /// Adds an issuer, or replaces the one of the same name.
    pub fn add_issuer(&self, issuer: Arc<dyn Issuer>) {
        let name = issuer.name().to_owned();
        self.issuers_mut(|all| {
            all.insert(name.clone(), issuer);
        });
        self.write(|state| {
            state
                .attempts
                .values_mut()
                .filter(|a| {
                    a.about
                        .strip_prefix(&name)
                        .is_some_and(|rest| rest.starts_with(' '))
                })
                .for_each(end_config_backoff);
            state.breakers.forget(&name);
        });
        self.replan.send_modify(|n| *n += 1);
    }

    /// Removes an issuer. Certificates that it issued stay.
    pub fn remove_issuer(&self, name: &str) {
        self.issuers_mut(|all| {
            all.remove(name);
        });
    }

    fn issuer(&self, name: &str) -> Option<Arc<dyn Issuer>> {
        self.issuers
            .read()
            .expect("nobody panics while holding it")
            .get(name)
            .cloned()
    }

    fn issuers(&self) -> Vec<Arc<dyn Issuer>> {
        self.issuers
            .read()
            .expect("nobody panics while holding it")
            .values()
            .cloned()
            .collect()
    }

    fn issuers_mut(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<dyn Issuer>>)) {
        change(
            &mut self
                .issuers
                .write()
                .expect("nobody panics while holding it"),
        );
    }

    /// Subscribes to [changed certificates](Self::take_changed): the value changes with each.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Returns the certificates that changed, or whose outlook in the report of [`Self::run`]
    /// changed, since the last call.
    pub fn take_changed(&self) -> BTreeSet<CertificateId> {
        std::mem::take(&mut self.changed.lock().expect("nobody panics while holding it"))
    }

    /// Returns the certificate that is held under a stable name.
    pub fn held_as(&self, id: &CertificateId) -> Option<Arc<Stored>> {
        self.read(|state| state.held.get(id).cloned())
    }

    /// Returns the certificate to serve for a name of a tenant: not expired; the exact name before
    /// a wildcard, then the latest expiry.
    pub fn certificate(&self, tenant: &str, name: &DnsName, now: Timestamp) -> Option<Arc<Stored>> {
        self.read(|state| {
            state
                .held
                .values()
                .filter(|s| s.tenant == tenant && s.certificate.not_after > now)
                .filter(|s| s.certificate.names.iter().any(|n| n.covers(name)))
                .max_by_key(|s| (s.certificate.names.contains(name), s.certificate.not_after))
                .cloned()
        })
    }

    /// Renews a certificate now, once, regardless of the one that is held.
    pub fn renew(&self, id: &CertificateId) {
        self.write(|state| {
            // An operator who asks has changed something: the first attempt is immediate; after a
            // failure the usual back-off applies.
            state.forced.insert(id.clone(), true);
        });
        self.replan.send_modify(|n| *n += 1);
    }

    /// Adopts a certificate that somebody else put into the storage. An equal one that is held
    /// already stays as it is.
    pub fn adopt(&self, stored: Stored) {
        let id = stored.id.clone();
        self.change(&id, |state| {
            let known = state.held.get(&stored.id).is_some_and(|held| {
                held.certificate.serial == stored.certificate.serial
                    && held.certificate.issuer == stored.certificate.issuer
            });
            if !known {
                let window = state
                    .unclaimed
                    .remove(Key::new(Kind::Renewal, stored.id.as_str()).name());
                if let Some(window) =
                    window.filter(|w| stored.certificate.ari_id.as_deref() == Some(&w.of))
                {
                    state.windows.insert(stored.id.clone(), window);
                }
                state.held.insert(stored.id.clone(), Arc::new(stored));
            }
            !known
        });
        self.replan.send_modify(|n| *n += 1);
    }

    /// Removes an adopted certificate that was deleted by its owner, and its failed attempts.
    pub fn drop_adopted(&self, id: &CertificateId) {
        self.change(id, |state| {
            state.forget_failures(id);
            state.held.remove(id).is_some()
        });
        self.replan.send_modify(|n| *n += 1);
    }

    /// Returns all certificates.
    pub fn certificates(&self) -> Vec<Arc<Stored>> {
        self.read(|state| state.held.values().cloned().collect())
    }

    /// Returns the budgets that hold orders up, by issuer.
    pub fn budgets(&self) -> Budgets {
        self.issuers()
            .iter()
            .filter_map(|issuer| Some((issuer.name().to_owned(), issuer.budget()?)))
            .collect()
    }

    /// Returns the budgets of all issuers, including those that hold nothing up.
    pub fn limits(&self) -> Budgets {
        self.issuers()
            .iter()
            .filter_map(|issuer| Some((issuer.name().to_owned(), issuer.limits()?)))
            .collect()
    }

    /// Returns problems with stored entries of all kinds that could not be used, as sentences for
    /// an operator.
    pub fn storage_problems(&self) -> Vec<String> {
        let of_issuers = self
            .issuers()
            .into_iter()
            .flat_map(|issuer| issuer.storage_problems());
        of_issuers
            .chain(self.read(|state| state.storage_problems.clone()))
            .collect()
    }

    /// Returns the record of failed attempts for a wanted certificate, if the last attempt failed.
    pub fn last_failure(&self, id: &CertificateId) -> Option<Attempts> {
        self.read(|state| state.attempts.get(id).cloned())
    }

    /// Removes a certificate that is no longer wanted, with its order, renewal window and failed
    /// attempts.
    pub async fn forget(&self, id: &CertificateId) -> Result<(), Failure> {
        let _lock = self
            .storage
            .lock(&Key::new(Kind::Certificate, id.as_str()))
            .await
            .map_err(|e| of_storage(&e))?;
        for issuer in self.issuers() {
            issuer.abandon(id).await?;
        }
        for kind in [Kind::Certificate, Kind::Renewal, Kind::Attempts] {
            self.storage
                .remove(&Key::new(kind, id.as_str()))
                .await
                .map_err(|e| of_storage(&e))?;
        }
        self.change(id, |state| {
            state.windowless.remove(id);
            state.windows.remove(id);
            state.forget_failures(id);
            state.obtained.remove(id);
            state.held.remove(id).is_some()
        });
        Ok(())
    }

    /// Runs one pass: requests renewal windows that are due, plans, and carries the plan out.
    pub async fn pass(self: &Arc<Self>, wanted: &[Wanted], now: Timestamp) -> Pass {
        self.poll_windows(now).await;
        let wanted = self.with_holds(wanted, now);
        let held = self.held();
        let budgets = self.budgets();
        let progress = self.progress();
        let steps = self.make_plan(&wanted, &held, &progress, &budgets, now);
        let mut pass = Pass::default();
        let mut jobs = VecDeque::new();
        for step in &steps {
            match step {
                Step::Issue(order) => jobs.push_back(Job::of(order)),
                Step::Retire(held) => pass.retired.push(held.id.clone()),
                Step::Wait { .. } | Step::Keep { .. } => {}
            }
        }
        let running = jobs.iter().map(|job| job.id.clone());
        self.tidy(
            wanted.iter().map(|w| w.id.clone()).chain(running).collect(),
            now,
        )
        .await;
        let mut running = RunningJobs::default();
        loop {
            while let Some(job) = running.admit(&mut jobs, self.max_concurrent) {
                running.start(self, job, now);
            }
            let Some((id, result)) = running.next().await else {
                break;
            };
            match result {
                Ok(true) => pass.issued.push(id),
                Ok(false) => {}
                Err(failure) => pass.failed.push((id, failure)),
            }
        }
        drop(steps);
        // The plan after these changes.
        let wanted = self.with_holds(&wanted, now);
        let held = self.held();
        let budgets = self.budgets();
        let progress = self.progress();
        pass.outlook = self.outlook(
            &self.make_plan(&wanted, &held, &progress, &budgets, now),
            now,
        );
        pass.next = self.next(&pass.outlook, now);
        pass
    }

    /// Removes leftovers of earlier attempts, at the start and then once an hour.
    async fn tidy(&self, wanted: BTreeSet<CertificateId>, now: Timestamp) {
        if self.read(|s| s.tidied.is_some_and(|t| now < t + MAX_SLEEP)) {
            return;
        }
        let stored = self.read(|s| {
            s.held
                .iter()
                .map(|(id, h)| (id.clone(), h.certificate.serial.clone()))
                .collect()
        });
        // At the start, not all wanted certificates may be known.
        if self.read(|s| s.tidied.is_some()) {
            self.collect_garbage(&wanted, now).await;
        }
        let known = Known { stored, wanted };
        for issuer in self.issuers() {
            if let Err(failure) = issuer.tidy(&known, now).await {
                tracing::warn!(issuer = issuer.name(), %failure, "cannot remove challenge records of earlier orders now");
            }
        }
        self.write(|s| s.tidied = Some(now));
    }

    /// Runs one job and records its result.
    async fn carry_out(&self, job: Job, now: Timestamp) -> (CertificateId, Result<bool, Failure>) {
        let result = self.obtain(&job, now).await;
        self.write(|state| {
            state
                .breakers
                .record(&job.id, &job.serves, result.as_ref().err(), now)
        });
        if let Err(failure) = &result {
            tracing::warn!(id = %job.id, class = failure.class.as_str(), %failure, "no certificate");
            self.record_failure(&job, failure, now).await;
        }
        (job.id, result)
    }

    /// Obtains one certificate. Returns false if another keeper has done so already.
    async fn obtain(&self, order: &Job, now: Timestamp) -> Result<bool, Failure> {
        let want = &order.serves[0];
        let issuer = self.issuer(&want.issuer).ok_or_else(|| {
            let known = self
                .issuers()
                .iter()
                .map(|i| i.name().to_owned())
                .collect::<Vec<_>>()
                .join(", ");
            Failure::new(
                Class::Config,
                format!("no issuer is called {:?}; there are: {known}", want.issuer),
            )
        })?;
        let key = Key::new(Kind::Certificate, order.id.as_str());
        let _lock = self.storage.lock(&key).await.map_err(|e| of_storage(&e))?;
        let stored = match read_json::<Stored>(&*self.storage, &key).await {
            Ok(stored) => stored,
            // An unreadable entry is useless: the certificate is issued anew.
            Err(error @ (StorageError::Damaged { .. } | StorageError::Unreadable { .. })) => {
                let text = set_aside(&*self.storage, &key, &error).await;
                self.write(|state| state.storage_problems.push(text));
                None
            }
            Err(error) => return Err(of_storage(&error)),
        };
        let ours = self.read(|s| s.held.get(&order.id).cloned());
        if let Some((stored, _)) = &stored
            && ours
                .as_ref()
                .is_none_or(|o| o.certificate.serial != stored.certificate.serial)
        {
            let stored = stored.clone();
            self.change(&order.id, |s| {
                s.held.insert(order.id.clone(), Arc::new(stored));
                true
            });
            return Ok(false);
        }
        let request = IssueRequest {
            id: order.id.clone(),
            tenant: want.tenant.clone(),
            names: order.names.clone(),
            validity: want.validity,
            replaces: order.replaces.clone(),
            exempt: order.exempt,
            failures: self.read(|s| s.attempts.get(&want.id).map_or(0, |a| a.failures)),
            now,
        };
        if order.reason == Reason::Revoked {
            let notice = self.notice(&order.id).unwrap_or_default();
            tracing::info!(id = %order.id, notice, "the CA's renewal window is over: a new certificate is got");
        }
        let mut certificate = issuer.issue(&request).await?;
        if certificate.names == order.names {
            // Names share memory with the wanted certificate: plans compare both.
            certificate.names = order.names.clone();
        }
        if let Some((held, _)) = &stored
            && let Err(unfit) = certificate.may_replace(&held.certificate, &order.names, now)
        {
            // The next attempt places a new order: this one would return the same certificate
            // again.
            issuer.abandon(&order.id).await?;
            return Err(Failure::new(
                Class::Bug,
                format!("{}: certificate rejected: {unfit}", want.issuer),
            ));
        }
        let made = Stored {
            id: order.id.clone(),
            tenant: want.tenant.clone(),
            certificate,
        };
        write_json(&*self.storage, &key, &made, &Expect::Anything)
            .await
            .map_err(|e| of_storage(&e))?;
        issuer.installed(&order.id).await?;
        if self.read(|s| s.windows.contains_key(&order.id)) {
            self.remove_quietly(Kind::Renewal, &order.id).await;
        }
        for want in &order.serves {
            self.end_failures(&want.id).await;
        }
        let obtained = Obtained {
            at: now,
            at_the_cas_request: order.reason == Reason::Revoked,
        };
        self.change(&order.id, |state| {
            state.windows.remove(&order.id);
            state.obtained.insert(order.id.clone(), obtained);
            for want in &order.serves {
                state.forced.remove(&want.id);
            }
            state.replace(made);
            true
        });
        Ok(true)
    }

    fn held(&self) -> Vec<Held> {
        self.read(|state| {
            let refused = state.refused_serials();
            state
                .held
                .values()
                .map(|s| Held {
                    id: s.id.clone(),
                    tenant: s.tenant.clone(),
                    issuer: s.certificate.issuer.clone(),
                    names: s.certificate.names.clone(),
                    not_before: s.certificate.not_before,
                    not_after: s.certificate.not_after,
                    ari_id: s.certificate.ari_id.clone(),
                    window: state.windows.get(&s.id).filter(|w| !w.untrusted).cloned(),
                    refused: refused.contains(s.certificate.serial.as_str())
                        || state.is_refused(&s.id),
                })
                .collect()
        })
    }

    /// Requests the renewal windows that are due (ARI). Without an answer the known window applies,
    /// or two thirds of the validity. Returns true if a window changed.
    async fn poll_windows(&self, now: Timestamp) -> bool {
        let due: Vec<_> = self.read(|state| {
            let polls = state.polls(now).filter(|(at, _)| *at <= now);
            polls
                .map(|(_, s)| (s.clone(), state.windows.get(&s.id).cloned()))
                .collect()
        });
        let asked = due.into_iter().map(|(stored, previous)| async move {
            let issuer = self.issuer(&stored.certificate.issuer)?;
            let answer = issuer
                .renewal_window(&stored.certificate, previous.as_ref(), now)
                .await;
            if let Err(failure) = &answer {
                tracing::debug!(id = %stored.id, %failure, "no renewal window");
            }
            let window = answer.ok().flatten();
            if window.is_none() {
                self.write(|s| s.windowless.insert(stored.id.clone(), now + ARI_PAUSE));
            }
            Some((stored.id.clone(), previous, window?))
        });
        let mut asked = futures::stream::iter(asked).buffer_unordered(MAX_CONCURRENT_ARI);
        let mut window_changed = false;
        while let Some(answer) = asked.next().await {
            let Some((id, previous, mut window)) = answer else {
                continue;
            };
            let obtained = self.read(|s| {
                s.obtained
                    .get(&id)
                    .map(|o| o.at)
                    .or(Some(s.held.get(&id)?.certificate.not_before))
            });
            window.weigh(previous.as_ref(), obtained.unwrap_or(Timestamp::MIN), now);
            if window.untrusted != previous.as_ref().is_some_and(|p| p.untrusted)
                && let Some(notice) = window.notice()
            {
                tracing::warn!(%id, notice, "the CA's renewal window is not followed");
            }
            let key = Key::new(Kind::Renewal, id.as_str());
            if let Err(error) = write_json(&*self.storage, &key, &window, &Expect::Anything).await {
                tracing::warn!(%id, %error, "a renewal window could not be written");
            }
            window_changed |= previous.is_none_or(|p| {
                Window {
                    poll_at: window.poll_at,
                    ..p
                } != window
            });
            self.write(|s| {
                s.windowless.remove(&id);
                s.windows.insert(id, window)
            });
        }
        window_changed
    }

    async fn remove_quietly(&self, kind: Kind, id: &CertificateId) {
        if let Err(error) = self.storage.remove(&Key::new(kind, id.as_str())).await {
            tracing::warn!(%id, %error, "cannot remove an old record now");
        }
    }

    fn read<T>(&self, read: impl FnOnce(&KeeperState) -> T) -> T {
        read(&self.state.read().expect("nobody panics while holding it"))
    }

    fn write<T>(&self, change: impl FnOnce(&mut KeeperState) -> T) -> T {
        change(&mut self.state.write().expect("nobody panics while holding it"))
    }

    /// Changes the held certificates; if `change` returns true, notifies subscribers.
    fn change(&self, id: &CertificateId, change: impl FnOnce(&mut KeeperState) -> bool) {
        if self.write(change) {
            self.notify([id.clone()]);
        }
    }

    fn notify(&self, ids: impl IntoIterator<Item = CertificateId>) {
        let mut changed = self.changed.lock().expect("nobody panics while holding it");
        let before = changed.len();
        changed.extend(ids);
        if changed.len() > before {
            drop(changed);
            self.generation.send_modify(|g| *g += 1);
        }
    }
}

impl KeeperState {
    /// Returns the times of the next requests for renewal windows; a window that is not known has
    /// been due for ever.
    fn polls(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, &Arc<Stored>)> {
        let live = self.held.values();
        let live = live.filter(move |s| s.certificate.not_after > now);
        live.filter_map(|s| {
            let of = s.certificate.ari_id.as_deref()?;
            let known = self.windows.get(&s.id).filter(|w| w.of == of);
            let at = known.map_or(Timestamp::MIN, |w| w.poll_at);
            let later = self.windowless.get(&s.id).copied();
            Some((later.map_or(at, |later| later.max(at)), s))
        })
    }
}

async fn readable<T: serde::de::DeserializeOwned>(
    storage: &dyn Storage,
    key: &Key,
) -> Result<Option<T>, StorageError> {
    match read_json::<T>(storage, key).await {
        Ok(found) => Ok(found.map(|(value, _)| value)),
        Err(error) if error.is_of_the_entry() => {
            tracing::error!(%error, "a stored record cannot be used and is ignored");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
