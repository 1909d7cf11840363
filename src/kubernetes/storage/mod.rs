//! The storage of `acme` as objects of the API server.
//!
//! A certificate is stored where it is served from: in a Secret of type `kubernetes.io/tls` beside
//! its listener. Accounts, orders and internal CAs are Secrets of the controller's namespace;
//! budgets, failed attempts and renewal windows are ConfigMaps there. They are read once, at the
//! begin of a term; from then on only the lease holder writes, each time conditional on the
//! resource version that it knows, so that the writes of a replica that lost the Lease unnoticed
//! are rejected.

mod entry;
mod secret;
mod secret_targets;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use acme::Storage;
use acme::keeper::Stored;
use acme::storage::{Entry, Expect, Key, Kind, Lock, StorageError, Version};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{
    Api, ApiResource, DeleteParams, GroupVersionKind, ListParams, PostParams, Preconditions,
};
use kube::core::DynamicObject;
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::sync::{OwnedMutexGuard, watch};
use zeroize::Zeroizing;

use super::lease::{Term, leads};
use crate::format::{self, NewerFormat};
use crate::write::failure::Failure;
use crate::write::request::{in_time, patiently};
pub(crate) use entry::LABEL as KEEPS;
use entry::Shape;
use gatewright_control::certificates::{SecretTarget, SecretTargets};
use gatewright_core::model::ObjectName;
use secret_targets::SecretTargetIndex;

/// The page size of a list.
const PAGE: u32 = 500;
/// The number of locks above which unused ones are dropped.
const LOCKS: usize = 1024;

/// The storage of one term of the Lease.
pub struct ObjectStorage {
    client: Client,
    namespace: String,
    term: watch::Receiver<Term>,
    entries: Mutex<BTreeMap<Key, StoredEntry>>,
    locks: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
    targets: Mutex<SecretTargetIndex>,
}

/// An entry as it was last read or written.
struct StoredEntry {
    bytes: Zeroizing<Vec<u8>>,
    version: String,
}

