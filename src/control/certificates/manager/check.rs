//! The pre-flight check of a certificate on demand: `gatewright certs check`.

use acme::failure::Failure;
use acme::{CertificateId, Class, DnsName};
use futures::future::join_all;
use gatewright_core::model::Hostname;

use super::{CertificateManager, id_of};
use crate::certificates::issuers::Opened;
use crate::certificates::report::{Check, Report};
use crate::certificates::request::{CertificateRequest, IssuerRef};

impl CertificateManager {
    /// Runs only the pre-flight check for a host, and returns its findings and the error of the
    /// last attempt. No order is placed at the CA.
    ///
    /// # Errors
    /// When no certificate is wanted for the host.
    pub async fn check(&self, host: &str) -> Result<Vec<Check>, String> {
        let asked = wanted_by(host, &self.requests(|requests| requests.wants()))?;
        let report = self.tell();
        Ok(join_all(asked.iter().map(|want| self.check_one(want, &report))).await)
    }

    async fn check_one(&self, want: &CertificateRequest, report: &Report) -> Check {
        let (issuer, findings) = match (self.resolve(&want.issuer), self.opened_for(&want.issuer)) {
            (Err(text), _) => (String::new(), vec![text]),
            (Ok(resolved), None) => (resolved.id, Vec::new()),
            (Ok(resolved), Some(opened)) => {
                let found = join_all(want.hostnames.iter().map(|name| look(&opened, name))).await;
                (
                    resolved.id,
                    found
                        .into_iter()
                        .flat_map(|found| found.unwrap_or_else(|failure| vec![failure.message]))
                        .collect(),
                )
            }
        };
        let secret = want.secret.to_string();
        let has_failed = want
            .names()
            .is_ok_and(|names| planned(&id_of(want, &names), &self.keeper));
        let row = report
            .certificates
            .iter()
            .find(|row| row.secret == secret)
            .filter(|_| has_failed);
        Check {
            hosts: want.hostnames.iter().map(ToString::to_string).collect(),
            issuer,
            findings,
            last_error: row.and_then(|row| row.last_error.clone()),
            next: row.map(|row| (row.next.clone(), row.at)),
        }
    }

    fn opened_for(&self, issuer: &IssuerRef) -> Option<Opened> {
        match issuer {
            IssuerRef::Named(name) => self.named.get(name).and_then(Result::ok),
            IssuerRef::Own { owner, .. } => {
                let own = self.own.lock().expect("nobody panics while holding it");
                own.get(owner)
                    .and_then(|own| own.opened.as_ref().ok().cloned())
            }
        }
    }
}

/// A failure of the planning alone would repeat the findings of this check.
fn planned(id: &CertificateId, keeper: &std::sync::Arc<acme::keeper::Keeper>) -> bool {
    keeper.last_failure(id).is_some()
}

/// Returns the message for a host for which no issuer is to issue a certificate.
pub(super) fn not_wanted(name: &DnsName) -> String {
    format!(
        "no listener wants a certificate for {name} from an issuer: see `gatewright certs`; the certificate of a \
         listener's certificateRefs is managed by others: `gatewright explain https://{name}:PORT/` shows it"
    )
}

async fn look(opened: &Opened, name: &Hostname) -> Result<Vec<String>, Failure> {
    let name = DnsName::parse(name.as_str())
        .map_err(|error| Failure::new(Class::Config, error.to_string()))?;
    opened.issuer.findings(&name).await
}

pub(super) fn wanted_by(
    host: &str,
    wants: &[CertificateRequest],
) -> Result<Vec<CertificateRequest>, String> {
    let name = DnsName::parse(host).map_err(|error| error.to_string())?;
    let mut asked: Vec<CertificateRequest> = wants
        .iter()
        .filter(|want| want.names().is_ok_and(|names| names.contains(&name)))
        .cloned()
        .collect();
    if asked.is_empty() {
        asked = wants
            .iter()
            .filter(|want| want.covers(&name))
            .cloned()
            .collect();
    }
    if asked.is_empty() {
        Err(not_wanted(&name))
    } else {
        Ok(asked)
    }
}
