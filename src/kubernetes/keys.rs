//! Keys of the connection between Envoys and us: a certificate authority of our own, in a Secret, and what it issues.

mod accounts;
mod ca_rotation;
mod pod;
mod pod_certificates;
mod pod_review;
mod revoked;

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
pub use accounts::{EnvoyAccounts, secret_of};
pub use ca_rotation::{CaRotation, REPLACE};
pub use gatewright_control::envoy_identity::identity_of;
pub use pod_certificates::{PodCertificates, Signing};
pub use revoked::Revocations;

/// The Secret of the authority. Only we read it.
pub const AUTHORITY: &str = "gatewright-xds-ca";
/// The Secret with the key of the last good state, which our own pods mount.
pub const SEAL: &str = "gatewright-last-good";
/// The ConfigMap with the certificates of those whom pods of Envoys trust, in `ca.crt`, who signs first.
pub const ROOTS: &str = "gatewright-xds-roots";

/// How often a write is tried that somebody else comes before.
const ATTEMPTS: usize = 5;

/// Of the server's certificate, which is made anew by every process.
pub const SERVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The API server.
    #[error("{kind} {namespace}/{name}: {why}")]
    Api {
        /// Of which kind.
        kind: &'static str,
        /// Where.
        namespace: String,
        /// Which.
        name: &'static str,
        /// Why.
        why: Box<Error>,
    },
    /// A Secret that somebody changed.
    #[error("secret {namespace}/{name}: {why}; delete it to have it made anew")]
    Broken {
        /// Where.
        namespace: String,
        /// Which.
        name: &'static str,
        /// Why.
        why: String,
    },
    /// A certificate could not be revoked.
    #[error("{0}")]
    Revoke(String),
    /// A certificate could not be made.
    #[error(transparent)]
    Issue(#[from] TlsError),
}

/// The Secrets of the connection.
#[derive(Clone)]
pub struct Keys {
    api: Api<Secret>,
    client: Client,
    namespace: String,
    overlap: Duration,
}

impl Keys {
    /// Those of a namespace. A step of a replacement lasts for the overlap.
    pub fn new(client: Client, namespace: &str, overlap: Duration) -> Self {
        let api = Api::namespaced(client.clone(), namespace);
        Self { api, client, namespace: namespace.to_owned(), overlap }
    }

    /// Who signs and who is trusted from now on; `known` is what held so far. Where `may_write`, the Secret of the
    /// authority is made, and made to say the next step.
    ///
    /// # Errors
    /// When the Secret cannot be read or written: what is known holds on.
    pub async fn look(&self, known: Option<&CaRotation>, may_write: bool) -> Result<Option<CaRotation>, KeysError> {
        let held = self.get(AUTHORITY).await?;
        let found = held.as_ref().map(ca_rotation::read).transpose().map_err(|why| self.broken(AUTHORITY, why))?;
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
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(since.to_owned(), at);
        annotations.remove(REPLACE);
        let written = self.put(AUTHORITY, wanted, held.is_some()).await?;
        // Otherwise somebody was faster: what they wrote is seen at the next look.
        Ok(if written { Some(decision.trust) } else { known.cloned() })
    }

