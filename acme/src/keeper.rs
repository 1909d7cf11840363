//! Carries the plan out: holds the certificates, issues and renews them, remembers failures.
//!
//! Several keepers over one storage do each thing once: before a certificate is got, its lock is taken and the
//! storage is looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::certificate::IssuedCertificate;
use crate::engine::of_storage;
use crate::failure::{Attempts, Class, Failure};
use crate::issuer::{CertificateId, IssueRequest, Issuer, Known};
use crate::names::{DnsName, Names};
use crate::plan::{Budgets, Held, Order, Reason, Step, Wanted, plan};
use crate::renewal::{Window, roll};
use crate::storage::{Expect, Key, Kind, Storage, StorageError, read_json, write_json};

/// Even when nothing is due, the plan is looked at this often: clocks jump.
const LONGEST_SLEEP: SignedDuration = SignedDuration::from_hours(1);
/// How many ARI answers are asked for at once.
const ARI_AT_ONCE: usize = 16;

/// A certificate as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stored {
    /// Its stable name.
    pub id: CertificateId,
    /// Whose it is.
    pub tenant: String,
    /// The certificate.
    pub certificate: IssuedCertificate,
}

/// Certificates, issuers and storage, put together.
pub struct Keeper {
    storage: Arc<dyn Storage>,
    issuers: BTreeMap<String, Arc<dyn Issuer>>,
    at_once: usize,
    shelf: RwLock<Shelf>,
    generation: watch::Sender<u64>,
}

#[derive(Default)]
struct Shelf {
    held: BTreeMap<CertificateId, Arc<Stored>>,
    windows: BTreeMap<CertificateId, Window>,
    attempts: BTreeMap<CertificateId, Attempts>,
    tidied: Option<Timestamp>,
}

/// What one pass did, and what comes next.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// Certificates that are new.
    pub issued: Vec<CertificateId>,
    /// What did not work.
    pub failed: Vec<(CertificateId, Failure)>,
    /// Certificates nobody wants any more.
    pub retired: Vec<CertificateId>,
    /// How each wish stands.
    pub outlook: Vec<Outlook>,
    /// When the next pass is due.
    pub next: Option<Timestamp>,
}

/// How one wish stands, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// The wish.
    pub id: CertificateId,
    /// Whose it is.
    pub tenant: String,
    /// Its names.
    pub names: Names,
    /// The issuer.
    pub issuer: String,
    /// End of the certificate that is served, if there is one.
    pub expires: Option<Timestamp>,
    /// What happens next.
    pub next: Next,
    /// When.
    pub at: Timestamp,
    /// The last error since the last success.
    pub last_error: Option<String>,
}

/// What happens next to a wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Next {
    /// It is being got.
    Issue(Reason),
    /// It waits for something.
    Wait(String),
    /// It will be renewed.
    Renew,
}

impl Keeper {
    /// Reads what is stored. A damaged entry is left out and told, so that one of them stops nobody else.
    pub async fn open(
        storage: Arc<dyn Storage>,
        issuers: impl IntoIterator<Item = Arc<dyn Issuer>>,
        at_once: usize,
    ) -> Result<Self, StorageError> {
        let mut shelf = Shelf::default();
        for key in storage.list(Kind::Certificate).await? {
            if let Some(stored) = readable::<Stored>(&*storage, &key).await? {
                shelf.held.insert(stored.id.clone(), Arc::new(stored));
            }
        }
        let ids: BTreeMap<String, CertificateId> =
            shelf.held.keys().map(|id| (Key::new(Kind::Renewal, id.as_str()).name().to_owned(), id.clone())).collect();
        for key in storage.list(Kind::Renewal).await? {
            if let (Some(id), Some(window)) = (ids.get(key.name()), readable::<Window>(&*storage, &key).await?) {
                shelf.windows.insert(id.clone(), window);
            }
        }
        for key in storage.list(Kind::Attempts).await? {
            if let Some((id, attempts)) = readable::<(CertificateId, Attempts)>(&*storage, &key).await? {
                shelf.attempts.insert(id, attempts);
            }
        }
        Ok(Self {
            storage,
            issuers: issuers.into_iter().map(|i| (i.name().to_owned(), i)).collect(),
            at_once: at_once.max(1),
            shelf: RwLock::new(shelf),
            generation: watch::channel(0).0,
        })
    }

