//! The ACME issuer: one account at one CA.
//!
//! An order is a small state machine whose state is written down before each step that talks to the CA
//! (`record.rs`); a process killed at any point takes up the same order, with the same key.

mod attempt;
mod authorize;
mod drive;
mod persist;
mod place;
mod poll_interval;
mod problem;
mod record;
mod refusal;
mod side_by_side;
mod zones;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use hyper::Method;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::sync::{RwLock, Semaphore, watch};

use crate::account::{self, Account, AccountError, Registration};
use crate::budget::{Budget, Limits};
use crate::certificate::IssuedCertificate;
use crate::challenge::Solvers;
use crate::client::{Directory, Http, HttpConfig, Proxy, RateLimits, Roots};
use crate::denied_networks::DeniedNetworks;
use crate::failure::{Class, Failure};
use crate::issuer::{CertificateId, IssueRequest, Issuer, Known, Underway};
use crate::names::{DnsName, Names};
use crate::preflight::{Gate, Question, Strictness};
use crate::renewal::Window;
use crate::storage::{self, Expect, Key, Kind, Storage, StorageError, read_json, write_json};

use attempt::OrderAttempt;
use poll_interval::PollInterval;
use record::OrderRecord;
use refusal::Suspicion;

/// An order nobody wants is kept this long: names come back.
const LONGEST_UNWANTED: SignedDuration = SignedDuration::from_hours(24);

/// A profile (draft-ietf-acme-profiles).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedProfile {
    /// Its name at the CA.
    pub name: String,
    /// Refuse to issue without it; else it is taken where the CA has it.
    pub required: bool,
}

/// How an ACME issuer is set up.
#[derive(Clone)]
pub struct AcmeConfig {
    /// The name of the issuer in configuration and messages, and of its account in storage.
    pub name: String,
    /// The directory URL, or `letsencrypt` or `letsencrypt-staging`.
    pub directory: String,
    /// Whom to trust when talking to the CA.
    pub roots: Roots,
    /// Through which proxy.
    pub proxy: Option<Proxy>,
    /// Where the CA is not reached, whatever its directory says.
    pub denied: DeniedNetworks,
    /// Contacts, terms, external account.
    pub registration: Registration,
    /// How names are proven.
    pub solvers: Solvers,
    /// Which profile.
    pub profile: Option<RequestedProfile>,
    /// The common name of the root or intermediate the chain should lead to, where the CA offers several.
    pub preferred_chain: Option<String>,
    /// The CA's limits; without it those known for its directory.
    pub limits: Option<Limits>,
    /// Who looks before an order is placed.
    pub gate: Option<Gate>,
    /// How long one exchange may take.
    pub timeout: Duration,
    /// How long one attempt follows an order; then it is taken up again later.
    pub patience: Duration,
    /// How many orders talk to the CA at a time.
    pub at_once: usize,
    /// What CAs take from our address; issuers at one CA share it.
    pub rate_limits: Arc<RateLimits>,
}

impl AcmeConfig {
    /// An issuer with HTTP-01 answered statelessly, and the defaults for everything else.
    pub fn new(name: &str, directory: &str) -> Self {
        Self {
            name: name.to_owned(),
            directory: directory.to_owned(),
            roots: Roots::System,
            proxy: None,
            denied: DeniedNetworks::default(),
            registration: Registration::default(),
            solvers: Solvers::stateless_http(),
            profile: None,
            preferred_chain: None,
            limits: None,
            gate: None,
            timeout: Duration::from_secs(30),
            patience: Duration::from_secs(300),
            at_once: 16,
            rate_limits: Arc::default(),
        }
    }
}

/// The directory URL for a name or a URL.
pub fn directory_url(directory: &str) -> &str {
    match directory {
        "letsencrypt" => "https://acme-v02.api.letsencrypt.org/directory",
        "letsencrypt-staging" => "https://acme-staging-v02.api.letsencrypt.org/directory",
        url => url,
    }
}

