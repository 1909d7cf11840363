//! The index of the certificate manager: requests, held certificates and the last updates, by
//! Secret, host and issuer.
//!
//! A change affects only the wanted certificates that it concerns; no other is examined. Nothing
//! here does input or output or reads the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use acme::keeper::Stored;
use acme::{CertificateId, Names, Wanted};
use jiff::Timestamp;

use super::held::HeldCertificates;
use super::manager::RejectedCertificate;
use super::request::{CertificateRequest, IssuerRef};
use super::secret_targets::{ExistingCertificate, SecretTarget};
use super::settings::IssuerSettings;
use super::update::{CertificateUpdate, IssuedCertificates};
use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::multimap::MultiMap;
use gatewright_core::tenancy::names::issuer as issuer_object;
use gatewright_core::translate::{Asked, ChallengeAnswer};
use gatewright_core::wanted::INTERNAL_CA;

/// Returns the thumbprint of the account with which one of these issuers was last about to prove a
/// host.
pub(super) type ActiveAccount<'a> = &'a dyn Fn(&Asked, &[&IssuerRef]) -> Option<Arc<str>>;

/// The issuer of a wanted certificate, as far as planning needs it.
pub(super) struct Resolved {
    /// Its name in the keeper.
    pub(super) id: String,
    /// The answer to HTTP-01 challenges.
    pub(super) challenge: Option<ChallengeAnswer>,
}

/// The identity of an issuer, without its settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum IssuerKey {
    /// An issuer of the installation, by name.
    Named(Arc<str>),
    /// The issuer of an object.
    Own(ObjectName),
}

impl From<&IssuerRef> for IssuerKey {
    fn from(issuer: &IssuerRef) -> Self {
        match issuer {
            IssuerRef::Named(name) => Self::Named(name.clone()),
            IssuerRef::Own { owner, .. } => Self::Own(owner.clone()),
        }
    }
}

struct Entry {
    want: CertificateRequest,
    /// The names in the form of certificates and the certificate's id, or the reason for which they
    /// are invalid.
    names: Result<(Names, CertificateId), String>,
}

/// The results of changes.
#[derive(Default)]
pub(super) struct RequestChanges {
    /// The updates for the caller.
    pub(super) certificate_updates: Vec<CertificateUpdate>,
    /// The changes of wanted certificates, for the keeper.
    pub(super) wanted: Vec<(CertificateId, Option<Wanted>)>,
    /// The hosts that are not wanted any more.
    pub(super) gone: Vec<Hostname>,
    /// The certificates that were found in Secrets, for the keeper.
    pub(super) found: Vec<Stored>,
    /// Those of them that the internal CA will renew: namespaces and names.
    pub(super) renewed_internally: Vec<(String, Names)>,
    /// The targets, for the writer of Secrets.
    pub(super) targets: Vec<(ObjectName, Option<SecretTarget>)>,
}

/// The outcome of the attempts to get a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The reason for which there is no better certificate than the held one.
    pub(super) reason: Option<String>,
    /// Why the renewals of the held one fail.
    pub(super) unrenewed: Option<String>,
    /// True if Envoys or TLS clients refuse it, or Envoys refused its successor.
    pub(super) is_refused: bool,
}

/// The state of all wanted certificates.
#[derive(Default)]
pub(super) struct RequestIndex {
    entries: BTreeMap<ObjectName, Entry>,
    by_host: MultiMap<Hostname, ObjectName>,
    by_issuer: MultiMap<IssuerKey, ObjectName>,
    by_id: MultiMap<CertificateId, ObjectName>,
    /// The Secrets by tenant and the first of the names.
    by_name: MultiMap<(String, String), ObjectName>,
    held_certificates: HeldCertificates,
    /// The outcomes with something to say.
    outcomes: BTreeMap<CertificateId, Outcome>,
    /// The thumbprints of accounts as last handed out.
    thumbprints: BTreeMap<IssuerKey, Arc<str>>,
    /// The certificates that Envoys refuse and the keeper does not know of yet.
    rejected: BTreeMap<ObjectName, RejectedCertificate>,
    issued: IssuedCertificates,
    /// The certificates in Secrets that others may write too, each with the id and issuer under
    /// which it was passed to the keeper.
    present: BTreeMap<ObjectName, (ExistingCertificate, Option<(CertificateId, String)>)>,
    /// The wanted certificates that are neither there nor have a reason for their absence.
    pending: BTreeSet<ObjectName>,
    touched: BTreeSet<ObjectName>,
    hosts: BTreeSet<Hostname>,
    ids: BTreeSet<CertificateId>,
    owners: BTreeSet<ObjectName>,
    looked: u64,
}

