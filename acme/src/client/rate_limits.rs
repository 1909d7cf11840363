//! Rate limits of a CA by source address: requests by endpoint, and new accounts. All accounts at a
//! CA share them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};

use crate::budget::{Budget, Endpoint, Limits, Scope, Wait};
use crate::storage::{Expect, Key, Kind, Storage, StorageError, read_json, write_json};

/// Longest `Retry-After` of a CA that is obeyed.
const MAX_RETRY_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// The rate limits of our address at one CA.
#[derive(Debug)]
pub struct AddressLimits {
    directory: String,
    ledger: Mutex<Budget>,
}

/// The rate limits of our address at all CAs, by directory URL.
#[derive(Debug, Default)]
pub struct RateLimits(Mutex<BTreeMap<String, Arc<AddressLimits>>>);

impl RateLimits {
    /// Returns the limits of the CA behind a directory URL, with what is persisted about it.
    pub(crate) async fn for_directory(
        &self,
        directory: &str,
        limits: &Limits,
        storage: &dyn Storage,
    ) -> Result<Arc<AddressLimits>, StorageError> {
        let known = || {
            self.0
                .lock()
                .expect("nobody panics while holding it")
                .get(directory)
                .cloned()
        };
        if let Some(known) = known() {
            return Ok(known);
        }
        let address_limits = Arc::new(AddressLimits::read(directory, limits, storage).await?);
        let mut all = self.0.lock().expect("nobody panics while holding it");
        Ok(all
            .entry(directory.to_owned())
            .or_insert(address_limits)
            .clone())
    }
}

impl AddressLimits {
    /// Makes limits of which nothing is spent.
    pub(crate) fn of(directory: &str, limits: &Limits) -> Self {
        Self {
            directory: directory.to_owned(),
            ledger: Mutex::new(Budget::new(limits.clone())),
        }
    }

    async fn read(
        directory: &str,
        limits: &Limits,
        storage: &dyn Storage,
    ) -> Result<Self, StorageError> {
        let stored = match read_json::<Budget>(storage, &key(directory)).await {
            Ok(stored) => stored.map(|(budget, _)| budget),
            // A damaged entry is ignored: nothing in it matters for longer than an hour.
            Err(error) if error.is_of_the_entry() => None,
            Err(error) => return Err(error),
        };
        let address_limits = Self::of(directory, limits);
        if let Some(stored) = stored {
            address_limits.with(|ledger| {
                *ledger = stored;
                ledger.limits = limits.clone();
            });
        }
        Ok(address_limits)
    }

    /// Counts the next request and returns when it may be sent; returns the wait if the CA refuses
    /// requests until then.
    pub(crate) fn spend_request(
        &self,
        endpoint: Endpoint,
        now: Timestamp,
    ) -> Result<Timestamp, Wait> {
        self.with(|ledger| ledger.spend_request(endpoint, now))
    }

    /// Records the CA's `Retry-After`.
    pub(crate) fn record_retry_after(
        &self,
        endpoint: Endpoint,
        after: SignedDuration,
        now: Timestamp,
    ) {
        self.with(|ledger| {
            ledger.refuse_until(Scope::Requests(endpoint), now + after.min(MAX_RETRY_AFTER))
        });
    }

    /// Counts a new account and persists the count, before the account is made.
    pub(crate) async fn account(
        &self,
        storage: &dyn Storage,
        now: Timestamp,
    ) -> Result<Result<(), Wait>, StorageError> {
        if let Err(wait) = self.with(|ledger| ledger.spend_account(now)) {
            return Ok(Err(wait));
        }
        self.save(storage, now).await.map(Ok)
    }

    /// Persists the count.
    pub(crate) async fn save(
        &self,
        storage: &dyn Storage,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let snapshot = self.with(|ledger| {
            ledger.prune(now);
            ledger.clone()
        });
        write_json(storage, &key(&self.directory), &snapshot, &Expect::Anything)
            .await
            .map(drop)
    }

    /// Returns a copy of the count.
    pub(crate) fn ledger(&self) -> Budget {
        self.with(|ledger| ledger.clone())
    }

    fn with<T>(&self, change: impl FnOnce(&mut Budget) -> T) -> T {
        change(&mut self.ledger.lock().expect("nobody panics while holding it"))
    }
}

fn key(directory: &str) -> Key {
    let rest = directory
        .split_once("://")
        .map_or(directory, |(_, rest)| rest);
    Key::new(Kind::Budget, &format!("address-{rest}"))
}
