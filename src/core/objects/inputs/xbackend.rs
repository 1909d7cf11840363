//! XBackend: a host outside of the cluster as a backend, with its port, protocol and TLS
//! in one object.
//!
//! It is read as a Service of type ExternalName with one port, and a policy on that Service: what
//! is judged of those is judged of it.

use std::sync::Arc;

use super::schema::same_shape;
use super::{
    Destination, Meta, ParseError, Policy, PolicyRules, Service, ServicePortSpec, TargetPort,
};
use super::{Validation, schema};
use crate::gateway_api::xbackends::{
    XBackendProtocol as Protocol, XBackendSpec, XBackendTls, XBackendTlsMode as Mode, XBackendType,
};
use crate::model::{AppProtocol, ServicePort, Transport, xbackend_service};

impl Destination {
    pub(super) fn policy(meta: Meta, spec: XBackendSpec) -> Result<Policy, ParseError> {
        let XBackendSpec {
            endpoint_selector,
            external_hostname,
            port,
            protocol,
            session_persistence,
            tls,
            r#type,
        } = spec;
        let port = port
            .number
            .map(|number| schema::port(number, "spec.port.number"));
        let port = port.transpose()?;
        let tls = verification(&meta, tls)?;
        let rules = tls.and_then(|tls| {
            if r#type == XBackendType::EndpointSelector || endpoint_selector.is_some() {
                return Err("endpointSelector: it is not supported, use a Service".to_owned());
            }
            if session_persistence.is_some() {
                return Err("sessionPersistence: it is for type EndpointSelector alone".to_owned());
            }
            let hostname = external_hostname.ok_or("externalHostname: it is needed")?;
            Ok(Self {
                hostname: hostname.hostname.into(),
                port: port.ok_or("port.number: it is needed")?,
                protocol: spoken(protocol, tls.is_some())?,
                tls,
            })
        });
        Ok(Policy::of_xbackend(meta, PolicyRules::Destination(rules)))
    }
}

/// The protocol of HTTPRoutes.
fn spoken(protocol: Option<Protocol>, has_tls: bool) -> Result<AppProtocol, String> {
    match (protocol, has_tls) {
        (None | Some(Protocol::Http | Protocol::Http11), _) => Ok(AppProtocol::Http1),
        (Some(Protocol::Http2), true) | (Some(Protocol::H2c), false) => Ok(AppProtocol::H2c),
        (Some(Protocol::Grpc), _) => Ok(AppProtocol::H2c),
        (Some(Protocol::Http2), false) => Err("protocol: HTTP2 needs tls, use H2C".to_owned()),
        (Some(Protocol::H2c), true) => Err("protocol: H2C excludes tls, use HTTP2".to_owned()),
        (Some(Protocol::Tcp | Protocol::Mcp | Protocol::Wss), _) => {
            Err("protocol: HTTP, HTTP11, HTTP2, H2C or GRPC is expected".to_owned())
        }
    }
}

/// The verification that `tls` asks for; `None` for plain text.
fn verification(
    meta: &Meta,
    tls: Option<XBackendTls>,
) -> Result<Result<Option<Validation>, String>, ParseError> {
    let Some(tls) = tls else { return Ok(Ok(None)) };
    let XBackendTls {
        client_certificate_ref,
        mode,
        validation,
    } = tls;
    if mode == Mode::ClientAndServer || client_certificate_ref.is_some() {
        let text = "tls.clientCertificateRef: it is not supported, use mode ServerOnly";
        return Ok(Err(text.to_owned()));
    }
    Ok(match (mode, validation) {
        (Mode::None, None) => Ok(None),
        (Mode::None, Some(_)) => Err("tls.validation: mode None excludes it".to_owned()),
        (_, None) => Err("tls.validation: it is needed".to_owned()),
        (_, Some(validation)) => {
            let read = Validation::read(meta, same_shape(validation)?);
            read.map(Some).map_err(|why| format!("tls.{why}"))
        }
    })
}

