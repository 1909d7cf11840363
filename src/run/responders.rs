//! The responders of the program itself to ACME challenges, on sockets of their own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use tokio::net::TcpListener;
use tracing::info;

use crate::wiring::Wiring;
use gatewright_control::certificates::{self, CertificateManager, TlsAlpnResponder};
use gatewright_core::translate::{Change, OwnSocket};

/// The responders, which are not served yet.
pub(super) struct Responders {
    /// TLS-ALPN-01, which Envoys reach by a Service.
    tls_alpn: Option<(Arc<TlsAlpnResponder>, TcpListener)>,
    /// HTTP-01, for other data planes.
    http: Option<TcpListener>,
}

impl Responders {
    /// Binds the sockets of those that are needed.
    ///
    /// # Errors
    /// When an address is not available.
    pub(super) async fn bind(
        manager: &CertificateManager,
        http: Option<SocketAddr>,
    ) -> Result<Self> {
        let tls_alpn = match manager.tls_alpn_responder() {
            Some(responder) => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                    .await
                    .context("TLS-ALPN-01")?;
                Some((responder, listener))
            }
            None => None,
        };
        let http = match http {
            Some(address) => {
                let bound = TcpListener::bind(address).await;
                Some(bound.with_context(|| format!("--challenges {address}"))?)
            }
            None => None,
        };
        Ok(Self { tls_alpn, http })
    }

    /// Returns the sockets, which are no endpoints of Services of others.
    pub(super) fn sockets(&self) -> Result<Vec<OwnSocket>> {
        let mut sockets = Vec::new();
        if let Some((_, listener)) = &self.tls_alpn {
            let address = listener.local_addr().context("TLS-ALPN-01")?;
            sockets.push(OwnSocket {
                address,
                service: Some(TlsAlpnResponder::service()),
            });
        }
        if let Some(listener) = &self.http {
            let address = listener.local_addr().context("--challenges")?;
            sockets.push(OwnSocket {
                address,
                service: None,
            });
        }
        Ok(sockets)
    }

    /// Returns the Service by which Envoys reach the responder for TLS-ALPN-01.
    pub(super) fn endpoint_objects(&self) -> Result<Vec<Change>> {
        let Some((_, listener)) = &self.tls_alpn else {
            return Ok(Vec::new());
        };
        let objects =
            TlsAlpnResponder::endpoint_objects(listener.local_addr().context("TLS-ALPN-01")?);
        objects.map_err(|text| anyhow!("TLS-ALPN-01: {text}"))
    }

    /// Serves them until `stop`.
    pub(super) fn serve(self, manager: &Arc<CertificateManager>, wiring: &mut Wiring) {
        if let Some((responder, listener)) = self.tls_alpn {
            wiring.spawn_infallible("TLS-ALPN-01", |stop| responder.serve(listener, stop));
        }
        if let Some(listener) = self.http {
            if let Ok(address) = listener.local_addr() {
                info!("challenges are answered at {address}");
            }
            let manager = manager.clone();
            wiring.spawn_infallible("challenges", |stop| {
                certificates::respond(listener, manager, stop)
            });
        }
    }
}
