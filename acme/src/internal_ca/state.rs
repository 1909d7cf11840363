//! The persisted state of the internal CA: its generations of roots, in one private file that is
//! replaced atomically.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::authority::{Authority, Signer, make_intermediate, make_root};
use super::{CaError, InternalCaConfig, LONGEST_LEAF};
use crate::certificate::{chain_of, validity_of};
use crate::key::PrivateKeyPem;
use crate::storage::StorageError;
use crate::storage::dir::{lock_file, private_folder, write_whole};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Returns the validity of a root, and of its only intermediate.
fn root_life() -> SignedDuration {
    DAY * 1826
}

/// A generation: a root with its intermediate, and the times from which and until which it is used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Generation {
    /// The root certificate; for a CA that the user provided, the roots.
    pub root_pem: String,
    /// The root's key in a record of an earlier version, which kept it: destroyed once it has
    /// signed a last intermediate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root_key: Option<PrivateKeyPem>,
    /// True if this program made the CA; one that the user provided is never rolled over.
    #[serde(default)]
    is_own: bool,
    /// The certificate that signs leaves, and those above it without the root.
    pub chain_pem: String,
    chain_key: PrivateKeyPem,
    /// Time from which it signs leaves; it is published earlier.
    pub signs_from: Timestamp,
    /// End of validity of the signing certificate.
    chain_ends: Timestamp,
    /// End of validity of the root.
    pub root_ends: Timestamp,
    /// Time until which the root is in the bundle.
    pub published_until: Timestamp,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) generations: Vec<Generation>,
    /// The tenant that the CA was made for; empty where none was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) made_for: String,
}

impl State {
    /// Parses the output of [`Self::record`]; `what` names the record in an error.
    pub(super) fn read(record: &[u8], what: impl FnOnce() -> String) -> Result<Self, CaError> {
        Ok(
            serde_json::from_slice(record).map_err(|e| StorageError::Damaged {
                key: what(),
                line: e.line(),
                column: e.column(),
            })?,
        )
    }

    /// Serializes the state, including the keys.
    pub(super) fn record(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(serde_json::to_vec(self).expect("our own records have string keys only"))
    }

    pub(super) fn create(config: &InternalCaConfig, now: Timestamp) -> Result<Self, CaError> {
        Ok(Self {
            generations: vec![Generation::create(config, now, now)?],
            made_for: config.made_for.clone(),
        })
    }

    pub(super) fn brought(
        chain_pem: &str,
        key: PrivateKeyPem,
        roots_pem: &str,
        now: Timestamp,
    ) -> Result<Self, CaError> {
        chain_of(roots_pem).map_err(|e| CaError::Unfit(format!("its roots: {e}")))?;
        // Loading checks that it is a CA certificate and that the key belongs to it.
        Authority::load(Signer {
            chain: chain_pem,
            key: &key,
        })?;
        let ends = end_of(chain_pem)?;
        if ends <= now {
            return Err(CaError::Ended(ends));
        }
        // A root at the end of the chain would be sent to clients in vain.
        let generation = Generation {
            root_pem: roots_pem.to_owned(),
            root_key: None,
            is_own: false,
            chain_pem: chain_pem.to_owned(),
            chain_key: key,
            signs_from: now,
            chain_ends: ends,
            root_ends: end_of(roots_pem)?,
            published_until: end_of(roots_pem)?,
        };
        Ok(Self {
            generations: vec![generation],
            made_for: String::new(),
        })
    }

    fn signing(&self, now: Timestamp) -> Option<&Generation> {
        self.generations
            .iter()
            .rev()
            .find(|g| g.signs_from <= now)
            .or(self.generations.first())
    }

    pub(super) fn signer(&self, now: Timestamp) -> Result<Signer<'_>, CaError> {
        let g = self.signing(now).ok_or(CaError::Gone {
            path: "the state file".to_owned(),
        })?;
        Ok(Signer {
            chain: &g.chain_pem,
            key: &g.chain_key,
        })
    }

    pub(super) fn bundle(&self, now: Timestamp) -> String {
        self.generations
            .iter()
            .rev()
            .filter(|g| g.published_until > now)
            .map(|g| g.root_pem.as_str())
            .collect()
    }

    pub(super) fn roll_over(
        &mut self,
        config: &InternalCaConfig,
        now: Timestamp,
    ) -> Result<(), CaError> {
        // If the signer has expired, an overlap is useless: no certificate was requested for years.
        let has_ended = self.signing(now).is_none_or(|g| g.chain_ends <= now);
        let from = if has_ended { now } else { now + config.overlap };
        if let Some(coming) = self.generations.iter_mut().find(|g| g.signs_from > now) {
            coming.signs_from = coming.signs_from.min(from);
            return Ok(());
        }
        let next = Generation::create(config, now, from)?;
        for old in &mut self.generations {
            // The old generation signs its last leaf just before the new one takes over.
            old.published_until = old.published_until.min(next.signs_from + LONGEST_LEAF);
        }
        self.generations.push(next);
        Ok(())
    }

    /// Returns true if [`Self::advance`] has nothing to do and the loaded signer is the current
    /// one.
    pub(super) fn is_settled(&self, config: &InternalCaConfig, now: Timestamp) -> bool {
        let mut trial = self.clone();
        // Cheap in the usual case: only times are compared.
        let Some(current) = self.signing(now) else {
            return false;
        };
        let due =
            current.is_old(config, now) || self.generations.iter().any(|g| g.root_key.is_some());
        let taken_over = self.generations.last().is_some_and(|g| g.signs_from <= now)
            && self.generations.len() > 1;
        trial.generations.retain(|g| g.published_until > now);
        !due && !taken_over && trial.generations.len() == self.generations.len()
    }

    pub(super) fn advance(
        &mut self,
        config: &InternalCaConfig,
        now: Timestamp,
    ) -> Result<(), CaError> {
        for generation in &mut self.generations {
            generation.destroy_root_key(config, now)?;
        }
        if self.signing(now).is_some_and(|g| g.is_old(config, now)) {
            self.roll_over(config, now)?;
        }
        if self.generations.len() > 1 {
            self.generations.retain(|g| g.published_until > now);
        }
        Ok(())
    }
}

