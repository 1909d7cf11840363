//! The xDS server of the fleets with mutual TLS, with keys from Secrets that are replaced while it
//! runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use kube::Client;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;
use tracing::{info, warn};
use xds::{Cache, Limits, RevokedClients, Server, ServerTls, TlsError, Views};

use super::XDS_NAME;
use super::last_good::Shown;
use crate::cli;
use crate::configuration::Configuration;
use crate::listening::listen;
use gatewright_control::FailureReports;
use gatewright_control::envoy_identity::{EnvoyPod, PodIdentity};
use gatewright_control::envoys::{Revoke, RevokeRequest};
use gatewright_control::event::XDS_KEYS;
use gatewright_core::model::EnvoyFleet;
use gatewright_kubernetes::keys::{self, CaRotation, EnvoyAccounts, Keys, KeysError, Signing};
use gatewright_kubernetes::lease::{Term, leads};

/// The interval at which the Secrets are read: one or two requests.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The key of the last good state is read at every such number of intervals.
const SEAL: u32 = 30;

/// The xDS server of the fleets.
pub(super) struct Xds {
    pub(super) client: Client,
    pub(super) options: cli::Controller,
    pub(super) configuration: Configuration,
    /// The service accounts whose pods are Envoys.
    pub(super) accounts: EnvoyAccounts,
    pub(super) cache: Cache,
    /// What Envoys report about backends.
    pub(super) reports: FailureReports,
    /// The views that each identity is admitted to.
    pub(super) views: Views,
    /// The certificates that are used until the Secrets can be read: those of the last good state.
    pub(super) kept: Option<Shown>,
    /// The channel for the certificates in use.
    pub(super) shown: watch::Sender<Option<Shown>>,
    /// The channel for the authority that signs certificates of pods.
    pub(super) signing: watch::Sender<Option<Signing>>,
    /// The requests to revoke clients.
    pub(super) revocations: mpsc::Receiver<RevokeRequest>,
}