    /// Changes whenever a certificate does.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// The certificate to serve for a name of a tenant: alive, with the exact name before a wildcard, the longest life first.
    pub fn certificate(&self, tenant: &str, name: &DnsName, now: Timestamp) -> Option<Arc<Stored>> {
        self.read(|shelf| {
            shelf
                .held
                .values()
                .filter(|s| s.tenant == tenant && s.certificate.not_after > now)
                .filter(|s| s.certificate.names.iter().any(|n| n.covers(name)))
                .max_by_key(|s| (s.certificate.names.contains(name), s.certificate.not_after))
                .cloned()
        })
    }

    /// All certificates.
    pub fn certificates(&self) -> Vec<Arc<Stored>> {
        self.read(|shelf| shelf.held.values().cloned().collect())
    }

    /// What is left of each issuer's limits.
    pub fn budgets(&self) -> Budgets {
        self.issuers.iter().filter_map(|(name, issuer)| Some((name.clone(), issuer.budget()?))).collect()
    }

    /// The last failure for a wish, if the last attempt failed.
    pub fn last_failure(&self, id: &CertificateId) -> Option<Attempts> {
        self.read(|shelf| shelf.attempts.get(id).cloned())
    }

    /// Removes a certificate nobody wants, and whatever is on the way to another one.
    pub async fn forget(&self, id: &CertificateId) -> Result<(), Failure> {
        let _lock = self.storage.lock(&Key::new(Kind::Certificate, id.as_str())).await.map_err(|e| of_storage(&e))?;
        for issuer in self.issuers.values() {
            issuer.abandon(id).await?;
        }
        for kind in [Kind::Certificate, Kind::Renewal, Kind::Attempts] {
            self.storage.remove(&Key::new(kind, id.as_str())).await.map_err(|e| of_storage(&e))?;
        }
        self.change(|shelf| {
            shelf.windows.remove(id);
            shelf.attempts.remove(id);
            shelf.held.remove(id).is_some()
        });
        Ok(())
    }

    /// One pass: asks for renewal windows that are due, plans, and gets what is to be got.
    pub async fn pass(&self, wanted: &[Wanted], now: Timestamp) -> Pass {
        self.poll_windows(now).await;
        let wanted = self.with_holds(wanted, now);
        let held = self.held();
        let budgets = self.budgets();
        let steps = plan(&wanted, &held, &budgets, now);
        let mut pass = Pass::default();
        let mut orders = Vec::new();
        for step in &steps {
            match step {
                Step::Issue(order) => orders.push(order),
                Step::Retire(held) => pass.retired.push(held.id.clone()),
                Step::Wait { .. } | Step::Keep { .. } => {}
            }
        }
        let going = orders.iter().map(|o| o.id.clone());
        self.tidy(wanted.iter().map(|w| w.id.clone()).chain(going).collect(), now).await;
        let mut results = futures::stream::iter(orders.into_iter().map(|o| async move { (o, self.get(o, now).await) }))
            .buffer_unordered(self.at_once);
        while let Some((order, result)) = results.next().await {
            match result {
                Ok(true) => pass.issued.push(order.id.clone()),
                Ok(false) => {}
                Err(failure) => {
                    tracing::warn!(id = %order.id, class = failure.class.as_str(), %failure, "no certificate");
                    self.remember(order, &failure, now).await;
                    pass.failed.push((order.id.clone(), failure));
                }
            }
        }
        drop(results);
        drop(steps);
        // What is true now, after all that.
        let wanted = self.with_holds(&wanted, now);
        let held = self.held();
        pass.outlook = self.outlook(&wanted, &held, now);
        let polls = self.read(|s| s.windows.values().map(|w| w.poll_at).min());
        let steps = pass.outlook.iter().map(|o| o.at).min();
        pass.next = [polls, steps].into_iter().flatten().min().map(|t| t.clamp(now, now + LONGEST_SLEEP));
        pass
    }

