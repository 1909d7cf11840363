//! The report about certificates: one row for each wanted certificate, and the remaining rate
//! limits.

use std::collections::{BTreeMap, BTreeSet};

use acme::budget::Scope;
use acme::keeper::{Next, Outlook, Pass};
use acme::plan::{Budgets, Reason};
use acme::{CertificateId, Class};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::held::HeldCertificates;
use super::request::{CertificateRequest, IssuerRef};
use gatewright_core::translate::BroughtCertificate;

/// The whole report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// One row for each wanted certificate, by host.
    pub certificates: Vec<Row>,
    /// The consumption of CAs' rate limits.
    pub budgets: Vec<Budget>,
    /// The problems that need an operator, and the entries that were set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

/// The state of one wanted certificate, or of one that no issuer of ours renews.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its names.
    pub hosts: Vec<String>,
    /// `namespace/name` of the Secret.
    pub secret: String,
    /// The issuer that it is wanted from; `certificateRefs` where listeners refer to a Secret that
    /// none of ours fills.
    pub issuer: String,
    /// The issuer of the served certificate, where it differs: an earlier issuer, or a fallback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_by: Option<String>,
    /// The expiry of the served certificate; `None` if there is none.
    pub expires: Option<Timestamp>,
    /// The next action.
    pub next: String,
    /// The time of the next action.
    pub at: Option<Timestamp>,
    /// The last error since the last success.
    pub last_error: Option<String>,
}

/// One rate limit of a CA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The issuer.
    pub issuer: String,
    /// The scope that the limit counts.
    pub scope: String,
    /// The same, as the issuer counts it; `None` of a budget that was read.
    #[serde(skip)]
    pub counted: Option<Scope>,
    /// The remaining number.
    pub left: Option<u32>,
    /// The part of the remaining number that is reserved for expiring certificates and for
    /// `certs renew`.
    #[serde(default)]
    pub reserved: u32,
    /// The limit.
    pub of: Option<u32>,
    /// The time at which more is available that is not reserved.
    pub next: Option<Timestamp>,
}

/// The result of a pre-flight check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The names.
    pub hosts: Vec<String>,
    /// The issuer.
    pub issuer: String,
    /// The findings; empty if nothing prevents issuance.
    pub findings: Vec<String>,
    /// The error of the last attempt, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The next action, and its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<(String, Option<Timestamp>)>,
}

/// The text in place of an issuer, where none of ours renews the certificate.
const BROUGHT: &str = "certificateRefs";

impl Row {
    /// The row of a certificate that no issuer of ours renews; `refused` is what Envoys say of a
    /// listener that serves it.
    pub(crate) fn of_brought(brought: &BroughtCertificate, refused: Option<&String>) -> Self {
        let certificate = brought.certificate.as_ref();
        let expires =
            certificate.and_then(|certificate| Timestamp::try_from(certificate.not_after).ok());
        Self {
            hosts: brought.hosts.iter().cloned().collect(),
            secret: brought.secret.to_string(),
            issuer: BROUGHT.to_owned(),
            issued_by: certificate.map(|certificate| certificate.issuer.to_string()),
            expires,
            next: format!(
                "nothing here: whoever fills Secret {} renews it",
                brought.secret
            ),
            at: expires,
            last_error: refused.or(brought.problem.as_ref()).cloned(),
        }
    }

    /// Returns whether its Secret is of a namespace.
    pub fn is_of(&self, namespace: &str) -> bool {
        let of = self.secret.split_once('/').map(|(of, _)| of);
        of == Some(namespace)
    }

    /// Returns whether there is a certificate that has not expired.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end > now)
    }
}

impl Report {
    /// Adds the rows of certificates that no issuer of ours renews.
    #[must_use]
    pub fn with_brought(mut self, rows: Vec<Row>) -> Self {
        self.certificates.extend(rows);
        self.certificates
            .sort_by(|a, b| (&a.hosts, &a.secret).cmp(&(&b.hosts, &b.secret)));
        self
    }

