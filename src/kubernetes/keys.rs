//! Keys of the xDS connection between Envoys and us: our certificate authority, in a Secret, and
//! the certificates that it issues.

mod accounts;
mod ca_rotation;
mod pod;
mod pod_certificates;
mod pod_review;
mod revoked;
mod session_tickets;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use gatewright_control::envoy_identity::{EnvoyPod, PodIdentity};
use gatewright_control::envoys::Revoke;
use gatewright_core::model::EnvoyFleet;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use xds::TlsError;

use self::revoked::Revocation;
use crate::format::{self, NewerFormat};
pub use accounts::{EnvoyAccounts, secret_of};
pub use ca_rotation::{CaRotation, REPLACE};
pub use gatewright_control::envoy_identity::identity_of;
pub use pod_certificates::{PodCertificates, Signing};
pub use revoked::Revocations;
pub use session_tickets::TICKETS;

/// The Secret of the authority. Only the controller reads it.
pub const AUTHORITY: &str = "gatewright-xds-ca";
/// The Secret with the encryption key of the last good state, which the controller's pods mount.
pub const SEAL: &str = "gatewright-last-good";
/// The ConfigMap with the CA certificates that Envoy pods trust, in `ca.crt`; the signing one comes
/// first.
pub const ROOTS: &str = "gatewright-xds-roots";

/// The number of attempts of a write that conflicts with others.
const ATTEMPTS: usize = 5;

/// The lifetime of the server's certificate, which every process issues for itself.
pub const SERVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// The reason for which keys are not available.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A request to the API server failed.
    #[error("{kind} {namespace}/{name}: {why}")]
    Api {
        /// The kind of the object.
        kind: &'static str,
        /// The namespace of the object.
        namespace: String,
        /// The name of the object.
        name: &'static str,
        /// The error of the client.
        why: Box<Error>,
    },
    /// The content of a Secret is invalid.
    #[error("secret {namespace}/{name}: {why}; delete it to have it made anew")]
    Broken {
        /// The namespace of the Secret.
        namespace: String,
        /// The name of the Secret.
        name: &'static str,
        /// The description of what is invalid.
        why: String,
    },
    /// A newer version wrote a Secret.
    #[error("secret {namespace}/{name}: {why}")]
    Newer {
        /// The namespace of the Secret.
        namespace: String,
        /// The name of the Secret.
        name: &'static str,
        /// The formats.
        why: NewerFormat,
    },
    /// A certificate could not be revoked.
    #[error("{0}")]
    Revoke(String),
    /// A certificate could not be issued.
    #[error(transparent)]
    Issue(#[from] TlsError),
}

/// The Secrets of the xDS connection.
#[derive(Clone)]
pub struct Keys {
    api: Api<Secret>,
    client: Client,
    namespace: String,
    overlap: Duration,
}

impl Keys {
    /// Creates the access to those of a namespace. Each step of a CA rotation lasts for the
    /// overlap.
    pub fn new(client: Client, namespace: &str, overlap: Duration) -> Self {
        let api = Api::namespaced(client.clone(), namespace);
        Self {
            api,
            client,
            namespace: namespace.to_owned(),
            overlap,
        }
    }

    /// Returns the state of the CA rotation; `known` is the state so far. If `may_write`, creates
    /// the Secret of the authority, or advances it to the next step.
    ///
    /// # Errors
    /// When the Secret cannot be read or written; the known state stays valid.
    pub async fn reconcile(
        &self,
        known: Option<&CaRotation>,
        may_write: bool,
    ) -> Result<Option<CaRotation>, KeysError> {
        let held = self.get_known(AUTHORITY).await?;
        let found = held
            .as_ref()
            .map(ca_rotation::read)
            .transpose()
            .map_err(|why| self.broken(AUTHORITY, why))?;
        if !may_write {
            return Ok(ca_rotation::follow(found, known));
        }
        let envoys = match known {
            Some(_) => Vec::new(),
            None => self
                .get(accounts::SHARED)
                .await?
                .and_then(|held| text(&held, "ca.crt"))
                .map_or(Vec::new(), |t| ca_rotation::roots(&t)),
        };
        let decision = ca_rotation::decide(found, known, &envoys, SystemTime::now(), self.overlap)?;
        if !decision.write {
            return Ok(Some(decision.trust));
        }
        let (data, (since, at)) = decision.trust.written();
        let mut wanted = secret(AUTHORITY, data, held.as_ref());
        format::record(&mut wanted.metadata);
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(since.to_owned(), at);
        annotations.remove(REPLACE);
        let written = self.put(AUTHORITY, wanted, held.is_some()).await?;
        // Otherwise another writer was faster: its state is read next time.
        Ok(if written {
            Some(decision.trust)
        } else {
            known.cloned()
        })
    }

