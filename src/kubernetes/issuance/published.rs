//! ConfigMaps that the lease holder publishes in the controller's namespace: the ACME accounts that answer challenges,
//! and the roots of the internal CA.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::watcher::Config;
use kube::{Client, ResourceExt};
use tokio::sync::mpsc;
use tracing::warn;

use crate::watch::peers::{PeerEvent, follow};
use crate::write::failure::Failure;
use crate::write::request::in_time;
use gatewright_control::certificates::{CertificateManager, ChallengeAccounts};

/// Name and key of the ConfigMap with the ACME accounts that answer HTTP-01, for the other replicas.
const CHALLENGES: (&str, &str) = ("gatewright-challenges", "answers.json");
/// Name and key of the ConfigMap with the roots of the internal CA, for people and programs that trust it.
const ROOTS: (&str, &str) = ("gatewright-internal-ca", "ca.crt");

/// Both ConfigMaps.
pub(super) struct Notices {
    challenges: PublishedConfigMap,
    roots: PublishedConfigMap,
}

impl Notices {
    /// Creates the ConfigMaps' state for a namespace, before the first read.
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        let [challenges, roots] =
            [CHALLENGES, ROOTS].map(|which| PublishedConfigMap::new(client.clone(), namespace, which));
        Self { challenges, roots }
    }

    /// Returns whether both were read and agree with the certificate manager.
    pub(super) fn are_current(&self, manager: &CertificateManager) -> bool {
        let Self { challenges, roots } = self;
        challenges.says(|before| answers(manager, before)) && roots.says(|_| bundle(manager))
    }

    /// Updates both from the certificate manager. The error has the name of the ConfigMap that failed.
    pub(super) async fn publish(&mut self, manager: &CertificateManager) -> Result<(), (&'static str, Failure)> {
        let Self { challenges, roots } = self;
        let before = challenges.read().await.map_err(|failure| (CHALLENGES.0, failure))?;
        let answers = answers(manager, before);
        challenges.say(&answers).await.map_err(|failure| (CHALLENGES.0, failure))?;
        roots.say(&bundle(manager)).await.map_err(|failure| (ROOTS.0, failure))
    }
}

/// Returns the ACME accounts that answer challenges, as JSON. Issuers that are still being set up keep the accounts of
/// `current`, the text so far.
fn answers(manager: &CertificateManager, current: &str) -> String {
    let before: ChallengeAccounts = serde_json::from_str(current).unwrap_or_default();
    let answers = manager.answers(&before);
    if answers == before { current.to_owned() } else { serde_json::to_string(&answers).expect("texts") }
}

/// Returns the roots of the internal CA, as PEM.
fn bundle(manager: &CertificateManager) -> String {
    manager.authority().bundle(Timestamp::now())
}

/// One published ConfigMap.
struct PublishedConfigMap {
    api: Api<ConfigMap>,
    name: &'static str,
    field: &'static str,
    /// Resource version and text as last read or written; `None` before the first read.
    there: Option<(Option<String>, String)>,
}

impl PublishedConfigMap {
    fn new(client: Client, namespace: &str, (name, field): (&'static str, &'static str)) -> Self {
        Self { api: Api::namespaced(client, namespace), name, field, there: None }
    }

    /// Returns the text, reading it first if necessary.
    async fn read(&mut self) -> Result<&str, Failure> {
        if self.there.is_none() {
            let found = in_time(self.api.get_opt(self.name)).await?;
            let says = found.as_ref().and_then(|map| map.data.as_ref()?.get(self.field).cloned());
            self.there = Some((found.and_then(|map| map.metadata.resource_version), says.unwrap_or_default()));
        }
        Ok(self.there.as_ref().map(|(_, says)| says.as_str()).unwrap_or_default())
    }

    /// Returns whether it was read and its text equals the wanted one, which `wanted` computes from the text so far.
    fn says(&self, wanted: impl FnOnce(&str) -> String) -> bool {
        self.there.as_ref().is_some_and(|(_, says)| wanted(says) == *says)
    }

    /// Writes the text. On a write conflict nothing is overwritten, and the ConfigMap is read again next time.
    async fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.read().await?;
        let (version, says) = self.there.clone().expect("read just now");
        if says == text {
            return Ok(());
        }
        let labels = BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "gatewright".to_owned())]);
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
                labels: Some(labels),
                resource_version: version.clone(),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(self.field.to_owned(), text.to_owned())])),
            ..ConfigMap::default()
        };
        self.there = None;
        let written = match version {
            Some(_) => in_time(self.api.replace(self.name, &PostParams::default(), &map)).await?,
            None => in_time(self.api.create(&PostParams::default(), &map)).await?,
        };
        self.there = Some((written.metadata.resource_version, text.to_owned()));
        Ok(())
    }
}

/// Watches the ACME accounts that answer challenges until the receiver is dropped.
pub async fn watch_answers(client: Client, namespace: String, out: mpsc::Sender<ChallengeAccounts>) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let config = Config::default().fields(&format!("metadata.name={}", CHALLENGES.0));
    let convert = |event| match event {
        PeerEvent::Applied(map) => parse(&map),
        // After a deletion the last published accounts stay in use.
        PeerEvent::Deleted(_) | PeerEvent::Synced => None,
    };
    follow(api, config, "who answers challenges", out, convert).await;
}

fn parse(map: &ConfigMap) -> Option<ChallengeAccounts> {
    let text = map.data.as_ref()?.get(CHALLENGES.1)?;
    match serde_json::from_str(text) {
        Ok(answers) => Some(answers),
        Err(error) => {
            warn!("configmap {}: {error}; it is ignored", map.name_any());
            None
        }
    }
}
