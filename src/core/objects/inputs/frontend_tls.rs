//! `spec.tls.frontend` of a Gateway: client certificate validation, by port.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::schema::{port, same_shape};
use super::{LocalRef, Meta, ParseError};
use crate::gateway_api::gateways as gw;
use crate::model::ValidationMode;

/// The most ports that have settings of their own (`perPort`).
const PORTS: usize = 64;
/// The most references of one validation (`caCertificateRefs`).
const REFERENCES: usize = 16;

/// Client certificate validation of a Gateway (GEP-91).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontendTls {
    /// Validation on ports that are not in `ports`.
    pub default: Option<FrontendValidation>,
    /// Validation of single ports, in place of the default; on a port with `None` no client
    /// certificates are requested.
    pub ports: BTreeMap<u16, Option<FrontendValidation>>,
}

/// Validation of client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendValidation {
    /// The objects that hold the CA certificates, 1 to 16.
    pub references: Vec<LocalRef>,
    /// Decides whether clients without a valid certificate are accepted.
    pub mode: ValidationMode,
}

impl FrontendTls {
    pub(super) fn read(meta: &Meta, spec: gw::GatewayTlsFrontend) -> Result<Self, ParseError> {
        let default = spec.default.validation;
        let default = default
            .map(|validation| FrontendValidation::read(meta, "default", validation))
            .transpose()?;
        let mut ports = BTreeMap::new();
        for own in spec.per_port.unwrap_or_default() {
            let number = port(own.port, "spec.tls.frontend.perPort.port")?;
            // The generated types of both validations differ by name only.
            let validation = own.tls.validation.map(same_shape).transpose()?;
            let place = format!("perPort[{number}]");
            let validation = validation
                .map(|own| FrontendValidation::read(meta, &place, own))
                .transpose()?;
            if ports.insert(number, validation).is_some() {
                return Err(ParseError::Schema(format!(
                    "spec.tls.frontend.perPort: port {number} stands there twice"
                )));
            }
        }
        if ports.len() > PORTS {
            return Err(ParseError::Schema(format!(
                "spec.tls.frontend.perPort: more than {PORTS} ports"
            )));
        }
        Ok(Self { default, ports })
    }

    /// Every validation with its port; `None` is the default.
    pub fn all(&self) -> impl Iterator<Item = (Option<u16>, &FrontendValidation)> {
        let ports = self
            .ports
            .iter()
            .filter_map(|(port, own)| Some((Some(*port), own.as_ref()?)));
        self.default
            .iter()
            .map(|default| (None, default))
            .chain(ports)
    }

    /// The objects that all validations refer to.
    pub fn references(&self) -> impl Iterator<Item = &LocalRef> {
        self.all()
            .flat_map(|(_, validation)| &validation.references)
    }
}

impl FrontendValidation {
    fn read(
        meta: &Meta,
        place: &str,
        spec: gw::GatewayTlsFrontendDefaultValidation,
    ) -> Result<Self, ParseError> {
        use gw::GatewayTlsFrontendDefaultValidationMode as Mode;
        let references: Vec<LocalRef> = spec
            .ca_certificate_refs
            .into_iter()
            .map(|to| {
                let namespace = to
                    .namespace
                    .map_or_else(|| meta.name.namespace.clone(), Arc::from);
                LocalRef::to_roots(to.group, to.kind, namespace, to.name)
            })
            .collect();
        if references.is_empty() || references.len() > REFERENCES {
            let text = format!(
                "spec.tls.frontend.{place}.validation.caCertificateRefs: 1 to {REFERENCES} are needed"
            );
            return Err(ParseError::Schema(text));
        }
        let mode = match spec.mode {
            Some(Mode::AllowInsecureFallback) => ValidationMode::AllowInsecureFallback,
            Some(Mode::AllowValidOnly) | None => ValidationMode::AllowValidOnly,
        };
        Ok(Self { references, mode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Object;
    use crate::model::ObjectName;
    use serde_json::{Value, json};

    fn read(frontend: Value) -> Result<FrontendTls, String> {
        let gateway = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": "infra"},
            "spec": {
                "gatewayClassName": "gatewright",
                "listeners": [{"name": "https", "port": 443, "protocol": "HTTPS"}],
                "tls": {"frontend": frontend},
            },
        });
        match Object::parse(gateway).map_err(|error| error.to_string())? {
            Object::Gateway(gateway) => Ok(*gateway.frontend_tls.expect("it is there")),
            _ => unreachable!("a Gateway"),
        }
    }

    fn validation(refs: usize) -> Value {
        let refs: Vec<Value> = (0..refs)
            .map(|n| json!({"group": "", "kind": "ConfigMap", "name": format!("ca{n}")}))
            .collect();
        json!({"validation": {"caCertificateRefs": refs}})
    }

    #[test]
    fn a_port_replaces_the_default_as_a_whole() {
        let mut lax = validation(1);
        lax["validation"]["mode"] = json!("AllowInsecureFallback");
        let ports = json!([{"port": 8443, "tls": lax}, {"port": 9443, "tls": {}}]);
        let read = read(json!({"default": validation(2), "perPort": ports})).expect("it is valid");
        let default = read.default.as_ref().expect("a default");
        assert_eq!(
            default.references.len(),
            2,
            "both references are the port's"
        );
        assert_eq!(
            default.mode,
            ValidationMode::AllowValidOnly,
            "the mode is the port's"
        );
        assert_eq!(default.references[0].name, ObjectName::new("infra", "ca0"));
        let own = read.ports[&8443].as_ref().expect("one of its own");
        assert_eq!(own.mode, ValidationMode::AllowInsecureFallback);
        assert_eq!(read.ports[&9443], None);
        assert_eq!(
            read.all().map(|(port, _)| port).collect::<Vec<_>>(),
            [None, Some(8443)]
        );
        assert_eq!(read.references().count(), 3);
    }

    #[test]
    fn frontend_tls_that_the_schema_refuses_is_refused() {
        fn one(port: i32) -> Value {
            json!({"port": port, "tls": {}})
        }
        for (frontend, expected) in [
            (
                json!({"default": validation(0)}),
                "default.validation.caCertificateRefs: 1 to 16",
            ),
            (
                json!({"default": validation(17)}),
                "default.validation.caCertificateRefs: 1 to 16",
            ),
            (
                json!({"default": {}, "perPort": [{"port": 1, "tls": validation(17)}]}),
                "perPort[1].validation",
            ),
            (
                json!({"default": {}, "perPort": [one(7), one(7)]}),
                "port 7 stands there twice",
            ),
            (
                json!({"default": {}, "perPort": [one(0)]}),
                "perPort.port: 0 is not a port",
            ),
            (
                json!({"default": {}, "perPort": (1..=65).map(one).collect::<Vec<_>>()}),
                "more than 64",
            ),
            (json!({"perPort": []}), "default"),
        ] {
            let error = read(frontend.clone()).expect_err("it is refused");
            assert!(error.contains(expected), "{frontend}: {error}");
        }
    }
}
