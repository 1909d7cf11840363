//! The ACME issuer: one account at one CA.
//!
//! An order is a state machine whose state is persisted before each step that sends requests to the
//! CA (`record.rs`); a process that is killed at any point resumes the same order, with the same
//! key.

mod attempt;
mod authorize;
mod concurrency;
mod drive;
mod persist;
mod place;
mod poll_interval;
mod problem;
mod record;
mod refusal;
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
use crate::client::resource::RENEWAL_INFO;
use crate::client::{Directory, Http, HttpConfig, Proxy, RateLimits, Roots};
use crate::denied_networks::DeniedNetworks;
use crate::failure::{Class, Dependency, Failure};
use crate::issuer::{CertificateId, IssueRequest, Issuer, Known, Underway};
use crate::names::{DnsName, Names};
use crate::preflight::{PreflightPolicy, PreflightRequest, Strictness};
use crate::renewal::Window;
use crate::storage::{self, Expect, Key, Kind, Storage, StorageError, read_json, write_json};

use attempt::OrderAttempt;
use poll_interval::PollInterval;
use record::OrderRecord;
use refusal::Suspicion;

/// Time for which an unwanted order is kept: names come back.
const MAX_UNWANTED_AGE: SignedDuration = SignedDuration::from_hours(24);

/// A certificate profile (draft-ietf-acme-profiles).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedProfile {
    /// Its name at the CA.
    pub name: String,
    /// True to fail where the CA does not offer it; false to use it only where the CA does.
    pub required: bool,
}

/// The settings of an ACME issuer.
#[derive(Clone)]
pub struct AcmeConfig {
    /// The name of the issuer in configuration and messages, and of its account in storage.
    pub name: String,
    /// The directory URL, or `letsencrypt` or `letsencrypt-staging`.
    pub directory: String,
    /// Roots of trust for connections to the CA.
    pub roots: Roots,
    /// The proxy; None for direct connections.
    pub proxy: Option<Proxy>,
    /// Networks that are not connected to, whatever the CA's directory says.
    pub denied: DeniedNetworks,
    /// Contacts, agreement to terms, external account.
    pub registration: Registration,
    /// The challenges that can be solved.
    pub solvers: Solvers,
    /// The certificate profile; None for the CA's default.
    pub profile: Option<RequestedProfile>,
    /// The preferred chain, by the common name of its root or an intermediate, where the CA offers
    /// several.
    pub preferred_chain: Option<String>,
    /// The CA's limits; None for those known for its directory.
    pub limits: Option<Limits>,
    /// The pre-flight check that runs before an order is placed.
    pub preflight: Option<PreflightPolicy>,
    /// Time limit of one exchange with the CA.
    pub timeout: Duration,
    /// Time limit of one attempt at an order, which is then resumed later.
    pub attempt_timeout: Duration,
    /// Most orders that send requests to the CA at the same time.
    pub max_concurrent: usize,
    /// The CAs' limits of our address; issuers at one CA share them.
    pub rate_limits: Arc<RateLimits>,
}

impl AcmeConfig {
    /// Settings with stateless HTTP-01, and defaults for everything else.
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
            preflight: None,
            timeout: Duration::from_secs(30),
            attempt_timeout: Duration::from_secs(300),
            max_concurrent: 16,
            rate_limits: Arc::default(),
        }
    }
}

/// Returns the directory URL for a short name or a URL.
pub fn directory_url(directory: &str) -> &str {
    match directory {
        "letsencrypt" => "https://acme-v02.api.letsencrypt.org/directory",
        "letsencrypt-staging" => "https://acme-staging-v02.api.letsencrypt.org/directory",
        url => url,
    }
}

/// An [`Issuer`] by ACME.
pub struct AcmeIssuer {
    config: AcmeConfig,
    http: Arc<Http>,
    storage: Arc<dyn Storage>,
    account: tokio::sync::Mutex<Option<Arc<Account>>>,
    thumbprint: watch::Sender<Arc<str>>,
    /// Taken for reading by orders and for writing by a key rollover: no challenge is answered with
    /// two keys.
    rollover: RwLock<()>,
    /// Permits to send requests to the CA.
    ca_permits: Semaphore,
    /// The learned time that the CA needs to validate a challenge.
    validation: PollInterval,
    /// The learned time that the CA needs to issue.
    issuance: PollInterval,
    /// Zones in which a record was written successfully.
    zones: zones::Zones,
    budget: Mutex<Budget>,
    writing_budget: AtomicBool,
    /// Counted orders that have not ended, as they are persisted.
    underway: Mutex<BTreeMap<CertificateId, Underway>>,
    /// Refusals that may apply to the account.
    suspicion: Mutex<Suspicion>,
    storage_problems: Vec<String>,
}

