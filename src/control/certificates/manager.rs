//! Certificate manager: reconciles wanted certificates with issued ones, incrementally, in one
//! task.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acme::failure::{Attempts, Class};
use acme::fallback_issuer::FallbackIssuer;
use acme::issuer::Issuer;
use acme::keeper::{Keeper, Next, Outlook, Pass};
use acme::self_signed::SelfSigned;
use acme::storage::StorageError;
use acme::{CertificateId, Names, Storage};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::warn;

use super::authority::Authority;
use super::challenge_accounts::ChallengeAccounts;
use super::gc;
use super::issuer_names::unknown_issuer;
use super::issuers::{IssuerError, Opened, open};
use super::named::{Named, POLL_INTERVAL};
use super::proxy_self_check::{AddressQuery, ProxyEndpoints};
use super::request::{CertificateRequest, IssuerRef};
use super::request_index::{IssuerKey, Outcome, RequestChanges, RequestIndex, Resolved};
use super::secret_targets::{ExistingCertificate, SecretTargets};
use super::settings::IssuerSettings;
use super::tls_alpn::TlsAlpnResponder;
use super::update::CertificateUpdate;
use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::translate::SELF_SIGNED;
use gatewright_core::wanted::INTERNAL_CA;

pub use rejections::RejectedCertificate;

/// Requests that arrive within this time are handled together.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// The configuration of the certificate manager.
pub struct CertificateManagerConfig {
    /// The storage of certificates, accounts and orders.
    pub storage: Arc<dyn Storage>,
    /// The internal CA.
    pub authority: Arc<Authority>,
    /// The ACME issuers of the installation, by name.
    pub issuers: BTreeMap<String, IssuerSettings>,
    /// The maximum number of concurrent orders.
    pub at_once: usize,
    /// The channel to the task that knows at which addresses hosts are served, for the self-check
    /// before an order is placed; `None` skips the self-check.
    pub places: Option<mpsc::Sender<AddressQuery>>,
    /// The writer of certificates in Secrets that others write too; `None` where the receiver of
    /// the updates stores certificates.
    pub secret_targets: Option<Arc<dyn SecretTargets>>,
}

/// The reason for which there is no certificate manager.
#[derive(Debug, thiserror::Error)]
pub enum CertificateManagerError {
    /// An issuer cannot be opened.
    #[error("issuer {name}: {why}")]
    Issuer {
        /// The name of the issuer.
        name: String,
        /// The error; it is part of the message, and therefore not a source.
        why: IssuerError,
    },
    /// A list of fallbacks names an unknown issuer.
    #[error("issuer {name}: fallback {missing:?} is not known: there are {known}")]
    Fallback {
        /// The name of the issuer with the list.
        name: String,
        /// The unknown issuer.
        missing: String,
        /// The known issuers.
        known: String,
    },
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Takes requests for certificates, and hands out updates.
pub struct CertificateManager {
    keeper: Arc<Keeper>,
    authority: Arc<Authority>,
    storage: Arc<dyn Storage>,
    secret_targets: Option<Arc<dyn SecretTargets>>,
    endpoints: Arc<ProxyEndpoints>,
    named: Named,
    /// The fallbacks of the installation's issuers.
    fallbacks: BTreeMap<String, Vec<String>>,
    /// The issuers of single objects, or the reason for which they cannot be opened.
    own: Mutex<BTreeMap<ObjectName, Own>>,
    requests: Mutex<RequestIndex>,
    nudge: watch::Sender<u64>,
    report: watch::Sender<Arc<Pass>>,
    /// Namespaces and names of found certificates of internal CAs that are gone, for instance with
    /// the namespace of the controller.
    without_ca: Mutex<Vec<(String, Names)>>,
    by_tls_alpn: bool,
}

struct Own {
    settings: Arc<IssuerSettings>,
    opened: Result<Opened, String>,
}

impl CertificateManager {
    /// Opens the issuers and reads the storage. No request is made yet.
    ///
    /// # Errors
    /// When an issuer's settings are invalid, or the storage cannot be read.
    pub async fn open(config: CertificateManagerConfig) -> Result<Self, CertificateManagerError> {
        let CertificateManagerConfig {
            storage,
            authority,
            issuers,
            at_once,
            places,
            secret_targets,
        } = config;
        let fallbacks: BTreeMap<_, _> = issuers
            .iter()
            .map(|(name, of)| (name.clone(), of.fallback.clone()))
            .collect();
        let endpoints = Arc::new(ProxyEndpoints::new(places, fallbacks.clone()));
        let named = Named::open(&issuers, &storage, &endpoints).await;
        let named = named.map_err(|(name, why)| CertificateManagerError::Issuer { name, why })?;
        for (name, others) in &fallbacks {
            if let Some(missing) = others
                .iter()
                .find(|other| !issuers.contains_key(*other) && *other != INTERNAL_CA)
            {
                let (name, missing, known) = (name.clone(), missing.clone(), names(&named));
                return Err(CertificateManagerError::Fallback {
                    name,
                    missing,
                    known,
                });
            }
        }
        let internal: Arc<dyn Issuer> = authority.clone();
        let mut all = vec![
            internal,
            Arc::new(SelfSigned::new(SELF_SIGNED)) as Arc<dyn Issuer>,
        ];
        all.extend(lists(&named, &fallbacks, &authority));
        let keeper = Keeper::open(storage.clone(), all, at_once).await?;
        // A certificate of a CA that was replaced since is not trusted any more.
        for stored in keeper.certificates() {
            let is_orphan = stored.certificate.issuer == INTERNAL_CA
                && !authority.has_ca_of(&stored.certificate.names);
            if is_orphan && let Err(error) = keeper.forget(&stored.id).await {
                warn!("{}: {error}", stored.id);
            }
        }
        let by_tls_alpn = issuers
            .values()
            .any(|settings| settings.tls_alpn_port.is_some());
        Ok(Self {
            by_tls_alpn,
            keeper,
            authority,
            storage,
            secret_targets,
            endpoints,
            named,
            fallbacks,
            own: Mutex::default(),
            requests: Mutex::default(),
            nudge: watch::channel(0).0,
            report: watch::channel(Arc::default()).0,
            without_ca: Mutex::default(),
        })
    }

