//! The certificate of a listener.

use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::key::Verdict;
use super::surroundings::Surroundings;
use super::tls_options::{ISSUER, SELF_SIGNED, TlsOptions};
use crate::inputs::{Kind, Listener, LocalRef, Meta};
use crate::model::{Certificate, Hostname, ObjectName, Reason};
use crate::store::Store;
use crate::wanted::{Issuer, WantedCertificate};

/// The certificate that a listener serves.
#[derive(Clone, Debug, PartialEq)]
pub enum Served {
    /// None: the listener does not terminate TLS, or has no usable certificate.
    None,
    /// None: the Secret that it refers to does not exist.
    Missing(ObjectName),
    /// The certificate of a reference.
    Certificate(Arc<Certificate>),
    /// A certificate that an issuer is to issue. The present one, if any, is served until then.
    Issued(WantedCertificate, Option<Arc<Certificate>>),
    /// None is issued for this Secret: the issuer does not work for the listener's namespace and hostname. The present
    /// one, if any, is served.
    NotAllowed(ObjectName, Option<Arc<Certificate>>),
}

impl Served {
    /// The Secret that an issuer stores the certificate in, or would.
    pub(super) fn secret(&self) -> Option<&ObjectName> {
        match self {
            Served::Issued(want, _) => Some(&want.secret),
            Served::NotAllowed(secret, _) => Some(secret),
            Served::None | Served::Missing(_) | Served::Certificate(_) => None,
        }
    }

    /// The certificate, if there is one.
    pub fn certificate(&self) -> Option<&Arc<Certificate>> {
        match self {
            Served::Certificate(certificate)
            | Served::Issued(_, Some(certificate))
            | Served::NotAllowed(_, Some(certificate)) => Some(certificate),
            Served::None | Served::Missing(_) | Served::Issued(_, None) | Served::NotAllowed(_, None) => None,
        }
    }
}

/// Finds the certificate of a listener of a `kind` object. Of several references the first usable one is served; an
/// unusable one makes the verdict an error all the same.
pub(super) fn served(
    listener: &Listener,
    options: &TlsOptions,
    hostname: &Hostname,
    kind: Kind,
    meta: &Meta,
    around: &Surroundings<'_>,
) -> (Served, Verdict) {
    let Surroundings { store, settings, now } = *around;
    let references = listener.tls.as_ref().map(|tls| tls.certificates.as_slice()).unwrap_or_default();
    if references.is_empty() {
        let Some(issuer) = &options.issuer else {
            let text = format!("no tls.certificateRefs, and no tls.options {ISSUER} that names who issues one");
            return (Served::None, Err((Reason::InvalidTLSConfig, text)));
        };
        // Clients with a known hostname should get a trusted certificate; a listener without one can only be
        // self-signed.
        let text = match (hostname.is_any(), issuer == SELF_SIGNED) {
            (true, false) => Some(format!(
                "tls.options {ISSUER} needs a hostname to issue a certificate for; without one expected {SELF_SIGNED}"
            )),
            (false, true) => Some(format!("tls.options {ISSUER}: {SELF_SIGNED} is for a listener without a hostname")),
            (true, true) | (false, false) => None,
        };
        if let Some(text) = text {
            return (Served::None, Err((Reason::InvalidTLSConfig, text)));
        }
        let name = issued_secret_name(issuer, hostname);
        let secret = ObjectName::new(meta.name.namespace.clone(), name);
        let held = store.secret(&secret).and_then(|secret| secret.usable(now).cloned());
        if let Err(refused) = settings.issuers.check(issuer, &meta.name.namespace, hostname) {
            return (Served::NotAllowed(secret, held), Err(refused));
        }
        let want = WantedCertificate {
            secret,
            names: vec![hostname.clone()],
            issuer: Issuer::Named(Arc::from(issuer.as_str())),
        };
        return (Served::Issued(want, held), Ok(()));
    }
    let mut served = Served::None;
    let mut verdict = Ok(());
    for reference in references {
        match resolve(reference, OF_LISTENERS, kind, meta, store, now) {
            Ok(certificate) if served.certificate().is_none() => served = Served::Certificate(certificate),
            Ok(_) => {}
            Err(Unusable { error, last_good }) => {
                if let Some(certificate) = last_good.filter(|_| served.certificate().is_none()) {
                    served = Served::Certificate(certificate);
                }
                if served == Served::None
                    && error.0 == Reason::InvalidCertificateRef
                    && store.secret(&reference.name).is_none()
                {
                    served = Served::Missing(reference.name.clone());
                }
                verdict = verdict.and(Err(error));
            }
        }
    }
    (served, verdict)
}

