//! State machine of the CA rotation of the xDS connection: the authority that signs, the
//! authorities that are trusted, and their replacement without interrupting any Envoy.
//!
//! An authority is replaced in two steps. The time between them is the *overlap*, during which
//! every Envoy receives what was written before (the kubelet updates a mounted Secret within about
//! two minutes):
//!
//! ```text
//! settled --replace--> announced --overlap--> switched --overlap--> settled
//! signs:        old              old                  new           new
//! trusted:      old              old, new             new, old      new
//! ```
//!
//! Running replicas keep the state in memory until the lease holder has written the next step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use x509_parser::pem::Pem;
use xds::{Authority, Pair, TlsError};

use super::revoked::Revocations;
use super::{bytes, text};

/// The annotation with the start of the present step. A Secret without it was not written by us, or
/// by an earlier version.
pub(super) const SINCE: &str = "gatewright.io/trust-since";
/// The annotation by which an operator requests a replacement: `gracefully` or `at-once`.
pub const REPLACE: &str = "gatewright.io/replace";

/// The keys of the lists of revoked certificates and pods.
const REVOKED: &str = "revoked.json";
const REVOKED_PODS: &str = "revoked-pods.json";

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The lifetime of an authority of ours.
const CA_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// The remaining lifetime at which it is replaced: longer than the lifetime of an Envoy's
/// certificate.
const RENEW: Duration = Duration::from_secs(120 * 24 * 3600);

/// The way to replace an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replace {
    /// In steps, without an interruption.
    Gracefully,
    /// At once: the old authority is no longer trusted. Envoys go on serving until they have their
    /// new certificate.
    AtOnce,
}

/// A CA certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    pem: String,
    der: Vec<u8>,
    ends: SystemTime,
}

impl Root {
    fn of(authority: &Authority) -> Option<Self> {
        roots(authority.certificate()).pop()
    }
}

/// Parses the certificates of a PEM text. Unreadable ones are skipped.
pub(super) fn roots(bundle: &str) -> Vec<Root> {
    const END: &str = "-----END CERTIFICATE-----";
    let texts = bundle
        .split_inclusive(END)
        .filter_map(|text| text.find("-----BEGIN").map(|start| &text[start..]));
    fn root(text: &str) -> Option<Root> {
        let pem = Pem::iter_from_buffer(text.as_bytes()).next()?.ok()?;
        let ends = pem.parse_x509().ok()?.validity().not_after.timestamp();
        let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(ends).ok()?);
        Some(Root {
            pem: format!("{text}\n"),
            der: pem.contents,
            ends,
        })
    }
    texts.filter_map(root).collect()
}

/// An authority with its CA certificate.
#[derive(Clone, Debug)]
struct CertificateAuthority {
    authority: Arc<Authority>,
    root: Root,
}

impl CertificateAuthority {
    fn load(pair: &Pair) -> Result<Self, String> {
        let authority = Authority::load(pair).map_err(|error| error.to_string())?;
        let root = Root::of(&authority).ok_or("its certificate cannot be read")?;
        Ok(Self {
            authority: Arc::new(authority),
            root,
        })
    }

    fn make(now: SystemTime) -> Result<Self, TlsError> {
        // The subject is unique: Envoy looks up the issuer of a certificate by subject name.
        let at = Timestamp::try_from(now).unwrap_or_default();
        let authority = Authority::new(&format!("gatewright xDS {at}"), CA_LIFETIME, now)?;
        let root = Root::of(&authority).expect("a certificate that was just made can be read");
        Ok(Self {
            authority: Arc::new(authority),
            root,
        })
    }
}

/// The state of the rotation: the authority that signs, and the authorities that are trusted.
#[derive(Clone, Debug)]
pub struct CaRotation {
    signer: CertificateAuthority,
    /// The authority that signs after the next step.
    next: Option<CertificateAuthority>,
    /// The CA certificates of authorities that signed before.
    older: Vec<Root>,
    since: SystemTime,
    /// The revoked certificates, whichever authority signed them.
    revoked: Revocations,
}