    /// Returns the internal CA.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the responder for TLS-ALPN-01, if an issuer uses that challenge type.
    pub fn tls_alpn_responder(&self) -> Option<Arc<TlsAlpnResponder>> {
        self.by_tls_alpn
            .then(|| self.endpoints.tls_alpn_responder.clone())
    }

    fn requests<T>(&self, act: impl FnOnce(&mut RequestIndex) -> T) -> T {
        act(&mut self
            .requests
            .lock()
            .expect("nobody panics while holding it"))
    }

    /// Sets all wanted certificates.
    pub fn want(&self, wants: Vec<CertificateRequest>) {
        let all: BTreeSet<ObjectName> = wants.iter().map(|want| want.secret.clone()).collect();
        let gone: Vec<ObjectName> = self.requests(|requests| {
            requests
                .secrets()
                .filter(|s| !all.contains(s))
                .cloned()
                .collect()
        });
        let gone = gone.into_iter().map(|secret| (secret, None));
        self.change(
            wants
                .into_iter()
                .map(|want| (want.secret.clone(), Some(want)))
                .chain(gone),
        );
    }

    /// Sets the wanted certificates of some Secrets.
    pub fn change(
        &self,
        changes: impl IntoIterator<Item = (ObjectName, Option<CertificateRequest>)>,
    ) {
        self.requests(|requests| {
            changes
                .into_iter()
                .for_each(|(secret, want)| requests.change(secret, want))
        });
        self.nudge.send_modify(|n| *n += 1);
    }

    /// Sets the certificates that some Secrets have, where others write the Secrets too. It must be
    /// called before the request for the Secret.
    pub fn present(
        &self,
        secrets: impl IntoIterator<Item = (ObjectName, Option<ExistingCertificate>)>,
    ) {
        secrets
            .into_iter()
            .filter_map(|(secret, present)| {
                self.requests(|requests| requests.present(&secret, present))
            })
            .for_each(|id| self.keeper.drop_adopted(&id));
        self.nudge.send_modify(|n| *n += 1);
    }

    /// Returns the accounts that answer HTTP-01; issuers that are still being set up keep those of
    /// `before`.
    pub fn answers(&self, before: &ChallengeAccounts) -> ChallengeAccounts {
        let hosts = self.endpoints.active_hosts();
        let exceptions = self.requests(|requests| {
            requests.exceptions(hosts, &|issuer| self.resolve(issuer), &|asked, issuers| {
                self.endpoints.active_account(asked, issuers)
            })
        });
        let own_lock = self.own.lock().expect("nobody panics while holding it");
        let own = own_lock.iter().filter_map(|(owner, own)| {
            Some((IssuerKey::Own(owner.clone()), own.opened.as_ref().ok()?))
        });
        let all_named = self.named.opened();
        let named = all_named
            .iter()
            .map(|(name, opened)| (IssuerKey::Named(name.as_str().into()), opened));
        let known = named
            .chain(own)
            .map(|(issuer, opened)| (issuer, opened.answer()));
        let answers = ChallengeAccounts::new(before, known, exceptions);
        drop(own_lock);
        self.requests(|requests| answers.of(|issuer| requests.is_asked(issuer)))
    }

