//! Wanted certificates: names, issuer and Secret. Listeners with an issuer have them, and
//! TenantGateways whose certificates cert-manager does not issue.

use std::fmt;
use std::sync::Arc;

use crate::inputs::{Cloudflare, DigitalOcean, Rfc2136, Route53};
use crate::model::{Hostname, ObjectName};

/// The name of the internal CA among issuers.
pub const INTERNAL_CA: &str = "internal-ca";

/// A wanted certificate. Its issuer writes a `kubernetes.io/tls` Secret, and replaces the present
/// certificate only when it has a better one: a change of the issuer alone interrupts nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedCertificate {
    /// The Secret that listeners refer to. Its name does not depend on the issuer.
    pub secret: ObjectName,
    /// The names on the certificate, the first one first; `*` is a certificate for clients without
    /// SNI.
    pub names: Vec<Hostname>,
    /// The issuer.
    pub issuer: Issuer,
}

/// The issuer of a certificate.
#[derive(Clone, Debug, PartialEq)]
pub enum Issuer {
    /// An issuer of the installation, by its name: [`INTERNAL_CA`], `acme`, or one of the issuers
    /// file.
    Named(Arc<str>),
    /// A CA that speaks ACME (RFC 8555), with an account of the TenantGateway.
    Acme(Arc<AcmeIssuer>),
}

/// Printed for people: the issuer's name, or the URL of the ACME directory.
impl fmt::Display for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Issuer::Named(name) => f.write_str(name),
            Issuer::Acme(acme) => write!(f, "{}", acme.directory),
        }
    }
}

/// A CA that speaks ACME, with the account and the solver.
#[derive(Clone, Debug, PartialEq)]
pub struct AcmeIssuer {
    /// The TenantGateway that has the account.
    pub tenant: ObjectName,
    /// The URL of the ACME directory.
    pub directory: String,
    /// The Secret with the account's key, in the TenantGateway's namespace.
    pub account: ObjectName,
    /// The solver of challenges.
    pub solver: Solver,
}

/// The solver of challenges.
#[derive(Clone, Debug, PartialEq)]
pub enum Solver {
    /// HTTP-01: at `/.well-known/acme-challenge/` on port 80 (RFC 8555, 8.3).
    Http01,
    /// DNS-01: by a TXT record (RFC 8555, 8.4).
    Dns01(Provider),
}

/// The DNS provider of the zone: `spec.dns01` as written. Secrets are in the TenantGateway's
/// namespace.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are the providers'")]
pub enum Provider {
    Cloudflare(Cloudflare),
    Route53(Route53),
    DigitalOcean(DigitalOcean),
    Rfc2136(Rfc2136),
}

impl Provider {
    /// The name of the provider in `spec.dns01.provider`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Provider::Cloudflare(_) => "cloudflare",
            Provider::Route53(_) => "route53",
            Provider::DigitalOcean(_) => "digitalocean",
            Provider::Rfc2136(_) => "rfc2136",
        }
    }
}
