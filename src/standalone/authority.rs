//! Making the certificates that listeners wish for, by the internal CA.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use acme::internal_ca::{Constraints, InternalCa, InternalCaConfig};
use acme::{CertificateId, IssueRequest, Issuer, Names};
use jiff::Timestamp;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::Site;
use crate::inputs::{Object, Secret, parse_certificate};
use crate::model::Certificate;
use crate::translate::{Change, INTERNAL_CA, Wish};

/// How often certificates are looked at.
const PERIOD: Duration = Duration::from_secs(60);

/// The certificate authority of a standalone gateway.
pub struct Authority {
    ca: Arc<InternalCa>,
}

impl Authority {
    /// Opens the CA in a directory, or makes one there that may issue for these domains only.
    ///
    /// # Errors
    /// When the directory cannot be used, or a domain is none.
    pub fn open(directory: &Path, domains: &[String]) -> Result<Self, acme::internal_ca::CaError> {
        let constraints = Constraints::permit(domains)?;
        let config = InternalCaConfig::new(INTERNAL_CA, directory, constraints);
        Ok(Self { ca: Arc::new(InternalCa::open(config, Timestamp::now())?) })
    }

    /// The roots that clients are to trust, as a file.
    pub fn bundle(&self) -> PathBuf {
        self.ca.bundle_path()
    }

    /// Issues what is wished for and not there, or due: past two thirds of its life. What was issued.
    pub async fn tend(&self, wishes: Vec<(Wish, Option<Arc<Certificate>>)>, now: SystemTime) -> Vec<Change> {
        let mut tasks = JoinSet::new();
        for (wish, held) in wishes {
            if held.is_some_and(|held| !due(&held, now)) || wish.issuer != INTERNAL_CA {
                continue;
            }
            let ca = self.ca.clone();
            tasks.spawn(async move {
                let result = issue(&ca, &wish).await;
                (wish, result)
            });
        }
        let mut changes = Vec::new();
        while let Some(done) = tasks.join_next().await {
            match done {
                Ok((wish, Ok(secret))) => {
                    info!(hostname = %wish.hostname, "certificate issued");
                    changes.push(Change::Put(Object::Secret(secret)));
                }
                Ok((wish, Err(text))) => warn!(hostname = %wish.hostname, "no certificate: {text}"),
                Err(error) => warn!("issuing was cut off: {error}"),
            }
        }
        changes
    }

    /// Issues whenever a wish appears or a certificate is due, and hands the Secrets over. Ends by being dropped.
    pub async fn run(&self, site: Arc<Site>, apply: impl AsyncFn(Vec<Change>)) {
        let mut wishes = site.watch_wishes();
        loop {
            wishes.borrow_and_update();
            let changes = self.tend(site.wishes(), SystemTime::now()).await;
            if !changes.is_empty() {
                apply(changes).await;
            }
            tokio::select! {
                changed = wishes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
    }
}

/// Whether two thirds of a certificate's life are over.
fn due(held: &Certificate, now: SystemTime) -> bool {
    let life = held.not_after.duration_since(held.not_before).unwrap_or_default();
    now >= held.not_before + life * 2 / 3
}

async fn issue(ca: &InternalCa, wish: &Wish) -> Result<Secret, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let names = Names::parse([wish.hostname.as_str()]).map_err(|error| text(&error))?;
    let id = CertificateId::of(&wish.secret.namespace, &names);
    let request = IssueRequest::new(id, names, Timestamp::now());
    let issued = ca.issue(&request).await.map_err(|error| text(&error))?;
    let certificate = parse_certificate(issued.chain_pem.as_bytes(), issued.key_pem.expose().as_bytes())
        .map_err(|error| text(&error))?;
    Ok(Secret { name: wish.secret.clone(), certificate: Ok(Arc::new(certificate)) })
}