    /// Returns a channel that changes whenever a certificate, or the state of a wanted one,
    /// changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.keeper.changes()
    }

    /// Returns the updates for wanted certificates since the last call. The caller must apply them.
    pub fn take_updates(&self) -> Vec<CertificateUpdate> {
        self.take_in_news();
        let settled = self.requests(|requests| {
            requests.take_changes(&|issuer| self.resolve(issuer), &|asked, issuers| {
                self.endpoints.active_account(asked, issuers)
            })
        });
        let RequestChanges {
            certificate_updates,
            wanted,
            gone,
            found,
            renewed_internally,
            targets,
        } = settled;
        if self.secret_targets.is_some() {
            let lack_a_ca = renewed_internally
                .into_iter()
                .filter(|(_, names)| !self.authority.has_ca_of(names));
            self.without_ca
                .lock()
                .expect("nobody panics while holding it")
                .extend(lack_a_ca);
        }
        if let Some(secret_targets) = &self.secret_targets {
            targets
                .into_iter()
                .for_each(|(secret, target)| secret_targets.address(&secret, target));
        }
        found
            .into_iter()
            .for_each(|stored| self.keeper.adopt(stored));
        gone.iter()
            .for_each(|host| self.endpoints.forget(host.as_str()));
        if !wanted.is_empty() {
            self.keeper.want(wanted);
        }
        certificate_updates
    }

    /// Updates the request index by changes of the keeper, the self-check, the accounts' keys and
    /// the time.
    fn take_in_news(&self) {
        let pass = self.report.borrow().clone();
        fn reason_of(id: &CertificateId, pass: &Pass) -> Option<String> {
            let place = pass.outlook.binary_search_by(|line| line.id.cmp(id)).ok()?;
            reason(&pass.outlook[place])
        }
        for id in self.keeper.take_changed() {
            let held = self.keeper.held_as(&id);
            let by_clients = held
                .as_ref()
                .is_some_and(|held| held.certificate.refusal(Timestamp::now()).is_some());
            let failed = self.keeper.last_failure(&id);
            let outcome = Outcome {
                reason: reason_of(&id, &pass),
                is_refused: by_clients
                    || failed.as_ref().is_some_and(|last| last.refused.is_some()),
                unrenewed: failed
                    .filter(|_| held.is_some())
                    .and_then(|last| unrenewed(&last)),
            };
            self.requests(|requests| requests.take_in(&id, held, outcome));
        }
        for host in self.endpoints.news() {
            if let Ok(host) = Hostname::parse(&host) {
                self.requests(|requests| requests.touch_host(&host));
            }
        }
        let accounts = self.accounts();
        self.requests(|requests| {
            for (issuer, thumbprint) in accounts {
                requests.set_thumbprint(issuer, Some(thumbprint));
            }
            requests.expire(Timestamp::now());
        });
    }

    /// Returns the thumbprints of the accounts that answer HTTP-01, by issuer.
    fn accounts(&self) -> Vec<(IssuerKey, Arc<str>)> {
        let own = self.own.lock().expect("nobody panics while holding it");
        let own = own.iter().filter_map(|(owner, own)| {
            Some((
                IssuerKey::Own(owner.clone()),
                own.opened.as_ref().ok()?.issuer.thumbprint(),
            ))
        });
        let named = self.named.opened();
        named
            .iter()
            .map(|(name, opened)| {
                (
                    IssuerKey::Named(name.as_str().into()),
                    opened.issuer.thumbprint(),
                )
            })
            .chain(own)
            .collect()
    }

    /// Returns whether every wanted certificate is there, or has a reason for its absence.
    pub fn is_settled(&self) -> bool {
        self.requests(|requests| requests.is_settled())
    }

    /// Returns the number of wanted certificates that were examined so far; it grows with the
    /// changes, not with the number of certificates.
    pub fn looked(&self) -> u64 {
        self.requests(|requests| requests.looked())
    }

    /// Returns the thumbprint of the account that answers for a known host.
    pub fn thumbprint_of(&self, host: &str) -> Option<Arc<str>> {
        let host = Hostname::parse(host).ok()?;
        self.requests(|requests| requests.thumbprint_of(&host))
    }

