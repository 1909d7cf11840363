//! The internal CA, for sites that no public CA serves.
//!
//! A P-384 root signs one P-384 intermediate, which signs P-256 leaves; then the root's key is
//! destroyed, so that it cannot be stolen. Both have the name constraints of the configuration (RFC
//! 5280, 4.2.1.10), so that a stolen CA key is worth little outside the permitted domains. At a
//! rollover a new root is published before it signs: clients that follow the bundle never see an
//! unknown root.

mod authority;
mod state;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use zeroize::Zeroizing;

pub use authority::{Constraints, Subtree};
pub use state::Generation;

use crate::certificate::IssuedCertificate;
use crate::failure::{Class, Failure};
use crate::issuer::{IssueRequest, Issuer};
use crate::key::{KeyError, PrivateKeyPem};
use crate::names::Names;
use crate::storage::StorageError;
use authority::Authority;
pub(crate) use authority::{calendar, random_serial};
use state::{Home, State, StateFile};

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Shortest validity of a leaf: renewal needs time.
const SHORTEST_LEAF: SignedDuration = SignedDuration::from_hours(1);
/// Longest validity of a leaf that clients accept from private CAs.
const LONGEST_LEAF: SignedDuration = SignedDuration::from_hours(24 * 398);

/// The settings of the internal CA.
#[derive(Clone, Debug)]
pub struct InternalCaConfig {
    /// The name of the issuer in configuration and messages.
    pub name: String,
    /// The directory of its state file; created if absent.
    pub directory: PathBuf,
    /// Organization in the subject of root and intermediate.
    pub organization: String,
    /// The names that it may issue for.
    pub constraints: Constraints,
    /// The tenant that the CA is made for; empty where none is given.
    pub made_for: String,
    /// Validity of a leaf where the request has none.
    pub leaf_validity: SignedDuration,
    /// Time for which a new root is published before it signs.
    pub overlap: SignedDuration,
}

impl InternalCaConfig {
    /// Settings with a leaf validity of 90 days and an overlap of 30 days.
    pub fn new(name: &str, directory: impl Into<PathBuf>, constraints: Constraints) -> Self {
        Self {
            name: name.to_owned(),
            directory: directory.into(),
            organization: "Gatewright".to_owned(),
            constraints,
            made_for: String::new(),
            leaf_validity: DAY * 90,
            overlap: DAY * 30,
        }
    }

    fn check(&self) -> Result<(), CaError> {
        if !(SHORTEST_LEAF..=LONGEST_LEAF).contains(&self.leaf_validity) {
            let problem = "expected one hour to 398 days".to_owned();
            return Err(CaError::Config {
                field: "leaf_validity",
                problem,
            });
        }
        self.constraints.check()
    }
}

/// The internal CA: opened once, shared by all its users.
pub struct InternalCa {
    config: InternalCaConfig,
    home: Home,
    current: RwLock<Arc<Signing>>,
}

/// The loaded signer, and the state that it was loaded from.
struct Signing {
    state: State,
    authority: Authority,
}

impl InternalCa {
    /// Opens the CA of a directory, or creates one there. Two processes that open it at the same
    /// time get the same CA.
    pub fn open(config: InternalCaConfig, now: Timestamp) -> Result<Self, CaError> {
        config.check()?;
        let home = Home::File(StateFile::open(&config.directory)?);
        let state = home.update(|state| {
            let mut state = match state {
                Some(state) => state,
                None => State::create(&config, now)?,
            };
            state.advance(&config, now)?;
            Ok(state)
        })?;
        let signing = Signing::of(state, now)?;
        signing.authority.check_constraints(&config.constraints)?;
        Ok(Self {
            config,
            home,
            current: RwLock::new(Arc::new(signing)),
        })
    }

