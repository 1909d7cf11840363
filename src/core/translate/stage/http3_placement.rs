//! Places the certificates of hosts with HTTP/3.

use std::sync::Arc;

use super::compile::Units;
use crate::delta::ResourceKey;
use crate::rule::host_option::HostOption;
use crate::rule::protocol::Protocol;
use crate::state::dirty::Dirty;
use crate::state::parent::ParentListener;
use crate::state::secret_names::{fixed_name, secret};
use gatewright_objects::model::{Certificate, FrontendId, Hostname, Scope, Transport};

impl Units<'_> {
    /// Places the certificate of a host of a frontend of TCP, if its listener has HTTP/3 and it has
    /// a scope, whose responses tell clients of it.
    pub(crate) fn place_http3(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        listener: Option<&ParentListener>,
        scope: Option<&mut Scope>,
        dirty: &mut Dirty,
    ) {
        let certificate = listener.filter(|_| scope.is_some()).and_then(certificate);
        let quic = id.over(Transport::Udp);
        let is_placed = certificate.is_some();
        let frontend = self.frontends.get_mut(&quic);
        let Some(frontend) = frontend.filter(|_| id.transport == Transport::Tcp) else {
            return;
        };
        frontend
            .http3_mut()
            .place(&quic, hostname, is_placed, dirty);
        let name = fixed_name(&quic, hostname);
        let placed =
            certificate.map(|certificate| secret(name.clone(), certificate, Arc::default()));
        self.emissions
            .emit(ResourceKey::Secret(name), placed, dirty);
        let register = self.routing.admission.register;
        if let Some(scope) = scope.filter(|_| is_placed)
            && self.frontends.serves_http3(&quic, register)
        {
            scope.virtual_host.http3 = Some(id.port);
        }
    }
}

/// The certificate of a listener with HTTP/3.
fn certificate(listener: &ParentListener) -> Option<Arc<Certificate>> {
    let certificate = listener.served.certificate();
    certificate
        .filter(|_| listener.http3 == HostOption::On && listener.protocol == Some(Protocol::Https))
        .cloned()
}
