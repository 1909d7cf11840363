//! The ACME account that answers HTTP-01 for each host, as the lease holder publishes it for all
//! replicas.
//!
//! Accounts are published per issuer and not per host: every replica knows the issuer of each host
//! from the wanted certificates. A host is published by itself only while an account other than its
//! issuer's proves it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::request::{CertificateRequest, IssuerRef};
use super::request_index::{IssuerKey, RequestIndex, Resolved};
use super::update::CertificateUpdate;
use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::translate::{Asked, ChallengeAnswer};

/// The published accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChallengeAccounts {
    /// The accounts by issuer: those of the installation by name, those of objects by
    /// `namespace/name`.
    issuers: BTreeMap<String, Account>,
    /// The thumbprints by host and by the namespace that wants it, where it is not the issuer's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    asked: BTreeMap<String, BTreeMap<String, Arc<str>>>,
}

/// The account of an issuer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Account {
    /// The port of HTTP-01 requests.
    port: u16,
    thumbprint: Arc<str>,
}

impl ChallengeAccounts {
    /// Updates the accounts of `before` with these issuers, and replaces the hosts.
    pub(super) fn new(
        before: &Self,
        known: impl IntoIterator<Item = (IssuerKey, Option<ChallengeAnswer>)>,
        asked: BTreeMap<String, BTreeMap<String, Arc<str>>>,
    ) -> Self {
        let mut issuers = before.issuers.clone();
        for (issuer, answer) in known {
            match answer {
                Some(answer) => {
                    let account = Account {
                        port: answer.port,
                        thumbprint: answer.thumbprint,
                    };
                    issuers.insert(name(&issuer), account);
                }
                None => {
                    issuers.remove(&name(&issuer));
                }
            }
        }
        Self { issuers, asked }
    }

    /// Removes issuers that no wanted certificate uses.
    pub(super) fn of(mut self, is_asked: impl Fn(&IssuerKey) -> bool) -> Self {
        self.issuers.retain(|name, _| is_asked(&issuer_key(name)));
        self
    }

    fn resolve(&self, issuer: &IssuerRef) -> Result<Resolved, String> {
        let id = name(&IssuerKey::from(issuer));
        let account = self
            .issuers
            .get(&id)
            .ok_or_else(|| format!("issuer {id} has no account yet"))?;
        let challenge = Some(ChallengeAnswer {
            port: account.port,
            thumbprint: account.thumbprint.clone(),
        });
        Ok(Resolved { id, challenge })
    }
}

fn name(issuer: &IssuerKey) -> String {
    match issuer {
        IssuerKey::Named(name) => name.to_string(),
        IssuerKey::Own(owner) => owner.to_string(),
    }
}

/// Parses the result of [`name`]: names of issuers have no slash.
fn issuer_key(name: &str) -> IssuerKey {
    match name.split_once('/') {
        Some((namespace, name)) => IssuerKey::Own(ObjectName::new(namespace, name)),
        None => IssuerKey::Named(Arc::from(name)),
    }
}

/// Combines wanted certificates and published accounts into the answers to challenges of each host.
#[derive(Default)]
pub struct ChallengeIndex {
    requests: RequestIndex,
    answers: ChallengeAccounts,
}

impl ChallengeIndex {
    /// Sets the wanted certificates of some Secrets.
    pub fn change(
        &mut self,
        changes: impl IntoIterator<Item = (ObjectName, Option<CertificateRequest>)>,
    ) {
        changes
            .into_iter()
            .for_each(|(secret, want)| self.requests.change(secret, want));
    }

    /// Takes in newly published accounts.
    pub fn take_in(&mut self, answers: ChallengeAccounts) {
        let before = std::mem::replace(&mut self.answers, answers);
        let issuers: BTreeSet<&String> = before
            .issuers
            .keys()
            .chain(self.answers.issuers.keys())
            .collect();
        for issuer in issuers
            .into_iter()
            .filter(|issuer| before.issuers.get(*issuer) != self.answers.issuers.get(*issuer))
        {
            self.requests.touch_issuer(&issuer_key(issuer));
        }
        let hosts: BTreeSet<&String> = before
            .asked
            .keys()
            .chain(self.answers.asked.keys())
            .collect();
        for host in hosts
            .into_iter()
            .filter(|host| before.asked.get(*host) != self.answers.asked.get(*host))
        {
            if let Ok(host) = Hostname::parse(host) {
                self.requests.touch_host(&host);
            }
        }
    }