impl AcmeIssuer {
    /// Opens the issuer: loads, or generates, its account key, and loads its budget. Sends nothing
    /// yet.
    pub async fn open(mut config: AcmeConfig, storage: Arc<dyn Storage>) -> Result<Self, Failure> {
        config.directory = directory_url(&config.directory).to_owned();
        let limits = config
            .limits
            .clone()
            .unwrap_or_else(|| Limits::of(&config.directory));
        let address_limits = config
            .rate_limits
            .for_directory(&config.directory, &limits, &*storage)
            .await
            .map_err(|e| of_storage(&e))?;
        let http = Http::new(HttpConfig {
            directory_url: config.directory.clone(),
            roots: config.roots.clone(),
            proxy: config.proxy.clone(),
            denied: config.denied.clone(),
            timeout: config.timeout,
            address_limits,
        })
        .map_err(|e| Failure::new(Class::Config, e.to_string()))?;
        let thumbprint = account::thumbprint(&*storage, &config.name, &config.directory)
            .await
            .map_err(|e| problem::of_account(&config.name, &e, Timestamp::now()))?;
        let key = Key::new(Kind::Budget, &config.name);
        let mut storage_problems = Vec::new();
        let mut budget = match read_json::<Budget>(&*storage, &key).await {
            Ok(Some((budget, _))) => budget,
            Ok(None) => Budget::new(limits.clone()),
            // A damaged budget is replaced: the CA repeats its limits in its answers.
            Err(error) if error.is_of_the_entry() => {
                storage_problems.push(storage::set_aside(&*storage, &key, &error).await);
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
            rollover: RwLock::new(()),
            ca_permits: Semaphore::new(config.max_concurrent.max(1)),
            validation: PollInterval::default(),
            issuance: PollInterval::default(),
            zones: zones::Zones::default(),
            budget: Mutex::new(budget),
            writing_budget: AtomicBool::new(false),
            underway: Mutex::new(underway),
            suspicion: Mutex::default(),
            storage_problems,
            config,
        })
    }

    /// Returns the thumbprint of the account's key, which is all that an HTTP-01 responder needs.
    pub fn thumbprint(&self) -> Arc<str> {
        self.thumbprint.borrow().clone()
    }

    /// Subscribes to the thumbprint, which changes with the key.
    pub fn thumbprints(&self) -> watch::Receiver<Arc<str>> {
        self.thumbprint.subscribe()
    }

    /// Returns the HTTP client, for its metrics.
    pub fn http(&self) -> &Arc<Http> {
        &self.http
    }

    /// Returns the challenges that can be solved.
    pub fn solvers(&self) -> &Solvers {
        &self.config.solvers
    }

    /// Returns the account's URL; registers the account first if it is new.
    pub async fn account_url(&self) -> Result<String, Failure> {
        Ok(self.account().await?.url().to_owned())
    }

    /// Returns the CA's directory.
    pub async fn directory(&self) -> Result<Arc<Directory>, Failure> {
        self.http
            .directory()
            .await
            .map_err(|e| problem::of_http(&self.config.name, &e))
    }

    /// Rejects names for which the CA could not issue, before any request.
    pub fn check(&self, names: &Names) -> Result<(), Failure> {
        let profile = self.config.profile.as_ref().map(|p| p.name.as_str());
        let most = Limits::most_names(profile);
        if names.count() > most {
            let count = names.count();
            let issuer = &self.config.name;
            let of = profile
                .map(|p| format!("profile {p} of "))
                .unwrap_or_default();
            let message = format!(
                "{count} names in one certificate, and {of}{issuer} takes at most {most}: spread them over several certificates"
            );
            return Err(Failure::new(Class::Config, message));
        }
        for name in names.iter() {
            if name.is_public_suffix() {
                let message =
                    format!("{name} is a public suffix; no CA issues for it. Use a name below it");
                return Err(Failure::new(Class::Config, message).by(vec![name.to_string()]));
            }
            if !self.config.solvers.can_prove(name) {
                let need = if name.is_wildcard() {
                    "a wildcard needs a DNS-01 provider"
                } else {
                    "no solver is configured"
                };
                let message = format!("issuer {} cannot prove {name}: {need}", self.config.name);
                return Err(Failure::new(Class::Config, message).by(vec![name.to_string()]));
            }
        }
        Ok(())
    }

    /// Returns the findings of the configured pre-flight check for a name. Spends none of the CA's
    /// limits.
    pub async fn findings(&self, name: &DnsName) -> Result<Vec<String>, Failure> {
        Ok(match self.examine(name).await? {
            Examined::Obstacle(obstacle) => vec![obstacle],
            Examined::Findings(findings) => findings,
        })
    }