    /// Ensures that the Secret which the Envoys of a fleet mount has a certificate with enough
    /// validity left, and the CA certificates that they trust. Returns whether it wrote the Secret.
    ///
    /// # Errors
    /// When the Secret cannot be read or written.
    pub async fn envoy(&self, trust: &CaRotation, fleet: &EnvoyFleet) -> Result<bool, KeysError> {
        let Some(name) = secret_of(fleet) else {
            return Ok(false);
        };
        let held = self.get(name).await?;
        match ca_rotation::renewed(held.as_ref(), trust, &identity_of(fleet), SystemTime::now())? {
            Some(data) => {
                self.put(name, secret(name, data, held.as_ref()), held.is_some())
                    .await
            }
            None => Ok(false),
        }
    }

    /// Ensures that the ConfigMap has the CA certificates that Envoy pods trust. Returns whether it
    /// wrote the ConfigMap.
    ///
    /// # Errors
    /// When the ConfigMap cannot be read or written.
    pub async fn roots(&self, trust: &CaRotation) -> Result<bool, KeysError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let fail = |why| self.api_error("configmap", ROOTS, why);
        let data = BTreeMap::from([("ca.crt".to_owned(), trust.bundle())]);
        let held = api.get_opt(ROOTS).await.map_err(fail)?;
        if held
            .as_ref()
            .is_some_and(|held| held.data.as_ref() == Some(&data))
        {
            return Ok(false);
        }
        let is_there = held.is_some();
        let metadata = held.map_or_else(|| metadata(ROOTS), |held| held.metadata);
        let wanted = ConfigMap {
            metadata,
            data: Some(data),
            ..ConfigMap::default()
        };
        written(put(&api, ROOTS, &wanted, is_there).await).map_err(fail)
    }

    /// Returns the identity of the pod of this name, if it has an Envoy of ours.
    ///
    /// # Errors
    /// When there is no such pod, or it cannot be read.
    pub async fn pod(
        &self,
        name: &str,
        accounts: &EnvoyAccounts,
    ) -> Result<PodIdentity, KeysError> {
        let found = pod::pods(self.client.clone(), &self.namespace)
            .get_opt(name)
            .await
            .map_err(|why| self.pod_error(name, &why))?;
        let namespace = &self.namespace;
        let pod = found.ok_or_else(|| {
            none(format!(
                "no Envoy {name:?} is connected here, and there is no pod {namespace}/{name}"
            ))
        })?;
        let spec = pod.spec;
        let uid = pod.metadata.uid.unwrap_or_default();
        let account = spec.service_account_name.unwrap_or_default();
        let fleet = accounts.fleet(&account);
        let fleet =
            fleet.ok_or_else(|| none(format!("pod {namespace}/{name} is no Envoy of ours")))?;
        let node = spec.node_name.unwrap_or_default();
        let pod = EnvoyPod {
            namespace: namespace.clone(),
            name: name.to_owned(),
            uid,
            node,
        };
        if pod.is_plain() {
            Ok(PodIdentity { fleet, pod })
        } else {
            Err(none(format!(
                "pod {namespace}/{name} runs on no node: delete it"
            )))
        }
    }

    /// Returns the pods of this list that are known to be deleted. After a failed request the rest
    /// count as existing, so that a revocation does not wait for them.
    async fn gone(&self, pods: impl Iterator<Item = PodIdentity>) -> Vec<PodIdentity> {
        let mut gone = Vec::new();
        let api = pod::pods(self.client.clone(), &self.namespace);
        for identity in pods {
            let Ok(found) = api.get_opt(&identity.pod.name).await else {
                break;
            };
            if found.is_none_or(|pod| pod.metadata.uid.as_ref() != Some(&identity.pod.uid)) {
                gone.push(identity);
            }
        }
        gone
    }

    fn pod_error(&self, name: &str, why: &Error) -> KeysError {
        KeysError::Revoke(format!("pod {}/{name}: {why}", self.namespace))
    }

    /// Adds a client to the revocations. The next [`Self::reconcile`] reads it.
    ///
    /// # Errors
    /// When the Secret cannot be written.
    pub async fn revoke(&self, who: &Revoke) -> Result<(), KeysError> {
        // Conflicting writers are a step of the CA rotation, or an operator.
        for _ in 0..ATTEMPTS {
            let Some(held) = self.get_known(AUTHORITY).await? else {
                return Err(KeysError::Revoke(format!(
                    "secret {}/{AUTHORITY} is not there yet",
                    self.namespace
                )));
            };
            let trust = ca_rotation::read(&held)
                .map_err(|why| self.broken(AUTHORITY, why))?
                .trust;
            fn time(at: SystemTime) -> Timestamp {
                Timestamp::try_from(at).unwrap_or(Timestamp::MAX)
            }
            let mut revoked = trust.revoked().clone();
            let now = time(SystemTime::now());
            for pod in self.gone(trust.revoked().pods()).await {
                revoked.pod_is_gone(&pod, now);
            }
            let added = match who {
                Revoke::Certificate { credential, name } => {
                    let entry = Revocation {
                        name: name.clone(),
                        at: now,
                        until: time(trust.ends()),
                    };
                    revoked.add(credential.clone(), entry)
                }
                Revoke::Pod(identity) => revoked.add_pod(identity, now),
                Revoke::PodNamed(name) => Err(format!(
                    "pod {}/{name}: its UID is not known",
                    self.namespace
                )),
            };
            added.map_err(KeysError::Revoke)?;
            let (data, _) = trust.refusing(revoked).written();
            if self
                .put(AUTHORITY, secret(AUTHORITY, data, Some(&held)), true)
                .await?
            {
                return Ok(());
            }
        }
        Err(KeysError::Revoke(format!(
            "another writer keeps changing secret {}/{AUTHORITY}: try again",
            self.namespace
        )))
    }

    /// Ensures that there is an encryption key of the last good state. Returns whether it created
    /// the key.
    ///
    /// # Errors
    /// When the Secret cannot be read or written.
    pub async fn seal(&self) -> Result<bool, KeysError> {
        if self.get(SEAL).await?.is_some() {
            return Ok(false);
        }
        let mut key = vec![0; 32];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random
            .fill(&mut key)
            .map_err(|_| self.broken(SEAL, "there is no randomness for a key".to_owned()))?;
        self.put(
            SEAL,
            secret(SEAL, BTreeMap::from([("key", key)]), None),
            false,
        )
        .await
    }

    async fn get(&self, name: &'static str) -> Result<Option<Secret>, KeysError> {
        self.api
            .get_opt(name)
            .await
            .map_err(|why| self.api_error("secret", name, why))
    }

    /// Returns a Secret of a format that this version knows.
    async fn get_known(&self, name: &'static str) -> Result<Option<Secret>, KeysError> {
        let held = self.get(name).await?;
        let known = held
            .as_ref()
            .map_or(Ok(()), |held| format::check(&held.metadata));
        known.map_err(|why| KeysError::Newer {
            namespace: self.namespace.clone(),
            name,
            why,
        })?;
        Ok(held)
    }

    /// Writes a Secret, unless it was changed since it was read. Returns whether it was written.
    async fn put(
        &self,
        name: &'static str,
        wanted: Secret,
        is_there: bool,
    ) -> Result<bool, KeysError> {
        written(put(&self.api, name, &wanted, is_there).await)
            .map_err(|why| self.api_error("secret", name, why))
    }

    fn api_error(&self, kind: &'static str, name: &'static str, why: Error) -> KeysError {
        KeysError::Api {
            kind,
            namespace: self.namespace.clone(),
            name,
            why: Box::new(why),
        }
    }

    fn broken(&self, name: &'static str, why: String) -> KeysError {
        KeysError::Broken {
            namespace: self.namespace.clone(),
            name,
            why,
        }
    }
}

