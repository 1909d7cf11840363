//! What comes of wishes, and the difference to what was handed out before.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use acme::Names;
use acme::keeper::Stored;
use jiff::Timestamp;
use serde_json::json;

use crate::inputs::{Kind, Object, ObjectKey};
use crate::model::{Hostname, ObjectName};
use crate::translate::{ChallengeAnswer, Change};

/// One thing that changed.
#[derive(Clone, Debug)]
pub enum Handout {
    /// The certificate of a Secret; `None` when nobody wishes for the Secret any more.
    Certificate(ObjectName, Option<Arc<Stored>>),
    /// How the HTTP-01 challenges of a host are answered.
    Challenge(Hostname, Option<ChallengeAnswer>),
    /// Why a Secret has no certificate yet.
    Trouble(ObjectName, Option<String>),
}

impl Handout {
    /// As a change of the engine's inputs.
    ///
    /// # Errors
    /// When the certificate cannot be served.
    pub fn change(self) -> Result<Change, String> {
        Ok(match self {
            Self::Certificate(secret, None) => Change::Delete(ObjectKey::new(Kind::Secret, secret)),
            Self::Certificate(secret, Some(stored)) => Change::Put(object(&secret, &stored)?),
            Self::Challenge(host, answer) => Change::Challenge(host, answer),
            Self::Trouble(secret, text) => Change::Trouble(secret, text),
        })
    }
}

fn object(secret: &ObjectName, stored: &Stored) -> Result<Object, String> {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": &*secret.namespace, "name": &*secret.name},
        "stringData": {
            "tls.crt": stored.certificate.chain_pem, "tls.key": stored.certificate.key_pem.expose(),
        },
    });
    Object::parse(object).map_err(|error| error.to_string())
}

/// All that is to be in place, by what it is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Supply {
    pub(super) certificates: BTreeMap<ObjectName, Option<Arc<Stored>>>,
    pub(super) challenges: BTreeMap<Hostname, ChallengeAnswer>,
    pub(super) troubles: BTreeMap<ObjectName, String>,
}

impl Supply {
    /// What turns `self` into `next`. Answers to challenges come first: what follows may depend on them.
    pub(super) fn difference(&self, next: &Self) -> Vec<Handout> {
        let mut all = Vec::new();
        for (host, answer) in &next.challenges {
            if self.challenges.get(host) != Some(answer) {
                all.push(Handout::Challenge(host.clone(), Some(answer.clone())));
            }
        }
        for host in self.challenges.keys().filter(|host| !next.challenges.contains_key(*host)) {
            all.push(Handout::Challenge(host.clone(), None));
        }
        let serial = |held: &Option<Arc<Stored>>| held.as_ref().map(|held| held.certificate.serial.clone());
        for (secret, held) in &next.certificates {
            let before = self.certificates.get(secret).map(&serial);
            if before != Some(serial(held)) && (held.is_some() || before.flatten().is_some()) {
                all.push(Handout::Certificate(secret.clone(), held.clone()));
            }
        }
        for (secret, held) in &self.certificates {
            if held.is_some() && !next.certificates.contains_key(secret) {
                all.push(Handout::Certificate(secret.clone(), None));
            }
        }
        for (secret, text) in &next.troubles {
            if self.troubles.get(secret) != Some(text) {
                all.push(Handout::Trouble(secret.clone(), Some(text.clone())));
            }
        }
        for secret in self.troubles.keys().filter(|secret| !next.troubles.contains_key(*secret)) {
            all.push(Handout::Trouble(secret.clone(), None));
        }
        all
    }
}

/// Certificates by tenant and name: for each name the one to serve.
pub(super) struct Shelf(HashMap<(String, String), Arc<Stored>>);

impl Shelf {
    pub(super) fn of(all: Vec<Arc<Stored>>, now: Timestamp) -> Self {
        let mut best: HashMap<(String, String), Arc<Stored>> = HashMap::new();
        for stored in all.into_iter().filter(|stored| stored.certificate.not_after > now) {
            for name in stored.certificate.names.iter() {
                let place = best.entry((stored.tenant.clone(), name.as_str().to_owned()));
                let longer = |held: &Arc<Stored>| stored.certificate.not_after > held.certificate.not_after;
                place
                    .and_modify(|held| {
                        if longer(held) {
                            *held = stored.clone();
                        }
                    })
                    .or_insert_with(|| stored.clone());
            }
        }
        Self(best)
    }

    /// The certificate of a tenant that was made for all these names. A wildcard that happens to cover a host is not its
    /// own, and may come from another issuer.
    pub(super) fn find(&self, tenant: &str, names: &Names) -> Option<&Arc<Stored>> {
        let held = self.0.get(&(tenant.to_owned(), names.first().as_str().to_owned()));
        held.filter(|stored| stored.certificate.names.cover(names))
    }
}