impl RequestIndex {
    /// Sets the wanted certificate of a Secret.
    pub(super) fn change(&mut self, secret: ObjectName, want: Option<CertificateRequest>) {
        if self.entries.get(&secret).map(|entry| &entry.want) == want.as_ref() {
            return;
        }
        if let Some(old) = self.entries.remove(&secret) {
            self.index(&secret, &old, false);
        }
        if let Some(want) = want {
            let names = want.names().map_err(|error| error.to_string());
            let names = names.map(|names| {
                let id = CertificateId::of(&secret.namespace, &names);
                (names, id)
            });
            let entry = Entry { want, names };
            self.index(&secret, &entry, true);
            self.entries.insert(secret.clone(), entry);
        }
        self.touched.insert(secret);
    }

    fn index(&mut self, secret: &ObjectName, entry: &Entry, there: bool) {
        for host in &entry.want.hostnames {
            set(&mut self.by_host, host.clone(), secret, there);
            self.hosts.insert(host.clone());
        }
        if let IssuerRef::Own { owner, .. } = &entry.want.issuer {
            self.owners.insert(owner.clone());
        }
        set(
            &mut self.by_issuer,
            IssuerKey::from(&entry.want.issuer),
            secret,
            there,
        );
        if let Ok((names, id)) = &entry.names {
            set(&mut self.by_id, id.clone(), secret, there);
            let place = (
                secret.namespace.to_string(),
                names.first().as_str().to_owned(),
            );
            set(&mut self.by_name, place, secret, there);
            self.ids.insert(id.clone());
        }
    }

    /// Sets the held certificate of an id, and the outcome of the attempts to get one.
    pub(super) fn take_in(
        &mut self,
        id: &CertificateId,
        stored: Option<Arc<Stored>>,
        outcome: Outcome,
    ) {
        let concerned = self.held_certificates.set(id, stored);
        self.touch_places(&concerned);
        let is_new = *self.outcome(id) != outcome;
        if outcome == Outcome::default() {
            self.outcomes.remove(id);
        } else {
            self.outcomes.insert(id.clone(), outcome);
        }
        if is_new {
            self.touched.extend(self.by_id.of(id).cloned());
        }
    }

    fn outcome(&self, id: &CertificateId) -> &Outcome {
        const NOTHING: &Outcome = &Outcome {
            reason: None,
            unrenewed: None,
            is_refused: false,
        };
        self.outcomes.get(id).unwrap_or(NOTHING)
    }

    /// Adds certificates that Envoys refuse.
    pub(super) fn reject(
        &mut self,
        rejected: impl IntoIterator<Item = (ObjectName, RejectedCertificate)>,
    ) {
        self.rejected.extend(rejected);
    }

    /// Returns the certificates that Envoys refuse, once each.
    pub(super) fn take_rejected(&mut self) -> BTreeMap<ObjectName, RejectedCertificate> {
        std::mem::take(&mut self.rejected)
    }

    /// Adds one that could not be passed on to the keeper, unless there is a newer one.
    pub(super) fn put_rejected_back(&mut self, secret: ObjectName, rejected: RejectedCertificate) {
        self.rejected.entry(secret).or_insert(rejected);
    }

    /// Sets the certificate that is in a Secret, whoever wrote it. Returns the id of a removed
    /// certificate that was not ours: it is not put back.
    pub(super) fn present(
        &mut self,
        secret: &ObjectName,
        present: Option<ExistingCertificate>,
    ) -> Option<CertificateId> {
        if present.as_ref() == self.present.get(secret).map(|(known, _)| known) {
            return None;
        }
        self.touched.insert(secret.clone());
        match present {
            Some(present) => {
                self.issued
                    .certificates
                    .insert(secret.clone(), present.certificate.serial());
                self.present.insert(secret.clone(), (present, None));
                None
            }
            None => {
                self.issued.certificates.remove(secret);
                let (before, _) = self.present.remove(secret)?;
                let (_, id) = self.entries.get(secret)?.names.as_ref().ok()?;
                before.issued_by.is_none().then(|| id.clone())
            }
        }
    }