impl ObjectStorage {
    /// Reads the entries of earlier terms.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn open(
        client: Client,
        namespace: &str,
        term: watch::Receiver<Term>,
    ) -> Result<Self, StorageError> {
        let storage = Self {
            client,
            namespace: namespace.to_owned(),
            term,
            entries: Mutex::default(),
            locks: Mutex::default(),
            targets: Mutex::default(),
        };
        for shape in [Shape::Secret, Shape::ConfigMap] {
            storage.read_all(shape).await?;
        }
        Ok(storage)
    }

    async fn read_all(&self, shape: Shape) -> Result<(), StorageError> {
        let mut page = ListParams::default().labels(entry::LABEL).limit(PAGE);
        loop {
            let listed = in_time(self.api(shape).list(&page))
                .await
                .map_err(|e| failed("listing", what(&shape, &self.namespace), e))?;
            for object in listed.items {
                self.note(shape, &object)?;
            }
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    /// Takes in the object of an entry.
    ///
    /// # Errors
    /// When a newer version wrote it: nothing can be decided without it then, and it is not
    /// replaced.
    fn note(&self, shape: Shape, object: &DynamicObject) -> Result<(), StorageError> {
        format::check(&object.metadata).map_err(|NewerFormat(newer)| StorageError::Newer {
            object: format!(
                "{} {}/{}",
                shape.as_str(),
                self.namespace,
                object.name_any()
            ),
            format: newer,
            known: format::FORMAT,
        })?;
        if let Some((key, bytes)) = entry::read(shape, object) {
            let version = object.metadata.resource_version.clone().unwrap_or_default();
            self.with_entries(|entries| entries.insert(key, StoredEntry { bytes, version }));
        }
        Ok(())
    }

    fn with_entries<T>(&self, act: impl FnOnce(&mut BTreeMap<Key, StoredEntry>) -> T) -> T {
        act(&mut self.entries.lock().expect("nobody panics while holding it"))
    }

    fn targets<T>(&self, act: impl FnOnce(&mut SecretTargetIndex) -> T) -> T {
        act(&mut self.targets.lock().expect("nobody panics while holding it"))
    }

    fn api(&self, shape: Shape) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", shape.as_str()));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Checks that we hold the Lease.
    fn may_write(&self, object: impl FnOnce() -> String) -> Result<(), StorageError> {
        if leads(*self.term.borrow()) {
            Ok(())
        } else {
            Err(failed(
                "writing",
                object(),
                Failure::Unavailable("the lease went to another replica".to_owned()),
            ))
        }
    }

    /// Reads an entry again, after another writer changed it.
    async fn refresh(&self, key: &Key) -> Result<(), StorageError> {
        let shape = Shape::of(key.kind());
        let found = in_time(self.api(shape).get_opt(&entry::name(key))).await;
        self.with_entries(|entries| entries.remove(key));
        if let Some(object) = found.map_err(|e| failed("reading", key.to_string(), e))? {
            self.note(shape, &object)?;
        }
        Ok(())
    }

    /// Installs a certificate in a Secret, unless it has the certificate already or belongs to
    /// another writer.
    ///
    /// # Errors
    /// When the Secret belongs to another writer, or cannot be written.
    pub async fn install(&self, name: &ObjectName, stored: &Stored) -> Result<(), StorageError> {
        let serial = &stored.certificate.serial;
        if self.targets(|all| {
            all.get(name)
                .is_some_and(|who| who.present.as_ref() == Some(serial))
        }) {
            return Ok(());
        }
        let object = || format!("Secret {name}");
        self.may_write(object)?;
        let who = self.targets(|all| all.get(name).cloned());
        let api = self.secrets(&name.namespace);
        let there = in_time(api.get_opt(&name.name))
            .await
            .map_err(|e| failed("reading", object(), e))?;
        let written = match there {
            Some(there) => {
                if secret::present(&there)
                    .is_some_and(|present| *present.certificate.serial() == **serial)
                {
                    return Ok(());
                }
                if let Some(why) = secret::foreign(&there, name) {
                    return Err(StorageError::Foreign {
                        object: object(),
                        why,
                    });
                }
                let wanted = secret::with(Some(there), name, stored, who.as_ref());
                patiently(api.replace(&name.name, &PostParams::default(), &wanted)).await
            }
            None => {
                patiently(api.create(
                    &PostParams::default(),
                    &secret::with(None, name, stored, who.as_ref()),
                ))
                .await
            }
        };
        match written {
            Ok(_) => Ok(()),
            Err(Failure::Conflict) => Err(StorageError::Conflict { key: object() }),
            Err(failure) => Err(failed("writing", object(), failure)),
        }
    }

    /// Withdraws the certificate with this serial number from a Secret, if we installed it. Returns
    /// whether the Secret had it.
    ///
    /// # Errors
    /// When the Secret cannot be read or written.
    pub async fn withdraw(
        &self,
        name: &ObjectName,
        serial: &str,
        why: &str,
    ) -> Result<bool, StorageError> {
        let object = || format!("Secret {name}");
        let api = self.secrets(&name.namespace);
        let there = in_time(api.get_opt(&name.name))
            .await
            .map_err(|e| failed("reading", object(), e))?;
        let Some(empty) = there.and_then(|there| secret::without(there, serial, why)) else {
            return Ok(false);
        };
        self.may_write(object)?;
        let written = patiently(api.replace(&name.name, &PostParams::default(), &empty)).await;
        written
            .map(|_| true)
            .map_err(|failure| failed("writing", object(), failure))
    }

    /// Installs a new certificate in the Secrets that want it.
    async fn put(&self, key: &Key, bytes: &[u8]) -> Result<Version, StorageError> {
        let stored: Stored =
            serde_json::from_slice(bytes).expect("the keeper writes what it reads");
        let mut outcome = None;
        for name in self.targets(|all| all.served_by(&stored)) {
            let installed = self.install(&name, &stored).await;
            match (&installed, &outcome) {
                // A failure of one Secret must not affect the others.
                (Err(error), Some(Ok(()))) => tracing::warn!("{error}"),
                _ => outcome = Some(installed),
            }
        }
        outcome.unwrap_or_else(|| Err(failed("writing", key.to_string(), nobody())))?;
        Ok(Version(stored.certificate.serial))
    }

    /// Reads the certificate from a Secret that wants it.
    async fn find(&self, key: &Key) -> Result<Option<Entry>, StorageError> {
        let Some((name, target)) = self.targets(|all| all.of(key)) else {
            return Ok(None);
        };
        fn object(name: &ObjectName) -> String {
            format!("Secret {name}")
        }
        let found = in_time(self.secrets(&name.namespace).get_opt(&name.name)).await;
        let Some(found) = found.map_err(|e| failed("reading", object(&name), e))? else {
            return Ok(None);
        };
        let foreign = secret::foreign(&found, &name);
        let present = secret::present(&found);
        let is_known = present.as_ref().map(|p| p.certificate.serial()).as_deref()
            == target.present.as_deref();
        let held = present
            .and_then(|p| p.held(&target.id, &name.namespace, &target.names, &target.issuer));
        match (held, foreign) {
            // The certificate is known, and a replacement is wanted all the same: the replacement
            // could not be installed there.
            (Some(_), Some(why)) if is_known => Err(StorageError::Foreign {
                object: object(&name),
                why,
            }),
            (None, Some(why)) => Err(StorageError::Foreign {
                object: object(&name),
                why,
            }),
            (Some(stored), _) => {
                let bytes = Zeroizing::new(
                    serde_json::to_vec(&stored).expect("our own records have string keys only"),
                );
                Ok(Some(Entry {
                    bytes,
                    version: Version(stored.certificate.serial),
                }))
            }
            (None, None) => Ok(None),
        }
    }
}

fn what(shape: &Shape, namespace: &str) -> String {
    format!("{}s of namespace {namespace}", shape.as_str())
}

fn nobody() -> Failure {
    Failure::Unavailable("nobody waits for it any more".to_owned())
}

impl SecretTargets for ObjectStorage {
    fn address(&self, secret: &ObjectName, target: Option<SecretTarget>) {
        self.targets(|all| all.set(secret, target));
    }
}

/// A lock among the orders of this process. Of several processes, only that of the lease holder
/// places orders.
struct LockGuard {
    _guard: OwnedMutexGuard<()>,
}

impl Lock for LockGuard {}

#[async_trait]
impl Storage for ObjectStorage {
    async fn read(&self, key: &Key) -> Result<Option<Entry>, StorageError> {
        if key.kind() == Kind::Certificate {
            return self.find(key).await;
        }
        Ok(self.with_entries(|entries| {
            entries.get(key).map(|stored| Entry {
                bytes: stored.bytes.clone(),
                version: Version(stored.version.clone()),
            })
        }))
    }

    async fn write(
        &self,
        key: &Key,
        bytes: &[u8],
        expect: &Expect,
    ) -> Result<Version, StorageError> {
        self.may_write(|| key.to_string())?;
        if key.kind() == Kind::Certificate {
            return self.put(key, bytes).await;
        }
        let version =
            self.with_entries(|entries| entries.get(key).map(|stored| stored.version.clone()));
        match (expect, &version) {
            (Expect::Absent, Some(_)) | (Expect::Version(_), None) => return Err(conflict(key)),
            (Expect::Version(Version(wanted)), Some(there)) if wanted != there => {
                return Err(conflict(key));
            }
            _ => {}
        }
        let shape = Shape::of(key.kind());
        let object = object(entry::document(
            &self.namespace,
            key,
            bytes,
            version.as_deref(),
        ));
        let api = self.api(shape);
        let written = match version {
            Some(_) => {
                in_time(api.replace(&entry::name(key), &PostParams::default(), &object)).await
            }
            None => in_time(api.create(&PostParams::default(), &object)).await,
        };
        match written {
            Ok(written) => {
                let version = written.metadata.resource_version.unwrap_or_default();
                let stored = StoredEntry {
                    bytes: Zeroizing::new(bytes.to_vec()),
                    version: version.clone(),
                };
                self.with_entries(|entries| entries.insert(key.clone(), stored));
                Ok(Version(version))
            }
            Err(Failure::Conflict | Failure::Gone) => {
                self.refresh(key).await?;
                Err(conflict(key))
            }
            Err(failure) => Err(failed("writing", key.to_string(), failure)),
        }
    }

    async fn remove(&self, key: &Key) -> Result<(), StorageError> {
        // A certificate is kept: the listener may still need it, and if its names are wanted again
        // no order is necessary.
        if key.kind() == Kind::Certificate {
            return Ok(());
        }
        let Some(version) =
            self.with_entries(|entries| entries.get(key).map(|stored| stored.version.clone()))
        else {
            return Ok(());
        };
        self.may_write(|| key.to_string())?;
        let preconditions = Some(Preconditions {
            uid: None,
            resource_version: Some(version),
        });
        let params = DeleteParams {
            preconditions,
            ..DeleteParams::default()
        };
        match in_time(
            self.api(Shape::of(key.kind()))
                .delete(&entry::name(key), &params),
        )
        .await
        {
            Ok(_) | Err(Failure::Gone) => {
                self.with_entries(|entries| entries.remove(key));
                Ok(())
            }
            Err(Failure::Conflict) => {
                self.refresh(key).await?;
                Err(StorageError::Conflict {
                    key: key.to_string(),
                })
            }
            Err(failure) => Err(failed("removing", key.to_string(), failure)),
        }
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Key>, StorageError> {
        Ok(self.with_entries(|entries| {
            entries
                .keys()
                .filter(|key| key.kind() == kind)
                .cloned()
                .collect()
        }))
    }

    async fn lock(&self, key: &Key) -> Result<Box<dyn Lock>, StorageError> {
        let lock = {
            let mut locks = self.locks.lock().expect("nobody panics while holding it");
            if locks.len() > LOCKS {
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            locks.entry(key.clone()).or_default().clone()
        };
        Ok(Box::new(LockGuard {
            _guard: lock.lock_owned().await,
        }))
    }
}

fn conflict(key: &Key) -> StorageError {
    StorageError::Conflict {
        key: key.to_string(),
    }
}

fn object(document: Value) -> DynamicObject {
    serde_json::from_value(document).expect("an entry is an object")
}

/// Returns the class of the failure of a storage operation.
pub(crate) fn class(error: &StorageError) -> Failure {
    match error {
        StorageError::Conflict { .. } => Failure::Conflict,
        StorageError::Io { why, .. } => {
            let failure = why.get_ref().and_then(|why| why.downcast_ref::<Failure>());
            failure
                .cloned()
                .unwrap_or_else(|| Failure::Unavailable(why.to_string()))
        }
        other => Failure::Refused(other.to_string()),
    }
}

fn failed(doing: &'static str, object: String, failure: Failure) -> StorageError {
    let failure = match failure {
        Failure::Forbidden(text) if object.starts_with("Secret ") => Failure::Forbidden(format!(
            "{text}: kubectl apply -k deploy/certificates gives the right"
        )),
        failure => failure,
    };
    StorageError::Io {
        doing,
        object,
        why: std::io::Error::other(failure),
    }
}
