//! The message about a listener that asks for HTTP/3 and is served without it.

use super::super::fleet;
use super::super::gateway_exposure::Fleet;
use super::super::http3::udp_port;
use super::super::parent::{Parent, ParentListener};
use super::super::tls_options::Http3;
use super::Report;
use crate::model::FrontendId;

impl Report<'_> {
    /// Why a listener that asks for HTTP/3 is served without it.
    pub(super) fn without_http3(
        self,
        parent: &Parent,
        listener: &ParentListener,
    ) -> Option<String> {
        let why = match &listener.http3 {
            Http3::Off => return None,
            Http3::Refused(why) => why.clone(),
            Http3::On => self.unbound(parent, listener)?,
        };
        Some(format!("HTTP/3 is not served: {why}"))
    }

    /// Why the port of UDP of a listener is not served.
    fn unbound(self, parent: &Parent, listener: &ParentListener) -> Option<String> {
        let port = udp_port(listener);
        let id: FrontendId = parent.frontend(port);
        let frontend = self.frontends.get(&id)?;
        if self.frontends.serves_http3(&id, self.register) {
            return None;
        }
        if !frontend.claims().is_empty() {
            return Some(format!(
                "a UDP listener has port {port}: move it to another port"
            ));
        }
        if self.frontends.rival(&id, self.register).is_some() {
            return Some(format!(
                "another Gateway has port {port} on the same address"
            ));
        }
        if frontend.clients().proxy_protocol.is_some() {
            return Some(format!(
                "port {} takes the PROXY protocol, which QUIC has not",
                listener.port
            ));
        }
        let missing =
            fleet::missing_shared_ports(parent, std::iter::once(port), self.store, self.settings);
        Some(
            missing.unwrap_or_else(|| match parent.placement.exposure.fleet {
                Fleet::Dedicated | Fleet::Isolated => {
                    format!("the Gateway's Service does not lead port {port} to Envoys")
                }
                Fleet::Own | Fleet::Shared => "the Gateway has no address to serve on".to_owned(),
            }),
        )
    }
}