    /// Returns the certificate in a Secret when it is first recognized as the wanted one.
    fn find(
        &mut self,
        secret: &ObjectName,
        names: &Names,
        id: &CertificateId,
        issuer: &str,
    ) -> Option<Stored> {
        let (present, found) = self.present.get_mut(secret)?;
        let about = (id.clone(), issuer.to_owned());
        if found.as_ref() == Some(&about) {
            return None;
        }
        *found = Some(about);
        present.held(id, &secret.namespace, names, issuer)
    }

    /// Removes expired certificates.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let concerned = self.held_certificates.expire(now);
        self.touch_places(&concerned);
    }

    fn touch_places(&mut self, places: &[(String, String)]) {
        for place in places {
            self.touched.extend(self.by_name.of(place).cloned());
        }
    }

    /// Notes that another account is about to prove a host.
    pub(super) fn touch_host(&mut self, host: &Hostname) {
        self.hosts.insert(host.clone());
    }

    /// Sets the thumbprint of the account of an issuer; `None` where it is not known any more.
    pub(super) fn set_thumbprint(&mut self, issuer: IssuerKey, thumbprint: Option<Arc<str>>) {
        let before = match &thumbprint {
            Some(thumbprint) => self.thumbprints.insert(issuer.clone(), thumbprint.clone()),
            None => self.thumbprints.remove(&issuer),
        };
        if thumbprint.is_some() && before != thumbprint {
            self.touch_issuer(&issuer);
        }
    }

    /// Notes that an issuer, or its key, has changed.
    pub(super) fn touch_issuer(&mut self, issuer: &IssuerKey) {
        for secret in self.by_issuer.of(issuer).cloned().collect::<Vec<_>>() {
            if let Some(entry) = self.entries.get(&secret) {
                self.hosts.extend(entry.want.hostnames.iter().cloned());
                self.ids
                    .extend(entry.names.iter().map(|(_, id)| id.clone()));
            }
            self.touched.insert(secret);
        }
    }

    /// Returns the objects whose own issuers may have changed, each with the settings, if it still
    /// has one.
    pub(super) fn owners(&mut self) -> Vec<(ObjectName, Option<Arc<IssuerSettings>>)> {
        let owners = std::mem::take(&mut self.owners);
        fn settings(
            owner: &ObjectName,
            by_issuer: &MultiMap<IssuerKey, ObjectName>,
            entries: &BTreeMap<ObjectName, Entry>,
        ) -> Option<Arc<IssuerSettings>> {
            let last = by_issuer.of(&IssuerKey::Own(owner.clone())).last()?;
            match &entries.get(last)?.want.issuer {
                IssuerRef::Own { settings, .. } => Some(settings.clone()),
                IssuerRef::Named(_) => None,
            }
        }
        owners
            .iter()
            .map(|owner| {
                (
                    owner.clone(),
                    settings(owner, &self.by_issuer, &self.entries),
                )
            })
            .collect()
    }

    /// Returns everything that has changed since the last call.
    pub(super) fn take_changes(
        &mut self,
        resolve: &dyn Fn(&IssuerRef) -> Result<Resolved, String>,
        active_account: ActiveAccount<'_>,
    ) -> RequestChanges {
        let mut changes = RequestChanges::default();
        for host in std::mem::take(&mut self.hosts) {
            if self.by_host.of(&host).next().is_none() {
                changes.gone.push(host.clone());
            }
            let answered = self
                .issued
                .answers_of(&host)
                .map(|(asked, _)| asked.clone());
            let all: BTreeSet<Asked> = answered.chain(self.askers(&host)).collect();
            for asked in all {
                let answer = self.answer(&asked, resolve, active_account);
                changes
                    .certificate_updates
                    .extend(self.issued.answer(asked, answer));
            }
        }
        let mut troubles = Vec::new();
        for secret in std::mem::take(&mut self.touched) {
            self.looked += 1;
            let Some(entry) = self.entries.get(&secret) else {
                self.pending.remove(&secret);
                changes.targets.push((secret.clone(), None));
                changes
                    .certificate_updates
                    .extend(self.issued.certificate(secret.clone(), None));
                troubles.extend(self.issued.trouble(secret, None));
                continue;
            };
            let resolved = resolve(&entry.want.issuer).map(|issuer| issuer.id);
            let about = entry
                .names
                .as_ref()
                .ok()
                .cloned()
                .zip(resolved.as_ref().ok());
            let target = about.map(|((names, id), issuer)| {
                let present = self
                    .present
                    .get(&secret)
                    .map(|(present, _)| present.certificate.serial());
                let twin = match &entry.want.issuer {
                    IssuerRef::Own { owner, .. } => Some(Arc::from(issuer_object(&owner.name))),
                    IssuerRef::Named(_) => None,
                };
                SecretTarget {
                    id,
                    names,
                    issuer: issuer.clone(),
                    twin,
                    present,
                }
            });
            if let Some(SecretTarget {
                id, names, issuer, ..
            }) = &target
                && let Some(found) = self.find(&secret, names, id, issuer)
            {
                if issuer == INTERNAL_CA {
                    changes
                        .renewed_internally
                        .push((secret.namespace.to_string(), names.clone()));
                }
                changes.found.push(found);
            }
            changes.targets.push((secret.clone(), target));
            let entry = &self.entries[&secret];
            let (held, trouble) = match &entry.names {
                Err(error) => (None, Some(error.clone())),
                Ok((names, id)) => {
                    let held = self
                        .held_certificates
                        .find(&secret.namespace, names)
                        .cloned();
                    let outcome = self.outcome(id);
                    let known = match held {
                        Some(_) => &outcome.unrenewed,
                        None => &outcome.reason,
                    };
                    let trouble = resolved.err().or_else(|| known.clone());
                    (held, trouble)
                }
            };
            if held.is_none() && trouble.is_none() {
                self.pending.insert(secret.clone())
            } else {
                self.pending.remove(&secret)
            };
            changes
                .certificate_updates
                .extend(self.issued.certificate(secret.clone(), held));
            troubles.extend(self.issued.trouble(secret, trouble));
        }
        changes.certificate_updates.extend(troubles);
        for id in std::mem::take(&mut self.ids) {
            let wanted = self.wanted(&id, resolve);
            changes.wanted.push((id, wanted));
        }
        changes
    }

    /// Returns the namespaces that want a certificate for a host.
    fn askers(&self, host: &Hostname) -> impl Iterator<Item = Asked> {
        let namespaces = self.by_host.of(host).map(|secret| secret.namespace.clone());
        namespaces.map(|namespace| Asked {
            hostname: host.clone(),
            namespace,
        })
    }

    /// Returns the answer to HTTP-01 challenges of a host in a namespace: by the issuer of the
    /// namespace that is about to prove the host, otherwise by the last of its issuers.
    fn answer(
        &self,
        asked: &Asked,
        resolve: &dyn Fn(&IssuerRef) -> Result<Resolved, String>,
        active_account: ActiveAccount<'_>,
    ) -> Option<ChallengeAnswer> {
        if !asked.hostname.is_exact() {
            return None;
        }
        let own = self
            .by_host
            .of(&asked.hostname)
            .filter(|secret| secret.namespace == asked.namespace);
        let wants = own
            .filter_map(|secret| self.entries.get(secret))
            .filter(|entry| entry.names.is_ok());
        let issuers: Vec<&IssuerRef> = wants.map(|entry| &entry.want.issuer).collect();
        let answer = issuers
            .iter()
            .filter_map(|issuer| resolve(issuer).ok()?.challenge)
            .last()?;
        Some(ChallengeAnswer {
            thumbprint: active_account(asked, &issuers).unwrap_or(answer.thumbprint),
            ..answer
        })
    }

    /// Returns the wanted certificate of an id for the keeper, from the first request that can be
    /// fulfilled.
    fn wanted(
        &self,
        id: &CertificateId,
        resolve: &dyn Fn(&IssuerRef) -> Result<Resolved, String>,
    ) -> Option<Wanted> {
        self.by_id
            .of(id)
            .find_map(|secret| self.wanted_for(secret, resolve))
    }

    /// Returns the wanted certificate of a Secret for the keeper, if the request can be fulfilled.
    pub(super) fn wanted_for(
        &self,
        secret: &ObjectName,
        resolve: &dyn Fn(&IssuerRef) -> Result<Resolved, String>,
    ) -> Option<Wanted> {
        let entry = self.entries.get(secret)?;
        let (names, id) = entry.names.as_ref().ok()?;
        Some(Wanted {
            renew_now: false,
            id: id.clone(),
            tenant: secret.namespace.to_string(),
            issuer: resolve(&entry.want.issuer).ok()?.id,
            names: names.clone(),
            validity: None,
            may_share: entry.want.hostnames.len() == 1,
            hold: None,
        })
    }

    /// Returns the given hosts that an account other than their issuer's is about to prove:
    /// thumbprints by host and namespace.
    pub(super) fn exceptions(
        &self,
        hosts: impl IntoIterator<Item = Hostname>,
        resolve: &dyn Fn(&IssuerRef) -> Result<Resolved, String>,
        active_account: ActiveAccount<'_>,
    ) -> BTreeMap<String, BTreeMap<String, Arc<str>>> {
        let mut all: BTreeMap<String, BTreeMap<String, Arc<str>>> = BTreeMap::new();
        for asked in hosts
            .into_iter()
            .flat_map(|host| self.askers(&host).collect::<Vec<_>>())
        {
            let usual = self.answer(&asked, resolve, &|_, _| None);
            if let Some(now) = self.answer(&asked, resolve, active_account)
                && usual.is_some_and(|usual| usual.thumbprint != now.thumbprint)
            {
                let by_namespace = all.entry(asked.hostname.to_string()).or_default();
                by_namespace.insert(asked.namespace.to_string(), now.thumbprint);
            }
        }
        all
    }

    /// Returns the thumbprint of the account that answers for a known host.
    pub(super) fn thumbprint_of(&self, host: &Hostname) -> Option<Arc<str>> {
        self.issued
            .answers_of(host)
            .last()
            .map(|(_, answer)| answer.thumbprint.clone())
    }

    /// Returns whether every wanted certificate is there, or has a reason for its absence.
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.touched.is_empty()
    }

    /// Returns the Secrets that want a certificate.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &ObjectName> {
        self.entries.keys()
    }

    /// Returns whether a certificate is wanted from an issuer.
    pub(super) fn is_asked(&self, issuer: &IssuerKey) -> bool {
        self.by_issuer.of(issuer).next().is_some()
    }

    /// Returns the certificate that is wanted for a Secret.
    pub(super) fn want(&self, secret: &ObjectName) -> Option<&CertificateRequest> {
        self.entries.get(secret).map(|entry| &entry.want)
    }

    /// Returns all wanted certificates.
    pub(super) fn wants(&self) -> Vec<CertificateRequest> {
        self.entries
            .values()
            .map(|entry| entry.want.clone())
            .collect()
    }

    /// Returns the held certificates.
    pub(super) fn held_certificates(&self) -> &HeldCertificates {
        &self.held_certificates
    }

    /// Returns the number of Secrets that have a certificate with such an outcome.
    fn held_with(&self, is_such: impl Fn(&Outcome) -> bool) -> usize {
        let outcomes = self.outcomes.iter();
        let ids = outcomes.filter_map(|(id, outcome)| is_such(outcome).then_some(id));
        ids.flat_map(|id| self.by_id.of(id))
            .filter(|secret| self.issued.certificates.contains_key(*secret))
            .count()
    }

    /// Returns the numbers of wanted certificates that are there and good, that are pending, that
    /// have a reason for their absence, that Envoys or TLS clients refuse, and whose renewals fail.
    pub(super) fn counts(&self) -> [(&'static str, usize); 5] {
        let there = self.issued.certificates.len();
        let waiting = self.pending.len();
        let refused = self.held_with(|outcome| outcome.is_refused);
        let unrenewed =
            self.held_with(|outcome| outcome.unrenewed.is_some() && !outcome.is_refused);
        let failing = self.entries.len().saturating_sub(there + waiting);
        [
            ("held", there.saturating_sub(refused + unrenewed)),
            ("waiting", waiting),
            ("failing", failing),
            ("refused", refused),
            ("unrenewed", unrenewed),
        ]
    }

    /// Returns the number of wanted certificates that were examined so far.
    pub(super) fn looked(&self) -> u64 {
        self.looked
    }
}