fn none(why: String) -> KeysError {
    KeysError::Revoke(format!(
        "{why}: run `gatewright envoys list` at each replica"
    ))
}

async fn put<K>(api: &Api<K>, name: &str, wanted: &K, is_there: bool) -> Result<K, Error>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let params = PostParams::default();
    if is_there {
        api.replace(name, &params, wanted).await
    } else {
        api.create(&params, wanted).await
    }
}

/// Returns whether the object was written; false on a conflict (created, changed or deleted
/// meanwhile).
fn written<K>(done: Result<K, Error>) -> Result<bool, Error> {
    match done {
        Ok(_) => Ok(true),
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the metadata of a new object of ours.
fn metadata(name: &str) -> ObjectMeta {
    let labels = BTreeMap::from([(
        "app.kubernetes.io/managed-by".to_owned(),
        "gatewright".to_owned(),
    )]);
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels),
        ..ObjectMeta::default()
    }
}

/// Returns a Secret of ours, based on the one that exists: the type is immutable.
fn secret(name: &str, data: BTreeMap<&'static str, Vec<u8>>, held: Option<&Secret>) -> Secret {
    Secret {
        metadata: held.map_or_else(|| metadata(name), |held| held.metadata.clone()),
        // This type keeps the Secret out of the watch of certificates that listeners may refer to.
        type_: held.map_or_else(
            || Some("gatewright.io/xds".to_owned()),
            |held| held.type_.clone(),
        ),
        data: Some(
            data.into_iter()
                .map(|(key, value)| (key.to_owned(), ByteString(value)))
                .collect(),
        ),
        ..Secret::default()
    }
}

fn bytes<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    Some(&secret.data.as_ref()?.get(key)?.0)
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(bytes(secret, key)?.to_vec()).ok()
}