    async fn examine(&self, name: &DnsName) -> Result<Examined, Failure> {
        let Some(policy) = &self.config.preflight else {
            return Ok(Examined::Findings(Vec::new()));
        };
        self.check(&Names::one(name.clone()))?;
        let kinds = self.config.solvers.kinds();
        let kind = self.config.solvers.choose(name, &kinds).ok_or_else(|| {
            Failure::new(
                Class::Config,
                format!(
                    "issuer {} cannot prove {name}: no solver is configured",
                    self.config.name
                ),
            )
        })?;
        let directory = self.directory().await?;
        let account = self.account().await?;
        let thumbprint = account.thumbprint();
        let request = PreflightRequest {
            name,
            kind,
            directory: &directory,
            account_url: account.url(),
            thumbprint: &thumbprint,
        };
        Ok(match policy.preflight.obstacle(&request).await {
            Some(obstacle) => Examined::Obstacle(obstacle),
            None => Examined::Findings(policy.preflight.findings(&request).await),
        })
    }

    /// Runs the pre-flight check before an order is placed; a finding stops the order, or is only
    /// logged.
    async fn run_preflight(&self, names: &Names) -> Result<(), Failure> {
        let Some(policy) = self
            .config
            .preflight
            .as_ref()
            .filter(|g| g.strictness != Strictness::Skip)
        else {
            return Ok(());
        };
        let mut sentences = Vec::new();
        let mut culprits = Vec::new();
        let found =
            concurrency::run_concurrently(names.iter().map(|name| self.examine(name))).await;
        let mut class = Class::HostFault;
        for (name, examined) in names.iter().zip(concurrency::all(found)?) {
            let found = match examined {
                Examined::Findings(findings) => findings,
                Examined::Obstacle(obstacle) => {
                    class = Class::Config;
                    vec![obstacle]
                }
            };
            if !found.is_empty() {
                culprits.push(name.to_string());
            }
            sentences.extend(found);
        }
        if sentences.is_empty() {
            return Ok(());
        }
        let message = sentences.join("; ");
        if class == Class::Config {
            return Err(Failure::new(class, message).by(culprits));
        }
        if policy.strictness == Strictness::Warn {
            tracing::warn!(issuer = self.config.name, %names, message, "the order is placed all the same");
            return Ok(());
        }
        Err(Failure::new(Class::HostFault, message).by(culprits))
    }

    /// Rolls the account's key over: waits for pending orders, changes the key, and lets orders go
    /// on. HTTP-01 responders learn the new thumbprint from [`Self::thumbprints`]; a solver that
    /// waits until the right answer is served (see
    /// [`HttpSolver`](crate::challenge::http::HttpSolver)) keeps challenges from failing meanwhile.
    pub async fn roll_over_key(&self) -> Result<(), Failure> {
        let _alone = self.rollover.write().await;
        let account = self.account().await?;
        match account.roll_over(&*self.storage, &self.config.name).await {
            Ok(account) => {
                self.thumbprint
                    .send_replace(Arc::from(account.thumbprint()));
                *self.account.lock().await = Some(Arc::new(account));
                Ok(())
            }
            Err(error) => {
                // Which key the CA knows is found out when the account is opened again.
                *self.account.lock().await = None;
                Err(failed(error, &self.config.name))
            }
        }
    }

    /// Registers another account with another key, in place of one that the CA has closed or whose
    /// key is lost. The old record is set aside, and its orders are closed.
    pub async fn replace_account(&self) -> Result<(), Failure> {
        let _alone = self.rollover.write().await;
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
        let _alone = self.rollover.write().await;
        let account = self.account().await?;
        account
            .deactivate(&*self.storage, &self.config.name)
            .await
            .map_err(|e| problem::of_account(&self.config.name, &e, Timestamp::now()))?;
        *self.account.lock().await = None;
        Ok(())
    }