/// The parsed Secret of the authority.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The state in the Secret.
    pub(super) trust: CaRotation,
    /// True if we wrote the Secret.
    recorded: bool,
    asked: Option<Replace>,
}

/// The decision of the lease holder.
#[derive(Debug)]
pub(super) struct Decision {
    /// The new state.
    pub trust: CaRotation,
    /// True if the Secret must be written before the state is used.
    pub write: bool,
}

impl CaRotation {
    fn settled(signer: CertificateAuthority, since: SystemTime) -> Self {
        Self {
            signer,
            next: None,
            older: Vec::new(),
            since,
            revoked: Revocations::default(),
        }
    }

    fn announced(&self, next: CertificateAuthority, now: SystemTime) -> Self {
        Self {
            next: Some(next),
            since: now,
            ..self.clone()
        }
    }

    /// Returns the authority that signs now.
    pub fn signer(&self) -> &Authority {
        &self.signer.authority
    }

    /// Returns the remaining lifetime of the authority that signs.
    pub fn left(&self, now: SystemTime) -> Duration {
        self.signer
            .root
            .ends
            .duration_since(now)
            .unwrap_or_default()
    }

    /// Returns the revoked certificates, whichever authority signed them.
    pub fn revoked(&self) -> &Revocations {
        &self.revoked
    }

    /// Returns the same state with these revocations.
    pub(super) fn refusing(&self, revoked: Revocations) -> Self {
        Self {
            revoked,
            ..self.clone()
        }
    }

    /// Returns the latest expiry of the CA certificates that are trusted now or soon.
    pub(super) fn ends(&self) -> SystemTime {
        let known = [
            Some(&self.signer.root),
            self.next.as_ref().map(|next| &next.root),
        ];
        let ends = known
            .into_iter()
            .flatten()
            .chain(&self.older)
            .map(|root| root.ends);
        ends.max().expect("somebody signs")
    }

    /// Returns all trusted CA certificates as PEM; the signing one comes first.
    pub fn bundle(&self) -> String {
        let known = [
            Some(&self.signer.root),
            self.next.as_ref().map(|next| &next.root),
        ];
        known
            .into_iter()
            .flatten()
            .chain(&self.older)
            .map(|root| root.pem.as_str())
            .collect()
    }