    /// Runs the keeper, the exchange of updates, garbage collection and the watch of files until
    /// `stop`.
    pub async fn run(
        &self,
        out: mpsc::Sender<Vec<CertificateUpdate>>,
        stop: watch::Receiver<bool>,
    ) {
        let keeping = self.keeper.run(self.report.clone(), stop.clone());
        let collecting = gc::run(
            &*self.storage,
            || {
                self.own
                    .lock()
                    .expect("nobody panics while holding it")
                    .keys()
                    .cloned()
                    .collect()
            },
            stop.clone(),
        );
        tokio::join!(
            keeping,
            self.exchange(out, stop.clone()),
            collecting,
            self.watch_files(stop)
        );
    }

    /// Polls what an operator may repair: files that issuers are set up from, an account, an
    /// internal CA.
    async fn watch_files(&self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let changed = self.named.reopen(&self.storage, &self.endpoints).await;
            self.take_on(&changed);
            if self.authority.mend(Timestamp::now()) {
                self.keeper.add_issuer(self.authority.clone());
            }
        }
    }

    /// Replaces issuers that were set up again in the keeper, and those that fall back to them.
    fn take_on(&self, changed: &[String]) {
        if changed.is_empty() {
            return;
        }
        for issuer in lists(&self.named, &self.fallbacks, &self.authority) {
            self.keeper.add_issuer(issuer);
        }
        for name in changed {
            self.requests(|requests| {
                requests.touch_issuer(&IssuerKey::Named(name.as_str().into()))
            });
        }
        self.nudge.send_modify(|n| *n += 1);
    }

    async fn exchange(
        &self,
        out: mpsc::Sender<Vec<CertificateUpdate>>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut certificates = self.keeper.changes();
        let mut report = self.report.subscribe();
        let mut account_changes = self.endpoints.account_changes();
        let mut nudges = self.nudge.subscribe();
        while !*stop.borrow() {
            nudges.mark_unchanged();
            certificates.mark_unchanged();
            self.open_own().await;
            let pass = report.borrow_and_update().clone();
            self.forget_ended(&pass).await;
            let knows_rejections = self.pass_on_rejections().await;
            let certificate_updates = self.take_updates();
            let has_new_roots = self.make_cas().await;
            if (has_new_roots || !certificate_updates.is_empty())
                && out.send(certificate_updates).await.is_err()
            {
                return;
            }
            tokio::select! {
                // No sender can be dropped: `self` and the keeper hold them.
                _ = certificates.changed() => {}
                _ = report.changed() => {}
                _ = account_changes.changed() => {}
                _ = nudges.changed() => {}
                () = sleep(POLL_INTERVAL), if !knows_rejections => {}
                _ = stop.changed() => return,
            }
            tokio::select! {
                () = sleep(DEBOUNCE) => {}
                _ = stop.changed() => return,
            }
        }
    }

    /// Creates the internal CAs that found certificates lack. Their roots are published from the
    /// start; the certificates stay until renewal. Returns whether there is a new one.
    async fn make_cas(&self) -> bool {
        let lacking = std::mem::take(
            &mut *self
                .without_ca
                .lock()
                .expect("nobody panics while holding it"),
        );
        let mut is_new = false;
        let mut again = Vec::new();
        for (tenant, names) in lacking {
            match self
                .authority
                .prepare(&tenant, &names, Timestamp::now())
                .await
            {
                Ok(()) => is_new = true,
                Err(failure) if failure.class == Class::Transient => again.push((tenant, names)),
                Err(failure) => warn!("{tenant}: {failure}"),
            }
        }
        self.without_ca
            .lock()
            .expect("nobody panics while holding it")
            .extend(again);
        is_new
    }

    /// Opens the issuers that objects describe, and closes those that no object describes any more.
    async fn open_own(&self) {
        for (owner, settings) in self.requests(RequestIndex::owners) {
            let known = {
                let own = self.own.lock().expect("nobody panics while holding it");
                own.get(&owner).map(|own| own.settings.clone())
            };
            if known == settings {
                continue;
            }
            let gone = self
                .own
                .lock()
                .expect("nobody panics while holding it")
                .remove(&owner);
            if let Some(Own {
                opened: Ok(opened), ..
            }) = gone
            {
                self.keeper.remove_issuer(&opened.id);
            }
            let issuer_key = IssuerKey::Own(owner.clone());
            self.requests(|requests| requests.set_thumbprint(issuer_key.clone(), None));
            if let Some(settings) = settings {
                let opened = open(
                    &owner.to_string(),
                    &settings,
                    &self.storage,
                    &self.endpoints,
                )
                .await;
                let opened = opened.map_err(|error| error.to_string());
                if let Ok(opened) = &opened {
                    self.keeper.add_issuer(listed(opened, Vec::new()));
                }
                self.own
                    .lock()
                    .expect("nobody panics while holding it")
                    .insert(owner, Own { settings, opened });
            }
            self.requests(|requests| requests.touch_issuer(&issuer_key));
        }
    }

    fn resolve(&self, issuer: &IssuerRef) -> Result<Resolved, String> {
        fn of(opened: &Opened) -> Resolved {
            Resolved {
                id: opened.id.clone(),
                challenge: opened.answer(),
            }
        }
        match issuer {
            IssuerRef::Named(name) if [INTERNAL_CA, SELF_SIGNED].contains(&&**name) => {
                Ok(Resolved {
                    id: name.to_string(),
                    challenge: None,
                })
            }
            IssuerRef::Named(name) => match self.named.get(name) {
                Some(opened) => opened.as_ref().map(of).map_err(Clone::clone),
                None => {
                    let known = self.named.names();
                    let why = unknown_issuer(name, known.iter().map(String::as_str));
                    Err(format!("{why}; an entry of issuers makes one"))
                }
            },
            IssuerRef::Own { owner, .. } => {
                let own = self.own.lock().expect("nobody panics while holding it");
                match own.get(owner).map(|own| &own.opened) {
                    Some(Ok(opened)) => Ok(of(opened)),
                    Some(Err(text)) => Err(format!("issuer of {owner}: {text}")),
                    None => Err(format!("the issuer of {owner} is being set up")),
                }
            }
        }
    }

    /// Deletes unwanted certificates once they have expired. They are kept until then, so that a
    /// name that returns needs no order.
    async fn forget_ended(&self, pass: &Pass) {
        let now = Timestamp::now();
        for id in &pass.retired {
            if self
                .keeper
                .held_as(id)
                .is_some_and(|stored| stored.certificate.not_after <= now)
                && let Err(error) = self.keeper.forget(id).await
            {
                warn!("{id}: {error}");
            }
        }
    }
}