    /// Opens the CA of a [`Self::record`], or creates one. The caller persists the record before a
    /// leaf is used, and whenever it changes. The directory of the configuration is not used.
    pub fn of_record(
        config: InternalCaConfig,
        record: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<Self, CaError> {
        config.check()?;
        let mut state = match record {
            Some(record) => State::read(record, || "the internal CA".to_owned())?,
            None => State::create(&config, now)?,
        };
        state.advance(&config, now)?;
        let signing = Signing::of(state.clone(), now)?;
        signing.authority.check_constraints(&config.constraints)?;
        Ok(Self {
            config,
            home: Home::Caller(Mutex::new(state)),
            current: RwLock::new(Arc::new(signing)),
        })
    }

    /// Returns the complete state as a record, including the keys.
    pub fn record(&self) -> Zeroizing<Vec<u8>> {
        self.signing().state.record()
    }

    /// Opens a CA that the user provides: its certificate (with intermediates up to, and without,
    /// the root), its key, and the roots that clients trust. It signs leaves directly.
    pub fn bring_your_own(
        config: InternalCaConfig,
        chain_pem: &str,
        key: PrivateKeyPem,
        roots_pem: &str,
        now: Timestamp,
    ) -> Result<Self, CaError> {
        let home = Home::File(StateFile::open(&config.directory)?);
        let state = State::brought(chain_pem, key, roots_pem, now)?;
        let state = home.update(|_| Ok(state.clone()))?;
        Ok(Self {
            current: RwLock::new(Arc::new(Signing::of(state, now)?)),
            config,
            home,
        })
    }

    /// Returns the roots that clients should trust now: all published ones, newest first.
    pub fn bundle_pem(&self, now: Timestamp) -> String {
        self.signing().state.bundle(now)
    }

    /// Returns the path of the file that contains [`Self::bundle_pem`].
    pub fn bundle_path(&self) -> PathBuf {
        self.config.directory.join("ca.crt")
    }

    /// Returns the tenant that the CA was made for; empty where none was given.
    pub fn made_for(&self) -> String {
        self.signing().state.made_for.clone()
    }

    /// Returns the generations of roots, oldest first.
    pub fn generations(&self) -> Vec<Generation> {
        self.signing().state.generations.clone()
    }

    /// Rolls the CA over: makes a new root, which is published at once and signs after the overlap.
    /// The old root stays published until its last leaf has expired. Does nothing while a rollover
    /// is under way.
    pub fn roll_over(&self, now: Timestamp) -> Result<(), CaError> {
        self.update(now, |state| state.roll_over(&self.config, now))
    }

    /// Does what is due: rolls over before the intermediate expires, and removes old roots from the
    /// bundle. [`Self::sign`] calls it as well, so that callers need not.
    pub fn advance(&self, now: Timestamp) -> Result<(), CaError> {
        if self.signing().state.is_settled(&self.config, now) {
            return Ok(());
        }
        self.update(now, |state| state.advance(&self.config, now))
    }

    /// Signs a leaf, with a new key.
    pub fn sign(
        &self,
        names: &Names,
        validity: Option<SignedDuration>,
        now: Timestamp,
    ) -> Result<IssuedCertificate, CaError> {
        self.advance(now)?;
        let validity = validity.unwrap_or(self.config.leaf_validity);
        if !(SHORTEST_LEAF..=LONGEST_LEAF).contains(&validity) {
            return Err(CaError::Config {
                field: "validity",
                problem: "expected one hour to 398 days".to_owned(),
            });
        }
        self.config.constraints.permit_names(names)?;
        let key = PrivateKeyPem::generate_p256()?;
        let chain = self.signing().authority.sign(names, &key, validity, now)?;
        IssuedCertificate::verified(chain, key, names, &self.config.name, now)
            .map_err(|e| CaError::Unfit(e.to_string()))
    }

    fn signing(&self) -> Arc<Signing> {
        self.current
            .read()
            .expect("nobody panics while holding it")
            .clone()
    }

    fn update(
        &self,
        now: Timestamp,
        change: impl FnOnce(&mut State) -> Result<(), CaError>,
    ) -> Result<(), CaError> {
        let state = self.home.update(|state| {
            let mut state = state.ok_or_else(|| CaError::Gone {
                path: self.config.directory.display().to_string(),
            })?;
            change(&mut state)?;
            Ok(state)
        })?;
        *self
            .current
            .write()
            .expect("nobody panics while holding it") = Arc::new(Signing::of(state, now)?);
        Ok(())
    }
}

impl Signing {
    fn of(state: State, now: Timestamp) -> Result<Self, CaError> {
        let authority = Authority::load(state.signer(now)?)?;
        Ok(Self { state, authority })
    }
}

#[async_trait]
impl Issuer for InternalCa {
    fn name(&self) -> &str {
        &self.config.name
    }

    async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure> {
        self.sign(&request.names, request.validity, request.now)
            .map_err(|e| e.failure())
    }
}

/// The error of an operation of the internal CA.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A field of the configuration is invalid.
    #[error("internal CA: {field}: {problem}")]
    Config {
        /// The field.
        field: &'static str,
        /// The problem, and the fix.
        problem: String,
    },
    /// A name is outside the constraints.
    #[error(
        "the internal CA may not issue for {name}: permitted are {permitted}; add its domain to the CA's permitted names"
    )]
    NotPermitted {
        /// The name.
        name: String,
        /// The permitted domains.
        permitted: String,
    },
    /// The constraints of the CA in the directory do not include those of the configuration.
    #[error(
        "the CA of this directory was made for {found}, the configuration permits {wanted}: roll the CA over, or put the old names back"
    )]
    OtherConstraints {
        /// Constraints of the CA certificate.
        found: String,
        /// Constraints of the configuration.
        wanted: String,
    },
    /// The certificate of the CA cannot be used.
    #[error("the CA certificate cannot be used: {0}")]
    Unfit(String),
    /// The CA certificate has expired.
    #[error("the CA certificate ended at {0}: bring a new one, or roll over")]
    Ended(Timestamp),
    /// The state file was removed while we run.
    #[error("{path} no longer holds the CA; restore it from the backup")]
    Gone {
        /// The directory.
        path: String,
    },
    /// A private key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The state file cannot be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// X.509 signing failed.
    #[error("cannot sign: {0}")]
    Sign(#[from] rcgen::Error),
}

impl CaError {
    fn failure(&self) -> Failure {
        let class = match self {
            Self::NotPermitted { .. } => Class::Policy,
            Self::Config { .. }
            | Self::OtherConstraints { .. }
            | Self::Ended(_)
            | Self::Gone { .. } => Class::Config,
            Self::Storage(_) => Class::Transient,
            Self::Unfit(_) | Self::Key(_) | Self::Sign(_) => Class::Bug,
        };
        Failure::new(class, self.to_string())
    }
}

#[cfg(test)]
mod tests;
