//! A certificate authority of our own, for sites no public CA serves.
//!
//! A P-384 root signs one P-384 intermediate, which signs P-256 leaves; then the root's key is destroyed, so that nobody can
//! steal it. Both carry the name constraints of the
//! configuration (RFC 5280, 4.2.1.10), so that a stolen CA key is worth little outside the permitted domains.
//! Roots roll over by being published before they sign: clients that follow the bundle never see an unknown root.

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
/// The shortest leaf: renewal needs room.
const SHORTEST_LEAF: SignedDuration = SignedDuration::from_hours(1);
/// The longest leaf: what clients take of private CAs.
const LONGEST_LEAF: SignedDuration = SignedDuration::from_hours(24 * 398);

/// How the internal CA is set up.
#[derive(Clone, Debug)]
pub struct InternalCaConfig {
    /// The name of the issuer in configuration and messages.
    pub name: String,
    /// Its own directory; made if absent.
    pub directory: PathBuf,
    /// Stands in the subject of root and intermediate.
    pub organization: String,
    /// Which names it may ever issue for.
    pub constraints: Constraints,
    /// For whom it is made, where it is; empty where nobody said.
    pub made_for: String,
    /// Life of a leaf where the request does not say.
    pub leaf_validity: SignedDuration,
    /// How long a new root is published before it signs.
    pub overlap: SignedDuration,
}

impl InternalCaConfig {
    /// Ninety-day leaves, thirty days of overlap.
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
            return Err(CaError::Config { field: "leaf_validity", problem });
        }
        self.constraints.check()
    }
}

/// The internal CA: opened once, shared by all.
pub struct InternalCa {
    config: InternalCaConfig,
    home: Home,
    current: RwLock<Arc<Signing>>,
}

/// What signs now, and the state it came from.
struct Signing {
    state: State,
    authority: Authority,
}

impl InternalCa {
    /// Opens the CA of a directory, or makes one there. Two processes that open at once get the same CA.
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
        Ok(Self { config, home, current: RwLock::new(Arc::new(signing)) })
    }

    /// Opens the CA of a [`Self::record`], or makes one. Whoever calls keeps the record: before a leaf is handed out, and
    /// again whenever it is another one. The directory of the configuration is not looked at.
    pub fn of_record(config: InternalCaConfig, record: Option<&[u8]>, now: Timestamp) -> Result<Self, CaError> {
        config.check()?;
        let mut state = match record {
            Some(record) => State::read(record, || "the internal CA".to_owned())?,
            None => State::create(&config, now)?,
        };
        state.advance(&config, now)?;
        let signing = Signing::of(state.clone(), now)?;
        signing.authority.check_constraints(&config.constraints)?;
        Ok(Self { config, home: Home::Caller(Mutex::new(state)), current: RwLock::new(Arc::new(signing)) })
    }

    /// Everything there is to keep of it, its keys included.
    pub fn record(&self) -> Zeroizing<Vec<u8>> {
        self.signing().state.record()
    }

    /// Opens with a CA of the user's: its certificate (with intermediates up to, and without, the root), its key and the
    /// roots clients trust. Leaves are signed with it directly.
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
        Ok(Self { current: RwLock::new(Arc::new(Signing::of(state, now)?)), config, home })
    }

    /// The roots that clients should trust now: all published ones, newest first.
    pub fn bundle_pem(&self, now: Timestamp) -> String {
        self.signing().state.bundle(now)
    }

    /// Where [`Self::bundle_pem`] is also kept as a file.
    pub fn bundle_path(&self) -> PathBuf {
        self.config.directory.join("ca.crt")
    }

    /// For whom it was made.
    pub fn made_for(&self) -> String {
        self.signing().state.made_for.clone()
    }

    /// The generations of roots, oldest first.
    pub fn generations(&self) -> Vec<Generation> {
        self.signing().state.generations.clone()
    }

    /// Makes a new root. It is published at once and signs after the overlap; the old one stays published until
    /// its last leaf has ended. While one is already on its way, nothing happens.
    pub fn roll_over(&self, now: Timestamp) -> Result<(), CaError> {
        self.update(now, |state| state.roll_over(&self.config, now))
    }

    /// Does what time demands: a new root with its intermediate before the old one ends, an old root no more published.
    /// Called by [`Issuer::issue`] as well, so that nobody needs to remember it.
    pub fn advance(&self, now: Timestamp) -> Result<(), CaError> {
        if self.signing().state.is_settled(&self.config, now) {
            return Ok(());
        }
        self.update(now, |state| state.advance(&self.config, now))
    }

    /// Signs a leaf. The key is new each time.
    pub fn sign(
        &self,
        names: &Names,
        validity: Option<SignedDuration>,
        now: Timestamp,
    ) -> Result<IssuedCertificate, CaError> {
        self.advance(now)?;
        let validity = validity.unwrap_or(self.config.leaf_validity);
        if !(SHORTEST_LEAF..=LONGEST_LEAF).contains(&validity) {
            return Err(CaError::Config { field: "validity", problem: "expected one hour to 398 days".to_owned() });
        }
        self.config.constraints.permit_names(names)?;
        let key = PrivateKeyPem::generate_p256()?;
        let chain = self.signing().authority.sign(names, &key, validity, now)?;
        IssuedCertificate::verified(chain, key, names, &self.config.name, now)
            .map_err(|e| CaError::Unfit(e.to_string()))
    }

    fn signing(&self) -> Arc<Signing> {
        self.current.read().expect("nobody panics while holding it").clone()
    }

    fn update(&self, now: Timestamp, change: impl FnOnce(&mut State) -> Result<(), CaError>) -> Result<(), CaError> {
        let state = self.home.update(|state| {
            let mut state = state.ok_or_else(|| CaError::Gone { path: self.config.directory.display().to_string() })?;
            change(&mut state)?;
            Ok(state)
        })?;
        *self.current.write().expect("nobody panics while holding it") = Arc::new(Signing::of(state, now)?);
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
        self.sign(&request.names, request.validity, request.now).map_err(|e| e.failure())
    }
}