    /// Once at the start, and now and then: what earlier attempts left behind is taken away.
    async fn tidy(&self, wanted: BTreeSet<CertificateId>, now: Timestamp) {
        if self.read(|s| s.tidied.is_some_and(|t| now < t + LONGEST_SLEEP)) {
            return;
        }
        let stored = self.read(|s| s.held.iter().map(|(id, h)| (id.clone(), h.certificate.serial.clone())).collect());
        let known = Known { stored, wanted };
        for issuer in self.issuers.values() {
            if let Err(failure) = issuer.tidy(&known, now).await {
                tracing::warn!(issuer = issuer.name(), %failure, "traces of earlier orders stay for now");
            }
        }
        self.write(|s| s.tidied = Some(now));
    }

    /// Passes, whenever something is wanted anew, is due, or was asked for, until `stop` is true.
    pub async fn run(
        &self,
        mut wanted: watch::Receiver<Arc<Vec<Wanted>>>,
        report: watch::Sender<Arc<Pass>>,
        mut stop: watch::Receiver<bool>,
    ) {
        while !*stop.borrow() {
            let wishes = wanted.borrow_and_update().clone();
            let pass = tokio::select! {
                pass = self.pass(&wishes, Timestamp::now()) => pass,
                // Dropping a pass loses nothing: orders are taken up again.
                _ = stop.changed() => return,
            };
            let next = pass.next.unwrap_or(Timestamp::now() + LONGEST_SLEEP);
            report.send_replace(Arc::new(pass));
            let sleep = next.duration_since(Timestamp::now()).max(SignedDuration::from_secs(1));
            tokio::select! {
                () = tokio::time::sleep(std::time::Duration::try_from(sleep).unwrap_or_default()) => {}
                changed = wanted.changed() => if changed.is_err() { return },
                _ = stop.changed() => return,
            }
        }
    }

    /// Gets one certificate. `false`: another keeper had done it already.
    async fn get(&self, order: &Order<'_>, now: Timestamp) -> Result<bool, Failure> {
        let wish = order.serves[0];
        let issuer = self.issuers.get(&wish.issuer).ok_or_else(|| {
            let known = self.issuers.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Failure::new(Class::Config, format!("no issuer is called {:?}; there are: {known}", wish.issuer))
        })?;
        let key = Key::new(Kind::Certificate, order.id.as_str());
        let _lock = self.storage.lock(&key).await.map_err(|e| of_storage(&e))?;
        let stored = read_json::<Stored>(&*self.storage, &key).await.map_err(|e| of_storage(&e))?;
        let ours = self.read(|s| s.held.get(&order.id).cloned());
        if let Some((stored, _)) = &stored
            && ours.as_ref().is_none_or(|o| o.certificate.serial != stored.certificate.serial)
        {
            let stored = stored.clone();
            self.change(|s| {
                s.held.insert(order.id.clone(), Arc::new(stored));
                true
            });
            return Ok(false);
        }
        let request = IssueRequest {
            id: order.id.clone(),
            names: order.names.clone(),
            validity: wish.validity,
            replaces: order.replaces_id(),
            exempt: order.exempt,
            failures: self.read(|s| s.attempts.get(&wish.id).map_or(0, |a| a.failures)),
            now,
        };
        let certificate = issuer.issue(&request).await?;
        if let Some((held, _)) = &stored {
            certificate
                .may_replace(&held.certificate, &order.names, now)
                .map_err(|e| Failure::new(Class::Bug, format!("{}: not taken, since {e}", wish.issuer)))?;
        }
        let made = Stored { id: order.id.clone(), tenant: wish.tenant.clone(), certificate };
        write_json(&*self.storage, &key, &made, &Expect::Anything).await.map_err(|e| of_storage(&e))?;
        issuer.installed(&order.id).await?;
        self.remove_quietly(Kind::Renewal, &order.id).await;
        for wish in &order.serves {
            if self.read(|s| s.attempts.contains_key(&wish.id)) {
                self.remove_quietly(Kind::Attempts, &wish.id).await;
            }
        }
        self.change(|shelf| {
            shelf.windows.remove(&order.id);
            for wish in &order.serves {
                shelf.attempts.remove(&wish.id);
            }
            shelf.held.insert(order.id.clone(), Arc::new(made));
            true
        });
        Ok(true)
    }

