//! ConfigMaps that the lease holder publishes in the controller's namespace: the ACME accounts that
//! answer challenges, and the roots of the internal CA.

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

/// A published ConfigMap. Each is written by itself: a write that fails does not keep the other one
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Notice {
    /// The ACME accounts that answer HTTP-01, for the other replicas.
    Challenges,
    /// The roots of the internal CA, for people and programs that trust it.
    Roots,
}

impl Notice {
    /// The name of the ConfigMap.
    pub(super) fn name(self) -> &'static str {
        match self {
            Notice::Challenges => "gatewright-challenges",
            Notice::Roots => "gatewright-internal-ca",
        }
    }

    /// The key in the ConfigMap.
    fn field(self) -> &'static str {
        match self {
            Notice::Challenges => "answers.json",
            Notice::Roots => "ca.crt",
        }
    }

    /// Returns the text to be published; `current` is the text so far.
    fn text(self, manager: &CertificateManager, current: &str) -> String {
        match self {
            Notice::Challenges => answers(manager, current),
            Notice::Roots => manager.authority().bundle(Timestamp::now()),
        }
    }
}

/// Returns the ACME accounts that answer challenges, as JSON. Issuers that are still being set up
/// keep the accounts of `current`, the text so far.
fn answers(manager: &CertificateManager, current: &str) -> String {
    let before: ChallengeAccounts = serde_json::from_str(current).unwrap_or_default();
    let answers = manager.answers(&before);
    if answers == before {
        current.to_owned()
    } else {
        serde_json::to_string(&answers).expect("texts")
    }
}

/// One published ConfigMap.
pub(super) struct PublishedConfigMap {
    api: Api<ConfigMap>,
    notice: Notice,
    /// Resource version and text as last read or written; `None` before the first read.
    there: Option<(Option<String>, String)>,
}

impl PublishedConfigMap {
    /// Creates the states of all ConfigMaps in a namespace, before the first read.
    pub(super) fn all(client: &Client, namespace: &str) -> BTreeMap<Notice, Self> {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        [Notice::Challenges, Notice::Roots]
            .map(|notice| {
                (
                    notice,
                    Self {
                        api: api.clone(),
                        notice,
                        there: None,
                    },
                )
            })
            .into()
    }

    /// Returns whether it was read and agrees with the certificate manager.
    pub(super) fn is_current(&self, manager: &CertificateManager) -> bool {
        self.there
            .as_ref()
            .is_some_and(|(_, says)| self.notice.text(manager, says) == *says)
    }

    /// Updates it from the certificate manager. On a write conflict nothing is overwritten, and the
    /// ConfigMap is read again next time.
    pub(super) async fn publish(&mut self, manager: &CertificateManager) -> Result<(), Failure> {
        let (version, says) = match self.there.take() {
            Some(there) => there,
            None => self.read().await?,
        };
        let text = self.notice.text(manager, &says);
        let version = if says == text {
            version
        } else {
            self.write(version, &text).await?
        };
        self.there = Some((version, text));
        Ok(())
    }

    /// Returns resource version and text; none and an empty one where it does not exist.
    async fn read(&self) -> Result<(Option<String>, String), Failure> {
        let found = in_time(self.api.get_opt(self.notice.name())).await?;
        let says = found
            .as_ref()
            .and_then(|map| map.data.as_ref()?.get(self.notice.field()).cloned());
        Ok((
            found.and_then(|map| map.metadata.resource_version),
            says.unwrap_or_default(),
        ))
    }

    /// Writes a text over that of a resource version, and returns the new one.
    async fn write(&self, version: Option<String>, text: &str) -> Result<Option<String>, Failure> {
        let name = self.notice.name();
        let labels = BTreeMap::from([(
            "app.kubernetes.io/managed-by".to_owned(),
            "gatewright".to_owned(),
        )]);
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels),
                resource_version: version.clone(),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(
                self.notice.field().to_owned(),
                text.to_owned(),
            )])),
            ..ConfigMap::default()
        };
        let written = match version {
            Some(_) => in_time(self.api.replace(name, &PostParams::default(), &map)).await?,
            None => in_time(self.api.create(&PostParams::default(), &map)).await?,
        };
        Ok(written.metadata.resource_version)
    }
}

/// Watches the ACME accounts that answer challenges until the receiver is dropped.
pub async fn watch_answers(
    client: Client,
    namespace: String,
    out: mpsc::Sender<ChallengeAccounts>,
) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let config = Config::default().fields(&format!("metadata.name={}", Notice::Challenges.name()));
    follow(
        api,
        config,
        "who answers challenges",
        out,
        |event| match event {
            PeerEvent::Applied(map) => parse(&map),
            // After a deletion the last published accounts stay in use.
            PeerEvent::Deleted(_) | PeerEvent::Synced => None,
        },
    )
    .await;
}

fn parse(map: &ConfigMap) -> Option<ChallengeAccounts> {
    let text = map.data.as_ref()?.get(Notice::Challenges.field())?;
    match serde_json::from_str(text) {
        Ok(answers) => Some(answers),
        Err(error) => {
            warn!("configmap {}: {error}; it is ignored", map.name_any());
            None
        }
    }
}
