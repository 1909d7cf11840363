//! The xDS server of the fleet, over mutual TLS, with keys out of Secrets that are replaced while it runs.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};
use xds::{Cache, Certificates, Limits, Server, ServerTls, TlsError, View, Views};

use super::XDS_NAME;
use crate::cli;
use crate::kubernetes::keys::{self, Keys, KeysError, Trust};
use crate::kubernetes::lease::{Term, leads};

/// How often the Secrets are looked at: one or two reads.
const LOOK: Duration = Duration::from_secs(2);

/// The xDS server of the fleet.
pub(super) struct Xds {
    pub(super) client: Client,
    pub(super) options: cli::Controller,
    pub(super) cache: Cache,
    pub(super) view: View,
}

impl Xds {
    /// Serves until it is told to stop; the holder of the Lease has the Secrets as they should be meanwhile.
    pub(super) async fn serve(self, term: watch::Receiver<Term>, mut stop: watch::Receiver<bool>) -> Result<()> {
        let overlap = Duration::from_secs(self.options.xds_ca_overlap);
        let mut tending = Tending {
            keys: Keys::new(self.client, &self.options.namespace, overlap),
            namespace: self.options.namespace.clone(),
            term,
            told: BTreeMap::new(),
        };
        let mut trust = tokio::select! {
            trust = tending.first() => trust,
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        };
        let tls = ServerTls::new(&pair(&trust)?, &trust.bundle())?;
        let address = self.options.xds;
        let listener = TcpListener::bind(address).await.with_context(|| format!("--xds {address}"))?;
        info!("xDS at {}", listener.local_addr()?);
        let views = Views::new();
        views.allow(keys::FLEET, self.view);
        let limits = Limits { on_demand_secrets: self.options.edge.envoy_certificates, ..Default::default() };
        let server = Server::new(self.cache, Certificates::new(views)).with_limits(limits);
        let mut stopped = stop.clone();
        let serving = server.serve_tls(listener, tls.clone(), async move {
            // An error means that whoever could stop us is gone.
            let _ = stopped.wait_for(|stop| *stop).await;
        });
        let tending = async {
            let mut shown = SystemTime::now();
            loop {
                tending.envoy(&trust).await;
                sleep(LOOK).await;
                let Some(new) = tending.look(Some(&trust)).await else { continue };
                let due = shown.elapsed().unwrap_or_default() > keys::SERVER / 3;
                if !due && new.same(&trust) {
                    continue;
                }
                match pair(&new).and_then(|pair| tls.rotate(&pair, &new.bundle())) {
                    Ok(()) => {
                        if !new.same(&trust) {
                            info!("authority of xDS is {}", new.step());
                        }
                        (trust, shown) = (new, SystemTime::now());
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

/// What the server shows.
fn pair(trust: &Trust) -> Result<xds::Pair, TlsError> {
    let now = SystemTime::now();
    trust.signer().issue_server(&[XDS_NAME.to_owned()], keys::SERVER.min(trust.left(now)), now)
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
    async fn first(&mut self) -> Trust {
        loop {
            if let Some(trust) = self.look(None).await {
                return trust;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    async fn look(&mut self, known: Option<&Trust>) -> Option<Trust> {
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

    async fn envoy(&mut self, trust: &Trust) {
        if !leads(*self.term.borrow()) {
            return;
        }
        match self.keys.envoy(trust).await {
            Ok(true) => info!("secret {}/{} is new", self.namespace, keys::ENVOY),
            Ok(false) => drop(self.told.remove(keys::ENVOY)),
            Err(error) => self.tell(keys::ENVOY, &error),
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