/// An [`Issuer`] that speaks ACME.
pub struct AcmeIssuer {
    config: AcmeConfig,
    http: Arc<Http>,
    storage: Arc<dyn Storage>,
    account: tokio::sync::Mutex<Option<Arc<Account>>>,
    thumbprint: watch::Sender<Arc<str>>,
    /// Orders share it, and a change of the key has it alone: no challenge meets two keys.
    traffic: RwLock<()>,
    /// Whose turn it is to talk to the CA.
    turns: Semaphore,
    /// How long the CA takes to look at a proof.
    validation: PollInterval,
    /// How long the CA takes to sign.
    issuance: PollInterval,
    /// Where records of ours were taken.
    zones: zones::Zones,
    budget: Mutex<Budget>,
    writing_budget: AtomicBool,
    /// Orders that were counted and came to no end, as they are written down.
    underway: Mutex<BTreeMap<CertificateId, Underway>>,
    /// Refusals that could be about the account.
    suspicion: Mutex<Suspicion>,
    troubles: Vec<String>,
}

impl AcmeIssuer {
    /// Sets the issuer up: reads, or makes, its account key and its ledger. Nothing is sent yet.
    pub async fn open(mut config: AcmeConfig, storage: Arc<dyn Storage>) -> Result<Self, Failure> {
        config.directory = directory_url(&config.directory).to_owned();
        let limits = config.limits.clone().unwrap_or_else(|| Limits::of(&config.directory));
        let traffic = config.rate_limits.to(&config.directory, &limits, &*storage).await.map_err(|e| of_storage(&e))?;
        let http = Http::new(HttpConfig {
            directory_url: config.directory.clone(),
            roots: config.roots.clone(),
            proxy: config.proxy.clone(),
            denied: config.denied.clone(),
            timeout: config.timeout,
            traffic,
        })
        .map_err(|e| Failure::new(Class::Config, e.to_string()))?;
        let thumbprint = account::thumbprint(&*storage, &config.name, &config.directory)
            .await
            .map_err(|e| problem::of_account(&config.name, &e, Timestamp::now()))?;
        let key = Key::new(Kind::Budget, &config.name);
        let mut troubles = Vec::new();
        let mut budget = match read_json::<Budget>(&*storage, &key).await {
            Ok(Some((budget, _))) => budget,
            Ok(None) => Budget::new(limits.clone()),
            // What the CA still counts it says itself.
            Err(error) if error.is_of_the_entry() => {
                troubles.push(storage::set_aside(&*storage, &key, &error).await);
                Budget::new(limits.clone())
            }
            Err(e) => return Err(of_storage(&e)),
        };
        budget.limits = limits;
        let underway = record::underway(&*storage, &config.name).await?;
        Ok(Self {
            http,
            storage,
            account: tokio::sync::Mutex::new(None),
            thumbprint: watch::channel(Arc::from(thumbprint)).0,
            traffic: RwLock::new(()),
            turns: Semaphore::new(config.at_once.max(1)),
            validation: PollInterval::default(),
            issuance: PollInterval::default(),
            zones: zones::Zones::default(),
            budget: Mutex::new(budget),
            writing_budget: AtomicBool::new(false),
            underway: Mutex::new(underway),
            suspicion: Mutex::default(),
            troubles,
            config,
        })
    }

    /// The thumbprint of the account's key: all that an HTTP-01 responder needs to know.
    pub fn thumbprint(&self) -> Arc<str> {
        self.thumbprint.borrow().clone()
    }

    /// The thumbprint, as it changes with the key.
    pub fn thumbprints(&self) -> watch::Receiver<Arc<str>> {
        self.thumbprint.subscribe()
    }

    /// The HTTP client, for its counts.
    pub fn http(&self) -> &Arc<Http> {
        &self.http
    }

    /// How names are proven.
    pub fn solvers(&self) -> &Solvers {
        &self.config.solvers
    }

    /// The account's URL, registering it first if need be.
    pub async fn account_url(&self) -> Result<String, Failure> {
        Ok(self.account().await?.url().to_owned())
    }