    /// Returns the name and description of the step.
    pub fn step(&self) -> &'static str {
        match (&self.next, self.older.is_empty()) {
            (Some(_), _) => "announced: the next CA is trusted, and signs after --xds-ca-overlap",
            (None, false) => {
                "switched: the new CA signs, and the previous one is trusted for --xds-ca-overlap"
            }
            (None, true) => "settled: one CA signs and is trusted",
        }
    }

    /// Returns whether both states are equal, except for the start of the step.
    pub fn same(&self, other: &CaRotation) -> bool {
        fn next(trust: &CaRotation) -> Option<Vec<u8>> {
            trust.next.as_ref().map(|next| next.root.der.clone())
        }
        self.signer.root.der == other.signer.root.der
            && next(self) == next(other)
            && self.older == other.older
            && self.revoked == other.revoked
    }

    fn has(&self, root: &Root) -> bool {
        self.signer.root.der == root.der
            || self
                .next
                .as_ref()
                .is_some_and(|next| next.root.der == root.der)
    }

    /// Returns the data of the Secret, and its annotation.
    pub fn written(&self) -> (BTreeMap<&'static str, Vec<u8>>, (&'static str, String)) {
        let pair = self.signer.authority.pair();
        let mut data = BTreeMap::from([
            ("tls.crt", pair.certificate.into_bytes()),
            ("tls.key", pair.key.into_bytes()),
            ("ca.crt", self.bundle().into_bytes()),
        ]);
        if let Some(next) = &self.next {
            let pair = next.authority.pair();
            data.insert("next.crt", pair.certificate.into_bytes());
            data.insert("next.key", pair.key.into_bytes());
        }
        if let Some(revoked) = self.revoked.written() {
            data.insert(REVOKED, revoked);
        }
        if let Some(revoked) = self.revoked.pods_written() {
            data.insert(REVOKED_PODS, revoked);
        }
        (
            data,
            (
                SINCE,
                Timestamp::try_from(self.since)
                    .unwrap_or_default()
                    .to_string(),
            ),
        )
    }

    /// Returns the state after the next step, if it is due.
    fn advanced(self, now: SystemTime, overlap: Duration) -> Result<Self, TlsError> {
        // A clock that was set back makes the step last longer.
        let over = now.duration_since(self.since).unwrap_or_default() >= overlap;
        let mut trust = if self.left(now).is_zero() {
            match self.next {
                Some(next) if next.root.ends > now => CaRotation {
                    older: self.older,
                    ..CaRotation::settled(next, now)
                },
                _ => CaRotation::settled(CertificateAuthority::make(now)?, now),
            }
        } else if over && let Some(next) = self.next {
            let mut older = self.older;
            older.push(self.signer.root);
            CaRotation {
                older,
                ..CaRotation::settled(next, now)
            }
        } else if self.next.is_none() && over && !self.older.is_empty() {
            CaRotation::settled(self.signer, now)
        } else if self.next.is_none() && self.left(now) < RENEW {
            self.announced(CertificateAuthority::make(now)?, now)
        } else {
            self
        };
        let older = std::mem::take(&mut trust.older);
        trust.older = older
            .into_iter()
            .filter(|root| root.ends > now && !trust.has(root))
            .collect();
        Ok(trust)
    }
}

/// Parses the Secret of the authority.
///
/// # Errors
/// When the Secret is invalid: a description of the error.
pub(super) fn read(secret: &Secret) -> Result<Found, String> {
    let pair = |certificate: &str, key: &str| {
        Some(Pair {
            certificate: text(secret, certificate)?,
            key: text(secret, key)?,
        })
    };
    let signer =
        CertificateAuthority::load(&pair("tls.crt", "tls.key").ok_or("no tls.crt or no tls.key")?)?;
    let next = pair("next.crt", "next.key")
        .map(|pair| CertificateAuthority::load(&pair))
        .transpose()?;
    // An unreadable list is an error, and not an empty list.
    let list = |key: &str| match bytes(secret, key) {
        None => Ok(None),
        Some(_) => text(secret, key)
            .map(Some)
            .ok_or_else(|| format!("{key}: it is no text")),
    };
    let certificates = list(REVOKED)?;
    let pods = list(REVOKED_PODS)?;
    let revoked = certificates.map_or(Ok(Revocations::default()), |text| Revocations::read(&text));
    let revoked = revoked.map_err(|why| format!("{REVOKED}: {why}"))?;
    let revoked = match pods {
        Some(text) => revoked
            .and_pods(&text)
            .map_err(|why| format!("{REVOKED_PODS}: {why}"))?,
        None => revoked,
    };
    let since = annotation(SINCE, secret).and_then(|text| text.parse::<Timestamp>().ok());
    let asked = match annotation(REPLACE, secret) {
        None => None,
        Some("gracefully") => Some(Replace::Gracefully),
        Some("at-once") => Some(Replace::AtOnce),
        Some(other) => {
            return Err(format!(
                "annotation {REPLACE}: expected gracefully or at-once, found {other:?}"
            ));
        }
    };
    let mut trust = CaRotation {
        next,
        revoked,
        ..CaRotation::settled(signer, SystemTime::UNIX_EPOCH)
    };
    if let Some(since) = since {
        trust.since = since.into();
        trust.older = roots(&text(secret, "ca.crt").unwrap_or_default());
        trust.older = trust
            .older
            .iter()
            .filter(|root| !trust.has(root))
            .cloned()
            .collect();
    }
    Ok(Found {
        trust,
        recorded: since.is_some(),
        asked,
    })
}

