//! Updates for wanted certificates, and the state that was last handed out.

use std::collections::BTreeMap;
use std::sync::Arc;

use acme::keeper::Stored;
use serde_json::json;

use gatewright_core::inputs::{ISSUED_BY, Kind, Object, ObjectKey};
use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::translate::{Asked, ChallengeAnswer, Change, Fact};

/// One change.
#[derive(Clone, Debug)]
pub enum CertificateUpdate {
    /// The certificate of a Secret; `None` when the Secret is not wanted any more.
    Certificate(ObjectName, Option<Arc<Stored>>),
    /// The answer to the HTTP-01 challenges of a host in a namespace.
    Challenge(Asked, Option<ChallengeAnswer>),
    /// The reason for which a Secret has no certificate yet, or for which the renewals of the one
    /// that it has fail.
    Trouble(ObjectName, Option<String>),
}

impl CertificateUpdate {
    /// Converts it to a change of the engine's inputs.
    ///
    /// # Errors
    /// When the certificate cannot be served.
    pub fn change(self) -> Result<Change, String> {
        Ok(match self {
            Self::Certificate(secret, None) => Change::delete(ObjectKey::new(Kind::Secret, secret)),
            Self::Certificate(secret, Some(stored)) => Change::put(object(&secret, &stored)?),
            Self::Challenge(asked, answer) => Change::Fact(Fact::Challenge(asked, answer)),
            Self::Trouble(secret, text) => Change::Fact(Fact::IssuanceProblem(secret, text)),
        })
    }
}

fn object(secret: &ObjectName, stored: &Stored) -> Result<Object, String> {
    let certificate = &stored.certificate;
    let issuer = certificate
        .issued_by
        .as_ref()
        .unwrap_or(&certificate.issuer);
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": &*secret.namespace, "name": &*secret.name, "annotations": {ISSUED_BY: issuer}},
        "stringData": {
            "tls.crt": certificate.chain_pem, "tls.key": certificate.key_pem.expose(),
        },
    });
    Object::parse(object).map_err(|error| error.to_string())
}

/// The last updates of each subject.
#[derive(Clone, Debug, Default)]
pub(super) struct IssuedCertificates {
    /// The serial number of the certificate of each Secret.
    pub(super) certificates: BTreeMap<ObjectName, String>,
    pub(super) challenges: BTreeMap<Asked, ChallengeAnswer>,
    pub(super) troubles: BTreeMap<ObjectName, String>,
}

impl IssuedCertificates {
    /// Sets the answer to a host's challenges in a namespace. Returns the update, if it has
    /// changed.
    pub(super) fn answer(
        &mut self,
        asked: Asked,
        answer: Option<ChallengeAnswer>,
    ) -> Option<CertificateUpdate> {
        let before = match &answer {
            Some(answer) => self.challenges.insert(asked.clone(), answer.clone()),
            None => self.challenges.remove(&asked),
        };
        (before != answer).then(|| CertificateUpdate::Challenge(asked, answer))
    }

    /// Returns the answers to a host's challenges, by namespace.
    pub(super) fn answers_of(
        &self,
        host: &Hostname,
    ) -> impl Iterator<Item = (&Asked, &ChallengeAnswer)> {
        let first = Asked {
            hostname: host.clone(),
            namespace: Arc::from(""),
        };
        let host = host.clone();
        self.challenges
            .range(first..)
            .take_while(move |(asked, _)| asked.hostname == host)
    }

    /// Sets the certificate of a Secret. Returns the update, if it has changed.
    pub(super) fn certificate(
        &mut self,
        secret: ObjectName,
        held: Option<Arc<Stored>>,
    ) -> Option<CertificateUpdate> {
        let serial = held.as_ref().map(|held| held.certificate.serial.clone());
        let before = match &serial {
            Some(serial) => self.certificates.insert(secret.clone(), serial.clone()),
            None => self.certificates.remove(&secret),
        };
        (before != serial).then(|| CertificateUpdate::Certificate(secret, held))
    }

    /// Sets the reason for which a Secret has no certificate yet. Returns the update, if it has
    /// changed.
    pub(super) fn trouble(
        &mut self,
        secret: ObjectName,
        text: Option<String>,
    ) -> Option<CertificateUpdate> {
        let before = match &text {
            Some(text) => self.troubles.insert(secret.clone(), text.clone()),
            None => self.troubles.remove(&secret),
        };
        (before != text).then(|| CertificateUpdate::Trouble(secret, text))
    }
}