    async fn account(&self) -> Result<Arc<Account>, Failure> {
        // Locked during the opening: of concurrent orders one registers the account, and the others
        // wait.
        let mut account = self.account.lock().await;
        if let Some(account) = &*account {
            return Ok(account.clone());
        }
        let opened = Account::open(
            &*self.storage,
            &self.config.name,
            self.http.clone(),
            &self.config.registration,
        )
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

    /// Persists the budget. Of concurrent callers one writes, including the changes of the others.
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

fn failed(e: AccountError, config_name: &str) -> Failure {
    problem::of_account(config_name, &e, Timestamp::now())
}

#[async_trait]
impl Issuer for AcmeIssuer {
    fn name(&self) -> &str {
        &self.config.name
    }

    async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure> {
        self.check(&request.names)?;
        let _share = self.rollover.read().await;
        let account = self.account().await?;
        // Waits for a concurrent attempt at this order, in this process or another one.
        let _lock = self
            .storage
            .lock(&self.order_key(&request.id))
            .await
            .map_err(|e| of_storage(&e))?;
        OrderAttempt::start(self, &account, request)
            .await?
            .drive()
            .await
    }

    async fn installed(&self, id: &CertificateId) -> Result<(), Failure> {
        let _lock = self
            .storage
            .lock(&self.order_key(id))
            .await
            .map_err(|e| of_storage(&e))?;
        record::close(self, id).await
    }

    async fn abandon(&self, id: &CertificateId) -> Result<(), Failure> {
        let _lock = self
            .storage
            .lock(&self.order_key(id))
            .await
            .map_err(|e| of_storage(&e))?;
        let Some(mut record) = record::read(self, &self.order_key(id)).await? else {
            return record::close(self, id).await;
        };
        // Stored before the CA is told: an order whose authorizations we deactivated is invalid,
        // and whoever finds it after a kill must not take that for a refusal of the names.
        let is_over = std::mem::replace(&mut record.over, true);
        record::write(self, &record).await?;
        if let Some(solver) = &self.config.solvers.alpn {
            for name in record.names.iter() {
                solver.cleanup(name.as_str()).await;
            }
        }
        if let OrderRecord {
            url: Some(url),
            downloaded: None,
            ..
        } = record
            && !is_over
        {
            // Pending authorizations count against the account's limits, and valid ones let the
            // holder of its key issue. A failure here changes nothing for us.
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
                Ok(Err(failure)) => {
                    tracing::warn!(%id, %failure, "authorizations stay as they are at the CA")
                }
                Err(_) => {
                    tracing::warn!(%id, "authorizations stay as they are: the CA does not answer")
                }
            }
        }
        record::close(self, id).await
    }

    async fn tidy(&self, known: &Known, now: Timestamp) -> Result<(), Failure> {
        for key in record::keys(&*self.storage, &self.config.name).await? {
            let Some(record) = record::read(self, &key).await? else {
                continue;
            };
            if record.issuer != self.config.name {
                continue;
            }
            let stored = record
                .serial()
                .is_some_and(|s| known.stored.get(&record.id) == Some(&s));
            let unwanted =
                !known.wanted.contains(&record.id) && record.since + MAX_UNWANTED_AGE < now;
            if stored || record.over {
                self.installed(&record.id).await?;
            } else if unwanted {
                self.abandon(&record.id).await?;
            }
        }
        Ok(())
    }

    fn storage_problems(&self) -> Vec<String> {
        self.storage_problems.clone()
    }

    fn underway(&self) -> Vec<Underway> {
        self.underway
            .lock()
            .expect("nobody panics while holding it")
            .values()
            .cloned()
            .collect()
    }

    fn budget(&self) -> Option<Budget> {
        Some(
            self.with_budget(|b| b.clone())
                .with_address(&self.http.address_limits().ledger()),
        )
    }

    async fn renewal_window(
        &self,
        held: &IssuedCertificate,
        previous: Option<&Window>,
        now: Timestamp,
    ) -> Result<Option<Window>, Failure> {
        let Some(id) = &held.ari_id else {
            return Ok(None);
        };
        let Some(base) = self.directory().await?.renewal_info.clone() else {
            return Ok(None);
        };
        // RFC 9773, 4.1: the identifier is appended as a path segment.
        let url = format!("{}/{id}", base.trim_end_matches('/'));
        let answer = self
            .http
            .send("renewal-info", Method::GET, &url, None)
            .await
            .map_err(|e| problem::of_http(&self.config.name, &e))?;
        if !answer.status.is_success() {
            let message = format!(
                "{} has no renewal window for this certificate: status {}",
                self.config.name, answer.status
            );
            return Err(Failure::new(Class::Transient, message));
        }
        let nonsense = |what: &str| {
            Failure::new(
                Class::Bug,
                format!("{}: invalid ARI response: {what}", self.config.name),
            )
        };
        let info = RENEWAL_INFO
            .read(&answer.body, &url)
            .map_err(|why| nonsense(&why.to_string()))?;
        let info: RenewalInfo =
            serde_json::from_value(info).map_err(|_| nonsense("a time of its window is none"))?;
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

/// The result of a pre-flight check of a name.
enum Examined {
    /// An order would fail for certain.
    Obstacle(String),
    /// What an order may fail for.
    Findings(Vec<String>),
}

/// The answer of the renewalInfo resource (RFC 9773, 4.2).
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
        StorageError::Newer { .. }
        | StorageError::Open { .. }
        | StorageError::Damaged { .. }
        | StorageError::Unreadable { .. } => Class::Config,
        // A foreign object concerns its host only, and may be removed at any time.
        StorageError::Foreign { .. } => Class::HostFault,
        StorageError::Conflict { .. } | StorageError::Io { .. } => Class::Transient,
    };
    let failure = Failure::new(class, format!("storage: {error}"));
    match error {
        StorageError::Io { .. } => failure.with_dependency(Dependency::Storage),
        _ => failure,
    }
}