    /// Notes a failure against the wishes at fault; those that only shared the order go on at once, without them.
    async fn remember(&self, order: &Order<'_>, failure: &Failure, now: Timestamp) {
        let at_fault = |w: &Wanted| {
            failure.culprits.is_empty() || w.names.iter().any(|n| failure.culprits.iter().any(|c| c == n.as_str()))
        };
        for wish in order.serves.iter().filter(|w| at_fault(w)) {
            let previous = self.read(|s| s.attempts.get(&wish.id).cloned());
            let count = previous.as_ref().map_or(0, |p| p.failures).to_string();
            let spread = roll(&format!("{}{count}", wish.id), 2);
            let attempts = Attempts::after(previous.as_ref(), failure.clone(), &about(wish), now, spread);
            let key = Key::new(Kind::Attempts, wish.id.as_str());
            let entry = (&wish.id, &attempts);
            if let Err(error) = write_json(&*self.storage, &key, &entry, &Expect::Anything).await {
                tracing::warn!(id = %wish.id, %error, "a failed attempt could not be written");
            }
            self.write(|s| s.attempts.insert(wish.id.clone(), attempts));
        }
    }

    /// The wishes, held off where attempts failed. What changed since is tried at once.
    fn with_holds(&self, wanted: &[Wanted], now: Timestamp) -> Vec<Wanted> {
        self.read(|shelf| {
            let hold = |w: &Wanted| {
                let attempts = shelf.attempts.get(&w.id).filter(|a| a.about == about(w))?;
                (attempts.not_before > now).then(|| (attempts.not_before, attempts.last.message.clone()))
            };
            wanted
                .iter()
                .map(|w| Wanted {
                    hold: hold(w).max(w.hold.clone().filter(|h| h.0 > now)),
                    // Who failed is tried alone, so that it cannot pull others down.
                    may_share: w.may_share && !shelf.attempts.contains_key(&w.id),
                    ..w.clone()
                })
                .collect()
        })
    }

    fn held(&self) -> Vec<Held> {
        self.read(|shelf| {
            let entry = |s: &Arc<Stored>| Held {
                id: s.id.clone(),
                tenant: s.tenant.clone(),
                issuer: s.certificate.issuer.clone(),
                names: s.certificate.names.clone(),
                not_before: s.certificate.not_before,
                not_after: s.certificate.not_after,
                ari_id: s.certificate.ari_id.clone(),
                window: shelf.windows.get(&s.id).cloned(),
            };
            shelf.held.values().map(entry).collect()
        })
    }

