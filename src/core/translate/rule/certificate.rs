//! The certificate of a listener.

use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::surroundings::Surroundings;
use super::tls_options::{ISSUER, SELF_SIGNED, TlsOptions};
use crate::key::Verdict;
use gatewright_objects::inputs::{Kind, Listener, LocalRef, Meta};
use gatewright_objects::model::{Certificate, Hostname, ObjectName, Reason};
use gatewright_objects::store::Store;
use gatewright_objects::wanted::{Issuer, WantedCertificate};

/// The certificate that a listener serves.
#[derive(Clone, Debug, PartialEq)]
pub enum Served {
    /// None: the listener does not terminate TLS, or has no usable certificate.
    None,
    /// None: the Secret that it refers to does not exist.
    Missing(ObjectName),
    /// The certificate of a reference, and its Secret.
    Certificate(ObjectName, Arc<Certificate>),
    /// A certificate that an issuer is to issue. The present one, if any, is served until then.
    Issued(WantedCertificate, Option<Arc<Certificate>>),
    /// None is issued for this Secret: the issuer does not work for the listener's namespace and
    /// hostname. The present one, if any, is served.
    NotAllowed(ObjectName, Option<Arc<Certificate>>),
}

impl Served {
    /// The Secret that an issuer stores the certificate in, or would.
    pub(crate) fn secret(&self) -> Option<&ObjectName> {
        match self {
            Served::Issued(want, _) => Some(&want.secret),
            Served::NotAllowed(secret, _) => Some(secret),
            Served::None | Served::Missing(_) | Served::Certificate(..) => None,
        }
    }

    /// The certificate, if there is one.
    pub fn certificate(&self) -> Option<&Arc<Certificate>> {
        match self {
            Served::Certificate(_, certificate)
            | Served::Issued(_, Some(certificate))
            | Served::NotAllowed(_, Some(certificate)) => Some(certificate),
            Served::None
            | Served::Missing(_)
            | Served::Issued(_, None)
            | Served::NotAllowed(_, None) => None,
        }
    }
}

/// The certificate of a listener, by its references or its issuer.
pub(crate) struct Found {
    pub(crate) served: Served,
    /// Ok if each reference leads to a valid certificate, or an issuer may issue one.
    pub(crate) verdict: Verdict,
    /// References to valid certificates that are not served, because another one is.
    pub(crate) unused: Vec<ObjectName>,
}

impl Found {
    fn has_valid(&self, now: SystemTime) -> bool {
        self.served
            .certificate()
            .is_some_and(|certificate| certificate.not_after > now)
    }

    fn of(served: Served, verdict: Verdict) -> Self {
        Self {
            served,
            verdict,
            unused: Vec::new(),
        }
    }
}

/// Finds the certificate of a listener of a `kind` object. Of several references the first one with
/// a valid certificate is served, and an expired one where none is valid; an unusable one makes the
/// verdict an error all the same.
pub(crate) fn served(
    listener: &Listener,
    options: &TlsOptions,
    hostname: &Hostname,
    kind: Kind,
    meta: &Meta,
    around: &Surroundings<'_>,
) -> Found {
    let Surroundings {
        store,
        settings,
        now,
    } = *around;
    let references = listener
        .tls
        .as_ref()
        .map(|tls| tls.certificates.as_slice())
        .unwrap_or_default();
    if references.is_empty() {
        let Some(issuer) = &options.issuer else {
            let text = format!(
                "no tls.certificateRefs, and no tls.options {ISSUER} that names who issues one"
            );
            return Found::of(Served::None, Err((Reason::InvalidTLSConfig, text)));
        };
        // Clients with a known hostname should get a trusted certificate; a listener without one
        // can only be self-signed.
        let text = match (hostname.is_any(), issuer == SELF_SIGNED) {
            (true, false) => Some(format!(
                "tls.options {ISSUER} needs a hostname to issue a certificate for; without one expected {SELF_SIGNED}"
            )),
            (false, true) => Some(format!(
                "tls.options {ISSUER}: {SELF_SIGNED} is for a listener without a hostname"
            )),
            (true, true) | (false, false) => None,
        };
        if let Some(text) = text {
            return Found::of(Served::None, Err((Reason::InvalidTLSConfig, text)));
        }
        let name = issued_secret_name(issuer, hostname);
        let secret = ObjectName::new(meta.name.namespace.clone(), name);
        let held = store
            .secret(&secret)
            .and_then(|secret| secret.usable(now).cloned());
        if let Err(refused) = settings
            .issuers
            .check(issuer, &meta.name.namespace, hostname)
        {
            return Found::of(Served::NotAllowed(secret, held), Err(refused));
        }
        let want = WantedCertificate {
            secret,
            names: vec![hostname.clone()],
            issuer: Issuer::Named(Arc::from(issuer.as_str())),
        };
        return Found::of(Served::Issued(want, held), Ok(()));
    }
    let mut found = Found::of(Served::None, Ok(()));
    for reference in references {
        match resolve(reference, OF_LISTENERS, kind, meta, store, now) {
            Ok(_) if found.has_valid(now) => found.unused.push(reference.name.clone()),
            Ok(certificate) => {
                found.served = Served::Certificate(reference.name.clone(), certificate)
            }
            Err(Unusable { error, instead }) => {
                let is_better = |one: &Arc<Certificate>| match found.served.certificate() {
                    Some(held) => held.not_after <= now && one.not_after > now,
                    None => true,
                };
                if let Some(certificate) = instead.filter(is_better) {
                    found.served = Served::Certificate(reference.name.clone(), certificate);
                }
                if found.served == Served::None
                    && error.0 == Reason::InvalidCertificateRef
                    && store.secret(&reference.name).is_none()
                {
                    found.served = Served::Missing(reference.name.clone());
                }
                found.verdict = found.verdict.and(Err(error));
            }
        }
    }
    found
}

