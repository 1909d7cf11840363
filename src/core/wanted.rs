//! Certificates that are wanted: which names, from which issuer, into which Secret. Listeners with an issuer want some, and so do
//! TenantGateways where cert-manager issues nothing.

use std::fmt;
use std::sync::Arc;

use crate::inputs::{Cloudflare, DigitalOcean, Rfc2136, Route53};
use crate::model::{Hostname, ObjectName};

/// The internal CA's name among issuers.
pub const INTERNAL_CA: &str = "internal-ca";

/// A certificate that is wanted. Whoever issues it writes a `kubernetes.io/tls` Secret, and leaves the one that is there in
/// place until a better one is at hand: a change of the issuer alone stops nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedCertificate {
    /// The Secret that listeners refer to. It keeps its name whoever issues.
    pub secret: ObjectName,
    /// The names on the certificate, the first of them first; `*` stands for a certificate for clients that name no host.
    pub names: Vec<Hostname>,
    /// From whom.
    pub issuer: Issuer,
}

/// Who issues a certificate.
#[derive(Clone, Debug, PartialEq)]
pub enum Issuer {
    /// One of the installation, by its name: [`INTERNAL_CA`], `acme`, or one of the issuers file.
    Named(Arc<str>),
    /// A CA that speaks ACME (RFC 8555), with an account of the TenantGateway's own.
    Acme(Arc<AcmeIssuer>),
}

/// As people are told: who it is.
impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Issuer::Named(name) => f.write_str(name),
            Issuer::Acme(acme) => write!(f, "{}", acme.directory),
        }
    }
}

/// A CA that speaks ACME, and how it is satisfied.
#[derive(Clone, Debug, PartialEq)]
pub struct AcmeIssuer {
    /// The TenantGateway whose account it is.
    pub tenant: ObjectName,
    /// The URL of its directory.
    pub directory: String,
    /// The Secret with the account's key, in the TenantGateway's namespace.
    pub account: ObjectName,
    /// How challenges are answered.
    pub solver: Solver,
}

/// How challenges are answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Solver {
    /// At `/.well-known/acme-challenge/` on port 80 (RFC 8555, 8.3).
    Http01,
    /// By a TXT record (RFC 8555, 8.4).
    Dns01(Provider),
}

/// Who serves the zone: `spec.dns01` as it was written. Secrets are in the TenantGateway's namespace.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are the providers'")]
pub enum Provider {
    Cloudflare(Cloudflare),
    Route53(Route53),
    DigitalOcean(DigitalOcean),
    Rfc2136(Rfc2136),
}

impl Provider {
    /// As `spec.dns01.provider` names it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Provider::Cloudflare(_) => "cloudflare",
            Provider::Route53(_) => "route53",
            Provider::DigitalOcean(_) => "digitalocean",
            Provider::Rfc2136(_) => "rfc2136",
        }
    }
}
