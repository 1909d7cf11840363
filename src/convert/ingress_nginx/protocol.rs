//! What backends speak, and the certificates that they need.

use serde_json::json;

use super::source::{Ingress, Source, name_in};
use crate::convert::Verdict;
use crate::convert::output::{GATEWAY_API, Output};
use crate::convert::report::Report;
use crate::convert::secrets::config_map;

/// `backend-protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Https,
    Grpc,
    Grpcs,
    /// Over TLS what came over TLS.
    AutoHttp,
    FastCgi,
}

impl Protocol {
    pub(super) fn read(ingress: &Ingress) -> Self {
        let name = ingress.annotation("backend-protocol").unwrap_or_default();
        match name.to_uppercase().as_str() {
            "HTTPS" => Self::Https,
            "GRPC" => Self::Grpc,
            "GRPCS" => Self::Grpcs,
            "AUTO_HTTP" => Self::AutoHttp,
            "FCGI" => Self::FastCgi,
            _ => Self::Http,
        }
    }

    pub(super) fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::Grpcs)
    }

    /// False for a protocol that Envoy does not speak to backends here.
    pub(super) fn is_spoken(self) -> bool {
        self != Self::FastCgi
    }

    fn verdict(self) -> (Verdict, &'static str) {
        match self {
            Self::Http => (Verdict::CarriedOver, "HTTP/1.1"),
            Self::Https => (
                Verdict::Differs,
                "BackendTLSPolicy: the backend is verified",
            ),
            Self::Grpc => (Verdict::CarriedOver, "GRPCRoute"),
            Self::Grpcs => (
                Verdict::Differs,
                "GRPCRoute and BackendTLSPolicy: the backend is verified",
            ),
            Self::AutoHttp => (Verdict::NotCarriedOver, "backends get plain HTTP"),
            Self::FastCgi => (
                Verdict::NotCarriedOver,
                "requests are answered 500: put a server of HTTP in front of the application",
            ),
        }
    }
}

/// Writes the BackendTLSPolicies of an Ingress whose backends speak TLS, and the ConfigMap of their
/// CA.
pub(super) fn backend_tls(
    source: &Source,
    ingress: &Ingress,
    services: &[&str],
    output: &mut Output,
    report: &mut Report,
) {
    let protocol = Protocol::read(ingress);
    let (verdict, text) = protocol.verdict();
    report.tell(ingress, "backend-protocol", verdict, text);
    if !matches!(protocol, Protocol::Https | Protocol::Grpcs) {
        return;
    }
    let ca = ca(source, ingress, output, report);
    for &service in services {
        let hostname = ingress.annotation("proxy-ssl-name").map_or_else(
            || format!("{service}.{}.svc", ingress.namespace),
            str::to_owned,
        );
        let mut validation = json!({"hostname": hostname});
        match &ca {
            Some(name) => {
                validation["caCertificateRefs"] =
                    json!([{"group": "", "kind": "ConfigMap", "name": name}]);
            }
            None => validation["wellKnownCACertificates"] = json!("System"),
        }
        let spec = json!({
            "targetRefs": [{"group": "", "kind": "Service", "name": service}],
            "validation": validation,
        });
        let kind = "BackendTLSPolicy";
        let name = output.name(kind, &ingress.namespace, service);
        if name == service {
            output.add(GATEWAY_API, kind, (&ingress.namespace, &name), &spec);
        } else {
            let text = format!("Service {service} has a BackendTLSPolicy of another Ingress");
            report.tell(ingress, "backend-protocol", Verdict::Differs, text);
        }
    }
}

/// The ConfigMap with the CA of backends.
fn ca(
    source: &Source,
    ingress: &Ingress,
    output: &mut Output,
    report: &mut Report,
) -> Option<String> {
    let secret = name_in(&ingress.namespace, ingress.annotation("proxy-ssl-secret")?);
    let data = source.objects.secret(&secret);
    let is_unknown = data.is_none();
    if data
        .as_ref()
        .is_some_and(|data| data.contains_key("tls.key"))
    {
        let text = "a client certificate belongs to the Gateway: tls.backend.clientCertificateRef";
        report.tell(ingress, "proxy-ssl-secret", Verdict::NotCarriedOver, text);
    }
    let pem = data.and_then(|data| Some(String::from_utf8_lossy(data.get("ca.crt")?).into_owned()));
    if let Some(pem) = pem {
        let text = "BackendTLSPolicy with a ConfigMap of ca.crt";
        report.tell(ingress, "proxy-ssl-secret", Verdict::CarriedOver, text);
        return Some(config_map(
            &ingress.namespace,
            &format!("{}-ca", secret.1),
            &pem,
            output,
        ));
    }
    if is_unknown {
        let text = format!(
            "ConfigMap {0}-ca, which is not written: add Secret {1}/{0} to the input",
            secret.1, secret.0
        );
        report.tell(ingress, "proxy-ssl-secret", Verdict::NotCarriedOver, text);
        return Some(format!("{}-ca", secret.1));
    }
    None
}