    /// The CA's directory.
    pub async fn directory(&self) -> Result<Arc<Directory>, Failure> {
        self.http.directory().await.map_err(|e| problem::of_http(&self.config.name, &e))
    }

    /// Refuses what the CA could not issue, before anything is spent.
    pub fn check(&self, names: &Names) -> Result<(), Failure> {
        let profile = self.config.profile.as_ref().map(|p| p.name.as_str());
        let most = Limits::most_names(profile);
        if names.count() > most {
            let (count, issuer) = (names.count(), &self.config.name);
            let of = profile.map(|p| format!("profile {p} of ")).unwrap_or_default();
            let message = format!(
                "{count} names in one certificate, and {of}{issuer} takes at most {most}: spread them over several certificates"
            );
            return Err(Failure::new(Class::Config, message));
        }
        for name in names.iter() {
            if name.is_public_suffix() {
                let message = format!("{name} is a public suffix; no CA issues for it. Use a name below it");
                return Err(Failure::new(Class::Config, message).by(vec![name.to_string()]));
            }
            if !self.config.solvers.can_prove(name) {
                let need =
                    if name.is_wildcard() { "a wildcard needs a DNS-01 provider" } else { "no solver is configured" };
                let message = format!("issuer {} cannot prove {name}: {need}", self.config.name);
                return Err(Failure::new(Class::Config, message).by(vec![name.to_string()]));
            }
        }
        Ok(())
    }

    /// What is in the way of a certificate for a name, as the configured pre-flight sees it. Costs nothing at the CA.
    pub async fn findings(&self, name: &DnsName) -> Result<Vec<String>, Failure> {
        let Some(gate) = &self.config.gate else { return Ok(Vec::new()) };
        self.check(&Names::one(name.clone()))?;
        let kinds = self.config.solvers.kinds();
        let kind = self.config.solvers.choose(name, &kinds).ok_or_else(|| {
            Failure::new(
                Class::Config,
                format!("issuer {} cannot prove {name}: no solver is configured", self.config.name),
            )
        })?;
        let directory = self.directory().await?;
        let account = self.account().await?;
        let thumbprint = account.thumbprint();
        let question =
            Question { name, kind, directory: &directory, account_url: account.url(), thumbprint: &thumbprint };
        Ok(gate.preflight.findings(&question).await)
    }

    /// Looks before an order is placed; a finding stops it, or is told only.
    async fn look_first(&self, names: &Names) -> Result<(), Failure> {
        let Some(gate) = self.config.gate.as_ref().filter(|g| g.strictness != Strictness::Skip) else { return Ok(()) };
        let mut sentences = Vec::new();
        let mut culprits = Vec::new();
        let found = side_by_side::side_by_side(names.iter().map(|name| self.findings(name))).await;
        for (name, found) in names.iter().zip(side_by_side::all(found)?) {
            if !found.is_empty() {
                culprits.push(name.to_string());
            }
            sentences.extend(found);
        }
        if sentences.is_empty() {
            return Ok(());
        }
        let message = sentences.join("; ");
        if gate.strictness == Strictness::Warn {
            tracing::warn!(issuer = self.config.name, %names, message, "the order is placed all the same");
            return Ok(());
        }
        Err(Failure::new(Class::HostFault, message).by(culprits))
    }

    /// Changes the account's key: waits for the orders on their way, changes the key, and lets orders go on. Whoever
    /// answers HTTP-01 learns the new thumbprint from [`Self::thumbprints`]; a solver that waits until the answer is the
    /// right one (see [`HttpSolver`](crate::challenge::http::HttpSolver)) keeps challenges from failing meanwhile.
    pub async fn roll_over_key(&self) -> Result<(), Failure> {
        let _alone = self.traffic.write().await;
        let account = self.account().await?;
        let failed = |e: AccountError| problem::of_account(&self.config.name, &e, Timestamp::now());
        match account.roll_over(&*self.storage, &self.config.name).await {
            Ok(account) => {
                self.thumbprint.send_replace(Arc::from(account.thumbprint()));
                *self.account.lock().await = Some(Arc::new(account));
                Ok(())
            }
            Err(error) => {
                // Which key the CA knows is found out when the account is opened again.
                *self.account.lock().await = None;
                Err(failed(error))
            }
        }
    }