/// Returns the issuers of the installation for the keeper, each with its fallbacks.
fn lists(
    named: &Named,
    fallbacks: &BTreeMap<String, Vec<String>>,
    authority: &Arc<Authority>,
) -> Vec<Arc<dyn Issuer>> {
    let other = |name: &String| match named.get(name) {
        Some(opened) => opened.ok().map(|opened| opened.issuer as Arc<dyn Issuer>),
        None => (name == INTERNAL_CA).then(|| authority.clone() as Arc<dyn Issuer>),
    };
    named
        .opened()
        .into_iter()
        .map(|(name, opened)| {
            let others = fallbacks
                .get(&name)
                .into_iter()
                .flatten()
                .filter_map(other)
                .collect();
            listed(&opened, others)
        })
        .collect()
}

fn listed(opened: &Opened, others: Vec<Arc<dyn Issuer>>) -> Arc<dyn Issuer> {
    if others.is_empty() && opened.trial.is_none() {
        return opened.issuer.clone();
    }
    let list = FallbackIssuer::new(&opened.id, opened.issuer.clone(), others);
    match &opened.trial {
        Some(trial) => Arc::new(list.with_trial(trial.clone())),
        None => Arc::new(list),
    }
}

fn names(named: &Named) -> String {
    std::iter::once(INTERNAL_CA.to_owned())
        .chain(named.names())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The number of failures in a row from which on a renewal counts as failing that only has to wait
/// for its CA. Limits of a CA are not counted.
const FAILS: u32 = 5;

/// Returns why the renewals of a held certificate fail: at once where somebody has to act, else
/// from the fifth failure on.
fn unrenewed(attempts: &Attempts) -> Option<String> {
    let waits = matches!(attempts.last.class, Class::Transient | Class::RateLimited);
    let fails = !attempts.is_over && (!waits || attempts.failures() >= FAILS);
    fails.then(|| attempts.last.to_string())
}

fn id_of(want: &CertificateRequest, names: &Names) -> CertificateId {
    CertificateId::of(&want.secret.namespace, names)
}

/// Returns the reason for which there is no certificate yet, unless an order is simply in progress.
fn reason(line: &Outlook) -> Option<String> {
    match (&line.last_error, &line.next) {
        (Some(error), _) => Some(error.clone()),
        (None, Next::Wait(because)) => Some(because.clone()),
        (None, Next::Issue(_) | Next::Renew | Next::Retry(_)) => None,
    }
}

mod accounts;
mod admin;
mod check;
mod rejections;
#[cfg(test)]
mod tests;