impl Policy {
    /// The Service as which an XBackend is served, if it can be.
    pub fn service(&self) -> Option<Service> {
        let PolicyRules::Destination(Ok(destination)) = &self.rules else {
            return None;
        };
        let port = ServicePortSpec {
            name: Arc::from(""),
            port: ServicePort::OF_XBACKEND,
            transport: Transport::Tcp,
            protocol: destination.protocol,
            unknown_protocol: None,
            target: TargetPort::Number(destination.port),
        };
        let meta = Meta {
            name: xbackend_service(&self.meta.name),
            ..self.meta
        };
        Some(Service {
            meta,
            ports: vec![port],
            external_name: Some(destination.hostname.clone()),
            selects: false,
            headless: false,
            distribution: None,
            reached: Vec::new(),
            cluster_ips: Box::default(),
            made: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{Kind, Object, ObjectKey};
    use crate::model::ObjectName;

    fn object(spec: Value) -> Value {
        json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackend",
            "metadata": {"name": "api", "namespace": "a"}, "spec": spec})
    }

    fn external(more: Value) -> Value {
        let mut spec = json!({"type": "ExternalHostname", "port": {"number": 443},
            "externalHostname": {"hostname": "api.example"}});
        for (field, value) in more.as_object().expect("fields") {
            spec[field] = value.clone();
        }
        object(spec)
    }

    fn policy(value: Value) -> Policy {
        match Object::parse_admitted(value).expect("an XBackend") {
            Object::Policy(policy) => policy,
            other => panic!("{other:?}"),
        }
    }

    fn server_only(hostname: &str) -> Value {
        let validation = json!({"hostname": hostname, "wellKnownCACertificates": "System"});
        json!({"mode": "ServerOnly", "validation": validation})
    }

    #[test]
    fn it_is_a_service_of_its_own_and_a_policy_on_it() {
        let read = policy(external(
            json!({"tls": server_only("api.example"), "protocol": "HTTP2"}),
        ));
        assert_eq!(read.key().to_string(), "xbackend a/api");
        let service = read.service().expect("a Service");
        assert_eq!(
            read.targets[0].object,
            ObjectKey::new(Kind::Service, service.meta.name.clone())
        );
        assert_ne!(service.meta.name, ObjectName::new("a", "api"));
        assert_eq!(service.external_name.as_deref(), Some("api.example"));
        assert_eq!(service.ports[0].target, TargetPort::Number(443));
        assert_eq!(service.ports[0].protocol, AppProtocol::H2c);
        let PolicyRules::Destination(Ok(destination)) = &read.rules else {
            panic!("{read:?}")
        };
        let hostname = destination.tls.as_ref().map(|tls| tls.hostname.as_str());
        assert_eq!(hostname, Some("api.example"));
        let plain = policy(external(json!({"tls": {"mode": "None"}})));
        let protocol = plain.service().map(|service| service.ports[0].protocol);
        assert_eq!(protocol, Some(AppProtocol::Http1));
    }

    #[test]
    fn what_is_not_carried_out_is_refused_by_its_field() {
        let selector = json!({"type": "EndpointSelector", "port": {"number": 80},
            "endpointSelector": {"matchLabels": {"app": "web"}}});
        let both = json!({"mode": "ClientAndServer", "clientCertificateRef": {"name": "own"},
            "validation": {"hostname": "api.example", "wellKnownCACertificates": "System"}});
        let unguarded = json!({"mode": "None", "validation": {"hostname": "api.example"}});
        for (asked, field) in [
            (object(selector), "endpointSelector: "),
            (
                object(json!({"type": "ExternalHostname", "port": {"number": 80}})),
                "externalHostname: ",
            ),
            (external(json!({"port": {}})), "port.number: "),
            (
                external(json!({"sessionPersistence": {"type": "Cookie"}})),
                "sessionPersistence: ",
            ),
            (external(json!({"protocol": "MCP"})), "protocol: "),
            (external(json!({"protocol": "TCP"})), "protocol: "),
            (external(json!({"protocol": "HTTP2"})), "protocol: "),
            (
                external(json!({"protocol": "H2C", "tls": server_only("api.example")})),
                "protocol: ",
            ),
            (external(json!({"tls": both})), "tls.clientCertificateRef: "),
            (external(json!({"tls": unguarded})), "tls.validation: "),
            (
                external(json!({"tls": {"mode": "ServerOnly"}})),
                "tls.validation: ",
            ),
            (
                external(json!({"tls": server_only("10.0.0.1")})),
                "tls.validation.hostname: ",
            ),
            (external(json!({"protocol": "QUIC"})), "cannot be read"),
        ] {
            let read = policy(asked.clone());
            assert!(read.service().is_none(), "{asked}");
            let PolicyRules::Destination(Err(text)) = &read.rules else {
                panic!("{read:?}")
            };
            assert!(text.contains(field), "{text}");
        }
    }

    /// A name that is written as the Service of an XBackend leads to none.
    #[test]
    fn no_other_kind_reaches_it_by_its_name() {
        let target = json!({"group": "", "kind": "Service", "name": "xbackend:api"});
        let value = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
            "metadata": {"name": "p", "namespace": "a"}, "spec": {"targetRefs": [target],
            "validation": {"hostname": "x.org", "wellKnownCACertificates": "System"}}});
        let read = policy(value);
        assert!(read.targets.is_empty(), "{read:?}");
        let service = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "xbackend:api", "namespace": "a"}, "spec": {"ports": [{"port": 80}]}});
        assert!(
            Object::parse(service).is_err(),
            "no Service has such a name"
        );
        let key = ObjectKey::new(
            policy(external(json!({}))).kind(),
            ObjectName::new("a", "api"),
        );
        assert_eq!(key.to_string(), "xbackend a/api");
    }
}
