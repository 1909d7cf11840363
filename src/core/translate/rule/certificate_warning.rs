//! Warnings about a certificate that is served: why clients refuse it, or soon will.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::certificate::{Found, Served, rfc3339};
use super::surroundings::Surroundings;
use gatewright_objects::inputs::{CERT_MANAGER, ChainJudgement, Secret};
use gatewright_objects::model::{Certificate, Hostname, ObjectName, Reason};

/// A warning about a certificate that is served all the same.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateWarning {
    /// The kind of the warning.
    pub reason: Reason,
    /// The message.
    pub text: String,
}

impl CertificateWarning {
    /// True if clients that check the certificate refuse it for every hostname.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self.reason,
            Reason::CertificateExpired | Reason::CertificateNotValid
        )
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The days before the end of a certificate at which its owner is warned.
const NOTICES: [u32; 2] = [14, 3];

/// The part of its lifetime in which a certificate of cert-manager is overdue: it is renewed in the
/// last third.
const OVERDUE: u32 = 6;

/// The largest number of names that a text has.
const NAMED: usize = 8;

/// Warnings about the certificate that a listener with a hostname serves.
pub(crate) fn of_listener(
    found: &Found,
    hostname: &Hostname,
    around: &Surroundings<'_>,
) -> Vec<CertificateWarning> {
    let mut warnings = match &found.served {
        Served::Certificate(secret, certificate)
        | Served::NotAllowed(secret, Some(certificate)) => {
            let refused = refusals(certificate, secret, around);
            refused
                .into_iter()
                .chain(of_certificate(certificate, secret, around))
                .collect()
        }
        Served::Issued(_, Some(certificate)) => {
            not_yet_valid(certificate, around.now).into_iter().collect()
        }
        Served::Issued(_, None)
        | Served::NotAllowed(_, None)
        | Served::Missing(_)
        | Served::None => Vec::new(),
    };
    let for_others = found.served.certificate().filter(|_| !hostname.is_any());
    if let Some(certificate) =
        for_others.filter(|certificate| !hostname.is_certified_by(&certificate.names))
    {
        let text = format!(
            "the certificate is not valid for {hostname}: it names {}",
            named(&certificate.names)
        );
        warnings.push(CertificateWarning {
            reason: Reason::CertificateNotForHostname,
            text,
        });
    }
    if let (Served::Certificate(secret, _), [_, ..]) = (&found.served, &found.unused[..]) {
        let others: Vec<_> = found
            .unused
            .iter()
            .take(NAMED)
            .map(ToString::to_string)
            .collect();
        let text = format!(
            "certificateRefs: of several certificates that of Secret {secret} is served, not that of {}: remove the others, \
             or give their hostnames listeners of their own",
            others.join(", ")
        );
        warnings.push(CertificateWarning {
            reason: Reason::CertificateUnused,
            text,
        });
    }
    warnings
}

/// Warnings about what TLS clients refuse in the chain in a Secret that no issuer of ours fills.
fn refusals(
    certificate: &Certificate,
    name: &ObjectName,
    around: &Surroundings<'_>,
) -> Vec<CertificateWarning> {
    let judgement = secret_of(certificate, name, around).and_then(Secret::judgement);
    let findings = judgement
        .map(|judgement| judgement.findings(certificate, around.now))
        .unwrap_or_default();
    findings
        .into_iter()
        .map(|finding| CertificateWarning {
            reason: Reason::CertificateNotValid,
            text: format!(
                "the certificate in Secret {name} is refused by {}: {finding}",
                finding.refuser
            ),
        })
        .collect()
}

/// The Secret with a certificate; the last good one is not in its Secret any more.
fn secret_of<'a>(
    certificate: &Certificate,
    name: &ObjectName,
    around: &Surroundings<'a>,
) -> Option<&'a Secret> {
    let secret = around.store.secret(name).map(Arc::as_ref);
    secret.filter(|secret| secret.certificate.as_deref() == Ok(certificate))
}