fn set<K: Ord + Clone>(
    index: &mut MultiMap<K, ObjectName>,
    key: K,
    secret: &ObjectName,
    there: bool,
) {
    if there {
        index.insert(key, secret.clone())
    } else {
        index.remove(&key, secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(i: usize) -> Hostname {
        Hostname::parse(&format!("h{i}.example.org")).expect("a hostname")
    }

    fn want(i: usize) -> CertificateRequest {
        CertificateRequest {
            secret: ObjectName::new("t", format!("h{i}-tls")),
            hostnames: BTreeSet::from([host(i)]),
            issuer: IssuerRef::Named(Arc::from(INTERNAL_CA)),
        }
    }

    fn resolve(_: &IssuerRef) -> Result<Resolved, String> {
        let challenge = Some(ChallengeAnswer {
            port: 80,
            thumbprint: "thumb".into(),
        });
        Ok(Resolved {
            id: INTERNAL_CA.to_owned(),
            challenge,
        })
    }

    fn settle(requests: &mut RequestIndex) -> RequestChanges {
        requests.take_changes(&resolve, &|_, _| None)
    }

    #[test]
    fn a_change_looks_at_what_it_concerns_however_many_wanted_certificates_there_are() {
        for n in [100, 1_000, 10_000] {
            let mut requests = RequestIndex::default();
            for i in 0..n {
                requests.change(want(i).secret, Some(want(i)));
            }
            let first = settle(&mut requests);
            assert_eq!(first.certificate_updates.len(), n, "each is told");
            assert_eq!(first.wanted.len(), n, "each is wanted");
            assert_eq!(requests.looked(), n as u64, "each is looked at");
            assert!(!requests.is_settled());
            let before = requests.looked();
            // An equal request, one more, one less, a reason, another account: each affects one
            // wanted certificate.
            requests.change(want(5).secret, Some(want(5)));
            assert_eq!(
                settle(&mut requests).certificate_updates.len(),
                0,
                "nothing is told without a change"
            );
            assert_eq!(requests.looked() - before, 0, "nothing is looked at");
            requests.change(want(n).secret, Some(want(n)));
            let more = settle(&mut requests);
            assert_eq!(more.certificate_updates.len(), 1, "the new one is told");
            assert_eq!(more.wanted.len(), 1, "it is wanted");
            assert_eq!(requests.looked() - before, 1, "it alone is looked at");
            requests.change(want(7).secret, None);
            let less = settle(&mut requests);
            assert_eq!(less.certificate_updates.len(), 1, "the change is told");
            assert_eq!(less.wanted.len(), 1, "it is wanted with fewer names");
            assert_eq!(less.gone.len(), 1, "the old one is gone");
            assert!(less.wanted[0].1.is_none() && less.gone == [host(7)]);
            let names = want(9).names().expect("names");
            let outcome = Outcome {
                reason: Some("the CA is gone".to_owned()),
                ..Outcome::default()
            };
            requests.take_in(&CertificateId::of("t", &names), None, outcome);
            assert!(
                matches!(&settle(&mut requests).certificate_updates[..], [CertificateUpdate::Trouble(secret, Some(_))] if *secret == want(9).secret)
            );
            requests.touch_host(&host(11));
            let other = requests.take_changes(&resolve, &|_, _| Some("another".into()));
            assert!(
                matches!(&other.certificate_updates[..], [CertificateUpdate::Challenge(asked, Some(_))] if asked.hostname == host(11))
            );
            assert_eq!(requests.looked() - before, 3, "{n} wants");
        }
    }

    #[test]
    fn of_two_wanted_certificates_for_one_certificate_the_other_stays_when_one_goes() {
        let mut requests = RequestIndex::default();
        let twin = CertificateRequest {
            secret: ObjectName::new("t", "twin"),
            ..want(1)
        };
        requests.change(want(1).secret, Some(want(1)));
        requests.change(twin.secret.clone(), Some(twin));
        assert_eq!(settle(&mut requests).wanted.len(), 1);
        requests.change(want(1).secret, None);
        let left = settle(&mut requests);
        assert!(left.gone.is_empty() && left.wanted.iter().all(|(_, wanted)| wanted.is_some()));
    }
}
