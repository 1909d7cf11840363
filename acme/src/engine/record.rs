//! What is written down about an order on its way.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AcmeIssuer, of_storage};
use crate::certificate::IssuedCertificate;
use crate::challenge::dns::TxtRecord;
use crate::failure::Failure;
use crate::issuer::CertificateId;
use crate::key::PrivateKeyPem;
use crate::names::Names;
use crate::storage::{Expect, Key, StorageError, read_json, write_json};

/// An order, written before each step that talks to the CA.
#[derive(Serialize, Deserialize)]
pub(super) struct OrderRecord {
    pub(super) id: CertificateId,
    pub(super) issuer: String,
    pub(super) names: Names,
    pub(super) profile: Option<String>,
    /// The key of the certificate to be; written before the order is placed, and never changed.
    pub(super) key: PrivateKeyPem,
    /// What the order says it replaces.
    pub(super) replaces: Option<String>,
    /// The budget was charged, so that a repeated attempt does not charge it twice.
    pub(super) charged: bool,
    /// Where the order is; written as soon as the CA told.
    pub(super) url: Option<String>,
    /// Records that are, or may be, in DNS; written before they are made, removed after they are gone.
    pub(super) txt: Vec<TxtRecord>,
    /// The chain; written before anybody is told of it.
    pub(super) downloaded: Option<String>,
    /// Only `txt` still matters.
    pub(super) over: bool,
    pub(super) since: Timestamp,
}

impl OrderRecord {
    /// The serial number of the certificate that came of it.
    pub(super) fn serial(&self) -> Option<String> {
        let chain = self.downloaded.clone()?;
        IssuedCertificate::read(chain, self.key.clone(), &self.issuer).ok().map(|c| c.serial)
    }
}

/// Reads the record of an order. One that is damaged, or another's, was left by a machine that lost its power: the order is
/// placed anew.
pub(super) async fn read(issuer: &AcmeIssuer, key: &Key) -> Result<Option<OrderRecord>, Failure> {
    match read_json::<OrderRecord>(&*issuer.storage, key).await {
        Ok(found) => Ok(found.map(|(record, _)| record).filter(|record| issuer.order_key(&record.id) == *key)),
        Err(error @ StorageError::Damaged { .. }) => {
            tracing::warn!(issuer = issuer.config.name, %error, "the order is placed anew");
            Ok(None)
        }
        Err(error) => Err(of_storage(&error)),
    }
}

/// Ends an order: removes its traces, then its record; where a trace cannot be removed now, the record stays and
/// says so.
pub(super) async fn close(issuer: &AcmeIssuer, id: &CertificateId) -> Result<(), Failure> {
    let key = issuer.order_key(id);
    let Some(mut record) = read(issuer, &key).await? else { return Ok(()) };
    record.txt = remove_traces(issuer, std::mem::take(&mut record.txt)).await;
    if record.txt.is_empty() {
        return issuer.storage.remove(&key).await.map_err(|e| of_storage(&e));
    }
    record.over = true;
    record.url = None;
    record.downloaded = None;
    write_json(&*issuer.storage, &key, &record, &Expect::Anything).await.map_err(|e| of_storage(&e))?;
    Ok(())
}

/// Removes records from DNS and gives back those that could not be removed.
pub(super) async fn remove_traces(issuer: &AcmeIssuer, txt: Vec<TxtRecord>) -> Vec<TxtRecord> {
    let Some(solver) = &issuer.config.solvers.dns else { return txt };
    let mut left = Vec::new();
    for record in txt {
        if let Err(error) = solver.provider.cleanup(&record).await {
            tracing::warn!(issuer = issuer.config.name, record = record.name, %error, "challenge record stays for now");
            left.push(record);
        }
    }
    left
}
