//! The xDS server of the fleets, over mutual TLS, with keys out of Secrets that are replaced while it runs.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;
use tracing::{info, warn};
use xds::{Cache, Certificates, Fingerprint, Limits, Server, ServerTls, TlsError, Views};

use super::XDS_NAME;
use super::last_good::Shown;
use crate::cli;
use gatewright_control::envoys::RevokeRequest;
use gatewright_core::model::EnvoyFleet;
use gatewright_kubernetes::keys::{self, CaRotation, Keys, KeysError};
use gatewright_kubernetes::lease::{Term, leads};

/// How often the Secrets are looked at: one or two reads.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The key of the last good state is looked at once in so many looks.
const SEAL: u32 = 30;

/// The xDS server of the fleet.
pub(super) struct Xds {
    pub(super) client: Client,
    pub(super) options: cli::Controller,
    pub(super) cache: Cache,
    /// What Envoys of the fleet see.
    pub(super) views: Views,
    /// What is shown until the Secrets can be read: that of the last good state.
    pub(super) kept: Option<Shown>,
    /// Where what is shown is told.
    pub(super) shown: watch::Sender<Option<Shown>>,
    /// Certificates that are to be refused from now on.
    pub(super) revocations: mpsc::Receiver<RevokeRequest>,
}

impl Xds {
    /// Serves until it is told to stop; the holder of the Lease has the Secrets as they should be meanwhile.
    pub(super) async fn serve(mut self, term: watch::Receiver<Term>, mut stop: watch::Receiver<bool>) -> Result<()> {
        let overlap = Duration::from_secs(self.options.xds_ca_overlap);
        let mut tending = Tending {
            keys: Keys::new(self.client, &self.options.namespace, overlap),
            namespace: self.options.namespace.clone(),
            term,
            told: BTreeMap::new(),
        };
        let (mut trust, first) = match self.kept {
            Some(kept) => (None, kept),
            None => tokio::select! {
                trust = tending.first() => {
                    let shown = shown(&trust)?;
                    self.shown.send_replace(Some(shown.clone()));
                    (Some(trust), shown)
                }
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
            },
        };
        let tls = ServerTls::mutual(&first.pair, &first.roots)?;
        let mut refused = first.revoked;
        tls.revoke(refused.clone());
        let address = self.options.xds;
        let listener = TcpListener::bind(address).await.with_context(|| format!("--xds {address}"))?;
        info!("xDS at {}", listener.local_addr()?);
        let limits = Limits {
            on_demand_secrets: self.options.edge.envoy_certificates,
            streams_per_identity: self.options.ports.xds_streams_per_fleet as usize,
            streams_per_address: self.options.ports.xds_streams_per_address as usize,
            streams_per_network: self.options.ports.xds_streams_per_address as usize * 16,
            ..Default::default()
        };
        let server = Server::new(self.cache, Certificates::new(self.views)).with_limits(limits);
        let (keeps, fleets) = (self.options.keeping.last_good.is_some(), self.options.dedicated.fleets());
        let mut stopped = stop.clone();
        let serving = server.serve_tls(listener, tls.clone(), async move {
            // An error means that whoever could stop us is gone.
            let _ = stopped.wait_for(|stop| *stop).await;
        });
        let tending = async {
            let (mut since, mut looks) = (SystemTime::now(), 0_u32);
            loop {
                if let Some(trust) = &trust {
                    for fleet in &fleets {
                        tending.envoy(trust, *fleet).await;
                    }
                    if keeps && looks.is_multiple_of(SEAL) {
                        tending.seal().await;
                    }
                }
                let revoked = tokio::select! {
                    () = sleep(POLL_INTERVAL) => None,
                    Some(request) = self.revocations.recv() => tending.revoke(request).await,
                };
                looks = looks.wrapping_add(1);
                let looked = tending.look(trust.as_ref()).await;
                if let Some(new) = &looked {
                    refused = new.revoked().credentials();
                }
                // A recorded credential is refused at once by this process, also where the record cannot be read back now,
                // and the answer says so.
                let answer = revoked.map(|(credential, answer)| {
                    refused.insert(credential);
                    answer
                });
                tls.revoke(refused.clone());
                if let Some(answer) = answer {
                    // Whoever asked may be gone.
                    let _ = answer.send(Ok(()));
                }
                let Some(new) = looked else { continue };
                let due = since.elapsed().unwrap_or_default() > keys::SERVER / 3;
                let is_same = trust.as_ref().is_some_and(|trust| new.same(trust));
                if !due && is_same {
                    continue;
                }
                let rotated = shown(&new).and_then(|shown| {
                    tls.rotate(&shown.pair, &shown.roots)?;
                    Ok(shown)
                });
                match rotated {
                    Ok(shown) => {
                        if !is_same {
                            info!("authority of xDS is {}", new.step());
                        }
                        self.shown.send_replace(Some(shown));
                        (trust, since) = (Some(new), SystemTime::now());
                    }
                    Err(error) => warn!("{error}"),
                }
            }
        };
        tokio::select! {
            () = serving => Ok(()),
            never = tending => never,
        }
    }
}