    fn outlook(&self, wanted: &[Wanted], held: &[Held], now: Timestamp) -> Vec<Outlook> {
        let budgets = self.budgets();
        let last_error = |w: &Wanted| self.read(|s| s.attempts.get(&w.id).map(|a| a.last.message.clone()));
        let line = |w: &Wanted, expires: Option<Timestamp>, next: Next, at: Timestamp| Outlook {
            id: w.id.clone(),
            tenant: w.tenant.clone(),
            names: w.names.clone(),
            issuer: w.issuer.clone(),
            expires,
            next,
            at,
            last_error: last_error(w),
        };
        let mut lines = Vec::with_capacity(wanted.len());
        for step in plan(wanted, held, &budgets, now) {
            match step {
                Step::Issue(order) => {
                    let reason = order.reason;
                    let expires = order.replaces.filter(|h| h.not_after > now).map(|h| h.not_after);
                    lines.extend(order.serves.iter().map(|w| line(w, expires, Next::Issue(reason), now)));
                }
                Step::Wait { wanted, until, because, served } => {
                    lines.push(line(wanted, served.map(|h| h.not_after), Next::Wait(because), until));
                }
                Step::Keep { wanted, held, until } => {
                    lines.push(line(wanted, Some(held.not_after), Next::Renew, until));
                }
                Step::Retire(_) => {}
            }
        }
        lines.sort_by(|a, b| a.id.cmp(&b.id));
        lines
    }

    /// Asks the CAs when they want renewals. Without an answer the window known, or two thirds of a life, counts.
    async fn poll_windows(&self, now: Timestamp) {
        let due: Vec<_> = self.read(|shelf| {
            let is_due = |s: &&Arc<Stored>| {
                let known = shelf.windows.get(&s.id).filter(|w| s.certificate.ari_id.as_deref() == Some(&w.of));
                s.certificate.ari_id.is_some() && known.is_none_or(|w| w.poll_at <= now)
            };
            let live = shelf.held.values().filter(|s| s.certificate.not_after > now).filter(is_due);
            live.map(|s| (s.clone(), shelf.windows.get(&s.id).cloned())).collect()
        });
        let asked = due.into_iter().map(|(stored, previous)| async move {
            let issuer = self.issuers.get(&stored.certificate.issuer)?;
            match issuer.renewal_window(&stored.certificate, previous.as_ref(), now).await {
                Ok(window) => Some((stored.id.clone(), window?)),
                Err(failure) => {
                    tracing::debug!(id = %stored.id, %failure, "no renewal window");
                    // Asked again in an hour, not at the next pass.
                    let later = previous.map(|w| Window { poll_at: now + SignedDuration::from_hours(1), ..w })?;
                    Some((stored.id.clone(), later))
                }
            }
        });
        let mut asked = futures::stream::iter(asked).buffer_unordered(ARI_AT_ONCE);
        while let Some(answer) = asked.next().await {
            let Some((id, window)) = answer else { continue };
            let key = Key::new(Kind::Renewal, id.as_str());
            if let Err(error) = write_json(&*self.storage, &key, &window, &Expect::Anything).await {
                tracing::warn!(%id, %error, "a renewal window could not be written");
            }
            self.write(|s| s.windows.insert(id, window));
        }
    }

    async fn remove_quietly(&self, kind: Kind, id: &CertificateId) {
        if let Err(error) = self.storage.remove(&Key::new(kind, id.as_str())).await {
            tracing::warn!(%id, %error, "an old entry stays for now");
        }
    }

    fn read<T>(&self, look: impl FnOnce(&Shelf) -> T) -> T {
        look(&self.shelf.read().expect("nobody panics while holding it"))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Shelf) -> T) -> T {
        change(&mut self.shelf.write().expect("nobody panics while holding it"))
    }

    /// Changes the shelf and, where `change` says so, tells everybody.
    fn change(&self, change: impl FnOnce(&mut Shelf) -> bool) {
        if self.write(change) {
            self.generation.send_modify(|g| *g += 1);
        }
    }
}

/// What attempts for a wish are about; when it changes, they are forgotten.
fn about(wish: &Wanted) -> String {
    format!("{} {}", wish.issuer, wish.names.to_strings().join(","))
}

async fn readable<T: serde::de::DeserializeOwned>(storage: &dyn Storage, key: &Key) -> Result<Option<T>, StorageError> {
    match read_json::<T>(storage, key).await {
        Ok(found) => Ok(found.map(|(value, _)| value)),
        Err(error @ (StorageError::Damaged { .. } | StorageError::Open { .. })) => {
            tracing::error!(%error, "left out");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