/// Why the certificate of a reference is not served.
pub(super) struct Unusable {
    pub(super) error: (Reason, String),
    /// The previous certificate, which is served on.
    pub(super) last_good: Option<Arc<Certificate>>,
}

/// The field of a listener that refers to certificates, and the reason for an unusable one.
const OF_LISTENERS: (&str, Reason) = ("certificateRefs", Reason::InvalidCertificateRef);

/// Looks up the certificate that a field of an object refers to.
pub(super) fn resolve(
    reference: &LocalRef,
    (field, invalid): (&str, Reason),
    kind: Kind,
    meta: &Meta,
    store: &Store,
    now: SystemTime,
) -> Result<Arc<Certificate>, Unusable> {
    let name = &reference.name;
    let refused = |reason: Reason, text: String| Err(Unusable { error: (reason, text), last_good: None });
    if !reference.group.is_empty() || reference.kind != "Secret" {
        let (group, kind) = (&reference.group, &reference.kind);
        let text = format!("{field}: {kind} {name} of group {group:?} is not supported, use a core Secret");
        return refused(invalid, text);
    }
    // Permission is decided before existence, so that nobody learns what another namespace holds.
    if !store.permits(kind, &meta.name.namespace, "Secret", name) {
        let note = store.unwatched(name);
        let text = format!("{field}: Secret {name} is in another namespace and no ReferenceGrant permits it{note}");
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
    let last_good = secret.usable(now).cloned();
    let text = match &last_good {
        Some(last) => format!(
            "{text}; the certificate that was in it before is served until it ends at {}: put a certificate and the key \
             that belongs to it into the Secret before then",
            rfc3339(last.not_after)
        ),
        None => text,
    };
    Err(Unusable { error: (invalid, text), last_good })
}

/// A warning about a certificate that is served for `hostname`, if browsers will refuse it (RFC 9525, 6.3).
pub(super) fn warning(certificate: &Certificate, hostname: &Hostname, now: SystemTime) -> Option<String> {
    if certificate.not_before > now {
        return Some(format!("the certificate is not valid before {}", rfc3339(certificate.not_before)));
    }
    if hostname.is_any() || certificate.names.iter().any(|name| is_valid_for(name, hostname)) {
        return None;
    }
    let names: Vec<_> = certificate.names.iter().take(8).map(ToString::to_string).collect();
    let names = match &names[..] {
        [] => "has no DNS name as subjectAltName (RFC 9525)".to_owned(),
        names => format!("names {}", names.join(", ")),
    };
    Some(format!("the certificate is not valid for {hostname}: it {names}"))
}

/// True if a name in a certificate covers `hostname`: a wildcard there covers exactly one label.
fn is_valid_for(name: &Hostname, hostname: &Hostname) -> bool {
    let parent = |h: &Hostname| h.as_str().split_once('.').map(|(_, parent)| parent.to_owned());
    name == hostname || name.is_any() || name.is_wildcard() && hostname.is_exact() && parent(name) == parent(hostname)
}

/// A time for people. The latest that jiff has stands for the end of the year 9999.
pub(super) fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// The name of the Secret for an issued certificate: the hostname with its dots as dashes, and a hash that makes it
/// unique for the hostname and issuer; at most 63 characters.
pub(super) fn issued_secret_name(issuer: &str, hostname: &Hostname) -> String {
    let digest = Sha256::digest(format!("{issuer}/{}", hostname.as_str()));
    let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let mut readable = hostname.as_str().replace('*', "wildcard").replace('.', "-");
    readable.truncate(50);
    if readable.is_empty() {
        // For a listener without a hostname: a name cannot begin with a hyphen.
        readable.push_str("any");
    }
    format!("{}-{hash}-tls", readable.trim_end_matches('-'))
}