fn annotation<'a>(name: &str, secret: &'a Secret) -> Option<&'a str> {
    secret
        .metadata
        .annotations
        .as_ref()?
        .get(name)
        .map(String::as_str)
}

/// Returns the new state, for the lease holder: `known` is the state so far, `envoys` are the CA
/// certificates that Envoys trust.
///
/// # Errors
/// When an authority cannot be created.
pub(super) fn decide(
    found: Option<Found>,
    known: Option<&CaRotation>,
    envoys: &[Root],
    now: SystemTime,
    overlap: Duration,
) -> Result<Decision, TlsError> {
    let known = known.filter(|known| !known.left(now).is_zero());
    // CA certificates of a state that was lost stay trusted for one more overlap.
    fn after(signer: CertificateAuthority, now: &SystemTime, envoys: &[Root]) -> CaRotation {
        let older = envoys
            .iter()
            .filter(|root| root.der != signer.root.der && root.ends > *now)
            .cloned()
            .collect();
        CaRotation {
            older,
            ..CaRotation::settled(signer, *now)
        }
    }
    // Revocations stay in force, whatever happens to the authority or its Secret.
    let mut revoked = known.map(|known| known.revoked.clone()).unwrap_or_default();
    let Some(Found {
        trust: held,
        recorded,
        asked,
    }) = found
    else {
        revoked.prune(now);
        let made = CertificateAuthority::make(now)?;
        let trust = known.map_or_else(
            || after(made.clone(), &now, envoys),
            |known| known.announced(made.clone(), now),
        );
        return Ok(Decision {
            trust: trust.refusing(revoked),
            write: true,
        });
    };
    revoked.extend(&held.revoked);
    revoked.prune(now);
    let wanted = match (asked, known) {
        (Some(Replace::AtOnce), _) => CaRotation::settled(CertificateAuthority::make(now)?, now),
        (_, Some(known)) if !recorded && known.signer.root.der != held.signer.root.der => {
            known.announced(held.signer.clone(), now)
        }
        (_, _) if !recorded => after(held.signer.clone(), &now, envoys),
        (Some(Replace::Gracefully), _) if held.next.is_none() => {
            held.announced(CertificateAuthority::make(now)?, now)
        }
        (_, _) => held.clone().advanced(now, overlap)?,
    };
    let wanted = wanted.refusing(revoked);
    let write = !recorded || asked.is_some() || !wanted.same(&held);
    Ok(Decision {
        trust: wanted,
        write,
    })
}

/// Returns the state of a replica that does not write: the state that the lease holder wrote. A
/// Secret of another writer is used only if no state is known.
pub(super) fn follow(found: Option<Found>, known: Option<&CaRotation>) -> Option<CaRotation> {
    match (found, known) {
        (Some(found), known) if found.recorded || known.is_none() => Some(found.trust),
        (_, known) => known.cloned(),
    }
}