impl Generation {
    fn create(
        config: &InternalCaConfig,
        now: Timestamp,
        signs_from: Timestamp,
    ) -> Result<Self, CaError> {
        let (root_pem, root_key) =
            make_root(&config.organization, &config.constraints, root_life(), now)?;
        let (chain_pem, chain_key) = make_intermediate(
            &config.organization,
            &config.constraints,
            (&root_pem, &root_key),
            root_life(),
            now,
        )?;
        drop(root_key);
        let root_ends = end_of(&root_pem)?;
        Ok(Self {
            chain_ends: end_of(&chain_pem)?,
            root_key: None,
            is_own: true,
            chain_key,
            signs_from,
            root_ends,
            published_until: root_ends,
            root_pem,
            chain_pem,
        })
    }

    /// Returns true if a rollover is due: the remaining validity fits leaves of the longest
    /// validity and the overlap less than twice.
    fn is_old(&self, config: &InternalCaConfig, now: Timestamp) -> bool {
        self.is_own && now > self.chain_ends - (LONGEST_LEAF + config.overlap) * 2
    }

    /// Has the root of an earlier version sign an intermediate of the usual validity, and destroys
    /// its key.
    fn destroy_root_key(
        &mut self,
        config: &InternalCaConfig,
        now: Timestamp,
    ) -> Result<(), CaError> {
        let Some(root_key) = self.root_key.take() else {
            return Ok(());
        };
        self.is_own = true;
        let root = (self.root_pem.as_str(), &root_key);
        let (pem, key) = make_intermediate(
            &config.organization,
            &config.constraints,
            root,
            root_life(),
            now,
        )?;
        let ends = end_of(&pem)?;
        // Near the root's end a new intermediate would expire when the old one does.
        if ends > self.chain_ends {
            (self.chain_pem, self.chain_key, self.chain_ends) = (pem, key, ends);
        }
        Ok(())
    }
}

fn end_of(pem: &str) -> Result<Timestamp, CaError> {
    let chain = chain_of(pem).map_err(|e| CaError::Unfit(e.to_string()))?;
    let certificate = pki::read(&chain[0])
        .map_err(|why| CaError::Unfit(format!("no X.509 certificate: {why}")))?;
    Ok(validity_of(&certificate).1)
}

/// The place of a [`State`].
pub(super) enum Home {
    /// A file of ours.
    File(StateFile),
    /// In memory; the caller persists it.
    Caller(Mutex<State>),
}

impl Home {
    /// Reads, changes and stores the state; it stays unchanged if the change fails.
    pub(super) fn update(
        &self,
        change: impl FnOnce(Option<State>) -> Result<State, CaError>,
    ) -> Result<State, CaError> {
        match self {
            Self::File(file) => file.update(change),
            Self::Caller(held) => {
                let mut held = held.lock().expect("nobody panics while holding it");
                *held = change(Some(held.clone()))?;
                Ok(held.clone())
            }
        }
    }
}

/// The file of a [`State`], and the file of the bundle beside it.
pub(super) struct StateFile {
    directory: PathBuf,
}

impl StateFile {
    pub(super) fn open(directory: &Path) -> Result<Self, CaError> {
        private_folder(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    /// Reads, changes and writes the state under a lock; the file stays unchanged if nothing
    /// changed or the change fails.
    pub(super) fn update(
        &self,
        change: impl FnOnce(Option<State>) -> Result<State, CaError>,
    ) -> Result<State, CaError> {
        let _lock = lock_file(&self.directory.join("lock"))?;
        let path = self.directory.join("ca.json");
        let old = match std::fs::read(&path) {
            Ok(bytes) => Some(Zeroizing::new(bytes)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(why) => {
                return Err(StorageError::Io {
                    doing: "reading",
                    object: path.display().to_string(),
                    why,
                }
                .into());
            }
        };
        let parsed = old
            .as_ref()
            .map(|bytes| State::read(bytes, || path.display().to_string()));
        let state = change(parsed.transpose()?)?;
        let new = state.record();
        if old.as_ref() != Some(&new) {
            write_whole(&path, &new)?;
        }
        let roots = self.directory.join("ca.crt");
        let bundle = state.bundle(Timestamp::UNIX_EPOCH);
        if !std::fs::read(&roots).is_ok_and(|held| held == bundle.as_bytes()) {
            write_whole(&roots, bundle.as_bytes())?;
        }
        Ok(state)
    }
}
