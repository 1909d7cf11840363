//! The served hostnames, with the namespaces that serve them.

use std::net::IpAddr;

use super::super::rule::protocol::Protocol;
use super::Explainer;
use gatewright_objects::model::{FrontendId, Hostname, ObjectName};

/// A served hostname.
#[derive(Clone, Debug)]
pub struct Host {
    /// The name; may be a wildcard.
    pub hostname: Hostname,
    /// The frontend.
    pub frontend: FrontendId,
    /// The addresses that the frontend is bound to.
    pub addresses: Vec<IpAddr>,
    /// True if only load balancers may ask there, by the PROXY protocol.
    pub behind_load_balancer: bool,
    /// The protocol.
    pub protocol: Protocol,
    /// The Gateway.
    pub gateway: ObjectName,
    /// The Gateway or ListenerSet of the listener.
    pub owner: ObjectName,
    /// The certificate, if TLS is terminated.
    pub certificate: Option<std::sync::Arc<gatewright_objects::model::Certificate>>,
}

impl Explainer<'_> {
    /// The served hostnames with port, protocol, the owner of the listener, and the certificate.
    pub(in super::super) fn hosts(&self) -> Vec<Host> {
        let mut hosts = Vec::new();
        for (id, frontend) in self
            .frontends()
            .iter()
            .filter(|(_, frontend)| frontend.has_hostnames())
        {
            for (hostname, (listener, protocol)) in frontend.winners() {
                let Some(parent) = self.admission().parents.get(&listener.parent) else {
                    continue;
                };
                let own = parent.listener(&listener.name);
                let gateway = &parent.placement.gateway;
                let certificate = own.and_then(|own| own.served.certificate().cloned());
                let mut served: Vec<Hostname> = self
                    .admission()
                    .attachments
                    .names_of(listener)
                    .filter(|name| hostname.covers(name))
                    .cloned()
                    .collect();
                if served.is_empty() {
                    served.push(hostname.clone());
                }
                for name in served
                    .into_iter()
                    .filter(|name| frontend.owner(name).is_some_and(|(_, l, _)| l == listener))
                {
                    hosts.push(Host {
                        hostname: name,
                        frontend: id.clone(),
                        addresses: frontend.addresses().to_vec(),
                        behind_load_balancer: frontend.clients().proxy_protocol.is_some(),
                        protocol: *protocol,
                        gateway: gateway.clone(),
                        owner: ObjectName::new(
                            listener.parent.name().namespace.clone(),
                            listener.parent.name().name.clone(),
                        ),
                        certificate: certificate.clone(),
                    });
                }
            }
        }
        hosts.sort_by(|a, b| (&a.hostname, &a.frontend).cmp(&(&b.hostname, &b.frontend)));
        hosts
    }

    /// True if a hostname is served by routes of a namespace, or by a listener of the namespace
    /// that has exactly this hostname.
    pub(in super::super) fn is_served_for(&self, hostname: &Hostname, namespace: &str) -> bool {
        let frontends = self.frontends().iter();
        let mut owners = frontends
            .filter(|(_, frontend)| frontend.has_hostnames())
            .filter_map(|(_, frontend)| frontend.owner(hostname));
        owners.any(|(matched, listener, _)| {
            let is_own_listener =
                matched == hostname && *listener.parent.name().namespace == *namespace;
            let mut routes = self.admission().served(hostname, listener);
            is_own_listener || routes.any(|(route, _)| *route.name.namespace == *namespace)
        })
    }

    /// The namespaces of the routes that serve a hostname on a frontend.
    pub(in super::super) fn tenants(&self, host: &Host) -> Vec<String> {
        let Some(frontend) = self.frontends().get(&host.frontend) else {
            return Vec::new();
        };
        let Some((_, listener, _)) = frontend.owner(&host.hostname) else {
            return Vec::new();
        };
        let routes = self.admission().served(&host.hostname, listener);
        let mut all: Vec<String> = routes
            .map(|(key, _)| key.name.namespace.to_string())
            .collect();
        all.sort();
        all.dedup();
        all
    }
}
