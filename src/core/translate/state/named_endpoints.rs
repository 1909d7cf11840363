//! Endpoints by name: the addresses of the name of a Service of type ExternalName, or of an
//! XBackend.
//!
//! The owner of a name outside of the cluster can have it lead anywhere, and lead elsewhere a
//! moment later (DNS rebinding). So each address is judged whenever the name is resolved, and
//! whenever something gets the address. A label that permits a namespace any endpoint permits no
//! name any: the author of the addresses is not the namespace's.

use std::net::SocketAddr;

use super::endpoints::{AllowedEndpoints, PermittedEndpoints, in_words};
use gatewright_objects::inputs::{Service, TargetPort};
use gatewright_objects::model::{Reason, ServiceInWords, ServicePort};

impl AllowedEndpoints<'_> {
    /// Returns the addresses of the name of a Service, with the port to which the Service port
    /// leads.
    pub(crate) fn named(self, port: &ServicePort, service: &Service) -> PermittedEndpoints {
        let mut permitted = PermittedEndpoints::default();
        let number = service
            .port(port.port, port.transport)
            .map(|spec| match spec.target {
                TargetPort::Number(number) => number,
                // Nothing outside of the cluster has named ports.
                TargetPort::Name(_) => spec.port,
            });
        // References to a name that is not resolved are refused.
        let (Some(number), Some(Ok(name))) = (number, self.store.external_name(service)) else {
            return permitted;
        };
        let service = &port.service;
        let shown = ServiceInWords(service);
        if let Some(beyond) = self.quotas.name_beyond(service) {
            permitted.problem = Some(beyond);
            return permitted;
        }
        let Some(resolution) = self.store.resolution(service) else {
            let text = format!("{shown}: {name} is being resolved");
            permitted.problem = Some((Reason::Pending, text));
            return permitted;
        };
        for ip in resolution.addresses.iter() {
            let address = SocketAddr::new(*ip, number);
            match self.refuses_named(port, address) {
                None => permitted.addresses.push(address),
                Some(why) => permitted.refused.push((address, why)),
            }
        }
        permitted.problem = match (&resolution.problem, permitted.refused.is_empty()) {
            (_, false) => {
                let text = format!(
                    "{shown} port {}: nothing is sent to addresses of {name}: {}: have its records list others",
                    if port.port == ServicePort::OF_XBACKEND {
                        number
                    } else {
                        port.port
                    },
                    in_words(&permitted.refused)
                );
                Some((Reason::EndpointNotPermitted, text))
            }
            (Some(problem), true) if permitted.addresses.is_empty() => {
                let text = format!("{shown}: {name}: {problem}");
                Some((Reason::NameNotResolved, text))
            }
            (_, true) => None,
        };
        permitted
    }

    /// Returns why a name may not have an address; `None` if it may.
    fn refuses_named(self, port: &ServicePort, address: SocketAddr) -> Option<String> {
        let ip = address.ip();
        self.refuses_everywhere(port, address, false)
            .or_else(|| self.held(ip).map(str::to_owned))
            .or_else(|| self.store.name_policy()?.refuses_address(ip))
    }
}