    /// Makes another account, with another key: for one that the CA has closed, or whose key is lost. The old one is set
    /// aside, and its orders are forgotten.
    pub async fn replace_account(&self) -> Result<(), Failure> {
        let _alone = self.traffic.write().await;
        account::discard(&*self.storage, &self.config.name)
            .await
            .map_err(|e| problem::of_account(&self.config.name, &e, Timestamp::now()))?;
        *self.account.lock().await = None;
        for order in self.underway() {
            record::close(self, &order.id).await?;
        }
        self.account().await.map(drop)
    }

    /// Deactivates the account for good.
    pub async fn deactivate(&self) -> Result<(), Failure> {
        let _alone = self.traffic.write().await;
        let account = self.account().await?;
        account
            .deactivate(&*self.storage, &self.config.name)
            .await
            .map_err(|e| problem::of_account(&self.config.name, &e, Timestamp::now()))?;
        *self.account.lock().await = None;
        Ok(())
    }

    async fn account(&self) -> Result<Arc<Account>, Failure> {
        // Held while it is opened: of many orders one registers the account, and the others wait for it.
        let mut account = self.account.lock().await;
        if let Some(account) = &*account {
            return Ok(account.clone());
        }
        let opened = Account::open(&*self.storage, &self.config.name, self.http.clone(), &self.config.registration)
            .await
            .map_err(|e: AccountError| problem::of_account(&self.config.name, &e, Timestamp::now()))?;
        self.thumbprint.send_if_modified(|known| {
            let found = opened.thumbprint();
            let other = **known != *found;
            *known = Arc::from(found);
            other
        });
        Ok(account.insert(Arc::new(opened)).clone())
    }

    fn order_key(&self, id: &CertificateId) -> Key {
        Key::new(Kind::Order, &format!("{}.{id}", self.config.name))
    }

    fn with_budget<T>(&self, change: impl FnOnce(&mut Budget) -> T) -> T {
        change(&mut self.budget.lock().expect("nobody panics while holding it"))
    }

