//! What an administrator asks of the manager: a report, metrics, a renewal.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::issuers::Opened;
use super::super::metrics::CertificateMetrics;
use super::super::report::Report;
use super::check::wanted_by;
use super::{CertificateManager, id_of};

impl CertificateManager {
    /// Returns the report about all certificates.
    pub fn tell(&self) -> Report {
        let now = Timestamp::now();
        let pass = self.report.borrow().clone();
        let budgets = self.keeper.limits();
        self.requests(|requests| {
            requests.expire(now);
            Report::of(
                &requests.wants(),
                &pass,
                requests.held_certificates(),
                &budgets,
                &|want| self.resolve(&want.issuer).map(|issuer| issuer.id),
                now,
            )
        })
        .with_troubles(
            [
                self.named.troubles(),
                self.authority.troubles(),
                self.keeper.storage_problems(),
            ]
            .concat(),
        )
    }

    /// Returns the metrics for Prometheus.
    pub fn metrics(&self) -> CertificateMetrics {
        // A copy, so that no two locks are held at a time.
        let own: Vec<Opened> = {
            let own = self.own.lock().expect("nobody panics while holding it");
            own.values()
                .filter_map(|own| own.opened.as_ref().ok().cloned())
                .collect()
        };
        let mut requests = BTreeMap::new();
        let named = self.named.opened();
        for opened in named.iter().map(|(_, opened)| opened).chain(&own) {
            for issuer in std::iter::once(&opened.issuer).chain(&opened.trial) {
                for (key, count) in issuer.http().counts() {
                    *requests.entry(key).or_default() += count;
                }
            }
        }
        CertificateMetrics {
            wants: self.requests(|requests| requests.counts()),
            requests,
        }
    }

    /// Forces new certificates for a host. Returns their number.
    ///
    /// # Errors
    /// When no certificate is wanted for the host.
    pub fn renew(&self, host: &str) -> Result<usize, String> {
        let asked = wanted_by(host, &self.requests(|requests| requests.wants()))?;
        for want in &asked {
            let names = want.names().map_err(|error| error.to_string())?;
            self.keeper.renew(&id_of(want, &names));
        }
        Ok(asked.len())
    }
}
