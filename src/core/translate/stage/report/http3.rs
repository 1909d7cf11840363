//! The message about a listener that asks for HTTP/3 and is served without it.

use super::super::fleet;
use super::Report;
use crate::rule::gateway_exposure::Fleet;
use crate::rule::host_option::HostOption;
use crate::state::http3::udp_port;
use crate::state::parent::{Parent, ParentListener};
use gatewright_objects::model::FrontendId;

impl Report<'_> {
    /// Why a listener that asks for HTTP/3 is served without it.
    pub(crate) fn without_http3(
        self,
        parent: &Parent,
        listener: &ParentListener,
    ) -> Option<String> {
        self.refused_http3(parent, listener)
            .or_else(|| self.unbound(parent, listener).map(text))
    }

    /// The same as far as other objects than the Gateway's Service decide it.
    pub(crate) fn refused_http3(
        self,
        parent: &Parent,
        listener: &ParentListener,
    ) -> Option<String> {
        let why = match &listener.http3 {
            HostOption::Off => return None,
            HostOption::Refused(why) => why.clone(),
            HostOption::On => self.closed_to_quic(parent, listener)?,
        };
        Some(text(why))
    }

    /// Why the port of UDP of a listener has no HTTP/3 wherever it is bound.
    fn closed_to_quic(self, parent: &Parent, listener: &ParentListener) -> Option<String> {
        let port = udp_port(listener);
        let id: FrontendId = parent.frontend(port);
        let frontend = self.frontends.get(&id)?;
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
        let is_proxied = frontend.clients().proxy_protocol.is_some();
        is_proxied.then(|| {
            format!(
                "port {} takes the PROXY protocol, which QUIC has not",
                listener.port
            )
        })
    }

    /// Why the port of UDP of a listener that asks for HTTP/3 is not bound.
    fn unbound(self, parent: &Parent, listener: &ParentListener) -> Option<String> {
        let port = udp_port(listener);
        let frontend = self.frontends.get(&parent.frontend(port))?;
        if listener.http3 != HostOption::On || !frontend.addresses().is_empty() {
            return None;
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

fn text(why: String) -> String {
    format!("HTTP/3 is not served: {why}")
}