/// Why a reference does not lead to a valid certificate.
pub(crate) struct Unusable {
    pub(crate) error: (Reason, String),
    /// What is served all the same: the previous certificate, or the expired one.
    pub(crate) instead: Option<Arc<Certificate>>,
}

/// The field of a listener that refers to certificates, and the reason for an unusable one.
const OF_LISTENERS: (&str, Reason) = ("certificateRefs", Reason::InvalidCertificateRef);

/// Looks up the certificate that a field of an object refers to.
pub(crate) fn resolve(
    reference: &LocalRef,
    (field, invalid): (&str, Reason),
    kind: Kind,
    meta: &Meta,
    store: &Store,
    now: SystemTime,
) -> Result<Arc<Certificate>, Unusable> {
    let name = &reference.name;
    fn refused(reason: Reason, text: String) -> Result<Arc<Certificate>, Unusable> {
        Err(Unusable {
            error: (reason, text),
            instead: None,
        })
    }
    if !reference.group.is_empty() || reference.kind != "Secret" {
        let group = &reference.group;
        let kind = &reference.kind;
        let text = format!(
            "{field}: {kind} {name} of group {group:?} is not supported, use a core Secret"
        );
        return refused(invalid, text);
    }
    // Permission is decided before existence, so that nobody learns what another namespace holds.
    if !store.permits(kind, &meta.name.namespace, Kind::Secret, name) {
        let note = store.unwatched(name);
        let text = format!(
            "{field}: Secret {name} is in another namespace and no ReferenceGrant permits it{note}"
        );
        return refused(Reason::RefNotPermitted, text);
    }
    let Some(secret) = store.secret(name) else {
        return refused(invalid, format!("{field}: Secret {name} does not exist"));
    };
    let text = match &secret.certificate {
        Ok(certificate) if certificate.not_after > now => return Ok(certificate.clone()),
        Ok(certificate) => {
            let time = rfc3339(certificate.not_after);
            format!("{field}: the certificate in Secret {name} expired at {time}")
        }
        Err(error) => format!("{field}: Secret {name} {error}"),
    };
    let (text, instead) = match (secret.usable(now), &secret.certificate) {
        (Some(last), _) => {
            let text = format!(
                "{text}; the certificate that was in it before is served until it ends at {}: put a certificate and the key \
                 that belongs to it into the Secret before then",
                rfc3339(last.not_after)
            );
            (text, Some(last.clone()))
        }
        (None, Ok(expired)) => {
            let text = format!(
                "{text}; it stays in use where there is no other, and peers that check it refuse it: put a new certificate \
                 and the key that belongs to it into the Secret"
            );
            (text, Some(expired.clone()))
        }
        (None, Err(_)) => (text, None),
    };
    Err(Unusable {
        error: (invalid, text),
        instead,
    })
}

/// A time for people. The latest that jiff has stands for the end of the year 9999.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time)
        .unwrap_or(jiff::Timestamp::MAX)
        .to_string()
}

/// The name of the Secret for an issued certificate: the hostname with its dots as dashes, and a
/// hash that makes it unique for the hostname and issuer; at most 63 characters.
pub(crate) fn issued_secret_name(issuer: &str, hostname: &Hostname) -> String {
    let digest = Sha256::digest(format!("{issuer}/{}", hostname.as_str()));
    let hash: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut readable = hostname.as_str().replace('*', "wildcard").replace('.', "-");
    readable.truncate(50);
    if readable.is_empty() {
        // For a listener without a hostname: a name cannot begin with a hyphen.
        readable.push_str("any");
    }
    format!("{}-{hash}-tls", readable.trim_end_matches('-'))
}