    /// Sees to it that the Envoys of a fleet have a certificate that will last, and whom they are to trust, in the Secret that they
    /// mount. Says whether it wrote them.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub async fn envoy(&self, trust: &CaRotation, fleet: &EnvoyFleet) -> Result<bool, KeysError> {
        let Some(name) = secret_of(fleet) else { return Ok(false) };
        let held = self.get(name).await?;
        match ca_rotation::renewed(held.as_ref(), trust, &identity_of(fleet), SystemTime::now())? {
            Some(data) => self.put(name, secret(name, data, held.as_ref()), held.is_some()).await,
            None => Ok(false),
        }
    }

    /// Sees to it that pods of Envoys find whom they are to trust. Says whether it wrote that.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub async fn roots(&self, trust: &CaRotation) -> Result<bool, KeysError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let fail = |why| self.api_error("configmap", ROOTS, why);
        let data = BTreeMap::from([("ca.crt".to_owned(), trust.bundle())]);
        let held = api.get_opt(ROOTS).await.map_err(fail)?;
        if held.as_ref().is_some_and(|held| held.data.as_ref() == Some(&data)) {
            return Ok(false);
        }
        let is_there = held.is_some();
        let metadata = held.map_or_else(|| metadata(ROOTS), |held| held.metadata);
        let wanted = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
        written(put(&api, ROOTS, &wanted, is_there).await).map_err(fail)
    }

    /// The pod of this name, where it is one with an Envoy of ours.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub async fn pod(&self, name: &str, accounts: &EnvoyAccounts) -> Result<PodIdentity, KeysError> {
        let found = pod::pods(self.client.clone(), &self.namespace)
            .get_opt(name)
            .await
            .map_err(|why| self.pod_error(name, &why))?;
        let namespace = &self.namespace;
        let none = |why: String| KeysError::Revoke(format!("{why}: gatewright envoys list, at each replica"));
        let pod = found.ok_or_else(|| {
            none(format!("no Envoy {name:?} is connected here, and there is no pod {namespace}/{name}"))
        })?;
        let (spec, uid) = (pod.spec, pod.metadata.uid.unwrap_or_default());
        let account = spec.service_account_name.unwrap_or_default();
        let fleet = accounts.fleet(&account);
        let fleet = fleet.ok_or_else(|| none(format!("pod {namespace}/{name} is no Envoy of ours")))?;
        let node = spec.node_name.unwrap_or_default();
        let pod = EnvoyPod { namespace: namespace.clone(), name: name.to_owned(), uid, node };
        match pod.is_plain() {
            true => Ok(PodIdentity { fleet, pod }),
            false => Err(none(format!("pod {namespace}/{name} runs on no node: delete it"))),
        }
    }

    /// The pods of this list that are known to be gone. Where that cannot be asked, none is: nobody waits for it to be revoked.
    async fn gone(&self, pods: impl Iterator<Item = PodIdentity>) -> Vec<PodIdentity> {
        let mut gone = Vec::new();
        let api = pod::pods(self.client.clone(), &self.namespace);
        for identity in pods {
            let Ok(found) = api.get_opt(&identity.pod.name).await else { break };
            if found.is_none_or(|pod| pod.metadata.uid.as_ref() != Some(&identity.pod.uid)) {
                gone.push(identity);
            }
        }
        gone
    }

    fn pod_error(&self, name: &str, why: &Error) -> KeysError {
        KeysError::Revoke(format!("pod {}/{name}: {why}", self.namespace))
    }

    /// Has somebody refused from now on. The next look sees it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn revoke(&self, who: &Revoke) -> Result<(), KeysError> {
        // Whoever writes in between is a step of a replacement, or an operator.
        for _ in 0..ATTEMPTS {
            let Some(held) = self.get(AUTHORITY).await? else {
                return Err(KeysError::Revoke(format!("secret {}/{AUTHORITY} is not there yet", self.namespace)));
            };
            let trust = ca_rotation::read(&held).map_err(|why| self.broken(AUTHORITY, why))?.trust;
            let time = |at: SystemTime| Timestamp::try_from(at).unwrap_or(Timestamp::MAX);
            let mut revoked = trust.revoked().clone();
            let now = time(SystemTime::now());
            for pod in self.gone(trust.revoked().pods()).await {
                revoked.pod_is_gone(&pod, now);
            }
            let added = match who {
                Revoke::Certificate { credential, name } => {
                    let entry = Revocation { name: name.clone(), at: now, until: time(trust.ends()) };
                    revoked.add(credential.clone(), entry)
                }
                Revoke::Pod(identity) => revoked.add_pod(identity, now),
                Revoke::PodNamed(name) => Err(format!("pod {}/{name}: its UID is not known", self.namespace)),
            };
            added.map_err(KeysError::Revoke)?;
            let (data, _) = trust.refusing(revoked).written();
            if self.put(AUTHORITY, secret(AUTHORITY, data, Some(&held)), true).await? {
                return Ok(());
            }
        }
        Err(KeysError::Revoke(format!(
            "somebody else goes on writing secret {}/{AUTHORITY}: try again",
            self.namespace
        )))
    }

    /// Sees to it that there is a key for the last good state. Says whether it made one.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub async fn seal(&self) -> Result<bool, KeysError> {
        if self.get(SEAL).await?.is_some() {
            return Ok(false);
        }
        let mut key = vec![0; 32];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut key).map_err(|_| self.broken(SEAL, "there is no randomness for a key".to_owned()))?;
        self.put(SEAL, secret(SEAL, BTreeMap::from([("key", key)]), None), false).await
    }

    async fn get(&self, name: &'static str) -> Result<Option<Secret>, KeysError> {
        self.api.get_opt(name).await.map_err(|why| self.api_error("secret", name, why))
    }

    /// Writes a Secret, unless somebody else did since it was read.
    async fn put(&self, name: &'static str, wanted: Secret, is_there: bool) -> Result<bool, KeysError> {
        written(put(&self.api, name, &wanted, is_there).await).map_err(|why| self.api_error("secret", name, why))
    }

    fn api_error(&self, kind: &'static str, name: &'static str, why: Error) -> KeysError {
        KeysError::Api { kind, namespace: self.namespace.clone(), name, why: Box::new(why) }
    }

    fn broken(&self, name: &'static str, why: String) -> KeysError {
        KeysError::Broken { namespace: self.namespace.clone(), name, why }
    }
}

async fn put<K>(api: &Api<K>, name: &str, wanted: &K, is_there: bool) -> Result<K, Error>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let params = PostParams::default();
    if is_there { api.replace(name, &params, wanted).await } else { api.create(&params, wanted).await }
}

/// Whether it was written; not where somebody wrote, made or deleted it meanwhile.
fn written<K>(done: Result<K, Error>) -> Result<bool, Error> {
    match done {
        Ok(_) => Ok(true),
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The metadata of a new object of ours.
fn metadata(name: &str) -> ObjectMeta {
    let labels = BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "gatewright".to_owned())]);
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() }
}

/// A Secret of ours, over the one that is held: its type cannot be changed.
fn secret(name: &str, data: BTreeMap<&'static str, Vec<u8>>, held: Option<&Secret>) -> Secret {
    Secret {
        metadata: held.map_or_else(|| metadata(name), |held| held.metadata.clone()),
        // It keeps the Secret out of the watch of certificates that listeners may refer to.
        type_: held.map_or_else(|| Some("gatewright.io/xds".to_owned()), |held| held.type_.clone()),
        data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value))).collect()),
        ..Secret::default()
    }
}

fn bytes<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    Some(&secret.data.as_ref()?.get(key)?.0)
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    String::from_utf8(bytes(secret, key)?.to_vec()).ok()
}