/// Warnings about the time of a certificate in a Secret that no issuer of ours fills.
pub(crate) fn of_certificate(
    certificate: &Certificate,
    name: &ObjectName,
    around: &Surroundings<'_>,
) -> Vec<CertificateWarning> {
    let now = around.now;
    let secret = secret_of(certificate, name, around);
    let mut warnings = Vec::new();
    if certificate.not_after <= now {
        let end = rfc3339(certificate.not_after);
        warn(
            Reason::CertificateExpired,
            format!("the certificate in Secret {name} expired at {end}"),
            &mut warnings,
        );
    }
    let end = end_of(certificate, secret);
    let past = notices(certificate, secret)
        .into_iter()
        .filter(|(_, at)| *at <= now);
    if let Some(days) = past.map(|(days, _)| days).min().filter(|_| end > now) {
        let what = if end < certificate.not_after {
            "an intermediate of the certificate"
        } else {
            "the certificate"
        };
        let text = format!(
            "{what} in Secret {name} expires at {}, within {days} days: put a new certificate and the key that belongs to it \
             into the Secret before then",
            rfc3339(end)
        );
        warn(Reason::CertificateExpiring, text, &mut warnings);
    }
    not_yet_valid(certificate, now)
        .into_iter()
        .chain(warnings)
        .collect()
}

fn warn(reason: Reason, text: String, warnings: &mut Vec<CertificateWarning>) {
    warnings.push(CertificateWarning { reason, text })
}

/// The times at which a certificate in a Secret is judged anew.
pub(crate) fn times(secret: &Secret) -> Vec<SystemTime> {
    let held = secret.certificate.as_deref().ok();
    let mut times: Vec<SystemTime> = held
        .into_iter()
        .flat_map(|held| notices(held, Some(secret)))
        .map(|(_, at)| at)
        .collect();
    times.extend(
        secret
            .judgement()
            .into_iter()
            .flat_map(ChainJudgement::times),
    );
    let all = held.into_iter().chain(secret.last_good.as_deref());
    times.extend(all.flat_map(|certificate| [certificate.not_before, certificate.not_after]));
    times
}

/// The end of a certificate: its own, or that of the first intermediate.
fn end_of(certificate: &Certificate, secret: Option<&Secret>) -> SystemTime {
    let issuers = secret
        .and_then(Secret::judgement)
        .and_then(|judgement| judgement.issuers_end);
    issuers.map_or(certificate.not_after, |end| end.min(certificate.not_after))
}

/// The times at which the owner of a certificate is warned of its end, each with the days that
/// remain. A certificate for a short time, which cert-manager renews, is reported only where the
/// renewal is overdue.
fn notices(certificate: &Certificate, secret: Option<&Secret>) -> Vec<(u32, SystemTime)> {
    let lifetime = certificate
        .not_after
        .duration_since(certificate.not_before)
        .unwrap_or_default();
    let is_renewed = secret.is_some_and(|secret| secret.issued_by.as_deref() == Some(CERT_MANAGER));
    let longest = if is_renewed {
        lifetime / OVERDUE
    } else {
        Duration::MAX
    };
    let end = end_of(certificate, secret);
    NOTICES
        .into_iter()
        .filter_map(|days| Some((days, end.checked_sub(longest.min(days * DAY))?)))
        .collect()
}

fn not_yet_valid(certificate: &Certificate, now: SystemTime) -> Option<CertificateWarning> {
    let text = format!(
        "the certificate is not valid before {}",
        rfc3339(certificate.not_before)
    );
    (certificate.not_before > now).then_some(CertificateWarning {
        reason: Reason::CertificateNotValid,
        text,
    })
}

/// The names of a certificate, for people.
pub(crate) fn named(names: &[Hostname]) -> String {
    let texts: Vec<_> = names.iter().take(NAMED).map(ToString::to_string).collect();
    match names.len() {
        0 => "no hostname (subjectAltName)".to_owned(),
        all if all > NAMED => format!("{} and {} more", texts.join(", "), all - NAMED),
        _ => texts.join(", "),
    }
}