    /// Returns the report without the certificates of other namespaces.
    #[must_use]
    pub fn of_namespace(mut self, namespace: &str) -> Self {
        self.certificates.retain(|row| row.is_of(namespace));
        self
    }

    /// Returns what a namespace sees: the certificates in its Secrets, and the limits that count
    /// its names. What others have used of the account, and what needs an operator, is left out.
    #[must_use]
    pub fn seen_by(self, namespace: &str) -> Self {
        let Self {
            certificates,
            budgets,
            troubles: _,
        } = self;
        let own = certificates.into_iter().filter(|row| row.is_of(namespace));
        let certificates: Vec<Row> = own.collect();
        let hosts: BTreeSet<&str> = certificates
            .iter()
            .flat_map(|row| &row.hosts)
            .map(|host| host.strip_prefix("*.").unwrap_or(host))
            .collect();
        let budgets = budgets
            .into_iter()
            .filter(|budget| {
                let counted = budget.counted.as_ref();
                counted.is_some_and(|scope| counts_names_of(scope, &hosts))
            })
            .collect();
        Self {
            certificates,
            budgets,
            troubles: Vec::new(),
        }
    }

    pub(super) fn of(
        wants: &[CertificateRequest],
        pass: &Pass,
        held_certificates: &HeldCertificates,
        budgets: &Budgets,
        issuer: &dyn Fn(&CertificateRequest) -> Result<String, String>,
        now: Timestamp,
    ) -> Self {
        let lines: BTreeMap<&CertificateId, &Outlook> =
            pass.outlook.iter().map(|line| (&line.id, line)).collect();
        let row = |want: &CertificateRequest| {
            let base = Row {
                hosts: want.hostnames.iter().map(ToString::to_string).collect(),
                secret: want.secret.to_string(),
                issuer: match &want.issuer {
                    IssuerRef::Named(name) => name.to_string(),
                    IssuerRef::Own { owner, .. } => owner.to_string(),
                },
                issued_by: None,
                expires: None,
                next: "nothing, until the hostname is corrected".to_owned(),
                at: None,
                last_error: None,
            };
            let names = match want.names() {
                Ok(names) => names,
                Err(error) => {
                    return Row {
                        last_error: Some(error.to_string()),
                        ..base
                    };
                }
            };
            let held = held_certificates
                .find(&want.secret.namespace, &names)
                .map(|held| &held.certificate);
            let line = lines.get(&CertificateId::of(&want.secret.namespace, &names));
            // Envoy serves none that it refuses.
            let refused = line.and_then(|line| line.refused.as_ref());
            let held = held.filter(|held| refused != Some(&held.serial));
            let expires = held.map(|held| held.not_after);
            let by = held.map(|held| held.issued_by.as_ref().unwrap_or(&held.issuer).clone());
            let issuer = match issuer(want) {
                Ok(issuer) => issuer,
                Err(text) => {
                    let next = "nothing, until the issuer is corrected".to_owned();
                    return Row {
                        expires,
                        issued_by: by,
                        next,
                        last_error: Some(text),
                        ..base
                    };
                }
            };
            let base = Row {
                issued_by: by.filter(|by| *by != issuer),
                ..base
            };
            match line {
                Some(line) => Row {
                    issuer,
                    expires,
                    next: next(&line.next, line.notice.as_deref()),
                    at: Some(line.at),
                    last_error: line.last_error.clone().or_else(|| held?.refusal(now)),
                    ..base
                },
                None => Row {
                    issuer,
                    expires,
                    next: "planning".to_owned(),
                    ..base
                },
            }
        };
        let mut certificates: Vec<Row> = wants.iter().map(row).collect();
        certificates.sort_by(|a, b| (&a.hosts, &a.secret).cmp(&(&b.hosts, &b.secret)));
        let limits = budgets.iter().flat_map(|(issuer, budget)| {
            budget.report(now).into_iter().map(|line| Budget {
                issuer: issuer.clone(),
                scope: line.scope.to_string(),
                counted: Some(line.scope),
                left: line.left,
                reserved: line.reserved,
                of: line.burst,
                next: line.next,
            })
        });
        Self {
            certificates,
            budgets: limits.collect(),
            troubles: Vec::new(),
        }
    }

