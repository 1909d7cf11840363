//! The certificates that are ordered, or no longer wanted.

use std::collections::{BTreeMap, BTreeSet};

use gatewright_core::model::{Hostname, ObjectName};
use gatewright_core::wanted::{Issuer, Solver, WantedCertificate};
use serde::Serialize;

use super::world::World;

/// What is known of the issuers of an installation, by their names.
#[derive(Clone, Debug, Default)]
pub struct Issuance(pub BTreeMap<String, IssuerTerms>);

/// How an issuer validates names, and what its CA allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerTerms {
    /// The type of its challenges.
    pub challenge: &'static str,
    /// The certificates that its CA issues for a registered domain, within so many hours.
    pub per_domain: Option<(u32, u64)>,
}

/// What happens to a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// It is ordered.
    Ordered,
    /// It is ordered again: it has other names, or another issuer.
    Reissued,
    /// It is not wanted any more.
    Withdrawn,
}

/// What becomes of a certificate that an issuer issues.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateChange {
    /// The Secret.
    pub secret: String,
    /// The names on it.
    pub hostnames: Vec<String>,
    /// The issuer, with the challenge.
    pub issuer: String,
    /// What happens.
    pub step: Step,
    /// The issuer of the installation; `None` for one of a tenant.
    #[serde(skip)]
    pub(super) named: Option<String>,
}

/// The orders for a registered domain.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderCount {
    /// The issuer.
    pub issuer: String,
    /// The registered domain.
    pub domain: String,
    /// The certificates that are ordered, at most: names may share one.
    pub orders: usize,
    /// The certificates that the CA issues for the domain, within `hours`.
    pub of: u32,
    /// The period.
    pub hours: u64,
}

/// An issuer for people, with the challenge.
pub(super) fn issuer_text(issuer: &Issuer, issuance: &Issuance) -> String {
    let challenge = match issuer {
        Issuer::Named(name) => issuance.0.get(&**name).map(|terms| terms.challenge),
        Issuer::Acme(acme) => Some(match acme.solver {
            Solver::Http01 => "HTTP-01",
            Solver::Dns01(_) => "DNS-01",
        }),
    };
    match challenge {
        Some(challenge) => format!("{issuer}, {challenge}"),
        None => issuer.to_string(),
    }
}

/// Returns what becomes of certificates, sorted by their Secrets.
pub(super) fn changes(
    before: &World,
    after: &World,
    issuance: &Issuance,
) -> Vec<CertificateChange> {
    let secrets: BTreeSet<&ObjectName> = before.wants.keys().chain(after.wants.keys()).collect();
    secrets
        .into_iter()
        .filter_map(|secret| {
            let (old, new) = (before.wants.get(secret), after.wants.get(secret));
            let (want, step) = match (old, new) {
                (None, Some((want, false))) => (want, Step::Ordered),
                (Some((old, true)), Some((new, true))) if old != new => (new, Step::Reissued),
                (Some((old, false)), Some((new, false))) if old != new => (new, Step::Ordered),
                (Some((want, _)), None) => (want, Step::Withdrawn),
                _ => return None,
            };
            Some(change(want, step, issuance))
        })
        .collect()
}

fn change(want: &WantedCertificate, step: Step, issuance: &Issuance) -> CertificateChange {
    CertificateChange {
        secret: want.secret.to_string(),
        hostnames: want.names.iter().map(Hostname::to_string).collect(),
        issuer: issuer_text(&want.issuer, issuance),
        step,
        named: match &want.issuer {
            Issuer::Named(name) => Some(name.to_string()),
            Issuer::Acme(_) => None,
        },
    }
}

/// Counts the orders of each registered domain, at issuers whose CA limits them.
pub(super) fn orders(changes: &[CertificateChange], issuance: &Issuance) -> Vec<OrderCount> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for change in changes
        .iter()
        .filter(|change| change.step != Step::Withdrawn)
    {
        let (Some(issuer), Some(name)) = (&change.named, change.hostnames.first()) else {
            continue;
        };
        let name = name.trim_start_matches("*.");
        let domain = public_suffix::registered_domain(name).unwrap_or(name);
        *counts.entry((issuer, domain)).or_default() += 1;
    }
    counts
        .into_iter()
        .filter_map(|((issuer, domain), orders)| {
            let (of, hours) = issuance.0.get(issuer)?.per_domain?;
            Some(OrderCount {
                issuer: issuer.to_owned(),
                domain: domain.to_owned(),
                orders,
                of,
                hours,
            })
        })
        .collect()
}