/// What the server shows, and whom it takes.
fn shown(trust: &CaRotation) -> Result<Shown, TlsError> {
    let now = SystemTime::now();
    let pair = trust.signer().issue_server(&[XDS_NAME.to_owned()], keys::SERVER.min(trust.left(now)), now)?;
    Ok(Shown { pair, roots: trust.bundle(), revoked: trust.revoked().credentials() })
}

/// The Secrets, and what was said of them last.
struct Tending {
    keys: Keys,
    namespace: String,
    term: watch::Receiver<Term>,
    told: BTreeMap<&'static str, String>,
}

impl Tending {
    /// The authority, as soon as there is one: the holder of the Lease makes it.
    async fn first(&mut self) -> CaRotation {
        loop {
            if let Some(trust) = self.look(None).await {
                return trust;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    async fn look(&mut self, known: Option<&CaRotation>) -> Option<CaRotation> {
        let may_write = leads(*self.term.borrow());
        match self.keys.look(known, may_write).await {
            Ok(trust) => {
                self.told.remove(keys::AUTHORITY);
                trust
            }
            Err(error) => {
                self.tell(keys::AUTHORITY, &error);
                None
            }
        }
    }

    /// Records that a certificate is refused. Returns which, and whom to tell once it is; otherwise they are told why not.
    async fn revoke(&mut self, request: RevokeRequest) -> Option<(Fingerprint, oneshot::Sender<Result<(), String>>)> {
        let RevokeRequest { credential, name, answer } = request;
        let may_write = leads(*self.term.borrow());
        let outcome = match may_write {
            true => self.keys.revoke(&credential, &name).await.map_err(|error| error.to_string()),
            false => Err(format!(
                "this replica does not hold the lease, and writes nothing: ask the one that does for \
                 `gatewright envoys revoke {credential}`"
            )),
        };
        match outcome {
            Ok(()) => {
                warn!(%credential, name, "certificate revoked");
                Some((credential, answer))
            }
            Err(why) => {
                // Whoever asked may be gone.
                let _ = answer.send(Err(why));
                None
            }
        }
    }

    async fn envoy(&mut self, trust: &CaRotation, fleet: EnvoyFleet) {
        let secret = keys::secret_of(fleet);
        if !leads(*self.term.borrow()) {
            return;
        }
        match self.keys.envoy(trust, fleet).await {
            Ok(true) => info!("secret {}/{secret} is new", self.namespace),
            Ok(false) => drop(self.told.remove(secret)),
            Err(error) => self.tell(secret, &error),
        }
    }

    async fn seal(&mut self) {
        if !leads(*self.term.borrow()) {
            return;
        }
        match self.keys.seal().await {
            Ok(true) => info!("secret {}/{} is new", self.namespace, keys::SEAL),
            Ok(false) => drop(self.told.remove(keys::SEAL)),
            Err(error) => self.tell(keys::SEAL, &error),
        }
    }

    /// Says what is wrong, once.
    fn tell(&mut self, about: &'static str, error: &KeysError) {
        let error = error.to_string();
        if self.told.get(about) != Some(&error) {
            warn!("{error}");
            self.told.insert(about, error);
        }
    }
}
