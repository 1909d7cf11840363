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
mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, RwLock};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

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
use table::{Forced, Row, Table};

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
    table: RwLock<Table>,
    generation: watch::Sender<u64>,
    replan: watch::Sender<u64>,
    /// Certificates that changed since the last [`Self::take_changed`].
    changed: Mutex<BTreeSet<CertificateId>>,
}

impl Keeper {
    /// Loads the stored entries. A damaged entry is skipped and logged, so that it affects no other
    /// one.
    pub async fn open(
        storage: Arc<dyn Storage>,
        issuers: impl IntoIterator<Item = Arc<dyn Issuer>>,
        max_concurrent: usize,
    ) -> Result<Arc<Self>, StorageError> {
        let mut table = Table::default();
        let mut ids = BTreeMap::new();
        for key in storage.list(Kind::Certificate).await? {
            if let Some(stored) = readable::<Stored>(&*storage, &key).await? {
                let id = stored.id.clone();
                let renewal = Key::new(Kind::Renewal, id.as_str());
                ids.insert(renewal.name().to_owned(), id.clone());
                table.change(&id, |row| row.held = Some(Arc::new(stored)));
            }
        }
        for key in storage.list(Kind::Renewal).await? {
            let Some(window) = readable::<Window>(&*storage, &key).await? else {
                continue;
            };
            match ids.get(key.name()) {
                Some(id) => table.change(id, |row| row.window = Some(window)),
                None => {
                    table.unclaimed.insert(key.name().to_owned(), window);
                }
            }
        }
        for key in storage.list(Kind::Attempts).await? {
            if let Some((id, mut attempts)) =
                readable::<(CertificateId, Attempts)>(&*storage, &key).await?
            {
                end_config_backoff(&mut attempts);
                table.change(&id, |row| {
                    let records = if attempts.is_over {
                        &mut row.refusals
                    } else {
                        &mut row.failed
                    };
                    *records = Some(Box::new(attempts));
                });
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
            changed: Mutex::new(ids.into_values().collect()),
            table: RwLock::new(table),
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
        self.write(|table| {
            table
                .rows_mut()
                .filter_map(|row| row.failed.as_deref_mut())
                .filter(|a| {
                    a.about
                        .strip_prefix(&name)
                        .is_some_and(|rest| rest.starts_with(' '))
                })
                .for_each(end_config_backoff);
            table.breakers.forget(&name);
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
        self.read(|table| table.held(id).cloned())
    }

    /// Returns the certificate to serve for a name of a tenant: not expired; the exact name before
    /// a wildcard, then the latest expiry.
    pub fn certificate(&self, tenant: &str, name: &DnsName, now: Timestamp) -> Option<Arc<Stored>> {
        self.read(|table| {
            table
                .certificates()
                .filter(|s| s.tenant == tenant && s.certificate.not_after > now)
                .filter(|s| s.certificate.names.iter().any(|n| n.covers(name)))
                .max_by_key(|s| (s.certificate.names.contains(name), s.certificate.not_after))
                .cloned()
        })
    }

    /// Adds, changes or (with `None`) removes certificates that [`Self::run`] obtains. The cost
    /// does not depend on their number.
    pub fn want(&self, changes: impl IntoIterator<Item = (CertificateId, Option<Wanted>)>) {
        let mut changed = false;
        self.write(|table| {
            for (id, wanted) in changes {
                changed |= table.change(&id, |row| row.want(wanted));
            }
        });
        if changed {
            self.replan.send_modify(|n| *n += 1);
        }
    }

    /// Renews a certificate now, once, regardless of the one that is held.
    pub fn renew(&self, id: &CertificateId) {
        // An operator who asks has changed something: the first attempt is immediate.
        self.write(|table| table.change(id, |row| row.forced = Some(Forced::Now)));
        self.replan.send_modify(|n| *n += 1);
    }

    /// Adopts a certificate that somebody else put into the storage. An equal one that is held
    /// already stays as it is.
    pub fn adopt(&self, stored: Stored) {
        let id = stored.id.clone();
        self.change(&id, |table| {
            let known = table.held(&id).is_some_and(|held| {
                held.certificate.serial == stored.certificate.serial
                    && held.certificate.issuer == stored.certificate.issuer
            });
            if !known {
                let renewal = Key::new(Kind::Renewal, id.as_str());
                let window = table.unclaimed.remove(renewal.name());
                let window = window.filter(|w| stored.certificate.ari_id.as_deref() == Some(&w.of));
                table.change(&id, |row| {
                    row.window = window.or(row.window.take());
                    row.held = Some(Arc::new(stored));
                });
            }
            !known
        });
        self.replan.send_modify(|n| *n += 1);
    }

    /// Removes an adopted certificate that was deleted by its owner, and its failed attempts.
    pub fn drop_adopted(&self, id: &CertificateId) {
        self.change(id, |table| {
            let dropped = table.change(id, Row::forget);
            if let Some(window) = dropped.window {
                // The certificate may come back.
                let renewal = Key::new(Kind::Renewal, id.as_str());
                table.unclaimed.insert(renewal.name().to_owned(), window);
            }
            dropped.held.is_some()
        });
        self.replan.send_modify(|n| *n += 1);
    }

    /// Returns all certificates.
    pub fn certificates(&self) -> Vec<Arc<Stored>> {
        self.read(|table| table.certificates().cloned().collect())
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
            .chain(self.read(|table| table.storage_problems.clone()))
            .collect()
    }

    /// Returns the record of failed attempts for a wanted certificate, if the last attempt failed.
    pub fn last_failure(&self, id: &CertificateId) -> Option<Attempts> {
        self.read(|table| table.failed(id).cloned())
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
        self.change(id, |table| table.change(id, Row::forget).held.is_some());
        Ok(())
    }

    /// Runs one pass: requests renewal windows that are due, plans, and carries the plan out.
    pub async fn pass(self: &Arc<Self>, wanted: &[Wanted], now: Timestamp) -> Pass {
        self.poll_windows(now).await;
        let wanted = self.read(|table| table.with_holds(wanted, now));
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
        let wanted = self.read(|table| table.with_holds(&wanted, now));
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
            s.certificates()
                .map(|held| (held.id.clone(), held.certificate.serial.clone()))
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
        self.write(|table| {
            table
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
                self.write(|table| table.storage_problems.push(text));
                None
            }
            Err(error) => return Err(of_storage(&error)),
        };
        let ours = self.held_as(&order.id);
        if let Some((stored, _)) = &stored
            && ours
                .as_ref()
                .is_none_or(|o| o.certificate.serial != stored.certificate.serial)
        {
            let stored = Arc::new(stored.clone());
            self.change(&order.id, |table| {
                table.change(&order.id, |row| row.held = Some(stored));
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
            failures: self.read(|table| table.failures(&want.id)),
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
        if self.read(|table| table.row(&order.id).is_some_and(|row| row.window.is_some())) {
            self.remove_quietly(Kind::Renewal, &order.id).await;
        }
        for want in &order.serves {
            self.end_failures(&want.id).await;
        }
        let obtained = Obtained {
            at: now,
            at_the_cas_request: order.reason == Reason::Revoked,
        };
        self.change(&order.id, |table| {
            table.replace(made, obtained);
            for want in &order.serves {
                table.change(&want.id, |row| row.forced = None);
            }
            true
        });
        Ok(true)
    }

    fn held(&self) -> Vec<Held> {
        self.read(|table| {
            let refused = table.refused_serials();
            let held = table.rows().filter_map(|(id, row)| {
                let certificate = &row.held.as_ref()?.certificate;
                Some(Held {
                    id: id.clone(),
                    tenant: row.held.as_ref()?.tenant.clone(),
                    issuer: certificate.issuer.clone(),
                    names: certificate.names.clone(),
                    not_before: certificate.not_before,
                    not_after: certificate.not_after,
                    ari_id: certificate.ari_id.clone(),
                    window: row.window.clone().filter(|w| !w.untrusted),
                    refused: refused.contains(certificate.serial.as_str()) || row.is_refused(),
                })
            });
            held.collect()
        })
    }

    /// Requests the renewal windows that are due (ARI). Without an answer the known window applies,
    /// or two thirds of the validity. Returns true if a window changed.
    async fn poll_windows(&self, now: Timestamp) -> bool {
        let due: Vec<_> = self.read(|table| {
            let polls = table.polls(now).filter(|(at, _)| *at <= now);
            polls
                .filter_map(|(_, row)| Some((row.held.clone()?, row.window.clone())))
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
                let later = Some(now + ARI_PAUSE);
                self.write(|table| table.change(&stored.id, |row| row.ask_again = later));
            }
            Some((stored.id.clone(), previous, window?))
        });
        let mut asked = futures::stream::iter(asked).buffer_unordered(MAX_CONCURRENT_ARI);
        let mut window_changed = false;
        while let Some(answer) = asked.next().await {
            let Some((id, previous, mut window)) = answer else {
                continue;
            };
            let obtained = self.read(|table| {
                let row = table.row(&id)?;
                let ours = row.obtained.map(|obtained| obtained.at);
                ours.or(Some(row.held.as_ref()?.certificate.not_before))
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
            self.write(|table| {
                table.change(&id, |row| {
                    row.ask_again = None;
                    row.window = Some(window);
                })
            });
        }
        window_changed
    }

    async fn remove_quietly(&self, kind: Kind, id: &CertificateId) {
        if let Err(error) = self.storage.remove(&Key::new(kind, id.as_str())).await {
            tracing::warn!(%id, %error, "cannot remove an old record now");
        }
    }

    fn read<T>(&self, read: impl FnOnce(&Table) -> T) -> T {
        read(&self.table.read().expect("nobody panics while holding it"))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        change(&mut self.table.write().expect("nobody panics while holding it"))
    }

    /// Changes the held certificates; if `change` returns true, notifies subscribers.
    fn change(&self, id: &CertificateId, change: impl FnOnce(&mut Table) -> bool) {
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
