//! Certificate requests: names, issuer and target Secret.

use std::collections::BTreeSet;
use std::sync::Arc;

use acme::names::NameError;
use acme::{DnsName, Names};

use super::settings::IssuerSettings;
use gatewright_core::model::{Hostname, ObjectName};

/// A request for a certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct CertificateRequest {
    /// The target Secret. Its namespace is the tenant: names of two namespaces never share a
    /// certificate.
    pub secret: ObjectName,
    /// The names of the certificate.
    pub hostnames: BTreeSet<Hostname>,
    /// The issuer.
    pub issuer: IssuerRef,
}

/// A reference to an issuer.
#[derive(Clone, Debug, PartialEq)]
pub enum IssuerRef {
    /// An issuer of the installation: `internal-ca`, `acme`, or one of the issuers file.
    Named(Arc<str>),
    /// An issuer that an object describes for itself, with its own account and credentials.
    Own {
        /// The object, a TenantGateway.
        owner: ObjectName,
        /// The settings of the issuer.
        settings: Arc<IssuerSettings>,
    },
}

impl CertificateRequest {
    /// Returns the names in the form of certificates.
    ///
    /// # Errors
    /// When a name is not valid in a certificate.
    pub fn names(&self) -> Result<Names, NameError> {
        Names::parse(self.hostnames.iter().map(Hostname::as_str))
    }

    /// Returns whether the certificate would be valid for this host.
    pub fn covers(&self, host: &DnsName) -> bool {
        self.names()
            .is_ok_and(|names| acme::certificate::serves(&names, host))
    }
}

/// The name in the certificate for clients without SNI (RFC 6761, 6.4: the domain is reserved).
const NOBODY: &str = "no-name.invalid";

/// Returns the name in a certificate for a hostname of a listener.
pub(super) fn name_in_certificate(hostname: &Hostname) -> Hostname {
    if hostname.is_any() {
        Hostname::parse(NOBODY).expect("a hostname")
    } else {
        hostname.clone()
    }
}
