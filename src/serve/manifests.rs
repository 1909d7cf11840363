//! The manifests of which `serve` is short for. Pure.

use std::fmt::Write;
use std::net::IpAddr;

use gatewright_core::model::Hostname;

use super::brought_certificate::BroughtCertificate;
use crate::cli::{Backend, Place, Site};

/// The sites, with the listening addresses and ports, and the issuer of their certificates.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The sites, as they were given.
    pub(super) sites: Vec<Site>,
    /// The listening addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// The port of HTTPS.
    pub(super) https_port: u16,
    /// The port of plain HTTP.
    pub(super) http_port: u16,
    /// True if public hostnames get certificates from Let's Encrypt.
    pub(super) has_account: bool,
    /// The certificate of `--cert`.
    pub(super) certificate: Option<BroughtCertificate>,
}

impl Plan {
    /// The hostnames, each once, in the order in which they were given.
    pub(super) fn hosts(&self) -> Vec<&Hostname> {
        each_once(self.sites.iter().map(|site| &site.host))
    }

    /// True if a hostname's certificate is of Let's Encrypt, and not of the internal CA.
    pub(super) fn is_of_acme(&self, host: &Hostname) -> bool {
        self.has_account && is_public(host) && self.brought(host).is_none()
    }

    /// The certificate of `--cert`, if it is for a hostname.
    pub(super) fn brought(&self, host: &Hostname) -> Option<&BroughtCertificate> {
        self.certificate
            .as_ref()
            .filter(|certificate| certificate.is_for(host))
    }

    /// The fields of a listener that say where a hostname's certificate comes from.
    fn certificate(&self, host: &Hostname) -> String {
        let http3 = "gatewright.io/http3: Enabled";
        if self.brought(host).is_some() {
            return format!("certificateRefs: [{{name: certificate}}], options: {{{http3}}}");
        }
        let issuer = if self.is_of_acme(host) {
            "acme"
        } else {
            "internal-ca"
        };
        format!("options: {{gatewright.io/issuer: {issuer}, {http3}}}")
    }

    /// The backends, each once, in the order in which they were given.
    fn backends(&self) -> Vec<&Backend> {
        each_once(self.sites.iter().map(|site| &site.backend))
    }

    /// The manifests, as YAML.
    pub(super) fn manifests(&self) -> String {
        let mut text = CLASS.to_owned();
        if let Some(certificate) = &self.certificate {
            text.push_str(&secret(certificate));
        }
        text.push_str(&self.gateway());
        let backends = self.backends();
        for host in self.hosts() {
            text.push_str(&self.route(host, &backends));
        }
        for (index, backend) in backends.iter().enumerate() {
            text.push_str(&service(index, backend));
        }
        text
    }

    fn gateway(&self) -> String {
        let addresses = self.addresses.iter();
        let addresses = addresses.map(|address| format!("{{value: \"{address}\"}}"));
        let addresses = addresses.collect::<Vec<_>>().join(", ");
        let mut text = format!(
            "---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  gatewayClassName: gatewright
  infrastructure:
    parametersRef: {{group: gatewright.io, kind: GatewayParameters, name: edge}}
  addresses: [{addresses}]
  listeners:
  - {{name: http, protocol: HTTP, port: {}}}
",
            self.http_port
        );
        for (index, host) in self.hosts().into_iter().enumerate() {
            let _infallible = write!(
                text,
                "  - name: https-{}
    protocol: HTTPS
    port: {}
    hostname: \"{host}\"
    tls: {{{}}}
",
                index + 1,
                self.https_port,
                self.certificate(host)
            );
        }
        text
    }

    fn route(&self, host: &Hostname, backends: &[&Backend]) -> String {
        let mut text = format!(
            "---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: \"{host}\"}}
spec:
  parentRefs: [{{name: edge}}]
  hostnames: [\"{host}\"]
  rules:
"
        );
        for site in self.sites.iter().filter(|site| site.host == *host) {
            let index = backends
                .iter()
                .position(|backend| **backend == site.backend);
            let backend = name(index.unwrap_or_default());
            let _infallible = write!(
                text,
                "  - matches: [{{path: {{type: PathPrefix, value: \"{}\"}}}}]
    backendRefs: [{{name: {backend}, port: {}}}]
",
                site.path, site.backend.port
            );
        }
        text
    }
}

fn each_once<'a, T: PartialEq>(all: impl Iterator<Item = &'a T>) -> Vec<&'a T> {
    let mut different: Vec<&T> = Vec::new();
    for one in all {
        if !different.contains(&one) {
            different.push(one);
        }
    }
    different
}

/// True for a name that a public CA may certify: below a domain of the public suffix list.
pub(super) fn is_public(host: &Hostname) -> bool {
    let last = host.as_str().rsplit('.').next().unwrap_or_default();
    host.as_str().contains('.') && public_suffix::is_public_suffix(last)
}

fn name(index: usize) -> String {
    format!("backend-{}", index + 1)
}

/// The Secret of a certificate, which has files in place of data.
fn secret(certificate: &BroughtCertificate) -> String {
    // A text of JSON is one of YAML.
    let files = serde_json::Value::from(certificate.files());
    format!(
        "---
apiVersion: v1
kind: Secret
metadata:
  name: certificate
  annotations: {{gatewright.io/files: {files}}}
type: kubernetes.io/tls
"
    )
}

/// The Service of a backend, and what belongs to it.
fn service(index: usize, backend: &Backend) -> String {
    let Backend { place, port, tls } = backend;
    let name = name(index);
    let mut text = format!(
        "---
# {backend}
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
"
    );
    let _infallible = match place {
        Place::Name(called) => writeln!(
            text,
            "spec: {{type: ExternalName, externalName: \"{called}\", ports: [{{name: web, port: {port}}}]}}"
        ),
        Place::Address(address) => write!(
            text,
            "spec: {{ports: [{{name: web, port: {port}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: {}
endpoints: [{{addresses: [\"{address}\"]}}]
ports: [{{name: web, port: {port}}}]
",
            if address.is_ipv4() { "IPv4" } else { "IPv6" }
        ),
    };
    if let (true, Place::Name(called)) = (tls, place) {
        let _infallible = write!(
            text,
            "---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: {name}}}
spec:
  targetRefs: [{{group: \"\", kind: Service, name: {name}}}]
  validation: {{hostname: \"{called}\", wellKnownCACertificates: System}}
"
        );
    }
    text
}

/// What does not depend on the sites.
const CLASS: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatewright}
spec: {controllerName: gatewright.io/gateway-controller}
---
# Plain HTTP is redirected to HTTPS for every host that HTTPS serves.
apiVersion: gatewright.io/v1alpha1
kind: GatewayParameters
metadata: {name: edge}
spec: {plainHttp: Redirect}
---
apiVersion: gatewright.io/v1alpha1
kind: TrafficPolicy
metadata: {name: edge}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]
  compression: {algorithms: [Brotli, Gzip]}
";

#[cfg(test)]
mod tests;
