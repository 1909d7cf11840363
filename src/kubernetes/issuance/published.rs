//! Notices of the holder of the Lease to everybody: who answers challenges, and the roots of the internal CA. Each is a text
//! in a ConfigMap of the controller's namespace.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::watcher::Config;
use kube::{Client, ResourceExt};
use tokio::sync::mpsc;
use tracing::warn;

use crate::watch::peers::{Told, follow};
use crate::write::failure::Failure;
use crate::write::request::in_time;
use gatewright_control::certificates::{CertificateManager, ChallengeAccounts};

/// Who answers HTTP-01: for the other replicas.
const CHALLENGES: (&str, &str) = ("gatewright-challenges", "answers.json");
/// The roots of the internal CA: for people and programs that are to trust it.
const ROOTS: (&str, &str) = ("gatewright-internal-ca", "ca.crt");

/// Both notices.
pub(super) struct Notices {
    challenges: PublishedConfigMap,
    roots: PublishedConfigMap,
}

impl Notices {
    /// Those of a namespace.
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        let [challenges, roots] =
            [CHALLENGES, ROOTS].map(|which| PublishedConfigMap::new(client.clone(), namespace, which));
        Self { challenges, roots }
    }

    /// Whether both were read, and say what the certificate manager knows.
    pub(super) fn are_current(&self, manager: &CertificateManager) -> bool {
        let Self { challenges, roots } = self;
        challenges.says(|before| answers(manager, before)) && roots.says(|_| bundle(manager))
    }

    /// Has both say what the certificate manager knows, or names the one that does not.
    pub(super) async fn publish(&mut self, manager: &CertificateManager) -> Result<(), (&'static str, Failure)> {
        let Self { challenges, roots } = self;
        let before = challenges.read().await.map_err(|failure| (CHALLENGES.0, failure))?;
        let answers = answers(manager, before);
        challenges.say(&answers).await.map_err(|failure| (CHALLENGES.0, failure))?;
        roots.say(&bundle(manager)).await.map_err(|failure| (ROOTS.0, failure))
    }
}

/// Who answers challenges, in place of what was told before. Issuers that are being set up answer as they did.
fn answers(manager: &CertificateManager, told: &str) -> String {
    let before: ChallengeAccounts = serde_json::from_str(told).unwrap_or_default();
    let answers = manager.answers(&before);
    if answers == before { told.to_owned() } else { serde_json::to_string(&answers).expect("texts") }
}

/// The roots of the internal CA.
fn bundle(manager: &CertificateManager) -> String {
    manager.authority().bundle(Timestamp::now())
}

/// One notice.
struct PublishedConfigMap {
    api: Api<ConfigMap>,
    name: &'static str,
    field: &'static str,
    /// As it was last read or written; nothing before that.
    there: Option<(Option<String>, String)>,
}

impl PublishedConfigMap {
    fn new(client: Client, namespace: &str, (name, field): (&'static str, &'static str)) -> Self {
        Self { api: Api::namespaced(client, namespace), name, field, there: None }
    }

    /// What it says.
    async fn read(&mut self) -> Result<&str, Failure> {
        if self.there.is_none() {
            let found = in_time(self.api.get_opt(self.name)).await?;
            let says = found.as_ref().and_then(|map| map.data.as_ref()?.get(self.field).cloned());
            self.there = Some((found.and_then(|map| map.metadata.resource_version), says.unwrap_or_default()));
        }
        Ok(self.there.as_ref().map(|(_, says)| says.as_str()).unwrap_or_default())
    }

    /// Whether it was read, and says what is `wanted` in place of what it says.
    fn says(&self, wanted: impl FnOnce(&str) -> String) -> bool {
        self.there.as_ref().is_some_and(|(_, says)| wanted(says) == *says)
    }

    /// Has it say this. Over what somebody else wrote meanwhile nothing is written: the next time it is read again.
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

/// Watches who answers challenges until the receiver is gone.
pub async fn watch_answers(client: Client, namespace: String, out: mpsc::Sender<ChallengeAccounts>) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let config = Config::default().fields(&format!("metadata.name={}", CHALLENGES.0));
    let tell = |told| match told {
        Told::There(map) => parse(&map),
        // What was told stays until something else is told.
        Told::Gone(_) | Told::Complete => None,
    };
    follow(api, config, "who answers challenges", out, tell).await;
}

fn parse(map: &ConfigMap) -> Option<ChallengeAccounts> {
    let text = map.data.as_ref()?.get(CHALLENGES.1)?;
    match serde_json::from_str(text) {
        Ok(answers) => Some(answers),
        Err(error) => {
            warn!("configmap {}: {error}; it is passed over", map.name_any());
            None
        }
    }
}
