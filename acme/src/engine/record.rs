//! The persisted record of an order.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::concurrency::run_concurrently;
use super::{AcmeIssuer, of_storage};
use crate::certificate::IssuedCertificate;
use crate::challenge::dns::TxtRecord;
use crate::failure::Failure;
use crate::issuer::{CertificateId, Underway};
use crate::key::PrivateKeyPem;
use crate::names::Names;
use crate::storage::{Expect, Key, Kind, Storage, StorageError, read_json, write_json};

/// The record of an order, persisted before each step that sends requests to the CA.
#[derive(Serialize, Deserialize)]
pub(super) struct OrderRecord {
    pub(super) id: CertificateId,
    pub(super) issuer: String,
    pub(super) names: Names,
    pub(super) profile: Option<String>,
    /// The key of the future certificate; persisted before the order is placed, and never changed.
    pub(super) key: PrivateKeyPem,
    /// ARI identifier of the certificate that the order replaces.
    pub(super) replaces: Option<String>,
    /// True once the budget has counted the order, so that a repeated attempt does not count it
    /// twice.
    pub(super) charged: bool,
    /// URL of the order; persisted as soon as the CA returned it.
    pub(super) url: Option<String>,
    /// Records that are, or may be, in DNS; persisted before they are made, removed from here after
    /// they are deleted.
    pub(super) txt: Vec<TxtRecord>,
    /// The chain; persisted before it is returned.
    pub(super) downloaded: Option<String>,
    /// True if the order has ended, and only `txt` is left to clean up.
    pub(super) over: bool,
    /// True once the CA may have been asked to issue the certificate.
    #[serde(default)]
    pub(super) finalized: bool,
    /// Time since which the CA does not know a resource of the order.
    #[serde(default)]
    pub(super) lost_since: Option<Timestamp>,
    pub(super) since: Timestamp,
}

impl OrderRecord {
    /// Returns the order as one that can be resumed, or None.
    fn underway(&self) -> Option<Underway> {
        let id = self.id.clone();
        let names = self.names.clone();
        (self.charged && !self.over).then(|| Underway {
            id,
            names,
            placed: self.url.is_some(),
        })
    }

    /// Returns the serial number of the downloaded certificate.
    pub(super) fn serial(&self) -> Option<String> {
        let chain = self.downloaded.clone()?;
        IssuedCertificate::read(chain, self.key.clone(), &self.issuer)
            .ok()
            .map(|c| c.serial)
    }
}

/// Returns the storage keys of an issuer's orders.
pub(super) async fn keys(storage: &dyn Storage, issuer: &str) -> Result<Vec<Key>, Failure> {
    let prefix = Key::new(Kind::Order, &format!("{issuer}."));
    let mut keys = storage
        .list(Kind::Order)
        .await
        .map_err(|e| of_storage(&e))?;
    keys.retain(|key| key.name().starts_with(prefix.name()));
    Ok(keys)
}

/// Returns the persisted orders that can be resumed. An unreadable one is skipped and placed anew.
pub(super) async fn underway(
    storage: &dyn Storage,
    issuer: &str,
) -> Result<BTreeMap<CertificateId, Underway>, Failure> {
    let mut all = BTreeMap::new();
    for key in keys(storage, issuer).await? {
        match read_json::<OrderRecord>(storage, &key).await {
            Ok(found) => {
                let underway = found
                    .filter(|(record, _)| record.issuer == issuer)
                    .and_then(|(r, _)| r.underway());
                all.extend(underway.map(|underway| (underway.id.clone(), underway)));
            }
            Err(error) => tracing::warn!(issuer, %error, "an order is not taken up"),
        }
    }
    Ok(all)
}

/// Persists the record of an order.
pub(super) async fn write(issuer: &AcmeIssuer, record: &OrderRecord) -> Result<(), Failure> {
    let key = issuer.order_key(&record.id);
    write_json(&*issuer.storage, &key, record, &Expect::Anything)
        .await
        .map_err(|e| of_storage(&e))?;
    let mut all = issuer
        .underway
        .lock()
        .expect("nobody panics while holding it");
    match record.underway() {
        Some(underway) => {
            all.insert(record.id.clone(), underway);
        }
        None => {
            all.remove(&record.id);
        }
    }
    Ok(())
}

/// Reads the record of an order. A damaged record, or one of another order, is ignored: it was left
/// by a power failure, and the order is placed anew.
pub(super) async fn read(issuer: &AcmeIssuer, key: &Key) -> Result<Option<OrderRecord>, Failure> {
    match read_json::<OrderRecord>(&*issuer.storage, key).await {
        Ok(found) => Ok(found
            .map(|(record, _)| record)
            .filter(|record| issuer.order_key(&record.id) == *key)),
        Err(error @ (StorageError::Damaged { .. } | StorageError::Unreadable { .. })) => {
            tracing::warn!(issuer = issuer.config.name, %error, "the order is placed anew");
            Ok(None)
        }
        Err(error) => Err(of_storage(&error)),
    }
}

/// Closes an order: removes its records from DNS, then its record in storage, which stays while a
/// DNS record cannot be removed.
pub(super) async fn close(issuer: &AcmeIssuer, id: &CertificateId) -> Result<(), Failure> {
    let key = issuer.order_key(id);
    issuer
        .underway
        .lock()
        .expect("nobody panics while holding it")
        .remove(id);
    let Some(mut record) = read(issuer, &key).await? else {
        return Ok(());
    };
    record.txt = remove_txt_records(issuer, std::mem::take(&mut record.txt)).await;
    if record.txt.is_empty() {
        return issuer
            .storage
            .remove(&key)
            .await
            .map_err(|e| of_storage(&e));
    }
    record.over = true;
    record.url = None;
    record.downloaded = None;
    write(issuer, &record).await
}

/// Removes records from DNS concurrently, and returns those that could not be removed.
pub(super) async fn remove_txt_records(issuer: &AcmeIssuer, txt: Vec<TxtRecord>) -> Vec<TxtRecord> {
    let Some(solver) = &issuer.config.solvers.dns else {
        return txt;
    };
    let removed = txt.into_iter().map(|record| async move {
        let error = solver.provider.cleanup(&record).await.err()?;
        tracing::warn!(issuer = issuer.config.name, record = record.name, %error, "cannot remove the TXT record of a challenge now");
        Some(record)
    });
    run_concurrently(removed)
        .await
        .into_iter()
        .flatten()
        .collect()
}