    pub(super) fn with_troubles(self, troubles: Vec<String>) -> Self {
        Self { troubles, ..self }
    }
}

/// Returns whether a limit counts these hosts, and names no other.
fn counts_names_of(scope: &Scope, hosts: &BTreeSet<&str>) -> bool {
    fn bare(name: &str) -> &str {
        name.strip_prefix("*.").unwrap_or(name)
    }
    match scope {
        Scope::Domain(domain) => hosts.iter().any(|host| {
            host.strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }),
        Scope::Set(names) => names.split(',').all(|name| hosts.contains(bare(name))),
        Scope::Failures(name) | Scope::InARow(name) => hosts.contains(bare(name)),
        Scope::Orders | Scope::Accounts | Scope::Requests(_) => false,
    }
}

fn next(next: &Next, notice: Option<&str>) -> String {
    let text = match next {
        Next::Issue(reason) => match reason {
            Reason::Missing => "getting it".to_owned(),
            Reason::Revoked => "replacing it at the CA's request".to_owned(),
            Reason::Forced => "renewing it as asked".to_owned(),
            Reason::Refused => "getting another one, since Envoy refuses the last".to_owned(),
            Reason::Changed => "replacing it by the issuer now configured".to_owned(),
            Reason::Expiring | Reason::Window | Reason::Renewal => "renewing it".to_owned(),
        },
        Next::Wait(because) => format!("waiting: {because}"),
        Next::Retry(class) => match class {
            Class::Transient => "trying again",
            Class::RateLimited => "trying again when the CA's limit allows it",
            Class::Paused => "trying again; resume the name at the CA first",
            Class::HostFault => {
                "trying again; correct the DNS of the name, or the server that answers for it"
            }
            Class::Policy => "trying again; the CA's policy refuses it, see the error",
            Class::Account => "trying again; correct the account of the issuer",
            Class::Config => "trying again; correct the configuration",
            Class::Bug => "trying again; report it if it stays",
        }
        .to_owned(),
        Next::Renew => "renewal".to_owned(),
    };
    match notice {
        Some(notice) => format!("{text}; {notice}"),
        None => text,
    }
}

/// Formats the report as table rows.
pub fn table(report: &Report, now: Timestamp) -> Vec<[String; 6]> {
    let mut rows =
        vec![["HOST", "ISSUER", "EXPIRES", "NEXT", "WHEN", "LAST ERROR"].map(str::to_owned)];
    rows.extend(report.certificates.iter().map(|row| {
        [
            row.hosts.join(","),
            match &row.issued_by {
                Some(by) => format!("{} (issued by {by})", row.issuer),
                None => row.issuer.clone(),
            },
            row.expires
                .map_or_else(dash, |at| at.strftime("%Y-%m-%d %H:%MZ").to_string()),
            row.next.clone(),
            row.at.map_or_else(dash, |at| away(at, now)),
            row.last_error.clone().unwrap_or_else(dash),
        ]
    }));
    rows
}

fn dash() -> String {
    "-".to_owned()
}

/// Formats the remaining limits, one line each.
pub fn limits(report: &Report, now: Timestamp) -> Vec<String> {
    let line = |budget: &Budget| {
        let more = budget
            .next
            .map(|at| format!(", more {}", away(at, now)))
            .unwrap_or_default();
        let reserved = match budget.reserved {
            0 => String::new(),
            n if budget.left == Some(n) => {
                ", all of them reserved for certificates about to end and for `certs renew`"
                    .to_owned()
            }
            n => format!(
                ", {n} of them reserved for certificates about to end and for `certs renew`"
            ),
        };
        let left = number(budget.left);
        let of = number(budget.of);
        format!(
            "{}: {}: {left} of {of} left{reserved}{more}",
            budget.issuer, budget.scope
        )
    };
    report.budgets.iter().map(line).collect()
}

