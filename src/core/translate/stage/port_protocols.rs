//! The protocols of ports of the shared fleet, by the GatewayParameters of a class.

use crate::key::Verdict;
use crate::rule::gateway_exposure::{Fleet, GatewayExposure};
use crate::state::parent::ParentListener;
use gatewright_objects::inputs::{Selector, SpokenProtocol};
use gatewright_objects::model::{Family, Reason, TransportPort};
use gatewright_objects::store::Store;

/// Checks whether a listener of a namespace may use its protocol on its port.
///
/// Only the class opens a port without hostnames: its listener gets all its traffic.
pub(crate) fn check(
    exposure: &GatewayExposure,
    listener: &ParentListener,
    namespace: &str,
    store: &Store,
) -> Verdict {
    let (Some(protocol), Fleet::Shared) = (listener.protocol, exposure.fleet) else {
        return Ok(());
    };
    let port = listener.transport_port();
    let family = protocol.family();
    let said = exposure.ports.iter().flat_map(|ports| ports.iter());
    let said = said.into_iter().find(|said| said.transport_port() == port);
    let Some(said) = said else {
        let text = || {
            let TransportPort { number, transport } = port;
            format!(
                "port {port} of the shared fleet is closed to protocol {transport}: whoever runs the class opens it, in \
                 spec.ports of its GatewayParameters (port {number}, protocol {transport})"
            )
        };
        return if family.has_hostnames() {
            Ok(())
        } else {
            Err((Reason::PortUnavailable, text()))
        };
    };
    let (spoken, by_class, instead) = match said.protocol {
        SpokenProtocol::Http => ("HTTP", Family::Http, "HTTP"),
        SpokenProtocol::Tls => ("TLS", Family::Tls, "HTTPS or TLS"),
        SpokenProtocol::Tcp => ("TCP", Family::Tcp, "TCP"),
        SpokenProtocol::Udp => ("UDP", Family::Udp, "UDP"),
    };
    if family == by_class {
        let is_admitted =
            |namespaces: &Selector| namespaces.matches(namespace, store.labels(namespace));
        if said.namespaces.as_ref().is_none_or(is_admitted) {
            return Ok(());
        }
        let text = format!(
            "port {port} of the shared fleet is not open to namespace {namespace}, by the GatewayParameters of the class: use \
             another port, or ask whoever runs the class"
        );
        return Err((Reason::PortUnavailable, text));
    }
    let text = format!(
        "port {port} of the shared fleet speaks {spoken}, by the GatewayParameters of the class: use protocol {instead}, or \
         another port"
    );
    Err((Reason::UnsupportedProtocol, text))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use crate::{Change, Engine, Settings, StatusBody};
    use gatewright_objects::inputs::{Kind, Object, ObjectKey};
    use gatewright_objects::model::ObjectName;

    const GATEWAY: &str = "gateway.networking.k8s.io/v1";

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    fn parameters(name: &str, spec: Value) -> Value {
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "infra", "name": name}, "spec": spec})
    }

    /// Reason and message of `Accepted` of a Gateway's only listener.
    fn told(engine: &mut Engine, protocol: &str, port: u16) -> (&'static str, String) {
        let listener = json!({"name": "l", "protocol": protocol, "port": port});
        let gateway = json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "a"},
            "spec": {"gatewayClassName": "g", "listeners": [listener]}});
        engine.apply(vec![put(gateway)], SystemTime::UNIX_EPOCH);
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge"));
        let StatusBody::Gateway(status) = engine.status(&key).expect("a status").body else {
            panic!("a Gateway's")
        };
        engine.apply(vec![Change::delete(key)], SystemTime::UNIX_EPOCH);
        let condition = &status.listeners[0].conditions[0];
        (condition.reason.as_str(), condition.message.to_string())
    }

    fn engine(spec: Value) -> Engine {
        let mut engine = Engine::new(Settings::new("c", vec![[127, 0, 0, 1].into()]));
        let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"}, "spec": {
            "controllerName": "c", "parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters",
                "namespace": "infra", "name": "p"}}});
        engine.apply(
            vec![put(class), put(parameters("p", spec))],
            SystemTime::UNIX_EPOCH,
        );
        engine
    }

    #[test]
    fn a_listener_asks_of_a_port_what_the_class_says_is_spoken_there() {
        let ports = json!([{"port": 8443, "protocol": "TLS"}, {"port": 8080, "protocol": "HTTP"}]);
        let mut shared = engine(json!({"fleet": "Shared", "ports": ports}));
        for (protocol, port, reason) in [
            ("HTTP", 8443, "UnsupportedProtocol"),
            ("HTTPS", 8443, "Accepted"),
            ("HTTP", 8080, "Accepted"),
            ("HTTPS", 8080, "UnsupportedProtocol"),
            ("HTTP", 9000, "Accepted"),
            ("HTTPS", 9000, "Accepted"),
        ] {
            let (found, message) = told(&mut shared, protocol, port);
            assert_eq!(found, reason, "{protocol} {port}: {message}");
        }
        let (_, message) = told(&mut shared, "HTTP", 8443);
        assert!(
            message.contains("use protocol HTTPS or TLS, or another port"),
            "{message}"
        );
        let mut own = engine(json!({"ports": ports}));
        assert_eq!(
            told(&mut own, "HTTP", 8443).0,
            "Accepted",
            "addresses of its own"
        );
    }

    #[test]
    fn well_known_ports_speak_what_everybody_knows() {
        for wrong in [
            json!({"ports": [{"port": 80, "protocol": "TLS"}]}),
            json!({"ports": [{"port": 443, "protocol": "HTTP"}]}),
            json!({"ports": [{"port": 0, "protocol": "HTTP"}]}),
            json!({"ports": [{"port": 443, "protocol": "TCP"}]}),
            json!({"ports": [{"port": 8080, "protocol": "SCTP"}]}),
        ] {
            assert!(
                Object::parse(parameters("p", wrong.clone())).is_err(),
                "{wrong}"
            );
        }
        assert!(
            Object::parse(parameters(
                "p",
                json!({"ports": [{"port": 443, "protocol": "TLS"}]})
            ))
            .is_ok()
        );
    }
}
