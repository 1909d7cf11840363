//! The table of served hosts, printed once they are served: each host is checked as a client would.

use std::io::{self, Write};

use anyhow::{Result, bail};
use jiff::Timestamp;

use super::runtime::StandaloneRuntime;
use crate::standalone::{check, example};
use crate::table::table;
use gatewright_control::{losers, tenants};
use gatewright_core::translate::Protocol;

impl StandaloneRuntime {
    /// Checks every host and prints the table. Returns `Ok(false)` when a host was not served.
    pub(super) async fn show(&self) -> Result<bool> {
        let mut rows =
            vec![["HOST", "TENANTS", "CERTIFICATE", "UNTIL", "ANSWER"].map(str::to_owned)];
        let mut good = true;
        let mut curl = None;
        for host in self.live.engine().hosts() {
            let tls = host.protocol != Protocol::Http;
            let scheme = if tls { "https" } else { "http" };
            let name = example(&host);
            let answer = match check(&host).await {
                Ok(answer) => {
                    good &= answer.is_good();
                    answer.to_string()
                }
                Err(error) => {
                    good = false;
                    error.to_string()
                }
            };
            let (issuer, until) = match &host.certificate {
                Some(held) => {
                    let until = Timestamp::try_from(held.not_after).unwrap_or_default();
                    (
                        held.issuer.to_string(),
                        until.strftime("%Y-%m-%d").to_string(),
                    )
                }
                None if host.protocol == Protocol::TlsPassthrough => {
                    ("the backend's own".to_owned(), "-".to_owned())
                }
                None => ("-".to_owned(), "-".to_owned()),
            };
            let port = host.frontend.port;
            if tls && host.certificate.is_some() && curl.is_none() {
                let ip = host
                    .addresses
                    .first()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let ca = self.bundle.display();
                curl = Some(format!(
                    "curl --resolve {name}:{port}:{ip} --cacert {ca} https://{name}:{port}/"
                ));
            }
            let tenants = tenants(self.live.pipeline(), &host);
            rows.push([
                format!("{scheme}://{}:{port}", host.hostname),
                tenants,
                issuer,
                until,
                answer,
            ]);
        }
        if rows.len() == 1 {
            bail!("nothing is served");
        }
        let mut out = io::stdout().lock();
        write!(out, "{}", table(&rows))?;
        for line in losers(self.live.pipeline()) {
            writeln!(out, "{line}")?;
        }
        if let Some(curl) = curl {
            writeln!(out, "\n{curl}")?;
        }
        out.flush()?;
        Ok(good)
    }
}
