//! XBackends among Services: each is served as a Service with one port, whose name no Service can
//! have.

use std::fmt;

use super::{ObjectName, ServicePort, Transport};

/// The beginning of such a name: the name of no object that is a backend has a colon.
const PREFIX: &str = "xbackend:";

/// The name of the Service as which an XBackend is served.
pub fn xbackend_service(xbackend: &ObjectName) -> ObjectName {
    let name = format!("{PREFIX}{}", xbackend.name);
    ObjectName::new(xbackend.namespace.clone(), name)
}

/// The XBackend that is served as a Service of this name; `None` for a name of a real Service.
pub fn xbackend_of(service: &ObjectName) -> Option<ObjectName> {
    let name = service.name.strip_prefix(PREFIX)?;
    Some(ObjectName::new(service.namespace.clone(), name))
}

/// A Service, or the XBackend that is served as one, as messages name it: `Service default/web`.
pub struct ServiceInWords<'a>(pub &'a ObjectName);

impl fmt::Display for ServiceInWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match xbackend_of(self.0) {
            Some(xbackend) => write!(f, "XBackend {xbackend}"),
            None => write!(f, "Service {}", self.0),
        }
    }
}

impl ServicePort {
    /// The number of the only port of a Service as which an XBackend is served. References to it
    /// need none, and lead to the port that the XBackend itself says.
    pub const OF_XBACKEND: u16 = 0;

    /// The port that a reference with this name and number leads to; `None` without a number.
    pub fn referred(service: &ObjectName, port: Option<u16>, transport: Transport) -> Option<Self> {
        let port = match xbackend_of(service) {
            Some(_) => Self::OF_XBACKEND,
            None => port?,
        };
        Some(Self {
            service: service.clone(),
            port,
            transport,
        })
    }

    /// The port as messages name it: `Service default/web:80`, `XBackend default/api`.
    pub fn in_words(&self) -> String {
        let suffix = self.transport.suffix();
        match xbackend_of(&self.service) {
            Some(xbackend) => format!("XBackend {xbackend}"),
            None => format!("Service {}:{}{suffix}", self.service, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_xbackend_is_no_service_of_its_name() {
        let name = ObjectName::new("a", "api.b");
        let service = xbackend_service(&name);
        assert_ne!(service, name, "a Service may have the same name");
        assert_eq!(xbackend_of(&service), Some(name.clone()));
        assert_eq!(xbackend_of(&name), None);
        let of_ref = ServicePort::referred(&service, Some(443), Transport::Tcp);
        let without = ServicePort::referred(&service, None, Transport::Tcp);
        assert_eq!(of_ref, without, "the XBackend says the port");
        assert_eq!(ServicePort::referred(&name, None, Transport::Tcp), None);
        let port = without.expect("a port");
        assert_eq!(port.in_words(), "XBackend a/api.b");
        assert_eq!(port.to_string(), "a/xbackend:api.b:0");
        assert_eq!(ServicePort::tcp(name, 80).in_words(), "Service a/api.b:80");
    }
}