impl Xds {
    /// Serves until `stop`; meanwhile the lease holder keeps the Secrets in the desired state.
    pub(super) async fn serve(
        mut self,
        term: watch::Receiver<Term>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<()> {
        let overlap = Duration::from_secs(self.configuration.envoys.ca_overlap_seconds);
        let fleets = self.accounts.fleets.clone();
        let credentials = self.configuration.envoys.credentials;
        let mut tending = Tending {
            keys: Keys::new(self.client, &self.options.namespace, overlap),
            namespace: self.options.namespace.clone(),
            accounts: self.accounts.clone(),
            term,
            logged: BTreeMap::new(),
        };
        let publish = |trust: &CaRotation, now: &Shown| -> Result<(), TlsError> {
            self.signing
                .send_replace(Some(Signing::new(trust.clone(), &now.pair)?));
            self.shown.send_replace(Some(now.clone()));
            Ok(())
        };
        let (mut trust, first) = match self.kept {
            Some(kept) => (None, kept),
            None => tokio::select! {
                trust = tending.first() => {
                    let shown = shown(&trust)?;
                    publish(&trust, &shown)?;
                    (Some(trust), shown)
                }
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
            },
        };
        let tls = ServerTls::mutual(&first.pair, &first.roots)?;
        let mut refused: RevokedClients = first.revoked;
        tls.revoke(refused.clone());
        let address = self.options.xds;
        let listener = listen(address)
            .await
            .with_context(|| format!("--xds {address}"))?;
        info!("xDS at {}", listener.local_addr()?);
        let streams = self.configuration.envoys.streams;
        let limits = Limits {
            on_demand_secrets: self.configuration.envoys.host_certificates,
            on_demand_secret_memory: self.configuration.envoys.certificate_memory(),
            streams_per_identity: streams.per_fleet as usize,
            streams_per_instance: streams.per_pod as usize,
            streams_per_address: streams.per_address as usize,
            streams_per_network: streams.per_address as usize * 16,
            is_temporary: gatewright_envoy::is_bind_error,
            ..Default::default()
        };
        let server = Server::new(self.cache, credentials.certificates(self.views))
            .with_limits(limits)
            .reporting(Arc::new(self.reports));
        let keeps = self.options.keeping.last_good.is_some();
        let mut stopped = stop.clone();
        let serving = server.serve_tls(listener, tls.clone(), async move {
            // An error means that the sender was dropped.
            let _ = stopped.wait_for(|stop| *stop).await;
        });
        let tending = async {
            let mut since = SystemTime::now();
            let mut looks = 0_u32;
            loop {
                if let Some(trust) = &trust {
                    for fleet in fleets.iter().filter(|_| credentials.of_fleets()) {
                        tending.envoy(trust, fleet).await;
                    }
                    if credentials.of_pods() {
                        tending.roots(trust).await;
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
                let reconciled = tending.reconcile(trust.as_ref()).await;
                if let Some(new) = &reconciled {
                    refused = new.revoked().clients();
                }
                // A recorded revocation takes effect at once in this process, even if the Secret
                // cannot be read again now, and the answer says so.
                let answer = revoked.map(|(who, said, answer)| {
                    match who {
                        Revoke::Certificate { credential, .. } => {
                            refused.certificates.insert(credential);
                        }
                        Revoke::Pod(identity) => {
                            refused.names.insert(identity.to_string());
                        }
                        Revoke::PodNamed(_) => {}
                    }
                    (said, answer)
                });
                tls.revoke(refused.clone());
                if let Some((said, answer)) = answer {
                    // The receiver may be gone.
                    let _ = answer.send(Ok(said));
                }
                let Some(new) = reconciled else { continue };
                // If the clock was ahead when the certificate was issued, its validity begins in
                // the future.
                let due = since.elapsed().map_or(true, |age| age > keys::SERVER / 3);
                let is_same = trust.as_ref().is_some_and(|trust| new.same(trust));
                if !due && is_same {
                    continue;
                }
                let rotated = shown(&new).and_then(|shown| {
                    tls.rotate(&shown.pair, &shown.roots)?;
                    publish(&new, &shown)
                });
                match rotated {
                    Ok(()) => {
                        if !is_same {
                            info!(event = XDS_KEYS, step = %new.step(), "xDS CA: {}", new.step());
                        }
                        (trust, since) = (Some(new), SystemTime::now());
                    }
                    Err(error) => warn!(event = XDS_KEYS, "{error}"),
                }
            }
        };
        tokio::select! {
            () = serving => Ok(()),
            never = tending => never,
        }
    }
}

/// Issues the server certificate, and returns it with the roots and revocations of clients.
fn shown(trust: &CaRotation) -> Result<Shown, TlsError> {
    let now = SystemTime::now();
    let pair = trust.signer().issue_server(
        &[XDS_NAME.to_owned()],
        keys::SERVER.min(trust.left(now)),
        now,
    )?;
    Ok(Shown {
        pair,
        roots: trust.bundle(),
        revoked: trust.revoked().clients(),
    })
}

/// The revoked client, the answer, and the channel for it.
type Revoked = (Revoke, String, oneshot::Sender<Result<String, String>>);

fn text(error: KeysError) -> String {
    error.to_string()
}

/// Returns the message about a client that is now revoked.
pub(crate) fn said(who: &Revoke) -> String {
    match who {
        Revoke::Certificate { credential, name } if *name == credential.to_string() => {
            format!("certificate {credential} is revoked")
        }
        Revoke::Certificate { credential, name } => {
            format!("certificate {credential} of {name} is revoked")
        }
        Revoke::PodNamed(name) => format!("pod {name} is revoked"),
        Revoke::Pod(PodIdentity { pod, .. }) => {
            let EnvoyPod {
                namespace,
                name,
                uid,
                node,
            } = pod;
            format!(
                "pod {namespace}/{name} (UID {uid}) on node {node} is revoked: it continues to serve its configuration; to \
                 replace it: kubectl -n {namespace} delete pod {name}"
            )
        }
    }
}

/// The Secrets, and the last errors about them.
struct Tending {
    keys: Keys,
    namespace: String,
    accounts: EnvoyAccounts,
    term: watch::Receiver<Term>,
    logged: BTreeMap<String, String>,
}

impl Tending {
    /// Returns the authority, as soon as the lease holder has created it.
    async fn first(&mut self) -> CaRotation {
        loop {
            if let Some(trust) = self.reconcile(None).await {
                return trust;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    async fn reconcile(&mut self, known: Option<&CaRotation>) -> Option<CaRotation> {
        let may_write = leads(*self.term.borrow());
        match self.keys.reconcile(known, may_write).await {
            Ok(trust) => {
                self.logged.remove(keys::AUTHORITY);
                trust
            }
            Err(error) => {
                self.tell(keys::AUTHORITY, &error);
                None
            }
        }
    }

    /// Records a revocation. Returns the client and the answer for the caller; after a failure the
    /// answer is sent here.
    async fn revoke(&mut self, request: RevokeRequest) -> Option<Revoked> {
        let RevokeRequest { who, answer } = request;
        let done = async {
            let who = match who {
                Revoke::PodNamed(name) => {
                    Revoke::Pod(self.keys.pod(&name, &self.accounts).await.map_err(text)?)
                }
                known => known,
            };
            let may_write = leads(*self.term.borrow());
            if !may_write {
                let named = match &who {
                    Revoke::Certificate { credential, .. } => credential.to_string(),
                    Revoke::Pod(identity) => identity.pod.name.clone(),
                    Revoke::PodNamed(name) => name.clone(),
                };
                return Err(format!(
                    "this replica does not hold the lease: run `gatewright envoys revoke {named}` at the lease holder"
                ));
            }
            self.keys.revoke(&who).await.map_err(text)?;
            Ok(who)
        };
        match done.await {
            Ok(who) => {
                let said = said(&who);
                warn!(event = XDS_KEYS, "{said}");
                Some((who, said, answer))
            }
            Err(why) => {
                // The receiver may be gone.
                let _ = answer.send(Err(why));
                None
            }
        }
    }

    async fn envoy(&mut self, trust: &CaRotation, fleet: &EnvoyFleet) {
        let Some(secret) = keys::secret_of(fleet) else {
            return;
        };
        if !leads(*self.term.borrow()) {
            return;
        }
        match self.keys.envoy(trust, fleet).await {
            Ok(true) => self.tell_new("secret", secret),
            Ok(false) => {
                self.logged.remove(secret);
            }
            Err(error) => self.tell(secret, &error),
        }
    }

    async fn roots(&mut self, trust: &CaRotation) {
        if !leads(*self.term.borrow()) {
            return;
        }
        match self.keys.roots(trust).await {
            Ok(true) => self.tell_new("configmap", keys::ROOTS),
            Ok(false) => {
                self.logged.remove(keys::ROOTS);
            }
            Err(error) => self.tell(keys::ROOTS, &error),
        }
    }

    async fn seal(&mut self) {
        if !leads(*self.term.borrow()) {
            return;
        }
        match self.keys.seal().await {
            Ok(true) => self.tell_new("secret", keys::SEAL),
            Ok(false) => {
                self.logged.remove(keys::SEAL);
            }
            Err(error) => self.tell(keys::SEAL, &error),
        }
    }

    fn tell_new(&self, kind: &str, name: &str) {
        let object = format!("{kind} {}/{name}", self.namespace);
        info!(event = XDS_KEYS, object, "{object} is new");
    }

    /// Logs an error, once.
    fn tell(&mut self, about: &str, error: &KeysError) {
        let error = error.to_string();
        if self.logged.get(about) != Some(&error) {
            warn!(event = XDS_KEYS, "{error}");
            self.logged.insert(about.to_owned(), error);
        }
    }
}