/// Returns the certificate of an Envoy and the CA certificates that it trusts, if the existing ones
/// need a replacement: the certificate must be signed by the current authority and have enough
/// validity left. A change of the CA certificates alone keeps the certificate.
///
/// # Errors
/// When the certificate cannot be issued.
pub(super) fn renewed(
    held: Option<&Secret>,
    trust: &CaRotation,
    identity: &str,
    now: SystemTime,
) -> Result<Option<BTreeMap<&'static str, Vec<u8>>>, TlsError> {
    // At most the remaining lifetime of the authority: a new certificate could not last longer.
    let life = (90 * DAY).min(trust.left(now));
    let renew = life / 3;
    let bundle = trust.bundle();
    let pair = held.and_then(|held| {
        let pair = Pair {
            certificate: text(held, "tls.crt")?,
            key: text(held, "tls.key")?,
        };
        let parsed = gatewright_core::inputs::parse_certificate(
            pair.certificate.as_bytes(),
            pair.key.as_bytes(),
        )
        .ok()?;
        let lasts =
            parsed.not_after > now + renew && trust.signer().issued_client(&pair.certificate, now);
        (lasts && !trust.revoked.has(&pair.certificate)).then_some(pair)
    });
    if pair.is_some() && held.and_then(|held| bytes(held, "ca.crt")) == Some(bundle.as_bytes()) {
        return Ok(None);
    }
    let pair = match pair {
        Some(pair) => pair,
        None => trust.signer().issue_client(identity, life, now)?,
    };
    let data = [
        ("tls.crt", pair.certificate),
        ("tls.key", pair.key),
        ("ca.crt", bundle),
    ];
    Ok(Some(
        data.into_iter()
            .map(|(name, text)| (name, text.into_bytes()))
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use kube::api::ObjectMeta;

    use super::super::revoked::Revocation;
    use super::*;

    const OVERLAP: Duration = Duration::from_secs(3600);
    const FLEET: &str = "spiffe://test/fleet";

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000)
    }

    fn secret(data: BTreeMap<&'static str, Vec<u8>>, annotations: &[(&str, &str)]) -> Secret {
        let annotations = annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Secret {
            metadata: ObjectMeta {
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            data: Some(
                data.into_iter()
                    .map(|(name, value)| (name.to_owned(), ByteString(value)))
                    .collect(),
            ),
            ..Secret::default()
        }
    }

    /// Returns the state as the next reader parses it.
    fn kept(trust: &CaRotation, more: &[(&str, &str)]) -> Found {
        let (data, (name, value)) = trust.written();
        let mut annotations = vec![(name, value.as_str())];
        annotations.extend(more);
        read(&secret(data, &annotations)).expect("what was written can be read")
    }

    fn decided(found: Option<Found>, known: Option<&CaRotation>, at: SystemTime) -> Decision {
        decide(found, known, &[], at, OVERLAP).expect("decided")
    }

    fn first() -> CaRotation {
        let made = decided(None, None, now());
        assert!(made.write);
        made.trust
    }

    #[test]
    fn a_settled_state_stays_and_is_not_written_again() {
        let trust = first();
        let later = now() + CA_LIFETIME - RENEW - DAY;
        let decision = decided(Some(kept(&trust, &[])), Some(&trust), later);
        assert!(!decision.write && decision.trust.same(&trust));
    }

    #[test]
    fn an_authority_that_was_deleted_is_replaced_in_steps() {
        let old = first();
        let announced = decided(None, Some(&old), now()).trust;
        assert_eq!(announced.signer.root, old.signer.root, "it signs on");
        assert_eq!(roots(&announced.bundle()).len(), 2, "both are trusted");

        let early = decided(
            Some(kept(&announced, &[])),
            Some(&announced),
            now() + OVERLAP - Duration::from_secs(1),
        );
        assert!(!early.write && early.trust.same(&announced));
        let switched = decided(
            Some(kept(&announced, &[])),
            Some(&announced),
            now() + OVERLAP,
        );
        assert!(switched.write);
        let switched = switched.trust;
        assert_eq!(
            Some(&switched.signer.root),
            announced.next.as_ref().map(|next| &next.root)
        );
        assert!(switched.older.contains(&old.signer.root));
        let (data, _) = switched.written();
        let key = old.signer().pair().key;
        assert!(
            data.values()
                .all(|value| !String::from_utf8_lossy(value).contains(&key)),
            "the old key is gone"
        );

        let settled = decided(
            Some(kept(&switched, &[])),
            Some(&switched),
            now() + 2 * OVERLAP,
        )
        .trust;
        assert_eq!(roots(&settled.bundle()), [switched.signer.root]);
    }

    #[test]
    fn one_that_nears_its_end_is_replaced_before_and_one_that_is_over_at_once() {
        let old = first();
        let due = now() + CA_LIFETIME - RENEW + DAY;
        let decision = decided(Some(kept(&old, &[])), Some(&old), due);
        assert!(decision.write && decision.trust.next.is_some());
        assert!(
            decision.trust.left(due) > 2 * OVERLAP + 90 * DAY,
            "a certificate of an Envoy ends before it"
        );
        let late = decided(Some(kept(&old, &[])), None, now() + CA_LIFETIME + DAY);
        assert!(late.write && !late.trust.has(&old.signer.root) && late.trust.older.is_empty());
    }

    #[test]
    fn requests_of_an_operator_are_carried_out() {
        let old = first();
        let graceful = decided(
            Some(kept(&old, &[(REPLACE, "gracefully")])),
            Some(&old),
            now(),
        );
        assert!(
            graceful.write && graceful.trust.next.is_some() && graceful.trust.has(&old.signer.root)
        );
        // A request during a replacement starts nothing, and its annotation is removed.
        let again = decided(
            Some(kept(&graceful.trust, &[(REPLACE, "gracefully")])),
            Some(&old),
            now(),
        );
        assert!(again.write && again.trust.same(&graceful.trust));
        let at_once = decided(
            Some(kept(&graceful.trust, &[(REPLACE, "at-once")])),
            Some(&old),
            now(),
        );
        assert!(at_once.write);
        assert_eq!(roots(&at_once.trust.bundle()).len(), 1);
        assert!(!at_once.trust.has(&old.signer.root) && !graceful.trust.same(&at_once.trust));
        let (data, _) = old.written();
        let error = read(&secret(data, &[(REPLACE, "now")])).expect_err("another word");
        assert!(error.contains("expected gracefully or at-once"), "{error}");
    }

    #[test]
    fn an_authority_that_somebody_put_there_is_announced_first() {
        let old = first();
        let theirs = CertificateAuthority::make(now()).expect("made");
        let put = CaRotation::settled(theirs.clone(), now());
        let (mut data, _) = put.written();
        data.remove("ca.crt");
        let found = read(&secret(data, &[])).expect("an authority");
        let decision = decided(Some(found.clone()), Some(&old), now());
        assert_eq!(decision.trust.signer.root, old.signer.root);
        assert_eq!(
            decision.trust.next.as_ref().map(|next| &next.root),
            Some(&theirs.root)
        );
        // A replica that does not write waits for the lease holder; one without a state takes the
        // state that it finds.
        assert!(follow(Some(found.clone()), Some(&old)).is_some_and(|trust| trust.same(&old)));
        assert!(
            follow(Some(found.clone()), None).is_some_and(|trust| trust.signer.root == theirs.root)
        );
        assert!(follow(Some(kept(&put, &[])), Some(&old)).is_some_and(|trust| trust.same(&put)));
        assert!(
            follow(None, Some(&old)).is_some_and(|trust| trust.same(&old))
                && follow(None, None).is_none()
        );
        // After a restart of all replicas, the CA certificates that Envoys trust stay trusted for
        // an overlap.
        let after = decide(Some(found), None, &roots(&old.bundle()), now(), OVERLAP)
            .expect("decided")
            .trust;
        assert_eq!(after.signer.root, theirs.root, "the new root signs");
        assert_eq!(
            after.older,
            vec![old.signer.root],
            "the old one is trusted still"
        );
    }

    /// An operator's authority ends soon: its certificates are not renewed at every look.
    #[test]
    fn a_certificate_of_an_authority_that_ends_soon_is_kept() {
        let authority = Authority::new("short", 20 * DAY, now()).expect("made");
        let root = Root::of(&authority).expect("readable");
        let trust = CaRotation::settled(
            CertificateAuthority {
                authority: Arc::new(authority),
                root,
            },
            now(),
        );
        let made = renewed(None, &trust, FLEET, now())
            .expect("made")
            .expect("none is held");
        let held = secret(made, &[]);
        for days in [0, 1, 10, 19] {
            let again = renewed(Some(&held), &trust, FLEET, now() + days * DAY).expect("made");
            assert_eq!(again, None, "after {days} days");
        }
    }

    #[test]
    fn an_envoy_has_a_certificate_of_who_signs_that_lasts_and_everybody_who_is_trusted() {
        let old = first();
        fn made(
            held: Option<&Secret>,
            trust: &CaRotation,
            at: SystemTime,
        ) -> Option<BTreeMap<&'static str, Vec<u8>>> {
            renewed(held, trust, FLEET, at).expect("made")
        }
        let held = secret(made(None, &old, now()).expect("none is held"), &[]);
        assert_eq!(made(Some(&held), &old, now()), None);
        assert!(
            made(Some(&held), &old, now() + 60 * DAY).is_some(),
            "its last month has begun"
        );

        let announced = decided(None, Some(&old), now()).trust;
        let told = made(Some(&held), &announced, now()).expect("another bundle");
        assert_eq!(
            Some(told["tls.crt"].as_slice()),
            bytes(&held, "tls.crt"),
            "the same certificate"
        );
        let switched = announced
            .clone()
            .advanced(now() + OVERLAP, OVERLAP)
            .expect("advanced");
        let told =
            made(Some(&secret(told, &[])), &switched, now() + OVERLAP).expect("another signs");
        let leaf = String::from_utf8(told["tls.crt"].clone()).expect("text");
        assert!(switched.signer().issued_client(&leaf, now() + OVERLAP));
        assert!(!old.signer().issued_client(&leaf, now() + OVERLAP));
    }

    #[test]
    fn a_revoked_certificate_stays_so_and_the_fleet_has_another() {
        let old = first();
        let made = renewed(None, &old, FLEET, now())
            .expect("made")
            .expect("none is held");
        let leaf = String::from_utf8(made["tls.crt"].clone()).expect("text");
        let held = secret(made, &[]);
        let mut list = Revocations::default();
        fn time(at: SystemTime) -> Timestamp {
            Timestamp::try_from(at).expect("a time")
        }
        let entry = Revocation {
            name: "pod".to_owned(),
            at: time(now()),
            until: time(old.ends()),
        };
        list.add(
            xds::Fingerprint::of_pem(&leaf).expect("a certificate"),
            entry,
        )
        .expect("room");
        let refusing = old.refusing(list);
        assert!(!refusing.same(&old), "replicas take it up");

        // The next reader knows the revocation, and does not write it again.
        let decision = decided(Some(kept(&refusing, &[])), Some(&old), now());
        assert!(!decision.write && decision.trust.revoked().has(&leaf));
        let fresh = renewed(Some(&held), &decision.trust, FLEET, now())
            .expect("made")
            .expect("another certificate");
        assert!(
            !decision
                .trust
                .revoked()
                .has(&String::from_utf8(fresh["tls.crt"].clone()).expect("text"))
        );
        assert_eq!(
            renewed(Some(&secret(fresh, &[])), &decision.trust, FLEET, now()).expect("made"),
            None
        );

        // Deleting the Secret, changing the authority or requesting a replacement lifts no
        // revocation.
        let deleted = decided(None, Some(&refusing), now());
        let asked = decided(
            Some(kept(&refusing, &[(REPLACE, "gracefully")])),
            None,
            now(),
        );
        let put = decided(Some(kept(&old, &[])), Some(&refusing), now());
        for decision in [deleted, asked, put] {
            assert!(decision.write && decision.trust.revoked().has(&leaf));
        }
        // Revocations are pruned after the lifetime of the authority.
        let late = decided(Some(kept(&refusing, &[])), None, now() + CA_LIFETIME + DAY);
        assert!(late.write && !late.trust.revoked().has(&leaf));
        let (mut data, (name, value)) = refusing.written();
        data.insert(REVOKED, b"[]".to_vec());
        assert!(
            read(&secret(data, &[(name, &value)])).is_err(),
            "what cannot be read is no empty list"
        );
    }
}