    /// Returns the answers that have changed since the last call.
    pub fn changes(&mut self) -> Vec<(Asked, Option<ChallengeAnswer>)> {
        let answers = &self.answers;
        let settled = self
            .requests
            .take_changes(&|issuer| answers.resolve(issuer), &|asked, _| {
                answers
                    .asked
                    .get(asked.hostname.as_str())?
                    .get(&*asked.namespace)
                    .cloned()
            });
        settled
            .certificate_updates
            .into_iter()
            .filter_map(|update| match update {
                CertificateUpdate::Challenge(asked, answer) => Some((asked, answer)),
                CertificateUpdate::Certificate(..) | CertificateUpdate::Trouble(..) => None,
            })
            .collect()
    }

    /// Returns all wanted certificates.
    pub fn wants(&self) -> Vec<CertificateRequest> {
        self.requests.wants()
    }

    /// Returns whether any certificate is wanted.
    pub fn has_wanted(&self) -> bool {
        self.requests.secrets().next().is_some()
    }

    /// Returns the certificate that is wanted for a Secret.
    pub fn want(&self, secret: &ObjectName) -> Option<&CertificateRequest> {
        self.requests.want(secret)
    }

    /// Returns the thumbprint of the account that answers for a host.
    pub fn thumbprint_of(&self, host: &Hostname) -> Option<Arc<str>> {
        self.requests.thumbprint_of(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(host: &str, owner: Option<&str>) -> CertificateRequest {
        let issuer = match owner {
            None => IssuerRef::Named(Arc::from("acme")),
            Some(owner) => IssuerRef::Own {
                owner: ObjectName::new("t", owner),
                settings: Arc::default(),
            },
        };
        CertificateRequest {
            secret: ObjectName::new("t", format!("{host}-tls")),
            hostnames: BTreeSet::from([Hostname::parse(host).expect("a hostname")]),
            issuer,
        }
    }

    fn answer(thumbprint: &str) -> ChallengeAnswer {
        ChallengeAnswer {
            port: 80,
            thumbprint: thumbprint.into(),
        }
    }

    fn changes(challenge_index: &mut ChallengeIndex) -> Vec<(String, Option<String>)> {
        let changes = challenge_index.changes().into_iter();
        changes
            .map(|(asked, a)| {
                (
                    asked.hostname.to_string(),
                    a.map(|a| a.thumbprint.to_string()),
                )
            })
            .collect()
    }

    #[test]
    fn a_host_is_answered_for_by_its_account_and_by_another_while_that_one_proves_it() {
        let mut challenge_index = ChallengeIndex::default();
        let wants = [
            want("a.example.org", None),
            want("b.example.org", Some("edge")),
        ];
        challenge_index.change(
            wants
                .iter()
                .map(|want| (want.secret.clone(), Some(want.clone()))),
        );
        assert_eq!(changes(&mut challenge_index), []);
        fn edge() -> IssuerKey {
            IssuerKey::Own(ObjectName::new("t", "edge"))
        }
        fn accounts() -> [(IssuerKey, Option<ChallengeAnswer>); 2] {
            [
                (IssuerKey::Named("acme".into()), Some(answer("one"))),
                (edge(), Some(answer("two"))),
            ]
        }
        let none = ChallengeAccounts::default();
        let plain = ChallengeAccounts::new(&none, accounts(), BTreeMap::new());
        let kept = ChallengeAccounts::new(&plain, [], BTreeMap::new());
        assert_eq!(kept, plain, "those that are not known yet are as they were");
        assert_ne!(
            ChallengeAccounts::new(&plain, [(edge(), None)], BTreeMap::new()),
            plain
        );
        assert_ne!(plain.clone().of(|issuer| *issuer != edge()), plain);
        let text = serde_json::to_string(&plain).expect("texts");
        challenge_index.take_in(serde_json::from_str(&text).expect("reads what it wrote"));
        let a = "a.example.org".to_owned();
        let b = "b.example.org".to_owned();
        assert_eq!(
            changes(&mut challenge_index),
            [
                (a.clone(), Some("one".into())),
                (b.clone(), Some("two".into()))
            ]
        );
        challenge_index.take_in(ChallengeAccounts::new(
            &none,
            accounts(),
            BTreeMap::from([(
                b.clone(),
                BTreeMap::from([("t".to_owned(), Arc::from("trial"))]),
            )]),
        ));
        assert_eq!(
            changes(&mut challenge_index),
            [(b.clone(), Some("trial".into()))]
        );
        challenge_index.take_in(plain);
        assert_eq!(
            changes(&mut challenge_index),
            [(b.clone(), Some("two".into()))]
        );
        challenge_index.change([(wants[0].secret.clone(), None)]);
        assert_eq!(changes(&mut challenge_index), [(a, None)]);
    }
}