    /// Writes the ledger. Of several callers one writes; what the others changed meanwhile it writes as well.
    async fn write_budget(&self, now: Timestamp) -> Result<(), StorageError> {
        let key = Key::new(Kind::Budget, &self.config.name);
        while !self.writing_budget.swap(true, Ordering::AcqRel) {
            let snapshot = self.with_budget(|b| {
                b.prune(now);
                b.clone()
            });
            let written = write_json(&*self.storage, &key, &snapshot, &Expect::Anything).await;
            self.writing_budget.store(false, Ordering::Release);
            written?;
            if self.with_budget(|b| *b == snapshot) {
                break;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Issuer for AcmeIssuer {
    fn name(&self) -> &str {
        &self.config.name
    }

    async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure> {
        self.check(&request.names)?;
        let _share = self.traffic.read().await;
        let account = self.account().await?;
        // Whoever else works on this order, here or in another process, is waited for.
        let _lock = self.storage.lock(&self.order_key(&request.id)).await.map_err(|e| of_storage(&e))?;
        OrderAttempt::start(self, &account, request).await?.drive().await
    }

    async fn installed(&self, id: &CertificateId) -> Result<(), Failure> {
        let _lock = self.storage.lock(&self.order_key(id)).await.map_err(|e| of_storage(&e))?;
        record::close(self, id).await
    }

    async fn abandon(&self, id: &CertificateId) -> Result<(), Failure> {
        let _lock = self.storage.lock(&self.order_key(id)).await.map_err(|e| of_storage(&e))?;
        let Some(record) = record::read(self, &self.order_key(id)).await? else {
            return record::close(self, id).await;
        };
        if let Some(solver) = &self.config.solvers.alpn {
            for name in record.names.iter() {
                solver.cleanup(name.as_str()).await;
            }
        }
        if let OrderRecord { url: Some(url), downloaded: None, over: false, .. } = record {
            // Authorizations count against the account, and let whoever has its key issue; what the CA answers changes
            // nothing for us.
            let given_up = tokio::time::timeout(self.config.timeout, async {
                let account = self.account().await?;
                let (protocol, _) = account
                    .protocol()
                    .await
                    .map_err(|e| problem::of_protocol(self, &e, None, None, Timestamp::now()))?;
                if let Ok(mut order) = protocol.order(url).await {
                    authorize::deactivate_all(&mut order).await;
                }
                Ok::<_, Failure>(())
            });
            match given_up.await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => tracing::warn!(%id, %failure, "authorizations stay as they are at the CA"),
                Err(_) => tracing::warn!(%id, "authorizations stay as they are: the CA does not answer"),
            }
        }
        record::close(self, id).await
    }

    async fn tidy(&self, known: &Known, now: Timestamp) -> Result<(), Failure> {
        for key in record::keys(&*self.storage, &self.config.name).await? {
            let Some(record) = record::read(self, &key).await? else { continue };
            if record.issuer != self.config.name {
                continue;
            }
            let stored = record.serial().is_some_and(|s| known.stored.get(&record.id) == Some(&s));
            let unwanted = !known.wanted.contains(&record.id) && record.since + LONGEST_UNWANTED < now;
            if stored || record.over {
                self.installed(&record.id).await?;
            } else if unwanted {
                self.abandon(&record.id).await?;
            }
        }
        Ok(())
    }

    fn troubles(&self) -> Vec<String> {
        self.troubles.clone()
    }

    fn underway(&self) -> Vec<Underway> {
        self.underway.lock().expect("nobody panics while holding it").values().cloned().collect()
    }

    fn budget(&self) -> Option<Budget> {
        Some(self.with_budget(|b| b.clone()).beside(&self.http.traffic().ledger()))
    }

    async fn renewal_window(
        &self,
        held: &IssuedCertificate,
        previous: Option<&Window>,
        now: Timestamp,
    ) -> Result<Option<Window>, Failure> {
        let Some(id) = &held.ari_id else { return Ok(None) };
        let Some(base) = self.directory().await?.renewal_info.clone() else { return Ok(None) };
        // RFC 9773, 4.1: the identifier is appended as a path segment.
        let url = format!("{}/{id}", base.trim_end_matches('/'));
        let answer = self
            .http
            .send("renewal-info", Method::GET, &url, None)
            .await
            .map_err(|e| problem::of_http(&self.config.name, &e))?;
        if !answer.status.is_success() {
            let message =
                format!("{} has no renewal window for this certificate: status {}", self.config.name, answer.status);
            return Err(Failure::new(Class::Transient, message));
        }
        let nonsense =
            |what: &str| Failure::new(Class::Bug, format!("{} answers ARI with nonsense: {what}", self.config.name));
        let info: RenewalInfo =
            serde_json::from_slice(&answer.body).map_err(|_| nonsense("not the JSON of RFC 9773"))?;
        Window::answered(
            previous,
            id,
            (info.suggested_window.start, info.suggested_window.end),
            info.explanation_url,
            (held.not_before, held.not_after),
            answer.exchange().retry_after,
            now,
        )
        .map(Some)
        .map_err(nonsense)
    }
}

/// RFC 9773, 4.2.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RenewalInfo {
    suggested_window: SuggestedWindow,
    #[serde(rename = "explanationURL")]
    explanation_url: Option<String>,
}

#[derive(Deserialize)]
struct SuggestedWindow {
    start: Timestamp,
    end: Timestamp,
}

pub(crate) fn of_storage(error: &StorageError) -> Failure {
    let class = match error {
        StorageError::Open { .. } | StorageError::Damaged { .. } | StorageError::Unreadable { .. } => Class::Config,
        // It concerns its host alone, and may go at any time.
        StorageError::Foreign { .. } => Class::HostFault,
        StorageError::Conflict { .. } | StorageError::Io { .. } => Class::Transient,
    };
    Failure::new(class, format!("storage: {error}"))
}