fn number(n: Option<u32>) -> String {
    n.map_or_else(|| "?".to_owned(), |n| n.to_string())
}

/// Formats the result of a pre-flight check, one line per finding.
pub fn findings(check: &Check, now: Timestamp) -> Vec<String> {
    let hosts = check.hosts.join(",");
    let mut lines: Vec<String> = check
        .findings
        .iter()
        .map(|finding| format!("{hosts}: {finding}"))
        .collect();
    if lines.is_empty() {
        lines.push(format!(
            "{hosts}: no problem found for a certificate of {}",
            check.issuer
        ));
    }
    if let Some(error) = &check.last_error {
        lines.push(format!("{hosts}: the last attempt failed: {error}"));
        if let Some((next, at)) = &check.next {
            let when = at
                .map(|at| format!(" {}", away(at, now)))
                .unwrap_or_default();
            lines.push(format!(
                "{hosts}: next: {next}{when}; at once by `gatewright certs renew`"
            ));
        }
    }
    lines
}

/// Formats the problems that need an operator, one line each.
pub fn troubles(report: &Report) -> Vec<String> {
    report
        .troubles
        .iter()
        .map(|text| format!("! {text}"))
        .collect()
}

/// Formats the time until a moment, in one unit.
fn away(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.duration_since(now).as_secs();
    if seconds <= 0 {
        return "now".to_owned();
    }
    match seconds {
        0..120 => format!("in {seconds} s"),
        120..7200 => format!("in {} min", seconds / 60),
        7200..172_800 => format!("in {} h", seconds / 3600),
        _ => format!("in {} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_sees_its_certificates_and_the_limits_that_count_its_names() {
        let row = |secret: &str, host: &str| Row {
            hosts: vec![host.to_owned()],
            secret: secret.to_owned(),
            issuer: "acme".to_owned(),
            issued_by: None,
            expires: None,
            next: "renewal".to_owned(),
            at: None,
            last_error: None,
        };
        let budget = |scope: Scope| Budget {
            issuer: "acme".to_owned(),
            scope: scope.to_string(),
            counted: Some(scope),
            left: Some(1),
            reserved: 0,
            of: Some(2),
            next: None,
        };
        let own = [
            Scope::Domain("example.org".to_owned()),
            Scope::Set("*.shop.example.org".to_owned()),
            Scope::Failures("shop.example.org".to_owned()),
        ];
        let others = [
            Scope::Orders,
            Scope::Domain("le.org".to_owned()),
            Scope::Set("shop.example.org,theirs.example.org".to_owned()),
            Scope::InARow("theirs.example.org".to_owned()),
        ];
        let report = Report {
            certificates: vec![
                row("shop/tls", "*.shop.example.org"),
                row("shop-2/tls", "theirs.example.org"),
            ],
            budgets: own.iter().chain(&others).cloned().map(budget).collect(),
            troubles: vec!["issuer theirs waits".to_owned()],
        };
        let seen = report.seen_by("shop");
        assert_eq!(seen.certificates, [row("shop/tls", "*.shop.example.org")]);
        assert_eq!(seen.budgets, own.map(budget));
        assert!(seen.troubles.is_empty(), "{:?}", seen.troubles);
    }

    #[test]
    fn moments_are_told_in_one_unit() {
        let now = Timestamp::from_second(1_000_000_000).expect("a time");
        fn at(s: i64, now: &Timestamp) -> String {
            away(
                Timestamp::from_second(1_000_000_000 + s).expect("a time"),
                *now,
            )
        }
        assert_eq!(
            [
                at(-5, &now),
                at(60, &now),
                at(600, &now),
                at(9000, &now),
                at(200_000, &now)
            ],
            ["now", "in 60 s", "in 10 min", "in 2 h", "in 2 days"]
        );
    }
}