/// What may go wrong with the internal CA.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A field of the configuration.
    #[error("internal CA: {field}: {problem}")]
    Config {
        /// Which field.
        field: &'static str,
        /// What is wrong, and the fix.
        problem: String,
    },
    /// A name outside the constraints.
    #[error(
        "the internal CA may not issue for {name}: permitted are {permitted}; add its domain to the CA's permitted names"
    )]
    NotPermitted {
        /// The name.
        name: String,
        /// What is permitted.
        permitted: String,
    },
    /// The CA in the directory has other constraints than the configuration.
    #[error(
        "the CA of this directory was made for {found}, the configuration permits {wanted}: roll the CA over, or put the old names back"
    )]
    OtherConstraints {
        /// In the CA certificate.
        found: String,
        /// In the configuration.
        wanted: String,
    },
    /// The certificate of the CA cannot be used.
    #[error("the CA certificate cannot be used: {0}")]
    Unfit(String),
    /// The CA has ended, or will before any leaf could.
    #[error("the CA certificate ended at {0}: bring a new one, or roll over")]
    Ended(Timestamp),
    /// The state went away under us.
    #[error("{path} no longer holds the CA; restore it from the backup")]
    Gone {
        /// The directory.
        path: String,
    },
    /// Keys.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Files.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// X.509.
    #[error("cannot sign: {0}")]
    Sign(#[from] rcgen::Error),
}

impl CaError {
    fn failure(&self) -> Failure {
        let class = match self {
            Self::NotPermitted { .. } => Class::Policy,
            Self::Config { .. } | Self::OtherConstraints { .. } | Self::Ended(_) | Self::Gone { .. } => Class::Config,
            Self::Storage(_) => Class::Transient,
            Self::Unfit(_) | Self::Key(_) | Self::Sign(_) => Class::Bug,
        };
        Failure::new(class, self.to_string())
    }
}

#[cfg(test)]
mod tests;
